# SPDX-License-Identifier: Apache-2.0
"""The documents of a split as sorted runs in a file, which the first step of a shuffle writes and the second reads.

A run holds the documents of a stretch of the split, ordered by key; documents with the same key stay in the order in
which they were read. Any range of its rows can be read (`columns`), so a merge reads only what it needs of each run.
"""

import io
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Self, TypeVar

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.sums import Run, SplitRuns, Sums, describe_runs, sum_rows
from tokenmill.pipeline.columns import (
    children,
    element_of,
    numpy_dtype,
    read_columns,
    read_numbers,
    row_bytes,
    write_columns,
)
from tokenmill.pipeline.config.output import ShuffleConfig
from tokenmill.pipeline.filenames import runs_name
from tokenmill.pipeline.hashing import SHUFFLING, document_keys
from tokenmill.pipeline.output.staging import StagedFile, Staging
from tokenmill.pipeline.splits import Split

_HEAD = pa.schema(
    [
        pa.field("key", pa.uint64(), nullable=False),
        # How many bytes the row takes in the file.
        pa.field("size", pa.int64(), nullable=False),
    ]
)
_OPEN_FILES = 64

_OPEN_OBJECTS = 1024
"""Objects of a store that are read through a small buffer; each needs a request to be opened, and no descriptor."""

_BUFFER_BYTES = 1 << 16
"""So much of an object is read at least."""

_READS_AT_ONCE = 32
"""Reads from a store at the same time; each may take some 100 ms, of which it costs a processor one."""

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


class RunsWriter:
    """Writes documents as sorted runs; holds those of one run twice."""

    def __init__(self, file: StagedFile, run_bytes: int) -> None:
        """Starts a file.

        Args:
          file: open for writing, at its start.
          run_bytes: a run is sorted and written once its documents take this many bytes; it has at most a batch more.
        """
        self.runs: list[Run] = []
        self._file = file
        self._run_bytes = run_bytes
        self._pending: list[tuple[np.ndarray, np.ndarray, pa.RecordBatch]] = []
        self._n_pending = 0

    def write(self, keys: np.ndarray, batch: pa.RecordBatch) -> None:
        """Appends documents.

        Args:
          keys: uint64[n].
          batch: `schemas.TOKENS`, perhaps with more columns, the same in every call.
        """
        if not batch.num_rows:
            return
        sizes = row_bytes(batch)
        self._pending.append((keys, sizes, batch))
        self._n_pending += int(sizes.sum())
        if self._n_pending >= self._run_bytes:
            self._write_run()

    def finish(self, n_tokens: int | None = None) -> FileRecord:
        """Writes the last run and finishes the file, whose record will have this number of tokens."""
        if self._pending:
            self._write_run()
        return self._file.finish(rows=sum(run.n_rows for run in self.runs), tokens=n_tokens)

    def _write_run(self) -> None:
        keys = np.concatenate([keys for keys, _, _ in self._pending])
        sizes = np.concatenate([sizes for _, sizes, _ in self._pending])
        schema = self._pending[0][2].schema
        columns = [[batch.column(i) for _, _, batch in self._pending] for i in range(len(schema))]
        self._pending, self._n_pending = [], 0
        order = np.argsort(keys, kind="stable")
        positions = list(write_columns(self._file, [pa.array(keys[order]), pa.array(sizes[order])], _HEAD))
        places = np.empty_like(order)
        places[order] = np.arange(order.size)
        is_sorted = len(columns[0]) == 1 and bool((keys[:-1] <= keys[1:]).all())
        for field in schema:  # a column at a time, freed before the next
            parts = columns.pop(0)
            column = parts[0] if is_sorted else arrange(parts, places, field)
            positions += write_columns(self._file, [column], pa.schema([field]))
        first, last = keys[order[[0, -1]]].tolist()
        self.runs.append(Run(keys.size, tuple(positions), first, last))


class RunFiles:
    """The files of runs of one folder. Keeps files open between reads, but no more than any system allows.

    For a folder in a store, which takes long to answer, many reads are made at once.
    """

    def __init__(self, folder: str = "") -> None:
        self._handles: OrderedDict[str, BinaryIO] = OrderedDict()
        self._lock = threading.Lock()
        self._n_open = _OPEN_FILES
        self._pool = ThreadPoolExecutor(_READS_AT_ONCE) if storage.is_remote(folder) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for handle in self._handles.values():
            handle.close()
        self._handles.clear()

    def each(self, read: Callable[[_Item], _Found], items: Iterable[_Item]) -> list[_Found]:
        """Returns what `read`, which calls `read` of this object, returns for each item."""
        return list((map if self._pool is None else self._pool.map)(read, items))

    def read(self, path: str, position: int, n_bytes: int) -> bytes:
        """Returns bytes of a file, fewer at its end.

        Raises:
          OSError: if it cannot be read.
        """
        with self._lock:
            kept = self._handles.pop(path, None)
        handle = kept or self._open(path)
        try:
            handle.seek(position)
            return handle.read(n_bytes)
        finally:
            with self._lock:
                replaced, self._handles[path] = self._handles.pop(path, None), handle
                oldest = self._handles.popitem(last=False)[1] if len(self._handles) > self._n_open else None
            for each in filter(None, (replaced, oldest)):
                each.close()

    def _open(self, path: str) -> BinaryIO:
        handle = storage.open_read(path)
        if self._pool is not None and isinstance(handle, io.BufferedReader):
            # Beam (2.77) reads objects of S3 through a buffer of 16 MiB, where a merge needs some kB of each column.
            self._n_open = _OPEN_OBJECTS
            return io.BufferedReader(handle.detach(), _BUFFER_BYTES)
        return handle


class RunReader:
    """Reads rows of one run."""

    def __init__(self, files: RunFiles, path: str, run: Run, schema: pa.Schema) -> None:
        """Opens nothing yet.

        Args:
          files: reads the file of the run.
          path: the path of the file.
          run: where the run is in the file.
          schema: the schema of its rows, without key and size.
        """
        self.n_rows = run.n_rows
        self._first, self._last = run.first, run.last
        self.files = files
        self._path = path
        self._positions = run.positions
        self._schema = schema

    def find(self, key: int) -> int:
        """Returns the first row whose key is at least `key`, at most 2**64; the number of rows if there is none.

        Keys are hashes, so the position of a row can be guessed from its key: one read is nearly always enough.
        """
        if key <= self._first:
            return 0
        if key > self._last:
            return self.n_rows
        guess = (key - self._first) * self.n_rows // (self._last - self._first + 1)
        reach = 64 + 4 * math.isqrt(self.n_rows)
        while True:
            low, high = max(0, guess - reach), min(self.n_rows, guess + reach)
            keys = self.keys(low, high)
            is_not_before = low == 0 or int(keys[0]) < key
            is_not_behind = high == self.n_rows or int(keys[-1]) >= key
            if is_not_before and is_not_behind:
                return low + int(np.searchsorted(keys, np.uint64(key)))
            reach *= 4

    def keys(self, start: int, stop: int) -> np.ndarray:
        """Returns the keys, uint64, of rows `start` to `stop`, ascending."""
        return read_numbers(self._read, self._positions[0], np.uint64, start, stop)

    def sizes(self, start: int, stop: int) -> np.ndarray:
        """Returns the bytes, int64, of rows `start` to `stop`."""
        return read_numbers(self._read, self._positions[1], np.int64, start, stop)

    def rows(self, start: int, stop: int) -> pa.RecordBatch:
        """Returns rows `start` to `stop`."""
        return read_columns(self._read, self._positions[2:], self._schema, start, stop)

    def _read(self, position: int, n_bytes: int) -> bytes:
        return self.files.read(self._path, position, n_bytes)


def open_runs(files: RunFiles, paths: Sequence[str], splits: Sequence[SplitRuns], schema: pa.Schema) -> list[RunReader]:
    """Returns the runs of all splits, in the order in which their documents were read.

    Args:
      files: reads the files of the runs.
      paths: the paths of the splits' files.
      splits: in any order.
      schema: the schema of the rows.
    """
    pairs = sorted(zip(paths, splits, strict=True), key=lambda pair: pair[1].index)
    return [RunReader(files, path, run, schema) for path, split in pairs for run in split.runs]


class SortedSplit:
    """The documents of one split, tokenized, as sorted runs: the first step of a shuffle.

    Has the interface of `Shard`, but writes runs; holds one run.
    """

    packing = windows = None
    """None: runs hold documents; the merged shards pack them or cut them into windows."""

    documents = None
    """None: runs hold the places of documents; the merged shards have tables of them."""

    def __init__(self, staging: Staging, split: Split, config: ShuffleConfig, padding_side: str | None) -> None:
        """Creates the file.

        Args:
          staging: the staged files of the attempt.
          split: the split of the documents.
          config: the section.
          padding_side: the side on which rows are padded; None if they are not.
        """
        self._writer = RunsWriter(staging.create(runs_name(split.id)), config.run_bytes)
        self._sums, self._padding_side = Sums(), padding_side
        self._names = [piece.name for piece in split.pieces]
        self._seed = config.seed

    def add(self, documents: pa.RecordBatch, tokens: pa.RecordBatch) -> None:
        """Appends documents.

        Args:
          documents: `schemas.DOCUMENTS`.
          tokens: `schemas.TOKENS` and more columns, one row per document.
        """
        if tokens.num_rows:
            keys = document_keys(SHUFFLING, self._seed, self._names, documents)
            self._sums += sum_rows(keys, tokens, self._padding_side)
            self._writer.write(keys, tokens)

    def finish(self) -> tuple[FileRecord, ...]:
        """Finishes the file and returns its record."""
        return (self._writer.finish(self._sums.n_tokens),)

    @property
    def runs(self) -> Mapping[str, Any]:
        """The part of the split's entry about its runs; complete after `finish`."""
        return describe_runs(self._writer.runs, self._sums)


def arrange(parts: Sequence[pa.Array], places: np.ndarray, field: pa.Field) -> pa.Array:
    """Returns the rows of `parts`, one array after another, each at its place.

    Arrow's `take` on lists makes an index of 8 bytes for every element of a list, twice the size of the elements, and
    takes from one array only. Here each row is copied straight to its place.
    The reference implementation is `tests.reference.shuffling.arrange`.

    Args:
      parts: arrays of one type.
      places: int64[n], a permutation: row i, counted through all parts, goes to `places[i]`.
      field: the field of the column.
    """
    element = element_of(field.type)
    is_plain = element is not None and not element.nullable and pa.types.is_integer(element.type)
    if element is None or field.nullable or not is_plain:
        order = np.empty_like(places)
        order[places] = np.arange(places.size)
        return pa.concat_arrays(parts).take(pa.array(order))
    lists = [children(part) for part in parts]
    lengths = np.empty(places.size, np.int64)
    lengths[places] = np.concatenate([np.diff(offsets) for offsets, _ in lists])
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    values = np.empty(int(begins[-1]), numpy_dtype(element.type))
    first = 0
    for offsets, elements in lists:
        last = first + offsets.size - 1
        rows = elements.to_numpy(), offsets[:-1], offsets[1:]
        sums_kernels.copy_rows(*rows, begins[places[first:last]], values)
        first = last
    is_narrow = field.type in (pa.string(), pa.binary()) or pa.types.is_list(field.type)
    stored = pa.py_buffer(begins.astype(np.int32) if is_narrow else begins)
    if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        array = pa.array(values, element.type)
        return pa.Array.from_buffers(field.type, places.size, [None, stored], children=[array])
    return pa.Array.from_buffers(field.type, places.size, [None, stored, pa.py_buffer(values)])
