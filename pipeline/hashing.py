# SPDX-License-Identifier: Apache-2.0
"""A 64-bit key per document, for samples and shuffles: a hash of a seed and of the document's place in the corpus.

The key is the same on every machine, in every run and however the corpus is cut into splits. It is not a cryptographic
hash: anyone who can choose file names can choose keys.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

SAMPLING, SHUFFLING, FILLING = "sample", "shuffle", "fim"
"""Purposes of keys. Keys of different purposes are independent; otherwise a sample would be the head of the shuffle."""


def document_keys(purpose: str, seed: int, names: Sequence[str], documents: pa.RecordBatch) -> np.ndarray:
    """Returns uint64[n], the keys of documents.

    Args:
      purpose: `SAMPLING`, `SHUFFLING` or `FILLING`.
      seed: the seed of the config.
      names: the names of the pieces of the split, `Piece.name`.
      documents: `schemas.DOCUMENTS`.
    """
    pieces = np.array([_hash_name(purpose, seed, name) for name in names], np.uint64)
    offsets = documents.column("offset").to_numpy().astype(np.uint64)
    return mix(mix(offsets) ^ pieces[documents.column("piece").to_numpy()])


def hash_rows(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Returns uint64[n], a hash of each row of integers, which covers their number, values and positions.

    Args:
      values: integers of one dtype, at least those of all rows.
      offsets: int64[n + 1], where rows begin and end in `values`.
    """
    begin, lengths = int(offsets[0]), np.diff(offsets)
    places = np.arange(begin, int(offsets[-1])) - np.repeat(offsets[:-1], lengths)
    used = values[begin : int(offsets[-1])].astype(np.int64).astype(np.uint64)
    # Sums of uint64 wrap around, so a difference of running sums is the sum of a row.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(used ^ mix(places.astype(np.uint64))))])
    of_row = sums[offsets[1:] - begin] - sums[offsets[:-1] - begin]
    return mix(of_row ^ mix(lengths.astype(np.uint64)))


def _hash_name(purpose: str, seed: int, name: str) -> int:
    # A file name need not be UTF-8 to be hashed; the lengths of the first two are fixed by the spaces.
    data = f"{purpose} {seed} {name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def mix(values: np.ndarray) -> np.ndarray:
    """Returns a bijection of uint64 that spreads every bit over all of them: the finalizer of SplitMix64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
