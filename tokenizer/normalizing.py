# SPDX-License-Identifier: Apache-2.0
"""The normalizer as a separate step, over rows that may be parts of documents."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import normalizers
from tokenmill.tokenizer.pre_tokenizers import Metaspace, Sequence
from tokenmill.tokenizer.pre_tokenizers.sequence import scanner_of
from tokenmill.tokenizer.ragged import Ragged, gathered, mended, read_only
from tokenmill.tokenizer.traced import Traced

_START_BYTES = 256


class NormalizingStage:
    """Normalizes rows, and tracks which of them still begin where their document begins."""

    def __init__(self, normalizer: Any, pre_tokenizer: Any, *, spaces_matter: bool = False) -> None:
        """Prepares a stage; `normalizer` may be None.

        spaces_matter: whether anything besides the pre-tokenizer looks at white space.
        """
        self._normalizer = normalizer if spaces_matter else without_idle_steps(normalizer, pre_tokenizer)
        self._asks_for_start = _asks_for_start(pre_tokenizer)

    def run(self, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> tuple[Ragged, npt.NDArray[np.bool_]]:
        """Returns the normalized rows, and which of them are at the start of their document, bool[n_rows]."""
        if self._normalizer is None:
            return rows, is_first
        normalized = self._normalizer.normalize_rows(rows)
        if self._asks_for_start and normalized is not rows:
            is_first = read_only(is_first & self._keeps_start(rows, normalized))
        return normalized, is_first

    def _keeps_start(self, before: Ragged, after: Ragged) -> npt.NDArray[np.bool_]:
        """Returns which rows still begin with their first character after normalization, bool[n_rows].

        As in HF, a text whose first characters were removed starts later, so that a pre-tokenizer that treats the start
        of a document differently does not see a start. Only rows whose first bytes changed are traced to find out.
        """
        keeps = np.ones(before.n_rows, np.bool_)
        changed = np.flatnonzero(_first_bytes(before) != _first_bytes(after))
        if changed.size:
            starts = before.offsets[changed]
            heads = gathered(before.values, starts, np.minimum(starts + _START_BYTES, before.offsets[changed + 1]))
            traced = Traced.original(mended(heads, "ignore"))
            keeps[changed] = keeps_start(traced, self._normalizer.trace(traced))
        return keeps


def keeps_start(before: Traced, after: Traced) -> npt.NDArray[np.bool_]:
    """Returns which rows still begin with their first character, or are empty now, bool[n_rows]."""
    keeps = np.ones(before.rows.n_rows, np.bool_)
    old, new = before.bounds, after.bounds
    filled = (np.diff(old) > 0) & (np.diff(new) > 0)
    keeps[filled] = before.starts[old[:-1][filled]] == after.starts[new[:-1][filled]]
    return keeps


def _makes_one_space(step: Any) -> bool:
    # Compares fields, because a `Replace` made here would compile its expression.
    return isinstance(step, normalizers.Replace) and (step.pattern, step.content, step.is_regex) == (r"\s+", " ", True)


def without_idle_steps(normalizer: Any, pre_tokenizer: Any) -> Any:
    """Returns a normalizer that leads to the same pre-tokens in fewer steps, None if no step is left.

    For example, CLIP replaces each run of white space by one space, which has no effect before a pre-tokenizer that
    drops white space.
    """
    steps = list(normalizer.normalizers) if isinstance(normalizer, normalizers.Sequence) else [normalizer]
    last = len(steps)
    while last > 0 and isinstance(steps[last - 1], normalizers.Lowercase):
        last -= 1  # lower-casing neither makes nor changes white space
    if last == 0 or not _makes_one_space(steps[last - 1]):
        return normalizer
    scanner = None if pre_tokenizer is None else scanner_of(pre_tokenizer)
    if scanner is None or not scanner.drops_spaces:
        return normalizer
    del steps[last - 1]
    return without_idle_steps(normalizers.Sequence(tuple(steps)), pre_tokenizer) if steps else None


def _first_bytes(rows: Ragged) -> npt.NDArray[np.int64]:
    """Returns the first bytes of each row, up to four, as one number, int64[n_rows]."""
    found = np.zeros(rows.n_rows, np.int64)
    lengths = np.diff(rows.offsets)
    for i in range(4):
        there = lengths > i
        found[there] |= rows.values[rows.offsets[:-1][there] + i].astype(np.int64) << (8 * i)
    return found


def _asks_for_start(pre_tokenizer: Any) -> bool:
    """Whether a pre-tokenizer treats the start of a document differently."""
    if isinstance(pre_tokenizer, Sequence):
        return any(_asks_for_start(part) for part in pre_tokenizer.pretokenizers)
    return isinstance(pre_tokenizer, Metaspace) and pre_tokenizer.prepend_scheme == "first"
