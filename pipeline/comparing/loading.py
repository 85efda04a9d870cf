# SPDX-License-Identifier: Apache-2.0
"""The tokenizers of a comparison, each under a label that no other has."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.tokenizer import Tokenizer

_ORACLES = {"0.23": "8", "1.0": "17", "8": "8", "17": "17"}
"""What may come after "@": a version of HF tokenizers, or of Unicode -> `unicode` of `Tokenizer.from_file`."""


@dataclass(frozen=True)
class Candidate:
    """A tokenizer that is compared."""

    label: str
    path: str
    tokenizer: Tokenizer
    load_seconds: float
    """How long reading its file took."""


_SAYS_NOTHING = ("vocab", "tokenizer.json")


def load(paths: Sequence[str], least: int = 2) -> list[Candidate]:
    """Loads tokenizers of any format.

    Args:
      paths: files or folders, as `Tokenizer.from_file` takes them; "bert@1.0" is the file bert with the ids of HF
        tokenizers 1.0, "bert@0.23" with those of 0.23.

    Raises:
      ValueError: if there are fewer, or one is broken or not supported. OSError: if one cannot be read.
    """
    if len(paths) < least:
        raise ValueError(f"a comparison takes two tokenizers or more, got {len(paths)}")
    found = []
    for label, path in zip(labels(paths), paths, strict=True):
        started = time.perf_counter()
        try:
            tokenizer = _load(path)
        except ValueError as error:
            raise ValueError(f"{path!r}: {error}") from error
        found.append(Candidate(label, path, tokenizer, time.perf_counter() - started))
    return found


def _load(path: str) -> Tokenizer:
    name, _, oracle = path.rpartition("@")
    if not name or os.path.lexists(path):
        return Tokenizer.from_file(path)
    if oracle not in _ORACLES:
        raise ValueError(f"after '@' comes one of {', '.join(_ORACLES)}, got {oracle!r}")
    return Tokenizer.from_file(name, unicode=_ORACLES[oracle])


def labels(paths: Sequence[str]) -> list[str]:
    """Returns a label for each path: its last names, as many as tell it from the others and say something; a number.

    >>> labels(["a/tokenizer.json", "b/tokenizer.json", "gpt2", "gpt2", "build/mine/vocab"])
    ['a/tokenizer.json', 'b/tokenizer.json', 'gpt2', 'gpt2#2', 'mine/vocab']
    """
    parts = [path.replace("\\", "/").rstrip("/").split("/") for path in paths]
    found = []
    for i, mine in enumerate(parts):
        others = [each for each in parts if each != mine]
        least = 2 if mine[-1] in _SAYS_NOTHING else 1
        n = next((n for n in range(least, len(mine)) if all(each[-n:] != mine[-n:] for each in others)), len(mine))
        same = parts[:i].count(mine)
        found.append("/".join(mine[-n:]) + (f"#{same + 1}" if same else ""))
    assert max(Counter(found).values()) == 1
    return found
