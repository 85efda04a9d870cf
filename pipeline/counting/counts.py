# SPDX-License-Identifier: Apache-2.0
"""The counts artifact, a folder of word counts: written partition by partition, and read back. No Beam here.

    counts/counts-00003-of-00016.parquet   word, count, a column for each kind of label; by labels, then words
    counts/alphabet.parquet                every character of all words, with how often it occurs
    counts/inputs.parquet                  the input files, if they are more than 10,000
    counts/counts.json                     what was counted, totals, what was pruned, checksums

Rows with the same labels are a group: one source, one language, or, without labels, the whole corpus.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, TypeAdapter

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.books import json_files, ledger
from tokenmill.pipeline.books.counts import Counts, Groups
from tokenmill.pipeline.books.json_files import AnyJson, Count
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.lists import Counted, File, ListedRecords
from tokenmill.pipeline.columns import open_parquet, stretches
from tokenmill.pipeline.counting.merging import merge_streams
from tokenmill.pipeline.counting.words import deciding
from tokenmill.pipeline.output.staging import StagedFile, Staging
from tokenmill.tokenizer import count_characters

FORMAT_VERSION = 2
"""The version of the format of a counts artifact."""

REPORT_NAME = f"{filenames.COUNTS}/counts.json"
ALPHABET_NAME = f"{filenames.COUNTS}/alphabet.parquet"

ROW_GROUP_ROWS = 1 << 18
ROW_GROUP_BYTES = 32 << 20
"""The most bytes of a row group, unless a single word is larger; counted from its first row, so that files do not
depend on the blocks in which rows arrive."""

N_CODE_POINTS = 0x110000

Group = tuple[str, ...]
"""The labels of a group: a value for each kind of label, such as `("en",)`; `()` without labels."""

ALPHABET = pa.schema(
    [
        pa.field("character", pa.string(), nullable=False),
        pa.field("code_point", pa.int32(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""The characters of all words, ordered by code point; those of pruned words are counted, too."""


def artifact_schema(labels: Sequence[str]) -> pa.Schema:
    """Returns the schema of the Parquet files of an artifact with these kinds of labels."""
    columns = [pa.field(label, pa.string(), nullable=False) for label in labels]
    words = [pa.field("word", pa.string(), nullable=False), pa.field("count", pa.int64(), nullable=False)]
    return pa.schema([*columns, *words])


@dataclass(frozen=True)
class Pruning:
    """What was left out: the words that occur at most `bound` times in their group."""

    bound: Count = 0
    n_words: Count = 0
    """Distinct words left out, each counted once per group."""
    n_occurrences: Count = 0
    """The sum of their counts."""

    def __add__(self, other: "Pruning") -> "Pruning":
        return Pruning(
            max(self.bound, other.bound), self.n_words + other.n_words, self.n_occurrences + other.n_occurrences
        )


_GROUP = "words:"


def group_name(group: Group) -> str:
    """Returns the name of the numbers of a group in `books.counts.Counts`."""
    return f"{_GROUP}{json.dumps(group)}"


def groups_of(counts: Groups) -> dict[Group, Mapping[str, int]]:
    """Returns the numbers of each group, by its labels and in their order."""
    names = (name for name in counts if name.startswith(_GROUP))
    return dict(sorted((tuple(json.loads(name.removeprefix(_GROUP))), counts[name]) for name in names))


def partition_name(partition: int, n_partitions: int) -> str:
    """Returns the name of a partition's file."""
    return f"{filenames.COUNTS}/counts-{partition:05d}-of-{n_partitions:05d}.parquet"


class PartitionWriter:
    """Writes one partition: groups in order, the words of each in order, pruned; counts characters before pruning."""

    def __init__(self, file: StagedFile, labels: Sequence[str], bound: int = 0) -> None:
        """Starts a file; words that occur at most `bound` times will be left out."""
        self._file, self._bound = file, bound
        self._schema = artifact_schema(labels)
        self._writer = pq.ParquetWriter(
            file, self._schema, compression="zstd", store_schema=False, use_dictionary=list(labels)
        )
        self._pending: list[pa.Table] = []
        self._n_pending = self._n_pending_bytes = 0
        self._n_characters = 0.0
        self.counts = Counts()
        """Of each group `n_words`, the sum of the counts that are kept, and `n_distinct_words`, the rows."""
        self.pruning = Pruning(bound)
        self.characters = np.zeros(N_CODE_POINTS, np.int64)

    def add_group(self, group: Group, tables: Iterable[pa.Table]) -> None:
        """Writes all words of a group: tables of `schemas.WORD_COUNTS`, ordered by word across all tables.

        Raises:
          ValueError: if the characters of all words, each as often as it occurs, come near to 63 bits.
        """
        n_words = n_distinct = 0
        for table in tables:
            self._check_characters(group, table)
            count_characters(table, self.characters)
            if self._bound:
                is_kept = pc.greater(table["count"], self._bound)
                kept = table.filter(is_kept)
                n_dropped = _sum(table) - _sum(kept)
                self.pruning += Pruning(self._bound, table.num_rows - kept.num_rows, n_dropped)
                table = kept
            n_words += _sum(table)
            n_distinct += table.num_rows
            self._add(group, table)
        self._flush(group)
        if n_distinct:
            self.counts.add({"n_words": n_words, "n_distinct_words": n_distinct}, group_name(group))

    def _check_characters(self, group: Group, table: pa.Table) -> None:
        lengths = pc.binary_length(table["word"]).to_numpy().astype(np.float64)
        self._n_characters += float((lengths * table["count"].to_numpy()).sum())
        if self._n_characters > (1 << 62):
            where = f" of {', '.join(group)}" if group else ""
            raise ValueError(f"the counts{where} add up to {self._n_characters:.3g} bytes of text, too close to 2**63")

    def finish(self) -> FileRecord:
        """Ends the file."""
        self._writer.close()
        return self._file.finish(
            rows=sum(group["n_distinct_words"] for group in groups_of(self.counts.groups).values())
        )

    def _add(self, group: Group, table: pa.Table) -> None:
        self._pending.append(table)
        self._n_pending += table.num_rows
        self._n_pending_bytes += table.nbytes
        if self._n_pending >= ROW_GROUP_ROWS or self._n_pending_bytes >= ROW_GROUP_BYTES:
            self._flush(group, keep_rest=True)

    def _flush(self, group: Group, *, keep_rest: bool = False) -> None:
        table = pa.concat_tables([schemas.WORD_COUNTS.empty_table(), *self._pending]).combine_chunks()
        lengths = pc.binary_length(table["word"]).to_numpy().astype(np.int64)
        n_written = 0
        for start, stop in stretches(lengths + 16, ROW_GROUP_BYTES, ROW_GROUP_ROWS):
            if not keep_rest or stop < table.num_rows:
                self._write(group, table.slice(start, stop - start))
                n_written = stop
        rest = table.slice(n_written)
        self._pending = [rest] if rest.num_rows else []
        self._n_pending, self._n_pending_bytes = rest.num_rows, rest.nbytes

    def _write(self, group: Group, table: pa.Table) -> None:
        words = table["word"].combine_chunks().cast(pa.large_string()).cast(pa.string())
        labels = [pa.repeat(pa.scalar(label, pa.string()), table.num_rows) for label in group]
        self._writer.write_table(
            pa.table([*labels, words, table["count"].combine_chunks()], schema=self._schema),
            row_group_size=table.num_rows,
        )


def write_alphabet(characters: npt.NDArray[np.int64], staging: Staging, name: str = ALPHABET_NAME) -> FileRecord:
    """Stages how often each code point occurs, int64[0x110000], as `ALPHABET`."""
    code_points = np.flatnonzero(characters)
    table = pa.table(
        [
            pa.array([chr(code_point) for code_point in code_points.tolist()], pa.string()),
            pa.array(code_points.astype(np.int32)),
            pa.array(characters[code_points]),
        ],
        schema=ALPHABET,
    )
    staged = staging.create(name)
    pq.write_table(table, staged, compression="zstd", store_schema=False)
    return staged.finish(rows=table.num_rows)


def read_alphabet(output: str, name: str) -> npt.NDArray[np.int64]:
    """Returns what `write_alphabet` has written."""
    with storage.open_read(storage.join(output, name)) as handle:
        table = open_parquet(handle).read(use_threads=False)
    characters = np.zeros(N_CODE_POINTS, np.int64)
    characters[table["code_point"].to_numpy()] = table["count"].to_numpy()
    return characters


def finish_artifact(
    output: str,
    *,
    labels: Sequence[str],
    words: Mapping[str, Any],
    totals: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
    pruning: Pruning,
    partitions: Sequence[FileRecord],
    characters: npt.NDArray[np.int64],
    **more: Any,
) -> None:
    """Writes `counts/alphabet.parquet`, and `counts/counts.json`, which makes the artifact complete."""
    with Staging(output, "alphabet") as staging:
        alphabet = write_alphabet(characters, staging)
        staging.publish()
    report = {
        "format_version": FORMAT_VERSION,
        "digest": digest_of(words, partitions),
        "labels": list(labels),
        "words": dict(words),
        "words_digest": words_digest(words),
        "totals": dict(totals),
        "groups": list(groups),
        "pruned": asdict(pruning),
        "partitions": [asdict(file) for file in partitions],
        "alphabet": asdict(alphabet),
        **more,
    }
    storage.write_atomic(storage.join(output, REPORT_NAME), ledger.to_json(report))


def words_digest(words: Mapping[str, Any]) -> str:
    """Returns the SHA-256, in hex, of a description of words (`words.describe_words`)."""
    return hashlib.sha256(ledger.to_json(words)).hexdigest()


def digest_of(words: Mapping[str, Any], partitions: Iterable[FileRecord]) -> str:
    """Returns the SHA-256, in hex, of what a word is and of all files of counts."""
    files = [file.sha256 for file in partitions]
    return hashlib.sha256(ledger.to_json([words_digest(words), files])).hexdigest()


def _sum(table: pa.Table) -> int:
    return pc.sum(table["count"]).as_py() or 0


@dataclass(frozen=True)
class CountsArtifact:
    """A finished counts artifact on disk; made by `open_counts`."""

    output: str
    """The folder that `counts/` is in."""
    report: Mapping[str, Any]
    """counts.json."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The kinds of labels, which are columns besides word and count."""
        return tuple(self.report["labels"])

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of what a word is and of all files of counts."""
        return str(self.report["digest"])

    @property
    def words(self) -> Mapping[str, Any]:
        """What a word is, see `words.describe_words`."""
        return deciding(self.report["words"])

    @property
    def groups(self) -> list[Group]:
        """The labels of each group, in order."""
        return [tuple(group["labels"]) for group in self.report["groups"]]

    @property
    def files(self) -> list[FileRecord]:
        """The records of its Parquet files of counts, in the order of partitions."""
        return [FileRecord(**record) for record in self.report["partitions"]]

    def check_files(self) -> None:
        """Reads every file and compares its checksum.

        Raises:
          ValueError: naming the files that are not as recorded.
        """
        files = [*self.files, FileRecord(**self.report["alphabet"])]
        if isinstance(listed := self.report.get("inputs"), Mapping):
            files.append(FileRecord(**listed))
        if problems := [problem for file in files if (problem := ledger.problem(self.output, file))]:
            raise ValueError(f"{self.output!r} holds counts that are damaged: {'; '.join(problems)}")

    def stream(self, partition: int, group: Group) -> Iterator[pa.Table]:
        """Yields the words of a group in one partition, ordered, as tables of `schemas.WORD_COUNTS`, a few MB each.

        Raises:
          ValueError: if a count is negative.
        """
        return (table for _, table in self.tables(partition, group))

    def tables(self, partition: int, only: Group | None = None) -> Iterator[tuple[Group, pa.Table]]:
        """Yields pairs of group and table of its words in a partition, for all groups or `only` one; see `stream`."""
        name = self.files[partition].file
        with storage.open_read(storage.join(self.output, name)) as handle:
            file = open_parquet(handle)
            for i in range(file.num_row_groups):
                group = _group_of(file.metadata.row_group(i), len(self.labels))
                if only is not None and group != only:
                    continue
                table = file.read_row_group(i, ["word", "count"], use_threads=False)
                lowest = pc.min(table["count"]).as_py()
                if lowest is not None and lowest < 0:
                    raise ValueError(f"{name}: counts must not be negative, got {lowest}")
                yield group, table.cast(schemas.WORD_COUNTS)

    def load(self, groups: Iterable[Group] | None = None) -> pa.Table:
        """Returns the sum of the counts of some groups, or of all: `schemas.WORD_COUNTS`, ordered, as trainers need it.

        Memory: twice that of the distinct words of these groups.

        Raises:
          OverflowError: if a sum does not fit in 63 bits.
        """
        chosen = self.groups if groups is None else list(groups)
        tables = [schemas.WORD_COUNTS.empty_table()]
        for partition in range(len(self.files)):
            tables += merge_streams([self.stream(partition, group) for group in chosen])
        return pa.concat_tables(tables).sort_by("word").combine_chunks()

    def labelled(self) -> Iterator[pa.Table]:
        """Yields all words of each group with its labels: `word`, `count`, and a column for each kind of label."""
        for group, table in (pair for partition in range(len(self.files)) for pair in self.tables(partition)):
            columns = {label: pa.repeat(value, table.num_rows) for label, value in zip(self.labels, group, strict=True)}
            yield pa.table({"word": table["word"], "count": table["count"], **columns})

    def alphabet(self) -> npt.NDArray[np.int64]:
        """Returns how often each code point occurs, int64[0x110000]."""
        return read_alphabet(self.output, ALPHABET_NAME)


def _group_of(row_group: pq.RowGroupMetaData, n_labels: int) -> Group:
    """Returns the labels of a row group, which has words of one group only, from the statistics of its columns."""
    return tuple(row_group.column(i).statistics.min for i in range(n_labels))


def _folder_of(path: str) -> str | None:
    """Returns the folder that `counts/` is in; None where there is none."""
    head, _, tail = path.rstrip("/").rpartition("/")
    candidates = [path, *([head or "."] if tail == filenames.COUNTS else [])]
    return next((each for each in candidates if storage.exists(storage.join(each, REPORT_NAME))), None)


def is_counts(path: str) -> bool:
    """Returns whether a path has finished word counts, which `open_counts` can open."""
    return not storage.has_glob(path) and _folder_of(path) is not None


def open_counts(path: str) -> CountsArtifact:
    """Opens a counts artifact.

    Args:
      path: the output folder of a job that counted, or the folder `counts` in it.

    Raises:
      ValueError: if there is no finished artifact of a format that this TokenMill reads.
    """
    output = _folder_of(path)
    if output is None:
        raise ValueError(f"{path!r} holds no finished word counts: there is no {REPORT_NAME} in it")
    artifact = CountsArtifact(output, read_report(output, _OF_ANY))
    for file in artifact.files:
        if not storage.exists(storage.join(output, file.file)):
            raise ValueError(f"{output!r} holds incomplete counts: {file.file} is missing")
    return artifact


class _Numbers(BaseModel):
    n_documents: Count
    n_text_bytes: Count
    n_chars: Count
    n_words: Count


class _Group(_Numbers):
    labels: list[str]


class _Totals(_Numbers):
    n_distinct_words: Count


class _TotalsOfJob(_Totals):
    n_records: Count
    n_bytes: Count
    rejected: dict[str, Count]
    filtered: dict[str, Count]


class _Report(BaseModel):
    """What readers of `counts.json` rely on; it has more keys."""

    digest: str
    labels: list[str]
    words: AnyJson
    totals: _Totals
    groups: list[_Group]
    pruned: Pruning
    partitions: list[FileRecord]
    alphabet: FileRecord
    inputs: list[Counted] | File = []


class _ReportOfJob(_Report):
    totals: _TotalsOfJob


_OF_ANY, _OF_JOB = TypeAdapter(_Report), TypeAdapter(_ReportOfJob)


def read_report(output: str, shape: TypeAdapter[Any] = _OF_JOB) -> dict[str, Any]:
    """Returns `counts.json` of a job's folder; sums of counts lack the numbers of what was read.

    Raises:
      ValueError: if it is of another format, or not as `finish_artifact` writes it; OSError: if it cannot be read.
    """
    report: dict[str, Any] = json_files.read(output, REPORT_NAME, shape, versions=[FORMAT_VERSION])
    try:
        deciding(report["words"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{REPORT_NAME} in {output!r}: words are not as TokenMill describes them: {error!r}"
        ) from error
    return report


def inputs_of(output: str, report: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Returns the records of input files in a report that `read_report` has read; sums of counts have none."""
    listed = report.get("inputs", ())
    return ListedRecords(output, listed, "counted") if isinstance(listed, Mapping) else listed
