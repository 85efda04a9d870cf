# SPDX-License-Identifier: Apache-2.0
"""`Dataset`, the rows of an output folder on a disk or a store: units that are cached, and rows gathered from them."""

import os
import threading
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
from tokenmill.pipeline.columns import copy_stretches
from tokenmill.pipeline.data.order import Int64s
from tokenmill.pipeline.data.rows import Rows
from tokenmill.pipeline.data.samples import is_number
from tokenmill.pipeline.data.shards import FORMATS, Shard, check_files, list_files, open_shard, read_manifest

_OPEN_SHARDS = 512
_MAPPED_SHARDS = 16_384
"""Two maps each, of 65,530 that Linux allows a process."""
_THREADS = 16
"""Ask a store for units at the same time; each waits 30 ms for one."""
_LEAST_BYTES = 4096
"""What a unit counts in the cache if it is mapped: its objects. `n_tokens` counts, too: it is made of an index."""


def open_dataset(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    format: str | None = None,
    check: Literal["sizes", "contents"] | None = "sizes",
    digest: str | None = None,
    cache_bytes: int = 256 << 20,
) -> "Dataset":
    """Opens a finished output of `tokenmill tokenize` without reading a row.

    Args:
      path: the output folder, local or `s3://`, `gs://`, ...; of an output in parts one of its folders.
      columns: the columns to read, such as `["input_ids", "labels"]`; None for all that are stored.
      format: "parquet", "arrow", "memmap" or "megatron"; None for the first that the job wrote. Rows are the same in
        each, but memory maps and Megatron's format store `input_ids` without padding, and from them `n_tokens`.
      check: "sizes" compares the sizes of all files with the manifest, "contents" also their SHA-256; None nothing.
      digest: the digest that the data must have; None for any.
      cache_bytes: what decoded row groups, and ranges of files on a store, may take in memory in each process. Local
        memory maps take none: the page cache of the system has them.

    Raises:
      ValueError: if the folder is no finished output, or a file is missing or not as the manifest says; says which.
      OSError: if it cannot be read.
    """
    return Dataset(os.fspath(path), columns, format, check, digest, cache_bytes)


class Dataset(Rows):
    """The rows of an output folder in one of its formats, all shards one after another; safe in threads and forks.

    Memory: 200 bytes per shard; the headers of 512 open shards, on a store 8 bytes for each of their rows, of memory
    maps a few kilobytes for each of 16,384; `cache_bytes` for units.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | None,
        format: str | None,
        check: Literal["sizes", "contents"] | None,
        digest: str | None,
        cache_bytes: int,
    ) -> None:
        """See `open_dataset`."""
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
        stored = self._shard(0).schema
        if missing := [name for name in columns or () if name not in stored.names]:
            raise ValueError(f"{path!r} has no column {missing[0]!r} in {self.format}, only {', '.join(stored.names)}")
        self.schema = pa.schema([_widened(stored.field(name)) for name in columns or stored.names])

    def _forget(self) -> None:
        """Starts with nothing open: locks, threads and connections do not outlive a fork."""
        self._process, self._lock = os.getpid(), threading.Lock()
        are_mapped = bool(FORMATS[self.format][1]) and not storage.is_remote(self.name)
        self._shard = lru_cache(_MAPPED_SHARDS if are_mapped else _OPEN_SHARDS)(self._open_shard)
        self._units: OrderedDict[tuple[int, int], tuple[pa.RecordBatch, int]] = OrderedDict()
        self._views: dict[tuple[int, int], tuple[pa.RecordBatch, list[Any]]] = {}
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

    def unit(self, shard: int, number: int) -> pa.RecordBatch:
        """Returns the rows of a unit, from the cache if it has them."""
        key = shard, number
        with self._lock:
            if key in self._units:
                self._units.move_to_end(key)
                return self._units[key][0]
        opened = self._shard(shard)
        with opened.lock:
            batch = opened.unit(number)
        made = (
            batch.select([name for name in ("n_tokens",) if name in batch.schema.names]) if opened.is_mapped else batch
        )
        n_bytes = max(_LEAST_BYTES, made.nbytes)
        with self._lock:
            self._n_cached += n_bytes - self._units.pop(key, (batch, 0))[1]
            self._units[key] = batch, n_bytes
            while self._n_cached > self._cache_bytes and len(self._units) > 1:
                oldest, (_, n_oldest) = self._units.popitem(last=False)
                self._n_cached -= n_oldest
                self._views.pop(oldest, None)
        return batch

    def units(self) -> Iterator[pa.RecordBatch]:
        """Yields all units in order, one or more for each shard; each may have more columns than are read."""
        for shard in range(len(self.files)):
            yield from (self.unit(shard, number) for number in range(self._shard(shard).bounds.size - 1))

    def __getitem__(self, key: Any) -> dict[str, Any] | pa.RecordBatch:
        """Returns rows; see `Rows`. A single one costs a third of the time that Arrow's scalars would take."""
        if type(key) is not int or not 0 <= key < self._bounds[-1] or self._process != os.getpid():
            return super().__getitem__(key)
        shard = bisect_right(self._bounds, key) - 1
        local, bounds = key - self._bounds[shard], self._shard(shard).bounds
        number = bisect_right(bounds, local) - 1
        batch = self.unit(shard, number)
        if (views := self._views.get((shard, number))) is None or views[0] is not batch:
            views = batch, [_view(batch.column(name)) for name in self.schema.names]
            with self._lock:
                if (shard, number) in self._units:  # else it would outlive its unit
                    self._views[shard, number] = views
        at = local - int(bounds[number])
        found = {}
        for name, view in zip(self.schema.names, views[1], strict=True):
            if isinstance(view, pa.Array):
                found[name] = view[at].as_py()
            elif len(view) == 1:
                found[name] = view[0].item(at)
            else:
                values, offsets, dtype = view
                found[name] = values[offsets.item(at) : offsets.item(at + 1)].astype(dtype)
        return found

    def unit_of(self, row: int) -> tuple[pa.RecordBatch, int]:
        """Returns the unit of a row without what is not read, and the place of the row in it."""
        if not 0 <= row < len(self):
            self.checked([row])
        if self._process != os.getpid():
            self._forget()
        shard = bisect_right(self.starts, row) - 1  # 1 us; searchsorted converts its argument, which takes 5
        local, bounds = row - int(self.starts[shard]), self._shard(shard).bounds
        number = bisect_right(bounds, local) - 1
        return self.unit(shard, number).select(self.schema.names), local - int(bounds[number])

    def take(self, rows: npt.ArrayLike) -> pa.RecordBatch:
        """Returns rows by number; see `Rows.take`."""
        numbers = self.checked(rows)
        if self._process != os.getpid():
            self._forget()
        shards = self.starts.searchsorted(numbers, "right") - 1
        keys, parts = [], []
        places = np.argsort(numbers, kind="stable")
        for places_of_shard in np.split(places, np.flatnonzero(np.diff(shards[places])) + 1) if places.size else ():
            shard = int(shards[places_of_shard[0]])
            local, bounds = numbers[places_of_shard] - self.starts[shard], self._shard(shard).bounds
            units = bounds.searchsorted(local, "right") - 1
            for part in np.split(np.arange(local.size), np.flatnonzero(np.diff(units)) + 1):
                number = int(units[part[0]])
                keys.append((shard, number))
                parts.append((local[part] - bounds[number], places_of_shard[part]))
        get = map if self._pool is None or len(keys) < 2 else self._pool.map
        batches = list(get(lambda key: self.unit(*key), keys))
        return gathered(batches, parts, self.schema)


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


def _view(column: pa.Array) -> pa.Array | tuple[np.ndarray] | tuple[np.ndarray, np.ndarray, npt.DTypeLike]:
    """Returns a column as its rows are read quickest: (numbers,), or (numbers, offsets, dtype of a row) of lists."""
    if is_number(column.type) and not column.null_count:
        return (column.to_numpy(zero_copy_only=False),)
    is_list = pa.types.is_large_list(column.type) or pa.types.is_list(column.type)
    if not is_list or not is_number(column.type.value_type) or column.null_count or column.values.null_count:
        return column
    values = column.values.to_numpy(zero_copy_only=False)
    return values, column.offsets.to_numpy(), np.int32 if values.dtype == np.uint16 else values.dtype


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
    out = np.empty(n_values, pa.array([], type_.value_type).to_numpy(zero_copy_only=False).dtype)
    for values, starts, stops, places in bounds:
        copy_stretches(values, starts, stops, begins[places], out)
    offsets = pa.array(np.concatenate([np.zeros(1, np.int64), ends]))
    return pa.LargeListArray.from_arrays(offsets, pa.array(out), type=type_)


def _widened(field: pa.Field) -> pa.Field:
    """Returns a column of what is gathered: lists are large ones, so a batch may have any size."""
    is_list = pa.types.is_list(field.type) and not field.nullable
    return pa.field(field.name, pa.large_list(field.type.value_field), nullable=False) if is_list else field
