# SPDX-License-Identifier: Apache-2.0
"""Proves a sample of an output folder from its input: reads and tokenizes splits again, and compares all results."""

import contextlib
import hashlib
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger, manifest, quantities
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.columns import children
from tokenmill.pipeline.config.job import Config, with_paths
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.proving.report import VerifyReport, check_unchanged
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split, tokenizer_info
from tokenmill.tokenizer import Tokenizer, reference_encoding

SAMPLE = 0.01
"""The default share of splits to tokenize again."""

LEAST_SPLITS = 3
"""At least this many splits are tokenized again, or all if there are fewer."""

N_DOCUMENTS = 200
"""How many documents are compared, about: a share of them in every split that is tokenized again."""

MAX_BYTES = 4096
"""Longer documents are not compared: the reference implementation takes the square of their length."""

REFERENCE = "the reference implementation"
_PLACES = 3
"""For the longest document, the one with the most unknown tokens, and the one with the most bytes beyond ASCII."""


class Comparison:
    """The documents of one tokenizer whose ids are compared with those of something else, and the problems found.

    That is `tokenizers`, where it is installed, and the reference implementation.
    """

    def __init__(self, tokenizer: Tokenizer, n_splits: int) -> None:
        """Takes the tokenizer, and how many splits there are to take documents from."""
        self.equal: Counter[str] = Counter()
        """How many documents have the ids of each library, or of the reference implementation."""
        self.problems: list[str] = []
        self._tokenizer = tokenizer
        self._library, self._by_library = _library(tokenizer)
        self._n = max(1, N_DOCUMENTS // max(1, n_splits) - _PLACES)
        self._hashed: list[tuple[bytes, str, str, list[int]]] = []
        self._unusual: dict[int, tuple[int, str, str, list[int]]] = {}

    def add(self, doc_ids: pa.Array, texts: pa.Array, rows: pa.LargeListArray) -> None:
        """Takes the documents of a batch: those with the smallest hashes, and the most unusual ones.

        Args:
          doc_ids: the ids of the documents.
          texts: their texts, as the tokenizer gets them.
          rows: int32, their tokens, without those that are put around them.
        """
        bounds, data = children(texts)
        lengths = np.diff(bounds)
        unknown = np.zeros(lengths.size, np.int64)
        offsets = rows.offsets.to_numpy()
        if self._tokenizer.unk_token_id is not None:
            ends = np.append(0, np.cumsum(rows.values.to_numpy() == self._tokenizer.unk_token_id))
            unknown = np.diff(ends[offsets])
        wide = np.diff(np.append(0, np.cumsum(data.to_numpy() >= 0x80))[bounds])
        fits = lengths <= MAX_BYTES
        if not fits.any():
            return

        def taken(i: int) -> tuple[str, str, list[int]]:
            return doc_ids[i].as_py(), texts[i].as_py(), rows[i].as_py()

        for place, measure in enumerate((lengths, unknown, wide)):
            i = int(np.argmax(np.where(fits, measure, -1)))
            if place not in self._unusual or measure[i] > self._unusual[place][0]:
                self._unusual[place] = (int(measure[i]), *taken(i))
        hashes = [hashlib.sha256(str(doc_id).encode()).digest() for doc_id in doc_ids]
        first = sorted(np.flatnonzero(fits).tolist(), key=hashes.__getitem__)[: self._n]
        found = [*self._hashed, *((hashes[i], *taken(i)) for i in first)]
        self._hashed = sorted(found, key=lambda document: document[0])[: self._n]

    def compare(self, where: str) -> None:
        """Compares the documents taken since the last call; `where` is the split that they are from."""
        chosen = {doc_id: (text, ids) for _, doc_id, text, ids in (*self._hashed, *self._unusual.values())}
        self._hashed, self._unusual = [], {}
        for doc_id, (text, ids) in chosen.items():
            if self._by_library is not None and self._by_library(text) == ids:
                self.equal[self._library] += 1
            elif (expected := reference_encoding.encode(self._tokenizer, text)) == ids:
                self.equal[REFERENCE] += 1
            else:
                at = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), len(ids))
                self.problems.append(
                    f"{where}: document {doc_id!r} has other ids than {REFERENCE} gives it, from token {at} on: "
                    f"{ids[at : at + 5]}, expected {expected[at : at + 5]}"
                )


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
    return f"tokenizers {version}", lambda text: list(theirs.encode(text, add_special_tokens=False).ids)


def verify_deep(output: str, share: float = SAMPLE, named: Sequence[str] = ()) -> VerifyReport:
    """Tokenizes a sample of the splits again, from the input files that the ledger names.

    It compares the shard, the rejects, the statistics, and the counts and checksums of the files read. The sample is
    the same each time: the splits whose ids have the smallest hashes. Splits are tokenized one at a time into a
    temporary folder. If a new shard has other bytes, both shards are read, one split in memory, and compared row by
    row. If the job shuffles, the sums over the split's documents are compared instead; `verify` checks these against
    the shards.

    All that shows that the same kernels do the same again. So the ids of a sample of documents, see `Comparison`, are
    also compared with those of `tokenizers`, where it is installed, or of the reference implementation.

    Args:
      output: a finished output folder that `verify` proves.
      share: the share of splits to take, from 0 to 1; at least `LEAST_SPLITS` are taken.
      named: `input.paths` of the job's config, if it is known; `inputs` says which files are read without it.

    Raises:
      OSError: if the folder cannot be read at all.
    """
    report = VerifyReport()
    try:
        found = manifest.read(output)
        config, tokenizer = config_of(output, found)
        if tokenizer_info(tokenizer).digest != found["tokenizer"]["digest"]:
            raise ValueError(
                f"{filenames.TOKENIZER}: this TokenMill reads it as tokenizer {tokenizer_info(tokenizer).digest}, but "
                f"the manifest's is {found['tokenizer']['digest']}; only the version that wrote it can do this"
            )
    except (ValueError, KeyError, TypeError) as error:
        report.problems.append(f"cannot tokenize again: {error}")
        return report
    ids = list(manifest.split_ids(found))
    chosen = sample(ids, share)
    # The tokens of spans are no texts, so their documents cannot be encoded from the text alone.
    compared = tokenizer if config.chat is None else tokenizer.replace(special="split")
    is_text = not config.spans and config.output.fim is None
    comparison = Comparison(compared, len(chosen)) if is_text else None
    for split_id in chosen:
        entry = ledger.LedgerEntry.read(output, split_id)
        if entry is None:
            report.problems.append(f"{filenames.entry_name(split_id)}: missing, or not a ledger entry")
        else:
            report.problems += _do_again(output, entry, config, tokenizer, len(ids), named, comparison)
            if comparison is not None:
                comparison.compare(f"split {split_id}")
            report.n_files += 1
            report.n_bytes += entry.n_bytes
            report.n_rows += entry.n_documents
            report.n_tokens += entry.n_tokens
    if comparison is not None:
        report.problems += comparison.problems
        report.compared = dict(comparison.equal)
    return report


def sample(ids: Sequence[str], share: float) -> list[str]:
    """Returns a sample of ids, the same one each time; a larger share contains that of a smaller one."""
    n = min(len(ids), max(LEAST_SPLITS, math.ceil(share * len(ids))))
    chosen = set(sorted(ids, key=lambda split_id: hashlib.sha256(split_id.encode()).digest())[:n])
    return [split_id for split_id in ids if split_id in chosen]


def config_of(output: str, found: Mapping[str, Any]) -> tuple[Config, Tokenizer]:
    """Returns the config of a folder, with made-up paths where its record has none, and its tokenizer.

    Args:
      output: the folder.
      found: its manifest.

    Raises:
      ValueError: if its job wrote no shards.
    """
    if found["tokenizer"] is None or not found["shards"]:
        raise ValueError("the job wrote no shards")
    tokenizer = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER)))
    return Config.model_validate(with_paths(found["config"], output, output)), tokenizer


def _do_again(
    output: str,
    entry: LedgerEntry,
    config: Config,
    tokenizer: Tokenizer,
    n_splits: int,
    named: Sequence[str],
    comparison: Comparison | None,
) -> list[str]:
    where = f"split {entry.split_id}"
    split = Split(entry.index, entry.split_id, entry.pieces, entry.fields)
    for piece in entry.pieces:
        try:
            check_unchanged(piece, output, named)
        except (OSError, ValueError) as error:
            return [f"{where}: {error}"]
    with tempfile.TemporaryDirectory(prefix="tokenmill-deep-") as folder:
        elsewhere = config.model_copy(update={"output": config.output.model_copy(update={"path": folder})})
        try:
            again = tokenize_split(
                split, elsewhere, tokenizer, n_splits, on_tokens=None if comparison is None else comparison.add
            )
        except (ValueError, OSError) as error:
            return [f"{where}: {error}"]
        lines = [
            f"{where}: {name} is {getattr(again, name)} when it is done again, recorded {getattr(entry, name)}"
            for name in (*quantities.counted(LedgerEntry), "packing", "windows", "has_field", "chat")
            if getattr(again, name) != getattr(entry, name)
        ]
        for piece, ours, theirs in zip(entry.pieces, again.inputs, entry.inputs, strict=True):
            if ours.sha256 != theirs.sha256:
                lines.append(f"{where}: {piece.path!r} is read as sha256 {ours.sha256}, recorded {theirs.sha256}")
        if entry.runs is not None:
            now, then = (each.runs["sums"] if each.runs else None for each in (again, entry))
            if now != then:
                lines.append(f"{where}: its documents have the sums {now} when it is done again, recorded {then}")
            return lines
        files = (entry.shard, *entry.companions)
        changed = {
            theirs.file
            for ours, theirs in zip((again.shard, *again.companions), files, strict=True)
            if ours.sha256 != theirs.sha256
        }
        for file in files:
            if file.rows is not None and {file.file, formats.index_name(file.file)} & changed:
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
    for column in ours.column_names:
        if ours[column].equals(theirs[column]):
            continue
        pairs = enumerate(zip(ours[column], theirs[column], strict=True))
        row = next(row for row, (mine, other) in pairs if not mine.equals(other))
        document = theirs["doc_id"][row].as_py() if "doc_id" in theirs.column_names else row
        return [f"{name}: {column} of row {row}, document {document!r}, is not what its text gives"]
    return []


def _read(path: str, name: str) -> pa.Table:
    index_name = formats.index_name(path)
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(storage.open_read(path))
        index = stack.enter_context(storage.open_read(index_name)) if index_name is not None else None
        return pa.Table.from_batches(list(formats.read_rows(handle, name, index=index)))
