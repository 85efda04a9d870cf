# SPDX-License-Identifier: Apache-2.0
"""A plan in 8 bytes per split: enough to find each split's ledger entry, and to know that all are as planned."""

import hashlib
from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.splits import Split


class PlannedSplits:
    """The splits of a plan: their ids, and a sum that says whether their entries are as planned."""

    def __init__(self, splits: Iterable[Split]) -> None:
        """Reads the plan.

        Args:
          splits: all of them, in any order.
        """
        indices, ids = array("q"), array("Q")
        self.n_bytes = 0
        """The planned bytes of all splits."""
        self.fields = ""
        """`Split.fields`, which is the same in all splits."""
        self.digest = 0
        """The sum of `entry_digest` of the entries of all splits, modulo 2**64."""
        for split in splits:
            indices.append(split.index)
            ids.append(int(split.id, 16))
            self.digest = (self.digest + _digest(split)) % (1 << 64)
            self.n_bytes += split.n_bytes
            self.fields = split.fields
        self._ids = np.array(ids, np.uint64)[np.argsort(np.array(indices, np.int64))]

    def __len__(self) -> int:
        return self._ids.size

    def ids(self) -> Iterator[str]:
        """Yields the ids in the order of the plan."""
        return (f"{split_id:016x}" for split_id in map(int, self._ids))


def read_committed(split_id: str, output: str, tokenizer: str) -> LedgerEntry:
    """Returns the entry of a split; raises BooksError if it is not committed with the tokenizer of this digest."""
    entry = ledger.LedgerEntry.read(output, split_id)
    if entry is None or entry.tokenizer != tokenizer:
        raise BooksError(f"split {split_id} has not been committed with tokenizer {tokenizer}")
    return entry


def entry_digest(entry: LedgerEntry) -> int:
    """Returns 64 bits of a digest of the split that an entry is of."""
    return _digest(Split(entry.index, entry.split_id, entry.pieces, entry.fields))


def _digest(split: Split) -> int:
    return int.from_bytes(hashlib.blake2b(split.to_json().encode("utf-8", "surrogatepass"), digest_size=8).digest())
