# SPDX-License-Identifier: Apache-2.0
"""The ledger: one entry per committed split, and the commit that makes an entry true.

A split is written under `_tmp/`, in a directory that only this attempt uses; every file is closed and on disk before it
gets its final name, and the ledger entry comes last. So an entry exists only where everything it names does, and a
second attempt, or two at once, do no harm: they write the same bytes under the same names.
"""

import contextlib
import hashlib
import io
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Protocol, Self

import pyarrow.compute as pc

from pipeline import storage
from pipeline.accounts import PieceCounts
from pipeline.splits import Piece, Split
from pipeline.statistics import Statistics

FORMAT_VERSION = 2
"""Version of the ledger's files."""

INPUT_COUNTS = tuple(name for name in PieceCounts.__slots__ if name != "sha256")
"""What is counted for each file of a split, and for the split as a whole."""

LEDGER = "_ledger"
TEMPORARY = "_tmp"
REJECTED = "rejected"


class BooksError(ValueError):
    """The books do not balance: two counts that must be equal are not."""


def shard_name(index: int, n_splits: int, suffix: str) -> str:
    """Returns the name of a split's shard in the output folder, for example "tokens-00000-of-00012.parquet"."""
    return f"tokens-{_numbered(index, n_splits)}{suffix}"


def rejects_name(index: int, n_splits: int) -> str:
    """Returns the name of a split's rejects, for example "rejected/rejects-00003-of-00012.parquet"."""
    return f"{REJECTED}/rejects-{_numbered(index, n_splits)}.parquet"


def entry_name(split_id: str) -> str:
    """Returns the name of a split's ledger entry."""
    return f"{LEDGER}/{split_id}.json"


def statistics_name(split_id: str) -> str:
    """Returns the name of a split's statistics."""
    return f"{LEDGER}/{split_id}.arrow"


def _numbered(index: int, n_splits: int) -> str:
    width = max(5, len(str(n_splits)))
    return f"{index:0{width}d}-of-{n_splits:0{width}d}"


@dataclass(frozen=True)
class FileRecord:
    """A file of the output: what it must be for the entry to be true."""

    file: str
    """Its name relative to the output folder, with `/`."""
    n_bytes: int
    sha256: str
    rows: int | None = None
    """Rows of a shard or of rejects; None for other files."""
    tokens: int | None = None
    """Tokens of a shard, padding not included; None for other files."""


@dataclass(frozen=True)
class LedgerEntry:
    """What one split read, made of it and wrote. All counts are exact."""

    split_id: str
    index: int
    tokenizer: str
    """Digest of the tokenizer."""
    pieces: tuple[Piece, ...]
    n_records: int
    n_documents: int
    rejected: Mapping[str, int]
    """Records by the reason they were rejected for."""
    filtered: Mapping[str, int]
    """Documents by the rule that left them out."""
    n_bytes: int
    """Bytes read, as `readers.ReadBatch` counts them: the four that follow and nothing else."""
    n_document_bytes: int
    n_rejected_bytes: int
    n_filtered_bytes: int
    n_skipped_bytes: int
    n_chars: int
    n_words: int
    n_tokens: int
    n_oov_tokens: int
    inputs: tuple[PieceCounts, ...]
    """What was read of each piece, in the order of `pieces`; the counts above are their sums."""
    shard: FileRecord
    """The rows in the first format."""
    rejects: FileRecord | None
    statistics: FileRecord
    companions: tuple[FileRecord, ...] = ()
    """What belongs to the shard beside its first file: its index, and the same rows in other formats."""
    packing: Mapping[str, int] | None = None
    """`packing.COUNTS` where rows are packed sequences; None where they are documents."""
    runs: Mapping[str, Any] | None = None
    """Where the job shuffles, what `shuffling.books.SplitRuns` says of the runs, which are then the shard's file."""

    def files(self) -> Iterator[FileRecord]:
        """Yields the files this entry names."""
        yield self.shard
        yield from self.companions
        if self.rejects is not None:
            yield self.rejects
        yield self.statistics

    def to_json(self) -> bytes:
        """Returns this as JSON; the same bytes for equal entries."""
        inputs = [counts.to_record() for counts in self.inputs]
        return to_json({"format_version": FORMAT_VERSION, **asdict(self), "inputs": inputs})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Returns the entry that `to_json` made `data` of.

        Raises:
          ValueError: if `data` is something else.
        """
        try:
            fields = json.loads(data)
            version = fields.pop("format_version")
            if version != FORMAT_VERSION:
                raise ValueError(f"ledger entry of format {version!r}, this TokenMill reads {FORMAT_VERSION}")
            fields["pieces"] = tuple(Piece(**piece) for piece in fields["pieces"])
            fields["inputs"] = tuple(PieceCounts(**counts) for counts in fields["inputs"])
            for name in ("shard", "rejects", "statistics"):
                fields[name] = FileRecord(**fields[name]) if fields[name] is not None else None
            fields["companions"] = tuple(FileRecord(**file) for file in fields["companions"])
            return cls(**fields)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a ledger entry: {error!r}") from error


def to_json(value: Any) -> bytes:
    """Returns `value` as the JSON that all of TokenMill's files are in: UTF-8, sorted keys, one space per level."""
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # What UTF-8 cannot hold are lone surrogates, from file names that are not UTF-8; written as JSON escapes.
    return text.encode("utf-8", "backslashreplace")


class StagedFile(io.RawIOBase):
    """A file on its way to a final name; hashes what is written to it."""

    def __init__(self, name: str, path: str) -> None:
        """Creates the file.

        Args:
          name: its final name, relative to the output folder.
          path: where it is until then.
        """
        super().__init__()
        self.name = name
        self.path = path
        self._handle: BinaryIO = storage.create(path)
        self._hash = hashlib.sha256()
        self._n_bytes = 0
        self._is_discarded = False

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns how many bytes have been written."""
        return self._n_bytes

    def write(self, data: Any, /) -> int:
        """Appends `data`, any buffer of bytes, and returns its length."""
        view = memoryview(data)
        if not self._is_discarded:
            self._handle.write(view)
            self._hash.update(view)
            self._n_bytes += view.nbytes
        return view.nbytes

    def finish(self, rows: int | None = None, tokens: int | None = None) -> FileRecord:
        """Brings the file to disk, closes it and returns its record, under its final name."""
        storage.finish(self._handle)
        self.close()
        return FileRecord(self.name, self._n_bytes, self._hash.hexdigest(), rows, tokens)

    def discard(self) -> None:
        """Removes the file, finished or not.

        A file that is not finished takes what is written from now on and forgets it: Arrow's writers, when they are
        left in the middle, write their end as late as they are collected.
        """
        self._is_discarded = True
        with contextlib.suppress(OSError):  # what could not be written is not wanted any more
            self._handle.close()
        storage.delete(self.path)


class Staging:
    """The files of one attempt at a split. As a context manager, removes what an error or a commit leaves behind."""

    def __init__(self, output: str, split_id: str) -> None:
        """Starts an attempt; nothing is created yet.

        Args:
          output: the output folder.
          split_id: of the split.
        """
        self._output = output
        # Random, so that no two attempts meet, on whatever machines; it is gone once the attempt is over.
        self._directory = storage.join(output, TEMPORARY, f"{split_id}-{uuid.uuid4().hex}")
        self._files: list[StagedFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.discard()
        storage.delete_tree(self._directory)

    def create(self, name: str) -> StagedFile:
        """Starts the file that will be `name` in the output folder."""
        file = StagedFile(name, storage.join(self._directory, name.replace("/", "-")))
        self._files.append(file)
        return file

    def publish(self) -> None:
        """Gives the files their final names, in the order they were created; all must be finished."""
        for file in self._files:
            destination = storage.join(self._output, file.name)
            storage.make_directory(os.path.dirname(destination))
            storage.rename(file.path, destination)
        self._files = []

    def commit(self, entry: LedgerEntry) -> None:
        """Publishes the files of a split, then writes its entry.

        Raises:
          BooksError: if the entry does not balance; nothing has got a final name then.
        """
        check_balance(entry)
        self.publish()
        storage.write_atomic(storage.join(self._output, entry_name(entry.split_id)), entry.to_json())


def load_committed(
    output: str,
    split: Split,
    *,
    n_splits: int,
    suffix: str,
    tokenizer: str,
    companions: Sequence[str] = (),
    runs: str | None = None,
    are_merged: bool = False,
) -> LedgerEntry | None:
    """Returns the entry of a split that needs no work: committed, of the same input, and all its files as recorded.

    Reads the split's files, to compute their checksums again.

    Args:
      output: the output folder.
      split: as planned now.
      n_splits: of the plan; decides the names of shards.
      suffix: of shards.
      tokenizer: digest of the tokenizer.
      companions: suffixes of the other files of a shard.
      runs: the name of the file with the sorted runs, where the job shuffles: the split has no other shard.
      are_merged: whether all shards are merged already, so that runs may be gone.
    """
    entry = read_entry(output, split.id)
    names = [shard_name(split.index, n_splits, each) for each in (suffix, *companions)] if runs is None else [runs]
    if (
        entry is None
        or (entry.split_id, entry.index, entry.pieces, entry.tokenizer)
        != (split.id, split.index, split.pieces, tokenizer)
        or [file.file for file in (entry.shard, *entry.companions)] != names
        or (entry.rejects is not None and entry.rejects.file != rejects_name(split.index, n_splits))
        or any(problem(output, file) for file in entry.files() if not (are_merged and file is entry.shard))
    ):
        return None
    return entry


def read_entry(output: str, split_id: str) -> LedgerEntry | None:
    """Returns the ledger entry of a split as it is on disk; None if there is none, or it cannot be read as one."""
    path = storage.join(output, entry_name(split_id))
    if not storage.exists(path):
        return None
    with storage.open_read(path) as handle:
        try:
            return LedgerEntry.from_json(handle.read())
        except ValueError:
            return None


def problem(output: str, record: FileRecord) -> str | None:
    """Returns what is wrong with a file on disk, or None if it has the recorded size and checksum."""
    path = storage.join(output, record.file)
    if not storage.exists(path):
        return f"{record.file}: missing"
    found = describe(output, record.file)
    if found.n_bytes != record.n_bytes:
        return f"{record.file}: {found.n_bytes} bytes, recorded {record.n_bytes}"
    if found.sha256 != record.sha256:
        return f"{record.file}: sha256 {found.sha256}, recorded {record.sha256}"
    return None


def describe(output: str, name: str) -> FileRecord:
    """Returns size and checksum of a file in the output folder, read in bounded memory.

    Raises:
      OSError: if it cannot be read.
    """
    digest = hashlib.sha256()
    n_bytes = 0
    with storage.open_read(storage.join(output, name)) as handle:
        while chunk := handle.read(1 << 20):
            digest.update(chunk)
            n_bytes += len(chunk)
    return FileRecord(name, n_bytes, digest.hexdigest())


def imbalances(entry: LedgerEntry, statistics: Statistics | None = None) -> list[str]:
    """Returns every identity that does not hold, each naming the split and the two numbers.

    Args:
      entry: to check in itself.
      statistics: of the same split, to check the entry against.
    """
    n_rejected, n_filtered = sum(entry.rejected.values()), sum(entry.filtered.values())
    kept_bytes = entry.n_document_bytes + entry.n_rejected_bytes + entry.n_filtered_bytes + entry.n_skipped_bytes
    equations = [
        (
            "records read",
            entry.n_records,
            "documents + rejected + filtered",
            entry.n_documents + n_rejected + n_filtered,
        ),
        ("bytes read", entry.n_bytes, "bytes of documents + rejected + filtered + skipped", kept_bytes),
        *shard_equations(entry),
        *_run_equations(entry),
        ("rows of rejects", entry.rejects.rows if entry.rejects else 0, "rejected", n_rejected),
    ]
    if statistics is not None:
        listed = (pc.sum(statistics.oov_words().column("count")).as_py() or 0) + statistics.n_oov_words_dropped
        equations += [
            ("documents counted", statistics.n_documents, "documents", entry.n_documents),
            ("characters counted", statistics.n_chars, "characters", entry.n_chars),
            ("words counted", statistics.n_words, "words", entry.n_words),
            ("tokens counted", statistics.n_tokens, "tokens", entry.n_tokens),
            ("unknown tokens counted", statistics.n_oov_tokens, "unknown tokens", entry.n_oov_tokens),
            ("sum of the tokens' counts", int(statistics.token_counts.sum()), "tokens", entry.n_tokens),
            ("sum of the lengths' counts", int(statistics.length_counts.sum()), "documents", entry.n_documents),
            ("sum of the unknown words' counts", listed, "unknown words", statistics.n_oov_words),
        ]
        if statistics.unk_id >= 0:
            unknown = int(statistics.token_counts[statistics.unk_id])
            equations.append(("count of the unknown token", unknown, "unknown tokens", entry.n_oov_tokens))
    lines = [
        f"split {entry.split_id}: {left} {left_number} != {right} {right_number}"
        for left, left_number, right, right_number in equations
        if left_number != right_number
    ]
    return [*lines, *_imbalances_of_inputs(entry)]


def _imbalances_of_inputs(entry: LedgerEntry) -> list[str]:
    """Returns what does not hold for a file of the split, and between the split and the sums of its files."""
    where = f"split {entry.split_id}"
    if len(entry.inputs) != len(entry.pieces):
        return [f"{where}: {len(entry.inputs)} inputs are counted, of {len(entry.pieces)} pieces"]
    lines = [
        f"{where}, {piece.name!r}: {problem}"
        for piece, counts in zip(entry.pieces, entry.inputs, strict=True)
        for problem in counts.imbalances()
    ]
    total = sum(entry.inputs, PieceCounts())
    for name in INPUT_COUNTS:
        ours, theirs = getattr(entry, name), getattr(total, name) or type(getattr(entry, name))()
        if ours != theirs:
            lines.append(f"{where}: {name} {ours} != sum over its files {theirs}")
    return lines


Equations = list[tuple[str, int | None, str, int]]
"""What must be equal: a name and a number, and another name and number."""


class Written(Protocol):
    """An entry of a shard: what is in it, and in which files."""

    @property
    def shard(self) -> FileRecord:
        """The rows in the first format."""

    @property
    def companions(self) -> tuple[FileRecord, ...]:
        """What belongs to the shard beside its first file."""

    @property
    def packing(self) -> Mapping[str, int] | None:
        """`packing.COUNTS`, or None."""

    @property
    def n_documents(self) -> int:
        """Documents, packed or not."""

    @property
    def n_tokens(self) -> int:
        """Tokens of the documents."""


def shard_equations(entry: Written) -> Equations:
    """Returns what must hold between the documents of a shard and its files."""
    packing = entry.packing
    rows, n_rows = ("documents", entry.n_documents) if packing is None else ("sequences", packing["n_sequences"])
    tokens, n_tokens = "tokens", entry.n_tokens
    equations: Equations = []
    if packing is not None:
        tokens, n_tokens = "tokens + separators", n_tokens + packing["n_separators"]
        equations += [
            ("documents packed", packing["n_documents"], "documents", entry.n_documents),
            ("tokens packed", packing["n_tokens"], "tokens", entry.n_tokens),
        ]
    for file in (entry.shard, *entry.companions):
        if file.rows is not None or file is entry.shard:
            which = "the shard" if file is entry.shard else file.file
            equations.append((f"rows of {which}", file.rows, rows, n_rows))
            equations.append((f"tokens of {which}", file.tokens, tokens, n_tokens))
    return equations


def _run_equations(entry: LedgerEntry) -> Equations:
    if entry.runs is None:
        return []
    sums = entry.runs["sums"]
    return [
        ("documents sorted", sums["n_documents"], "documents", entry.n_documents),
        ("tokens sorted", sums["n_tokens"], "tokens", entry.n_tokens),
        ("unknown tokens sorted", sums["n_oov_tokens"], "unknown tokens", entry.n_oov_tokens),
    ]


def check_balance(entry: LedgerEntry, statistics: Statistics | None = None) -> None:
    """Raises BooksError naming every identity of `imbalances` that does not hold."""
    if wrong := imbalances(entry, statistics):
        raise BooksError("\n".join(wrong))
