# SPDX-License-Identifier: Apache-2.0
"""The lists of a manifest: short ones are in it, long ones in Parquet files in the ledger's folder, a row per record.

A manifest of ten files should be readable by people; one of ten million files would not fit into memory.
"""

import functools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import json_files, ledger, quantities
from tokenmill.pipeline.books.counts import COUNTED_OF_FILES
from tokenmill.pipeline.books.json_files import Count, FileName, Hash
from tokenmill.pipeline.columns import open_parquet
from tokenmill.pipeline.config.formats import FormatName

MOST_RECORDS = 10_000
"""A list with more records than this goes into a file."""
ROWS = 1 << 14
"""Records per row group; a writer or a reader holds one row group."""

_IN_ROWS = frozenset({"packing", "windows", "has_field", "chat"})
ABSENT: Any = None
"""The default of a key that may be absent, but not null."""


def _by_name(counts: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in counts.items():
        if isinstance(value, dict) != (name in quantities.BY_NAME | _IN_ROWS):
            raise ValueError(f"{name!r} is {'one number' if isinstance(value, dict) else 'counted by name'} in no file")
    return counts


Counts = Annotated[dict[str, Count | dict[str, Count]], AfterValidator(_by_name)]
"""Numbers as `counts.nest` gives them."""


class Closed(BaseModel):
    """A record without further keys."""

    model_config = ConfigDict(extra="forbid")


ALWAYS = frozenset({"n_records", "n_documents", "n_bytes", "n_tokens", "n_oov_tokens", "rejected", "filtered"})
"""The totals that every job has, of one folder or of several."""


def has(names: frozenset[str]) -> AfterValidator:
    """Returns a check that numbers have these names."""

    def check(counts: Mapping[str, Any]) -> Mapping[str, Any]:
        if missing := names - {*counts}:
            raise ValueError(f"{min(missing)!r} is missing")
        return counts

    return AfterValidator(check)


class Counted(Closed):
    """The record of an input file in `counts.json`."""

    name: str
    n_bytes: Count
    read: Counts = ABSENT


class Input(Counted):
    """The record of an input file in a manifest."""

    format: FormatName
    compression: str = ABSENT
    sha256: str = ABSENT
    read: Counts


class File(Closed):
    """The record of a file."""

    file: FileName
    n_bytes: Count
    sha256: str
    rows: Count = ABSENT
    tokens: Count = ABSENT


class Written(File):
    """The record of a file of a split, or of a shard that was merged from several."""

    split: Hash = ABSENT
    entry: Hash = ABSENT


class Shard(Written):
    """The record of a file with rows."""

    rows: Count
    tokens: Count


_SHAPES: Mapping[str, TypeAdapter[Any]] = {
    "inputs": TypeAdapter(Input),
    "counted": TypeAdapter(Counted),
    "shards": TypeAdapter(Shard),
    **{kind: TypeAdapter(Written) for kind in ("companions", "documents", "rejects")},
}


def _schema(*names: str, **more: pa.DataType) -> pa.Schema:
    texts = {"name", "file", "format", "compression", "sha256", "split", "entry"}
    types = {name: pa.string() if name in texts else pa.int64() for name in names}
    return pa.schema(list((types | more).items()))


_READ = pa.struct(
    (name, pa.map_(pa.string(), pa.int64()) if name in quantities.BY_NAME else pa.int64()) for name in COUNTED_OF_FILES
)
_FILE = "file", "n_bytes", "sha256", "rows", "tokens"
SCHEMAS: Mapping[str, pa.Schema] = {
    "inputs": _schema("name", "n_bytes", "format", "compression", "sha256", read=_READ),
    **{kind: _schema(*_FILE, "split", "entry") for kind in ("shards", "companions", "documents")},
    "rejects": _schema(*_FILE, "split"),
}
"""The columns of the file of each list; fields that a record does not have are null."""
_ALL_SCHEMAS = {**SCHEMAS, "counted": _schema("name", "n_bytes", read=_READ)}


class Sink(Protocol):
    """What takes the records of lists one after another."""

    def take(self, kind: str, record: Mapping[str, Any]) -> None:
        """Takes the next record of a list."""


class Lists:
    """The lists of one manifest while they grow; of all, as many records as a row group has are in memory."""

    def __init__(self, output: str, kinds: Iterable[str] = tuple(SCHEMAS), *, is_chunk: bool = False) -> None:
        """Starts with empty lists; long ones are written into the output folder `output`, but not those of a part."""
        self._lists = {kind: _RecordList(output, kind, is_chunk) for kind in kinds}

    def take(self, kind: str, record: Mapping[str, Any]) -> None:
        """Adds a record to a list."""
        self._lists[kind].add(record)

    def save(self, path: str) -> None:
        """Writes what was added to Arrow files, for `extend`; their names are `path`, a dot and the kind of list."""
        for kind, records in self._lists.items():
            if table := records.to_table():
                sink = pa.BufferOutputStream()
                with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
                    writer.write_table(table)
                storage.write_atomic(f"{path}.{kind}", sink.getvalue().to_pybytes())

    def extend(self, path: str) -> None:
        """Adds the records that `save` has written."""
        for kind, records in self._lists.items():
            if storage.exists(f"{path}.{kind}"):
                with storage.open_read(f"{path}.{kind}") as handle, pa.ipc.open_file(handle) as file:
                    records.extend(file.read_all())

    def finish(self) -> dict[str, Any]:
        """Returns the manifest's value for each list: its records, or the record of its file."""
        return {kind: records.finish() for kind, records in self._lists.items()}


class _RecordList:
    def __init__(self, output: str, kind: str, is_chunk: bool) -> None:
        self._output, self._kind, self._is_chunk, self._schema = output, kind, is_chunk, _ALL_SCHEMAS[kind]
        self._waiting: list[Mapping[str, Any]] = []
        self._before = self._schema.empty_table()  # what comes before those that wait
        self._writer: pq.ParquetWriter | None = None
        self._n = 0

    def add(self, record: Mapping[str, Any]) -> None:
        self._waiting.append(record)
        self._n += 1
        if len(self._waiting) >= ROWS:
            self._write(ROWS)

    def extend(self, table: pa.Table) -> None:
        self._before = pa.concat_tables([self.to_table(), table])
        self._n += table.num_rows
        self._write(ROWS)

    def to_table(self) -> pa.Table:
        """Returns all records that are not written yet, which no longer wait."""
        rows, self._waiting = self._waiting, []
        rows = [{**row, "read": _as_maps(row["read"])} if "read" in row else row for row in rows]
        if rows:
            self._before = pa.concat_tables([self._before, pa.Table.from_pylist(rows, self._schema)])
        return self._before

    def finish(self) -> list[Mapping[str, Any]] | dict[str, Any]:
        if self._n <= MOST_RECORDS:
            return [*_to_records(self._before), *self._waiting]
        self._write(1)
        assert self._writer is not None
        self._writer.close()
        storage.finish(self._handle)
        name = filenames.list_name(self._kind)
        storage.rename(self._staged, storage.join(self._output, name))
        return {**ledger.describe(self._output, name).to_record(), "rows": self._n}

    def _write(self, at_least: int) -> None:
        """Writes row groups of `ROWS` records while so many wait, if the list is a long one."""
        table = self.to_table()
        while self._n > MOST_RECORDS and not self._is_chunk and table.num_rows >= at_least:
            if self._writer is None:
                name = f"{filenames.TEMPORARY}/{self._kind}-{uuid.uuid4().hex}.parquet"
                self._staged = storage.join(self._output, name)
                self._handle = storage.create(self._staged)
                self._writer = pq.ParquetWriter(self._handle, self._schema, compression="zstd", store_schema=False)
            (batch,) = table.slice(0, ROWS).combine_chunks().to_batches()
            self._writer.write_batch(batch)
            table = table.slice(ROWS)
        self._before = table


def _as_maps(read: Mapping[str, Any]) -> dict[str, Any]:
    return {name: [*value.items()] if name in quantities.BY_NAME else value for name, value in read.items()}


class ListedRecords:
    """A long list: its number of records, each of them by its place, all of them in order; one row group in memory.

    Reading raises ValueError if the file is damaged, OSError if it cannot be read.
    """

    def __init__(self, output: str, record: Mapping[str, Any], kind: str) -> None:
        """Raises ValueError if `record`, from the manifest, is not that of the file of such a list."""
        self._output, self._kind = output, kind
        if record["file"] != filenames.list_name(kind) or record.get("rows") is None:
            raise ValueError(f"the list {kind!r} is in {filenames.list_name(kind)!r}, not in {dict(record)}")
        self.file = ledger.FileRecord(**record)
        self._group = functools.lru_cache(1)(self._read_group)

    def __len__(self) -> int:
        return self.file.rows or 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (row for group in range(-(-len(self) // ROWS)) for row in self._read_group(group))

    def __getitem__(self, place: int) -> dict[str, Any]:
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        group, row = divmod(place % len(self), ROWS)
        return self._group(group)[row]

    def _read_group(self, group: int) -> list[dict[str, Any]]:
        name = self.file.file
        try:
            with storage.open_read(storage.join(self._output, name)) as handle:
                file = open_parquet(handle)
                table = file.read_row_group(group, use_threads=False)
                is_mine = file.metadata.num_rows == len(self) and table.num_rows == min(ROWS, len(self) - group * ROWS)
        except (pa.ArrowException, OSError, IndexError) as error:
            raise ValueError(f"{name}: not a list of {len(self)} records: {error}") from error
        if not is_mine or table.schema.remove_metadata() != _ALL_SCHEMAS[self._kind]:
            raise ValueError(f"{name}: not the list {self._kind!r} as TokenMill writes it, of {len(self)} records")
        rows = _to_records(table)
        for row in rows:
            json_files.check(row, _SHAPES[self._kind], f"{name}: not a record of {self._kind}")
        return rows


def _to_records(table: pa.Table) -> list[dict[str, Any]]:
    """Returns the rows without nulls; by columns, as Arrow takes ten times as long to make a dict of a struct."""
    columns = []
    for column in table.columns:
        if pa.types.is_struct(column.type):
            inner = _to_records(pa.Table.from_arrays(column.flatten(), [field.name for field in column.type]))
            are_there = column.is_valid().to_pylist()
            columns.append([value if is_there else None for value, is_there in zip(inner, are_there, strict=True)])
        else:
            columns.append(column.to_pylist(maps_as_pydicts="strict"))
    rows, names = zip(*columns, strict=True), table.column_names
    return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows]


def opened(output: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a manifest in which the record of each long list's file is replaced by a `ListedRecords`."""
    lists = {kind: manifest[kind] for kind in SCHEMAS}
    read = {kind: ListedRecords(output, each, kind) for kind, each in lists.items() if isinstance(each, Mapping)}
    return {**manifest, **read}


def files_of_lists(manifest: Mapping[str, Any]) -> Iterable[ledger.FileRecord]:
    """Yields the record of the file of each long list of an opened manifest."""
    return (manifest[kind].file for kind in SCHEMAS if isinstance(manifest[kind], ListedRecords))
