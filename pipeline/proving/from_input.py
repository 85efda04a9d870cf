# SPDX-License-Identifier: Apache-2.0
"""Proves a sample of an output folder from its input: reads and tokenizes splits again, and compares all results."""

import contextlib
import dataclasses
import hashlib
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module, metadata
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.job_record import differences
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.books.manifest import split_ids
from tokenmill.pipeline.columns import children, open_parquet
from tokenmill.pipeline.config.job import Config, with_paths
from tokenmill.pipeline.hashing import mix
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.proving.report import VerifyReport, check_unchanged
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.pages import tokenizer_info
from tokenmill.pipeline.tokenizing.steps import steps_of
from tokenmill.pipeline.tokenizing.tokenize import EncodeBy, tokenize_split
from tokenmill.tokenizer import Tokenizer, reference_encoding
from tokenmill.tokenizer.reference_encoding import TextByText

SAMPLE = 0.01
"""The default share of splits to tokenize again, and of all documents to compare."""

LEAST_SPLITS = 3
"""At least this many splits are tokenized again, or all if there are fewer."""

LEAST_DOCUMENTS = 200
"""At least this many documents are compared, or all if there are fewer: some in every split that is tokenized again."""

MAX_BYTES = 16 << 20
"""Longer documents are not compared with the reference implementation: it takes about 300 times their memory."""

REFERENCE = "the reference implementation"
_MAX_UNUSUAL_BYTES = 1 << 16
"""Longer documents are compared if they are in the sample, but not only because they are the longest."""
_TABLES = f"{filenames.DOCUMENTS}/", f"{filenames.REJECTED}/"
_MOST_LISTED = 20
"""At most this many documents with other ids are listed."""


@dataclasses.dataclass
class DeepReport(VerifyReport):
    """What was done again: `n_files` splits with `n_rows` documents; and the problems found."""

    n_splits: int = 0
    """How many splits there are."""
    n_documents: int = 0
    """How many documents there are."""
    n_wrong: int = 0
    """How many documents have other ids than the reference implementation gives."""
    compared: dict[str, int] = dataclasses.field(default_factory=dict)
    """Documents whose ids another implementation has confirmed, by implementation."""

    def add(self, entry: LedgerEntry) -> None:
        """Adds a split that was done again."""
        self.n_files += 1
        self.n_bytes += entry["n_bytes"]
        self.n_rows += entry.n_documents
        self.n_tokens += entry.n_tokens

    def merge(self, other: VerifyReport) -> None:
        """Adds what another report found."""
        super().merge(other)
        assert isinstance(other, DeepReport)
        for name in ("n_splits", "n_documents", "n_wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.compared = dict(Counter(self.compared) + Counter(other.compared))


class Comparison:
    """Compares the ids of documents with those of something else, and holds the problems found.

    That is `tokenizers`, where it is installed and gives the same, else the reference implementation.
    """

    def __init__(self, tokenizer: Tokenizer, *, has_spans: bool) -> None:
        """Takes the tokenizer; has_spans: whether texts have spans that are tokens, which `tokenizers` cannot take."""
        self.equal: Counter[str] = Counter()
        """How many documents have the ids of each library, or of the reference implementation."""
        self.problems: list[str] = []
        self._unk_id = tokenizer.unk_token_id
        reference = reference_encoding.Reference(tokenizer)
        name, library = ("", None) if has_spans else _library(tokenizer)
        self._others = [(name, TextByText(lambda text, begins: library(text)))] if library is not None else []
        self._others.append((REFERENCE, TextByText(lambda text, begins: reference.encode(_short(text), begins))))
        self.n_wrong = 0
        """How many documents have others."""
        self._where, self._row, self._is_chosen = "", 0, np.zeros(0, np.bool_)

    def begin(self, split_id: str, n_documents: int, n_chosen: int) -> None:
        """Begins a split, of whose `n_documents` documents `n_chosen` are to be compared at least.

        They are the same ones each time; more contain fewer.
        """
        keys = mix(np.arange(n_documents, dtype=np.uint64) + np.uint64(int(split_id, 16)))
        self._is_chosen = np.zeros(n_documents, np.bool_)
        self._is_chosen[np.argsort(keys)[:n_chosen]] = True
        self._where, self._row = f"split {split_id}", 0

    def add(self, doc_ids: pa.Array, texts: pa.Array, rows: pa.LargeListArray, again: EncodeBy) -> None:
        """Compares the chosen documents of a batch, and its most unusual ones.

        These are the longest, the one with the most unknown tokens, and the one with the most bytes beyond ASCII.

        Args:
          doc_ids: the ids of the documents.
          texts: their texts, as the tokenizer gets them.
          rows: int32, their tokens, without those that are put around them.
          again: encodes some of them by something else.
        """
        bounds, data = children(texts)
        lengths = np.diff(bounds)
        is_chosen = np.zeros(lengths.size, np.bool_)
        known = self._is_chosen[self._row : self._row + lengths.size]
        is_chosen[: known.size] = known
        wide = np.diff(np.append(0, np.cumsum(data.to_numpy() >= 0x80))[bounds])
        is_unknown = rows.values.to_numpy() == (-1 if self._unk_id is None else self._unk_id)
        unknown = np.diff(np.append(0, np.cumsum(is_unknown))[rows.offsets.to_numpy()])
        if (fits := lengths <= _MAX_UNUSUAL_BYTES).any():
            is_chosen[[np.argmax(np.where(fits, measure, -1)) for measure in (lengths, unknown, wide)]] = True
        for i in np.flatnonzero(is_chosen).tolist():
            self._compare(doc_ids[i].as_py(), i, rows[i].as_py(), again)
        self._row += lengths.size

    def _compare(self, doc_id: str, i: int, ids: list[int], again: EncodeBy) -> None:
        expected: list[int] = []
        try:
            for name, other in self._others:
                if (expected := again(other, np.array([i]))[0].as_py()) == ids:
                    self.equal[name] += 1
                    return
        except _TooLongError:
            return
        except ValueError as error:
            difference = f"ids, but {REFERENCE} gives it none: {error}"
        else:
            at = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), len(ids))
            difference = (
                f"other ids than {REFERENCE} gives it, from token {at} on: {ids[at : at + 5]}, expected "
                f"{expected[at : at + 5]}"
            )
        self.n_wrong += 1
        if self.n_wrong <= _MOST_LISTED:
            self.problems.append(f"{self._where}: document {doc_id!r} has {difference}")


class _TooLongError(Exception):
    """A document is too long for the reference implementation."""


def _short(text: str) -> str:
    if len(text.encode()) > MAX_BYTES:
        raise _TooLongError
    return text


def _library(tokenizer: Tokenizer) -> tuple[str, Callable[[str], list[int]] | None]:
    """Returns the name and version of `tokenizers`, and how it encodes; None if it is missing or has no such parts.

    Its ids may differ where we follow another library, or another version of Unicode; the reference implementation
    decides then.
    """
    model = tokenizer.model
    # Policies of WordPiece that `tokenizers` lacks, and Unigram by the rules of sentencepiece.
    if getattr(model, "oov_policy", "word") != "word" or getattr(model, "piece_types", None) is not None:
        return "", None
    try:
        theirs: Any = import_module("tokenizers").Tokenizer.from_str(tokenizer.to_str())
        version = metadata.version("tokenizers")
    except Exception:  # not installed, or a file that only TokenMill reads
        return "", None
    theirs.encode_special_tokens = tokenizer.special != "split"
    theirs.no_truncation()
    theirs.no_padding()

    def encode(text: str) -> list[int]:
        try:
            return list(theirs.encode(text, add_special_tokens=False).ids)
        except Exception:  # the reference implementation says whether it is right to give no ids
            return [-1]

    return f"tokenizers {version}", encode


def verify_deep(output: str, share: float = SAMPLE, named: Sequence[str] = ()) -> DeepReport:
    """Tokenizes a sample of the splits again, from the input files that the ledger names.

    It compares the shard, its table of documents, the rejects, the statistics, and the counts and checksums of the
    files read. The sample is the same each time: the splits whose ids have the smallest hashes. Splits are tokenized
    one at a time into a temporary folder. If a new file has other bytes, both files are read, one split in memory, and
    compared row by row. If the job shuffles, the sums over the split's documents are compared in place of shard and
    table; `verify` checks these against the shards.

    All that shows that the same kernels do the same again. So the ids of a sample of documents, see `Comparison`, are
    also compared with those of `tokenizers`, where it is installed, or of the reference implementation. If there are
    documents, and none was compared, that is a problem.

    Args:
      output: a finished output folder that `verify` proves.
      share: the share of splits to tokenize again, and of all documents to compare, from 0 to 1; at least
        `LEAST_SPLITS` and `LEAST_DOCUMENTS` are taken.
      named: `input.paths` of the job's config, if it is known; `inputs` says which files are read without it.

    Raises:
      OSError: if the folder cannot be read at all.
    """
    report = DeepReport()
    try:
        manifest = read_manifest(output)
        config, tokenizer = config_of(output, manifest)
        if tokenizer_info(tokenizer).digest != manifest["tokenizer"]["digest"]:
            raise ValueError(
                f"{filenames.TOKENIZER}: this TokenMill reads it as tokenizer {tokenizer_info(tokenizer).digest}, but "
                f"the manifest's is {manifest['tokenizer']['digest']}; only the version that wrote it can do this"
            )
        if wrong := differences(manifest.get("steps"), steps_of(manifest["job"]) or None, "steps"):
            raise ValueError(f"{wrong[0]}; `tokenizing.steps.STEPS` must be those of the job")
    except (ValueError, KeyError, TypeError) as error:
        report.problems.append(f"cannot tokenize again: {error}")
        return report
    ids = list(split_ids(manifest))
    chosen = _with_documents(output, ids, sample(ids, share))
    for totals in _all_totals(output, manifest):
        report.n_splits += totals["n_splits"]
        report.n_documents += totals["n_documents"]
    compared = tokenizer if config.chat is None else tokenizer.replace(special="split")
    comparison = Comparison(compared, has_spans=bool(config.spans))
    # So many of the documents of a chosen split that they are this share of all.
    each = min(1.0, share * len(ids) / max(1, len(chosen)))
    for split_id in chosen:
        entry = ledger.LedgerEntry.read(output, split_id)
        if entry is None:
            report.problems.append(f"{filenames.entry_name(split_id)}: missing, or not a ledger entry")
            continue
        n_chosen = max(math.ceil(each * entry.n_documents), -(-LEAST_DOCUMENTS // len(chosen)))
        comparison.begin(split_id, entry.n_documents, n_chosen)
        try:
            report.problems += _do_again(output, entry, config, tokenizer, len(ids), named, comparison)
        except (ValueError, OSError) as error:
            report.problems.append(f"split {split_id}: {error}")
            continue
        report.add(entry)
    _conclude(report, comparison, output)
    return report


def _all_totals(output: str, manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the totals of a folder, and those of what was replayed later, which is not tokenized again."""
    replayed = storage.join(output, filenames.REPLAY)
    has_more = storage.exists(storage.join(replayed, filenames.MANIFEST))
    return [manifest["totals"], *([read_manifest(replayed)["totals"]] if has_more else [])]


def _conclude(report: DeepReport, comparison: Comparison, output: str) -> None:
    """Adds to a report what the comparison found; that it compared nothing is a problem, too."""
    report.compared, report.n_wrong = dict(comparison.equal), comparison.n_wrong
    report.problems += comparison.problems
    if (n_more := comparison.n_wrong - len(comparison.problems)) > 0:
        report.problems.append(f"{output}: {n_more:,} more documents have other ids than {REFERENCE} gives them")
    if report.n_documents and not report.compared and report.is_proven:
        report.problems.append(
            f"{output}: none of {report.n_documents:,} documents was compared with anything but the kernels that made "
            f"its ids; give a larger --share, or install tokenizers if all are longer than {MAX_BYTES:,} bytes"
        )


def sample(ids: Sequence[str], share: float) -> list[str]:
    """Returns a sample of ids, the same one each time; a larger share contains that of a smaller one."""
    n = min(len(ids), max(LEAST_SPLITS, math.ceil(share * len(ids))))
    chosen = set(_shuffled(ids)[:n])
    return [split_id for split_id in ids if split_id in chosen]


def _shuffled(ids: Iterable[str]) -> list[str]:
    return sorted(ids, key=lambda split_id: hashlib.sha256(split_id.encode()).digest())


def _with_documents(output: str, ids: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Returns chosen splits, and more until LEAST_SPLITS have documents: those behind a very long line have none."""
    found, n = list(chosen), 0
    for split_id in (*chosen, *_shuffled({*ids} - {*chosen})):
        if n == LEAST_SPLITS:
            break
        entry = ledger.LedgerEntry.read(output, split_id)
        if entry is not None and entry.n_documents:
            n += 1
            found += [split_id] if split_id not in found else []
    return found


def config_of(output: str, manifest: Mapping[str, Any]) -> tuple[Config, Tokenizer]:
    """Returns the config of a folder, with made-up paths where its record has none, and its tokenizer.

    Args:
      output: the folder.
      manifest: its manifest.

    Raises:
      ValueError: if its job wrote no shards.
    """
    if manifest["tokenizer"] is None or not manifest["shards"]:
        raise ValueError("the job wrote no shards")
    tokenizer = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER)))
    return Config.model_validate(with_paths(manifest["config"], output, output)), tokenizer


def _do_again(
    output: str,
    entry: LedgerEntry,
    config: Config,
    tokenizer: Tokenizer,
    n_splits: int,
    named: Sequence[str],
    comparison: Comparison,
) -> list[str]:
    """Returns how a split differs from what it gives now; raises ValueError or OSError if it cannot be done again."""
    where = f"split {entry.split_id}"
    split = Split(entry.index, entry.split_id, entry.pieces, entry.fields)
    for piece in entry.pieces:
        check_unchanged(piece, output, named)
    with tempfile.TemporaryDirectory(prefix="tokenmill-deep-") as folder:
        elsewhere = config.model_copy(update={"output": config.output.model_copy(update={"path": folder})})
        again = tokenize_split(split, elsewhere, tokenizer, n_splits, on_tokens=comparison.add)
        lines = [
            f"{where}: {f'{group} {name}'.strip()} is {now} when it is done again, recorded {n}"
            for group, numbers in entry.counts.items()
            for name, n in numbers.items()
            if (now := again.counts.get(group, {}).get(name)) != n
        ]
        for piece, ours, theirs in zip(entry.pieces, again.inputs, entry.inputs, strict=True):
            if ours.sha256 != theirs.sha256:
                lines.append(f"{where}: {piece.path!r} is read as sha256 {ours.sha256}, recorded {theirs.sha256}")
        if entry.runs is not None:
            sums, recorded = (each.runs.sums.to_record() if each.runs else None for each in (again, entry))
            if sums != recorded:
                lines.append(f"{where}: its documents have the sums {sums} when done again, recorded {recorded}")
        made = {file.file: file.sha256 for file in again.files()}
        files = [file for file in entry.files() if entry.runs is None or file != entry.shard]  # runs were removed
        changed = {file.file for file in files if made.get(file.file, file.sha256) != file.sha256}
        for file in files:
            has_rows = file.rows is not None or file == entry.statistics
            if has_rows and {file.file, formats.index_name(file.file)} & changed:
                lines += _compare_rows(folder, output, file.file)
        return lines


def _compare_rows(again: str, output: str, name: str) -> list[str]:
    """Returns a list with a line about the first row that differs; if only bytes differ, a library has changed."""
    try:
        ours, theirs = (_read(storage.join(folder, name), name) for folder in (again, output))
    except (ValueError, OSError) as error:
        return [f"{name}: {error}"]
    if ours.num_rows != theirs.num_rows:
        return [f"{name}: {theirs.num_rows} rows, {ours.num_rows} when it is done again"]
    if ours.column_names != theirs.column_names:
        return [f"{name}: columns {theirs.column_names}, {ours.column_names} when it is done again"]
    for column in ours.column_names:
        if ours[column].equals(theirs[column]):
            continue
        pairs = enumerate(zip(ours[column], theirs[column], strict=True))
        row = next(row for row, (mine, other) in pairs if not mine.equals(other))
        whose = f", document {theirs['doc_id'][row].as_py()!r}" if "doc_id" in theirs.column_names else ""
        return [f"{name}: {column} of row {row}{whose}, is not what the input gives"]
    return []


def _read(path: str, name: str) -> pa.Table:
    index_name = formats.index_name(path)
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(storage.open_read(path))
        if name.startswith(_TABLES):
            return open_parquet(handle).read(use_threads=False)
        if name.startswith(filenames.LEDGER):  # statistics
            return pa.ipc.open_file(handle.read()).read_all()
        index = stack.enter_context(storage.open_read(index_name)) if index_name is not None else None
        return pa.Table.from_batches(list(formats.read_rows(handle, name, index=index)))
