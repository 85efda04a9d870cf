# SPDX-License-Identifier: Apache-2.0
"""Sorts more rows than memory holds: sorted runs in files of Arrow, and their merge by ranges of keys.

    documents or word counts with keys -> RunsWriter -> a file: runs, each sorted, in pieces of even ranges of keys
    pieces of many runs -> merge_range -> documents in the order of their keys
    pieces of many runs -> RunReader -> the words of a hash partition, run by run

A run holds the rows of a stretch of a split; rows with the same key stay in the order in which they were written. Each
piece is a record batch, which is read as a whole. A merge goes through a range of keys in steps: it takes from every
run the rows up to the end of the step, and sorts them. So it holds a step and a piece of every run, however many rows
there are. Keys are hashes: the pieces of all runs, and all steps, have about the same size.
"""

import functools
import io
import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.sums import Run, SortedRuns, SplitRuns, Sums, sum_rows
from tokenmill.pipeline.columns import children, element_of, numpy_dtype
from tokenmill.pipeline.config.output import ShuffleConfig
from tokenmill.pipeline.filenames import runs_name
from tokenmill.pipeline.hashing import SHUFFLING, document_keys
from tokenmill.pipeline.isolating import in_turn
from tokenmill.pipeline.output.staging import StagedFile, Staging
from tokenmill.pipeline.splits import Split

N_KEYS = 1 << 64

_KEY = pa.field("key", pa.uint64(), nullable=False)

_MOST_PIECES = 128
"""As many as runs that are merged at once, so that a piece of each takes about as much memory as sorting one run."""

_PIECE_BYTES = 1 << 18
"""Pieces are no smaller than this on average: reading a record batch costs some 100 µs, whatever its size."""

_OPEN_FILES = 64

_OPEN_OBJECTS = 1024
"""Objects of a store that are read through a small buffer; each needs a request to be opened, and no descriptor."""

_BUFFER_BYTES = 1 << 16
"""So much of an object is read at least."""


def shard_range(index: int, n_shards: int) -> tuple[int, int]:
    """Returns the keys of a shard, from the first to below the second: an even share of all keys."""
    low, high = ((i * N_KEYS + n_shards - 1) // n_shards for i in (index, index + 1))
    return low, high


class RunsWriter:
    """Writes rows, such as documents or word counts, as sorted runs; holds those of one run twice."""

    def __init__(
        self,
        file: StagedFile,
        run_bytes: int,
        *,
        of_all_keys: bool = False,
        n_ranges: int | None = None,
        compression: str | None = None,
    ) -> None:
        """Starts a file.

        Args:
          file: open for writing, at its start.
          run_bytes: a run is sorted and written once its rows take this many bytes; it has at most a batch more.
          of_all_keys: whether runs are cut by even ranges of all keys, and not of those that they have.
          n_ranges: the even ranges of all keys that readers will ask for, a power of two; no piece has keys of several,
            unless the run is tiny. None: a run is cut by its size alone.
          compression: "zstd", or None for rows that it makes little smaller, as those of ids.
        """
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self.runs: list[Run] = []
        self._file, self._run_bytes, self._of_all_keys, self._n_ranges = file, run_bytes, of_all_keys, n_ranges
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._pending: list[tuple[np.ndarray, pa.RecordBatch]] = []
        self._n_pending = 0

    def write(self, keys: np.ndarray, batch: pa.RecordBatch) -> None:
        """Appends rows.

        Args:
          keys: uint64[n].
          batch: the rows, with the same columns in every call.
        """
        if not batch.num_rows:
            return
        self._pending.append((keys, batch))
        self._n_pending += batch.nbytes
        if self._n_pending >= self._run_bytes:
            self.end_run()

    def finish(self, n_tokens: int | None = None) -> FileRecord:
        """Writes the last run and finishes the file, whose record will have this number of tokens."""
        self.end_run()
        if self._writer is not None:
            self._writer.close()
        return self._file.finish(rows=sum(run.n_rows for run in self.runs), tokens=n_tokens)

    def end_run(self) -> None:
        """Sorts and writes the rows since the last run, if there are any."""
        if not self._pending:
            return
        keys = np.concatenate([keys for keys, _ in self._pending])
        parts, n_bytes = [batch for _, batch in self._pending], self._n_pending
        self._pending, self._n_pending = [], 0
        order = np.argsort(keys, kind="stable")
        rows, keys = arrange_rows(parts, order), keys[order]
        first, last = (0, N_KEYS - 1) if self._of_all_keys else (int(keys[0]), int(keys[-1]))
        n_pieces = max(1, min(_MOST_PIECES, n_bytes // _PIECE_BYTES, keys.size // 4))
        if self._n_ranges is not None:
            n_pieces = 1 << (max(1, min(self._n_ranges, keys.size // 4)).bit_length() - 1)
        first_piece = self.runs[-1].first_piece + self.runs[-1].n_pieces if self.runs else 0
        run = Run(keys.size, n_bytes, first_piece, n_pieces, first, last)
        rows = rows.add_column(0, _KEY, pa.array(keys))
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._file, rows.schema, options=self._options)
        bounds = np.array([run.bound(i) for i in range(1, n_pieces)], np.uint64)
        cuts = [0, *np.searchsorted(keys, bounds).tolist(), keys.size]
        for start, stop in itertools.pairwise(cuts):
            self._writer.write_batch(rows.slice(start, stop - start))
        self.runs.append(run)


class RunFiles:
    """The files of runs of one folder. Keeps files open between reads, but no more than any system allows."""

    def __init__(self, folder: str = "") -> None:
        self._open_files: OrderedDict[str, tuple[BinaryIO, pa.ipc.RecordBatchFileReader]] = OrderedDict()
        self._lock = threading.Lock()
        self._n_open = _OPEN_FILES
        self.is_remote = storage.is_remote(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle, _reader in self._open_files.values():
            handle.close()
        self._open_files.clear()

    def read(self, path: str, number: int) -> pa.RecordBatch:
        """Returns a record batch of a file. Several threads may read at the same time.

        Raises:
          OSError: if it cannot be read.
          ValueError: if the file is damaged.
        """
        with self._lock:
            kept = self._open_files.pop(path, None)
        handle, reader = kept or (self._open(path), None)
        try:
            reader = reader or pa.ipc.open_file(handle)
            batch = reader.get_batch(number)
            batch.validate(full=True)
        except (OSError, pa.ArrowException, IndexError) as error:
            handle.close()
            if isinstance(error, OSError):
                raise
            raise ValueError(f"{path}: damaged, or no file of sorted documents: {error}") from error
        with self._lock:
            replaced, self._open_files[path] = self._open_files.pop(path, None), (handle, reader)
            oldest = self._open_files.popitem(last=False)[1] if len(self._open_files) > self._n_open else None
        for unused, _ in filter(None, (replaced, oldest)):
            unused.close()
        return batch

    def _open(self, path: str) -> BinaryIO:
        handle = storage.open_read(path)
        if self.is_remote and isinstance(handle, io.BufferedReader):
            # Beam (2.77) reads objects of S3 through a buffer of 16 MiB, where a piece has a few hundred KiB.
            self._n_open = _OPEN_OBJECTS
            handle = io.BufferedReader(handle.detach(), _BUFFER_BYTES)
        return handle


class RunReader:
    """Reads one run from a key on, piece by piece; holds one piece."""

    def __init__(self, files: RunFiles, path: str, run: Run, schema: pa.Schema) -> None:
        """Reads nothing yet.

        Args:
          files: reads the file of the run.
          path: the path of the file.
          run: what the run is.
          schema: the schema of its rows, without the key.
        """
        self.run, self.files = run, files
        self._path = path
        self._schema = pa.schema([_KEY, *schema])
        self._low = self._piece = 0
        self._held: pa.RecordBatch | None = None

    def start(self, low: int) -> None:
        """Goes to the first row whose key is at least `low`."""
        self._low, self._piece, self._held = low, self.run.piece_of(low), None

    def take(self, high: int) -> list[pa.RecordBatch]:
        """Returns the next rows, those whose keys are below `high`, at most 2**64; their first column is the key.

        Raises:
          OSError: if the file cannot be read.
          ValueError: if it is damaged.
        """
        parts = []
        while self._held is not None or (self._piece < self.run.n_pieces and self.run.bound(self._piece) < high):
            held = self._held if self._held is not None else self._next()
            n = held.num_rows if high == N_KEYS else _find(held, high)
            if n:
                parts.append(held.slice(0, n))
            self._held = held.slice(n) if n < held.num_rows else None
            if self._held is not None:
                break
        return parts

    def _next(self) -> pa.RecordBatch:
        batch = self.files.read(self._path, self.run.first_piece + self._piece)
        self._piece += 1
        keys = batch.column(0).to_numpy() if batch.schema.equals(self._schema) else None
        if keys is None or (keys[1:] < keys[:-1]).any():
            raise ValueError(f"{self._path}: holds other columns, or rows that are not sorted")
        return batch.slice(_find(batch, self._low))


def _find(batch: pa.RecordBatch, key: int) -> int:
    return int(np.searchsorted(batch.column(0).to_numpy(), np.uint64(key)))


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


def merge_range(
    runs: Sequence[RunReader], low: int, high: int, *, step_bytes: int
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Yields the keys, uint64[n], and the rows of all runs with keys from `low` to below `high`, ordered by key.

    Rows with the same key keep the order of the runs and, inside of a run, their order there. `step_bytes` decides only
    where batches end.

    Args:
      runs: each ordered by key.
      low: the first key, from 0.
      high: at most 2**64.
      step_bytes: about how many bytes a batch has; hashes make it vary a little. Twice as many are held.
    """
    used = [run for run in runs if run.run.first < high and run.run.last >= low]
    for run in used:
        run.start(low)
    n_steps = max(1, -(-sum(run.run.share(low, high) for run in used) // step_bytes))
    for step in range(1, n_steps + 1):
        end = low + (high - low) * step // n_steps
        take = functools.partial(RunReader.take, high=end)
        # A store may take 100 ms for each read, which costs a processor one.
        taken = in_turn(take, used, waits=True) if used and used[0].files.is_remote else map(take, used)
        parts = list(itertools.chain.from_iterable(taken))
        if parts:
            keys = np.concatenate([part.column(0).to_numpy() for part in parts])
            order = np.argsort(keys, kind="stable")
            rows = arrange_rows([part.remove_column(0) for part in parts], order)
            yield keys[order], rows


def arrange_rows(parts: Sequence[pa.RecordBatch], order: np.ndarray) -> pa.RecordBatch:
    """Returns the rows of all parts, counted through them, in the order that `order`, int64[n], gives."""
    schema = parts[0].schema
    if len(parts) == 1 and (order[:-1] < order[1:]).all():
        return parts[0]
    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    columns = [arrange([part.column(i) for part in parts], places, field) for i, field in enumerate(schema)]
    return pa.record_batch(columns, schema=schema)


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
        self._writer = RunsWriter(staging.create(runs_name(split.id)), config.run_bytes, of_all_keys=True)
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
    def runs(self) -> SortedRuns:
        """What the split's entry has of its runs; complete after `finish`."""
        return SortedRuns(tuple(self._writer.runs), self._sums)
