# SPDX-License-Identifier: Apache-2.0
"""Which part of which document stands where in which row: the one description of rows, for writers and for readers.

    lengths of documents --place--> Placement --gather--> rows
    table of documents --Placement.listed--> Placement --measure--> where each part stands in rows that were read

Rows are documents, overlapping windows of documents, or sequences of one length that documents are packed into.
Whatever they are, a row is a list of pieces, and a piece is a part of one document. Loss masks, positions, numbers of
documents and of windows all follow from the pieces.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.output import placement_kernels
from tokenmill.pipeline.output.marks import Marks, lay_out, packing_ids
from tokenmill.tokenizer import Layout, Tokenizer, Truncation

Int64s = npt.NDArray[np.int64]

_NO_IDS = np.zeros(0, np.int32)


@dataclass(frozen=True)
class RowForm:
    """What rows are."""

    marks: Marks
    """The tokens around every document; those of the template are around every window instead, if rows are windows."""
    strategy: Literal["documents", "windows", "concatenate", "no_split", "best_fit"] = "documents"
    """How documents are placed; the last three pack them, as `PackingConfig.strategy` says."""
    length: int = 0
    """How many tokens of documents a row has room for, separators included; not used where rows are documents."""
    stride: int = 0
    """How many tokens neighbouring windows have in common."""
    separator_id: int | None = None
    """The token behind every packed document; None for none."""
    pad_id: int | None = None
    """The token that fills rows up; None if nothing does."""
    padded: int = 0
    """The ids of a row, padding included; 0 where rows are not padded."""
    pads_left: bool = False
    unk_id: int = -1
    """The unknown token, or -1; only writers of windows need it."""
    span_ids: tuple[int, ...] = ()
    """The tokens of spans whose texts rows keep; only writers of windows need them."""

    @classmethod
    def of(cls, config: Config, tokenizer: Tokenizer) -> Self:
        """Returns the rows that a config asks for.

        Raises:
          ValueError: if the tokenizer lacks a token, or rows have no room for text.
        """
        layout, packing = lay_out(config, tokenizer), config.output.packing
        if packing is not None:
            separator_id, pad_id = packing_ids(packing, tokenizer)
            padded = packing.length if pad_id is not None else 0
            return cls(layout.marks, packing.strategy, packing.length, 0, separator_id, pad_id, padded)
        if layout.window is None:
            return cls(layout.marks)
        tokens = config.text.tokens if config.text.keeps_sources else ()
        span_ids = tuple(each for token in tokens if (each := tokenizer.token_to_id(token)) is not None)
        unk_id = -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id
        return replace(cls.windows(layout.window, layout.marks), unk_id=unk_id, span_ids=span_ids)

    @classmethod
    def windows(cls, layout: Layout, marks: Marks) -> Self:
        """Returns rows that are windows, each laid out as `layout` says, which has a truncation."""
        assert layout.truncation is not None
        form = cls(marks, "windows", layout.truncation.max_length - layout.n_around, layout.truncation.stride)
        if (padding := layout.padding) is None:
            return form
        is_left = padding.direction == "left"
        return replace(form, pad_id=padding.pad_id, padded=padding.target(0), pads_left=is_left)

    @classmethod
    def recorded(cls, manifest: Mapping[str, Any]) -> Self:
        """Returns the rows of a finished output by its manifest."""
        marks, config = Marks.from_record(manifest["marks"]), manifest["config"]
        if manifest["packing"] is not None:
            packing, ids = config["output"]["packing"], manifest["packing"]
            padded = packing["length"] if ids["pad_id"] is not None else 0
            return cls(marks, packing["strategy"], packing["length"], 0, ids["separator_id"], ids["pad_id"], padded)
        padding, truncation = (config["tokenizer"][name] for name in ("padding", "truncation"))
        form = cls(marks)
        if "windows" in manifest["totals"]:
            room = truncation["max_length"] - len(marks.before) - len(marks.after)
            form = cls(marks, "windows", room, truncation["stride"])
        if padding is None:
            return form
        is_left = padding["side"] == "left"
        return replace(form, pad_id=manifest["tokenizer"]["pad_id"], padded=padding["length"], pads_left=is_left)

    @property
    def is_packed(self) -> bool:
        """Whether rows are sequences that hold several documents."""
        return self.strategy not in ("documents", "windows")

    @property
    def around_row(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that every row begins and ends with, and that are of no document."""
        return (self.marks.before, self.marks.after) if self.strategy == "windows" else ((), ())

    @property
    def around_document(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that every document begins and ends with, a separator not included."""
        marks = self.marks
        return (marks.prepend, marks.append) if self.strategy == "windows" else (marks.left, marks.right)

    @property
    def n_separators(self) -> int:
        """How many separators follow each document."""
        return int(self.separator_id is not None)

    def totals(self, lengths: Int64s) -> Int64s:
        """Returns how many tokens rows hold of documents of `lengths` tokens, separators included; int64[n]."""
        return lengths + self.n_separators


@dataclass(frozen=True)
class Placement:
    """The pieces of all rows, int64[n] each, in the order of the rows, and in a row from left to right."""

    documents: Int64s
    """The number of each piece's document."""
    firsts: Int64s
    """The token of the document that it begins with."""
    sizes: Int64s
    """How many tokens it has; a separator is a token behind the document's own."""
    rows: Int64s
    """The number of its row, ascending; every row has a piece."""
    starts: Int64s
    """Where in the row its first token is, padding on the left not counted."""

    def part(self, first: int, last: int) -> "Placement":
        """Returns the pieces from `first` to below `last`."""
        return Placement(*(each[first:last] for each in vars(self).values()))

    def chosen(self, which: np.ndarray) -> "Placement":
        """Returns some of the pieces; `which` are flags or places, as NumPy takes them."""
        return Placement(*(each[which] for each in vars(self).values()))

    @staticmethod
    def joined(parts: "Sequence[Placement]") -> "Placement":
        """Returns the pieces of all parts, one after another."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Placement(*map(np.concatenate, columns)) if parts else Placement(*[np.zeros(0, np.int64)] * 5)

    def of_rows(self, first: int, last: int) -> "Placement":
        """Returns the pieces of the rows from number `first` to below `last`."""
        return self.part(*np.searchsorted(self.rows, [first, last]).tolist())

    @classmethod
    def listed(cls, table: pa.Table, form: RowForm) -> "Placement":
        """Returns what a table of documents says: each piece reaches to the end of its row or of its document.

        Args:
          table: all documents of a shard; unless rows are documents, with `rows` and `starts`.
          form: what the rows are.

        Raises:
          ValueError: if a document has more `rows` than `starts`, or fewer, or its rows are not in order.
        """
        totals = form.totals(table.column("n_tokens").to_numpy().astype(np.int64))
        if form.strategy == "documents":
            return place(totals, form)
        lists = [table.column(name).combine_chunks() for name in ("rows", "starts")]
        counts, n_starts = (pc.list_value_length(each).to_numpy().astype(np.int64) for each in lists)
        if not np.array_equal(counts, n_starts):
            raise ValueError(f"document {int(np.argmax(counts != n_starts))} does not have as many starts as rows")
        rows, starts = (each.flatten().to_numpy().astype(np.int64) for each in lists)
        documents = np.repeat(np.arange(counts.size), counts)
        if (wrong := np.flatnonzero((np.diff(rows) <= 0) & (np.diff(documents) == 0))).size:
            raise ValueError(f"the rows of document {documents[wrong[0]]} do not ascend")
        room = form.length + len(form.around_row[0]) - starts
        firsts = _before(room - form.stride, documents)
        order = np.lexsort((starts, rows))
        pieces = cls(documents, firsts, np.minimum(room, totals[documents] - firsts), rows, starts)
        return pieces.chosen(order)

    def check(self, totals: Int64s, n_rows: int, form: RowForm) -> None:
        """Checks pieces that a table lists.

        Args:
          totals: int64[n_documents], the tokens of each document, separators included.
          n_rows: how many rows there must be.
          form: what the rows are.

        Raises:
          ValueError: unless they are all tokens of all documents, and follow one another in all of the rows.
        """
        # A window that only repeats tokens would be one too many; of an empty document there is one window.
        least = np.where((self.firsts == 0) & (form.strategy == "windows"), np.minimum(1, totals[self.documents]), 1)
        if (wrong := np.flatnonzero(self.sizes < least + np.where(self.firsts > 0, form.stride, 0))).size:
            raise ValueError(f"document {self.documents[wrong[0]]} is in a row with none of its tokens")
        n_listed = np.zeros(totals.size, np.int64)
        np.maximum.at(n_listed, self.documents, self.firsts + self.sizes)
        is_listed = np.bincount(self.documents, minlength=totals.size) > 0
        if (wrong := np.flatnonzero((n_listed != totals) | ~(is_listed | form.is_packed))).size:
            raise ValueError(f"document {wrong[0]} is not in rows with all of its tokens")
        if not np.array_equal(np.unique(self.rows), np.arange(n_rows)):
            raise ValueError(f"documents are not in all of the {n_rows} rows")
        expected = _before(self.sizes, self.rows) + len(form.around_row[0])
        if not form.is_packed:
            expected[np.diff(self.documents, prepend=0) < 0] = -1
            expected[np.diff(self.rows, prepend=-1) == 0] = -1
        if (wrong := np.flatnonzero(self.starts != expected)).size:
            raise ValueError(f"the documents of row {self.rows[wrong[0]]} do not follow one another")


def place(totals: Int64s, form: RowForm) -> Placement:
    """Places documents in rows.

    Args:
      totals: int64[n], the tokens of each document, separators included.
      form: what the rows are.

    Raises:
      ValueError: if a window has no room for a token besides those that it repeats.
    """
    if form.strategy == "documents":
        numbers, zeros = np.arange(totals.size), np.zeros(totals.size, np.int64)
        return Placement(numbers, zeros, totals, numbers, zeros)
    if form.strategy == "windows":
        layout = Layout(_NO_IDS, _NO_IDS, Truncation(form.length, stride=form.stride))
        documents, firsts, stops = layout.windows(totals)
        starts = np.full(documents.size, len(form.around_row[0]))
        return Placement(documents, firsts, stops - firsts, np.arange(documents.size), starts)
    if form.strategy == "best_fit":
        pieces = _fit_best(totals, form.length)
    else:
        pieces = _in_order(totals, form.length, form.strategy == "concatenate")
    return Placement(*pieces, _before(pieces[2], pieces[3]))


def _before(sizes: Int64s, groups: Int64s) -> Int64s:
    """Returns the sum of the sizes before each one among its neighbours of the same group."""
    before = np.cumsum(sizes) - sizes
    is_first = np.diff(groups, prepend=-1) != 0
    begins = np.flatnonzero(is_first)
    return before - np.repeat(before[begins], np.diff(begins, append=groups.size))


_Pieces = tuple[Int64s, Int64s, Int64s, Int64s]


def _in_order(totals: Int64s, length: int, splits: bool) -> _Pieces:
    n_most = totals.size + int(np.sum(totals // length)) + 1
    if splits:
        n_most += int(totals.sum()) // length
    pieces = [np.empty(n_most, np.int64) for _ in range(4)]
    n = placement_kernels.plan_in_order(totals, length, splits, *pieces)
    documents, firsts, sizes, rows = (column[:n] for column in pieces)
    return documents, firsts, sizes, rows


def _fit_best(totals: Int64s, length: int) -> _Pieces:
    """Places full sequences of long documents, then all remainders and other documents, the longest first."""
    n_full = totals // length
    full = np.repeat(np.arange(totals.size), n_full)
    nth = np.arange(full.size) - np.repeat(np.cumsum(n_full) - n_full, n_full)
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
    return (
        np.concatenate([full, documents[final]]),
        np.concatenate([nth * length, (n_full * length)[documents[final]]]),
        np.concatenate([np.full(full.size, length), rest[documents[final]]]),
        np.concatenate([np.arange(full.size), full.size + rank[bins][final]]),
    )


@dataclass(frozen=True)
class Measures:
    """Where rows and their pieces are among the ids of neighbouring rows."""

    offsets: Int64s
    """int64[n_rows + 1], where each row begins, padding included."""
    begins: Int64s
    """int64[n_rows], where its first token is."""
    n_tokens: Int64s
    """int64[n_rows], how many tokens it has: all but padding."""
    rows: Int64s
    """int64[n_pieces], the row of each piece, counted from 0 among these rows."""
    at: Int64s
    """int64[n_pieces], where each piece begins."""


def measure(placement: Placement, form: RowForm) -> Measures:
    """Returns where the pieces of neighbouring rows stand."""
    firsts = np.flatnonzero(np.diff(placement.rows, prepend=-1))
    rows = placement.rows - (placement.rows[0] if firsts.size else 0)
    n_tokens = np.add.reduceat(placement.sizes, firsts) if firsts.size else np.zeros(0, np.int64)
    n_tokens = n_tokens + sum(map(len, form.around_row))
    n_ids = np.maximum(n_tokens, form.padded)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(n_ids)])
    begins = offsets[1:] - n_tokens if form.pads_left else offsets[:-1]
    return Measures(offsets, begins, n_tokens, rows, begins[rows] + placement.starts)


def gather(values: np.ndarray, offsets: Int64s, placement: Placement, at: Measures, fill: int) -> np.ndarray:
    """Copies what documents have for each of their tokens into rows; all other places have `fill`.

    Args:
      values: int32[n] or uint8[n], the values of documents.
      offsets: int64[n_documents + 1], where each document begins in `values`; a separator is not among them.
      placement: the pieces of neighbouring rows.
      at: where they stand.
      fill: the value of padding, separators, and of what is around rows.
    """
    out = np.full(int(at.offsets[-1]), fill, values.dtype)
    begins = offsets[placement.documents] + placement.firsts
    ends = np.minimum(begins + placement.sizes, offsets[placement.documents + 1])
    sums_kernels.copy_rows(_read_only(values), begins, ends, at.at, out)
    return out


def gather_ids(ids: np.ndarray, offsets: Int64s, placement: Placement, at: Measures, form: RowForm) -> np.ndarray:
    """Returns the ids of rows, int32: of documents, separators, what is around rows, and padding; see `gather`."""
    out = gather(ids, offsets, placement, at, form.pad_id or 0)
    before, after = form.around_row
    for i, token_id in enumerate(before):
        out[at.begins + i] = token_id
    for i, token_id in enumerate(reversed(after), 1):
        out[at.begins + at.n_tokens - i] = token_id
    if form.separator_id is not None:
        lengths = np.diff(offsets)[placement.documents]
        has_separator = placement.firsts + placement.sizes > lengths
        out[(at.at + placement.sizes - 1)[has_separator]] = form.separator_id
    return out


def placed_columns(names: Iterable[str], placement: Placement, at: Measures, form: RowForm) -> dict[str, pa.Array]:
    """Returns the columns among `names` that say nothing but where documents are.

    They are `n_tokens`, those of `schemas.WINDOWS`, `documents`, and `schemas.BOUNDARIES`.
    """
    n_rows, n_ids = at.n_tokens.size, int(at.offsets[-1])
    bounds = np.searchsorted(at.rows, np.arange(n_rows + 1))
    numbers = np.arange(1, at.rows.size + 1) - bounds[at.rows]
    found: dict[str, pa.Array] = {}
    names = set(names)
    if names & {"segment_ids", "positions"}:
        segment_ids, positions = np.zeros(n_ids, np.int32), np.zeros(n_ids, np.int32)
        placement_kernels.number_tokens(at.at, placement.sizes, numbers.astype(np.int32), segment_ids, positions)
        found |= {"segment_ids": as_lists(segment_ids, at.offsets), "positions": as_lists(positions, at.offsets)}
    if "cu_seqlens" in names:
        ends = np.zeros(at.rows.size + n_rows, np.int32)
        ends[np.arange(at.rows.size) + at.rows + 1] = placement.starts + placement.sizes
        found["cu_seqlens"] = as_lists(ends, bounds + np.arange(n_rows + 1))
    if "documents" in names:
        found["documents"] = as_lists(placement.documents, bounds)
    if "window" in names:
        found["document"] = pa.array(placement.documents)
        found["window"] = pa.array((placement.firsts // (form.length - form.stride)).astype(np.int32))
    return {**found, "n_tokens": pa.array(at.n_tokens.astype(np.int32))}


def as_lists(values: np.ndarray, offsets: Int64s) -> pa.LargeListArray:
    """Returns a column of lists of numbers; offsets: int64[n + 1], where each list begins in `values`."""
    element = pa.field("element", pa.from_numpy_dtype(values.dtype), nullable=False)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values), type=pa.large_list(element))


def count_between(flags: np.ndarray, starts: Int64s, stops: Int64s) -> Int64s:
    """Returns how many flags, bool[n_ids], are set from each start to below each stop."""
    places = np.flatnonzero(flags)  # few: a running sum over all ids took a third of the time of `verify`
    return np.searchsorted(places, stops) - np.searchsorted(places, starts)


def _read_only(array: np.ndarray) -> np.ndarray:
    """Returns a view like those of Arrow's arrays, so that the kernel is compiled for one kind of array."""
    view = array.view()
    view.flags.writeable = False
    return view
