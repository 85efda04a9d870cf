# SPDX-License-Identifier: Apache-2.0
"""Proves a manifest: reads everything in an output folder again and counts it again, trusting no recorded number.

Of an output in parts it proves each folder by itself, then `parts.json`, which sums them up.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger, manifest, parts, quantities
from tokenmill.pipeline.books.job_books import JobBooks, identities, imbalances
from tokenmill.pipeline.books.job_record import differences, read_job
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry
from tokenmill.pipeline.books.lists import SCHEMAS, files_of_lists
from tokenmill.pipeline.books.shard_entry import ShardEntry, imbalance_of_sums
from tokenmill.pipeline.filenames import PARTS
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.marks import Marks
from tokenmill.pipeline.proving.report import VerifyReport, check_file
from tokenmill.pipeline.proving.shards import check_rejects, compare_counts, count_files
from tokenmill.pipeline.reporting.stats import summarize
from tokenmill.pipeline.running.in_turn import in_turn
from tokenmill.pipeline.statistics import token_table
from tokenmill.pipeline.statistics.tally import Statistics, disagreements
from tokenmill.pipeline.statistics.token_table import token_counts
from tokenmill.tokenizer import UNICODE_VERSIONS, Tokenizer


def verify(output: str) -> VerifyReport:
    """Checks a finished output folder against its manifest.

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
    report.has_digest = "digest" in found
    if report.has_digest and found["digest"] != (digest := manifest.digest(found)):
        report.problems.append(
            f"{filenames.MANIFEST}: changed since the job wrote it: its digest is {found['digest']}, that of its "
            f"contents {digest}"
        )
    for record in found["files"]:
        check_file(output, FileRecord(**record), report)
    if not all(check_file(output, file, report) for file in files_of_lists(found)):
        return  # the lists are not those of the job, so nothing can be compared with them
    listed = manifest.results(found)
    strays = (name for name in folders.result_files(output) if name not in listed)
    report.problems += [f"{name}: is among the results, but the manifest does not list it" for name in strays]
    proof = LedgerProof(output, found, report)
    total = proof.check_splits()
    if found["shuffle"] is not None:
        proof.check_shards(total)
    proof.check_totals()
    tokenizer = _check_tokenizer(output, found, report)
    if total is not None:
        _check_statistics(output, total, tokenizer, proof.books, report)


class LedgerProof:
    """Reads the ledger entry by entry, adds it up again, and compares it with the lists of the manifest."""

    def __init__(self, output: str, found: Mapping[str, Any], report: VerifyReport) -> None:
        self._output, self._found, self._report = output, found, report
        self._taken: dict[str, list[dict[str, Any]]] = {kind: [] for kind in SCHEMAS}
        self._inputs = enumerate(found["inputs"])
        self._listed = {kind: _Listed(found[kind]) for kind in SCHEMAS if kind != "inputs"}
        self._are_all_read = True
        is_shuffled, is_whole = found["shuffle"] is not None, "replay_of" not in found
        self.books = JobBooks(
            lambda kind, record: self._taken[kind].append(record), is_shuffled=is_shuffled, is_whole=is_whole
        )

    def check_splits(self) -> Statistics | None:
        """Checks all splits in the order of the plan; returns their statistics, None if some cannot be used."""
        total: Statistics | None = None
        is_counted = True
        for part, recorded in in_turn(functools.partial(_check_split, self._output, self._found), self.splits()):
            self._report.merge(part)
            if recorded is None:
                is_counted = False
            else:
                total = recorded if total is None else total.merge(recorded)
        return total if is_counted and self._are_all_read else None

    def check_shards(self, recorded: Statistics | None) -> None:
        """Checks the shards of a shuffle in their order; together they must have what the splits had."""
        found, problems = self._found, self._report.problems
        total = Statistics(found["tokenizer"]["vocab_size"], found["tokenizer"]["unk_id"])
        n_counted = 0
        for part, entry, counts in in_turn(functools.partial(_check_shard, self._output, found), self._shards()):
            self._report.merge(part)
            if counts and counts[0][0] is entry.shard:
                total.merge(counts[0][1])
                n_counted += 1
        problems += imbalance_of_sums(self.books.sorted, self.books.merged)
        if found["shuffle"]["sums"] != self.books.merged.to_record():
            problems.append(
                f"the manifest's sums of the shuffle are {found['shuffle']['sums']}, not those of the shards"
            )
        if recorded is None or n_counted != len(found["shards"]):
            return
        for what in ("token_counts", "length_counts"):
            ours, theirs = getattr(total, what), getattr(recorded, what)
            if wrong := np.flatnonzero(ours != theirs).tolist():
                problems.append(
                    f"the shards have {ours[wrong[0]]} in {what}[{wrong[0]}], the splits {theirs[wrong[0]]}"
                )

    def check_totals(self) -> None:
        """Checks the totals of the manifest, and that its lists have nothing that the ledger lacks."""
        problems, said = self._report.problems, self._found["totals"]
        for listed in self._listed.values():
            problems += [
                f"{record['file']}: listed, but no entry of the ledger that is listed has it"
                for record in listed.rest()
            ]
        if self._are_all_read:
            problems += [f"{filenames.MANIFEST}: input {i} is {file}, the ledger has None" for i, file in self._inputs]
        for name in sorted({*self.books.totals, *said}):
            ours, theirs = self.books.totals.get(name), said.get(name)
            if ours != theirs:
                problems.append(f"{filenames.MANIFEST}: total {name} is {theirs}, the ledger adds up to {ours}")
        if self._found.get("by_source", {}) != self.books.by_source:
            problems.append(f"{filenames.MANIFEST}: by_source does not have the sums of the ledger")
        try:
            if self._found["balance"] != identities(said):
                problems.append(f"{filenames.MANIFEST}: balance does not have the numbers of totals")
        except quantities.BooksError as error:
            problems += str(error).splitlines()
        problems += self.books.problems

    def splits(self) -> Iterator[LedgerEntry]:
        """Yields the entries of all splits in the order of the plan, after comparing each with the lists."""
        for split_id in manifest.split_ids(self._found):
            entry = ledger.LedgerEntry.read(self._output, split_id)
            if entry is not None:
                self.books.add(entry)
            self._compare_files(split_id, entry)
            self._compare_inputs()
            if entry is not None:
                yield entry
        self.books.close()
        self._compare_inputs()

    def _shards(self) -> Iterator[ShardEntry]:
        digest, n_shards = self.books.runs_digest, len(self._found["shards"])
        are_in_order = True
        for index, record in enumerate(self._found["shards"]):
            entry = ShardEntry.read(self._output, record["entry"])
            if entry is not None:
                self.books.add_shard(entry)
                are_in_order = are_in_order and (entry.index, entry.n_shards) == (index, n_shards)
                if entry.runs != digest:
                    name = filenames.entry_name(entry.shard_id)
                    self._report.problems.append(f"{name}: merged from runs {entry.runs}, the splits have {digest}")
            self._compare_files(record["entry"], entry)
            if entry is not None:
                yield entry
        if not are_in_order:
            self._report.problems.append(f"the ledger's {n_shards} shards are not all of a shuffle, in order")

    def _compare_files(self, entry_id: str, entry: LedgerEntry | ShardEntry | None) -> None:
        """Compares the files of an entry with the lists; if the entry cannot be read, checks the files as listed."""
        name = filenames.entry_name(entry_id)
        if entry is None:
            self._are_all_read = False
            self._report.problems.append(f"{name}: missing, or not a ledger entry")
        for kind, listed in self._listed.items():
            mine, self._taken[kind] = self._taken[kind], []
            for ours, theirs in itertools.zip_longest(mine, listed.of(entry_id)):
                if entry is None:
                    check_file(self._output, _file_record(theirs), self._report)
                elif ours != theirs:
                    self._report.problems.append(f"{name}: records {ours}, the manifest {theirs}")

    def _compare_inputs(self) -> None:
        read, self._taken["inputs"] = self._taken["inputs"], []
        if not self._are_all_read:
            return
        for file in read:
            i, said = next(self._inputs, (None, None))
            if said != file:
                self._report.problems.append(f"{filenames.MANIFEST}: input {i} is {said}, the ledger has {file}")


class _Listed:
    """The records of a list, entry by entry, in the order of the plan."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self._groups = itertools.groupby(records, key=lambda record: record.get("entry") or record.get("split"))
        self._next = next(self._groups, None)

    def of(self, entry_id: str) -> list[dict[str, Any]]:
        """Returns the records of an entry, if it is the next one with records."""
        if self._next is None or self._next[0] != entry_id:
            return []
        found = list(self._next[1])
        self._next = next(self._groups, None)
        return found

    def rest(self) -> Iterator[dict[str, Any]]:
        """Yields the remaining records, of entries that were not requested."""
        while self._next is not None:
            yield from self._next[1]
            self._next = next(self._groups, None)


def _file_record(listed: Mapping[str, Any]) -> FileRecord:
    return FileRecord(**{name: value for name, value in listed.items() if name not in ("split", "entry")})


def _check_split(output: str, found: Mapping[str, Any], entry: LedgerEntry) -> tuple[VerifyReport, Statistics | None]:
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
    if entry.runs is None:  # otherwise its runs were merged into the shards and removed
        for file, counted in count_files(output, entry, found, report):
            if recorded is not None:
                compare_counts(entry, file, counted, recorded, report)
    return report, recorded


def _check_shard(
    output: str, found: Mapping[str, Any], entry: ShardEntry
) -> tuple[VerifyReport, ShardEntry, list[tuple[FileRecord, Statistics]]]:
    """Returns the problems of a shard of a shuffle, its entry, and the statistics of each of its files."""
    report = VerifyReport()
    report.problems += imbalances(entry)
    if entry.tokenizer != found["tokenizer"]["digest"]:
        name = filenames.entry_name(entry.shard_id)
        report.problems.append(
            f"{name}: made by tokenizer {entry.tokenizer}, but the manifest's is {found['tokenizer']['digest']}"
        )
    if not check_file(output, entry.keys, report):
        return report, entry, []
    return report, entry, list(count_files(output, entry, found, report))


def _check_tokenizer(output: str, found: Mapping[str, Any], report: VerifyReport) -> Tokenizer | None:
    """Returns the tokenizer if it is the one that made the tokens; None if it is not, or that cannot be told."""
    listed = any(record["file"] == filenames.TOKENIZER for record in found["files"])
    # A digest covers the Unicode versions; another TokenMill may have others and still read this folder.
    if not listed or found["tokenizer"] is None or found["unicode"] != dict(UNICODE_VERSIONS):
        return None
    try:
        tokenizer = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER)))
    except (OSError, ValueError) as error:
        report.problems.append(f"{filenames.TOKENIZER}: {error}")
        return None
    if tokenizer.digest != found["tokenizer"]["digest"]:
        report.problems.append(
            f"{filenames.TOKENIZER}: its digest is {tokenizer.digest}, the manifest's {found['tokenizer']['digest']}"
        )
        return None
    return tokenizer


def _check_statistics(
    output: str,
    total: Statistics,
    tokenizer: Tokenizer | None,
    books: JobBooks,
    report: VerifyReport,
) -> None:
    """Checks token_counts.parquet and stats.json against the statistics of all splits, and the sums of the ledger."""
    try:
        table = token_table.read(output)
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
            said = handle.read()
    except (OSError, ValueError) as error:
        report.problems.append(str(error))
        return
    packing, windows, chat = (books.totals.get(name) for name in ("packing", "windows", "chat"))
    summary = summarize(total, table, packing, windows, chat, books.by_source)
    n_trained = summary["chat"]["trained_tokens"] if chat is not None else 0
    if report.n_trained != n_trained:
        report.problems.append(f"rows train {report.n_trained} tokens, the ledger says {n_trained}")
    if said != ledger.to_json(summary):
        report.problems.append(f"{filenames.STATS}: not the summary of the splits' statistics")


def _differing(table: pa.Table, expected: pa.Table) -> str | None:
    """Returns how the first wrong row of token counts differs from the vocabulary; None if there is none."""
    if table.equals(expected):
        return None
    pairs = zip(table.to_pylist(), expected.to_pylist(), strict=True)
    return next(f"has {ours}, the vocabulary says {theirs}" for ours, theirs in pairs if ours != theirs)


def verify_parts(output: str) -> VerifyReport:
    """Checks all folders of an output in parts as `verify` does, and that together they have every record once.

    Raises:
      OSError: if a folder cannot be read at all.
    """
    report = VerifyReport()
    try:
        found = parts.read(output)
        record = read_job(output)
        files = [FileRecord(**each) for each in found["files"]]
        manifests = {part["folder"]: FileRecord(**part["manifest"]) for part in found["parts"]}
        for file in files:
            check_file(output, file, report)
        for name, file in manifests.items():
            check_file(output, file, report)
            proven = verify(storage.join(output, name))
            proven.problems = [f"{name}/{problem}" for problem in proven.problems]
            report.merge(proven)
        if record is None:
            report.problems.append(f"{output!r} has no record of its job")
        elif report.is_proven:
            job, _ = record
            read = {
                name: (file, manifest.read(storage.join(output, name)))
                for name, file in manifests.items()
                if name in job.parts["folders"]
            }
            again = parts.build(job, read, files)
            report.problems += [f"{PARTS}: {line}" for line in differences(found, again)]
    except ValueError as error:
        report.problems.append(str(error))
    except (KeyError, TypeError, AttributeError) as error:
        report.problems.append(f"{PARTS}: not as TokenMill writes it: {error!r}")
    return report
