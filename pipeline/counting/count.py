# SPDX-License-Identifier: Apache-2.0
"""Counts the words of splits, each into a file of sorted runs. No Beam here.

    split --count_split--> words in memory --spill.RunsWriter--> _counts/splits/_runs/<id>.arrow
                           the split's entry -----------------> _counts/splits/_ledger/<id>.json

Words are normalized pre-tokens, so counts depend on the input, the normalizer and the pre-tokenizer, and on nothing
else: not on the vocabulary, not on how the input was cut into splits. A run holds the words of one group, by the keys
of `partitions.word_keys`, so a hash partition is a range of each run; `finishing` merges these ranges. A split is
committed as one that is tokenized, by renames and an entry of the ledger, so every step can be repeated, or run twice
at the same time: it finds its result on disk, or writes the same bytes again.

Memory is bounded whatever the corpus: counters that have grown to `MAX_COUNTER_BYTES` become runs.
"""

import fnmatch
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books.counts import Accounts, Counts, count_reasons, flatten
from tokenmill.pipeline.books.ledger import SplitEntry
from tokenmill.pipeline.books.reject_limits import RejectLimits
from tokenmill.pipeline.books.sums import SortedRuns
from tokenmill.pipeline.config.input import PLACES, InputConfig
from tokenmill.pipeline.config.text import TextOptions
from tokenmill.pipeline.config.tokenizer import CountsConfig
from tokenmill.pipeline.counting.counts import Group, group_name
from tokenmill.pipeline.counting.partitions import N_PARTITIONS, word_keys
from tokenmill.pipeline.counting.words import describe_words
from tokenmill.pipeline.input import given_up, languages
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.pipeline.input.given_up import without_rejected
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.output.spill import RunsWriter
from tokenmill.pipeline.output.staging import StagedFile, Staging
from tokenmill.pipeline.running.progress import Amount, OnBatch
from tokenmill.pipeline.splits import Piece, Split
from tokenmill.tokenizer import ScannedTexts, Tokenizer, WordCounter, unchecked_text_rows

MAX_COUNTER_BYTES = 256 << 20
"""When the distinct words of a split take more memory than this, they are written out, and counting starts at zero."""

MAX_GROUPS = 4096
"""The most sources by which a corpus may be counted."""

_KEY_VERSION = 4
"""Changes when the words of a text, or what is counted of it, change."""


@dataclass(frozen=True)
class Counting:
    """A count of words: all that its result depends on."""

    input: InputConfig
    output: str
    """The output folder."""
    tokenizer: str
    """A `tokenizer.json`, whose normalizer and pre-tokenizer define the words; needs no vocabulary."""
    counts: CountsConfig = CountsConfig()  # noqa: RUF009 - immutable; every word is kept, whatever its source
    text: TextOptions = TextOptions()  # noqa: RUF009 - immutable
    """How text is changed before its words are counted; spans are not words."""
    n_partitions: int = N_PARTITIONS
    plan: str = ""
    """A digest of all splits."""
    is_sample: bool = False
    """As `JobPlan.is_sample`: files are not read as a whole, and no limit on rejects applies."""

    @functools.cached_property
    def key(self) -> str:
        """The digest of all that the counts of a split depend on besides its bytes."""
        words = describe_words(self.tokenizer)
        decides = {
            "format_version": _KEY_VERSION,
            "input": self.input.model_dump(exclude={**PLACES, "split_bytes": True}),
            # A list, as the order of sources matters.
            "counts": self.counts.model_dump() | {"sources": list(self.counts.sources.items())},
            "normalizer": words["normalizer"],
            "pre_tokenizer": words["pre_tokenizer"],
            **({"text": self.text.parts()} if self.text else {}),
            **({"n_partitions": self.n_partitions} if self.n_partitions != N_PARTITIONS else {}),
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    @property
    def splits(self) -> str:
        """The folder of the splits: their runs and their ledger."""
        return storage.join(self.output, filenames.COUNTED_SPLITS)


def source_of(piece: Piece, counts: CountsConfig) -> str:
    """Returns the source of a file: that which `counts.sources` or `input.sources` gives it, or else its name.

    Raises:
      ValueError: if no pattern matches.
    """
    if not counts.sources:
        return piece.source or piece.name
    for label, pattern in counts.sources.items():
        if fnmatch.fnmatchcase(piece.name, pattern):
            return label
    raise ValueError(
        f"counts.sources: the file {piece.name!r} matches no pattern; add one for it, for example `other: '*'` at the "
        "end"
    )


def check_sources(splits: Iterable[Split], counts: CountsConfig) -> None:
    """Checks that every file has a source, and that there are not too many sources.

    Raises:
      ValueError: naming the first file without a source, or the number of sources.
    """
    if "source" not in counts.by:
        return
    found = {source_of(piece, counts) for split in splits for piece in split.pieces}
    if len(found) > MAX_GROUPS:
        raise ValueError(
            f"counts.by: the input has {len(found)} sources, at most {MAX_GROUPS} are allowed; name them by patterns "
            "of files with counts.sources"
        )


def count_split(
    split: Split,
    of: Counting,
    tokenizer: Tokenizer,
    on_batch: OnBatch | None = None,
) -> SplitEntry:
    """Counts the words of one split into a file of runs, or returns the entry that an earlier attempt has committed.

    The numbers of its documents and words are in the groups `counts.group_name`, all others in the group "".

    Args:
      split: the split to read.
      of: what is counted.
      tokenizer: that of `of`.
      on_batch: called after each batch; an exception from it stops the count.

    Raises:
      OSError: if a file of the split cannot be read.
      BooksError: if the numbers of records read and counted differ.
      ValueError: if this split alone has more rejected records than the job may have.
    """
    name = filenames.runs_name(split.id)
    if (committed := SplitEntry.committed(of.splits, split, of.key, [name])) is not None:
        return committed
    with Staging(of.splits, split.id) as staging:
        counter = _SplitCounter(split, of, tokenizer, staging.create(name))
        for batch in read_split(replace(split, fields=""), of.input):
            counted, n_rejected = counter.add(batch)
            if on_batch is not None:
                on_batch(Amount(counted.n_bytes, counted.n_records, n_rejected, counted.n_filtered))
        entry = counter.finish()
        staging.commit(entry)
    return entry


class _SplitCounter:
    """Counts the words of a split, group by group; counters become runs when they grow too large."""

    def __init__(self, split: Split, of: Counting, tokenizer: Tokenizer, file: StagedFile) -> None:
        self._split, self._of, self._tokenizer = split, of, tokenizer
        self._steps = of.text.wrap(tokenizer) if of.text else None
        self._grouping = _Grouping(split, of.counts)
        self._limits = RejectLimits.of(of.input.of(split.source))
        self._writer = RunsWriter(
            file, MAX_COUNTER_BYTES, of_all_keys=True, n_ranges=of.n_partitions, compression="zstd"
        )
        self._groups: list[Group] = []
        """That of each run."""
        self._scanner = tokenizer.new_word_counter()
        self._counters: dict[Group, WordCounter] = {}
        self._accounts, self._counts, self._n_rejected = Accounts(len(split.pieces)), Counts(), 0

    def add(self, batch: ReadBatch) -> tuple[ReadBatch, int]:
        """Counts a batch; returns what was counted, with more rejects perhaps, and how many of its records those are.

        Raises:
          ValueError: if the split has more rejected records than the job may have.
        """
        if self._of.text.languages is not None:
            batch, _ = languages.tell_languages(batch, self._of.text.languages)
        batch = self._count(batch)
        numbers, n_rejected = _numbers_of(batch), batch.rejects.num_rows if batch.rejects is not None else 0
        self._counts.add(numbers)
        self._accounts.add(batch.pieces)
        self._n_rejected += n_rejected
        self._limits.check(self._counts["n_records"], self._n_rejected)
        return batch, n_rejected

    def finish(self) -> SplitEntry:
        """Finishes the file of runs and returns the entry of the split."""
        self._empty()
        file = self._writer.finish()
        return SplitEntry(
            split_id=self._split.id,
            index=self._split.index,
            tokenizer=self._of.key,
            pieces=self._split.pieces,
            fields=self._split.fields,
            counts=self._counts.groups,
            inputs=self._accounts.finish(),
            shard=file,
            runs=SortedRuns(tuple(self._writer.runs), groups=tuple(self._groups)),
        )

    def _count(self, batch: ReadBatch) -> ReadBatch:
        """Counts the words of a batch; returns it with documents on which something gave up as rejects."""
        while True:
            try:
                scanned, batch = self._scan(batch)
                self._update(batch.documents, scanned)
                return batch
            except given_up.GAVE_UP:
                attempt = functools.partial(self._scan_documents, batch)
                reasons = given_up.find_given_up(attempt, batch.documents)
                if not reasons.any():
                    raise
                for reason in given_up.OF_TOKENIZER:
                    batch = without_rejected(batch, reasons == reason, reason, self._split)
                    reasons = reasons[reasons != reason]

    def _scan_documents(self, batch: ReadBatch, documents: pa.RecordBatch) -> None:
        self._scan(replace(batch, documents=documents))

    def _scan(self, batch: ReadBatch) -> tuple[list[tuple[Group, ScannedTexts]], ReadBatch]:
        """Finds the words of each group, the part that may fail, without changing any count.

        Raises:
          TimeoutError, MemoryError: if the pre-tokenizer gives up on a text.
        """
        texts, numbers = batch.documents.column("text"), self._grouping.numbers(batch.documents)
        if self._steps is not None:
            prepared = languages.prepare(self._steps, batch.documents)
            texts = prepared.texts()
            batch = without_rejected(batch, prepared.rejected, given_up.TEXT_TIMEOUT, self._split)
            if prepared.cut is not None:
                numbers = np.repeat(numbers, np.diff(prepared.cut.documents))
        groups = _by_group(texts, numbers, self._grouping.labels)
        return [(group, self._scanner.scan(unchecked_text_rows(each))) for group, each in groups], batch

    def _update(self, documents: pa.RecordBatch, scanned: Iterable[tuple[Group, ScannedTexts]]) -> None:
        numbers = self._grouping.numbers(documents)
        for group, texts in _by_group(documents.column("text"), numbers, self._grouping.labels):
            read = {"n_documents": len(texts), "n_words": 0, **_text_sizes(texts)}
            self._counts.add(read, group_name(group))
        for group, words in scanned:
            if group_name(group) in self._counts.groups:  # otherwise all its documents were rejected
                if group not in self._counters:
                    self._counters[group] = self._tokenizer.new_word_counter()
                self._counters[group].add(words)
        if sum(counter.n_bytes for counter in self._counters.values()) > MAX_COUNTER_BYTES:
            self._empty()

    def _empty(self) -> None:
        """Writes the counts as runs, and starts again at zero."""
        for group, counter in self._counters.items():
            counts = counter.to_table(ordered=False).combine_chunks()
            counter.clear()
            self._counts.add({"n_words": pc.sum(counts["count"]).as_py() or 0}, group_name(group))
            for batch in counts.to_batches():
                self._writer.write(word_keys(batch.column("word"), self._of.n_partitions), batch)
            self._writer.end_run()
            self._groups += [group] * (len(self._writer.runs) - len(self._groups))
        self._counters = {}


class _Grouping:
    """Assigns documents to groups: each document gets a number, and `labels` has the labels of each number."""

    def __init__(self, split: Split, counts: CountsConfig) -> None:
        self._is_by_language = "lang" in counts.by
        self.labels: Sequence[Group]
        if self._is_by_language:
            self.labels = languages.labels(counts.languages)
        elif "source" in counts.by:
            self.labels = [(source_of(piece, counts),) for piece in split.pieces]
        else:
            self.labels = [()] * len(split.pieces)

    def numbers(self, documents: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """Returns int32[n]: for each document, the index of its labels in `labels`."""
        column = documents.column("lang").indices if self._is_by_language else documents.column("piece")
        return np.asarray(column.to_numpy(zero_copy_only=False))


def _by_group(
    texts: pa.Array, numbers: npt.NDArray[np.int32], labels: Sequence[Group]
) -> Iterator[tuple[Group, pa.Array]]:
    """Yields the texts of each group; `numbers` are indices into `labels`, one for each text."""
    if len(set(labels)) == 1:
        yield labels[0], texts
        return
    by_group: dict[Group, list[int]] = {}
    for number in np.unique(numbers).tolist():
        by_group.setdefault(labels[number], []).append(number)
    for group, mine in by_group.items():
        yield group, texts if len(by_group) == 1 else texts.filter(pa.array(np.isin(numbers, mine)))


def _text_sizes(texts: pa.Array) -> dict[str, int]:
    n_bytes, n_chars = pc.sum(pc.binary_length(texts)).as_py(), pc.sum(pc.utf8_length(texts)).as_py()
    return {"n_text_bytes": n_bytes or 0, "n_chars": n_chars or 0}


def _numbers_of(batch: ReadBatch) -> dict[str, int]:
    """Returns what was read, counted by the documents and rejects themselves, and not by their files as `Accounts`."""
    documents, rejects, read = batch.documents, batch.rejects, batch.counts
    return flatten(
        {
            "n_records": batch.n_records,
            "n_documents": documents.num_rows,
            "rejected": count_reasons(rejects) if rejects is not None else {},
            "filtered": read.filtered,
            "n_bytes": batch.n_bytes,
            "n_document_bytes": pc.sum(documents.column("n_bytes")).as_py() or 0,
            "n_rejected_bytes": (pc.sum(rejects.column("n_bytes")).as_py() or 0) if rejects is not None else 0,
            "n_filtered_bytes": read.n_filtered_bytes,
            "n_skipped_bytes": batch.n_skipped_bytes,
        }
    )
