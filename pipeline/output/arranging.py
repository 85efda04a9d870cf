# SPDX-License-Identifier: Apache-2.0
"""Turns the documents of a shard into its rows, where rows are windows of documents or packed sequences.

Every token is in exactly one sequence; windows repeat as many tokens as the config says. Each shard is arranged by
itself, in the order of its documents. So a row depends only on the documents of its shard, not on workers or batches;
but another `input.split_bytes` gives other sequences. Documents are cut when shards are written, after the shuffle: so
whole documents are shuffled, and the windows of a document stay together.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import stretches
from tokenmill.pipeline.output.placement import (
    Int64s,
    Measures,
    Placement,
    RowForm,
    as_lists,
    count_between,
    gather,
    gather_ids,
    measure,
    place,
    placed_columns,
)
from tokenmill.pipeline.output.writers.base import check_schema, ragged

WINDOW_TOKENS = 4 << 20
"""Documents with this many tokens are packed at a time, and held; `best_fit` looks no farther."""

BATCH_IDS = 4 << 20
"""Rows with this many ids are made at a time, unless one row has more: windows may repeat most tokens many times."""

WINDOW_COUNTS = ("n_documents", "n_windows", "n_split_documents", "n_tokens", "n_repeated", "n_special")
"""Counts of windows; those of several shards can be added up."""

PACKING_COUNTS = (
    "n_sequences",
    "n_documents",
    "n_empty_documents",
    "n_split_documents",
    "n_segments",
    "n_tokens",
    "n_separators",
    "n_padding",
)
"""Counts of packing; those of several shards can be added up. If rows are conversations, there is `n_first_tokens`,
too: tokens to train on that are the first behind a cut."""


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
        self._documents = documents
        names = PACKING_COUNTS if form.is_packed else WINDOW_COUNTS
        self.counts = dict.fromkeys((*names, *(["n_first_tokens"] if mask else [])), 0)
        """`PACKING_COUNTS` or `WINDOW_COUNTS`."""
        self._window_tokens = max(window_tokens, form.length)
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
        lengths = np.diff(batch.column("input_ids").offsets.to_numpy())
        self._count(lengths)
        if not self.form.is_packed:
            self._pending = [batch]
            yield from self._arrange(is_last=True)
            return
        ends = np.cumsum(self.form.totals(lengths))
        start = 0
        while start < ends.size:
            before = int(ends[start - 1]) if start else 0
            # Up to the document that fills the window, which is included.
            stop = int(np.searchsorted(ends, before + self._window_tokens - self._n_pending)) + 1
            stop = min(stop, ends.size)
            self._pending.append(batch.slice(start, stop - start))
            self._n_pending += int(ends[stop - 1]) - before
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

    def _count(self, lengths: Int64s) -> None:
        self._add("n_documents", lengths.size)
        self._add("n_tokens", int(lengths.sum()))
        self._add("n_separators", lengths.size * self.form.n_separators)
        self._add("n_empty_documents", int((self.form.totals(lengths) == 0).sum()))

    def _add(self, name: str, n: int) -> None:
        if name in self.counts:
            self.counts[name] += n

    def _arrange(self, is_last: bool) -> Iterator[pa.RecordBatch]:
        if not self._pending:
            return
        documents = self._pending[0]
        if len(self._pending) > 1:
            (documents,) = pa.Table.from_batches(self._pending).combine_chunks().to_batches()
        lengths = np.diff(documents.column("input_ids").offsets.to_numpy())
        totals = self.form.totals(lengths)
        rest = totals.copy()
        rest[:1] -= self._done
        placement = place(rest, self.form)
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
        yield from self._rows(documents, totals, placement.part(0, stop), first)

    def _rows(
        self, documents: pa.RecordBatch, totals: Int64s, placement: Placement, first: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of documents, the first of which has the number `first` in the shard."""
        at = measure(placement, self.form)
        self._count_rows(totals, placement, at)
        rows = placement.rows + self._n_rows
        numbered = Placement(placement.documents + first, placement.firsts, placement.sizes, rows, placement.starts)
        self._placed.append(numbered)
        self._n_rows += at.n_tokens.size
        ids, offsets = ragged(documents.column("input_ids"))
        columns = _Columns(documents, ids, offsets, self.form)
        for start, stop in stretches(np.diff(at.offsets), BATCH_IDS):
            pieces = np.searchsorted(placement.rows, [start, stop]).tolist()
            part = placement.part(*pieces)
            at = measure(part, self.form)
            made = placed_columns(self.schema.names, numbered.part(*pieces), at, self.form)
            arrays = [made[name] if name in made else columns.make(name, part, at) for name in self.schema.names]
            yield pa.record_batch(arrays, schema=self.schema)
        self._add("n_first_tokens", columns.n_first_tokens)

    def _count_rows(self, totals: Int64s, placement: Placement, at: Measures) -> None:
        is_end = placement.firsts + placement.sizes == totals[placement.documents]
        self._add("n_split_documents", int((is_end & (placement.firsts > 0)).sum()))
        for name in ("n_sequences", "n_windows"):
            self._add(name, at.n_tokens.size)
        self._add("n_segments", placement.sizes.size)
        self._add("n_padding", int(at.offsets[-1] - at.n_tokens.sum()))
        self._add("n_special", at.n_tokens.size * sum(map(len, self.form.around_row)))
        if not self.form.is_packed:
            self._add("n_repeated", int(placement.sizes.sum() - totals.sum()))


class _Columns:
    """Makes the columns of rows that come from those of their documents."""

    def __init__(self, documents: pa.RecordBatch, ids: np.ndarray, offsets: Int64s, form: RowForm) -> None:
        self._documents, self._ids, self._offsets, self._form = documents, ids, offsets, form
        self.n_first_tokens = 0
        """How many tokens to train on are the first of a segment, and so not trained."""

    def make(self, name: str, placement: Placement, at: Measures) -> pa.Array:
        if name == "input_ids":
            return as_lists(gather_ids(self._ids, self._offsets, placement, at, self._form), at.offsets)
        if name == "n_oov":
            return pa.array(count_between(self._is_unknown(), *self._spans(placement)).astype(np.int32))
        if name == schemas.LOSS_MASK.name:
            return self._mask(placement, at)
        column = self._documents.column(name)
        if name == schemas.SPAN_SOURCES.name:
            return self._sources(column, placement)
        return column.take(pa.array(placement.documents))

    def _spans(self, placement: Placement) -> tuple[Int64s, Int64s]:
        starts = self._offsets[placement.documents] + placement.firsts
        return starts, starts + placement.sizes

    def _is_unknown(self) -> np.ndarray:
        """Returns bool[n_ids]: which ids of the documents are unknown tokens of the text."""
        is_unknown = self._ids == self._form.unk_id
        before, after = self._form.around_document
        for i in range(len(before)):
            is_unknown[self._offsets[:-1] + i] = False
        for i in range(len(after)):
            is_unknown[self._offsets[1:] - 1 - i] = False
        return is_unknown

    def _mask(self, placement: Placement, at: Measures) -> pa.LargeListArray:
        trained, _ = ragged(self._documents.column(schemas.LOSS_MASK.name).cast(pa.large_list(pa.uint8())))
        mask = gather(trained, self._offsets, placement, at, 0)
        # What is in front of the rest of a document that was cut is another document, or nothing.
        self.n_first_tokens += int(mask[at.at].sum())
        mask[at.at] = 0
        return as_lists(mask.astype(np.bool_), at.offsets)

    def _sources(self, sources: pa.LargeListArray, placement: Placement) -> pa.LargeListArray:
        """Returns the sources of windows; `sources` has those of documents, one for each span, in order."""
        is_span = np.isin(self._ids, self._form.span_ids)
        starts, stops = self._spans(placement)
        begins = sources.offsets.to_numpy()[placement.documents]
        begins = begins + count_between(is_span, self._offsets[placement.documents], starts)
        counts = count_between(is_span, starts, stops)
        ends = np.cumsum(counts)
        places = np.arange(int(counts.sum())) + np.repeat(begins - (ends - counts), counts)
        values = sources.values.take(pa.array(places))
        offsets = pa.array(np.concatenate([np.zeros(1, np.int64), ends]))
        return pa.LargeListArray.from_arrays(offsets, values, type=sources.type)
