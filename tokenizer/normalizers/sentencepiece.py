# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's normalizers: `Precompiled`, as HF applies a character map, and its own, of a `.model`."""

import array
import dataclasses
import functools
import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.kernels import sentencepiece as kernels
from tokenmill.tokenizer.models.double_array import double_array
from tokenmill.tokenizer.models.unigram import SPACE
from tokenmill.tokenizer.models.vocabulary import Tokens
from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import Normalizer, rows_of, unless_same
from tokenmill.tokenizer.normalizers.edits import apply_edits, found_edits, in_characters, put_at_last
from tokenmill.tokenizer.normalizers.kernels import precompiled as grapheme_kernels
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.traced import PlacedText, Traced


@dataclasses.dataclass(frozen=True)
class Precompiled(Normalizer):
    """Applies a SentencePiece character map as HF tokenizers does it, which differs from SentencePiece.

    Source: HF tokenizers `normalizers/precompiled.rs` and the crate spm_precompiled.

    Raises:
      ValueError: if `precompiled_charsmap` is not a character map.
    """

    precompiled_charsmap: bytes = dataclasses.field(repr=False)
    """Size of a double-array trie in bytes (uint32), the trie, texts that end with NUL."""

    def __post_init__(self) -> None:
        self.tables  # noqa: B018  checks the map

    @property
    def tables(self) -> tables.CharsMap:
        """The character map for kernels."""
        return tables.chars_map(self.precompiled_charsmap)

    def normalize_rows(self, rows: Ragged) -> Ragged:
        found = found_edits(grapheme_kernels.find_mapped, rows, self.tables)
        return unless_same(rows, apply_edits(rows, found, self.tables.texts).rows) if len(found) else rows

    def trace(self, text: Traced) -> Traced:
        edits, texts = found_edits(grapheme_kernels.find_mapped, text.rows, self.tables), self.tables.texts
        if not len(edits):
            return text
        # New characters have the places of old ones, one by one; what is too much has that of the last.
        in_pool = np.append(0, np.cumsum(texts.pool & 0xC0 != 0x80))
        n_put = in_pool[texts.stops[edits[:, 2]]] - in_pool[texts.starts[edits[:, 2]]]
        starts, stops = in_characters(text.rows, edits)
        kept = np.minimum(n_put, stops - starts)
        is_more = n_put > stops - starts
        bounds = text.bounds
        # If what is removed follows what is too much, the last of that has the place of the first that is removed.
        takes_over = (n_put[1:] == 0) & is_more[:-1] & (starts[1:] == stops[:-1]) & ~np.isin(starts[1:], bounds)
        firsts, lasts = starts[1:][takes_over], stops[:-1][takes_over] - 1
        starts, n_put = starts + kept - is_more, n_put - kept + is_more
        changes = starts < stops
        n_new = put_at_last(text.starts.size, starts[changes], stops[changes], n_put[changes])
        n_new[firsts] += 1
        n_new[lasts] -= 1
        for row in np.flatnonzero(np.isin(bounds[:-1], np.flatnonzero(n_new == 0))).tolist():
            # Where the first characters are removed, HF takes the others for them, and the last ones for removed.
            of_row = n_new[bounds[row] : bounds[row + 1]]
            lost = int(np.argmax(of_row > 0)) if of_row.any() else 0
            of_row[: of_row.size - lost] = of_row[lost:].copy()
            of_row[of_row.size - lost :] = 0
        return text.repeated(apply_edits(text.rows, edits, texts).rows, n_new)


_PROBLEMS = {
    1: "keys without end, or one of more than 65536 bytes",
    2: "a key that leads out of its trie",
    3: "a result that lies outside of it or has no end",
    4: "a result that is not UTF-8",
}
MAX_WORK = 1 << 16
"""The most bytes of a key of a character map, and the room to walk its trie; maps that need more are refused."""
_NONE_KNOWN = read_only(np.empty(0, np.bool_))
_BYTES_PER_ROW = 6
"""A "▁" in front, and one at the end."""


class SentencePieceTables(NamedTuple):
    """A normalizer as the kernel reads it."""

    units: npt.NDArray[np.uint32]
    """uint32[n], the trie of the character map; empty if there is none."""
    results: npt.NDArray[np.uint8]
    simple: npt.NDArray[np.bool_]
    """bool[256]: ASCII bytes that stay as they are before another ASCII byte."""
    kept: npt.NDArray[np.int64]
    """int64[n], the trie of the user-defined pieces, as in kernels.unigram."""
    kept_root: int
    begins_kept: npt.NDArray[np.bool_]
    """bool[256]: bytes that a user-defined piece begins with."""
    prefix: bool
    at_end: bool
    shrink: bool
    escape: bool


class NormalizerTables(NamedTuple):
    """The kernel's tables, and by how much a text may grow."""

    steps: SentencePieceTables
    growth: float
    """The most bytes that a byte can become, at least 1, before spaces become "▁"; a space in a key's result counts as
    three."""


class CharsMap:
    """The `precompiled_charsmap` of a model: a map from byte strings to texts, applied by longest match.

    It has four bytes with the size of the trie, the trie (a darts-clone double array of little-endian uint32), then the
    results, each ended by a zero byte.

    Raises:
      ValueError: if it is cut off, or a result is outside it or not UTF-8.

    Source: sentencepiece `normalizer.cc`, `DecodePrecompiledCharsMap`; darts-clone `darts.h`.
    """

    def __init__(self, blob: bytes) -> None:
        if len(blob) < 4:
            raise ValueError(f"precompiled_charsmap has only {len(blob)} bytes")
        size = struct.unpack_from("<I", blob)[0]
        if size % 4 or not 1024 <= size < len(blob):
            raise ValueError(f"precompiled_charsmap says its trie has {size} bytes, of {len(blob)} in all")
        self.units = array.array("I", blob[4 : 4 + size])
        self.results = blob[4 + size :]

    def longest(self, text: bytes, at: int) -> tuple[int, str] | None:
        """Returns the bytes of the longest key that `text[at:]` begins with, and its result; None for no key."""
        units = self.units
        place = _offset(units[0])
        found: tuple[int, int] | None = None
        for i in range(at, len(text)):
            place ^= text[i]
            # A zero byte leads to the place of the result of the key so far, whose top bit keeps it from matching.
            if place >= len(units) or units[place] & 0x800000FF != text[i]:
                break
            has_result = units[place] >> 8 & 1
            place ^= _offset(units[place])
            if has_result and place < len(units):
                found = (i + 1 - at, units[place] & 0x7FFFFFFF)
        return None if found is None else (found[0], self._result(found[1]))

    def _result(self, start: int) -> str:
        return self.results[start : self.results.index(b"\0", start)].decode()


def new_links(units: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Makes the array in which kernels list the children of a character map's trie; see `link_children`."""
    return np.empty((2, -(-units.size // 256) * 256), np.int32)


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)


@dataclasses.dataclass(frozen=True)
class SentencePieceNormalizer(Normalizer):
    """Normalizes a text exactly as sentencepiece does; the model cuts the result into pieces.

    From left to right: the longest user-defined piece stays as it is; otherwise the longest key of the character map
    becomes its result; otherwise a character stays. With `remove_extra_whitespaces`, spaces at the start, further
    spaces after a space, and spaces and "▁" at the end are removed. With `escape_whitespaces`, spaces become "▁". With
    `add_dummy_prefix`, a "▁" is put in front, or at the end if `treat_whitespace_as_suffix`. A result that ends in a
    space counts as a space.

    No combination of HF's normalizers and Metaspace does the same: HF's Precompiled takes graphemes where
    sentencepiece takes the longest key, Metaspace puts no "▁" in front of a "▁", and HF has nothing that protects
    user-defined pieces.

    Raises:
      ValueError: if the character map is broken: cut off, endless, or with results outside it or not UTF-8.

    Source: sentencepiece 0.2.3 `normalizer.cc`, `Normalizer::Normalize`.
    """

    precompiled_charsmap: bytes = dataclasses.field(default=b"", repr=False)
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    treat_whitespace_as_suffix: bool = False
    user_defined_symbols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.tables  # noqa: B018  checks the map

    @functools.cached_property
    def _charsmap(self) -> CharsMap | None:
        return CharsMap(self.precompiled_charsmap) if self.precompiled_charsmap else None

    @functools.cached_property
    def tables(self) -> NormalizerTables:
        """The normalizer lowered to arrays."""
        simple = np.ones(256, np.bool_)
        units, results, ratio = np.empty(0, np.uint32), np.empty(0, np.uint8), 1.0
        if self._charsmap is not None:
            units = np.array(self._charsmap.units, np.uint32)
            results = np.frombuffer(bytearray(self._charsmap.results), np.uint8)
            stack = np.empty((MAX_WORK, 3), np.int64)
            problem, ratio = kernels.check_charsmap(units, results, new_links(units), stack, simple)
            if problem:
                raise ValueError(f"precompiled_charsmap has {_PROBLEMS[problem]}")
        simple[128:] = False
        simple[32] = False
        symbols = Tokens.of(sorted({*self.user_defined_symbols} - {""}))
        begins = np.zeros(256, np.bool_)
        begins[symbols.values[symbols.offsets[:-1]]] = True
        trie = double_array(symbols, np.arange(len(symbols), dtype=np.int32))
        steps = SentencePieceTables(
            units=read_only(units),
            results=read_only(results),
            simple=read_only(simple & ~begins),
            kept=trie.units,
            kept_root=trie.root_base,
            begins_kept=read_only(begins),
            prefix=self.add_dummy_prefix,
            at_end=self.treat_whitespace_as_suffix,
            shrink=self.remove_extra_whitespaces,
            escape=self.escape_whitespaces,
        )
        return NormalizerTables(steps, ratio)

    def normalized_bytes(self, n_bytes: int) -> int:
        """Returns the most bytes that a row of `n_bytes` bytes can become."""
        return int(n_bytes * max(3.0, self.tables.growth)) + _BYTES_PER_ROW

    def maps_to_space(self, byte: int) -> bool:
        """Whether an ASCII byte, by itself, becomes a space."""
        return self._charsmap is not None and self._charsmap.longest(bytes([byte]), 0) == (1, " ")

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8 in one pass."""
        # Memory pages that the result does not reach are never touched.
        out = recycled.empty(self.normalized_bytes(rows.n_values) + _BYTES_PER_ROW * rows.n_rows, np.uint8)
        offsets = np.empty(rows.n_rows + 1, np.int64)
        kernels.normalize(rows.values, rows.offsets, self.tables.steps, _NONE_KNOWN, out, offsets)
        return unless_same(rows, rows_of(out, offsets))

    def trace(self, text: Traced) -> Traced:
        """Traces rows in plain Python, step by step; a "▁" that is put in covers no character."""
        return text.replaced(range(text.rows.n_rows), [*map(self._placed, text.texts())])

    def _placed(self, text: PlacedText) -> PlacedText:
        parts = self._parts(text.text)
        shrink = self.remove_extra_whitespaces
        if shrink:
            parts = parts[next((k for k, part in enumerate(parts) if part[0] != " "), len(parts)) :]
        if not parts:
            return PlacedText("", [], [])
        space = SPACE if self.escape_whitespaces else " "
        made: list[tuple[str, int, int]] = []
        after_space = shrink
        for part, first, stop in parts:
            if after_space:
                part = part.lstrip(" ")
            if part:
                made += [(space if c == " " else c, text.starts[first], text.stops[stop - 1]) for c in part]
                after_space = shrink and part.endswith(" ")
        at_start, at_end = text.starts[parts[0][1]], text.stops[-1]
        if self.add_dummy_prefix and not self.treat_whitespace_as_suffix:
            made.insert(0, (space, at_start, at_start))
        while shrink and made and made[-1][0] == space:
            made.pop()
        if self.add_dummy_prefix and self.treat_whitespace_as_suffix:
            made.append((space, at_end, at_end))
        return PlacedText(
            "".join(c for c, _, _ in made), [start for _, start, _ in made], [stop for _, _, stop in made]
        )

    @functools.cached_property
    def _kept(self) -> frozenset[str]:
        return frozenset(self.user_defined_symbols) - {""}

    def _parts(self, text: str) -> list[tuple[str, int, int]]:
        """Cuts a text into keys, pieces and single characters; returns each one's result and range of characters."""
        longest_kept = max(map(len, self._kept), default=0)
        encoded = text.encode()
        # The index of the character that begins at each byte.
        starts = {n: i for i, n in enumerate(_byte_starts(text))}
        parts = []
        i, at = 0, 0
        while i < len(text):
            size = next((n for n in range(min(longest_kept, len(text) - i), 0, -1) if text[i : i + n] in self._kept), 0)
            found = None if size or self._charsmap is None else self._charsmap.longest(encoded, at)
            if found is not None and at + found[0] in starts:
                stop = starts[at + found[0]]
                parts.append((found[1], i, stop))
            else:
                stop = i + max(size, 1)
                parts.append((text[i:stop], i, stop))
            at += len(text[i:stop].encode())
            i = stop
        return parts


def _byte_starts(text: str) -> list[int]:
    starts = [0]
    for char in text:
        starts.append(starts[-1] + len(char.encode()))
    return starts
