# SPDX-License-Identifier: Apache-2.0
"""Which hash partition of a counts artifact a word belongs to. No Beam here."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline import schemas

N_PARTITIONS = 16
"""Hash partitions of a counts artifact: fixed, because its files are the same whatever the number of workers."""

_HASHED_BYTES = 32
_HASHED_AT_ONCE = 1 << 16


def partition_of(words: pa.LargeBinaryArray, n_partitions: int) -> npt.NDArray[np.int64]:
    """Returns the hash partition of each word, int64[n]: a function of its bytes alone, on every machine.

    The hash takes in the length and the first 32 bytes, which tell nearly all words of any language apart; words that
    share them share a partition, no more.
    """
    n_words = len(words)
    _, offsets, values = words.buffers()
    if not n_words or not values:
        return np.zeros(n_words, np.int64)  # no word, or nothing but the empty one
    starts = np.frombuffer(offsets, np.int64)[words.offset : words.offset + n_words + 1]
    data = np.frombuffer(values, np.uint8)
    partitions = np.empty(n_words, np.int64)
    for first in range(0, n_words, _HASHED_AT_ONCE):
        chunk = slice(first, min(first + _HASHED_AT_ONCE, n_words))
        partitions[chunk] = _hash_prefixes(data, starts[chunk], np.diff(starts)[chunk]) % np.uint64(n_partitions)
    return partitions


def partitions_of(counts: pa.Table, n_partitions: int) -> Iterator[pa.RecordBatch]:
    """Yields the words of each hash partition, empty ones too, in the order they have in `counts`.

    Args:
      counts: `schemas.WORD_COUNTS`.
      n_partitions: how many there are.
    """
    words, occurrences = counts["word"].combine_chunks(), counts["count"].combine_chunks()
    partitions = partition_of(words, n_partitions)
    order = np.argsort(partitions, kind="stable")
    bounds = np.searchsorted(partitions[order], np.arange(n_partitions + 1)).tolist()
    for start, stop in itertools.pairwise(bounds):
        rows = pa.array(order[start:stop])
        yield pa.record_batch([words.take(rows), occurrences.take(rows)], schema=schemas.WORD_COUNTS)


def _hash_prefixes(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    columns = np.arange(_HASHED_BYTES)
    positions = np.minimum(starts[:, None] + columns, data.size - 1)
    prefixes = np.where(columns < lengths[:, None], data[positions], 0).astype(np.uint8)
    state = lengths.astype(np.uint64)
    for word in prefixes.view("<u8").T:
        # A multiplication carries bits up, a shift brings them down again (MurmurHash3's finalizer).
        state = (state ^ word) * np.uint64(0xFF51AFD7ED558CCD)
        state ^= state >> np.uint64(33)
        state *= np.uint64(0xC4CEB9FE1A85EC53)
        state ^= state >> np.uint64(29)
    return state
