# SPDX-License-Identifier: Apache-2.0
"""From documents to rows: the tokens around documents, what rows a config asks for, and the rows of a shard.

Every token is in exactly one sequence; windows repeat as many tokens as the config says. Each shard is arranged by
itself, in the order of its documents. So a row depends only on the documents of its shard, not on workers or batches;
but another `input.split_bytes` gives other sequences. Documents are cut when shards are written, after the shuffle: so
whole documents are shuffled, and the windows of a document stay together.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.sums_kernels import copy_rows
from tokenmill.pipeline.columns import as_lists, ragged, stretches
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import PackingConfig
from tokenmill.pipeline.output import placement_kernels
from tokenmill.pipeline.output.placement import (
    Int64s,
    Marks,
    Measures,
    Placement,
    RowForm,
    before,
    count_between,
    gather_ids,
    gather_trained,
    measure,
    placed_columns,
)
from tokenmill.pipeline.output.writers.base import check_schema
from tokenmill.tokenizer import Layout, Tokenizer, Truncation

WINDOW_TOKENS = 4 << 20
"""Documents with this many tokens are packed at a time, and held; `best_fit` looks no farther."""

BATCH_IDS = 4 << 20
"""Rows with this many ids are made at a time, unless one row has more: windows may repeat most tokens many times."""

_NO_IDS = np.zeros(0, np.int32)


@dataclass(frozen=True)
class RowLayout:
    """How the tokens of a text become rows."""

    marks: Marks
    document: Layout
    """Layout of a whole document; if rows are windows, without the template, truncation and padding."""
    window: Layout | None
    """Layout of each window of a document; None if rows are documents."""

    @property
    def n_special(self) -> int:
        """How many tokens of the template a document has; 0 if rows are windows, where each window has them."""
        return self.marks.n_special if self.window is None else 0


def lay_out(config: Config, tokenizer: Tokenizer) -> RowLayout:
    """Returns how the tokens of a document become rows, with the tokens around it.

    Args:
      config: the config of the job.
      tokenizer: with the truncation and padding of the config.

    Raises:
      ValueError: if the tokenizer lacks a token, if a token would be added twice, or if `max_length` leaves no room for
        text, or no more than the stride.
    """
    around = tokenizer.layout(config.tokenizer.add_special_tokens)
    template = {"prepend": tuple(around.before.tolist()), "append": tuple(around.after.tolist())}
    ends: dict[str, tuple[int, ...]] = {"prepend": (), "append": ()}
    for name, there in template.items():
        if (token := getattr(config.output, name)) is None:
            continue
        token_id = _id_of(tokenizer, token, f"output.{name}")
        if token_id in there:
            raise ValueError(
                f"output.{name}: {token!r}: tokenizer.add_special_tokens puts it there already; remove one of them"
            )
        ends[name] = (token_id,)
    layout = tokenizer.layout(config.tokenizer.add_special_tokens, **ends)
    marks = Marks(template["prepend"], ends["prepend"], ends["append"], template["append"])
    if not config.tokenizer.has_windows:
        layout.kept(np.zeros(1, np.int64))  # raises where there is no room
        return RowLayout(marks, layout, None)
    around.windows(np.zeros(1, np.int64))
    first, last = layout.before[len(marks.before) :], layout.after[: len(marks.append)]
    document = dataclasses.replace(layout, before=first, after=last, truncation=None, padding=None)
    return RowLayout(marks, document, around)


def packing_ids(config: PackingConfig, tokenizer: Tokenizer) -> tuple[int | None, int | None]:
    """Returns the separator behind every packed document, and the token that fills sequences up; None for none.

    Raises:
      ValueError: if the tokenizer lacks a token that the config names, or there is no token to pad with.
    """
    separator_id, pad_id = (
        None if token is None else _id_of(tokenizer, token, f"output.packing.{name}")
        for name, token in (("separator", config.separator), ("pad_token", config.pad_token))
    )
    if config.incomplete == "short":
        return separator_id, None
    for candidate in (tokenizer.pad_token_id, separator_id):
        pad_id = candidate if pad_id is None else pad_id
    if pad_id is None:
        raise ValueError(
            "output.packing.pad_token: the tokenizer names no padding token, and there is no separator; name a token, "
            "or set output.packing.incomplete to short"
        )
    return separator_id, pad_id


def _id_of(tokenizer: Tokenizer, token: str, key: str) -> int:
    if (token_id := tokenizer.token_to_id(token)) is None:
        special = [each.content for each in tokenizer.added_tokens if each.special]
        has = f"its special tokens are {', '.join(map(repr, special[:8]))}" if special else "it has no special tokens"
        raise ValueError(f"{key}: {token!r}: the tokenizer has no such token; {has}")
    return token_id


def row_form(config: Config, tokenizer: Tokenizer) -> RowForm:
    """Returns the rows that a config asks for.

    Raises:
      ValueError: if the tokenizer lacks a token, or rows have no room for text.
    """
    layout, packing = lay_out(config, tokenizer), config.output.packing
    if packing is not None:
        return RowForm.packed(packing.strategy, packing.length, *packing_ids(packing, tokenizer), layout.marks)
    if layout.window is None:
        return RowForm(layout.marks)
    tokens = config.text.tokens if config.text.keeps_sources else ()
    span_ids = tuple(each for token in tokens if (each := tokenizer.token_to_id(token)) is not None)
    unk_id = -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id
    return replace(windows_form(layout.window, layout.marks), unk_id=unk_id, span_ids=span_ids)


def windows_form(layout: Layout, marks: Marks) -> RowForm:
    """Returns rows that are windows, each laid out as `layout` says, which has a truncation."""
    assert layout.truncation is not None
    form = RowForm(marks, "windows", layout.truncation.max_length - layout.n_around, layout.truncation.stride)
    if (padding := layout.padding) is None:
        return form
    return replace(form, pad_id=padding.pad_id, padded=padding.target(0), pads_left=padding.direction == "left")


def place(totals: Int64s, form: RowForm) -> Placement:
    """Places documents in rows.

    Args:
      totals: int64[n], the tokens of each document, separators included.
      form: what the rows are.

    Raises:
      ValueError: if a window has no room for a token besides those that it repeats.
    """
    if form.strategy == "documents":
        return Placement.of_documents(totals)
    if form.strategy == "windows":
        layout = Layout(_NO_IDS, _NO_IDS, Truncation(form.length, stride=form.stride))
        documents, firsts, stops = layout.windows(totals)
        starts = np.full(documents.size, len(form.around_row[0]))
        return Placement(documents, firsts, stops - firsts, np.arange(documents.size), starts)
    if form.strategy == "best_fit":
        pieces: Sequence[Int64s] = _fit_best(totals, form.length)
    else:
        splits = form.strategy == "concatenate"
        n_most = totals.size + int(np.sum(totals // form.length)) + 1 + splits * (int(totals.sum()) // form.length)
        columns = [np.empty(n_most, np.int64) for _ in range(4)]
        n = placement_kernels.plan_in_order(totals, form.length, splits, *columns)
        pieces = [column[:n] for column in columns]
    documents, firsts, sizes, rows = pieces
    return Placement(documents, firsts, sizes, rows, before(sizes, rows))


def _fit_best(totals: Int64s, length: int) -> Sequence[Int64s]:
    """Places full sequences of long documents, then all remainders and other documents, the longest first."""
    n_full = totals // length
    full = np.repeat(np.arange(totals.size), n_full)
    rest = totals - n_full * length
    documents = np.flatnonzero(rest)
    order = np.argsort(-rest[documents], kind="stable")
    bins, head = np.empty(documents.size, np.int64), np.full(length + 1, -1, np.int64)
    tree = np.zeros(2 << length.bit_length(), np.int64)
    placement_kernels.fit_best(rest[documents[order]], length, bins, head, np.empty(documents.size, np.int64), tree)
    # Sequences in the order of their first documents, documents in their order: close to the order of the file.
    in_order = np.lexsort((documents[order], bins))
    documents, bins = documents[order][in_order], bins[in_order]
    is_first = np.diff(bins, prepend=-1) > 0
    rank = np.empty(int(is_first.sum()), np.int64)
    rank[np.argsort(documents[is_first])] = np.arange(rank.size)
    final = np.lexsort((documents, rank[bins]))
    documents = documents[final]
    return (
        np.concatenate([full, documents]),
        np.concatenate([before(np.full(full.size, length), full), (n_full * length)[documents]]),
        np.concatenate([np.full(full.size, length), rest[documents]]),
        np.concatenate([np.arange(full.size), full.size + rank[bins][final]]),
    )


class Arranger:
    """Arranges the documents of one shard; holds one window of them, or one document if that is longer."""

    def __init__(
        self,
        form: RowForm,
        documents: pa.Schema,
        boundaries: Sequence[str] = (),
        window_tokens: int = WINDOW_TOKENS,
    ) -> None:
        """Starts a shard.

        Args:
          form: what the rows are: windows or sequences.
          documents: the columns of the documents; of packed ones, `schemas.TOKENS`, perhaps with `schemas.LOSS_MASK`:
            separators and the first token of each segment are then not trained.
          boundaries: for sequences, those of `schemas.BOUNDARIES` that rows have.
          window_tokens: how many tokens of documents to pack at a time; the result of `best_fit` depends on it.
        """
        mask = [schemas.LOSS_MASK.name] if schemas.LOSS_MASK.name in documents.names else []
        self.schema = schemas.packed([*boundaries, *mask]) if form.is_packed else schemas.windowed(documents)
        self.form = form
        names = ["n_documents", "n_split_documents", "n_tokens"]
        names += ["n_sequences", "n_empty_documents", "n_segments", "n_separators", "n_padding"] * form.is_packed
        names += ["n_windows", "n_repeated", "n_special"] * (not form.is_packed) + ["n_first_tokens"] * bool(mask)
        self.counts = dict.fromkeys(names, 0)
        """Counts of windows or of packing, which can be added up over shards; `n_first_tokens`, if rows are
        conversations: tokens to train on that are the first behind a cut."""
        self._documents, self._window_tokens = documents, max(window_tokens, form.length)
        self._pending: list[pa.RecordBatch] = []
        self._n_pending = 0
        self._first = 0  # the number of the first pending document, and how many of its tokens are in rows already
        self._done = 0
        self._n_rows = 0
        self._placed: list[Placement] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields the rows that the documents of a batch complete.

        Args:
          batch: documents in the schema, not padded, without the tokens around windows.
        """
        check_schema(batch, self._documents)
        totals = self._count_documents(batch)
        if not self.form.is_packed:
            self._pending = [batch]
            yield from self._arrange(is_last=True)
            return
        ends = np.cumsum(totals)
        start = 0
        while start < ends.size:
            had = int(ends[start - 1]) if start else 0
            # Up to the document that fills the window, which is included.
            stop = int(np.searchsorted(ends, had + self._window_tokens - self._n_pending)) + 1
            stop = min(stop, ends.size)
            self._pending.append(batch.slice(start, stop - start))
            self._n_pending += int(ends[stop - 1]) - had
            start = stop
            if self._n_pending >= self._window_tokens:
                yield from self._arrange(is_last=False)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields the last rows."""
        yield from self._arrange(is_last=True)

    def take_placed(self) -> tuple[int, list[Placement]]:
        """Returns how many documents are completely in yielded rows, and where those since the last call are.

        Call it when the iterator of `add` or `rest` is exhausted.
        """
        placed, self._placed = self._placed, []
        return self._first, placed

    def _count(self, **numbers: int) -> None:
        """Adds to those of the counts that rows of this form have."""
        for name in numbers.keys() & self.counts.keys():
            self.counts[name] += int(numbers[name])

    def _count_documents(self, batch: pa.RecordBatch) -> Int64s:
        """Counts documents and returns how many tokens each has, separators included."""
        lengths = np.diff(batch.column("input_ids").offsets.to_numpy())
        totals = self.form.totals(lengths)
        self._count(
            n_documents=lengths.size,
            n_tokens=lengths.sum(),
            n_separators=lengths.size * self.form.n_separators,
            n_empty_documents=(totals == 0).sum(),
        )
        return totals

    def _arrange(self, is_last: bool) -> Iterator[pa.RecordBatch]:
        if not self._pending:
            return
        (documents,) = pa.Table.from_batches(self._pending).combine_chunks().to_batches() or self._pending[:1]
        totals = self.form.totals(np.diff(documents.column("input_ids").offsets.to_numpy()))
        left = totals.copy()
        left[:1] -= self._done
        placement = place(left, self.form)
        placement.firsts[placement.documents == 0] += self._done
        stop = placement.rows.size
        if not is_last and self.form.strategy != "best_fit" and stop:
            # The last sequence is continued in the next window, unless it is full.
            last = int(np.searchsorted(placement.rows, placement.rows[-1]))
            stop = stop if int(placement.sizes[last:].sum()) == self.form.length else last
        first = self._first
        self._pending, self._n_pending, self._done = [], 0, 0
        self._first += documents.num_rows
        if stop < placement.rows.size:
            document = int(placement.documents[stop])
            self._pending = [documents.slice(document)]
            self._n_pending = int(placement.sizes[stop:].sum())
            self._first, self._done = first + document, int(placement.firsts[stop])
        yield from self._rows(documents, totals, placement.chosen(slice(0, stop)), first)

    def _rows(
        self, documents: pa.RecordBatch, totals: Int64s, placement: Placement, first: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of documents, the first of which has the number `first` in the shard."""
        at = measure(placement, self.form)
        is_end = placement.firsts + placement.sizes == totals[placement.documents]
        self._count(
            n_split_documents=(is_end & (placement.firsts > 0)).sum(),
            n_sequences=at.n_tokens.size,
            n_windows=at.n_tokens.size,
            n_segments=placement.sizes.size,
            n_padding=at.offsets[-1] - at.n_tokens.sum(),
            n_special=at.n_tokens.size * sum(map(len, self.form.around_row)),
            n_repeated=placement.sizes.sum() - totals.sum(),
        )
        numbered = replace(placement, documents=placement.documents + first, rows=placement.rows + self._n_rows)
        self._placed.append(numbered)
        self._n_rows += at.n_tokens.size
        ids, offsets = ragged(documents.column("input_ids"))
        for start, stop in stretches(np.diff(at.offsets), BATCH_IDS):
            pieces = slice(*np.searchsorted(placement.rows, [start, stop]).tolist())
            part = placement.chosen(pieces)
            at = measure(part, self.form)
            made = placed_columns(self.schema.names, numbered.chosen(pieces), at, self.form)
            arrays = [
                made[name] if name in made else self._column(name, documents, ids, offsets, part, at)
                for name in self.schema.names
            ]
            yield pa.record_batch(arrays, schema=self.schema)

    def _column(
        self, name: str, documents: pa.RecordBatch, ids: np.ndarray, offsets: Int64s, part: Placement, at: Measures
    ) -> pa.Array:
        """Returns a column of rows that comes from one of their documents, whose ids are `ids`."""
        if name == "input_ids":
            return as_lists(gather_ids(ids, offsets, part, at, self.form, copy_rows), at.offsets)
        if name == schemas.LOSS_MASK.name:
            trained, _ = ragged(documents.column(name).cast(pa.large_list(pa.uint8())))
            mask, n_first = gather_trained(trained, offsets, part, at, 0, copy_rows)
            self._count(n_first_tokens=n_first)
            return as_lists(mask.view(np.bool_), at.offsets)
        starts = offsets[part.documents] + part.firsts
        stops = starts + part.sizes
        if name == "n_oov":
            return pa.array(count_between(self._is_unknown(ids, offsets), starts, stops).astype(np.int32))
        column = documents.column(name)
        if name != schemas.SPAN_SOURCES.name:
            return column.take(pa.array(part.documents))
        # A document has a source for each of its spans, in their order.
        is_span = np.isin(ids, self.form.span_ids)
        begins = column.offsets.to_numpy()[part.documents]
        begins = begins + count_between(is_span, offsets[part.documents], starts)
        counts = count_between(is_span, starts, stops)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        places = np.arange(bounds[-1]) + np.repeat(begins - bounds[:-1], counts)
        return pa.LargeListArray.from_arrays(pa.array(bounds), column.values.take(pa.array(places)), type=column.type)

    def _is_unknown(self, ids: np.ndarray, offsets: Int64s) -> np.ndarray:
        """Returns bool[n_ids]: which ids of the documents are unknown tokens of the text."""
        is_unknown = ids == self.form.unk_id
        left, right = self.form.around_document
        for i in range(len(left)):
            is_unknown[offsets[:-1] + i] = False
        for i in range(len(right)):
            is_unknown[offsets[1:] - 1 - i] = False
        return is_unknown
