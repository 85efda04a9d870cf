# SPDX-License-Identifier: Apache-2.0
"""Counts the words of splits, each into a file. No Beam here.

    split --count_split--> _counts/<id>.arrow  --merge_partition--> counts/counts-00003-of-00016.parquet
                           _counts/<id>.json   --finish_counts-->   counts/alphabet.parquet, counts/counts.json

Words are normalized pre-tokens, so counts depend on the input, the normalizer and the pre-tokenizer, and on nothing
else: not on the vocabulary, not on how the input was cut into splits. Only a few hundred bytes pass between the steps,
as `SplitCounts` and `PartitionCounts`; the counts themselves stay in files. Every step can be repeated, or run twice at
the same time: it finds its result on disk, or writes the same bytes again.

Memory is bounded whatever the corpus: counters that have grown to `MAX_COUNTER_BYTES` are emptied into the file.
`finishing` processes the files.
"""

import dataclasses
import fnmatch
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.input_counts import Accounts, count_reasons
from tokenmill.pipeline.books.reject_limits import RejectLimits
from tokenmill.pipeline.config.input import PLACES, InputConfig
from tokenmill.pipeline.config.text import TextOptions
from tokenmill.pipeline.config.tokenizer import CountsConfig
from tokenmill.pipeline.counting.counts import Group
from tokenmill.pipeline.counting.partitions import N_PARTITIONS, partitions_of
from tokenmill.pipeline.counting.split_counts import FORMAT_VERSION, GroupTotals, SplitCounts, Totals
from tokenmill.pipeline.counting.words import describe_words
from tokenmill.pipeline.input import given_up, languages
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.pipeline.input.given_up import REASON as TEXT_TIMEOUT
from tokenmill.pipeline.input.given_up import without_rejected
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.running.progress import OnBatch
from tokenmill.pipeline.splits import Piece, Split
from tokenmill.tokenizer import ScannedTexts, Tokenizer, WordCounter, unchecked_text_rows

if TYPE_CHECKING:
    from tokenmill.tokenizer.text import TextTokenizer

MAX_COUNTER_BYTES = 256 << 20
"""When the distinct words of a split take more memory than this, they are written out, and counting starts at zero."""

MAX_GROUPS = 4096
"""The most sources by which a corpus may be counted."""


def count_key(
    input_config: InputConfig,
    counts: CountsConfig,
    tokenizer_json: str,
    text: TextOptions = TextOptions(),  # noqa: B008
    n_partitions: int = N_PARTITIONS,
) -> str:
    """Returns the digest of all that a split's counts depend on besides its bytes: how it is read, what a word is."""
    words = describe_words(tokenizer_json)
    decides = {
        "format_version": FORMAT_VERSION,
        "input": input_config.model_dump(exclude={**PLACES, "split_bytes": True}),
        "counts": counts.model_dump() | {"sources": list(counts.sources.items())},  # a list, as their order matters
        "normalizer": words["normalizer"],
        "pre_tokenizer": words["pre_tokenizer"],
        **({"text": text.parts()} if text else {}),
        **({"n_partitions": n_partitions} if n_partitions != N_PARTITIONS else {}),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


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
    input_config: InputConfig,
    output: str,
    tokenizer: Tokenizer,
    key: str,
    counts_config: CountsConfig | None = None,
    n_partitions: int = N_PARTITIONS,
    on_batch: OnBatch | None = None,
    text: TextOptions = TextOptions(),  # noqa: B008
    read: Callable[[Split, InputConfig], Iterator[ReadBatch]] | None = None,
) -> SplitCounts:
    """Counts the words of one split into `_counts/`, or returns what an earlier attempt has committed there.

    The file holds `schemas.WORD_COUNTS`, one record batch for each group and hash partition that has words, and as many
    again each time the counters had to be emptied. A word is in one partition only.

    Args:
      split: the split to read.
      input_config: the `input` section.
      output: the output folder.
      tokenizer: its normalizer and pre-tokenizer decide what a word is; needs no vocabulary.
      key: `count_key` of the config and the tokenizer.
      counts_config: the `counts` section; None for its defaults.
      n_partitions: the number of hash partitions.
      on_batch: called after each batch; an exception from it stops the count.
      text: how text is changed before it is counted; spans are not words.
      read: yields the batches of the split; None: `read_split`.

    Raises:
      OSError: if a file of the split cannot be read.
      BooksError: if the numbers of records read and counted differ.
      ValueError: if this split alone has more rejected records than the job may have.
    """
    if committed := _load_committed(output, split, key):
        return committed
    name = f"{filenames.COUNTING}/{split.id}.arrow"
    grouping = _Grouping(split, counts_config or CountsConfig())
    # Staged under a name of this attempt, so that two attempts never write into one file.
    with Staging(output, split.id) as staging:
        staged = staging.create(name)
        totals = Totals(rejected={}, filtered={})
        accounts = Accounts(len(split.pieces))
        before = text.wrap(tokenizer) if text else None
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(staged, schemas.WORD_COUNTS, options=options) as writer:
            counters = _Counters(tokenizer, writer, n_partitions)
            for batch in (read or read_split)(dataclasses.replace(split, fields=""), input_config):
                if text.languages is not None:
                    batch, _ = languages.tell_languages(batch, text.languages)
                batch = _count_batch(batch, before, counters, grouping, split)
                done = _totals_of(batch)
                totals += done
                accounts.add(batch.pieces)
                RejectLimits.of(input_config.of(split.source)).check(
                    totals.n_records, sum((totals.rejected or {}).values())
                )
                if on_batch is not None:
                    on_batch(done.n_bytes, done.n_documents, sum((done.rejected or {}).values()), 0, batch.n_filtered)
            counters.empty()
        groups = tuple(counters.totals[group] for group in counters.numbers)
        totals += Totals(n_words=sum(group.n_words for group in groups))
        record = staged.finish()
        reads = ((i, accounts.sum([i])) for i in range(len(split.pieces)))
        inputs = tuple((i, read) for i, read in reads if read.rejected or len(split.pieces) == 1)
        counts = SplitCounts(split.id, key, split.pieces, totals, groups, tuple(counters.batches), record, inputs)
        totals.check(f"split {split.id}")
        staging.publish()
    storage.write_atomic(storage.join(output, _descriptor_name(split.id)), counts.to_json().encode())
    return counts


def _count_batch(
    batch: ReadBatch, before: "TextTokenizer | None", counters: "_Counters", grouping: "_Grouping", split: Split
) -> ReadBatch:
    """Counts the words of a batch; returns it with documents on which something gave up as rejects."""
    while True:
        try:
            return _count_all(batch, before, counters.update, grouping, split)
        except given_up.GAVE_UP:
            attempt = partial(_scan_documents, batch, before, counters, grouping, split)
            reasons = given_up.find_given_up(attempt, batch.documents)
            if not reasons.any():
                raise
            for reason in given_up.REASONS:
                batch = without_rejected(batch, reasons == reason, reason, split)
                reasons = reasons[reasons != reason]


def _scan_documents(
    batch: ReadBatch,
    before: "TextTokenizer | None",
    counters: "_Counters",
    grouping: "_Grouping",
    split: Split,
    documents: pa.RecordBatch,
) -> None:
    _count_all(replace(batch, documents=documents), before, counters.scan, grouping, split)


def _count_all(
    batch: ReadBatch, before: "TextTokenizer | None", count: Callable[..., object], grouping: "_Grouping", split: Split
) -> ReadBatch:
    texts, numbers = batch.documents.column("text"), grouping.numbers(batch.documents)
    if before is not None:
        prepared = languages.prepare(before, batch.documents)
        texts, batch = prepared.texts(), without_rejected(batch, prepared.rejected, TEXT_TIMEOUT, split)
        if prepared.cut is not None:
            numbers = np.repeat(numbers, np.diff(prepared.cut.documents))
    count(batch.documents, texts, numbers, grouping)
    return batch


class _Counters:
    """A word counter for each group of a split; all are written to a file and emptied when they grow too large."""

    def __init__(self, tokenizer: Tokenizer, writer: pa.ipc.RecordBatchFileWriter, n_partitions: int) -> None:
        self._tokenizer, self._writer, self._n_partitions = tokenizer, writer, n_partitions
        self._scanner = tokenizer.new_word_counter()
        self._counters: dict[Group, WordCounter] = {}
        self.numbers: dict[Group, int] = {}
        """Groups in the order in which they were met."""
        self.totals: dict[Group, GroupTotals] = {}
        self.batches: list[tuple[int, int, int]] = []

    def update(
        self, documents: pa.RecordBatch, texts: pa.Array, numbers: npt.NDArray[np.int32], grouping: "_Grouping"
    ) -> None:
        """Counts words in texts: those of documents, perhaps changed by steps and spans.

        Args:
          documents: `schemas.DOCUMENTS`, for the totals.
          texts: the texts to count words in; numbers: int32[len(texts)], as `grouping.numbers` gives them.
          grouping: the grouping of the split.

        Raises:
          TimeoutError, MemoryError: if the pre-tokenizer gives up on a text; nothing is counted then.
        """
        scanned = self.scan(documents, texts, numbers, grouping)
        for group, of_group in _by_group(documents.column("text"), grouping.numbers(documents), grouping.labels):
            self.numbers.setdefault(group, len(self.numbers))
            read = GroupTotals(group, len(of_group), *_text_sizes(of_group))
            self.totals[group] = self.totals.get(group, GroupTotals(group)) + read
        for group, of_group in scanned:
            if group in self.numbers:  # otherwise all its documents were rejected
                if group not in self._counters:
                    self._counters[group] = self._tokenizer.new_word_counter()
                self._counters[group].add(of_group)
        if sum(counter.n_bytes for counter in self._counters.values()) > MAX_COUNTER_BYTES:
            self.empty()

    def scan(
        self, documents: pa.RecordBatch, texts: pa.Array, numbers: npt.NDArray[np.int32], grouping: "_Grouping"
    ) -> list[tuple[Group, ScannedTexts]]:
        """Does the part of `update` that may fail, without changing any count."""
        groups = _by_group(texts, numbers, grouping.labels)
        return [(group, self._scanner.scan(unchecked_text_rows(of))) for group, of in groups]

    def empty(self) -> None:
        """Writes the counts and starts again at zero."""
        for group, counter in self._counters.items():
            counts = counter.to_table(ordered=False)
            counter.clear()
            for partition, batch in enumerate(partitions_of(counts, self._n_partitions)):
                if batch.num_rows:
                    self._writer.write_batch(batch)
                    self._add_batch(self.numbers[group], partition)
            n_words = pc.sum(counts["count"]).as_py() or 0
            self.totals[group] += GroupTotals(group, n_words=n_words)
        self._counters = {}

    def _add_batch(self, group: int, partition: int) -> None:
        first = partition
        if self.batches and self.batches[-1][::2] == (group, partition):  # nearly always: most partitions have words
            first = self.batches.pop()[1]
        self.batches.append((group, first, partition + 1))


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
        if self._is_by_language:
            codes: npt.NDArray[np.int32] = documents.column("lang").indices.to_numpy(zero_copy_only=False)
            return codes
        pieces: npt.NDArray[np.int32] = documents.column("piece").to_numpy()
        return pieces


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


def _text_sizes(texts: pa.Array) -> tuple[int, int]:
    n_bytes, n_chars = pc.sum(pc.binary_length(texts)).as_py(), pc.sum(pc.utf8_length(texts)).as_py()
    return n_bytes or 0, n_chars or 0


def _totals_of(batch: ReadBatch) -> Totals:
    documents, rejects, read = batch.documents, batch.rejects, batch.counts
    return Totals(
        n_records=batch.n_records,
        n_documents=documents.num_rows,
        rejected=count_reasons(rejects) if rejects is not None else {},
        filtered=read.filtered,
        n_bytes=batch.n_bytes,
        n_document_bytes=pc.sum(documents.column("n_bytes")).as_py() or 0,
        n_rejected_bytes=(pc.sum(rejects.column("n_bytes")).as_py() or 0) if rejects is not None else 0,
        n_filtered_bytes=read.n_filtered_bytes,
        n_skipped_bytes=batch.n_skipped_bytes,
        n_text_bytes=pc.sum(pc.binary_length(documents.column("text"))).as_py() or 0,
        n_chars=pc.sum(pc.utf8_length(documents.column("text"))).as_py() or 0,
    )


def _descriptor_name(split_id: str) -> str:
    return f"{filenames.COUNTING}/{split_id}.json"


def _load_committed(output: str, split: Split, key: str) -> SplitCounts | None:
    path = storage.join(output, _descriptor_name(split.id))
    if not storage.exists(path):
        return None
    with storage.open_read(path) as handle:
        try:
            counts = SplitCounts.from_json(handle.read())
        except ValueError:
            return None
    is_same = (counts.split_id, counts.counter, counts.pieces) == (split.id, key, split.pieces)
    return counts if is_same and not ledger.problem(output, counts.file) else None
