# SPDX-License-Identifier: Apache-2.0
"""`Dataset`, the rows of an output folder on a disk or a store: units that are cached, and rows gathered from them."""

import os
import threading
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.columns import copy_stretches, numpy_dtype
from tokenmill.pipeline.data.order import Int64s
from tokenmill.pipeline.data.rows import Getters, Rows, getters
from tokenmill.pipeline.data.samples import is_number
from tokenmill.pipeline.data.shards import FORMATS, Shard, check_files, list_files, open_shard, read_manifest

_OPEN_SHARDS = 512
_MAPPED_SHARDS = 16_384
"""Two maps each, of 65,530 that Linux allows a process."""
_THREADS = 16
"""Ask a store for units at the same time; each waits 30 ms for one."""
_LEAST_BYTES = 4096
"""What a unit counts in the cache if it is mapped: its objects. `n_tokens` counts, too: it is made of an index."""

_OPENED: "weakref.WeakSet[Dataset]" = weakref.WeakSet()


def _forget_all() -> None:
    for dataset in list(_OPENED):
        dataset._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class Dataset(Rows):
    """The rows of an output folder in one of its formats, all shards one after another; safe in threads and forks.

    Memory: 200 bytes per shard; the headers of 512 open shards, on a store 8 bytes for each of their rows, of memory
    maps a few kilobytes for each of 16,384; `cache_bytes` for units.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        format: str | None = None,
        check: Literal["sizes", "contents"] | None = "sizes",
        digest: str | None = None,
        cache_bytes: int = 256 << 20,
    ) -> None:
        """Opens a finished output without reading a row; see `index.open_rows`."""
        path = os.fspath(path)
        self.manifest = read_manifest(path)
        self.name, self.digest, self._columns, self._cache_bytes = path, self.manifest["digest"], columns, cache_bytes
        if digest not in (None, self.digest):
            raise ValueError(f"{path!r} has the digest {self.digest}, not {digest}: it is not the data that is meant")
        self.format, self.files, self._indexes = list_files(path, self.manifest, format)
        if check is not None:
            check_files(path, pa.concat_tables([self.files, self._indexes]), contents=check == "contents")
        self.starts: Int64s = np.cumsum([0, *self.files["rows"].to_pylist()])
        """The first row of each shard, and how many rows there are."""
        self._forget()
        _OPENED.add(self)
        stored = self._shard(0).schema
        if missing := [name for name in columns or () if name not in stored.names]:
            raise ValueError(f"{path!r} has no column {missing[0]!r} in {self.format}, only {', '.join(stored.names)}")
        self.schema = pa.schema([_widened(stored.field(name)) for name in columns or stored.names])

    def _forget(self) -> None:
        """Starts with nothing open: locks, threads and connections do not outlive a fork."""
        self._lock = threading.Lock()
        are_mapped = bool(FORMATS[self.format][1]) and not storage.is_remote(self.name)
        self._shard = lru_cache(_MAPPED_SHARDS if are_mapped else _OPEN_SHARDS)(self._open_shard)
        self._units: OrderedDict[tuple[int, int], _Unit] = OrderedDict()
        self._last: tuple[int, int, Getters] = 0, 0, []  # the unit of the row that was read last on its own
        self._bounds: list[int] = self.starts.tolist()
        self._n_cached, self._pool = 0, ThreadPoolExecutor(_THREADS) if storage.is_remote(self.name) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self.name, self._columns, self.format, None, self.digest, self._cache_bytes)

    def __len__(self) -> int:
        """Returns the number of rows."""
        return int(self.starts[-1])

    def __repr__(self) -> str:
        counts = f"{len(self):,} rows, {self.n_tokens:,} tokens, {len(self.files):,} shards of {self.format}"
        return f"<Dataset {self.name}: {counts}, digest {self.digest[:12]}>"

    @property
    def n_tokens(self) -> int:
        """How many tokens all rows have, padding not included, as the manifest says."""
        return int(np.sum(self.files["tokens"].to_numpy()))

    def with_columns(self, columns: Sequence[str] | None) -> "Dataset":
        """Returns the same rows with other columns; None for all, in the first format that has more than ids."""
        format, needs = self.format, {*(columns or ("all of them",))}
        if FORMATS[format][1] and not needs <= {"input_ids", "n_tokens"}:
            for other in ("arrow", "parquet"):
                with suppress(ValueError):  # the job did not write it
                    format = list_files(self.name, self.manifest, other)[0]
        return Dataset(self.name, columns, format, None, self.digest, self._cache_bytes)

    def _open_shard(self, number: int) -> Shard:
        record, index = (table.slice(number, 1).to_pylist() for table in (self.files, self._indexes))
        return open_shard(self.name, self.format, record[0], index[0] if index else None, self._columns)

    def _unit(self, shard: int, number: int) -> "_Unit":
        """Returns a unit, from the cache if it has it."""
        key = shard, number
        try:  # without the lock: each of the two is one step, and another thread may drop the unit between them
            self._units.move_to_end(key)
            return self._units[key]
        except KeyError:
            opened = self._shard(shard)
        with opened.lock:
            unit = _Unit(opened.unit(number), self.schema.names, opened.is_mapped)
        with self._lock:
            self._n_cached += unit.n_bytes
            if (other := self._units.pop(key, None)) is not None:
                self._n_cached -= other.n_bytes
            self._units[key] = unit
            while self._n_cached > self._cache_bytes and len(self._units) > 1:
                self._n_cached -= self._units.popitem(last=False)[1].n_bytes
        return unit

    def units(self) -> Iterator[pa.RecordBatch]:
        """Yields all units in order, one or more for each shard; each may have more columns than are read."""
        for shard in range(len(self.files)):
            yield from (self._unit(shard, number).batch for number in range(len(self._shard(shard).bounds) - 1))

    def _find(self, row: int) -> tuple[int, int, int, int]:
        """Returns the shard of a row, the number of its unit, and the first row of this unit and of the next."""
        shard = bisect_right(self._bounds, row) - 1
        before, bounds = self._bounds[shard], self._shard(shard).bounds
        number = bisect_right(bounds, row - before) - 1
        return shard, number, before + bounds[number], before + bounds[number + 1]

    def row(self, row: int) -> dict[str, Any]:
        """Returns one row, see `Rows.row`, in the time of a few lookups and a copy."""
        first, stop, columns = self._last
        if not first <= row < stop:
            if not 0 <= row < self._bounds[-1]:
                self.checked([row])
            shard, number, first, stop = self._find(row)
            columns = self._unit(shard, number).columns
            self._last = first, stop, columns
        at = row - first
        return {name: get(at) for name, get in columns}

    def take(self, rows: npt.ArrayLike) -> pa.RecordBatch:
        """Returns rows by number; see `Rows.take`."""
        numbers = self.checked(rows)
        places = np.argsort(numbers, kind="stable")
        keys, parts, done = [], [], 0
        while done < places.size:
            shard, number, first, stop = self._find(int(numbers[places[done]]))
            end = int(numbers.searchsorted(stop, sorter=places))
            keys.append((shard, number))
            parts.append((numbers[places[done:end]] - first, places[done:end]))
            done = end
        get = map if self._pool is None or len(keys) < 2 else self._pool.map
        return gathered(list(get(lambda key: self._unit(*key).batch, keys)), parts, self.schema)


class _Unit:
    """A unit in the cache."""

    def __init__(self, batch: pa.RecordBatch, names: Sequence[str], is_mapped: bool) -> None:
        self.batch, self._names = batch, names
        made = batch.select([name for name in ("n_tokens",) if name in batch.schema.names]) if is_mapped else batch
        self.n_bytes = max(_LEAST_BYTES, made.nbytes)
        self._columns: Getters | None = (
            None  # no `cached_property`: its lock could be held at a fork before Python 3.12
        )

    @property
    def columns(self) -> Getters:
        """What gets its rows one by one."""
        if self._columns is None:
            self._columns = getters(self.batch.select(self._names))
        return self._columns


def gathered(
    batches: Sequence[pa.RecordBatch], parts: Sequence[tuple[Int64s, Int64s]], schema: pa.Schema
) -> pa.RecordBatch:
    """Returns rows of several batches, all of which have the columns of `schema`.

    Args:
      batches: the batches.
      parts: some rows of each, and the places of these in the result.
      schema: the columns of the result.
    """
    n_rows = sum(places.size for _, places in parts)
    columns = []
    for field in schema:
        pieces = [(batch.column(field.name), *part) for batch, part in zip(batches, parts, strict=True)]
        is_list = pa.types.is_large_list(field.type) and is_number(field.type.value_type) and not field.nullable
        columns.append((_gather_lists if is_list else _gather)(pieces, field.type, n_rows))
    return pa.record_batch(columns, schema=schema)


_Piece = tuple[pa.Array, Int64s, Int64s]
"""A column, some of its rows, and the places of these in the result."""


def _gather(pieces: Sequence[_Piece], type_: pa.DataType, n_rows: int) -> pa.Array:
    taken = [column.take(pa.array(rows)).cast(type_) for column, rows, _ in pieces]
    order = np.argsort(np.concatenate([np.zeros(0, np.int64), *(places for *_, places in pieces)]))
    return pa.concat_arrays(taken).take(pa.array(order)) if pieces else pa.array([], type_)


def _gather_lists(pieces: Sequence[_Piece], type_: pa.DataType, n_rows: int) -> pa.Array:
    """Returns lists of numbers, each copied once; Arrow's `take` would look at each number on its own."""
    sizes, bounds = np.zeros(n_rows, np.int64), []
    for column, rows, places in pieces:
        offsets = column.offsets.to_numpy()
        starts, stops = offsets[rows], offsets[rows + 1]
        sizes[places] = stops - starts
        bounds.append((column.values.to_numpy(zero_copy_only=False), starts, stops, places))
    ends = np.cumsum(sizes)
    begins, n_values = ends - sizes, int(sizes.sum())
    out = np.empty(n_values, numpy_dtype(type_.value_type))
    for values, starts, stops, places in bounds:
        copy_stretches(values, starts, stops, begins[places], out)
    offsets = pa.array(np.concatenate([np.zeros(1, np.int64), ends]))
    return pa.LargeListArray.from_arrays(offsets, pa.array(out), type=type_)


def _widened(field: pa.Field) -> pa.Field:
    """Returns a column of what is gathered: lists are large ones, so a batch may have any size."""
    is_list = pa.types.is_list(field.type) and not field.nullable
    return pa.field(field.name, pa.large_list(field.type.value_field), nullable=False) if is_list else field
