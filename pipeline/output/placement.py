# SPDX-License-Identifier: Apache-2.0
"""Which part of which document stands where in which row: the one description of rows, for writers and for readers.

    lengths of documents --arranging.place--> Placement --measure, gather--> rows
    table of documents --Placement.listed--> Placement --measure--> where each part stands in rows that were read
    index of a packing --Placement--> rows, made when they are read

Rows are documents, overlapping windows of documents, or sequences of one length that documents are packed into.
Whatever they are, a row is a list of pieces, and a piece is a part of one document. Loss masks, positions, numbers of
documents and of windows all follow from the pieces. Only NumPy and pyarrow are needed here: training loops import it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.columns import as_lists, copy_stretches

Int64s = npt.NDArray[np.int64]

Copy = Callable[[np.ndarray, Int64s, Int64s, Int64s, np.ndarray], None]
"""Copies stretches of values, as `columns.copy_stretches` or the kernel `sums_kernels.copy_rows`."""


@dataclass(frozen=True)
class Marks:
    """The ids around every document, from left to right: `before`, `prepend`, the text, `append`, `after`."""

    before: tuple[int, ...] = ()
    """Ids of the template before the text; empty unless `tokenizer.add_special_tokens` is on."""
    prepend: tuple[int, ...] = ()
    """The id of `output.prepend`."""
    append: tuple[int, ...] = ()
    """The id of `output.append`."""
    after: tuple[int, ...] = ()
    """Ids of the template after the text."""

    @property
    def left(self) -> tuple[int, ...]:
        """The ids that a row begins with."""
        return (*self.before, *self.prepend)

    @property
    def right(self) -> tuple[int, ...]:
        """The ids that a row ends with."""
        return (*self.append, *self.after)

    @property
    def n_special(self) -> int:
        """How many tokens the template adds."""
        return len(self.before) + len(self.after)

    @property
    def n_added(self) -> int:
        """How many tokens `output.prepend` and `output.append` add."""
        return len(self.prepend) + len(self.append)

    def to_record(self) -> dict[str, list[int]]:
        """Returns plain JSON."""
        return {name: list(ids) for name, ids in vars(self).items()}

    @classmethod
    def from_record(cls, record: Mapping[str, Sequence[int]]) -> Self:
        """Returns the marks of a manifest."""
        return cls(**{name: tuple(ids) for name, ids in record.items()})


NO_MARKS = Marks()


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
    def packed(
        cls, strategy: Any, length: int, separator_id: int | None, pad_id: int | None, marks: Marks = NO_MARKS
    ) -> Self:
        """Returns sequences of packed documents, padded if there is a token for that."""
        return cls(marks, strategy, length, 0, separator_id, pad_id, length if pad_id is not None else 0)

    @classmethod
    def recorded(cls, manifest: Mapping[str, Any]) -> Self:
        """Returns the rows of a finished output by its manifest."""
        marks, config = Marks.from_record(manifest["marks"]), manifest["config"]
        if manifest["packing"] is not None:
            packing, ids = config["output"]["packing"], manifest["packing"]
            return cls.packed(packing["strategy"], packing["length"], ids["separator_id"], ids["pad_id"], marks)
        padding, truncation = (config["tokenizer"][name] for name in ("padding", "truncation"))
        padded = (manifest["tokenizer"]["pad_id"], padding["length"], padding["side"] == "left") if padding else ()
        if "windows" in manifest["totals"]:
            room = truncation["max_length"] - marks.n_special
            return cls(marks, "windows", room, truncation["stride"], None, *padded)
        return cls(marks, "documents", 0, 0, None, *padded)

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

    def chosen(self, which: np.ndarray | slice) -> "Placement":
        """Returns some of the pieces; `which` are flags, places or a slice, as NumPy takes them."""
        return Placement(*(column[which] for column in vars(self).values()))

    @staticmethod
    def joined(parts: "Sequence[Placement]") -> "Placement":
        """Returns the pieces of all parts, one after another."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Placement(*map(np.concatenate, columns)) if parts else Placement(*[np.zeros(0, np.int64)] * 5)

    def of_rows(self, first: int, last: int) -> "Placement":
        """Returns the pieces of the rows from number `first` to below `last`."""
        return self.chosen(slice(*np.searchsorted(self.rows, [first, last]).tolist()))

    @classmethod
    def of_documents(cls, totals: Int64s) -> "Placement":
        """Returns the pieces of rows that are documents of so many tokens."""
        numbers, zeros = np.arange(totals.size), np.zeros(totals.size, np.int64)
        return cls(numbers, zeros, totals, numbers, zeros)

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
            return cls.of_documents(totals)
        lists = [table.column(name).combine_chunks() for name in ("rows", "starts")]
        counts, n_starts = (pc.list_value_length(each).to_numpy().astype(np.int64) for each in lists)
        if not np.array_equal(counts, n_starts):
            raise ValueError(f"document {int(np.argmax(counts != n_starts))} does not have as many starts as rows")
        rows, starts = (each.flatten().to_numpy().astype(np.int64) for each in lists)
        documents = np.repeat(np.arange(counts.size), counts)
        if (wrong := np.flatnonzero((np.diff(rows) <= 0) & (np.diff(documents) == 0))).size:
            raise ValueError(f"the rows of document {documents[wrong[0]]} do not ascend")
        room = form.length + len(form.around_row[0]) - starts
        firsts = before(room - form.stride, documents)
        pieces = cls(documents, firsts, np.minimum(room, totals[documents] - firsts), rows, starts)
        return pieces.chosen(np.lexsort((starts, rows)))

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
        expected = before(self.sizes, self.rows) + len(form.around_row[0])
        if not form.is_packed:
            expected[np.diff(self.documents, prepend=0) < 0] = -1
            expected[np.diff(self.rows, prepend=-1) == 0] = -1
        if (wrong := np.flatnonzero(self.starts != expected)).size:
            raise ValueError(f"the documents of row {self.rows[wrong[0]]} do not follow one another")


def before(sizes: Int64s, groups: Int64s) -> Int64s:
    """Returns the sum of the sizes before each one among its neighbours of the same group."""
    ends = np.cumsum(sizes) - sizes
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    return ends - np.repeat(ends[begins], np.diff(begins, append=groups.size))


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
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(n_tokens, form.padded))])
    begins = offsets[1:] - n_tokens if form.pads_left else offsets[:-1]
    return Measures(offsets, begins, n_tokens, rows, begins[rows] + placement.starts)


def gather(
    values: np.ndarray, offsets: Int64s, placement: Placement, at: Measures, fill: int, copy: Copy = copy_stretches
) -> np.ndarray:
    """Copies what documents have for each of their tokens into rows; all other places have `fill`.

    Args:
      values: int32[n] or uint8[n], the values of documents; int32 is made of others.
      offsets: int64[n_documents + 1], where each document begins in `values`; a separator is not among them.
      placement: the pieces of neighbouring rows.
      at: where they stand.
      fill: the value of padding, separators, and of what is around rows.
      copy: copies the pieces.
    """
    out = np.full(int(at.offsets[-1]), fill, values.dtype if values.dtype in (np.uint8, np.bool_) else np.int32)
    begins = offsets[placement.documents] + placement.firsts
    copy(values, begins, np.minimum(begins + placement.sizes, offsets[placement.documents + 1]), at.at, out)
    return out


def gather_ids(
    ids: np.ndarray, offsets: Int64s, placement: Placement, at: Measures, form: RowForm, copy: Copy = copy_stretches
) -> np.ndarray:
    """Returns the ids of rows, int32: of documents, separators, what is around rows, and padding; see `gather`."""
    out = gather(ids, offsets, placement, at, form.pad_id or 0, copy)
    left, right = form.around_row
    for i, token_id in enumerate(left):
        out[at.begins + i] = token_id
    for i, token_id in enumerate(reversed(right), 1):
        out[at.begins + at.n_tokens - i] = token_id
    if form.separator_id is not None:
        has_separator = placement.firsts + placement.sizes > np.diff(offsets)[placement.documents]
        out[(at.at + placement.sizes - 1)[has_separator]] = form.separator_id
    return out


def gather_trained(
    values: np.ndarray, offsets: Int64s, placement: Placement, at: Measures, fill: int, copy: Copy = copy_stretches
) -> tuple[np.ndarray, int]:
    """Returns what says which ids of packed rows are trained, and how many first ids of pieces are not any more.

    What is in front of a document, or of the rest of one that was cut, is another document, and does not predict it.
    Arguments are those of `gather`; `fill` is what says that an id is not trained.
    """
    out = gather(values, offsets, placement, at, fill, copy)
    n_first = int(np.count_nonzero(out[at.at] != fill))
    out[at.at] = fill
    return out, n_first


def placed_columns(names: Iterable[str], placement: Placement, at: Measures, form: RowForm) -> dict[str, pa.Array]:
    """Returns the columns among `names` that say nothing but where documents are.

    They are `n_tokens`, those of `schemas.WINDOWS`, `documents`, and `schemas.BOUNDARIES`.
    """
    n_rows, names = at.n_tokens.size, set(names)
    bounds = np.searchsorted(at.rows, np.arange(n_rows + 1))
    columns = {"n_tokens": pa.array(at.n_tokens.astype(np.int32))}
    if names & {"segment_ids", "positions"}:
        # The padding behind a row's tokens is one more piece, with the number 0.
        numbers = np.arange(1, at.rows.size + 1) - bounds[at.rows]
        sizes = np.insert(placement.sizes, bounds[1:], np.diff(at.offsets) - at.n_tokens)
        segment_ids = np.repeat(np.insert(numbers, bounds[1:], 0).astype(np.int32), sizes)
        positions = np.arange(segment_ids.size, dtype=np.int32) - np.repeat(
            (np.cumsum(sizes) - sizes).astype(np.int32), sizes
        )
        positions[segment_ids == 0] = 0
        columns |= {"segment_ids": as_lists(segment_ids, at.offsets), "positions": as_lists(positions, at.offsets)}
    if "cu_seqlens" in names:
        ends = np.zeros(at.rows.size + n_rows, np.int32)
        ends[np.arange(at.rows.size) + at.rows + 1] = placement.starts + placement.sizes
        columns["cu_seqlens"] = as_lists(ends, bounds + np.arange(n_rows + 1))
    if "documents" in names:
        columns["documents"] = as_lists(placement.documents, bounds)
    if "window" in names:
        columns["document"] = pa.array(placement.documents)
        columns["window"] = pa.array((placement.firsts // (form.length - form.stride)).astype(np.int32))
    return columns


def count_between(flags: np.ndarray, starts: Int64s, stops: Int64s) -> Int64s:
    """Returns how many flags, bool[n_ids], are set from each start to below each stop."""
    places = np.flatnonzero(flags)  # few: a running sum over all ids took a third of the time of `verify`
    return np.searchsorted(places, stops) - np.searchsorted(places, starts)
