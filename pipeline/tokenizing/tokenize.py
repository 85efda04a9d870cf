# SPDX-License-Identifier: Apache-2.0
"""Takes one split from reader to committed shard; for a shuffle, to sorted runs, and these to shards. No Beam here."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import filenames, schemas
from tokenmill.pipeline.books import ledger, quantities
from tokenmill.pipeline.books.counts import LANGUAGE
from tokenmill.pipeline.books.input_counts import Accounts, PieceCounts, filtered, rejected
from tokenmill.pipeline.books.job_books import check_balance
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.reject_limits import RejectLimits
from tokenmill.pipeline.books.rules import TOO_LONG
from tokenmill.pipeline.books.shard_entry import ShardEntry, runs_digest
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.kept_fields import decode_fields
from tokenmill.pipeline.filenames import runs_name
from tokenmill.pipeline.input import given_up, languages
from tokenmill.pipeline.input.batches import ReadBatch, n_named
from tokenmill.pipeline.input.reading import Wanted, read_split
from tokenmill.pipeline.output import marks, rejects_file
from tokenmill.pipeline.output.placement import RowForm
from tokenmill.pipeline.output.shard import Shard
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.running.progress import OnBatch
from tokenmill.pipeline.shuffling.runs import SortedSplit
from tokenmill.pipeline.shuffling.shards import PlannedShard, merge_shard
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.statistics import words
from tokenmill.pipeline.statistics.sample import Sample
from tokenmill.pipeline.statistics.tally import Statistics, check_agreement
from tokenmill.pipeline.tokenizing import parts
from tokenmill.pipeline.tokenizing.fim import FillInMiddle
from tokenmill.tokenizer import Padding, Tokenizer, Truncation, unchecked_text_rows
from tokenmill.tokenizer.reference_encoding import TextByText

if TYPE_CHECKING:
    from tokenmill.pipeline.tokenizing.chat import ChatTexts

_PADDED_IDS = 4 << 20
"""At most this many ids of padded rows are held at a time: padding may turn 4 MiB of short documents into gigabytes."""


EncodeBy = Callable[[TextByText, npt.NDArray[np.int64]], pa.LargeListArray]
"""Encodes some documents of a batch, given by their numbers, with something else than the tokenizer."""

OnTokens = Callable[[pa.Array, pa.Array, pa.LargeListArray, EncodeBy], None]
"""Takes ids, texts and bare tokens of documents, and what encodes some of them again."""


def tokenize_split(
    split: Split,
    config: Config,
    tokenizer: Tokenizer,
    n_splits: int,
    on_batch: OnBatch | None = None,
    wanted: Wanted | None = None,
    *,
    are_merged: bool = False,
    on_tokens: OnTokens | None = None,
) -> LedgerEntry:
    """Reads, tokenizes, writes and commits one split; if it is committed already, only returns its entry.

    Every attempt writes the same bytes, so it may be repeated, and may run twice at the same time. Holds one batch of
    text, its tokens and one row group. If the job shuffles, it writes sorted runs instead, and holds one run.

    Args:
      split: a split of the plan.
      config: the config of the job.
      tokenizer: compiled, with the truncation and padding of the config; may be shared by threads.
      n_splits: the number of splits of the plan.
      on_batch: called after each batch; an exception from it stops the attempt.
      wanted: the documents to tokenize; None: all.
      are_merged: whether a job that shuffles has merged all shards, so that a committed split needs no runs.
      on_tokens: called with the documents of each batch.

    Raises:
      OSError: if a file cannot be read or written.
      ValueError: if the tokenizer is not what the config says, a row is longer than the length to pad to, or this split
        alone has more rejected records than the job may have.
      BooksError: if the counts of records read, made and written do not agree; nothing is committed then.
    """
    part = SplitOfPart(split, config, tokenizer, are_merged)
    (entry,) = tokenize_parts([part], n_splits, on_batch, wanted, on_tokens=on_tokens)
    return entry


class SplitOfPart(NamedTuple):
    """What one folder takes of a split: the split, with its id in that folder, the config and the tokenizer."""

    split: Split
    config: Config
    tokenizer: Tokenizer
    are_merged: bool = False
    """As for `tokenize_split`."""


def tokenize_parts(
    folders: Sequence[SplitOfPart],
    n_splits: int,
    on_batch: OnBatch | None = None,
    wanted: Wanted | None = None,
    *,
    on_tokens: OnTokens | None = None,
    limits: Mapping[int, int] | None = None,
) -> list[LedgerEntry]:
    """Reads a split once for several folders, and does for each of them what `tokenize_split` does.

    Folders that have the split already are skipped; it is read for the others only. Holds one batch of text, and for
    each folder its tokens and one row group.

    Args:
      folders: the same split, under the id it has in each; the configs differ in tokenizer, part and path.
      n_splits: the number of splits of the plan.
      on_batch: as for `tokenize_split`; each record counts once, although all folders account for it.
      wanted: as for `tokenize_split`.
      on_tokens: as for `tokenize_split`.
      limits: as for `read_split`.

    Returns:
      The entry of each folder, in order.
    """
    committed = [_load_committed(part, n_splits) for part in folders]
    todo = [part for part, entry in zip(folders, committed, strict=True) if entry is None]
    if not todo:
        return [entry for entry in committed if entry is not None]
    split, config, *_ = todo[0]
    reject_limits = RejectLimits.of(config.input.of(split.source))
    with contextlib.ExitStack() as stack:
        stagings = [stack.enter_context(Staging(each.config.output.path, each.split.id)) for each in todo]
        attempts = [
            Attempt(*part[:3], tokenizer_info(part.tokenizer), staging, n_splits, on_tokens)
            for part, staging in zip(todo, stagings, strict=True)
        ]
        for batch in read_split(split, config.input, wanted=wanted, limits=limits):
            batch = parts.label(batch, config)
            done = [attempt.add(batch) for attempt in attempts]
            n_documents, n_rejected, n_tokens = map(sum, zip(*done, strict=True))
            reject_limits.check(attempts[0].n_records, sum(attempt.n_rejected for attempt in attempts))
            if on_batch is not None:
                n_filtered = batch.n_records - n_documents - n_rejected
                on_batch(batch.n_bytes, n_documents, n_rejected, n_tokens, n_filtered)
        made = [attempt.finish() for attempt in attempts]
        for staging, entry in zip(stagings, made, strict=True):
            staging.commit(entry)
    new = iter(made)
    return [next(new) if entry is None else entry for entry in committed]


def _load_committed(part: SplitOfPart, n_splits: int) -> LedgerEntry | None:
    output = part.config.output
    suffix, *companions = formats.suffixes(output)
    return ledger.load_committed(
        output.path,
        part.split,
        n_splits=n_splits,
        suffix=suffix,
        tokenizer=tokenizer_info(part.tokenizer).digest,
        companions=companions,
        runs=runs_name(part.split.id) if output.shuffle is not None else None,
        are_merged=part.are_merged,
    )


class Attempt:
    """The open files and the counts of one attempt at a split.

    `tokenize_split` shows how one is made: `add` every batch, then `finish`, and commit what that returns.
    """

    def __init__(
        self,
        split: Split,
        config: Config,
        tokenizer: Tokenizer,
        info: TokenizerInfo,
        staging: Staging,
        n_splits: int,
        on_tokens: OnTokens | None = None,
    ) -> None:
        self._on_tokens = on_tokens
        _check_padding(tokenizer, config)
        config = config.model_copy(update={"input": config.input.of(split.source)})
        self._split = split
        self._config = config
        self._tokenizer = tokenizer
        self._info = info
        self._staging = staging
        self._text = config.text.wrap(tokenizer) if config.text else None
        self._tally = tokenizer.new_tally()
        self._rows = marks.lay_out(config, tokenizer)
        self._layout = self._rows.document
        around = [*self._layout.before.tolist(), *self._layout.after.tolist()]
        self._n_unknown_marks = around.count(tokenizer.unk_token_id)
        self._statistics = Statistics(info.vocab_size, tokenizer.unk_token_id)
        self._sample = Sample(tokenizer, split.n_bytes, has_spans=bool(config.text.tokens))
        self._chat: ChatTexts | None = None
        self._chat_counts: Counter[str] = Counter()
        if config.input.is_chat:  # which needs what renders templates
            from tokenmill.pipeline.tokenizing import chat

            self._chat = chat.ChatTexts.of(config, tokenizer)
            self._chat_counts.update(dict.fromkeys(chat.COUNTS, 0))
        fim = config.output.fim
        self._fim = None if fim is None else FillInMiddle.of(fim, tokenizer, _room(config, self._rows))
        self._names = [piece.name for piece in split.pieces]
        self._schema = schemas.placed(schemas.rows(config.columns), decode_fields(split.fields))
        self._files = np.array([piece.file for piece in split.pieces], np.int32)
        self._shard: Shard | SortedSplit
        if config.output.shuffle is not None:
            self._shard = SortedSplit(
                staging, split, config.output.shuffle, None if self._rows.window is not None else info.padding_side
            )
        else:
            form = RowForm.of(config, tokenizer)
            self._shard = Shard(staging, split.index, n_splits, config.output, info, form, self._schema)
        self._rejects = rejects_file.RejectsFile(staging, filenames.rejects_name(split.index, n_splits), split.pieces)
        self._has_field: Counter[str] = Counter({each.name: 0 for each in decode_fields(split.fields)})
        id_field = config.input.own_id_field
        self._id_field = None if id_field is None or id_field in self._has_field else id_field
        self._accounts = Accounts(len(split.pieces))
        self.n_records = 0

    @property
    def n_rejected(self) -> int:
        """How many records were rejected so far, by readers, text steps and the tokenizer."""
        return self._rejects.n_rows

    def counts(self, pieces: Iterable[int]) -> PieceCounts:
        """Returns what was read of some pieces so far, and what became of it."""
        return self._accounts.sum(pieces)

    def add(self, batch: ReadBatch) -> tuple[int, int, int]:
        """Tokenizes and writes the documents of a batch.

        Returns:
          How many documents were written, how many records rejected, and how many tokens there are.
        """
        if self._config.text.languages is not None:
            batch, left_out = languages.tell_languages(batch, self._config.text.languages)
            self._statistics += left_out
        if self._config.output.parts is not None:
            batch, left_out = parts.leave_out_others(batch, self._config)
            self._statistics += left_out
        before = self._statistics["n_documents"], self.n_rejected, self._statistics["n_tokens"]
        self._accounts.add(batch.pieces)
        self.n_records += batch.n_records
        for documents in self._slices(batch.documents):
            tokens, kept = self._tokenize(documents)
            if isinstance(self._shard, SortedSplit):
                self._shard.add(kept, tokens)
            else:
                self._shard.write(tokens)
        if batch.rejects is not None:
            self._rejects.write(batch.rejects)
        after = self._statistics["n_documents"], self.n_rejected, self._statistics["n_tokens"]
        return after[0] - before[0], after[1] - before[1], after[2] - before[2]

    def finish(self) -> LedgerEntry:
        """Finishes the files and returns the entry to commit.

        Raises:
          BooksError: if it does not balance.
        """
        shard, *companions = self._shard.finish()
        self._statistics.add_tally(self._tally)
        self._add_sample()
        counted = self._statistics
        file = self._staging.create(filenames.statistics_name(self._split.id))
        file.write(counted.to_bytes())
        inputs = self._accounts.finish()
        read = PieceCounts(**quantities.total([PieceCounts(), *inputs], quantities.counted(PieceCounts)))
        entry = LedgerEntry(
            split_id=self._split.id,
            index=self._split.index,
            tokenizer=self._info.digest,
            pieces=self._split.pieces,
            n_records=read.n_records,
            **{each.name: counted[each.name] for each in quantities.TOKENIZED},
            rejected=dict(sorted(self._rejects.reasons.items())),
            filtered=dict(read.filtered or {}),
            n_bytes=read.n_bytes,
            n_document_bytes=read.n_document_bytes,
            n_rejected_bytes=self._rejects.n_bytes,
            n_filtered_bytes=read.n_filtered_bytes,
            n_skipped_bytes=read.n_skipped_bytes,
            inputs=inputs,
            shard=shard,
            companions=tuple(companions),
            documents=self._shard.documents,
            chat=dict(self._chat_counts) if self._chat is not None else None,
            fields=self._split.fields,
            has_field=dict(self._has_field),
            packing=self._shard.packing,
            windows=self._shard.windows,
            runs=self._shard.runs,
            rejects=self._rejects.finish(),
            statistics=file.finish(),
        )
        check_agreement(entry, counted)
        check_balance(entry)
        return entry

    def _slices(self, documents: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        padding = self._layout.padding
        if padding is None:
            yield documents
            return
        n_rows = max(1, _PADDED_IDS // max(1, padding.target(0)))
        for start in range(0, documents.num_rows, n_rows):
            yield documents.slice(start, n_rows)

    def _encode(
        self, documents: pa.RecordBatch
    ) -> tuple[pa.Array, pa.LargeListArray, pa.LargeListArray | None, pa.RecordBatch]:
        """Returns the tokenized texts, their bare tokens, the sources of their spans, and the remaining documents."""
        while True:
            try:
                return self._encode_all(documents)
            except given_up.GAVE_UP:
                reasons = given_up.find_given_up(self._try_encoding, documents)
                if not reasons.any():
                    raise
                for reason in given_up.REASONS:
                    self._reject(documents.filter(pa.array(reasons == reason)), reason)
                documents = documents.filter(pa.array(reasons == ""))

    def _encode_all(
        self, documents: pa.RecordBatch
    ) -> tuple[pa.Array, pa.LargeListArray, pa.LargeListArray | None, pa.RecordBatch]:
        """Does the same as `_encode`, but raises if the tokenizer gives up on a document, and then counts nothing."""
        text = documents.column("text")
        if self._chat is not None:
            truncation = self._config.tokenizer.truncation
            is_whole = truncation is not None and truncation.overflow == "leave_out"
            made = self._chat.encode(text.to_pylist(), self._layout, self._tally, whole=is_whole)
            for reason, rows, details in made.rejects:
                self._reject(documents.take(rows), reason, details)
            self._accounts.add(filtered(documents.take(made.too_long), TOO_LONG))
            self._chat_counts.update(made.counts)
            return made.texts, made.ids, made.masks, made.complete(documents)
        if self._fim is not None:
            return text, self._fim.encode(documents, self._names, self._tally), None, documents
        if self._text is None:
            return text, self._tokenizer.encode_bare(unchecked_text_rows(text), self._tally), None, documents
        prepared = languages.prepare(self._text, documents)
        rows = self._text.encode_prepared(prepared, self._tally)
        self._statistics.add_text(prepared.reports, prepared.n_spans)
        sources = self._text.sources(prepared)
        text = prepared.documents()
        if prepared.rejected.any():
            self._reject(documents.filter(pa.array(prepared.rejected)), given_up.REASON)
            kept = pa.array(~prepared.rejected)
            text, rows, documents = text.filter(kept), rows.filter(kept), documents.filter(kept)
            sources = sources.filter(kept) if sources is not None else None
        return text, rows, sources, documents

    def _encode_by(
        self, documents: pa.RecordBatch, text: pa.Array, by: TextByText, rows: npt.NDArray[np.int64]
    ) -> pa.LargeListArray:
        """Returns the bare tokens of some documents, encoded by something else; `text` is what was tokenized."""
        if self._fim is not None:
            return self._fim.encode(documents.take(rows), self._names, by=by)
        if self._text is None or self._chat is not None or not self._config.spans:
            return by.encode_bare(text.take(rows))
        return by.encode_segments(self._text.segments(languages.prepare(self._text, documents.take(rows))))

    def _try_encoding(self, documents: pa.RecordBatch) -> None:
        if self._chat is not None:
            self._chat.encode(documents.column("text").to_pylist(), self._layout)
        elif self._text is None:
            self._tokenizer.encode_bare(unchecked_text_rows(documents.column("text")))
        else:
            self._text.encode_prepared(languages.prepare(self._text, documents))

    def _reject(self, gone: pa.RecordBatch, reason: str, details: pa.Array | None = None) -> None:
        if gone.num_rows:
            self._rejects.write(given_up.as_rejects(gone, reason, self._split, details))
            self._accounts.add(rejected(gone, reason))

    def _tokenize(self, documents: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Returns the rows of documents, and the documents, without those on which something gave up; counts both."""
        text, bare, sources, documents = self._encode(documents)
        if self._on_tokens is not None:
            again = functools.partial(self._encode_by, documents, text)
            self._on_tokens(documents.column("doc_id"), text, bare, again)
        layout = self._layout
        lengths = np.diff(bare.offsets.to_numpy())
        kept = layout.kept(lengths)
        codes = [documents.column("lang")] if self._config.languages is not None else []
        if self._sample.add(text, bare, *codes):
            self._add_sample()
        if layout.padding is not None:
            self._check_lengths(documents, kept + layout.n_around, layout.padding.target(0))
        rows = layout.apply(bare)
        del bare  # if it was copied, its memory is free for the next batch
        starts, stops = layout.spans(rows, kept)
        n_chars, n_words = words.count(text)
        ids = rows.values.to_numpy()
        n_oov = self._statistics.update(text, ids, starts, stops, self._n_unknown_marks, (n_chars, n_words))
        self._statistics.add_layout(lengths, kept, self._rows.n_special, self._rows.marks.n_added)
        counts = {"n_chars": n_chars, "n_spaced_words": n_words, "n_text_tokens": lengths}
        counts |= {"n_tokens": stops - starts, "n_oov_tokens": n_oov}
        self._accounts.add_tokenized(documents, **counts)
        columns = [documents.column("doc_id"), rows, pa.array((stops - starts).astype(np.int32)), pa.array(n_oov)]
        if self._chat is not None:
            columns.append(sources)
        elif sources is not None:
            columns.append(sources.cast(schemas.SPAN_SOURCES.type))
        if self._config.languages is not None:
            columns += [documents.column(field.name).cast(field.type) for field in schemas.LANGUAGES]
            self._statistics.add_by(
                LANGUAGE,
                documents.column("lang"),
                documents=np.ones(documents.num_rows, np.int64),
                mixed=documents.column("lang_mixed").to_numpy(zero_copy_only=False).astype(np.int64),
                bytes=pc.binary_length(text).to_numpy().astype(np.int64),
                characters=n_chars,
                spaced_words=n_words,
                text_tokens=lengths,
                tokens=stops - starts,
                oov_tokens=n_oov,
            )
        columns.append(pa.array(self._files[documents.column("piece").to_numpy()]))
        columns += [documents.column("offset"), documents.column("n_bytes")]
        if self._split.fields:
            kept = documents.column(schemas.FIELDS)
            columns.append(kept)
            self._has_field.update({f.name: len(kept) - kept.field(i).null_count for i, f in enumerate(kept.type)})
        if self._id_field is not None:
            self._has_field[self._id_field] += n_named(documents, self._names)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), documents

    def _add_sample(self) -> None:
        codes, counts = self._sample.counts()
        self._statistics.add_sample(counts)
        if codes:
            self._statistics.add_by(LANGUAGE, codes[0], **counts)

    def _check_lengths(self, documents: pa.RecordBatch, n_ids: np.ndarray, length: int) -> None:
        if (n_ids > length).any():
            row = int(np.argmax(n_ids > length))
            raise ValueError(
                f"document {documents.column('doc_id')[row].as_py()!r} has {n_ids[row]} tokens, more than "
                f"tokenizer.padding.length {length}; raise it, or set tokenizer.truncation"
            )


def tokenizer_info(tokenizer: Tokenizer) -> TokenizerInfo:
    """Returns what shards and the manifest say about a tokenizer."""
    return _tokenizer_info(tokenizer, tokenizer.truncation, tokenizer.padding)


@functools.lru_cache(maxsize=16)
def _tokenizer_info(tokenizer: Tokenizer, truncation: Truncation | None, padding: Padding | None) -> TokenizerInfo:
    # Cached, because every split needs the digest, which takes tens of milliseconds for a large vocabulary.
    return TokenizerInfo(
        digest=tokenizer.digest,
        vocab_size=tokenizer.n_ids,
        special_ids={token.content: token.id for token in tokenizer.added_tokens if token.special},
        padding_side=padding.direction if padding is not None else None,
    )


def _check_padding(tokenizer: Tokenizer, config: Config) -> None:
    """Raises ValueError unless the tokenizer pads as the config says, because shards depend on it."""
    asked, has = config.tokenizer.padding, tokenizer.padding
    expected = (asked.length, asked.side) if asked is not None else None
    found = (has.target(0), has.direction) if has is not None else None
    if expected != found or (has is not None and has.length is None):
        raise ValueError(
            f"the tokenizer's padding is {has!r}, but tokenizer.padding of the config is {asked!r}; "
            "call enable_padding or no_padding as the config says"
        )


def _room(config: Config, rows: marks.RowLayout) -> int | None:
    """Returns how many tokens of a document fit into a row that does not cut it; None: any number, or it may be cut."""
    around = rows.document.n_around + (rows.window.n_around if rows.window is not None else 0)
    truncation, packing = (rows.window or rows.document).truncation, config.output.packing
    room = [] if truncation is None else [truncation.max_length - around]
    if packing is not None and packing.strategy != "concatenate":
        room.append(packing.length - around - (packing.separator is not None))
    return min(room, default=None)


def merge_planned(
    planned: PlannedShard,
    splits: Sequence[SplitRuns],
    config: Config,
    tokenizer: Tokenizer,
    on_rows: OnBatch | None = None,
    *,
    runs: str | None = None,
) -> ShardEntry:
    """Merges, writes and commits one shard of a job that shuffles; see `shuffling.shards.merge_shard`.

    `runs` may be None if `splits` are the runs of all splits.
    """
    info, form = tokenizer_info(tokenizer), RowForm.of(config, tokenizer)
    schema, digest = schema_of_runs(config, splits), runs if runs is not None else runs_digest(splits)
    return merge_shard(planned, splits, config.output, info, schema, form, on_rows, runs=digest)


def schema_of_runs(config: Config, splits: Sequence[SplitRuns]) -> pa.Schema:
    """Returns the schema of the rows of sorted runs."""
    return schemas.placed(schemas.rows(config.columns), decode_fields(splits[0].fields if splits else ""))
