# SPDX-License-Identifier: Apache-2.0
"""Everything that a batch, a split, a shard or a job counts: numbers by group and name, and columns of numbers.

Reader, encoder and writer each add their numbers under names of their own; `quantities` says which of them must be
equal. All are exact integers, and the sum does not depend on the order, so that of a job is that of its splits.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

Groups = Mapping[str, Mapping[str, int]]
"""Numbers by group and name."""

LANGUAGE, SOURCE, STEP = "lang:", "source:", "step:"
"""What the names of groups begin with: those of the documents in a language, of the files of a source, and of what a
step changed in texts."""

_EXTREMES = {"min_tokens": min, "max_tokens": max}
"""Numbers that are not added: the tokens of the shortest and of the longest row."""


class Counts:
    """Numbers and columns that can be added up.

    Attributes:
      groups: by group and name; the group "" has the numbers of everything. A name with a colon, as in
        "rejected:not_json", is one of several whose sum is the number "rejected".
      columns: dense, int64, by name: for example how often each token occurred, in the order of ids.
    """

    def __init__(self) -> None:
        """Starts without any number."""
        self.groups: dict[str, dict[str, int]] = {"": {}}
        self.columns: dict[str, Ints] = {}

    def __getitem__(self, name: str) -> int:
        """Returns a number of everything; 0 if it was never counted."""
        return self.groups[""].get(name, 0)

    def add(self, numbers: Mapping[str, int], group: str = "") -> None:
        """Adds numbers to those of a group. What is zero is kept, too: it says that it was counted."""
        sums = self.groups.setdefault(group, {})
        for name, n in numbers.items():
            if name in _EXTREMES:
                sums[name] = _EXTREMES[name](sums.get(name, n), n)
            else:
                sums[name] = sums.get(name, 0) + n

    def add_groups(self, groups: Groups) -> None:
        """Adds the numbers of groups."""
        for group, numbers in groups.items():
            self.add(numbers, group)

    def add_by(self, kind: str, labels: pa.DictionaryArray, **numbers: Ints) -> None:
        """Adds numbers of documents to the groups of their labels.

        Args:
          kind: what the names of the groups begin with, such as `LANGUAGE`.
          labels: the label of each document.
          numbers: by name, int64[n].
        """
        codes, places = np.unique(labels.indices.to_numpy(zero_copy_only=False), return_inverse=True)
        # bincount adds in float64, which is exact here: no batch has 2**53 of anything.
        sums = {name: np.bincount(places, n, codes.size).astype(np.int64).tolist() for name, n in numbers.items()}
        for i, label in enumerate(labels.dictionary.take(pa.array(codes)).to_pylist()):
            self.add({name: column[i] for name, column in sums.items()}, f"{kind}{label}")

    def labels(self, kind: str) -> dict[str, dict[str, int]]:
        """Returns the numbers of all groups of a kind, by their labels."""
        return {group.removeprefix(kind): n for group, n in self.groups.items() if group.startswith(kind)}

    def column(self, name: str, size: int = 0) -> Ints:
        """Returns a column to add to, which has at least `size` numbers."""
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = np.zeros(size, np.int64)
        elif column.size < size:
            column = self.columns[name] = np.concatenate([column, np.zeros(size - column.size, np.int64)])
        return column

    def __iadd__(self, other: "Counts") -> Self:
        self.add_groups(other.groups)
        for name, column in other.columns.items():
            self.column(name, column.size)[: column.size] += column
        return self


def flatten(record: Mapping[str, Any]) -> dict[str, int]:
    """Returns numbers of which some are counted by name, as {"rejected": {"not_json": 2}}, as {"rejected:not_json": 2}.

    What is counted by name may be None instead of empty.
    """
    flat: dict[str, int] = {}
    for name, value in record.items():
        if isinstance(value, int):
            flat[name] = value
        else:
            flat |= {f"{name}:{each}": n for each, n in (value or {}).items()}
    return flat


def nest(numbers: Mapping[str, int]) -> dict[str, Any]:
    """Returns the record that `flatten` made these numbers of, without what is empty."""
    record: dict[str, Any] = {}
    for name, n in numbers.items():
        whole, colon, each = name.partition(":")
        if colon:
            record.setdefault(whole, {})[each] = n
        else:
            record[name] = n
    return record
