# SPDX-License-Identifier: Apache-2.0
"""The tokenizers of a comparison, each under a label that no other has."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.tokenizer import Tokenizer


@dataclass(frozen=True)
class Candidate:
    """A tokenizer that is compared."""

    label: str
    path: str
    tokenizer: Tokenizer
    load_seconds: float
    """How long reading its file took."""


def load(paths: Sequence[str], least: int = 2) -> list[Candidate]:
    """Loads tokenizers of any format.

    Args:
      paths: files or folders, as `Tokenizer.from_file` takes them.
      least: how many there must be.

    Raises:
      ValueError: if there are fewer, or one is broken or not supported. OSError: if one cannot be read.
    """
    if len(paths) < least:
        raise ValueError(f"a comparison takes two tokenizers or more, got {len(paths)}")
    found = []
    for label, path in zip(labels(paths), paths, strict=True):
        started = time.perf_counter()
        try:
            tokenizer = Tokenizer.from_file(path)
        except ValueError as error:
            raise ValueError(f"{path!r}: {error}") from error
        found.append(Candidate(label, path, tokenizer, time.perf_counter() - started))
    return found


def labels(paths: Sequence[str]) -> list[str]:
    """Returns a label for each path: its last names, as many as tell it from the others; then a number.

    >>> labels(["a/tokenizer.json", "b/tokenizer.json", "gpt2", "gpt2"])
    ['a/tokenizer.json', 'b/tokenizer.json', 'gpt2', 'gpt2#2']
    """
    parts = [path.replace("\\", "/").rstrip("/").split("/") for path in paths]
    found = []
    for i, mine in enumerate(parts):
        others = [each for each in parts if each != mine]
        n = next((n for n in range(1, len(mine)) if all(each[-n:] != mine[-n:] for each in others)), len(mine))
        same = parts[:i].count(mine)
        found.append("/".join(mine[-n:]) + (f"#{same + 1}" if same else ""))
    assert max(Counter(found).values()) == 1
    return found
