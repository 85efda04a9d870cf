# SPDX-License-Identifier: Apache-2.0
"""Counting the words of a corpus: per split into a file, per hash partition into the counts artifact. No Beam here.

    split --count_split--> _counts/<id>.arrow  --merge_partition--> counts/counts-00003-of-00016.parquet
                           _counts/<id>.json                        counts/counts.json

What is counted are normalized pre-tokens, so counts depend on the input and the normalizer and on nothing else: not on
the vocabulary, not on how the input was cut into splits. Between the steps only a few hundred bytes travel, the
`SplitCounts` and the `PartitionCounts`; the counts themselves stay in files. Every step can be repeated or run twice
at once: it finds its result there, or writes the same bytes again.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import ledger, manifest, schemas, storage
from pipeline.config import InputConfig
from pipeline.ledger import BooksError, FileRecord
from pipeline.parquet_file import open_parquet
from pipeline.readers import ReadBatch, read_split
from pipeline.splits import Piece, Split
from tokenizer import Tokenizer, WordCounter

FORMAT_VERSION = 1
"""Version of the files written here."""

N_PARTITIONS = 16
"""Hash partitions of the counts artifact: fixed, because its files are the same whatever the number of workers."""

TOTALS_NAME = f"{manifest.COUNTS}/counts.json"

MAX_COUNTER_BYTES = 256 << 20
"""A split whose distinct words take more memory than this writes them out and goes on with an empty counter."""

_MERGE_BYTES = 64 << 20
_HASHED_BYTES = 32
_HASHED_AT_ONCE = 1 << 16

ARTIFACT = pa.schema([pa.field("word", pa.string(), nullable=False), pa.field("count", pa.int64(), nullable=False)])
"""What the counts artifact holds: `schemas.WORD_COUNTS` with words as text, ordered by word bytes."""

OnBatch = Callable[[int, int, int, int], None]
"""Hears of progress: bytes read, documents, rejected records and tokens of one batch."""


@dataclass(frozen=True)
class Totals:
    """What was read and counted. All numbers are exact; sums of totals are totals."""

    n_records: int = 0
    n_documents: int = 0
    rejected: Mapping[str, int] | None = None
    """Records by the reason they were rejected for."""
    n_bytes: int = 0
    """Bytes read: of documents, of rejected records and skipped ones."""
    n_document_bytes: int = 0
    n_rejected_bytes: int = 0
    n_skipped_bytes: int = 0
    n_text_bytes: int = 0
    """Bytes of the texts alone, as UTF-8."""
    n_chars: int = 0
    n_words: int = 0
    """Pre-tokens, all occurrences."""

    def __add__(self, other: "Totals") -> "Totals":
        ours, theirs = asdict(self), asdict(other)
        rejected = Counter(ours.pop("rejected") or {}) + Counter(theirs.pop("rejected") or {})
        sums = {name: ours[name] + theirs[name] for name in ours}
        return Totals(rejected=dict(sorted(rejected.items())), **sums)


@dataclass(frozen=True)
class SplitCounts:
    """What counting one split gave: the descriptor that crosses the runner and marks the split as done."""

    split_id: str
    counter: str
    """What the counts depend on beside the split: see `count_key`."""
    pieces: tuple[Piece, ...]
    totals: Totals
    file: FileRecord

    def to_json(self) -> str:
        """Returns this as JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Returns what `to_json` made `text` of; ValueError if it is something else."""
        fields = _load(text)
        pieces = tuple(Piece(**piece) for piece in fields.pop("pieces"))
        return cls(
            pieces=pieces, totals=Totals(**fields.pop("totals")), file=FileRecord(**fields.pop("file")), **fields
        )


@dataclass(frozen=True)
class PartitionCounts:
    """One file of the counts artifact."""

    partition: int
    n_words: int
    """Sum of its counts."""
    file: FileRecord

    def to_json(self) -> str:
        """Returns this as JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Returns what `to_json` made `text` of; ValueError if it is something else."""
        fields = _load(text)
        return cls(file=FileRecord(**fields.pop("file")), **fields)


def count_key(input_config: InputConfig, tokenizer_json: str) -> str:
    """Returns the digest of what decides a split's counts beside its bytes: how it is read, how it is normalized."""
    parts = json.loads(tokenizer_json)
    decides = {
        "format_version": FORMAT_VERSION,
        "input": input_config.model_dump(exclude={"paths", "split_bytes"}),
        "normalizer": parts.get("normalizer"),
        "pre_tokenizer": parts.get("pre_tokenizer"),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def count_split(
    split: Split,
    input_config: InputConfig,
    output: str,
    tokenizer: Tokenizer,
    key: str,
    n_partitions: int = N_PARTITIONS,
    on_batch: OnBatch | None = None,
) -> SplitCounts:
    """Counts the words of one split into `_counts/`, or returns what an earlier attempt has committed there.

    The file holds `schemas.WORD_COUNTS`, a record batch for each hash partition, in order of partitions; again as many
    each time the counter had to be emptied. A word is in one partition only.

    Args:
      split: read as `input_config` says.
      input_config: the `input` section.
      output: the output folder.
      tokenizer: its normalizer and pre-tokenizer decide what a word is; needs no vocabulary.
      key: `count_key` of the two.
      n_partitions: hash partitions.
      on_batch: called after each batch; what it raises stops the count.

    Raises:
      OSError: if a file of the split cannot be read.
      BooksError: if what was read is not what was counted.
    """
    if committed := _load_committed(output, split, key):
        return committed
    name = f"{manifest.COUNTING}/{split.id}.arrow"
    # Under a name of its own, so that two attempts never write into one file.
    with ledger.Staging(output, split.id) as staging:
        staged = staging.create(name)
        totals = Totals(rejected={})
        n_counted = 0
        counter = tokenizer.new_word_counter()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(staged, schemas.WORD_COUNTS, options=options) as writer:
            for batch in read_split(split, input_config):
                counter.update(batch.documents.column("text"))
                read = _totals_of(batch)
                totals += read
                if on_batch is not None:
                    on_batch(read.n_bytes, read.n_documents, read.n_records - read.n_documents, 0)
                if counter.n_bytes > MAX_COUNTER_BYTES:
                    n_counted += _write_partitions(writer, counter, n_partitions)
            n_counted += _write_partitions(writer, counter, n_partitions)
        totals += Totals(n_words=n_counted)
        record = staged.finish()
        counts = SplitCounts(split.id, key, split.pieces, totals, record)
        _check_totals(f"split {split.id}", totals)
        staging.publish()
    storage.write_atomic(storage.join(output, _descriptor_name(split.id)), counts.to_json().encode())
    return counts


def merge_partition(partition: int, n_partitions: int, splits: Iterable[SplitCounts], output: str) -> PartitionCounts:
    """Adds up one hash partition of all splits and writes it as one file of the counts artifact.

    Holds the distinct words of the partition, at most twice, and `_MERGE_BYTES`.

    Args:
      partition: which one.
      n_partitions: how many there are.
      splits: in any order.
      output: the output folder.
    """
    merged, pending, n_pending = schemas.WORD_COUNTS.empty_table(), [], 0
    for batch in _batches_of(partition, n_partitions, splits, output):
        pending.append(pa.Table.from_batches([batch]))
        n_pending += batch.nbytes
        # At least as much as is merged already, so that a word is merged a logarithmic number of times, not each time.
        if n_pending > max(_MERGE_BYTES, merged.nbytes):
            merged, pending, n_pending = add_up([merged, *pending]), [], 0
    merged = add_up([merged, *pending])
    name = f"{manifest.COUNTS}/counts-{partition:05d}-of-{n_partitions:05d}.parquet"
    words = merged["word"].cast(pa.large_string()).cast(pa.string()).combine_chunks()
    table = pa.table([words, merged["count"].combine_chunks()], schema=ARTIFACT)
    with ledger.Staging(output, f"counts-{partition}") as staging:
        staged = staging.create(name)
        pq.write_table(table, staged, compression="zstd", store_schema=False, use_dictionary=False)
        record = staged.finish(rows=table.num_rows)
        staging.publish()
    return PartitionCounts(partition, pc.sum(table["count"]).as_py() or 0, record)


def finish_counts(
    splits: Sequence[SplitCounts], partitions: Sequence[PartitionCounts], output: str, key: str
) -> list[PartitionCounts]:
    """Proves that no word was lost on the way, and writes counts/counts.json.

    Returns:
      The partitions in order.

    Raises:
      BooksError: if the counts do not sum up to the words read.
    """
    partitions = sorted(partitions, key=lambda counts: counts.partition)
    totals = sum((split.totals for split in splits), Totals(rejected={}))
    n_counted = sum(counts.n_words for counts in partitions)
    if n_counted != totals.n_words:
        raise BooksError(f"counts: the words of all splits are {totals.n_words}, the sum of all counts is {n_counted}")
    _check_totals("counts", totals)
    report = {
        "format_version": FORMAT_VERSION,
        "counter": key,
        "inputs": _inputs_of(splits),
        "totals": asdict(totals) | {"n_distinct_words": sum(counts.file.rows or 0 for counts in partitions)},
        "partitions": [asdict(counts.file) | {"n_words": counts.n_words} for counts in partitions],
    }
    storage.write_atomic(storage.join(output, TOTALS_NAME), ledger.to_json(report))
    done = {"splits": _plan_digest(splits, key), "partitions": [counts.to_json() for counts in partitions]}
    storage.write_atomic(storage.join(output, _DONE_NAME), json.dumps(done).encode())
    return partitions


def delete_staged(output: str) -> None:
    """Removes the counts of single splits, which nobody needs once the job is done."""
    folder = storage.join(output, manifest.COUNTING)
    for name in storage.list_files(folder):
        if name != _DONE_NAME.rpartition("/")[2]:
            storage.delete(storage.join(folder, name))


def load_finished(splits: Sequence[Split], output: str, key: str) -> list[PartitionCounts] | None:
    """Returns the partitions of counts that are complete, of exactly these splits, and on disk as recorded; or None."""
    path = storage.join(output, _DONE_NAME)
    if not storage.exists(path) or not storage.exists(storage.join(output, TOTALS_NAME)):
        return None
    with storage.open_read(path) as handle:
        try:
            done = json.loads(handle.read())
            partitions = [PartitionCounts.from_json(text) for text in done["partitions"]]
            is_same = done["splits"] == _plan_digest(splits, key)
        except (ValueError, KeyError, TypeError):
            return None
    if not is_same or any(ledger.problem(output, counts.file) for counts in partitions):
        return None
    return partitions


def load_counts(partitions: Iterable[PartitionCounts], output: str) -> pa.Table:
    """Returns all counts as one table of `schemas.WORD_COUNTS`, ordered by word bytes: what trainers take.

    Memory: all distinct words of the corpus.
    """
    tables = [schemas.WORD_COUNTS.empty_table()]
    for counts in partitions:
        with storage.open_read(storage.join(output, counts.file.file)) as handle:
            table = open_parquet(handle).read(use_threads=False)
        tables.append(table.cast(schemas.WORD_COUNTS))
    return pa.concat_tables(tables).sort_by("word").combine_chunks()


def partition_of(words: pa.LargeBinaryArray, n_partitions: int) -> npt.NDArray[np.int64]:
    """Returns the hash partition of each word, int64[n]: a function of its bytes alone, on every machine.

    The hash takes in the length and the first 32 bytes, which tell nearly all words of any language apart; words that
    share them share a partition, no more.
    """
    n_words = len(words)
    _, offsets, values = words.buffers()
    if not n_words or not values:
        return np.zeros(n_words, np.int64)  # no word, or nothing but the empty one
    starts = np.frombuffer(offsets, np.int64)[words.offset : words.offset + n_words + 1]
    data = np.frombuffer(values, np.uint8)
    partitions = np.empty(n_words, np.int64)
    for first in range(0, n_words, _HASHED_AT_ONCE):
        chunk = slice(first, min(first + _HASHED_AT_ONCE, n_words))
        partitions[chunk] = _hash_prefixes(data, starts[chunk], np.diff(starts)[chunk]) % np.uint64(n_partitions)
    return partitions


def partitions_of(counts: pa.Table, n_partitions: int) -> Iterator[pa.RecordBatch]:
    """Yields the words of each hash partition, empty ones too, in the order they have in `counts`.

    Args:
      counts: `schemas.WORD_COUNTS`.
      n_partitions: how many there are.
    """
    words, occurrences = counts["word"].combine_chunks(), counts["count"].combine_chunks()
    partitions = partition_of(words, n_partitions)
    order = np.argsort(partitions, kind="stable")
    bounds = np.searchsorted(partitions[order], np.arange(n_partitions + 1)).tolist()
    for start, stop in itertools.pairwise(bounds):
        rows = pa.array(order[start:stop])
        yield pa.record_batch([words.take(rows), occurrences.take(rows)], schema=schemas.WORD_COUNTS)


def _hash_prefixes(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    columns = np.arange(_HASHED_BYTES)
    positions = np.minimum(starts[:, None] + columns, data.size - 1)
    prefixes = np.where(columns < lengths[:, None], data[positions], 0).astype(np.uint8)
    state = lengths.astype(np.uint64)
    for word in prefixes.view("<u8").T:
        # A multiplication carries bits up, a shift brings them down again (MurmurHash3's finalizer).
        state = (state ^ word) * np.uint64(0xFF51AFD7ED558CCD)
        state ^= state >> np.uint64(33)
        state *= np.uint64(0xC4CEB9FE1A85EC53)
        state ^= state >> np.uint64(29)
    return state


def add_up(tables: Sequence[pa.Table]) -> pa.Table:
    """Returns the sums of tables of `schemas.WORD_COUNTS`, word by word, ordered by word bytes."""
    sums = pa.concat_tables(tables).group_by("word", use_threads=False).aggregate([("count", "sum")])
    return sums.rename_columns(["word", "count"]).cast(schemas.WORD_COUNTS).sort_by("word")


def _write_partitions(writer: pa.ipc.RecordBatchFileWriter, counter: WordCounter, n_partitions: int) -> int:
    """Writes the words of `counter`, a batch per partition, empties it and returns how many occurrences it held."""
    counts = counter.to_table()
    counter.clear()
    for batch in partitions_of(counts, n_partitions):
        writer.write_batch(batch)
    return pc.sum(counts["count"]).as_py() or 0


def _batches_of(
    partition: int, n_partitions: int, splits: Iterable[SplitCounts], output: str
) -> Iterator[pa.RecordBatch]:
    for split in sorted(splits, key=lambda counts: counts.split_id):
        with storage.open_read(storage.join(output, split.file.file)) as handle, pa.ipc.open_file(handle) as file:
            for i in range(partition, file.num_record_batches, n_partitions):
                yield file.get_batch(i)


def _totals_of(batch: ReadBatch) -> Totals:
    documents, rejects = batch.documents, batch.rejects
    reasons = pc.value_counts(rejects.column("reason")).to_pylist() if rejects is not None else []
    return Totals(
        n_records=batch.n_records,
        n_documents=documents.num_rows,
        rejected={found["values"]: found["counts"] for found in reasons},
        n_bytes=batch.n_bytes,
        n_document_bytes=pc.sum(documents.column("n_bytes")).as_py() or 0,
        n_rejected_bytes=(pc.sum(rejects.column("n_bytes")).as_py() or 0) if rejects is not None else 0,
        n_skipped_bytes=batch.n_skipped_bytes,
        n_text_bytes=pc.sum(pc.binary_length(documents.column("text"))).as_py() or 0,
        n_chars=pc.sum(pc.utf8_length(documents.column("text"))).as_py() or 0,
    )


def _check_totals(where: str, totals: Totals) -> None:
    n_rejected = sum((totals.rejected or {}).values())
    kept = totals.n_document_bytes + totals.n_rejected_bytes + totals.n_skipped_bytes
    if totals.n_records != totals.n_documents + n_rejected:
        raise BooksError(
            f"{where}: records read {totals.n_records} != documents + rejected {totals.n_documents + n_rejected}"
        )
    if totals.n_bytes != kept:
        raise BooksError(f"{where}: bytes read {totals.n_bytes} != bytes of documents + rejected + skipped {kept}")


_DONE_NAME = f"{manifest.COUNTING}/done.json"


def _descriptor_name(split_id: str) -> str:
    return f"{manifest.COUNTING}/{split_id}.json"


def _load_committed(output: str, split: Split, key: str) -> SplitCounts | None:
    path = storage.join(output, _descriptor_name(split.id))
    if not storage.exists(path):
        return None
    with storage.open_read(path) as handle:
        try:
            counts = SplitCounts.from_json(handle.read())
        except ValueError:
            return None
    is_same = (counts.split_id, counts.counter, counts.pieces) == (split.id, key, split.pieces)
    return counts if is_same and not ledger.problem(output, counts.file) else None


def _plan_digest(splits: Iterable[Split | SplitCounts], key: str) -> str:
    """Returns a digest of the pieces of all splits, with the versions of their files, and of `key`."""
    pieces = sorted(json.dumps(asdict(piece), sort_keys=True) for split in splits for piece in split.pieces)
    return hashlib.sha256(json.dumps([key, pieces]).encode()).hexdigest()


def _inputs_of(splits: Iterable[SplitCounts]) -> list[dict[str, Any]]:
    """Returns name and size of every input file: the same however the files were cut."""
    files = {(piece.name, piece.path): piece.n_bytes for split in splits for piece in split.pieces}
    return [{"name": name, "n_bytes": n_bytes} for (name, _), n_bytes in sorted(files.items())]


def _load(text: str | bytes) -> dict[str, Any]:
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.pop("format_version", None) != FORMAT_VERSION:
        raise ValueError(f"not a descriptor of format {FORMAT_VERSION}")
    return fields
