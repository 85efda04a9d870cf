# SPDX-License-Identifier: Apache-2.0
"""Hashes of words, which say where in a spill a word is, and in which hash partition of a counts artifact. No Beam.

A kernel computes them. Its reference implementation is in `tests/pipeline/counting/test_count.py`.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import children
from tokenmill.tokenizer.compiling.kernel import kernel

N_PARTITIONS = 16
"""The fewest hash partitions of a counts artifact; the number never depends on workers, because each is a file."""

PARTITION_BYTES = 256 << 30
"""The most text of the input for each partition: of many languages at 10 TB, some 80 million distinct words."""

_HASHED_BYTES = 32
"""How many bytes of a word decide."""
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)


def n_partitions_of(n_work: int) -> int:
    """Returns how many partitions the counts of a plan have, a power of two; `n_work` is `Splits.n_work`.

    Each partition of 16 is the union of several of 32, 64, ..., so artifacts of all sizes can be added up.
    """
    n = N_PARTITIONS
    while n * PARTITION_BYTES < n_work:
        n *= 2
    return n


def partition_of(words: pa.LargeBinaryArray, n_partitions: int) -> npt.NDArray[np.int64]:
    """Returns int64[n]: the hash partition of each word, which depends only on its bytes, on every machine.

    The hash covers the length and the first 32 bytes, in which nearly all words of any language differ. Words that
    agree in both are merely in the same partition.
    """
    return (_hashes(words) % np.uint64(n_partitions)).astype(np.int64)


def word_keys(words: pa.LargeBinaryArray, n_partitions: int) -> npt.NDArray[np.uint64]:
    """Returns uint64[n]: the key of each word in a spill. Partition i has the keys of `spill.shard_range(i, ...)`.

    Args:
      words: the words.
      n_partitions: how many partitions there are, a power of two from 2.
    """
    hashes, n_bits = _hashes(words), np.uint64(n_partitions.bit_length() - 1)
    return (hashes >> n_bits) | (hashes << (np.uint64(64) - n_bits))  # the lowest bits are the partition


def _hashes(words: pa.LargeBinaryArray) -> npt.NDArray[np.uint64]:
    hashes = np.empty(len(words), np.uint64)
    starts, data = children(words)
    hash_words(data.to_numpy(), starts, hashes)
    return hashes


def partitions_of(counts: pa.Table, n_partitions: int) -> Iterator[pa.RecordBatch]:
    """Yields the words of each hash partition, empty ones too, in the order they have in `counts`.

    Args:
      counts: `schemas.WORD_COUNTS`.
      n_partitions: how many there are.
    """
    partitions = partition_of(counts["word"].combine_chunks(), n_partitions)
    # NumPy uses radix sort for 16-bit numbers.
    order = np.argsort(partitions.astype(np.min_scalar_type(n_partitions)), kind="stable")
    columns = [column.combine_chunks().take(pa.array(order)) for column in counts.columns]
    gathered = pa.record_batch(columns, schema=schemas.WORD_COUNTS)
    bounds = np.cumsum(np.bincount(partitions, minlength=n_partitions)).tolist()
    for start, stop in itertools.pairwise([0, *bounds]):
        yield gathered.slice(start, stop - start)


@kernel
def hash_words(values: Any, offsets: Any, hashes: Any) -> None:
    """Hashes words.

    Args:
      values: uint8[n_bytes]; offsets: int64[n + 1]: the words; `values` are read-only.
      hashes: uint64[n], filled.
    """
    for k in range(hashes.size):
        at, stop = offsets[k], offsets[k + 1]
        state = np.uint64(stop - at)
        for begin in range(at, at + _HASHED_BYTES, 8):
            eight = np.uint64(0)
            for q in range(begin, min(begin + 8, stop)):
                eight |= np.uint64(values[q]) << np.uint64(8 * (q - begin))
            # A multiplication carries bits up, and a shift brings them down again (MurmurHash3's finalizer).
            state = (state ^ eight) * _FIRST
            state ^= state >> np.uint64(33)
            state *= _SECOND
            state ^= state >> np.uint64(29)
        hashes[k] = state
