# SPDX-License-Identifier: Apache-2.0
"""Checks the files of one split or shard: reads every row again, and counts every token again."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.books.counts import count_reasons
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry, ShardEntry, Written
from tokenmill.pipeline.output import tables
from tokenmill.pipeline.output.placement import Int64s, RowForm
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.proving.report import VerifyReport, check_file
from tokenmill.pipeline.proving.rows import ListedDocuments, PlacedRows
from tokenmill.pipeline.statistics.tally import Statistics


def count_files(
    output: str, entry: Written, found: Mapping[str, Any], report: VerifyReport
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
        for batch in tables.read_rejects(output, record.file, columns):
            reasons.update(count_reasons(batch))
            n_bytes += pc.sum(batch.column("n_bytes")).as_py() or 0
    except (OSError, ValueError) as error:
        report.problems.append(str(error))
        return
    recorded, n_recorded = entry.of("rejected") or {}, entry["n_rejected_bytes"]
    if reasons != recorded:
        report.problems.append(f"{record.file}: holds {dict(reasons)}, the ledger records {recorded}")
    if n_bytes != n_recorded:
        difference = f"records of {n_bytes} bytes, but the ledger says {n_recorded}"
        report.problems.append(f"{record.file}: {difference}")


def _count_shard(
    output: str,
    entry: Written,
    file: FileRecord,
    found: Mapping[str, Any],
    listed: ListedDocuments | None,
    report: VerifyReport,
) -> Statistics | None:
    """Returns the tokens of the rows in one format, counted again; None if they cannot be read to their end."""
    name, tokenizer, form = file.file, found["tokenizer"], RowForm.recorded(found)
    if listed is None and form.strategy != "documents":
        return None  # a problem is reported already, and nothing else tells where documents are
    has_columns = formats.keeps_padding(name)
    counted = Statistics(tokenizer["vocab_size"], tokenizer["unk_id"])
    has_ids, is_hashed = has_columns and not form.is_packed, isinstance(entry, ShardEntry)
    placed = PlacedRows(name, form, listed, counted, has_ids=has_ids, is_hashed=is_hashed)
    fields = listed.fields if listed is not None and form.strategy == "documents" else None
    kept: list[pa.RecordBatch] = []
    try:
        with contextlib.ExitStack() as stack:
            handle = stack.enter_context(storage.open_read(storage.join(output, name)))
            index_name = formats.index_name(name)
            index = index_name and stack.enter_context(storage.open_read(storage.join(output, index_name)))
            if name.endswith(".parquet"):
                _check_metadata(handle, name, tokenizer, report)
                handle.seek(0)
            rows = formats.read_rows(handle, name, index=index or None)
            n_rows = 0
            for batch in _count_trained(rows, report) if file is entry.shard else rows:
                if fields:
                    kept.append(batch.select([field.name for field in batch.schema if field.nullable]))
                # Formats without padding have none to check.
                spans = _token_spans(batch, form if has_columns else None, f"{name}, row {n_rows} and on")
                placed.add(batch, *spans)
                n_rows += batch.num_rows
            placed.finish()
    except ValueError as error:
        message = str(error)
        report.problems += placed.problems
        report.problems.append(message if message.startswith(name) else f"{name}: {message}")
        return None
    report.problems += placed.problems
    if fields and formats.keeps_fields(name) and (difference := fields.compare(name, kept)):
        report.problems.append(f"{name}: {difference}")
    if isinstance(entry, ShardEntry) and listed is not None:
        _compare_sums(name, entry, listed.keys, placed, report)
    return _close_count(counted, entry, file, report)


def _compare_sums(name: str, entry: ShardEntry, keys: np.ndarray, placed: PlacedRows, report: VerifyReport) -> None:
    """Compares the tokens of rows, each document with its key, with what the ledger has recorded."""
    if keys.size != placed.hashes.size:
        report.problems.append(f"{entry.keys.file}: holds {keys.size} keys, {name} {placed.hashes.size} documents")
        return
    ours = int(sums_kernels.fingerprint(keys, placed.hashes, placed.lengths))
    if ours != entry.sums.tokens:
        report.problems.append(
            f"{name}: the tokens are not those of the keys in this order: sum {ours:016x}, recorded "
            f"{entry.sums.tokens:016x}"
        )


def _count_trained(batches: Iterator[pa.RecordBatch], report: VerifyReport) -> Iterator[pa.RecordBatch]:
    """Yields rows, and counts the tokens that they train."""
    for batch in batches:
        if schemas.LOSS_MASK.name in batch.schema.names:
            report.n_trained += pc.sum(batch.column(schemas.LOSS_MASK.name).flatten()).as_py() or 0
        yield batch


def _close_count(counted: Statistics, entry: Written, file: FileRecord, report: VerifyReport) -> Statistics:
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


def _token_spans(batch: pa.RecordBatch, form: RowForm | None, where: str) -> tuple[np.ndarray, Int64s, Int64s]:
    """Returns (ids int32, starts int64[n], stops int64[n]): where the tokens of each row are, without its padding.

    Args:
      batch: doc_id, input_ids and n_tokens, as `formats.read_rows` yields them.
      form: what rows are; None where padding is not stored.
      where: the place of the rows, for messages.

    Raises:
      ValueError: if a row is not padded as `form` says.
    """
    rows = batch.column("input_ids")
    offsets, ids = rows.offsets.to_numpy(), rows.values.to_numpy()
    starts, stops = offsets[:-1], offsets[1:]
    if form is None or not form.padded:
        return ids, starts, stops
    length = form.padded
    if (stops - starts != length).any():
        raise ValueError(f"{where}: rows must have {length} ids, padding included")
    n_tokens = batch.column("n_tokens").to_numpy().astype(np.int64)
    if n_tokens.size and (n_tokens.min() < 0 or n_tokens.max() > length):
        raise ValueError(f"{where}: n_tokens must be between 0 and {length}")
    first = length - n_tokens if form.pads_left else np.zeros_like(n_tokens)
    position = np.arange(length)
    is_token = (position >= first[:, None]) & (position < (first + n_tokens)[:, None])
    if (ids[offsets[0] : offsets[-1]][~is_token.reshape(-1)] != form.pad_id).any():
        raise ValueError(
            f"{where}: what stands beside the n_tokens tokens of a row must be the padding token {form.pad_id}"
        )
    return ids, starts + first, starts + first + n_tokens


def _check_metadata(handle: Any, name: str, tokenizer: Mapping[str, Any], report: VerifyReport) -> None:
    try:
        said = json.loads((pq.read_schema(handle).metadata or {}).get(b"tokenmill", b"null"))
    except (pa.ArrowException, OSError):
        return  # reading the rows will report it
    digest = said.get("tokenizer") if isinstance(said, dict) else None
    if digest != tokenizer["digest"]:
        report.problems.append(f"{name}: made by tokenizer {digest}, but the manifest's is {tokenizer['digest']}")
