# SPDX-License-Identifier: Apache-2.0
"""Writes the rows of a finished output in other formats, into a new output folder, whose ledger has the same counts.

    shards, tables of documents, ledger --rows, in memory--> shards in other formats, the same ledger, a new manifest

Nothing is tokenized or packed again. A format that keeps only ids gets back what follows from the tables of documents:
ids of documents, boundaries, padding. The last step is that of any job: it adds the ledger up, and it must balance.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.books import ledger, manifest
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.job_record import Job, differences, read_job
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry, ShardEntry, Written
from tokenmill.pipeline.columns import as_lists, copy_stretches
from tokenmill.pipeline.config.file import validated
from tokenmill.pipeline.config.formats import SHARD_FORMATS, Format
from tokenmill.pipeline.config.job import with_paths
from tokenmill.pipeline.config.kept_fields import decode_fields
from tokenmill.pipeline.config.output import KEEPS_COLUMNS
from tokenmill.pipeline.hashing import hash_rows
from tokenmill.pipeline.jobs.finish import Folder, finish_output
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.output.placement import Placement, RowForm, count_between, measure, placed_columns
from tokenmill.pipeline.output.shard import FormatFiles, row_schemas
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.output.tables import DocumentTable, listed_fields, read_documents
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.output.writers.flat import without_padding
from tokenmill.pipeline.proving.from_input import config_of
from tokenmill.pipeline.shuffling import plan_shards
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.pages import schema_of_rows, tokenizer_info

_NARROW = [name for name, each in SHARD_FORMATS.items() if len(each.suffixes) > 1]
"""Formats that keep nothing but ids; their writers want ids of documents, too, whatever these are."""
_IDS = ["doc_id", "input_ids", "n_tokens"]

_ON_HUBS: Format = "parquet"
"""The one format of shards that hubs show and `datasets` reads."""


class Conversion:
    """A conversion that can be done; making one writes nothing."""

    def __init__(self, output: str, target: str, to: Sequence[str]) -> None:
        """Reads the manifest and decides from which format to read.

        Args:
          output: a finished output folder; of an output in parts one of its folders.
          target: the new folder.
          to: the formats to write.

        Raises:
          ValueError: if it is no such folder, or a format cannot hold the rows; says which, why, and what can.
          OSError: if the folder cannot be read.
        """
        if not storage.is_remote(output) and not storage.is_remote(target):
            here, there = (os.path.realpath(path) + os.sep for path in (output, target))
            if here.startswith(there) or there.startswith(here):
                raise ValueError(f"{target!r} is {output!r} or one lies in the other: give a new folder beside it")
        self.manifest = manifest.read(output)
        before, self._tokenizer = config_of(output, self.manifest)
        if (record := read_job(output)) is None:
            raise ValueError(f"{output!r} has no record of its job: convert the folder that a job wrote")
        changed = {"format": list(to), "compression": "auto"}
        settings = {**self.manifest["config"], "output": {**self.manifest["config"]["output"], **changed}}
        self.config = validated(with_paths(settings, output, target))
        converted = {"config": settings, "converted_from": self.manifest.get("digest", "")}
        self._output, self.job = output, Job({**record[0].parts, **converted})
        self._form, self._info = RowForm.recorded(self.manifest), tokenizer_info(self._tokenizer)
        self._fields = next(self._splits()).fields
        self._source = next(each for each in SHARD_FORMATS if each in before.output.formats)
        rows = schema_of_rows(self.config, self._fields)
        stored = row_schemas(rows, self._form, self.config.output)
        self.schemas: Mapping[Any, pa.Schema] = {name: _kept(name, schema) for name, schema in stored.items()}
        """What each new format stores, by its name."""
        alone = before.output.model_copy(update={"format": self._source})
        self._stored = _kept(self._source, row_schemas(rows, self._form, alone)[self._source])
        fields, are_documents = decode_fields(self._fields), self._form.strategy == "documents"
        old, new = (
            listed_fields(each.output.formats, fields, are_documents=are_documents) for each in (before, self.config)
        )
        self._listed: pa.Schema | None = None if old == new else pa.schema(new)
        """The kept fields to store in new tables of documents; None if the tables stay as they are."""
        # Shards of MDS have kept fields as JSON, tables as they were.
        lost = {field.name for field in fields} if old and self._source == "mds" else set()
        lost |= {"doc_id"} if self._source in _NARROW else set()
        self._stored = pa.schema([field for field in self._stored if field.name not in lost])
        self._check({field.name for field in old})

    def _check(self, listed: set[str]) -> None:
        """Raises ValueError if a column is neither stored nor listed with documents, and does not follow from these."""
        has = listed | {*_in_memory(self._stored), "doc_id", "documents", *schemas.BOUNDARIES, *schemas.WINDOWS.names}
        has |= {"n_oov"} if self._form.strategy == "documents" else set()
        for name, schema in {**self.schemas, "the table of documents": self._listed or pa.schema([])}.items():
            as_json = {each.name for each in schema if each.nullable and self._source == "mds"} - listed
            if lacks := [each for each in _in_memory(schema) if each in as_json or each not in has]:
                raise ValueError(
                    f"{self._output!r}: {name} has the column {lacks[0]!r}, which its rows in {self._source} "
                    f"{'hold as JSON' if as_json else 'do not keep'}; run the job again with output.format "
                    f"[{', '.join(self.config.output.formats)}]"
                )

    def run(self, lease: Lease | None = None) -> Mapping[str, Any]:
        """Writes the new folder and returns its manifest. Goes on with one where the same conversion was interrupted.

        Holds a row group, the table of documents of a shard, and 8 bytes for each of its rows.

        Raises:
          ValueError: if the folder holds something else, or a file is not as recorded, or reads back as other rows.
          BooksError: if the ledger does not add up.
          OSError: if a file cannot be read or written.
        """
        splits = (Split(each.index, each.split_id, each.pieces, each.fields) for each in self._splits())
        planned = PlannedSplits(splits)
        shards = plan_shards(self.config.output, planned, self.job.digest)
        suffix, *companions = formats.suffixes(self.config.output)
        target = self.config.output.path
        if (found := read_job(target)) is not None:
            if there := differences(found[0].parts, self.job.parts):
                raise ValueError(f"{target!r} holds what another job made, with {'; '.join(there)}: give a new folder")
            if storage.exists(storage.join(target, filenames.MANIFEST)):
                raise ValueError(f"{target!r} holds all of this conversion already: verify it, or give a new folder")
        n_shards = len(shards) or None
        folders.prepare_output(
            target, self.job, "resume", n_splits=len(planned), suffix=suffix, companions=companions, n_shards=n_shards
        )
        for entry in self._splits():
            self._convert(entry, entry.split_id, None if shards else len(planned))
        for record, shard in zip(self.manifest["shards"] if shards else (), shards, strict=True):
            merged = ShardEntry.read(self._output, record["entry"])
            if merged is None:
                raise ValueError(f"{self._output!r}: the entry of {record['file']} is missing; verify the folder")
            self._convert(replace(merged, shard_id=shard.id, plan=shard.plan), shard.id, len(shards))
        return finish_output(Folder(self.config, self.job, planned, self._tokenizer, [*self._other_files()]), lease)

    def _splits(self) -> Iterator[LedgerEntry]:
        for split_id in manifest.split_ids(self.manifest):
            if (entry := LedgerEntry.read(self._output, split_id)) is None:
                raise ValueError(f"{self._output!r}: the entry of split {split_id} is missing; verify the folder")
            yield entry

    def _other_files(self) -> Iterator[FileRecord]:
        """Copies files that are of the whole job, and do not follow from the ledger."""
        made = {filenames.TOKEN_COUNTS, filenames.STATS, filenames.MDS_INDEX, filenames.HUB, filenames.TOKENIZER}
        for record in self.manifest["files"]:
            path = storage.join(self.config.output.path, record["file"])
            if record["file"] not in made:
                with storage.open_read(storage.join(self._output, record["file"])) as handle:
                    storage.write_atomic(path, handle.read())
                yield ledger.describe(self.config.output.path, record["file"])

    def _convert(self, entry: Written, entry_id: str, n_shards: int | None) -> None:
        """Commits an entry; `n_shards` is None if it has no shard, but sorted runs that were merged and are gone."""
        if self._is_done(entry, entry_id):
            return
        made: tuple[FileRecord | None, ...] = (entry.shard, *entry.companions)
        for file in entry.files() if n_shards is not None else (each for each in entry.files() if each not in made):
            if wrong := ledger.problem(self._output, file):
                raise ValueError(f"{self._output!r}: {wrong}; verify the folder")
        with Staging(self.config.output.path, entry_id) as staging:
            written = entry
            if n_shards is not None:
                shard, *companions = self._write(entry, staging, n_shards)
                written = replace(written, shard=shard, companions=tuple(companions))
            if self._listed is not None and entry.documents is not None:
                made += (entry.documents,)
                written = replace(written, documents=self._list(entry, entry.documents, staging, self._listed))
            for file in (each for each in entry.files() if each not in made):
                is_keys = isinstance(entry, ShardEntry) and file == entry.keys
                copy = staging.create(filenames.keys_name(entry_id) if is_keys else file.file)
                with storage.open_read(storage.join(self._output, file.file)) as handle:
                    shutil.copyfileobj(handle, copy, 1 << 20)
                copied = copy.finish(file.rows, file.tokens)
                if isinstance(written, ShardEntry) and is_keys:
                    written = replace(written, keys=copied)
            staging.commit(written)

    def _is_done(self, entry: Written, entry_id: str) -> bool:
        """Returns whether an earlier call, which was interrupted, has committed an entry, whose files are all there."""
        target = self.config.output.path
        if (done := type(entry).read(target, entry_id)) is None or any(ledger.problem(target, f) for f in done.files()):
            return False
        own = ("shard", "companions", "documents", "keys")
        new: dict[str, Any] = {name: getattr(done, name) for name in own if hasattr(done, name)}
        return replace(entry, **new) == done

    def _list(self, entry: Written, old: FileRecord, staging: Staging, fields: pa.Schema) -> FileRecord:
        """Writes a table of documents that has other kept fields; where it has more, rows of the shard have them."""
        table, first = DocumentTable(staging.create(old.file), has_segments=False, fields=[*fields]), 0
        listed = self._documents(old)
        for batch in self._read(entry):
            documents = listed.slice(first, batch.num_rows).combine_chunks()
            for field in fields:
                documents = documents.append_column(field, pa.chunked_array([batch.column(field.name)]))
            for part in documents.to_batches():
                table.add(part)
            first += batch.num_rows
        return table.finish()

    def _write(self, entry: Written, staging: Staging, n_shards: int) -> Iterator[FileRecord]:
        """Writes the rows of a shard in the new formats, reads them again, and yields the records of their files."""
        for format_, schema in self.schemas.items():
            new = FormatFiles(staging, entry.index, n_shards, self.config.output, self._info, format_, schema)
            name, written = new.files[0].name, []
            for batch in self._rows(entry, format_):
                new.write(batch)
                written.append(self._hashes(batch))
            yield from new.finish()
            with ExitStack() as stack:
                read = [stack.enter_context(storage.open_read(file.path)) for file in new.files]
                again = [self._hashes(batch) for batch in formats.read_rows(read[0], name, 0, *read[1:])]
                if not np.array_equal(np.concatenate([_NONE, *written]), np.concatenate([_NONE, *again])):
                    raise ValueError(f"{name}: reads back as other rows than those of {entry.shard.file}")

    def _hashes(self, batch: pa.RecordBatch) -> np.ndarray:
        """Returns uint64[n], a hash of the tokens of each row without its padding, which not all formats keep."""
        n_tokens = batch.column("n_tokens").to_numpy().astype(np.int64)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(n_tokens)])
        return hash_rows(without_padding(batch, self._form.pads_left), bounds)

    def _rows(self, entry: Written, format: str) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a shard with at least the columns that a format stores, as they are in memory."""
        columns, batches = _in_memory(self.schemas[format]), self._read(entry)
        lacks = {*columns} - {*_in_memory(self._stored)}
        lacks -= {"doc_id"} if format in _NARROW else set()  # any id will do, as it is not kept
        has_padding = self._source not in _NARROW or not self._form.padded
        if not lacks and has_padding:
            yield from batches
            return
        assert entry.documents is not None
        if not entry.documents.rows:
            return
        table, first = self._documents(entry.documents), 0
        placement = Placement.listed(table, self._form)
        for batch in batches:
            part = placement.of_rows(first, first + batch.num_rows)
            yield self._completed(batch, part, table, columns)
            first += batch.num_rows

    def _read(self, entry: Written) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a shard as they are stored."""
        files = (file for file in (entry.shard, *entry.companions) if file.rows is not None)
        name = next(file.file for file in files if formats.format_of(file.file) == self._source)
        with ExitStack() as stack:
            names = filter(None, (name, formats.index_name(name)))
            handles = [stack.enter_context(storage.open_read(storage.join(self._output, each))) for each in names]
            yield from formats.read_rows(handles[0], name, 0, *handles[1:])

    def _documents(self, record: FileRecord) -> pa.Table:
        batches = read_documents(self._output, record, has_segments=self._form.strategy != "documents")
        tables = [pa.Table.from_batches([each]) for each in batches]
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def _completed(
        self, batch: pa.RecordBatch, part: Placement, table: pa.Table, names: Sequence[str]
    ) -> pa.RecordBatch:
        """Returns rows with their padding, and with the columns that follow from where documents are."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        at = measure(part, self._form)
        ids = np.full(int(at.offsets[-1]), self._form.pad_id or 0, np.int32)
        begins = at.offsets[1:] - at.n_tokens if self._form.pads_left else at.offsets[:-1]
        values = without_padding(batch, self._form.pads_left)
        ends = np.cumsum(at.n_tokens)
        copy_stretches(values, ends - at.n_tokens, ends, begins, ids)
        columns |= {"input_ids": as_lists(ids, at.offsets), **placed_columns(names, part, at, self._form)}
        if not self._form.is_packed:
            kept = [field.name for field in table.schema if field.nullable and field.name in names]
            for name in ("doc_id", *kept):
                columns[name] = table[name].combine_chunks().take(pa.array(part.documents))
        if self._form.strategy == "documents":
            left, right = map(len, self._form.around_document)
            is_unknown = ids == (-1 if self._tokenizer.unk_token_id is None else self._tokenizer.unk_token_id)
            n_oov = count_between(is_unknown, begins + left, begins + at.n_tokens - right)
            columns["n_oov"] = pa.array(n_oov.astype(np.int32))
        return pa.record_batch(list(columns.values()), names=list(columns))


_NONE = np.zeros(0, np.uint64)


def _kept(format: str, schema: pa.Schema) -> pa.Schema:
    """Returns the columns of rows that the writer of a format takes and its reader gives."""
    columns = (
        _IDS if format in _NARROW else [name for name in schema.names if format in KEEPS_COLUMNS or name != "n_oov"]
    )
    return pa.schema([field for field in schema if field.name in columns])


def _in_memory(schema: pa.Schema) -> list[str]:
    """Returns the columns of rows in memory of which those of a schema are made."""
    made = (schemas.LABELS.name, *schemas.FOR_TRAINERS.names)
    return list(dict.fromkeys(schemas.LOSS_MASK.name if name in made else name for name in schema.names))


def dataset_card(built: Mapping[str, Any], schema: pa.Schema) -> bytes:
    """Returns README.md of a data set for a hub, with front matter that it reads; its license is left to its owner.

    Args:
      built: the manifest.
      schema: the columns of the rows in the first format.
    """
    totals, tokenizer = built["totals"], built["tokenizer"]
    n_rows = sum(record["rows"] for record in built["shards"])
    sizes = "1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"
    power = min(max(0, len(str(n_rows)) - 3), len(sizes))
    of = f"{sizes[power - 1]}<n<{sizes[power]}" if 0 < power < len(sizes) else "n>1T" if power else "n<1K"
    front: dict[str, Any] = {"license": None, "size_categories": [of], "tags": ["tokenized", "tokenmill"]}
    if _ON_HUBS in built["config"]["output"]["format"]:
        files = {"split": "train", "path": f"tokens-*-of-*.{_ON_HUBS}"}
        front["configs"] = [{"config_name": "default", "data_files": [files]}]
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items()]
    counts = {
        "rows": n_rows,
        "documents": totals["n_documents"],
        "tokens": totals["n_tokens"],
        "unknown tokens": totals["n_oov_tokens"],
        "vocabulary": tokenizer["vocab_size"],
    }
    table = [f"| {name} | {n:,} |" for name, n in counts.items()]
    text = [
        *("---", *lines, "---", "# Tokenized data set", ""),
        f"Rows of {', '.join(f'`{name}`' for name in schema.names)}.",
        *("", "| | |", "|---|--:|", *table, ""),
        f"Made by TokenMill {built['versions']['tokenmill']}; `tokenmill verify` proves the counts of this folder.",
        f"Its manifest has the digest `{built['digest']}`. The tokenizer is `vocab/tokenizer.json`, with the digest",
        f"`{tokenizer['digest']}`.",
    ]
    return ("\n".join(text) + "\n").encode()
