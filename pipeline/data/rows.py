# SPDX-License-Identifier: Apache-2.0
"""`Rows`, what a training loop reads: rows by number, their digest, their order, and how many tokens they have."""

import abc
import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.data.order import Int64s, Order
from tokenmill.pipeline.data.samples import Samples, is_number

_SCANNED = 1 << 16
"""Rows in memory when all are looked at."""


class Rows(abc.ABC):
    """Rows that can be read in any order: a `Dataset`, a `Selection` of its rows.

    It is a map-style dataset of PyTorch and a `RandomAccessDataSource` of Grain as it stands. A subclass has the
    attributes, `__len__`, `take` and `with_columns`; what it pickles as should be small.
    """

    digest: str
    """In hex; changes when any row does, and does not depend on where the data is."""
    name: str
    """What messages call the data."""
    schema: pa.Schema
    """The columns of `take`."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of rows."""

    @abc.abstractmethod
    def take(self, rows: npt.ArrayLike) -> pa.RecordBatch:
        """Returns rows by number, in the order given and as often as given.

        Raises:
          IndexError: if there is no such row.
          ValueError: if a shard is damaged; says which.
          OSError: if one cannot be read.
        """

    @abc.abstractmethod
    def with_columns(self, columns: Sequence[str] | None) -> "Rows":
        """Returns the same rows with other columns; None for all that are stored."""

    def __getitem__(self, key: Any) -> dict[str, Any] | pa.RecordBatch:
        """Returns one row as a dict of arrays and scalars; or those of a slice or of an array of numbers as a batch."""
        if type(key) is int and key >= 0:
            return self.row(key)
        if isinstance(key, slice):
            return self.take(np.arange(*key.indices(len(self))))
        if hasattr(key, "__len__"):
            return self.take(key)
        row = operator.index(key)
        return self.row(row + len(self) if row < 0 else row)

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Returns several rows as dicts; PyTorch's loaders call it for a batch."""
        columns = getters(self.take(rows))
        return [{name: get(i) for name, get in columns} for i in range(len(rows))]

    def row(self, row: int) -> dict[str, Any]:
        """Returns one row as a dict: lists of numbers as arrays of its own, ids as int32, other values as Python's.

        Raises:
          IndexError: if there is no such row.
        """
        return self.__getitems__([row])[0]

    def order(self, seed: int | None, epoch: int = 0) -> Order:
        """Returns the order in which an epoch reads the rows."""
        return Order(len(self), seed, epoch)

    def samples(self, batch_size: int, **options: Any) -> Samples:
        """Returns the batches that one rank of a training run reads; see `Samples`."""
        return Samples(self, batch_size, **options)

    def where(self, condition: pc.Expression | npt.ArrayLike) -> "Selection":
        """Returns the rows for which an expression is true, or those of a list, ascending.

        Args:
          condition: an expression over any stored columns, as `pc.field("lang") == "de"`, which are read once; or
            the numbers of rows; or a bool for each row.

        Raises:
          ValueError: if there is no such column, a row is listed twice, or there are not as many flags as rows.
          IndexError: if there is no such row.
        """
        if isinstance(condition, pc.Expression):
            return Selection(self, self._matching(condition))
        numbers = np.asarray(condition)
        if numbers.dtype == np.bool_:
            if numbers.size != len(self):
                raise ValueError(f"{numbers.size:,} flags for {len(self):,} rows")
            numbers = np.flatnonzero(numbers)
        return Selection(self, np.sort(numbers.astype(np.int64)))

    def _matching(self, condition: pc.Expression) -> Int64s:
        stored = self.with_columns(None).schema.names
        # The text of an expression has the name of every column that it reads.
        read = self.with_columns([name for name in stored if name in str(condition)] or ["n_tokens"])
        matching = [np.zeros(0, np.int64)]
        try:
            for first, batch in read.scan():
                numbers = pa.array(np.arange(first, first + batch.num_rows))
                table = pa.Table.from_batches([batch]).append_column("_row", numbers)
                matching.append(table.filter(condition)["_row"].to_numpy())
        except pa.ArrowException as error:
            raise ValueError(f"where: {error}; the columns of {self.name} are {', '.join(stored)}") from error
        return np.sort(np.concatenate(matching))  # threads of Arrow filter in any order

    def scan(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields all rows as they are stored, some at a time, with the number of the first."""
        for first in range(0, len(self), _SCANNED):
            yield first, self.take(np.arange(first, min(first + _SCANNED, len(self))))

    def sizes(self, *, trained: bool = False) -> Iterator[Int64s]:
        """Yields the tokens of all rows in order, padding not included, int64, some rows at a time.

        Args:
          trained: count only those that a model is trained on, which `labels` or `loss_mask` mark.

        Raises:
          ValueError: if the rows have no such column.
        """
        stored = self.with_columns(None).schema.names if trained else []
        column = next((name for name in ("labels", "loss_mask") if name in stored), "n_tokens")
        if trained and column == "n_tokens":
            raise ValueError(f"{self.name}: the rows do not say which of their tokens are trained")
        for _, batch in self.with_columns([column]).scan():
            values = batch.column(0)
            if trained:
                is_trained = values.values.to_numpy(zero_copy_only=False) != (
                    schemas.IGNORED if column == "labels" else 0
                )
                before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_trained)])
                yield np.diff(before[values.offsets.to_numpy()])
            else:
                yield values.to_numpy().astype(np.int64)

    @property
    def n_tokens(self) -> int:
        """How many tokens all rows have, padding not included."""
        return sum(int(sizes.sum()) for sizes in self.sizes())

    def checked(self, rows: npt.ArrayLike) -> Int64s:
        """Returns numbers of rows as int64[k]; raises IndexError if there is no such row."""
        numbers = np.asarray(rows, np.int64)
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < len(self)):
            raise IndexError(f"{self.name} has the rows 0 to {len(self) - 1}, not {numbers.min()} to {numbers.max()}")
        return numbers


Getters = list[tuple[str, Callable[[int], Any]]]


def getters(batch: pa.RecordBatch) -> Getters:
    """Returns what gets the value of a row from each column: by arrays where it can be, as Arrow's scalars are slow."""
    return [(name, _getter(column)) for name, column in zip(batch.schema.names, batch.columns, strict=True)]


def _getter(column: pa.Array) -> Callable[[int], Any]:
    if is_number(column.type) and not column.null_count:
        return column.to_numpy(zero_copy_only=False).item
    is_list = pa.types.is_large_list(column.type) or pa.types.is_list(column.type)
    if not is_list or not is_number(column.type.value_type) or column.null_count or column.values.null_count:
        return lambda row: _value(column[row])
    values, offsets = column.values.to_numpy(zero_copy_only=False), memoryview(column.offsets.to_numpy())
    dtype = _dtype_of_rows(values)
    return lambda row: values[offsets[row] : offsets[row + 1]].astype(dtype)


def _value(scalar: pa.Scalar) -> Any:
    values = getattr(scalar, "values", None)  # of a list that is not null
    if values is None or not is_number(values.type) or values.null_count:
        return scalar.as_py()
    numbers = values.to_numpy(zero_copy_only=False)
    return numbers.astype(_dtype_of_rows(numbers))


def _dtype_of_rows(values: np.ndarray) -> np.dtype:
    return np.dtype(np.int32) if values.dtype == np.uint16 else values.dtype


class Selection(Rows):
    """Some rows of other rows; holds 8 bytes for each."""

    def __init__(self, rows: Rows, numbers: Int64s) -> None:
        """Takes the numbers, ascending; raises ValueError if one is there twice, IndexError if there is no such row."""
        self.numbers = rows.checked(numbers)
        if (same := np.flatnonzero(np.diff(numbers) <= 0)).size:
            raise ValueError(f"row {numbers[same[0]]} is selected twice, or not in order")
        self.rows, self.schema = rows, rows.schema
        self.digest = hashlib.sha256(f"{rows.digest} where ".encode() + numbers.astype("<i8").tobytes()).hexdigest()
        self.name = f"{rows.name} ({numbers.size:,} of {len(rows):,} rows)"

    def __len__(self) -> int:
        """Returns the number of selected rows."""
        return int(self.numbers.size)

    def __repr__(self) -> str:
        return f"<Selection {self.name}, digest {self.digest[:12]}>"

    def take(self, rows: npt.ArrayLike) -> pa.RecordBatch:
        """Returns rows by their numbers among the selected ones; see `Rows.take`."""
        return self.rows.take(self.numbers[self.checked(rows)])

    def with_columns(self, columns: Sequence[str] | None) -> "Selection":
        """Returns the same rows with other columns; None for all."""
        return Selection(self.rows.with_columns(columns), self.numbers)
