# SPDX-License-Identifier: Apache-2.0
"""The steps between reader and writer: `Normalize`, `Encode`, `Count`. `STEPS` is their order, for jobs and replays.

A step is made for each split of each folder and takes its pages in order. To add one, write a class with the interface
of `pages.Step` and put it into `STEPS`; the graph of a job then shows it under its name.
"""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.counts import LANGUAGE, filtered, rejected
from tokenmill.pipeline.books.quantities import OF_A_STEP, STEP, TOO_LONG
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.kept_fields import decode_fields
from tokenmill.pipeline.input import given_up, languages
from tokenmill.pipeline.input.batches import ReadBatch, n_named
from tokenmill.pipeline.statistics import words
from tokenmill.pipeline.statistics.sample import Sample
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.tokenizing.encoders import Encoded, Rejected, Texts, encode, encoder_of
from tokenmill.pipeline.tokenizing.pages import Changes, Page, SplitBooks, Step, Work, leave_out_others, schema_of_rows
from tokenmill.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenmill.tokenizer.text import PreparedText


class Normalize:
    """Leaves out the documents that rules do not want, and applies the text steps of the config to the others.

    What the tokenizer itself normalizes is left to `Encode`: its kernels do both at once.
    """

    def __init__(self, work: Work) -> None:
        """Prepares for a split."""
        self._work = work

    def __call__(self, page: Page) -> Page:
        """Returns the page with `texts`."""
        if page.batch is None:
            return page
        batch = self._chosen(page.batch, page.books)
        page.books.accounts.add(batch.pieces)
        page.books.n_records += batch.n_records
        texts = Texts(batch.documents, batch.documents.column("text"))
        page = dataclasses.replace(page, batch=batch, texts=texts)
        return page if self._work.text is None else self._prepared(page, batch.documents)

    def _chosen(self, batch: ReadBatch, books: SplitBooks) -> ReadBatch:
        config = self._work.config
        if config.text.languages is not None:
            batch, left_out = languages.tell_languages(batch, config.text.languages)
            books.statistics += left_out
        if config.output.parts is not None:
            batch, left_out = leave_out_others(batch, config)
            books.statistics += left_out
        return batch

    def _prepared(self, page: Page, documents: pa.RecordBatch) -> Page:
        assert self._work.text is not None
        prepared = languages.prepare(self._work.text, documents)
        texts = Texts(documents, prepared if self._work.config.spans else prepared.documents())
        gone = prepared.rejected
        page = dataclasses.replace(page, changes=_changes_of(prepared, int((~gone).sum())))
        if not gone.any():
            return dataclasses.replace(page, texts=texts)
        lost = Rejected(documents.filter(pa.array(gone)), given_up.TEXT_TIMEOUT)
        return reject(dataclasses.replace(page, texts=texts.filter(~gone)), self._work, [lost])


class Encode:
    """Encodes texts to bare ids, by the encoder of the config; documents on which it gives up become rejects."""

    def __init__(self, work: Work) -> None:
        """Chooses the encoder."""
        self._work, self._tally = work, work.tokenizer.new_tally()
        self.encoder = encoder_of(work.source_config, work.tokenizer, work.text, work.layout, work.names)

    def __call__(self, page: Page) -> Page:
        """Returns the page with `encoded` instead of `texts`; the tally of all goes into the books with the last."""
        books = page.books
        if page.texts is None:
            books.statistics.add_tally(self._tally)
            return page
        encoded = encode(self.encoder, page.texts, self._tally)
        if page.changes is not None:
            changes = self._changes(page.changes, encoded)
            books.statistics.add_text(changes.reports, changes.n_spans)
        if encoded.too_long is not None:
            leave_out(page, self._work, encoded.too_long, TOO_LONG)
        if encoded.counts is not None and books.chat is not None:
            books.chat.update(encoded.counts)
        return reject(dataclasses.replace(page, texts=None, encoded=encoded), self._work, encoded.rejects)

    def _changes(self, changes: Changes, encoded: Encoded) -> Changes:
        """Returns what text steps have changed in the texts that are encoded, which may be fewer."""
        texts = encoded.texts
        if texts.num_rows == changes.n_texts:
            return changes
        assert self._work.text is not None
        return _changes_of(languages.prepare(self._work.text, texts.documents), texts.num_rows)


class Count:
    """Lays tokens out as the rows of the shard, and counts documents, texts and tokens."""

    def __init__(self, work: Work) -> None:
        """Prepares for a split."""
        split, tokenizer = work.split, work.tokenizer
        check_padding(tokenizer, work.config)
        self._work, self._rows = work, work.layout
        around = [*self._rows.document.before.tolist(), *self._rows.document.after.tolist()]
        self._n_unknown_marks = around.count(tokenizer.unk_token_id)
        self._sample = Sample(tokenizer, split.n_bytes, has_spans=bool(work.config.text.tokens))
        self._schema = schema_of_rows(work.config, split.fields)
        self._files = np.array([piece.file for piece in split.pieces], np.int32)
        self._has_languages = work.config.languages is not None
        id_field, kept = work.source_config.input.own_id_field, decode_fields(split.fields).names
        self._id_field = None if id_field in kept else id_field

    def __call__(self, page: Page) -> Page:
        """Returns the page with `rows` and `documents` instead of `encoded`."""
        books = page.books
        if page.encoded is None:
            self._add_sample(books)
            return page
        documents, text, bare = page.encoded.texts.documents, page.encoded.texts.column, page.encoded.ids
        layout = self._rows.document
        lengths = np.diff(bare.offsets.to_numpy())
        kept = layout.kept(lengths)
        if self._sample.add(text, bare, *([documents.column("lang")] if self._has_languages else [])):
            self._add_sample(books)
        if layout.padding is not None:
            _check_lengths(documents, kept + layout.n_around, layout.padding.target(0))
        ids = layout.apply(bare)
        starts, stops = layout.spans(ids, kept)
        n_chars, n_words = words.count(text)
        statistics, values = books.statistics, ids.values.to_numpy()
        n_oov = statistics.update(text, values, starts, stops, self._n_unknown_marks, (n_chars, n_words))
        statistics.add_layout(lengths, kept, self._rows.n_special, self._rows.marks.n_added)
        counts = {"n_chars": n_chars, "n_spaced_words": n_words, "n_text_tokens": lengths}
        counts |= {"n_tokens": stops - starts, "n_oov_tokens": n_oov}
        books.accounts.add_tokenized(documents, **counts)
        if self._has_languages:
            _add_by_language(statistics, documents, text, counts)
        self._count_fields(books, documents)
        columns = [documents.column("doc_id"), ids, pa.array((stops - starts).astype(np.int32)), pa.array(n_oov)]
        rows = pa.RecordBatch.from_arrays([*columns, *self._more(page.encoded)], schema=self._schema)
        return dataclasses.replace(page, encoded=None, rows=rows, documents=documents)

    def _more(self, encoded: Encoded) -> list[pa.Array]:
        """Returns the columns of rows behind those of `schemas.TOKENS`."""
        documents = encoded.texts.documents
        columns = [] if encoded.more is None else [encoded.more]
        if self._has_languages:
            columns += [documents.column(field.name).cast(field.type) for field in schemas.LANGUAGES]
        columns.append(pa.array(self._files[documents.column("piece").to_numpy()]))
        columns += [documents.column("offset"), documents.column("n_bytes")]
        return [*columns, documents.column(schemas.FIELDS)] if self._work.split.fields else columns

    def _count_fields(self, books: SplitBooks, documents: pa.RecordBatch) -> None:
        """Counts the documents that have each of the kept fields, and the field of the config for ids."""
        if self._work.split.fields:
            kept = documents.column(schemas.FIELDS)
            books.has_field.update({f.name: len(kept) - kept.field(i).null_count for i, f in enumerate(kept.type)})
        if self._id_field is not None:
            books.has_field[self._id_field] += n_named(documents, self._work.names)

    def _add_sample(self, books: SplitBooks) -> None:
        codes, counts = self._sample.counts()
        books.statistics.add_sample(counts)
        if codes:
            books.statistics.add_by(LANGUAGE, codes[0], **counts)


BUILT_IN: tuple[type[Step], ...] = (Normalize, Encode, Count)
"""The steps that TokenMill comes with."""

STEPS = BUILT_IN
"""The steps of every job, in order. With one of your own: `(Normalize, LeaveOutShort, Encode, Count)`."""


def steps_of(job: str) -> str:
    """Returns the names of the steps of a job for its record; "" for those that TokenMill comes with, or none."""
    return "" if job in ("count", "train") or STEPS == BUILT_IN else " > ".join(step.__name__ for step in STEPS)


def leave_out(page: Page, work: Work, documents: pa.RecordBatch, rule: str = STEP) -> None:
    """Counts documents of a page as left out by a rule of `OF_A_STEP`; the step takes them out of the page."""
    assert rule in OF_A_STEP, rule
    page.books.accounts.add(filtered(documents, rule))
    if work.config.languages is not None:
        ones = np.ones(documents.num_rows, np.int64)
        page.books.statistics.add_by(LANGUAGE, documents.column("lang"), filtered=ones)


def reject(page: Page, work: Work, gone: "list[Rejected] | tuple[Rejected, ...]") -> Page:
    """Returns the page with more rejects; its books count these documents as rejected."""
    gone = [each for each in gone if each.documents.num_rows]
    for each in gone:
        page.books.accounts.add(rejected(each.documents, each.reason))
    batches = [given_up.as_rejects(each.documents, each.reason, work.split, each.details) for each in gone]
    return dataclasses.replace(page, rejects=(*page.rejects, *batches)) if batches else page


def _changes_of(prepared: "PreparedText", n_texts: int) -> Changes:
    return Changes(prepared.reports, prepared.n_spans, n_texts)


def _add_by_language(
    statistics: Statistics, documents: pa.RecordBatch, text: pa.Array, counts: dict[str, npt.NDArray[np.int64]]
) -> None:
    statistics.add_by(
        LANGUAGE,
        documents.column("lang"),
        documents=np.ones(documents.num_rows, np.int64),
        mixed=documents.column("lang_mixed").to_numpy(zero_copy_only=False).astype(np.int64),
        bytes=pc.binary_length(text).to_numpy().astype(np.int64),
        characters=counts["n_chars"],
        spaced_words=counts["n_spaced_words"],
        text_tokens=counts["n_text_tokens"],
        tokens=counts["n_tokens"],
        oov_tokens=counts["n_oov_tokens"],
    )


def _check_lengths(documents: pa.RecordBatch, n_ids: npt.NDArray[np.int64], length: int) -> None:
    if (n_ids > length).any():
        row = int(np.argmax(n_ids > length))
        raise ValueError(
            f"document {documents.column('doc_id')[row].as_py()!r} has {n_ids[row]} tokens, more than "
            f"tokenizer.padding.length {length}; raise it, or set tokenizer.truncation"
        )


def check_padding(tokenizer: Tokenizer, config: Config) -> None:
    """Raises ValueError unless the tokenizer pads as the config says, because shards depend on it."""
    asked, has = config.tokenizer.padding, tokenizer.padding
    expected = (asked.length, asked.side) if asked is not None else None
    found = (has.target(0), has.direction) if has is not None else None
    if expected != found or (has is not None and has.length is None):
        raise ValueError(
            f"the tokenizer's padding is {has!r}, but tokenizer.padding of the config is {asked!r}; "
            "call enable_padding or no_padding as the config says"
        )
