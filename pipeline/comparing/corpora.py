# SPDX-License-Identifier: Apache-2.0
"""What tokenizers are compared on: documents, or the words of a counts artifact; both end as `Sums`.

Documents are read once, the beginning of every file, encoded by every tokenizer, and summed up by source, language and
script. Of counts no text is read again.
"""

import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books.counts import PieceCounts, count_reasons
from tokenmill.pipeline.books.reject_limits import LossyFiles
from tokenmill.pipeline.comparing import measure
from tokenmill.pipeline.comparing.sums import ALL, KINDS, N_BLOCKS, SUMMED, WORDS, Candidate, Sums, constant
from tokenmill.pipeline.config.input import MIB, InputConfig
from tokenmill.pipeline.counting.counts import CountsArtifact
from tokenmill.pipeline.counting.words import describe_words, differences
from tokenmill.pipeline.hashing import document_keys
from tokenmill.pipeline.input.given_up import GAVE_UP, find_given_up
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.statistics.words import Encoded, encode, encode_each
from tokenmill.tokenizer import Tokenizer, unchecked_text_rows
from tokenmill.tokenizer.languages import UNKNOWN, identify, main_scripts
from tokenmill.tokenizer.vocabulary import model_alone

MAX_NAMED = 20
"""At most this many documents on which a tokenizer failed are named."""

_BLOCKS_SEED = 0
_SPLIT_BYTES = 4 * MIB
_BATCH_BYTES = 1 * MIB
_KIND_OF_LABEL = {"lang": "language", "source": "source"}


@dataclass(frozen=True)
class Documents:
    """Documents of a few files, and the groups of each document."""

    table: pa.RecordBatch
    """`schemas.DOCUMENTS`."""
    names: Sequence[str]
    """Names of the files, indexed by the column `piece`."""
    groups: dict[str, pa.DictionaryArray]
    """The group of each document by kind of group: `source`, `language`, `script`; dictionary<int32, string>[n]."""


@dataclass
class Corpus:
    """What to read, and how much of it; after `documents`, what was read."""

    paths: Sequence[str]
    text_field: str = "text"
    lang_field: str | None = None
    """Field of the language; None: it is identified."""
    max_bytes: int = 0
    """Bytes of text to read of all files together, about the same of each; 0 for all."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Records that were no documents, by reason."""
    is_whole: bool = True
    """Whether all of it was read."""
    _read: dict[str, PieceCounts] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        keep = [] if self.lang_field is None else [self.lang_field]
        patterns = [storage.join(path, "*") if os.path.isdir(path) else path for path in self.paths]
        self._config = InputConfig(
            paths=patterns, text_field=self.text_field, keep_fields=keep, split_bytes=_SPLIT_BYTES
        )
        splits = plan_splits(self._config, "")
        # Small files first, so that the part of their share that they do not use goes to larger ones.
        self._splits = sorted(splits, key=lambda split: (max(piece.n_bytes for piece in split.pieces), split.index))
        n_files = len({piece.file for split in splits for piece in split.pieces})
        self._budget = _Budget(self.max_bytes, n_files) if self.max_bytes else None

    def documents(self) -> Iterator[Documents]:
        """Yields the documents, in an order that depends on the files alone.

        Raises:
          OSError: if a file cannot be read.
        """
        for split in self._splits:
            files = np.array([piece.file for piece in split.pieces])
            for batch in read_split(split, self._config, _BATCH_BYTES):
                if self._budget is not None and self._budget.spent.issuperset(files.tolist()):
                    break
                for i, counts in batch.pieces:
                    name = split.pieces[i].name
                    self._read[name] = self._read.get(name, PieceCounts()) + counts
                if batch.rejects is not None:
                    self.rejected.update(count_reasons(batch.rejects))
                table = batch.documents
                if self._budget is not None and table.num_rows:
                    sizes = pc.binary_length(table.column("text")).to_numpy().astype(np.int64)
                    table = table.filter(pa.array(self._budget.take(files[table.column("piece").to_numpy()], sizes)))
                if table.num_rows:
                    yield Documents(table, [p.name for p in split.pieces], self._groups(table, split))
        if self._budget is not None:
            self.is_whole = not self._budget.spent

    def check_losses(self) -> None:
        """Raises ValueError if files lost what would fail a job."""
        records = ({"name": name, "read": counts.to_record()} for name, counts in self._read.items())
        if lost := LossyFiles(self._config, records).warnings():
            found = "\n  ".join(lost)
            raise ValueError(f"--on: name the field with --text-field, or leave such files out of --on:\n  {found}")

    def _groups(self, table: pa.RecordBatch, split: Split) -> dict[str, pa.DictionaryArray]:
        names = pa.array([piece.name for piece in split.pieces], pa.string())
        text = unchecked_text_rows(table.column("text"))
        if self.lang_field is None:
            language = identify(text).codes
        else:
            given = table.column(schemas.FIELDS).field(self.lang_field).cast(pa.string())
            language = pc.fill_null(given, UNKNOWN).dictionary_encode()
        return {
            "source": pa.DictionaryArray.from_arrays(table.column("piece"), names),
            "language": language,
            "script": main_scripts(text),
        }


class _Budget:
    """How many bytes of text may be taken from each file: the remaining bytes, divided by the remaining files."""

    def __init__(self, n_bytes: int, n_files: int) -> None:
        self._left, self._n_files = n_bytes, n_files
        self._given: dict[int, int] = {}
        self._used: Counter[int] = Counter()
        self.spent: set[int] = set()
        """Files of which a document was left out."""

    def take(self, files: npt.NDArray[np.int64], n_bytes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Returns bool[n]: the documents to take, those at the beginning of each file, and always the first one."""
        kept = np.zeros(files.size, bool)
        for file in dict.fromkeys(files[~np.isin(files, [*self.spent])].tolist()):
            if file not in self._given:
                self._given[file] = self._left // (self._n_files - len(self._given))
            mine, used = np.flatnonzero(files == file), self._used[file]
            ends = used + np.cumsum(n_bytes[mine])
            n = max(int(np.searchsorted(ends, self._given[file], side="right")), 0 if used else 1)
            kept[mine[:n]] = True
            taken = int(ends[n - 1]) - used if n else 0
            self._used[file] += taken
            self._left = max(0, self._left - taken)
            if n < mine.size:
                self.spent.add(file)
        return kept


def compare_texts(candidates: Sequence[Candidate], corpus: Corpus, parallel: str | None = None) -> dict[str, Any]:
    """Returns the comparison of tokenizers on the documents of a corpus, see `measure.report`.

    Raises:
      ValueError: if there is no document, or languages differ in their number of documents although `parallel`.
      OSError: if a file cannot be read.
    """
    sums = TextSums(candidates)
    for read in corpus.documents():
        sums.add_documents(read)
    if not sums.groups(ALL):
        reasons = ", ".join(f"{n:,} rejected as {reason}" for reason, n in sorted(corpus.rejected.items()))
        field = "; --text-field says which field holds the text" if "missing_field" in corpus.rejected else ""
        raise ValueError(f"--on: no document to compare tokenizers on; {reasons or 'the files are empty'}{field}")
    corpus.check_losses()
    report = measure.report(candidates, sums, encode, has_documents=True, parallel=parallel)
    report["on"] |= {
        "what": "texts",
        "word": "what stands between white space",
        "is_whole": corpus.is_whole,
        "rejected": dict(sorted(corpus.rejected.items())),
        "failed": dict(sums.failed),
        "failed_documents": sums.named,
    }
    return report


class TextSums(Sums):
    """What is kept of the documents of a comparison while they are read."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        super().__init__([each.tokenizer for each in candidates], (ALL, *KINDS))
        self._candidates = candidates
        self.failed: Counter[str] = Counter()
        self.named: list[dict[str, str]] = []

    def add_documents(self, read: Documents) -> None:
        """Adds documents. One on which a tokenizer fails counts for none of them; it is named instead."""
        try:
            ids = self._encode(read.table)
        except GAVE_UP:
            kept = pa.array(self._without_failures(read))
            groups = {kind: column.filter(kept) for kind, column in read.groups.items()}
            read = Documents(read.table.filter(kept), read.names, groups)
            ids = self._encode(read.table)
        text = read.table.column("text")
        n_words = self.words.add(text, read.groups["language"])
        values = self.values(text, n_words, ids, np.ones(len(text), np.int64), 1)
        keys = document_keys("bootstrap", _BLOCKS_SEED, read.names, read.table)
        self.add({ALL: constant(ALL, len(text)), **read.groups}, values, (keys % np.uint64(N_BLOCKS)).astype(np.int64))

    def _encode(self, table: pa.RecordBatch) -> list[pa.LargeListArray]:
        return [_encode_texts(each.tokenizer, table) for each in self._candidates]

    def _without_failures(self, read: Documents) -> npt.NDArray[np.bool_]:
        """Returns bool[n]: the documents on which no tokenizer fails; counts and names the others."""
        kept = np.ones(read.table.num_rows, bool)
        for each in self._candidates:
            reasons = find_given_up(functools.partial(_encode_texts, each.tokenizer), read.table)
            for row in np.flatnonzero(reasons != "").tolist():
                self.failed[each.label] += 1
                if len(self.named) < MAX_NAMED:
                    of = read.table.slice(row, 1).select(["doc_id", "piece"]).to_pylist()[0]
                    place = {"document": of["doc_id"], "source": read.names[of["piece"]]}
                    self.named.append({"tokenizer": each.label, **place, "reason": str(reasons[row])})
            kept &= reasons == ""
        return kept


def _encode_texts(tokenizer: Tokenizer, table: pa.RecordBatch) -> pa.LargeListArray:
    return tokenizer.encode_bare(unchecked_text_rows(table.column("text")))


def compare_counts(candidates: Sequence[Candidate], artifact: CountsArtifact) -> dict[str, Any]:
    """Returns the comparison of tokenizers on the words of a counts artifact, see `measure.report`.

    Each word is encoded by the model alone, for the counts hold normalized pre-tokens. That is what the tokenizer makes
    of the text if its normalizer and pre-tokenizer are those of the counts; a tokenizer with others is refused.

    There are no intervals, because it is not known which words were in one document. Added tokens are counted as text.
    Bytes by source and language are those of the texts, by script those of the words; if words were pruned, all are
    those of the remaining words.

    Raises:
      ValueError: if a tokenizer has other words, or nothing was counted. OSError: if a file cannot be read.
    """
    check(candidates, artifact)
    models = [model_alone(each.tokenizer) for each in candidates]
    kinds = [ALL, *(_KIND_OF_LABEL[label] for label in artifact.labels)]
    sums = Sums(models, [*kinds, "script"])
    has_texts = not artifact.report["pruned"]["bound"]
    for partition in range(len(artifact.files)):
        for group, table in artifact.tables(partition):
            column, counts = table["word"].combine_chunks().cast(pa.large_string()), table["count"].to_numpy()
            ones, ids = np.ones(len(column), np.int64), [model.encode_bare(column) for model in models]
            values = sums.values(column, ones, ids, counts, 0)
            sums.add({"script": main_scripts(column)}, values)
            if has_texts:
                values[:, :3] = 0  # those of the texts follow
            names = dict(zip(kinds, (ALL, *group), strict=True))
            sums.add({kind: constant(name, len(column)) for kind, name in names.items()}, values)
            language = constant(names.get("language", UNKNOWN), len(column)).cast(pa.string())
            sums.words.add_counts(pa.table([language, column, counts], schema=WORDS))
    for each in artifact.report["groups"]:
        row = np.zeros((1, len(SUMMED) + 2 * len(models)), np.int64)
        row[0, :3] = each["n_documents"], *((each["n_text_bytes"], each["n_chars"]) if has_texts else (0, 0))
        names = dict(zip(kinds, (ALL, *each["labels"]), strict=True))
        sums.add({kind: constant(name, 1) for kind, name in names.items()}, row)
    if not sums.groups(ALL):
        raise ValueError(f"--on: the counts in {artifact.output!r} hold no words")
    report = measure.report(candidates, sums, _encode_word, has_documents=False)
    report["on"] |= {
        "what": "counts",
        "word": "the pre-tokens of the counts",
        "bytes_of": "texts" if has_texts else "words",
        "is_whole": has_texts,
        "counts": artifact.digest,
        "pruned": artifact.report["pruned"],
    }
    return report


def check(candidates: Sequence[Candidate], artifact: CountsArtifact) -> None:
    """Raises ValueError, naming tokenizers, unless all tokenizers have the words that were counted."""
    told = {each.label: differences(describe_words(each.tokenizer.to_str()), artifact.words) for each in candidates}
    if wrong := "".join(f"  {label}: {how}\n" for label, how in told.items() if how):
        raise ValueError(
            "--on: these tokenizers have other words than were counted, so counts say nothing of them:\n"
            f"{wrong}compare them on text, or count again with their normalizer and pre_tokenizer"
        )


def _encode_word(model: Tokenizer, words: pa.Array) -> Encoded:
    sizes, n_unknown = encode_each(model, words)
    return Encoded(sizes, sizes, n_unknown)  # a pre-token has its space, if any
