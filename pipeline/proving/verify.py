# SPDX-License-Identifier: Apache-2.0
"""Proves a manifest: reads everything in an output folder again and counts it again, trusting no recorded number."""

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pipeline import filenames, storage
from pipeline.books import ledger, manifest, quantities
from pipeline.books.equations import imbalances
from pipeline.books.job_sums import add_up, check_inputs, identities
from pipeline.books.ledger import FileRecord, LedgerEntry
from pipeline.books.shard_entry import ShardEntry, read_shard_entry
from pipeline.output import folders
from pipeline.output.packing.marks import Marks
from pipeline.output.writers import formats
from pipeline.parquet_file import open_parquet
from pipeline.proving.report import VerifyReport, check_file
from pipeline.proving.shards import check_rejects, compare_counts, count_files
from pipeline.proving.shuffle import check_shards
from pipeline.reporting.stats import summarize
from pipeline.statistics.agreement import disagreements
from pipeline.statistics.tally import Statistics
from pipeline.statistics.token_table import TOKEN_COUNTS
from tokenizer import UNICODE_VERSIONS, Tokenizer

_Entry = TypeVar("_Entry", LedgerEntry, ShardEntry)

_AT_A_TIME = 64
"""Splits whose statistics may wait to be added up; for a large vocabulary they have 2 MB each."""


def verify(output: str) -> VerifyReport:
    """Checks a finished output folder against its manifest.

    It proves:

    - the size and sha256 of every file;
    - the rows, tokens and unknown tokens of every shard, counted again, and that every id is in the vocabulary;
    - the framing and checksums of TFRecord, and the rejects by reason;
    - that ledger entries balance, agree with their shards and add up to the totals;
    - the statistics and token counts, and the tokenizer;
    - that no other shard lies among these;
    - for a job that shuffles: that keys ascend throughout, that every document has its key, and that the documents of
      all shards are those of all splits.

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
        report.problems.append(f"{filenames.MANIFEST}: not as TokenMill writes it: {error!r}")
    return report


def _check_folder(output: str, found: Mapping[str, Any], report: VerifyReport) -> None:
    for record in found["files"]:
        check_file(output, FileRecord(**record), report)
    _check_stray_files(output, found, report)

    entries, shards = _read_entries(output, found, report)
    total: Statistics | None = None
    is_counted = bool(entries)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        # In the order of splits, some at a time, and added up as they come: the statistics of all would be large.
        groups = (entries[start : start + _AT_A_TIME] for start in range(0, len(entries), _AT_A_TIME))
        check = functools.partial(_check_split, output, found=found)
        for part, recorded in itertools.chain.from_iterable(pool.map(check, group) for group in groups):
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
    """Returns the entries of all splits and, if the job shuffles, of all shards; compares them with the manifest."""
    rejects = {record["split"]: record for record in found["rejects"]}
    listed: dict[str, list[Mapping[str, Any]]] = {}
    for record in (*found["shards"], *found["companions"], *found["documents"]):
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
            files = (written[entry_id].shard, *written[entry_id].companions, written[entry_id].documents)
            report.problems += _differences(entry_id, files, records)
        else:
            for record in records:
                check_file(output, _file_record(record), report)
    report.problems += [
        f"{record['file']}: listed, but its split {split} has no shard" for split, record in rejects.items()
    ]
    return entries, shards


def _found(entry: _Entry | None, entry_id: str, report: VerifyReport) -> _Entry | None:
    if entry is None:
        report.problems.append(f"{filenames.entry_name(entry_id)}: missing, or not a ledger entry")
    return entry


def _check_stray_files(output: str, found: Mapping[str, Any], report: VerifyReport) -> None:
    listed = {record["file"] for kind in ("shards", "companions", "documents", "rejects") for record in found[kind]}
    listed |= {
        name(split) for split in manifest.split_ids(found) for name in (filenames.entry_name, filenames.statistics_name)
    }
    listed |= manifest.shard_files(found)
    strays = [name for name in folders.result_files(output) if name not in listed]
    report.problems += [f"{name}: lies among the results, but the manifest does not list it" for name in strays]


def _file_record(listed: Mapping[str, Any]) -> FileRecord:
    return FileRecord(**{name: value for name, value in listed.items() if name not in ("split", "entry")})


def _differences(
    entry_id: str, files: Sequence[FileRecord | None], listed: Sequence[Mapping[str, Any] | None]
) -> list[str]:
    """Returns where the ledger and the manifest disagree about the files of a split or a shard."""
    records = [_file_record(each) if each else None for each in listed]
    return [
        f"{filenames.entry_name(entry_id)}: records {ours}, the manifest {theirs}"
        for ours, theirs in itertools.zip_longest(files, records)
        if ours != theirs
    ]


def _check_split(output: str, entry: LedgerEntry, found: Mapping[str, Any]) -> tuple[VerifyReport, Statistics | None]:
    """Returns what is wrong with a split of the manifest `found`, and the split's statistics if they can be used."""
    report = VerifyReport()
    tokenizer = found["tokenizer"]
    recorded = None
    if check_file(output, entry.statistics, report):
        try:
            with storage.open_read(storage.join(output, entry.statistics.file)) as handle:
                recorded = Statistics.from_bytes(handle.read())
        except ValueError as error:
            report.problems.append(f"{entry.statistics.file}: {error}")
    if recorded is not None and recorded.token_counts.size != tokenizer["vocab_size"]:
        n_counts = recorded.token_counts.size
        report.problems.append(f"{entry.statistics.file}: {n_counts} counts for {tokenizer['vocab_size']} tokens")
        recorded = None
    report.problems += [*imbalances(entry), *(disagreements(entry, recorded) if recorded is not None else ())]
    if entry.tokenizer != tokenizer["digest"]:
        name = filenames.entry_name(entry.split_id)
        difference = f"made by tokenizer {entry.tokenizer}, but the manifest's is {tokenizer['digest']}"
        report.problems.append(f"{name}: {difference}")
    marks, has_windows = Marks.from_record(found["marks"]), "windows" in found["totals"]
    for what, n, n_each in (
        ("special", entry.n_special_tokens, 0 if has_windows else marks.n_special),
        ("added", entry.n_added_tokens, marks.n_added),
    ):
        if n != n_each * entry.n_documents:
            name = filenames.entry_name(entry.split_id)
            report.problems.append(f"{name}: {n} {what} tokens, {n_each} for each of {entry.n_documents} documents")
    if entry.rejects is not None and check_file(output, entry.rejects, report):
        check_rejects(output, entry, entry.rejects, report)
    if entry.runs is None:  # else what it wrote has become a part of every shard
        for file, counted in count_files(output, entry, found, report):
            if recorded is not None:
                compare_counts(entry, file, counted, recorded, report)
    return report, recorded


def _check_shard(
    output: str, entry: ShardEntry, found: Mapping[str, Any]
) -> tuple[VerifyReport, ShardEntry, list[tuple[FileRecord, Statistics]]]:
    """Returns what is wrong with a shard of a shuffle, and what its files were found to hold."""
    report = VerifyReport()
    report.problems += entry.imbalances()
    if entry.tokenizer != found["tokenizer"]["digest"]:
        name = filenames.entry_name(entry.shard_id)
        report.problems.append(
            f"{name}: made by tokenizer {entry.tokenizer}, but the manifest's is {found['tokenizer']['digest']}"
        )
    if not check_file(output, entry.keys, report):
        return report, entry, []
    return report, entry, list(count_files(output, entry, found, report))


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
    has_lengths = found["packing"] is None or formats.keeps_padding(file)
    for what in ("token_counts", "length_counts") if has_lengths else ("token_counts",):
        ours, theirs = getattr(total, what), getattr(recorded, what)
        if wrong := np.flatnonzero(ours != theirs).tolist():
            report.problems.append(
                f"the shards have {ours[wrong[0]]} in {what}[{wrong[0]}], the splits {theirs[wrong[0]]}"
            )


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
            report.problems.append(f"{filenames.MANIFEST}: total {name} is {theirs}, the ledger adds up to {ours}")
    if entries:
        pairs = itertools.zip_longest(found["inputs"], manifest.inputs(entries))
        report.problems += [
            f"{filenames.MANIFEST}: input {i} is {said}, the ledger has {read}"
            for i, (said, read) in enumerate(pairs)
            if said != read
        ]
    checks: tuple[Callable[[], None], ...] = (
        lambda: _check_identities(found),
        lambda: check_inputs(entries, is_whole="replay_of" not in found),
    )
    for check in checks:
        try:
            check()
        except quantities.BooksError as error:
            report.problems += str(error).splitlines()


def _check_identities(found: Mapping[str, Any]) -> None:
    if found["balance"] != identities(found["totals"]):
        raise quantities.BooksError(f"{filenames.MANIFEST}: balance does not have the numbers of totals")


def _check_tokenizer(output: str, found: Mapping[str, Any], report: VerifyReport) -> None:
    listed = any(record["file"] == filenames.TOKENIZER for record in found["files"])
    # A digest covers the Unicode versions; another TokenMill may have others and still read this folder.
    if not listed or found["tokenizer"] is None or found["unicode"] != dict(UNICODE_VERSIONS):
        return
    try:
        digest = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER))).digest
    except (OSError, ValueError) as error:
        report.problems.append(f"{filenames.TOKENIZER}: {error}")
        return
    if digest != found["tokenizer"]["digest"]:
        report.problems.append(
            f"{filenames.TOKENIZER}: its digest is {digest}, the manifest's {found['tokenizer']['digest']}"
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
        with storage.open_read(storage.join(output, filenames.TOKEN_COUNTS)) as handle:
            table = open_parquet(handle).read(use_threads=False).cast(TOKEN_COUNTS)
        counts = table.column("count").to_numpy()
        if not np.array_equal(counts, total.token_counts):
            report.problems.append(
                f"{filenames.TOKEN_COUNTS}: {len(counts)} counts of {counts.sum()} tokens, the splits' statistics have "
                f"{total.token_counts.size} of {total.token_counts.sum()}"
            )
            return
        with storage.open_read(storage.join(output, filenames.STATS)) as handle:
            said = handle.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        report.problems.append(str(error))
        return
    sums = add_up(entries, shards)
    if said != ledger.to_json(summarize(total, table, sums.get("packing"), sums.get("windows"))):
        report.problems.append(f"{filenames.STATS}: not the summary of the splits' statistics")
