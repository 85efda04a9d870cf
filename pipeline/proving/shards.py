# SPDX-License-Identifier: Apache-2.0
"""Checks the files of one split or shard: reads every row again, and counts every token again."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.books.input_counts import count_reasons
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry
from tokenmill.pipeline.books.shard_entry import ShardEntry
from tokenmill.pipeline.books.sums import sum_doc_ids, sum_values
from tokenmill.pipeline.output import rejects_file
from tokenmill.pipeline.output.packing import packed, windowed
from tokenmill.pipeline.output.packing.marks import Marks
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.proving.documents import ListedDocuments
from tokenmill.pipeline.proving.report import VerifyReport, check_file
from tokenmill.pipeline.shuffling.merging import shard_range
from tokenmill.pipeline.statistics.tally import Statistics

_MASK = (1 << 64) - 1


class RowsProof(contextlib.AbstractContextManager["RowsProof"]):
    """Adds up the rows of one file of a shard of a shuffle, each with its key from the file of keys.

    So it proves that keys ascend, and that the rows are the documents that have these keys.
    """

    def __init__(self, output: str, entry: ShardEntry) -> None:
        """Opens the file of keys.

        Args:
          output: the output folder.
          entry: the entry of the shard.
        """
        self._entry = entry
        self._handle = storage.open_read(storage.join(output, entry.keys.file))
        self._tokens = self._doc_ids = self._n_rows = 0
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    def add(self, ids: np.ndarray, starts: np.ndarray, stops: np.ndarray, doc_ids: pa.Array | None) -> None:
        """Adds the next rows.

        Args:
          ids: int32[n_ids].
          starts: int64[n], where the tokens of each row begin in `ids`, padding not included.
          stops: int64[n], where they end.
          doc_ids: the document ids of the rows; None where the format has none.

        Raises:
          ValueError: if there are fewer keys, or they are not in order.
        """
        keys = self.take(starts.size)
        self._tokens += sum_values(keys, ids, starts, stops)
        self._doc_ids += sum_doc_ids(keys, doc_ids) if doc_ids is not None else 0

    def add_documents(self, hashes: np.ndarray, lengths: np.ndarray) -> None:
        """Adds all documents of a packed shard: lengths, and hashes of tokens by `sums_kernels.add_values`."""
        self._tokens += int(sums_kernels.fingerprint(self.take(hashes.size), hashes, lengths))

    def take(self, n: int) -> np.ndarray:
        """Returns the next keys, uint64[n].

        Raises:
          ValueError: if there are fewer, or they are not in order.
        """
        name = self._entry.keys.file
        keys = np.frombuffer(self._handle.read(8 * n), "<u8").astype(np.uint64)
        if keys.size != n:
            raise ValueError(f"{name}: holds {self._n_rows + keys.size} keys, fewer than there are documents")
        low, high = shard_range(self._entry.index, self._entry.n_shards)
        ordered = np.concatenate([np.array([max(low, self._last)], np.uint64), keys])
        wrong = np.flatnonzero(ordered[1:] < ordered[:-1])
        if wrong.size or int(ordered[-1]) >= high:
            row = self._n_rows + (int(wrong[0]) if wrong.size else n - 1)
            raise ValueError(
                f"{name}: the key {int(keys[row - self._n_rows])} of document {row} is not in the order of the "
                f"shuffle, or not of this shard, {low} to {high - 1}"
            )
        self._n_rows += n
        self._last = int(ordered[-1])
        return keys

    def problems(self, name: str, *, has_doc_ids: bool) -> list[str]:
        """Returns how the rows of the file `name` differ from the ledger; call it after all rows are added."""
        sums = self._entry.sums
        lines = []
        if self._handle.read(1):
            lines.append(f"{self._entry.keys.file}: holds more keys than the {self._n_rows} documents of {name}")
        found = [("tokens", self._tokens & _MASK, sums.tokens)]
        if has_doc_ids:
            found.append(("document ids", self._doc_ids & _MASK, sums.doc_ids))
        lines += [
            f"{name}: the {what} are not those of the keys in this order: sum {ours:016x}, recorded {theirs:016x}"
            for what, ours, theirs in found
            if ours != theirs
        ]
        return lines


def count_files(
    output: str, entry: LedgerEntry | ShardEntry, found: Mapping[str, Any], report: VerifyReport
) -> Iterator[tuple[FileRecord, Statistics]]:
    """Checks the files of a split or a shard; yields the record of each file with rows, and its statistics."""
    files = (entry.shard, *entry.companions)
    whole = {file.file for file in files if check_file(output, file, report)}
    listed = ListedDocuments.read(output, entry, found, report)
    for file in files:
        is_rows = file is entry.shard or file.rows is not None
        if is_rows and {file.file, formats.index_name(file.file) or file.file} <= whole:
            counted = _count_shard(output, entry, file, found, listed, report)
            if counted is not None:
                yield file, counted


def check_rejects(output: str, entry: LedgerEntry, record: FileRecord, report: VerifyReport) -> None:
    """Compares the reasons and sizes of a split's rejects with its ledger entry."""
    columns = ["reason", "n_bytes"]
    try:
        reasons: Counter[str] = Counter()
        n_bytes = 0
        for batch in rejects_file.read(output, record.file, columns):
            reasons.update(count_reasons(batch))
            n_bytes += pc.sum(batch.column("n_bytes")).as_py() or 0
    except (OSError, ValueError) as error:
        report.problems.append(str(error))
        return
    if reasons != dict(entry.rejected):
        report.problems.append(f"{record.file}: holds {dict(reasons)}, the ledger records {dict(entry.rejected)}")
    if n_bytes != entry.n_rejected_bytes:
        difference = f"records of {n_bytes} bytes, but the ledger says {entry.n_rejected_bytes}"
        report.problems.append(f"{record.file}: {difference}")


def _count_shard(
    output: str,
    entry: LedgerEntry | ShardEntry,
    file: FileRecord,
    found: Mapping[str, Any],
    listed: ListedDocuments | None,
    report: VerifyReport,
) -> Statistics | None:
    """Returns the tokens of the rows in one format, counted again; None if they cannot be read to their end."""
    name, tokenizer = file.file, found["tokenizer"]
    # Formats without padding have none to check; packed sequences have their own.
    padding = found["config"]["tokenizer"]["padding"] if formats.keeps_padding(name) else None
    marks = Marks.from_record(found["marks"])
    counted = Statistics(tokenizer["vocab_size"], tokenizer["unk_id"])
    try:
        with contextlib.ExitStack() as stack:
            handle = stack.enter_context(storage.open_read(storage.join(output, name)))
            index_name = formats.index_name(name)
            index = index_name and stack.enter_context(storage.open_read(storage.join(output, index_name)))
            if name.endswith(".parquet"):
                _check_metadata(handle, name, tokenizer, report)
                handle.seek(0)
            rows = formats.read_rows(handle, name, index=index or None)
            rows = _count_trained(rows, report) if file is entry.shard else rows
            proof = stack.enter_context(RowsProof(output, entry)) if isinstance(entry, ShardEntry) else None
            if entry.packing is not None or entry.windows is not None:
                if listed is None:
                    return None  # a problem is reported already, and nothing else tells how many documents there are
                hashes = np.zeros(entry.n_documents, np.uint64) if proof is not None else None
                lengths: np.ndarray | None = listed.n_tokens
                if entry.packing is not None:
                    sequences = _compare_sequences(rows, name, listed, report)
                    lengths = packed.count(sequences, name, entry, found, counted, report.problems, hashes)
                else:
                    spans = _with_spans(rows, padding, tokenizer, name)
                    windowed.count(spans, name, entry, listed.windows(found), counted, hashes)
                if proof is not None and hashes is not None and lengths is not None:
                    proof.add_documents(hashes, lengths)
                    report.problems += proof.problems(name, has_doc_ids=False)
                return _close_count(counted, entry, file, report)
            kept: list[pa.RecordBatch] = []
            fields = listed.fields if listed is not None else None
            for batch in rows:
                if fields:
                    kept.append(batch.select([field.name for field in batch.schema if field.nullable]))
                row = counted["n_documents"]
                ids, starts, stops = _token_spans(batch, padding, tokenizer["pad_id"], f"{name}, row {row} and on")
                # A shard has no text, so statistics of text are not checked here.
                marks.check_rows(ids, starts, stops, f"{name}, row {row} and on")
                n_oov = counted.update(batch.column("doc_id"), ids, starts, stops, marks.count(counted.unk_id))
                _check_column(f"{name}: n_tokens", row, batch.column("n_tokens").to_numpy(), stops - starts, report)
                if "n_oov" in batch.schema.names:
                    _check_column(f"{name}: n_oov", row, batch.column("n_oov").to_numpy(), n_oov, report)
                doc_ids = batch.column("doc_id") if formats.keeps_padding(name) else None
                if listed is not None and (difference := listed.compare_rows(row, doc_ids, stops - starts)):
                    report.problems.append(f"{name}: {difference}")
                    listed = None  # one difference would cause many more
                if proof is not None:
                    proof.add(ids, starts, stops, doc_ids)
            if fields and formats.keeps_fields(name) and (difference := fields.compare(name, kept)):
                report.problems.append(f"{name}: {difference}")
            if proof is not None:
                report.problems += proof.problems(name, has_doc_ids=formats.keeps_padding(name))
    except ValueError as error:
        message = str(error)
        report.problems.append(message if message.startswith(name) else f"{name}: {message}")
        return None
    return _close_count(counted, entry, file, report)


def _count_trained(batches: Iterator[pa.RecordBatch], report: VerifyReport) -> Iterator[pa.RecordBatch]:
    """Yields rows, and counts the tokens that they train."""
    for batch in batches:
        if schemas.LOSS_MASK.name in batch.schema.names:
            report.n_trained += pc.sum(batch.column(schemas.LOSS_MASK.name).flatten()).as_py() or 0
        yield batch


def _with_spans(
    batches: Iterator[pa.RecordBatch], padding: Mapping[str, Any] | None, tokenizer: Mapping[str, Any], name: str
) -> Iterator[tuple[pa.RecordBatch, windowed.Spans]]:
    """Yields rows, and where the tokens of each are; checks their padding and `n_tokens`."""
    row = 0
    for batch in batches:
        where = f"{name}, row {row} and on"
        ids, starts, stops = _token_spans(batch, padding, tokenizer["pad_id"], where)
        if (batch.column("n_tokens").to_numpy() != stops - starts).any():
            raise ValueError(f"{where}: n_tokens is not how many tokens there are")
        yield batch, (ids, starts, stops)
        row += batch.num_rows


def _compare_sequences(
    batches: Iterator[pa.RecordBatch], name: str, listed: ListedDocuments, report: VerifyReport
) -> Iterator[pa.RecordBatch]:
    """Yields packed sequences, compared with the table of documents up to the first difference."""
    first, difference = 0, None
    for batch in batches:
        yield batch  # the counting that reads these batches finds problems of a sequence itself
        if difference is None and (difference := listed.compare_sequences(first, batch)):
            report.problems.append(f"{name}: {difference}")
        first += batch.num_rows


def _close_count(
    counted: Statistics, entry: LedgerEntry | ShardEntry, file: FileRecord, report: VerifyReport
) -> Statistics:
    """Compares the counted contents of a file with its record."""
    name = file.file
    if file is entry.shard:
        report.n_rows += counted["n_documents"]
        report.n_tokens += counted["n_tokens"]
    for what, n_found, recorded in (
        ("rows", counted["n_documents"], file.rows),
        ("tokens", counted["n_tokens"], file.tokens),
        ("unknown tokens", counted["n_oov_tokens"], entry.n_oov_tokens),
    ):
        if n_found != recorded:
            report.problems.append(f"{name}: {n_found} {what}, recorded {recorded}")
    return counted


def _token_spans(
    batch: pa.RecordBatch, padding: Mapping[str, Any] | None, pad_id: int | None, where: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (ids int32, starts int64[n], stops int64[n]): where the tokens of each row are, without its padding.

    Args:
      batch: doc_id, input_ids and n_tokens, as `formats.read_rows` yields them.
      padding: {"length", "side"} of the config; None if rows are not padded.
      pad_id: the padding token.
      where: the place of the rows, for messages.

    Raises:
      ValueError: if a row is not padded as `padding` says.
    """
    rows = batch.column("input_ids")
    offsets, ids = rows.offsets.to_numpy(), rows.values.to_numpy()
    starts, stops = offsets[:-1], offsets[1:]
    if padding is None:
        return ids, starts, stops
    length = padding["length"]
    if (stops - starts != length).any():
        raise ValueError(f"{where}: rows must have {length} ids, padding included")
    n_tokens = batch.column("n_tokens").to_numpy().astype(np.int64)
    if n_tokens.size and (n_tokens.min() < 0 or n_tokens.max() > length):
        raise ValueError(f"{where}: n_tokens must be between 0 and {length}")
    first = length - n_tokens if padding["side"] == "left" else np.zeros_like(n_tokens)
    position = np.arange(length)
    is_token = (position >= first[:, None]) & (position < (first + n_tokens)[:, None])
    if (ids[offsets[0] : offsets[-1]][~is_token.reshape(-1)] != pad_id).any():
        raise ValueError(f"{where}: what stands beside the n_tokens tokens of a row must be the padding token {pad_id}")
    return ids, starts + first, starts + first + n_tokens


def _check_column(what: str, first_row: int, stored: np.ndarray, counted: np.ndarray, report: VerifyReport) -> None:
    wrong = np.flatnonzero(stored != counted)
    if wrong.size:
        row = int(wrong[0])
        more = f", and in {wrong.size - 1} more rows" if wrong.size > 1 else ""
        report.problems.append(f"{what} of row {first_row + row} is {stored[row]}, counted {counted[row]}{more}")


def _check_metadata(handle: Any, name: str, tokenizer: Mapping[str, Any], report: VerifyReport) -> None:
    try:
        said = json.loads((pq.read_schema(handle).metadata or {}).get(b"tokenmill", b"null"))
    except (pa.ArrowException, OSError):
        return  # reading the rows will report it
    digest = said.get("tokenizer") if isinstance(said, dict) else None
    if digest != tokenizer["digest"]:
        report.problems.append(f"{name}: made by tokenizer {digest}, but the manifest's is {tokenizer['digest']}")


def compare_counts(
    entry: LedgerEntry, file: FileRecord, counted: Statistics, recorded: Statistics, report: VerifyReport
) -> None:
    """Compares the tokens of a split, counted again in one of its files, with its recorded statistics."""
    name = entry.statistics.file
    # Packed sequences without boundaries do not tell how long documents are.
    has_lengths = entry.packing is None or formats.keeps_padding(file.file)
    for what in ("token_counts", "length_counts") if has_lengths else ("token_counts",):
        ours, theirs = getattr(counted, what), getattr(recorded, what)
        wrong = np.flatnonzero(ours != theirs)
        if wrong.size:
            i = int(wrong[0])
            report.problems.append(f"{name}: {what}[{i}] is {theirs[i]}, {file.file} has {ours[i]}")
