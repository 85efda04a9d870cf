# SPDX-License-Identifier: Apache-2.0
"""Takes one split from reader to committed shard, as a plain loop over the steps that jobs run as a graph."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input.reading import Wanted
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.pages import Page, Step, Work, read_pages
from tokenmill.pipeline.tokenizing.steps import STEPS, Encode
from tokenmill.pipeline.tokenizing.writing import SplitWriter, load_committed
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
    (entry,) = tokenize_folders([work], wanted, on_tokens=on_tokens)
    return entry


def tokenize_folders(
    works: Sequence[Work],
    wanted: Wanted | None = None,
    *,
    limits: Mapping[int, int] | None = None,
    on_tokens: OnTokens | None = None,
) -> list[LedgerEntry]:
    """Reads a split once for several folders, and does for each of them what `tokenize_split` does.

    Args:
      works: the same split for each folder.
      wanted: as for `tokenize_split`.
      limits: as for `read_split`.
      on_tokens: as for `tokenize_split`.

    Returns:
      The entry of each folder, in order.
    """
    entries = {work.folder: load_committed(work) for work in works}
    todo = [work for work in works if entries[work.folder] is None]
    with contextlib.ExitStack() as stack:
        steps = {work.folder: [step(work) for step in STEPS] for work in todo}
        writers = {work.folder: stack.enter_context(SplitWriter(work)) for work in todo}
        for page in read_pages(todo, wanted, limits) if todo else ():
            folder = page.work.folder
            entries[folder] = writers[folder](_through(steps[folder], page, on_tokens))
    return [entry for entry in entries.values() if entry is not None]


def _through(steps: Sequence[Step], page: Page, on_tokens: OnTokens | None) -> Page:
    """Returns a page after all steps."""
    for step in steps:
        page = step(page)
        if on_tokens is not None and isinstance(step, Encode) and page.encoded is not None:
            texts, again = page.encoded.texts, partial(step.encoder.encode_by, page.encoded.texts)
            on_tokens(texts.documents.column("doc_id"), texts.column, page.encoded.ids, again)
    return page
