# SPDX-License-Identifier: Apache-2.0
"""The interfaces of all that changes text: columns in compiled code, and one text as a list of edits, with offsets.

`Normalizer` is what a tokenizer needs. `TextStep` is a normalizer that describes its changes as edits, and so can
report them. Most are steps; those that are not have no counts, or are made of other normalizers.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Normalizers
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.errors import TextGrowthError, check_strings
from tokenmill.tokenizer.ragged import Errors, Ragged, encoded_rows, put_rows, read_only, string_array, text_rows
from tokenmill.tokenizer.traced import PlacedText, Traced


class Edit(NamedTuple):
    """A replacement in one text: `text[start:stop]` becomes `new`. An insertion has `start == stop`."""

    start: int
    stop: int
    new: str


class Edges(NamedTuple):
    """Where documents begin and end, when rows are parts of documents."""

    begins: npt.NDArray[np.bool_]
    """bool[n_rows]: whether the row begins where its document begins."""
    ends: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, n_rows: int, begins: bool = True, ends: bool = True) -> Self:
        """Returns the same edges for all rows; without arguments, those of rows that are documents."""
        return cls(np.full(n_rows, begins), np.full(n_rows, ends))


class Applied(NamedTuple):
    """The result of a step on rows."""

    rows: Ragged
    """The new rows; the same object as the input if nothing changed."""
    n_chars_changed: int
    rejected: tuple[int, ...] = ()
    """Rows that the step gave up on; they are empty now."""


class Normalizer(abc.ABC):
    """Text to text, before anything is split."""

    @property
    def is_fast(self) -> bool:
        """Whether columns are normalized by compiled code only; if not, Python runs once for every row."""
        return True

    @abc.abstractmethod
    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8, values uint8[n]; returns `rows` itself if nothing changes."""

    @abc.abstractmethod
    def trace(self, text: Traced) -> Traced:
        """Normalizes rows like `normalize_rows`; their characters have the places that HF gives them."""

    def normalize_arrow(self, texts: Any, errors: Errors = "strict") -> pa.LargeStringArray:
        """Normalizes a text column; rows and their order stay, nulls become empty, nothing aliases the input.

        Args:
          texts, errors: as for `Tokenizer.encode_arrow`.

        Raises:
          TypeError: if `texts` is not a text column. ValueError: if it is not valid.
        """
        rows = text_rows(texts, errors)
        normalized = self.normalize_rows(rows)
        values, offsets = normalized
        if normalized is rows:
            values, offsets = values[offsets[0] : offsets[-1]].copy(), offsets - offsets[0]
        return string_array(values, offsets)

    def normalize_str(self, text: str) -> str:
        """Normalizes one text."""
        check_strings("text", [text])
        return str(self.normalize_arrow([text])[0].as_py())


class TextStep(Normalizer):
    """A normalizer that tells its changes. Steps are frozen dataclasses; their fields are the options in a config."""

    name: str
    """Its name in a config and in reports."""

    @abc.abstractmethod
    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text.

        Edits are in order and do not overlap. An edit that would replace a text by itself is left out.

        Args:
          text: a document, or a part of one.
          begins, ends: whether the text begins where its document begins, and ends where that ends.
        """

    @property
    def is_fast(self) -> bool:
        return type(self).apply_rows is not TextStep.apply_rows

    def candidates(self, rows: Ragged) -> Iterable[int]:
        """Returns, in order, the numbers of rows that the step may change; it changes no other."""
        return np.flatnonzero(np.diff(rows.offsets)).tolist()

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        """Applies the step to rows of valid UTF-8, values uint8[n]; without a kernel, one row after the other.

        Raises:
          TextGrowthError: if a row becomes too long; see `check_growth`.
        """
        new: dict[int, bytes] = {}
        rejected = []
        n = 0
        for row in self.candidates(rows):
            text = rows.values[rows.offsets[row] : rows.offsets[row + 1]].tobytes().decode()
            try:
                edits = self.edits(text, bool(edges.begins[row]), bool(edges.ends[row]))
            except TimeoutError:
                new[row] = b""
                rejected.append(row)
                continue
            if (after := replaced(text, edits)) != text:
                new[row] = after.encode()
                check_growth(int(rows.offsets[row + 1] - rows.offsets[row]), len(new[row]))
                n += n_changed(edits)
        return Applied(put_texts(rows, new), n, tuple(rejected))

    def normalize_rows(self, rows: Ragged) -> Ragged:
        return self.apply_rows(rows, Edges.of(rows.n_rows)).rows

    def trace(self, text: Traced, edges: Edges | None = None) -> Traced:
        """Applies the step to rows, and traces their characters; without a better way, one row after the other.

        Raises:
          TimeoutError: if an expression takes too long. TextGrowthError: as `apply_rows`.
        """
        begins, ends = (each.tolist() for each in edges or Edges.of(text.rows.n_rows))
        new: dict[int, PlacedText] = {}
        for row, each in enumerate(text.texts()):
            if each.text and (edits := self.edits(each.text, begins[row], ends[row])):
                new[row] = placed(each, edits, 0 if begins[row] else each.starts[0])
        return text.replaced(list(new), list(new.values()))

    def active(self) -> npt.NDArray[np.bool_] | None:
        """Returns characters, bool[0x110000], such that texts with none of them never change; None if not known."""
        return None

    def to_config(self) -> str | dict[str, Any]:
        """Returns the step as a config writes it, without options at their defaults."""
        options = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        }
        return {self.name: options} if options else self.name


def replaced(text: str, edits: list[Edit]) -> str:
    """Returns a text after edits."""
    parts: list[str] = []
    at = 0
    for start, stop, new in edits:
        parts += text[at:start], new
        at = stop
    return "".join([*parts, text[at:]])


def placed(text: PlacedText, edits: list[Edit], begin: int = 0) -> PlacedText:
    """Returns a text after edits, with the places of its characters.

    The place of a replacement is all the characters that it replaces; that of an insertion is the character before, or
    `begin`, the very start, even if what was there has been removed. HF gives a replacement the place of one character,
    so an edit of HF's replaces one and removes others.
    """
    starts: list[int] = []
    stops: list[int] = []
    at = 0
    for start, stop, new in edits:
        first, last = (start, stop - 1) if start < stop else (start - 1, start - 1)
        origin = (text.starts[first], text.stops[last]) if last >= 0 else (begin, begin)
        starts += [*text.starts[at:start], *[origin[0]] * len(new)]
        stops += [*text.stops[at:start], *[origin[1]] * len(new)]
        at = stop
    after = replaced(text.text, edits)
    check_growth(len(text.text.encode()), len(after.encode()))
    return PlacedText(after, [*starts, *text.starts[at:]], [*stops, *text.stops[at:]])


def n_changed(edits: list[Edit]) -> int:
    """Returns how many characters edits replace or remove, and insert without replacing any."""
    return sum(stop - start or len(new) for start, stop, new in edits)


def edits_of_characters(text: str, new: Callable[[str], str]) -> list[Edit]:
    """Returns the edits that make `new(c)` of every character c."""
    return [Edit(i, i + 1, n) for i, c in enumerate(text) if (n := new(c)) != c]


def put_texts(rows: Ragged, new: Mapping[int, bytes]) -> Ragged:
    """Returns rows with some replaced; new: row number -> bytes."""
    return put_rows(rows, (list(new), encoded_rows(list(new.values())))) if new else rows


def rows_of(values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Ragged:
    """Wraps the output of a kernel, without the room that it did not use."""
    return Ragged(read_only(values[: offsets[-1]]), offsets)


def same_rows(before: Ragged, after: Ragged) -> npt.NDArray[np.bool_]:
    """Returns which rows of two columns of bytes are equal, bool[n_rows]."""
    if before is after:
        return np.ones(before.n_rows, np.bool_)
    import pyarrow.compute as pc  # takes long to import

    columns = (string_array(rows.values[rows.offsets[0] :], rows.offsets - rows.offsets[0]) for rows in (before, after))
    same: npt.NDArray[np.bool_] = pc.equal(*columns).to_numpy(zero_copy_only=False)
    return same


def unless_same(rows: Ragged, normalized: Ragged) -> Ragged:
    """Returns `rows` itself if `normalized` is equal to it."""
    first, last = int(rows.offsets[0]), int(rows.offsets[-1])
    same = last - first == normalized.n_values and np.array_equal(rows.offsets - first, normalized.offsets)
    return rows if same and np.array_equal(rows.values[first:last], normalized.values) else normalized


MAX_GROWTH, FREE_BYTES = 16, 1024
"""A text may become this many times as long, and this many bytes longer. NFKC makes 33 bytes of the 3 of U+FDFA."""


def check_content(name: str, content: str) -> None:
    """Raises ValueError if a text that a step puts in, for each match or row, is longer than that of any real file."""
    if len(content) > FREE_BYTES or len(content.encode("utf-8", "surrogatepass")) > FREE_BYTES:
        raise ValueError(f"{name} has {len(content)} characters, of which at most {FREE_BYTES} bytes are allowed")


def check_growth(n_before: Any, n_after: Any) -> None:
    """Raises TextGrowthError if a text has become too long; both are numbers of bytes, of one text or of several."""
    too_long = n_after > MAX_GROWTH * n_before + FREE_BYTES
    if too_long is not False and np.any(too_long):  # of one text, NumPy takes 2 µs to say so
        first = int(np.argmax(too_long))
        n_before, n_after = int(np.atleast_1d(n_before)[first]), int(np.atleast_1d(n_after)[first])
        raise TextGrowthError(
            f"normalizers or decoders make {n_after} bytes of {n_before}; at most {MAX_GROWTH} times as many and "
            f"{FREE_BYTES} more are allowed"
        )


def check_room(rows: Ragged, n_bytes: int) -> None:
    """Raises TextGrowthError if a result has so many bytes that one of the rows must have become too long."""
    check_growth(rows.n_values + (rows.n_rows - 1) * FREE_BYTES // MAX_GROWTH, n_bytes)


def grown(rows: Ragged, normalized: Ragged) -> Ragged:
    """Returns normalized rows; raises TextGrowthError if one of them has become too long."""
    if normalized is not rows:
        check_growth(np.diff(rows.offsets), np.diff(normalized.offsets))
    return normalized


@dataclasses.dataclass(frozen=True)
class Sequence(Normalizer):
    """Applies normalizers in order.

    Raises:
      TypeError: if an element is not a normalizer.
    """

    normalizers: Normalizers[Normalizer]

    def __post_init__(self) -> None:
        for i, normalizer in enumerate(self.normalizers):
            if not isinstance(normalizer, Normalizer):
                raise TypeError(f"normalizers[{i}]: expected a normalizer, got {normalizer!r}")
        object.__setattr__(self, "normalizers", tuple(self.normalizers))

    def flat(self) -> list[Normalizer]:
        """Returns the normalizers in order, with nested sequences flattened: so texts are compared with the first."""
        return [part for n in self.normalizers for part in (n.flat() if isinstance(n, Sequence) else [n])]

    @property
    def is_fast(self) -> bool:
        return all(normalizer.is_fast for normalizer in self.normalizers)

    def normalize_rows(self, rows: Ragged) -> Ragged:
        normalized = rows
        for normalizer in self.flat():
            normalized = grown(rows, normalizer.normalize_rows(normalized))
        return normalized

    def trace(self, text: Traced) -> Traced:
        rows = text.rows
        for normalizer in self.flat():
            text = normalizer.trace(text)
            grown(rows, text.rows)
        return text
