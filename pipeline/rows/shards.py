# SPDX-License-Identifier: Apache-2.0
"""`WriteShards`: rows of ids to files."""

import dataclasses
import functools
import os
import re
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Literal, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import PCollection, Row
from apache_beam.typehints import Tuple
from apache_beam.typehints.row_type import RowTypeConstraint

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.columns import children
from tokenmill.pipeline.config.file import section
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.hashing import hash_rows
from tokenmill.pipeline.output.staging import StagedFile
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.rows import declared_types
from tokenmill.pipeline.rows.arguments import checked
from tokenmill.pipeline.rows.batching import Compute, RowTransform, Work
from tokenmill.pipeline.rows.elements import STRINGS, Column, Field
from tokenmill.pipeline.rows.errors import RowsError
from tokenmill.pipeline.rows.tokenize import IDS
from tokenmill.pipeline.rows.tokenizers import GivenTokenizer, TokenizerSource
from tokenmill.pipeline.tokenizing.pages import tokenizer_info
from tokenmill.pipeline.transforms.stages import call_once

_WRITTEN = RowTypeConstraint.from_fields(
    [("file", str), ("rows", int), ("tokens", int), ("n_bytes", int), ("sha256", str)]
)
_RENAMES = 16
"""So many files get their final names at a time."""

_folders: weakref.WeakKeyDictionary[beam.Pipeline, set[str]] = weakref.WeakKeyDictionary()
"""Where the steps of each pipeline write to: each of two in one folder would remove the shards of the other."""

_SHARD = re.compile(r"tokens-\d+-of-\d+\.")
_Dealt = Tuple[int, pa.RecordBatch]
_KEYED = pa.schema([*schemas.TOKENS, pa.field("key", pa.uint64(), nullable=False)])


class WriteShards(RowTransform):
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

    @checked
    def __init__(
        self,
        path: str | os.PathLike[str],
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
        if not isinstance(n_shards, int | np.integer) or n_shards < 1:
            raise ValueError(f"WriteShards: n_shards must be a number from 1, got {n_shards!r}")
        path = os.fspath(path) if isinstance(path, os.PathLike) else path
        keys = {"path": path, "format": format, "compression": compression}
        self._output = section(OutputConfig, "output", keys, "WriteShards")
        self._tokenizer = GivenTokenizer(tokenizer)
        self._n_shards, self._padding_side = int(n_shards), padding_side
        doc_id = Field("doc_id" if id_column is None else id_column, None, is_optional=id_column is None)
        fields = [Field(column, IDS), doc_id, Field("n_tokens", None, True), Field("n_oov", None, True)]
        work = Work(fields, functools.partial(_as_tokens, self._tokenizer, doc_id, padding_side))
        of_documents = {"id_column": id_column} if id_column else {}
        options = {"path": path, "format": format, **of_documents, "n_shards": n_shards}
        options |= {"padding_side": str(padding_side), **self._tokenizer.display_data()}
        super().__init__(work, self._tokenizer.side_input, **options)

    def _make(self, batches: PCollection[pa.RecordBatch], pcoll: PCollection[Any]) -> PCollection[Any]:
        _earlier_files(self._output, self._n_shards)
        folders, folder = _folders.setdefault(pcoll.pipeline, set()), storage.identity(self._output.path)
        if folder in folders:
            raise ValueError(
                f"WriteShards: another step of this pipeline writes to {self._output.path!r}; choose another folder, "
                "or join the rows by beam.Flatten"
            )
        folders.add(folder)
        declared_types.check_global(pcoll, "WriteShards")
        deal = beam.FlatMap(_dealt, self._n_shards).with_output_types(_Dealt)
        numbers = pcoll.pipeline | "Shards" >> beam.Create(list(range(self._n_shards))).with_output_types(int)
        empty = numbers | "Empty" >> beam.Map(_no_rows).with_output_types(_Dealt)
        fn = _WriteFn(self._output, self._n_shards, self._padding_side, self._tokenizer)
        write = beam.ParDo(fn, self._tokenizer.side_input)
        keyed = (batches | "Deal" >> deal, empty) | "All" >> beam.Flatten().with_output_types(_Dealt)
        written = keyed | "ByShard" >> beam.GroupByKey() | "Write" >> write
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
      OSError: if a file is neither under its temporary nor under its final name, or another is there, before anything
        is removed.
    """
    earlier = [storage.join(output.path, name) for name in _earlier_files(output, n_shards)]
    staged = [(path, row) for path, row in files if storage.exists(path)]
    left = {path for path, _ in staged}
    renamed = {row.file: row.sha256 for path, row in files if path not in left}
    if lost := [path for path, sha256 in renamed.items() if path not in earlier or storage.checksum(path) != sha256]:
        raise FileNotFoundError(f"WriteShards: {lost[0]!r} was removed or replaced meanwhile; run it again alone")
    for path in {*earlier} - {*renamed} - left:
        storage.delete(path)
    with ThreadPoolExecutor(_RENAMES) as pool:  # an object store copies each
        for _ in pool.map(lambda each: storage.rename(each[0], each[1].file), staged):
            pass
    return [row for _, row in sorted(files, key=lambda each: each[1].file)]


def _rows_of(rows: list[Any]) -> Iterator[Any]:
    for row in rows:
        FileSystems.report_sink_lineage(row.file)
        yield row


def _no_rows(shard: int) -> tuple[int, pa.RecordBatch]:
    """Returns an empty batch for a shard, so that every file is written, even one without rows."""
    return shard, pa.RecordBatch.from_pylist([], schema=_KEYED)


def _as_tokens(source: GivenTokenizer, doc_id: Field, padding_side: str | None, given: str | None) -> Compute:
    """Returns what makes `schemas.TOKENS` of ids, ids of documents, and numbers of tokens and of unknown ones."""
    unknown = source.tokenizer(given).unk_token_id

    def compute(ids: pa.Array, doc_ids: Column, *counts: Column) -> pa.RecordBatch:
        source.check_ids(given, ids)
        offsets, is_unknown = ids.offsets.to_numpy(), ids.values.to_numpy() == (-1 if unknown is None else unknown)
        n_before = np.concatenate(([0], np.cumsum(is_unknown)))
        known = np.diff(offsets), n_before[offsets[1:]] - n_before[offsets[:-1]]
        n_tokens, n_oov = (
            pc.coalesce(pa.array(each).cast(pa.int32()), pa.array(its, pa.int32()))
            for each, its in zip(counts, known, strict=True)
        )
        _check_lengths(n_tokens.to_numpy(), np.diff(offsets), padding_side)
        return pa.record_batch([_doc_ids(doc_ids, doc_id), ids, n_tokens, n_oov], schema=schemas.TOKENS)

    return compute


def _check_lengths(n_tokens: np.ndarray, lengths: np.ndarray, padding_side: str | None) -> None:
    """Raises RowsError for rows of other lengths than their numbers of tokens, unless they are said to be padded."""
    is_wrong, failed = (n_tokens > lengths) | (n_tokens < 0), dict[int, Exception]()
    for row in np.flatnonzero(is_wrong | ((n_tokens != lengths) & (padding_side is None))).tolist():
        said = f"but its n_tokens is {n_tokens[row]}"
        if not is_wrong[row]:
            said = f"and {n_tokens[row]} tokens: it is padded; say padding_side"
        failed[row] = ValueError(f"a row has {lengths[row]} ids{',' * int(is_wrong[row])} {said}")
    if failed:
        raise RowsError(failed)


def _doc_ids(column: Column, field: Field) -> pa.Array:
    """Returns ids of documents as strings, of which none is null.

    Raises:
      RowsError: for values that are no strings and no integers, unless nobody named the field: their ids are empty.
      TypeError, ValueError: the same of the column of a batch, or of text in it that is not UTF-8.
    """
    if isinstance(column, pa.Array):
        column = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
        if field.is_optional and column.type not in STRINGS:
            return pa.array([""] * len(column), pa.string())
        if column.type not in STRINGS and not pa.types.is_integer(column.type):
            raise TypeError(f"the field {field.name!r} must be a string or an integer, got {column.type}")
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            if not field.is_optional:
                raise
            return pa.array([""] * len(column), pa.string())
        return column.cast(pa.string()).fill_null("")
    names, failed = [], {}
    for i, value in enumerate(column):
        try:
            if not isinstance(value, str | int | np.integer) or isinstance(value, bool):
                raise TypeError(f"the field {field.name!r} must be a string or an integer, got {value!r:.80}")
            if field.is_optional and not isinstance(value, str):
                raise TypeError("an id that nobody named is used where it is a string")
            str(value).encode()
            names.append(str(value))
        except (TypeError, UnicodeError) as error:
            failed[i] = error.with_traceback(None)
            names.append("")
    if failed and not field.is_optional:
        raise RowsError(failed)
    return pa.array(names, pa.string())


def _dealt(rows: pa.RecordBatch, n_shards: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields rows by shard, each with the hash that orders it there."""
    offsets, values = rows.column("input_ids").offsets.to_numpy(), rows.column("input_ids").values.to_numpy()
    starts, data = children(rows.column("doc_id"))
    keys = hash_rows(values, offsets) ^ (hash_rows(data.to_numpy(), starts) << np.uint64(1))
    keyed = pa.record_batch([*rows.columns, pa.array(keys)], schema=_KEYED)
    shards = keys % np.uint64(n_shards)
    for shard in np.unique(shards).tolist():
        yield int(shard), keyed.take(pa.array(np.flatnonzero(shards == shard)))


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
        rows = pa.Table.from_batches(list(batches), schema=_KEYED)
        rows = rows.sort_by([("key", "ascending"), ("doc_id", "ascending")]).drop_columns("key").combine_chunks()
        info = dataclasses.replace(tokenizer_info(self._given.tokenizer(given)), padding_side=self._padding_side)
        name = filenames.shard_name(shard, self._n_shards, formats.suffix(self._output))
        path = storage.join(self._output.path, name)
        # Two attempts may run at once; the runner passes on what one of them yields.
        file = StagedFile(name, f"{path}.{uuid.uuid4().hex}.tmp")
        try:
            writer = formats.open_writer(cast(BinaryIO, file), self._output, info)
            for batch in rows.to_batches():
                writer.write(batch)
            writer.close()
            record = file.finish(rows=writer.n_rows, tokens=writer.n_tokens)
        except BaseException:
            file.discard()
            raise
        self._rows.inc(writer.n_rows)
        written = {"rows": writer.n_rows, "tokens": writer.n_tokens, "n_bytes": record.n_bytes, "sha256": record.sha256}
        yield file.path, Row(file=path, **written)
