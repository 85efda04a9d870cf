# SPDX-License-Identifier: Apache-2.0
"""The tokenizers of a comparison, each under a label that no other has; or one at several sizes of its vocabulary.

BPE training adds one token after the other, so training for a smaller size would give the beginning of the vocabulary.
WordPiece by the same rule keeps no merges, and Unigram prunes down to a size: these must be trained for each size.
"""

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.tokenizer import BPE, Tokenizer

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


def at_sizes(candidates: Sequence[Candidate], sizes: Sequence[int]) -> list[Candidate]:
    """Returns each tokenizer at each of the sizes, ascending, labelled `label@size`.

    Raises:
      ValueError: as `smaller`, naming the tokenizer.
    """
    found = []
    for each in candidates:
        for size in sorted(set(sizes)):
            try:
                tokenizer = smaller(each.tokenizer, size)
            except ValueError as error:
                raise ValueError(f"{each.path!r}: {error}") from error
            found.append(dataclasses.replace(each, label=f"{each.label}@{size}", tokenizer=tokenizer))
    return found


def smaller(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """Returns a BPE tokenizer as it was when its vocabulary had `size` entries, the alphabet included.

    It adds no tokens around texts, which are compared bare, and has no added token except those in its vocabulary.

    Raises:
      ValueError: if it is not BPE with merges in the order of training, or its vocabulary never had this size.
    """
    model = tokenizer.model
    if not isinstance(model, BPE) or model.merge_ranks is not None:
        raise ValueError(
            f"--sizes: takes BPE with its merges, and this is {type(model).__name__}"
            f"{' of SentencePiece' if isinstance(model, BPE) else ''}, which does not say what a smaller one would "
            "hold; train it with tokenizer.train.vocab_size: [8000, 16000, ...] and compare those"
        )
    prefix = model.continuing_subword_prefix or ""
    made = [left + right.removeprefix(prefix) for left, right in model.merges]
    kept = set(model.vocab) - set(made)
    n_first, n_merges = len(kept), 0
    while n_merges < len(made) and len(kept) < size:
        kept.add(made[n_merges])
        n_merges += 1
    if len(kept) != size:
        raise ValueError(
            f"--sizes: must be from {n_first:,}, what the vocabulary begins with, to {len(model.vocab):,}, all of it; "
            f"got {size:,}"
        )
    ids = {token: i for i, token in enumerate(sorted(kept, key=model.vocab.__getitem__))}
    added = [dataclasses.replace(each, id=ids[each.content]) for each in tokenizer.added_tokens if each.content in ids]
    return tokenizer.replace(
        model=dataclasses.replace(model, vocab=ids, merges=list(model.merges[:n_merges])),
        added_tokens=tuple(added), post_processor=None, truncation=None, padding=None,
    )  # fmt: skip
