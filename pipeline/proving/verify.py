# SPDX-License-Identifier: Apache-2.0
"""Proves a manifest: reads everything in an output folder again and counts it again, trusting no recorded number.

Of an output in parts it proves each folder by itself, then `parts.json`, which sums them up.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger, parts
from tokenmill.pipeline.books.job_books import imbalances
from tokenmill.pipeline.books.job_record import differences, read_job
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry, ShardEntry, Written
from tokenmill.pipeline.books.lists import SCHEMAS, files_of_lists
from tokenmill.pipeline.books.manifest import check_folder, results, split_ids, sums
from tokenmill.pipeline.books.manifest import digest as digest_of
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.filenames import PARTS
from tokenmill.pipeline.isolating import in_turn
from tokenmill.pipeline.jobs.finish import Totals
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.placement import Marks
from tokenmill.pipeline.proving.report import VerifyReport, check_file
from tokenmill.pipeline.proving.shards import check_rejects, count_files
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
    try:
        job = read_job(output)
    except ValueError as error:
        report.problems.append(str(error))
    else:
        if job is not None and job[0].digest != manifest["job_digest"]:
            there, here = job[0].digest, manifest["job_digest"]
            report.problems.append(f"{filenames.JOB}: the record of another job: {there}, the manifest's is {here}")
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
    of, is_shuffled = manifest["tokenizer"] or {}, manifest["shuffle"] is not None
    listed = ListedAgain(manifest)
    recorded, counted = (Statistics(of.get("vocab_size") or 0, of.get("unk_id")) for _ in range(2))
    totals = Totals(output, listed, recorded, is_shuffled=is_shuffled, is_whole="replay_of" not in manifest)
    n_wanted = n_usable = n_counted = 0

    def entries(kind: Any, ids: Iterable[str], add: Callable[[Any], None]) -> Iterator[Written]:
        nonlocal n_wanted
        for entry_id in ids:
            n_wanted += 1
            if (entry := kind.read(output, entry_id)) is None:
                report.problems.append(f"{filenames.entry_name(entry_id)}: missing, or not a ledger entry")
            else:
                add(entry)
                yield entry

    check = functools.partial(_check_entry, output, manifest)
    for checked in in_turn(check, entries(LedgerEntry, split_ids(manifest), totals.add)):
        report.merge(checked.report)
        if checked.recorded is not None:
            n_usable += 1
            recorded.merge(checked.recorded)
    totals.close()
    shards = [record["entry"] for record in manifest["shards"]] if is_shuffled else []
    for checked in in_turn(check, entries(ShardEntry, shards, totals.add_shard)):
        report.merge(checked.report)
        n_usable += 1
        of_shard = checked.entry
        assert isinstance(of_shard, ShardEntry)
        if len(shards) != of_shard.n_shards or shards[of_shard.index] != of_shard.shard_id:
            place = f"{shards.index(of_shard.shard_id)} of {len(shards)}"
            problem = f"shard {of_shard.index} of {of_shard.n_shards} stands where {place} belongs"
            report.problems.append(f"{filenames.entry_name(of_shard.shard_id)}: {problem}")
        if checked.counted is not None:
            n_counted += 1
            counted.merge(checked.counted)
    if is_shuffled and n_counted == len(shards):  # all documents of the splits must be there
        report.problems += _differences("the shards", counted, "the splits have", recorded)
    if n_usable < n_wanted:  # nothing can be compared with the lists, but with what they say
        for record in (each for kind in _FILES for each in manifest[kind]):
            check_file(output, _file_record(record), report)
        return None
    report.problems += listed.problems()
    return totals


_FILES = "shards", "companions", "documents", "rejects"
"""The lists of files."""


class ListedAgain:
    """The lists of a manifest, compared with the same lists made again, record by record."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        """Takes the manifest."""
        nothing = itertools.repeat(None)
        self._records = {kind: enumerate(itertools.chain(manifest[kind], nothing)) for kind in SCHEMAS}
        self._problems: list[str] = []

    def take(self, kind: str, record: Mapping[str, Any]) -> None:
        """Compares the next record of a list."""
        self._compare(kind, record)

    def problems(self) -> list[str]:
        """Returns what differs, after all was taken."""
        for kind in self._records:
            self._compare(kind, None)
        return self._problems

    def _compare(self, kind: str, ours: Mapping[str, Any] | None) -> None:
        number, theirs = next(self._records[kind])
        if ours != theirs and len(self._problems) < _MOST_LISTED:
            self._problems.append(f"{filenames.MANIFEST}: {kind}[{number}] is {theirs}, the ledger has {ours}")


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


class _Checked(NamedTuple):
    report: VerifyReport
    entry: Written
    recorded: Statistics | None = None
    """The statistics of a split, if they can be used."""
    counted: Statistics | None = None
    """What the first file of a merged shard has, if it could be read."""


def _check_entry(output: str, manifest: Mapping[str, Any], entry: Written) -> _Checked:
    """Returns what is wrong with a split or a merged shard, and what was recorded or counted of its tokens."""
    report, digest = VerifyReport(), manifest["tokenizer"]["digest"]
    name = filenames.entry_name(entry.shard_id if isinstance(entry, ShardEntry) else entry.split_id)
    recorded = None if isinstance(entry, ShardEntry) else _recorded(output, manifest["tokenizer"], entry, report)
    report.problems += imbalances(entry)
    if entry.tokenizer != digest:
        report.problems.append(f"{name}: made by tokenizer {entry.tokenizer}, but the manifest's is {digest}")
    if isinstance(entry, ShardEntry):
        whole = check_file(output, entry.keys, report)
        counted = dict(count_files(output, entry, manifest, report)) if whole else {}
        return _Checked(report, entry, counted=counted.get(entry.shard))
    report.problems += disagreements(entry, recorded) if recorded is not None else ()
    marks, has_windows = Marks.from_record(manifest["marks"]), "windows" in manifest["totals"]
    for what, n_each in ("special", 0 if has_windows else marks.n_special), ("added", marks.n_added):
        if (n := entry[f"n_{what}_tokens"]) != n_each * entry.n_documents:
            report.problems.append(f"{name}: {n} {what} tokens, {n_each} for each of {entry.n_documents} documents")
    if entry.rejects is not None and check_file(output, entry.rejects, report):
        check_rejects(output, entry, entry.rejects, report)
    if entry.runs is None:  # otherwise its runs were merged into the shards and removed
        for file, counted_again in count_files(output, entry, manifest, report):
            if recorded is not None:
                lines = _differences(entry.statistics.file, recorded, f"{file.file} has", counted_again)
                report.problems += lines
    return _Checked(report, entry, recorded)


def _recorded(output: str, tokenizer: Mapping[str, Any], entry: LedgerEntry, report: VerifyReport) -> Statistics | None:
    """Returns the statistics of a split, if they can be used."""
    name = entry.statistics.file
    if not check_file(output, entry.statistics, report):
        return None
    try:
        with storage.open_read(storage.join(output, name)) as handle:
            recorded = Statistics.from_bytes(handle.read(), tokenizer["unk_id"])
    except ValueError as error:
        report.problems.append(f"{name}: {error}")
        return None
    if (n := recorded.token_counts.size) != tokenizer["vocab_size"]:
        report.problems.append(f"{name}: {n} counts for {tokenizer['vocab_size']} tokens")
        return None
    return recorded


def _differences(one: str, ours: Statistics, other: str, theirs: Statistics) -> Iterator[str]:
    """Yields a line for each of the counts of tokens and of lengths that differ, with the first number that does."""
    for what in ("token_counts", "length_counts"):
        mine, others = getattr(ours, what), getattr(theirs, what)
        for i in np.flatnonzero(mine != others)[:1].tolist():
            yield f"{one}: {what}[{i}] is {mine[i]}, {other} {others[i]}"


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
