# SPDX-License-Identifier: Apache-2.0
"""`WriteShards`: rows of ids to files."""

import dataclasses
import functools
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Literal, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import PCollection, Row
from apache_beam.typehints import Tuple, no_annotations
from apache_beam.typehints.row_type import RowTypeConstraint

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.columns import children
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.hashing import hash_rows
from tokenmill.pipeline.output.staging import StagedFile
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.rows import declared_types
from tokenmill.pipeline.rows import elements as elements_of
from tokenmill.pipeline.rows.batching import Check, Gather, column_of, expand_checked
from tokenmill.pipeline.rows.errors import FallibleTransform, Results, RowsError
from tokenmill.pipeline.rows.tokenize import IDS
from tokenmill.pipeline.rows.tokenizers import GivenTokenizer, TokenizerSource
from tokenmill.pipeline.tokenizing.pages import tokenizer_info
from tokenmill.pipeline.transforms.stages import call_once

_WRITTEN = RowTypeConstraint.from_fields(
    [("file", str), ("rows", int), ("tokens", int), ("n_bytes", int), ("sha256", str)]
)
_NOT_COUNTED = -1
_RENAMES = 16
"""So many files get their final names at a time."""

_STRINGS = pa.string(), pa.large_string(), pa.string_view()
_SHARD = re.compile(r"tokens-\d+-of-\d+\.")
_KEYED = pa.schema([*schemas.TOKENS, pa.field("key", pa.uint64(), nullable=False)])


class WriteShards(FallibleTransform):
    """Writes ids to a fixed number of Parquet, TFRecord or Arrow files, with the columns that a job's shards have.

        tokens | WriteShards("out", "vocab", n_shards=16, id_column="id")

    Input: what `Tokenize` makes, rows or batches, without windows. Output: `beam.Row(file, rows, tokens, n_bytes,
    sha256)` for each file. Files have the columns of `schemas.TOKENS`; other fields are not written.

    The same rows make the same files, in whatever order they arrive and on whatever runner: a hash of each row decides
    its file and its place there. That is why Beam's own sinks do not write them: these place rows by bundle and by
    chance. Memory: the rows of one file, on the worker that writes it.

    A run may be repeated. Files have temporary names until all are written. Only then the last step removes those of an
    earlier run, what it has half written, too, and renames; so the files of two runs are never side by side, and a
    pipeline that fails before leaves the folder's shards as they were.

    There is no ledger and no manifest; a job of `tokenmill run` has both, and needs no shuffle.
    """

    def __init__(
        self,
        path: str,
        tokenizer: TokenizerSource,
        *,
        n_shards: int = 1,
        format: Literal["parquet", "tfrecord", "arrow"] = "parquet",
        compression: Literal["auto", "none", "gzip", "zstd"] = "auto",
        column: str = "input_ids",
        id_column: str | None = None,
        padding_side: Literal["right", "left"] | None = None,
    ) -> None:
        """Makes the step.

        Args:
          path: the folder; created if it does not exist. Shards of the same names are replaced; a folder with others,
            such as those of another `n_shards`, is refused, before anything runs and again before anything is removed.
          tokenizer: the tokenizer that made the ids; shards name it. See `TokenizerSource`.
          n_shards: how many files.
          format: the format of the files.
          compression: as `output.compression` of a config.
          column: the field with the ids. The fields `n_tokens` and `n_oov` are used if they exist, else counted.
          id_column: the field with the document's id, a string or an integer; None: `doc_id`, which `ReadCorpus` gives,
            where it is a string; the ids of other rows are empty.
          padding_side: where rows are padded; None: they are not.

        Raises:
          OSError, ValueError: if `tokenizer` cannot be read or is not a tokenizer, or an argument is not allowed.
        """
        super().__init__()
        if format not in ("parquet", "tfrecord", "arrow"):
            raise ValueError(f"WriteShards: format {format!r}: allowed are parquet, tfrecord, arrow; jobs write more")
        if not isinstance(n_shards, int | np.integer) or n_shards < 1:
            raise ValueError(f"WriteShards: n_shards must be a number from 1, got {n_shards!r}")
        if padding_side not in ("right", "left", None):
            raise ValueError(f"WriteShards: padding_side must be right, left or None, got {padding_side!r}")
        self._output = OutputConfig(path=path, format=format, compression=compression)
        self._given = GivenTokenizer(tokenizer, TokenizerConfig())
        self._n_shards = int(n_shards)
        self._columns = column, id_column
        self._padding_side = padding_side

    def display_data(self) -> dict[str, Any]:
        """Returns what is written where, and the digest of the tokenizer."""
        ids, doc_ids = self._columns
        options = {"column": ids, **({"id_column": doc_ids} if doc_ids else {}), "n_shards": self._n_shards}
        where = {"path": self._output.path, "format": self._output.formats[0]}
        return {**where, **options, "padding_side": str(self._padding_side), **self._given.display_data()}

    @no_annotations  # which do not know of a second output
    def expand(self, pcoll: PCollection[Any]) -> Results:
        """Adds the step to a pipeline."""
        pcoll = declared_types.declared(self, pcoll)
        for column, reads in zip(self._columns, (IDS if self._errors is None else None, None), strict=True):
            if column is not None:
                declared_types.extended_type(pcoll.element_type, column, {}, "WriteShards", reads)
        _earlier_files(self._output, self._n_shards)
        declared_types.check_global(pcoll, "WriteShards")
        ids, doc_ids = self._columns
        checks = [Check(ids, IDS, self._given.check_ids, self._given.side_input)]
        if doc_ids is not None:
            checks.append(Check(doc_ids, None, functools.partial(_check_doc_ids, doc_ids)))
        return expand_checked(self, pcoll, self._expand, *checks)

    def _expand(self, pcoll: PCollection[Any]) -> PCollection[Any]:
        fields = _Fields(*self._columns)
        gather = beam.ParDo(Gather(fields.ids, fields.of_rows, fields.of_batch)).with_output_types(pa.RecordBatch)
        deal = beam.FlatMap(_dealt, self._n_shards).with_output_types(Tuple[int, pa.RecordBatch])
        keyed = pcoll | "Gather" >> gather | "Deal" >> deal
        fn = _WriteFn(self._output, self._n_shards, self._padding_side, self._given)
        write = beam.ParDo(fn, self._given.side_input)
        numbers = pcoll.pipeline | "Shards" >> beam.Create(list(range(self._n_shards)))
        empty = numbers | "Empty" >> beam.Map(_no_rows).with_output_types(Tuple[int, pa.RecordBatch])
        written = (keyed, empty) | "All" >> beam.Flatten() | "ByShard" >> beam.GroupByKey() | "Write" >> write
        files = beam.pvalue.AsList(written)
        rows = call_once(pcoll.pipeline, "Publish", _publish, files, self._output, self._n_shards)
        return rows | "Files" >> beam.FlatMap(_rows_of).with_output_types(_WRITTEN)


def _earlier_files(output: OutputConfig, n_shards: int) -> list[str]:
    """Returns the names of what an earlier run has left in the folder, half written or not.

    Raises:
      ValueError: if there are other shards, which a run would not replace: readers would take both.
    """
    names = {filenames.shard_name(i, n_shards, formats.suffix(output)) for i in range(n_shards)}
    found = [name for name in storage.list_files(output.path) if _SHARD.match(name)]
    if others := [name for name in found if name not in names and not storage.HALF_WRITTEN.search(name)]:
        raise ValueError(
            f"WriteShards: {output.path!r} has other shards already, such as {others[0]!r}, which this step "
            f"would not replace; remove them, or choose another folder"
        )
    return found


def _publish(files: Sequence[tuple[str, Any]], output: OutputConfig, n_shards: int) -> list[Any]:
    """Gives shards, pairs of a temporary path and what it holds, their final names; returns what they hold.

    Files of an earlier run are removed before the first is renamed. A runner may repeat this: what is renamed stays.

    Raises:
      OSError: if a file is neither under its temporary nor under its final name, before anything is removed.
    """
    earlier = [storage.join(output.path, name) for name in _earlier_files(output, n_shards)]
    staged = [(path, row) for path, row in files if storage.exists(path)]
    renamed = {row.file for path, row in files} - {row.file for _, row in staged}
    if lost := sorted(renamed.difference(earlier)):
        raise FileNotFoundError(f"WriteShards: {lost[0]!r} was removed while others were written; run it again alone")
    for path in {*earlier} - renamed - {path for path, _ in staged}:
        storage.delete(path)
    with ThreadPoolExecutor(_RENAMES) as pool:  # an object store copies each
        for _ in pool.map(lambda each: storage.rename(each[0], each[1].file), staged):
            pass
    return [row for _, row in sorted(files, key=lambda each: each[1].file)]


def _rows_of(rows: list[Any]) -> Iterator[Any]:
    for row in rows:
        FileSystems.report_sink_lineage(row.file)
        yield row


def _check_doc_ids(field: str, _: Any, ids: Any) -> None:
    """Raises RowsError, or for the column of a batch TypeError, if ids of documents are no strings and no integers."""
    if isinstance(ids, pa.Array):
        if not pa.types.is_integer(ids.type):
            _text(ids, field)
        return
    failed = {}
    for i, each in enumerate(ids):
        try:
            _doc_id(field, each).encode()
        except (TypeError, UnicodeError) as error:
            failed[i] = error.with_traceback(None)
    if failed:
        raise RowsError(failed)


def _doc_id(field: str, given: Any) -> str:
    if not isinstance(given, str | int | np.integer) or isinstance(given, bool):
        raise TypeError(f"WriteShards: the field {field!r} must be a string or an integer, got {given!r:.80}")
    return str(given)


def _own_ids(column: pa.Array) -> pa.Array | None:
    """Returns the ids of documents that nobody named: strings, empty where there is none; None if they are not text."""
    column = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
    if column.type not in _STRINGS:
        return None
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return column.cast(pa.string()).fill_null("")


def _is_text(given: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in given)


def _no_rows(shard: int) -> tuple[int, pa.RecordBatch]:
    """Returns an empty batch for a shard, so that every file is written, even one without rows."""
    return shard, pa.RecordBatch.from_pylist([], schema=_KEYED)


@dataclasses.dataclass(frozen=True)
class _Fields:
    """The fields that are written; makes batches of `schemas.TOKENS` of elements, as `Gather` wants it."""

    ids: str
    doc_id: str | None

    @property
    def _names(self) -> tuple[str, ...]:
        return self.doc_id or "doc_id", self.ids, "n_tokens", "n_oov"

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._require(batch.schema.names)
        doc_ids, _, *counts = (batch.column(name) if name in batch.schema.names else None for name in self._names)
        if self.doc_id is None and doc_ids is not None:
            doc_ids = _own_ids(doc_ids)
        return self._joined(batch.num_rows, doc_ids, elements_of.batch_column(batch, self.ids, IDS), *counts)

    def of_rows(self, elements: Sequence[Any]) -> pa.RecordBatch:
        ids = column_of("WriteShards", elements, self.ids, IDS)
        rows = [elements_of.reader_of(type(each), self.ids)(each) for each in elements]
        for row in rows:
            self._require(row)
        name, _, *counts = self._names
        if self.doc_id is not None:
            doc_ids = [_doc_id(name, row[name]) for row in rows]
        else:
            doc_ids = [each if isinstance(each := row.get(name), str) and _is_text(each) else "" for row in rows]
        known = (pa.array([row.get(each) for row in rows]) for each in counts)
        return self._joined(len(rows), pa.array(doc_ids, pa.string()), ids, *known)

    def _require(self, found: Collection[str]) -> None:
        """Raises ValueError if the field with the ids, or the one with the document's id, is not there."""
        for name in self._names[self.doc_id is None : 2]:
            if name not in found:
                raise ValueError(f"WriteShards: the rows have no field {name!r}, only {', '.join(map(repr, found))}")

    def _joined(self, n: int, doc_ids: Any, ids: pa.Array, n_tokens: Any, n_oov: Any) -> pa.RecordBatch:
        if isinstance(doc_ids, pa.DictionaryArray):
            doc_ids = doc_ids.dictionary_decode()
        if doc_ids is not None and pa.types.is_integer(doc_ids.type):
            doc_ids = doc_ids.cast(pa.string())
        for name, column in zip(self._names, (doc_ids, ids), strict=False):
            if column is not None and column.null_count:
                raise ValueError(f"WriteShards: the field {name!r} is null in {column.null_count} of {n} rows")
        if ids.values.null_count:
            raise ValueError(f"WriteShards: an id in the field {self.ids!r} is null")
        doc_ids = pa.array([""] * n, pa.string()) if doc_ids is None else _text(doc_ids, self._names[0])
        n_tokens, n_oov = ((pa.nulls(n) if each is None else each).cast(pa.int32()) for each in (n_tokens, n_oov))
        n_tokens = pc.coalesce(n_tokens, pa.array(np.diff(ids.offsets.to_numpy()), pa.int32()))
        columns = [doc_ids, ids, n_tokens, n_oov.fill_null(_NOT_COUNTED)]
        return pa.record_batch(columns, schema=schemas.TOKENS)


def _dealt(rows: pa.RecordBatch, n_shards: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields rows by shard, each with the hash that orders it there."""
    offsets, values = rows.column("input_ids").offsets.to_numpy(), rows.column("input_ids").values.to_numpy()
    starts, data = children(rows.column("doc_id"))
    keys = hash_rows(values, offsets) ^ (hash_rows(data.to_numpy(), starts) << np.uint64(1))
    keyed = pa.record_batch([*rows.columns, pa.array(keys)], schema=_KEYED)
    shards = keys % np.uint64(n_shards)
    for shard in np.unique(shards).tolist():
        yield int(shard), keyed.take(pa.array(np.flatnonzero(shards == shard)))


def _text(column: pa.Array, name: str | None) -> pa.Array:
    """Returns a column of strings as `pa.string()`; raises if it holds anything else, or is not UTF-8."""
    if column.type not in (*_STRINGS, pa.null()):
        raise TypeError(f"WriteShards: the field {name!r} must be a string or an integer, got {column.type}")
    column.validate(full=True)
    return column.cast(pa.string())


class _WriteFn(beam.DoFn):
    def __init__(self, output: OutputConfig, n_shards: int, padding_side: Any, given: GivenTokenizer) -> None:
        self._output = output
        self._n_shards = int(n_shards)
        self._padding_side = padding_side
        self._given = given
        self._rows = Metrics.counter(WriteShards, "rows-written")

    def process(self, element: tuple[int, Iterable[pa.RecordBatch]], given: str | None) -> Iterator[tuple[str, Row]]:
        """Writes a shard; yields its temporary path and, under its final one, what it holds."""
        shard, batches = element
        tokenizer = self._given.tokenizer(given)
        rows = pa.Table.from_batches(list(batches), schema=_KEYED)
        rows = rows.sort_by([("key", "ascending"), ("doc_id", "ascending")]).drop_columns("key").combine_chunks()
        info = dataclasses.replace(tokenizer_info(tokenizer), padding_side=self._padding_side)
        name = filenames.shard_name(shard, self._n_shards, formats.suffix(self._output))
        path = storage.join(self._output.path, name)
        # Two attempts may run at once; the runner passes on what one of them yields.
        file = StagedFile(name, f"{path}.{uuid.uuid4().hex}.tmp")
        try:
            writer = formats.open_writer(cast(BinaryIO, file), self._output, info)
            for batch in rows.to_batches():
                writer.write(self._counted(batch, tokenizer.unk_token_id, tokenizer.n_ids))
            writer.close()
            record = file.finish(rows=writer.n_rows, tokens=writer.n_tokens)
        except BaseException:
            file.discard()
            raise
        self._rows.inc(writer.n_rows)
        written = {"rows": writer.n_rows, "tokens": writer.n_tokens, "n_bytes": record.n_bytes, "sha256": record.sha256}
        yield file.path, Row(file=path, **written)

    def _counted(self, batch: pa.RecordBatch, unk_id: int | None, n_ids: int) -> pa.RecordBatch:
        """Returns rows with `n_oov` counted where it was not, after checking that padding was declared."""
        ids, offsets = batch.column("input_ids").values.to_numpy(), batch.column("input_ids").offsets.to_numpy()
        n_tokens, lengths = batch.column("n_tokens").to_numpy(), np.diff(offsets)
        if ids.size and not 0 <= ids.min() <= ids.max() < n_ids:
            wrong = ids[np.argmax((ids < 0) | (ids >= n_ids))]
            raise ValueError(f"WriteShards: id {wrong} is not in the vocabulary of the tokenizer, which has {n_ids}")
        if (n_tokens > lengths).any() or (n_tokens < 0).any():
            row = int(np.argmax((n_tokens > lengths) | (n_tokens < 0)))
            raise ValueError(f"WriteShards: a row has {lengths[row]} ids, but its n_tokens is {n_tokens[row]}")
        if self._padding_side is None and (n_tokens != lengths).any():
            row = int(np.argmax(n_tokens != lengths))
            raise ValueError(
                f"WriteShards: a row has {lengths[row]} ids and {n_tokens[row]} tokens: it is padded; say padding_side"
            )
        n_oov = batch.column("n_oov").to_numpy()
        if (n_oov == _NOT_COUNTED).any():
            n_before = np.concatenate(([0], np.cumsum(ids == (-1 if unk_id is None else unk_id))))
            n_oov = np.where(n_oov == _NOT_COUNTED, n_before[offsets[1:]] - n_before[offsets[:-1]], n_oov)
        columns = [
            *(batch.column(name) for name in ("doc_id", "input_ids", "n_tokens")),
            pa.array(n_oov.astype(np.int32)),
        ]
        return pa.record_batch(columns, schema=schemas.TOKENS)
