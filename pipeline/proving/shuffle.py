# SPDX-License-Identifier: Apache-2.0
"""Proves the shards of a shuffle: keys ascend, and the rows are the documents that have these keys."""

import contextlib
from typing import Self

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.books.shard_entry import ShardEntry
from tokenmill.pipeline.books.sums import sum_doc_ids, sum_values
from tokenmill.pipeline.shuffling.merging import shard_range

_MASK = (1 << 64) - 1


class RowsProof(contextlib.AbstractContextManager["RowsProof"]):
    """Adds up the rows of one file of a shard, each with its key from the file of keys."""

    def __init__(self, output: str, entry: ShardEntry) -> None:
        """Opens the file of keys.

        Args:
          output: the output folder.
          entry: the entry of the shard.
        """
        self._entry = entry
        self._handle = storage.open_read(storage.join(output, entry.keys.file))
        self._tokens = self._doc_ids = self._n_rows = 0
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    def add(self, ids: np.ndarray, starts: np.ndarray, stops: np.ndarray, doc_ids: pa.Array | None) -> None:
        """Adds the next rows.

        Args:
          ids: int32[n_ids].
          starts: int64[n], where the tokens of each row begin in `ids`, padding not included.
          stops: int64[n], where they end.
          doc_ids: the document ids of the rows; None where the format has none.

        Raises:
          ValueError: if there are fewer keys, or they are not in order.
        """
        keys = self.take(starts.size)
        self._tokens += sum_values(keys, ids, starts, stops)
        self._doc_ids += sum_doc_ids(keys, doc_ids) if doc_ids is not None else 0

    def add_documents(self, hashes: np.ndarray, lengths: np.ndarray) -> None:
        """Adds all documents of a packed shard: lengths, and hashes of tokens by `sums_kernels.add_values`."""
        self._tokens += int(sums_kernels.fingerprint(self.take(hashes.size), hashes, lengths))

    def take(self, n: int) -> np.ndarray:
        """Returns the next keys, uint64[n].

        Raises:
          ValueError: if there are fewer, or they are not in order.
        """
        name = self._entry.keys.file
        keys = np.frombuffer(self._handle.read(8 * n), "<u8").astype(np.uint64)
        if keys.size != n:
            raise ValueError(f"{name}: holds {self._n_rows + keys.size} keys, fewer than there are documents")
        low, high = shard_range(self._entry.index, self._entry.n_shards)
        ordered = np.concatenate([np.array([max(low, self._last)], np.uint64), keys])
        wrong = np.flatnonzero(ordered[1:] < ordered[:-1])
        if wrong.size or int(ordered[-1]) >= high:
            row = self._n_rows + (int(wrong[0]) if wrong.size else n - 1)
            raise ValueError(
                f"{name}: the key {int(keys[row - self._n_rows])} of document {row} is not in the order of the "
                f"shuffle, or not of this shard, {low} to {high - 1}"
            )
        self._n_rows += n
        self._last = int(ordered[-1])
        return keys

    def problems(self, name: str, *, has_doc_ids: bool) -> list[str]:
        """Returns how the rows of the file `name` differ from the ledger; call it after all rows are added."""
        sums = self._entry.sums
        lines = []
        if self._handle.read(1):
            lines.append(f"{self._entry.keys.file}: holds more keys than the {self._n_rows} documents of {name}")
        found = [("tokens", self._tokens & _MASK, sums.tokens)]
        if has_doc_ids:
            found.append(("document ids", self._doc_ids & _MASK, sums.doc_ids))
        lines += [
            f"{name}: the {what} are not those of the keys in this order: sum {ours:016x}, recorded {theirs:016x}"
            for what, ours, theirs in found
            if ours != theirs
        ]
        return lines
