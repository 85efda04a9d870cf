# SPDX-License-Identifier: Apache-2.0
"""One split from reader to committed shard: a plain loop over the steps that jobs run as a graph, and the end of it.

Pages of a split go to a staged shard, or to sorted runs; all of it is committed by renames.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline import filenames
from tokenmill.pipeline.books.counts import flatten, read_of
from tokenmill.pipeline.books.job_books import check_balance
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry, ShardEntry
from tokenmill.pipeline.books.reject_limits import RejectLimits
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input.reading import Wanted
from tokenmill.pipeline.output.arranging import row_form
from tokenmill.pipeline.output.shard import Shard
from tokenmill.pipeline.output.spill import SortedSplit
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.output.tables import RejectsFile
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.running.progress import Amount, OnBatch
from tokenmill.pipeline.shuffling import PlannedShard, merge_shard
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.statistics.tally import check_agreement
from tokenmill.pipeline.tokenizing import steps
from tokenmill.pipeline.tokenizing.pages import (
    Page,
    SplitBooks,
    Step,
    Work,
    read_pages,
    schema_of_rows,
    tokenizer_info,
)
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.reference_encoding import TextByText

EncodeBy = Callable[[TextByText, npt.NDArray[np.int64]], pa.LargeListArray]
"""Encodes some documents of a batch, given by their numbers, with something else than the tokenizer."""

OnTokens = Callable[[pa.Array, pa.Array, pa.LargeListArray, EncodeBy], None]
"""Takes ids, texts and bare tokens of documents, and what encodes some of them again."""


def tokenize_split(
    split: Split,
    config: Config,
    tokenizer: Tokenizer,
    n_splits: int,
    wanted: Wanted | None = None,
    *,
    are_merged: bool = False,
    on_tokens: OnTokens | None = None,
) -> LedgerEntry:
    """Reads, tokenizes, writes and commits one split; if it is committed already, only returns its entry.

    Every attempt writes the same bytes, so it may be repeated, and may run twice at the same time. Holds one page of
    text, its tokens and one row group. If the job shuffles, it writes sorted runs instead, and holds one run.

    Args:
      split: a split of the plan.
      config: the config of the job.
      tokenizer: compiled, with the truncation and padding of the config; may be shared by threads.
      n_splits: the number of splits of the plan.
      wanted: the documents to tokenize; None: all.
      are_merged: whether a job that shuffles has merged all shards, so that a committed split needs no runs.
      on_tokens: called with the documents of each page.

    Raises:
      OSError: if a file cannot be read or written.
      ValueError: if the tokenizer is not what the config says, a row is longer than the length to pad to, or this split
        alone has more rejected records than the job may have.
      BooksError: if the counts of records read, made and written do not agree; nothing is committed then.
    """
    work = Work(split, config, tokenizer, n_splits, are_merged)
    if (entry := load_committed(work)) is not None:
        return entry
    made = [step(work) for step in steps.STEPS]
    with SplitWriter(work) as writer:
        for page in read_pages([work], wanted):
            entry = writer(_through(made, page, on_tokens))
    assert entry is not None, "the last page commits the split"
    return entry


def _through(made: Sequence[Step], page: Page, on_tokens: OnTokens | None) -> Page:
    """Returns a page after all steps."""
    for step in made:
        page = step(page)
        if on_tokens is not None and isinstance(step, steps.Encode) and page.encoded is not None:
            texts, again = page.encoded.texts, partial(step.encoder.encode_by, page.encoded.texts)
            on_tokens(texts.documents.column("doc_id"), texts.column, page.encoded.ids, again)
    return page


class SplitWriter:
    """The staged files of one attempt at a split. Its last page commits them: shard, rejects, statistics, entry.

    Use it as a context manager, or call `close`: what an error or a commit leaves behind is removed.
    """

    def __init__(self, work: Work) -> None:
        """Creates the files of the shard, or of sorted runs if the job shuffles."""
        split, config, info = work.split, work.config, work.info
        self._work, self._staging = work, Staging(config.output.path, split.id)
        self._limits = RejectLimits.of(work.source_config.input)
        try:
            self._rejects = RejectsFile(self._staging, filenames.rejects_name(split.index, work.n_splits), split.pieces)
            self._shard: Shard | SortedSplit
            if config.output.shuffle is not None:
                side = None if work.layout.window is not None else info.padding_side
                self._shard = SortedSplit(self._staging, split, config.output.shuffle, side)
            else:
                form, schema = row_form(config, work.tokenizer), schema_of_rows(config, split.fields)
                place = self._staging, split.index, work.n_splits
                self._shard = Shard(*place, config.output, info, form, schema)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes what is staged."""
        self._staging.__exit__()

    def __call__(self, page: Page) -> LedgerEntry | None:
        """Writes a page; commits the split with the last one, and returns its entry.

        Raises:
          OSError: if a file cannot be written.
          ValueError: if this split alone has more rejected records than the job may have.
          BooksError: if the counts of records read, made and written do not agree; nothing is committed then.
        """
        if page.batch is None:
            entry = self.finish(page.books)
            self._staging.commit(entry)
            return entry
        if page.rows is not None and page.documents is not None:
            if isinstance(self._shard, SortedSplit):
                self._shard.add(page.documents, page.rows)
            else:
                self._shard.write(page.rows)
        n_before = self._rejects.n_rows
        for batch in (*page.rejects, *([] if page.batch.rejects is None else [page.batch.rejects])):
            self._rejects.write(batch)
        self._limits.check(page.books.n_records, self._rejects.n_rows)
        if page.report is not None:
            page.report(Amount(n_rejected=self._rejects.n_rows - n_before, n_tokens=_n_tokens(page)))
        return None

    def finish(self, books: SplitBooks) -> LedgerEntry:
        """Finishes the files and returns the entry to commit; raises BooksError if it does not balance."""
        files = self._shard.finish()
        file = self._staging.create(filenames.statistics_name(self._work.split.id))
        file.write(books.statistics.to_bytes())
        entry = entry_of(self._work, books, self._shard, files, self._rejects, file.finish())
        check_agreement(entry, books.statistics)
        check_balance(entry)
        return entry


def _n_tokens(page: Page) -> int:
    return 0 if page.rows is None else int(page.rows.column("n_tokens").to_numpy().sum())


def entry_of(
    work: Work,
    books: SplitBooks,
    written: Shard | SortedSplit,
    files: Sequence[FileRecord],
    rejects: RejectsFile,
    statistics: FileRecord,
) -> LedgerEntry:
    """Returns the ledger entry of a split.

    Args:
      work: the split and its folder.
      books: what was counted.
      written: the finished shard or runs.
      files: their files.
      rejects: the rejects, which this finishes.
      statistics: the file of the statistics.
    """
    split, inputs, counts = work.split, books.accounts.finish(), books.statistics
    counts.add(read_of(inputs))
    rejected = {"rejected": rejects.reasons, "n_rejected_bytes": rejects.n_bytes}
    of_documents = {"chat": books.chat, "has_field": books.has_field}
    counts.add(flatten({**rejected, **of_documents, "packing": written.packing, "windows": written.windows}))
    return LedgerEntry(
        split_id=split.id,
        index=split.index,
        tokenizer=work.info.digest,
        pieces=split.pieces,
        counts=counts.groups,
        inputs=inputs,
        shard=files[0],
        companions=tuple(files[1:]),
        documents=written.documents,
        fields=split.fields,
        runs=written.runs,
        rejects=rejects.finish(),
        statistics=statistics,
    )


def load_committed(work: Work) -> LedgerEntry | None:
    """Returns the entry of a split that an earlier attempt has committed; None if it is to be done."""
    output, split, n = work.config.output, work.split, work.n_splits
    names = [filenames.runs_name(split.id)]
    if output.shuffle is None:
        names = [filenames.shard_name(split.index, n, suffix) for suffix in formats.suffixes(output)]
        names.append(filenames.documents_name(split.index, n))
    entry = LedgerEntry.committed(output.path, split, work.info.digest, names, are_merged=work.are_merged)
    if entry is not None and entry.rejects is not None:
        return entry if entry.rejects.file == filenames.rejects_name(split.index, n) else None
    return entry


def merge_planned(
    planned: PlannedShard,
    splits: Sequence[SplitRuns],
    config: Config,
    tokenizer: Tokenizer,
    on_rows: OnBatch | None = None,
) -> ShardEntry:
    """Merges, writes and commits one shard of a job that shuffles; see `shuffling.merge_shard`."""
    info, form = tokenizer_info(tokenizer), row_form(config, tokenizer)
    schema = schema_of_rows(config, splits[0].fields if splits else "")
    return merge_shard(planned, splits, config.output, info, schema, form, on_rows)
