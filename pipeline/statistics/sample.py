# SPDX-License-Identifier: Apache-2.0
"""Counts that are too expensive for every document, from a sample: words kept whole, and round trips through decoding.

Which documents of a split are in it depends only on their number in the split and on the planned size of the split. The
sample has about `SAMPLE_BYTES` of each split, or all of a smaller split.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.hashing import mix
from tokenmill.pipeline.statistics import words
from tokenmill.pipeline.statistics.words import Ints
from tokenmill.tokenizer import Tokenizer

SAMPLE_BYTES = 32 << 10
"""About how much text of a split is in the sample. With splits of 32 MiB this is 0.1 % of the text, and less than 1 %
of the processor time of a job."""

MAX_DOCUMENT_BYTES = 1 << 20
"""Longer documents are not sampled: their words alone would fill the memory."""

_PENDING_BYTES = 4 << 20

COUNTED = (
    "sampled_documents",
    "sampled_bytes",
    "round_trips",
    "round_trips_but_spaces",
    "sampled_words",
    "whole_words",
)
"""The counts of a sample: documents; bytes of their texts; documents whose tokens decode to the text, exactly, and with
white space ignored; spaced words, and those of them that the tokenizer keeps as one token."""


class Sample:
    """Collects the sampled documents of a split: measuring them together is cheaper than batch by batch."""

    def __init__(self, tokenizer: Tokenizer, n_planned: int, *, has_spans: bool) -> None:
        """Starts with none.

        Args:
          has_spans: whether there are tokens for spans, which were cut out of the texts.
        """
        self._tokenizer, self._skips_special = tokenizer, has_spans
        self._limit = np.uint64((1 << 64) - 1) // np.uint64(max(1, -(-n_planned // SAMPLE_BYTES)))
        self._n_documents = self._n_bytes = 0
        self._pending: list[tuple[pa.Array, ...]] = []

    def add(self, texts: pa.Array, ids: pa.LargeListArray, *columns: pa.Array) -> bool:
        """Keeps those documents of a batch that are in the sample.

        Args:
          ids: their tokens, before truncation.
          columns: further columns to keep with them.

        Returns:
          Whether so much is collected that `counts` should be called.
        """
        numbers = np.arange(self._n_documents, self._n_documents + len(texts), dtype=np.uint64)
        self._n_documents += len(texts)
        chosen = np.flatnonzero(mix(numbers) <= self._limit)
        if chosen.size:
            sizes = pc.binary_length(texts.take(pa.array(chosen))).to_numpy()
            is_short = sizes <= MAX_DOCUMENT_BYTES
            self._n_bytes += int(sizes[is_short].sum())
            taken = [column.take(pa.array(chosen[is_short])) for column in (texts, ids, *columns)]
            self._pending.append((taken[0].cast(pa.large_string()), *taken[1:]))
        return self._n_bytes > _PENDING_BYTES

    def counts(self) -> tuple[list[pa.Array], dict[str, Ints]]:
        """Returns the further columns of the collected documents, and their `measure`; then forgets these documents."""
        if not self._pending:
            return [], {}
        texts, ids, *columns = (pa.concat_arrays(column) for column in zip(*self._pending, strict=True))
        self._pending, self._n_bytes = [], 0
        return columns, measure(self._tokenizer, texts, ids, self._skips_special)


def measure(tokenizer: Tokenizer, texts: pa.LargeStringArray, ids: pa.LargeListArray, skips: bool) -> dict[str, Ints]:
    """Returns each number of `COUNTED` for texts, int64[n].

    Args:
      skips: whether special tokens are not part of the texts.
    """
    split, rows = words.split(texts)
    distinct = split.dictionary_encode()
    is_whole = words.encode(tokenizer, distinct.dictionary).is_whole[distinct.indices.to_numpy()]
    comes_back, but_spaces = _round_trips(tokenizer, texts, tokenizer.decode_arrow(ids, skip_special_tokens=skips))
    numbers = (
        np.ones(len(texts)),
        pc.binary_length(texts).to_numpy(),
        comes_back,
        but_spaces,
        np.bincount(rows, minlength=len(texts)),
        np.bincount(rows[is_whole], minlength=len(texts)),
    )
    return {name: column.astype(np.int64) for name, column in zip(COUNTED, numbers, strict=True)}


def _round_trips(
    tokenizer: Tokenizer, texts: pa.Array, decoded: pa.Array
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Returns which texts equal what was decoded, both normalized; and which do if white space is ignored."""
    comes_back = pc.equal(texts, decoded).to_numpy(zero_copy_only=False).copy()
    lost = np.flatnonzero(~comes_back)
    sides = [column.take(pa.array(lost)) for column in (texts, decoded)]
    if tokenizer.normalizer is not None:
        sides = [tokenizer.normalizer.normalize_arrow(column) for column in sides]
        comes_back[lost] = pc.equal(*sides)
    but_spaces = comes_back.copy()
    but_spaces[lost] = pc.equal(*map(words.join, sides))
    return comes_back, but_spaces
