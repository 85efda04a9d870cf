# SPDX-License-Identifier: Apache-2.0
"""Proves a manifest: reads everything in an output folder again and counts it again, trusting no recorded number.

Of an output in parts it proves each folder by itself, then `parts.json`, which sums them up.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger, parts
from tokenmill.pipeline.books.job_books import imbalances
from tokenmill.pipeline.books.job_record import differences, read_job
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry, ShardEntry
from tokenmill.pipeline.books.lists import SCHEMAS, files_of_lists
from tokenmill.pipeline.books.manifest import check_folder, results, split_ids, sums
from tokenmill.pipeline.books.manifest import digest as digest_of
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.filenames import PARTS
from tokenmill.pipeline.jobs.finish import Totals
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.placement import Marks
from tokenmill.pipeline.proving.report import VerifyReport, check_file
from tokenmill.pipeline.proving.shards import check_rejects, compare_counts, count_files
from tokenmill.pipeline.running.in_turn import in_turn
from tokenmill.pipeline.statistics.tally import Statistics, disagreements
from tokenmill.pipeline.statistics.vocabulary import read_token_counts, token_counts
from tokenmill.tokenizer import UNICODE_VERSIONS, Tokenizer


def verify(output: str) -> VerifyReport:
    """Checks a finished output folder against its manifest; of an output in parts each folder, and then their sums.

    It proves:

    - the size and sha256 of every file, and the digest of the manifest, which early ones lack;
    - the rows, tokens and unknown tokens of every shard, counted again, and that every id is in the vocabulary;
    - the framing and checksums of TFRecord, and the rejects by reason;
    - that ledger entries balance, agree with their shards and add up to the totals;
    - the statistics, the tokenizer, and the count and kind of each entry of the vocabulary;
    - that there is no other shard among these;
    - for a job that shuffles: that keys ascend throughout, that every document has its key, and that the documents of
      all shards are those of all splits.

    Reads shards in as many threads as there are processors, each in bounded memory.

    Raises:
      OSError: if there is no such folder, or it cannot be read at all.
    """
    check_folder(output)
    if parts.is_in_parts(output):
        return _checked(output, PARTS, _check_parts)
    return _checked(output, filenames.MANIFEST, _check_folder)


def _checked(output: str, name: str, check: Callable[[str, VerifyReport], None]) -> VerifyReport:
    """Returns what `check` reports of a folder, and whether its file `name` can be used."""
    report = VerifyReport()
    try:
        check(output, report)
    except (ValueError, FileNotFoundError) as error:
        report.problems.append(str(error))
    except (KeyError, TypeError, AttributeError) as error:
        report.problems.append(f"{name}: not as TokenMill writes it: {error!r}")
    return report


def _check_folder(output: str, report: VerifyReport) -> None:
    manifest = read_manifest(output)
    report.has_digest = "digest" in manifest
    if report.has_digest and manifest["digest"] != (digest := digest_of(manifest)):
        report.problems.append(
            f"{filenames.MANIFEST}: changed since the job wrote it: its digest is {manifest['digest']}, that of its "
            f"contents {digest}"
        )
    for record in manifest["files"]:
        check_file(output, FileRecord(**record), report)
    if not all(check_file(output, file, report) for file in files_of_lists(manifest)):
        return  # the lists are not those of the job, so nothing can be compared with them
    listed = results(manifest)
    strays = (name for name in folders.result_files(output) if name not in listed)
    report.problems += [f"{name}: is among the results, but the manifest does not list it" for name in strays]
    tokenizer = _check_tokenizer(output, manifest, report)
    totals = _count_again(output, manifest, report)
    if totals is not None:
        compare_sums(manifest, totals, report)
    if totals is not None and totals.totals["n_splits"]:
        _check_statistics(output, totals, tokenizer, report)


def _count_again(output: str, manifest: Mapping[str, Any], report: VerifyReport) -> Totals | None:
    """Adds up the ledger as the last step of the job did, and checks all files that it names.

    Args:
      output: the folder.
      manifest: its manifest, with which the lists are compared.
      report: problems are added to it.

    Returns:
      The totals; None if a part of the ledger cannot be used.
    """
    of = manifest["tokenizer"] or {}
    listed = ListedAgain(manifest)
    tokens = Statistics(of.get("vocab_size") or 0, of.get("unk_id"))
    totals = Totals(
        output, listed, tokens, is_shuffled=manifest["shuffle"] is not None, is_whole="replay_of" not in manifest
    )
    is_complete = True

    def splits() -> Iterator[LedgerEntry]:
        nonlocal is_complete
        for split_id in split_ids(manifest):
            if (entry := LedgerEntry.read(output, split_id)) is None:
                is_complete = False
                report.problems.append(f"{filenames.entry_name(split_id)}: missing, or not a ledger entry")
                continue
            totals.add(entry)
            yield entry

    for checked, recorded in in_turn(functools.partial(_check_split, output, manifest), splits()):
        report.merge(checked)
        if recorded is None:
            is_complete = False
        else:
            totals.statistics.merge(recorded)
    totals.close()
    if manifest["shuffle"] is not None:
        is_complete = _check_shards(output, manifest, totals, report) and is_complete
    if not is_complete:  # nothing can be compared with the lists, but with what they say
        for record in (each for kind in _FILES for each in manifest[kind]):
            check_file(output, _file_record(record), report)
        return None
    report.problems += listed.problems()
    return totals


_FILES = "shards", "companions", "documents", "rejects"
"""The lists of files."""


def _check_shards(output: str, manifest: Mapping[str, Any], totals: Totals, report: VerifyReport) -> bool:
    """Checks the shards of a shuffle; they must have the tokens of the splits. Returns whether all can be read."""
    recorded = totals.statistics
    tokens = Statistics(recorded.token_counts.size, manifest["tokenizer"]["unk_id"])
    n_shards, n_counted, n_read = len(manifest["shards"]), 0, 0

    def shards() -> Iterator[ShardEntry]:
        nonlocal n_read
        for index, shard_id in enumerate(record["entry"] for record in manifest["shards"]):
            name = filenames.entry_name(shard_id)
            if (entry := ShardEntry.read(output, shard_id)) is None:
                report.problems.append(f"{name}: missing, or not a ledger entry")
                continue
            if (entry.index, entry.n_shards) != (index, n_shards):
                place = f"{index} of {n_shards}"
                report.problems.append(f"{name}: shard {entry.index} of {entry.n_shards} stands where {place} belongs")
            totals.add_shard(entry)
            n_read += 1
            yield entry

    for checked, entry, counts in in_turn(functools.partial(_check_shard, output, manifest), shards()):
        report.merge(checked)
        if counts and counts[0][0] is entry.shard:
            tokens.merge(counts[0][1])
            n_counted += 1
    if n_counted == n_shards:
        for what in ("token_counts", "length_counts"):
            ours, theirs = getattr(tokens, what), getattr(recorded, what)
            if wrong := np.flatnonzero(ours != theirs).tolist():
                i = wrong[0]
                report.problems.append(f"the shards have {ours[i]} in {what}[{i}], the splits {theirs[i]}")
    return n_read == n_shards


class ListedAgain:
    """The lists of a manifest, compared with the same lists made again, record by record."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        """Takes the manifest."""
        self._records = {kind: iter(manifest[kind]) for kind in SCHEMAS}
        self._numbers = Counter[str]()
        self._problems: list[str] = []

    def take(self, kind: str, record: Mapping[str, Any]) -> None:
        """Compares the next record of a list."""
        self._compare(kind, record, next(self._records[kind], None))

    def problems(self) -> list[str]:
        """Returns what differs, after all was taken."""
        for kind, records in self._records.items():
            if (record := next(records, None)) is not None:
                self._compare(kind, None, record)
        return self._problems

    def _compare(self, kind: str, ours: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None) -> None:
        if ours != theirs and len(self._problems) < _MOST_LISTED:
            where = f"{filenames.MANIFEST}: {kind}[{self._numbers[kind]}]"
            self._problems.append(f"{where} is {theirs}, the ledger has {ours}")
        self._numbers[kind] += 1


_MOST_LISTED = 1000
"""A report lists at most this many records of lists that differ."""


def compare_sums(manifest: Mapping[str, Any], totals: Totals, report: VerifyReport) -> None:
    """Compares what the manifest says of the whole job with what its ledger adds up to."""
    try:
        summed = sums(totals)
    except BooksError as error:
        report.problems += str(error).splitlines()
        return
    there = {name: manifest[name] for name in ("shuffle", "totals", "by_source", "balance") if name in manifest}
    report.problems += [f"{filenames.MANIFEST}: {line}" for line in differences(there, summed)]


def _file_record(listed: Mapping[str, Any]) -> FileRecord:
    return FileRecord(**{name: value for name, value in listed.items() if name not in ("split", "entry")})


def _check_split(
    output: str, manifest: Mapping[str, Any], entry: LedgerEntry
) -> tuple[VerifyReport, Statistics | None]:
    """Returns what is wrong with a split, and its statistics if they can be used."""
    report = VerifyReport()
    tokenizer = manifest["tokenizer"]
    recorded = None
    if check_file(output, entry.statistics, report):
        try:
            with storage.open_read(storage.join(output, entry.statistics.file)) as handle:
                recorded = Statistics.from_bytes(handle.read(), tokenizer["unk_id"])
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
    marks, has_windows = Marks.from_record(manifest["marks"]), "windows" in manifest["totals"]
    for what, n, n_each in (
        ("special", entry["n_special_tokens"], 0 if has_windows else marks.n_special),
        ("added", entry["n_added_tokens"], marks.n_added),
    ):
        if n != n_each * entry.n_documents:
            name = filenames.entry_name(entry.split_id)
            report.problems.append(f"{name}: {n} {what} tokens, {n_each} for each of {entry.n_documents} documents")
    if entry.rejects is not None and check_file(output, entry.rejects, report):
        check_rejects(output, entry, entry.rejects, report)
    if entry.runs is None:  # otherwise its runs were merged into the shards and removed
        for file, counted in count_files(output, entry, manifest, report):
            if recorded is not None:
                compare_counts(entry, file, counted, recorded, report)
    return report, recorded


def _check_shard(
    output: str, manifest: Mapping[str, Any], entry: ShardEntry
) -> tuple[VerifyReport, ShardEntry, list[tuple[FileRecord, Statistics]]]:
    """Returns the problems of a shard of a shuffle, its entry, and the statistics of each of its files."""
    report = VerifyReport()
    report.problems += imbalances(entry)
    if entry.tokenizer != manifest["tokenizer"]["digest"]:
        name = filenames.entry_name(entry.shard_id)
        report.problems.append(
            f"{name}: made by tokenizer {entry.tokenizer}, but the manifest's is {manifest['tokenizer']['digest']}"
        )
    if not check_file(output, entry.keys, report):
        return report, entry, []
    return report, entry, list(count_files(output, entry, manifest, report))


def _check_tokenizer(output: str, manifest: Mapping[str, Any], report: VerifyReport) -> Tokenizer | None:
    """Returns the tokenizer if it is the one that made the tokens; None if it is not, or that cannot be told."""
    listed = any(record["file"] == filenames.TOKENIZER for record in manifest["files"])
    # A digest covers the Unicode versions; another TokenMill may have others and still read this folder.
    if not listed or manifest["tokenizer"] is None or manifest["unicode"] != dict(UNICODE_VERSIONS):
        return None
    if _are_missing(output, (filenames.TOKENIZER,), report):
        return None
    try:
        tokenizer = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER)))
    except (OSError, ValueError) as error:
        report.problems.append(f"{filenames.TOKENIZER}: {error}")
        return None
    if tokenizer.digest != manifest["tokenizer"]["digest"]:
        report.problems.append(
            f"{filenames.TOKENIZER}: its digest is {tokenizer.digest}, the manifest's {manifest['tokenizer']['digest']}"
        )
        return None
    return tokenizer


def _are_missing(output: str, names: Iterable[str], report: VerifyReport) -> bool:
    """Returns whether one of these files is missing, which is one problem, also if the manifest lists it."""
    missing = [f"{name}: missing" for name in names if not storage.exists(storage.join(output, name))]
    report.problems += (problem for problem in missing if problem not in report.problems)
    return bool(missing)


def _check_statistics(output: str, totals: Totals, tokenizer: Tokenizer | None, report: VerifyReport) -> None:
    """Checks token_counts.parquet and stats.json against the sums of the ledger."""
    total = totals.statistics
    if _are_missing(output, (filenames.TOKEN_COUNTS, filenames.STATS), report):
        return
    try:
        table = read_token_counts(output)
        counts = table.column("count").to_numpy()
        if not np.array_equal(counts, total.token_counts):
            report.problems.append(
                f"{filenames.TOKEN_COUNTS}: {len(counts)} counts of {counts.sum()} tokens, the splits' statistics have "
                f"{total.token_counts.size} of {total.token_counts.sum()}"
            )
            return
        if tokenizer is not None and (wrong := _differing(table, token_counts(total.token_counts, tokenizer))):
            report.problems.append(f"{filenames.TOKEN_COUNTS}: {wrong}")
        with storage.open_read(storage.join(output, filenames.STATS)) as handle:
            stored = handle.read()
    except (OSError, ValueError) as error:
        report.problems.append(str(error))
        return
    summary = totals.summarize(table)
    n_trained = summary["chat"]["trained_tokens"] if "chat" in summary else 0
    if report.n_trained != n_trained:
        report.problems.append(f"rows train {report.n_trained} tokens, the ledger says {n_trained}")
    if stored != ledger.to_json(summary):
        report.problems.append(f"{filenames.STATS}: not the summary of the splits' statistics")


def _differing(table: pa.Table, expected: pa.Table) -> str | None:
    """Returns how the first wrong row of token counts differs from the vocabulary; None if there is none."""
    if table.equals(expected):
        return None
    pairs = zip(table.to_pylist(), expected.to_pylist(), strict=True)
    return next(f"has {ours}, the vocabulary says {theirs}" for ours, theirs in pairs if ours != theirs)


def _check_parts(output: str, report: VerifyReport) -> None:
    """Checks all folders of an output in parts, and that together they have every record once."""
    found = parts.read(output)
    record = read_job(output)
    files = [FileRecord(**each) for each in found["files"]]
    manifests = {part["folder"]: FileRecord(**part["manifest"]) for part in found["parts"]}
    for file in files:
        check_file(output, file, report)
    for name, file in manifests.items():
        check_file(output, file, report)
        proven = _checked(storage.join(output, name), filenames.MANIFEST, _check_folder)
        proven.problems = [f"{name}/{problem}" for problem in proven.problems]
        report.merge(proven)
    if record is None:
        report.problems.append(f"{output!r} has no record of its job")
    elif report.is_proven:
        job, _ = record
        read = {
            name: (file, read_manifest(storage.join(output, name)))
            for name, file in manifests.items()
            if name in job.parts["folders"]
        }
        again = parts.build(job, read, files)
        report.problems += [f"{PARTS}: {line}" for line in differences(found, again)]
