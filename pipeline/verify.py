# SPDX-License-Identifier: Apache-2.0
"""Proves a manifest: reads everything in an output folder again and counts again, trusting no number on the way."""

import contextlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import ledger, manifest, output_folder, schemas, storage, writers
from pipeline.balance import imbalances
from pipeline.ledger import FileRecord, LedgerEntry
from pipeline.packing import packed
from pipeline.parquet_file import open_parquet
from pipeline.shuffling.proof import RowsProof, check_shards
from pipeline.shuffling.shards import ShardEntry
from pipeline.shuffling.shards import read_entry as read_shard_entry
from pipeline.statistics import Statistics
from pipeline.statistics_summary import TOKEN_COUNTS, summarize
from pipeline.totals import add_up, check_inputs, identities
from tokenizer import UNICODE_VERSIONS, Tokenizer

_Entry = TypeVar("_Entry", LedgerEntry, ShardEntry)


@dataclass
class VerifyReport:
    """What `verify` read, and everything that is wrong with it."""

    problems: list[str] = field(default_factory=list)
    """Each names the file and, where numbers differ, both of them."""
    n_files: int = 0
    n_bytes: int = 0
    n_rows: int = 0
    n_tokens: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def merge(self, other: "VerifyReport") -> None:
        """Adds what another report found."""
        self.problems += other.problems
        for name in ("n_files", "n_bytes", "n_rows", "n_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def verify(output: str) -> VerifyReport:
    """Checks a finished output folder against its manifest.

    Proven are: size and sha256 of every file; rows, tokens and unknown tokens of every shard, counted again; that every
    id is in the vocabulary; framing and checksums of TFRecord; rejects by reason; that entries of the ledger balance,
    agree with their shards and add up to the totals; statistics and token counts; the tokenizer; and that no other
    shard lies among these. Of a job that shuffles: that keys ascend throughout, that every document has its key, and
    that the documents of all shards are those of all splits.

    Reads shards in as many threads as there are processors, each in bounded memory.

    Raises:
      OSError: if the folder cannot be read at all.
    """
    report = VerifyReport()
    try:
        found = manifest.read(output)
        _check_folder(output, found, report)
    except ValueError as error:
        report.problems.append(str(error))
    except (KeyError, TypeError, AttributeError) as error:
        report.problems.append(f"{manifest.MANIFEST}: not as TokenMill writes it: {error!r}")
    return report


def _check_folder(output: str, found: Mapping[str, Any], report: VerifyReport) -> None:
    for record in found["files"]:
        _check_file(output, FileRecord(**record), report)
    _check_stray_files(output, found, report)

    entries, shards = _read_entries(output, found, report)
    total: Statistics | None = None
    is_counted = bool(entries)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        # In the order of splits, and added up as they come: the statistics of all splits together would be large.
        for part, recorded in pool.map(lambda entry: _check_split(output, entry, found), entries):
            report.merge(part)
            if recorded is None:
                is_counted = False
            else:
                total = recorded if total is None else total.merge(recorded)
        if shards is not None:
            parts = pool.map(lambda shard: _check_shard(output, shard, found), shards)
            _compare_shards(parts, total if is_counted else None, found, report)
            report.problems += check_shards(found, entries, shards)
    _check_totals(found, entries, shards, report)
    _check_tokenizer(output, found, report)
    if is_counted and total is not None:
        _check_statistics(output, total, entries, shards, report)


def _read_entries(
    output: str, found: Mapping[str, Any], report: VerifyReport
) -> tuple[list[LedgerEntry], list[ShardEntry] | None]:
    """Returns the entries of all splits and, of a job that shuffles, of all shards; compared with the manifest."""
    rejects = {record["split"]: record for record in found["rejects"]}
    listed: dict[str, list[Mapping[str, Any]]] = {}
    for record in (*found["shards"], *found["companions"]):
        listed.setdefault(record["entry" if found["shuffle"] else "split"], []).append(record)
    entries = []
    for split_id in found["shuffle"]["splits"] if found["shuffle"] else list(listed):
        entry = _found(ledger.read_entry(output, split_id), split_id, report)
        rejected = rejects.pop(split_id, None)
        if entry is not None:
            entries.append(entry)
            report.problems += _differences(entry.split_id, (entry.rejects,), [rejected] if rejected else [None])
    shards: list[ShardEntry] | None = [] if found["shuffle"] else None
    written: dict[str, LedgerEntry | ShardEntry] = {entry.split_id: entry for entry in entries}
    if shards is not None:
        found_shards = (_found(read_shard_entry(output, shard_id), shard_id, report) for shard_id in listed)
        shards += [shard for shard in found_shards if shard is not None]
        written = {shard.shard_id: shard for shard in shards}
    for entry_id, records in listed.items():
        if entry_id in written:
            files = (written[entry_id].shard, *written[entry_id].companions)
            report.problems += _differences(entry_id, files, records)
        else:
            for record in records:
                _check_file(output, _file_record(record), report)
    report.problems += [
        f"{record['file']}: listed, but its split {split} has no shard" for split, record in rejects.items()
    ]
    return entries, shards


def _found(entry: _Entry | None, entry_id: str, report: VerifyReport) -> _Entry | None:
    if entry is None:
        report.problems.append(f"{ledger.entry_name(entry_id)}: missing, or not a ledger entry")
    return entry


def _check_file(output: str, record: FileRecord, report: VerifyReport) -> bool:
    problem = ledger.problem(output, record)
    report.n_files += 1
    if problem is not None:
        report.problems.append(problem)
        return False
    report.n_bytes += record.n_bytes
    return True


def _check_stray_files(output: str, found: Mapping[str, Any], report: VerifyReport) -> None:
    listed = {record["file"] for kind in ("shards", "companions", "rejects") for record in found[kind]}
    listed |= {
        name(split) for split in manifest.split_ids(found) for name in (ledger.entry_name, ledger.statistics_name)
    }
    listed |= manifest.shard_files(found)
    strays = [name for name in output_folder.result_files(output) if name not in listed]
    report.problems += [f"{name}: lies among the results, but the manifest does not list it" for name in strays]


def _file_record(listed: Mapping[str, Any]) -> FileRecord:
    return FileRecord(**{name: value for name, value in listed.items() if name not in ("split", "entry")})


def _differences(
    entry_id: str, files: Sequence[FileRecord | None], listed: Sequence[Mapping[str, Any] | None]
) -> list[str]:
    """Returns where the ledger and the manifest say different things of the files of a split or a shard."""
    records = [_file_record(each) if each else None for each in listed]
    return [
        f"{ledger.entry_name(entry_id)}: records {ours}, the manifest {theirs}"
        for ours, theirs in itertools.zip_longest(files, records)
        if ours != theirs
    ]


def _check_split(output: str, entry: LedgerEntry, found: Mapping[str, Any]) -> tuple[VerifyReport, Statistics | None]:
    """Returns what is wrong with a split of the manifest `found`, and the split's statistics if they can be used."""
    report = VerifyReport()
    tokenizer = found["tokenizer"]
    recorded = None
    if _check_file(output, entry.statistics, report):
        try:
            with storage.open_read(storage.join(output, entry.statistics.file)) as handle:
                recorded = Statistics.from_bytes(handle.read())
        except ValueError as error:
            report.problems.append(f"{entry.statistics.file}: {error}")
    if recorded is not None and recorded.token_counts.size != tokenizer["vocab_size"]:
        n_counts = recorded.token_counts.size
        report.problems.append(f"{entry.statistics.file}: {n_counts} counts for {tokenizer['vocab_size']} tokens")
        recorded = None
    report.problems += imbalances(entry, recorded)
    if entry.tokenizer != tokenizer["digest"]:
        name = ledger.entry_name(entry.split_id)
        report.problems.append(f"{name}: made by tokenizer {entry.tokenizer}, the manifest's is {tokenizer['digest']}")
    if entry.rejects is not None and _check_file(output, entry.rejects, report):
        _check_rejects(output, entry, entry.rejects, report)
    if entry.runs is None:  # else what it wrote has become a part of every shard
        for file, counted in _count_files(output, entry, found, report):
            if recorded is not None:
                _compare_counts(entry, file, counted, recorded, report)
    return report, recorded


def _check_shard(
    output: str, entry: ShardEntry, found: Mapping[str, Any]
) -> tuple[VerifyReport, ShardEntry, list[tuple[FileRecord, Statistics]]]:
    """Returns what is wrong with a shard of a shuffle, and what its files were found to hold."""
    report = VerifyReport()
    report.problems += entry.imbalances()
    if entry.tokenizer != found["tokenizer"]["digest"]:
        name = ledger.entry_name(entry.shard_id)
        report.problems.append(
            f"{name}: made by tokenizer {entry.tokenizer}, the manifest's is {found['tokenizer']['digest']}"
        )
    if not _check_file(output, entry.keys, report):
        return report, entry, []
    return report, entry, list(_count_files(output, entry, found, report))


def _compare_shards(
    parts: Iterable[tuple[VerifyReport, ShardEntry, list[tuple[FileRecord, Statistics]]]],
    recorded: Statistics | None,
    found: Mapping[str, Any],
    report: VerifyReport,
) -> None:
    """Compares the tokens of all shards in their first format with the statistics of all splits."""
    total = Statistics(found["tokenizer"]["vocab_size"], found["tokenizer"]["unk_id"])
    n_counted, file = 0, ""
    for part, entry, counts in parts:
        report.merge(part)
        if counts and counts[0][0] is entry.shard:
            total.merge(counts[0][1])
            n_counted, file = n_counted + 1, entry.shard.file
    if recorded is None or n_counted != len(found["shards"]):
        return
    has_lengths = found["packing"] is None or writers.keeps_padding(file)
    for what in ("token_counts", "length_counts") if has_lengths else ("token_counts",):
        ours, theirs = getattr(total, what), getattr(recorded, what)
        if wrong := np.flatnonzero(ours != theirs).tolist():
            report.problems.append(
                f"the shards have {ours[wrong[0]]} in {what}[{wrong[0]}], the splits {theirs[wrong[0]]}"
            )


def _count_files(
    output: str, entry: LedgerEntry | ShardEntry, found: Mapping[str, Any], report: VerifyReport
) -> Iterator[tuple[FileRecord, Statistics]]:
    """Checks the files of a split or a shard; yields those with rows, with their tokens counted again."""
    files = (entry.shard, *entry.companions)
    whole = {file.file for file in files if _check_file(output, file, report)}
    for file in files:
        is_rows = file is entry.shard or file.rows is not None
        if is_rows and {file.file, writers.index_name(file.file) or file.file} <= whole:
            counted = _count_shard(output, entry, file, found, report)
            if counted is not None:
                yield file, counted


def _check_rejects(output: str, entry: LedgerEntry, record: FileRecord, report: VerifyReport) -> None:
    try:
        with storage.open_read(storage.join(output, record.file)) as handle:
            file = open_parquet(handle)
            if not file.schema_arrow.equals(schemas.REJECTS):
                raise ValueError(f"columns are not {schemas.REJECTS.names}")
            table = file.read(["reason", "n_bytes"], use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        report.problems.append(f"{record.file}: {error}")
        return
    reasons = {row["values"]: row["counts"] for row in pc.value_counts(table.column("reason")).to_pylist()}
    if reasons != dict(entry.rejected):
        report.problems.append(f"{record.file}: holds {reasons}, the ledger records {dict(entry.rejected)}")
    n_bytes = pc.sum(table.column("n_bytes")).as_py() or 0
    if n_bytes != entry.n_rejected_bytes:
        report.problems.append(f"{record.file}: records of {n_bytes} bytes, the ledger says {entry.n_rejected_bytes}")


def _count_shard(
    output: str, entry: LedgerEntry | ShardEntry, file: FileRecord, found: Mapping[str, Any], report: VerifyReport
) -> Statistics | None:
    """Returns the tokens of the rows in one format counted again; None if they cannot be read to their end."""
    name, tokenizer = file.file, found["tokenizer"]
    # A format without padding is read as it is; packed sequences are padded by themselves.
    padding = found["config"]["tokenizer"]["padding"] if writers.keeps_padding(name) else None
    counted = Statistics(tokenizer["vocab_size"], tokenizer["unk_id"])
    try:
        with contextlib.ExitStack() as stack:
            handle = stack.enter_context(storage.open_read(storage.join(output, name)))
            index_name = writers.index_name(name)
            index = index_name and stack.enter_context(storage.open_read(storage.join(output, index_name)))
            if name.endswith(".parquet"):
                _check_metadata(handle, name, tokenizer, report)
                handle.seek(0)
            proof = stack.enter_context(RowsProof(output, entry)) if isinstance(entry, ShardEntry) else None
            if entry.packing is not None:
                batches = writers.read_rows(handle, name, index=index or None)
                hashes = np.zeros(entry.n_documents, np.uint64) if proof is not None else None
                lengths = packed.count(batches, name, entry, found, counted, report.problems, hashes)
                if proof is not None and hashes is not None and lengths is not None:
                    proof.add_documents(hashes, lengths)
                    report.problems += proof.problems(name, has_doc_ids=False)
                return _close_count(counted, entry, file, report)
            for batch in writers.read_rows(handle, name, index=index or None):
                row = counted.n_documents
                ids, starts, stops = token_spans(batch, padding, tokenizer["pad_id"], f"{name}, row {row} and on")
                # A shard has no text; what the statistics say of text is not looked at here.
                n_oov = counted.update(batch.column("doc_id"), ids, starts, stops)
                _check_column(f"{name}: n_tokens", row, batch.column("n_tokens").to_numpy(), stops - starts, report)
                if "n_oov" in batch.schema.names:
                    _check_column(f"{name}: n_oov", row, batch.column("n_oov").to_numpy(), n_oov, report)
                if proof is not None:
                    proof.add(ids, starts, stops, batch.column("doc_id") if writers.keeps_padding(name) else None)
            if proof is not None:
                report.problems += proof.problems(name, has_doc_ids=writers.keeps_padding(name))
    except ValueError as error:
        message = str(error)
        report.problems.append(message if message.startswith(name) else f"{name}: {message}")
        return None
    return _close_count(counted, entry, file, report)


def _close_count(
    counted: Statistics, entry: LedgerEntry | ShardEntry, file: FileRecord, report: VerifyReport
) -> Statistics:
    """Compares what a file was found to hold with its record."""
    name = file.file
    if file is entry.shard:
        report.n_rows += counted.n_documents
        report.n_tokens += counted.n_tokens
    for what, n_found, recorded in (
        ("rows", counted.n_documents, file.rows),
        ("tokens", counted.n_tokens, file.tokens),
        ("unknown tokens", counted.n_oov_tokens, entry.n_oov_tokens),
    ):
        if n_found != recorded:
            report.problems.append(f"{name}: {n_found} {what}, recorded {recorded}")
    return counted


def token_spans(
    batch: pa.RecordBatch, padding: Mapping[str, Any] | None, pad_id: int | None, where: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (ids int32, starts int64[n], stops int64[n]): where the tokens of each row are, without its padding.

    Args:
      batch: of doc_id, input_ids, n_tokens, as `writers.read_rows` yields it.
      padding: {"length", "side"} of the config; None when rows are not padded.
      pad_id: the padding token.
      where: the rows are, for messages.

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
        return  # reading the rows says so too
    digest = said.get("tokenizer") if isinstance(said, dict) else None
    if digest != tokenizer["digest"]:
        report.problems.append(f"{name}: made by tokenizer {digest}, the manifest's is {tokenizer['digest']}")


def _compare_counts(
    entry: LedgerEntry, file: FileRecord, counted: Statistics, recorded: Statistics, report: VerifyReport
) -> None:
    name = entry.statistics.file
    # Packed sequences without boundaries do not tell how long documents are.
    has_lengths = entry.packing is None or writers.keeps_padding(file.file)
    for what in ("token_counts", "length_counts") if has_lengths else ("token_counts",):
        ours, theirs = getattr(counted, what), getattr(recorded, what)
        wrong = np.flatnonzero(ours != theirs)
        if wrong.size:
            i = int(wrong[0])
            report.problems.append(f"{name}: {what}[{i}] is {theirs[i]}, {file.file} has {ours[i]}")


def _check_totals(
    found: Mapping[str, Any],
    entries: Sequence[LedgerEntry],
    shards: Sequence[ShardEntry] | None,
    report: VerifyReport,
) -> None:
    totals = add_up(entries, shards)
    for name in sorted({*totals, *found["totals"]}):
        ours, theirs = totals.get(name), found["totals"].get(name)
        if ours != theirs:
            report.problems.append(f"{manifest.MANIFEST}: total {name} is {theirs}, the ledger adds up to {ours}")
    for check in (
        lambda: identities(found["totals"]),
        lambda: check_inputs(entries, is_whole="replay_of" not in found),
    ):
        try:
            check()
        except ledger.BooksError as error:
            report.problems += str(error).splitlines()


def _check_tokenizer(output: str, found: Mapping[str, Any], report: VerifyReport) -> None:
    listed = any(record["file"] == manifest.TOKENIZER for record in found["files"])
    # A digest covers the Unicode versions; another TokenMill may have others and still read this folder.
    if not listed or found["tokenizer"] is None or found["unicode"] != dict(UNICODE_VERSIONS):
        return
    try:
        with storage.open_read(storage.join(output, manifest.TOKENIZER)) as handle:
            digest = Tokenizer.from_str(handle.read().decode()).digest
    except (OSError, ValueError) as error:
        report.problems.append(f"{manifest.TOKENIZER}: {error}")
        return
    if digest != found["tokenizer"]["digest"]:
        report.problems.append(
            f"{manifest.TOKENIZER}: its digest is {digest}, the manifest's {found['tokenizer']['digest']}"
        )


def _check_statistics(
    output: str,
    total: Statistics,
    entries: Sequence[LedgerEntry],
    shards: Sequence[ShardEntry] | None,
    report: VerifyReport,
) -> None:
    """Checks token_counts.parquet and stats.json against the statistics of all splits."""
    try:
        with storage.open_read(storage.join(output, manifest.TOKEN_COUNTS)) as handle:
            table = open_parquet(handle).read(use_threads=False).cast(TOKEN_COUNTS)
        counts = table.column("count").to_numpy()
        if not np.array_equal(counts, total.token_counts):
            report.problems.append(
                f"{manifest.TOKEN_COUNTS}: {len(counts)} counts of {counts.sum()} tokens, the splits' statistics have "
                f"{total.token_counts.size} of {total.token_counts.sum()}"
            )
            return
        with storage.open_read(storage.join(output, manifest.STATS)) as handle:
            said = handle.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        report.problems.append(str(error))
        return
    vocabulary = _Tokens(table.column("token").to_pylist())
    if said != ledger.to_json(summarize(total, vocabulary, add_up(entries, shards).get("packing"))):
        report.problems.append(f"{manifest.STATS}: not the summary of the splits' statistics")


@dataclass(frozen=True)
class _Tokens:
    tokens: list[str]

    def id_to_token(self, token_id: int, /) -> str:
        return self.tokens[token_id]
