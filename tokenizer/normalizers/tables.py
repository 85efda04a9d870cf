# SPDX-License-Identifier: Apache-2.0
"""The tables of code points for the normalizers' kernels. They are made once, read-only and shared."""

import functools
import string
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.normalizers.kernels import normal_forms, precompiled
from tokenmill.tokenizer.normalizers.kernels.edit_lists import Texts
from tokenmill.tokenizer.ragged import read_only
from tokenmill.tokenizer.unicode import data
from tokenmill.tokenizer.unicode import tables as unicode_tables
from tokenmill.tokenizer.unicode.tables import HANGUL_FIRST, HANGUL_LAST

UNICODE_VERSION, HF_UNICODE_VERSION = data.TEXT_VERSION, data.UNICODE_VERSIONS["decompositions"]
"""The versions of Unicode that there are normal forms of: that of the text steps, and that of HF tokenizers.

Unicode never changes the normal forms of a character, so the newer tables add characters to the older ones, and those
of Python's `unicodedata`, of a version between, say the same of all characters that it knows.
"""
_EACH_BYTE = 0x0101010101010101
SPARE_BYTES = 8
"""Kernels write eight bytes at a time, so their output needs this much room beyond its end."""


class Skips(NamedTuple):
    """Characters that a kernel need not look at, by their first bytes: two ranges of these, and others.

    The fields of a range, one of ASCII and one of other bytes, are summands, repeated in all eight bytes, that carry
    into the high bit of a byte whose lower seven bits are at or above its start, and past its end.
    """

    ascii_from: np.uint64
    ascii_past: np.uint64
    lead_from: np.uint64
    lead_past: np.uint64
    steps: npt.NDArray[np.uint8]
    """uint8[256]: bytes of a character, by its first byte, if all that begin so may be skipped; else 0."""
    has_ascii: bool
    """Whether all of ASCII may be skipped."""

    @classmethod
    def of(cls, idle: npt.NDArray[np.bool_], also: str = "") -> Self:
        """Lowers the characters that may be skipped, bool[0x110000]; the range of ASCII may hold `also`, too."""
        steps = np.zeros(256, np.uint8)
        steps[:128] = idle[:128]
        for first in range(0xC2, 0xF5):
            n_bytes = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            n_following = 1 << (6 * (n_bytes - 1))
            begin = (first & (0x7F >> n_bytes)) * n_following
            steps[first] = n_bytes * bool(idle[begin : begin + n_following].all())
        ascii_idle = idle[:128].copy()
        ascii_idle[[ord(c) for c in also]] = True
        n_characters = np.where(steps[128:] == 3, 64, 1)  # relative to two bytes; characters of four are rare
        ascii_run = _largest_run(ascii_idle, np.ones(128, np.int64))
        leads_run = _largest_run(steps[128:] > 0, n_characters)
        return cls(*ascii_run, *leads_run, read_only(steps), bool(ascii_idle.all()))


class CharacterMap(NamedTuple):
    """A normalizer that looks at one character at a time."""

    replacements: npt.NDArray[np.int32]
    """int32[0x110000]: 0 if the character stays as it is, else `offset << 5 | n_bytes` into `pool`."""
    pool: npt.NDArray[np.uint8]
    growth: npt.NDArray[np.int8]
    """int8[0x110000]: bytes that a character grows by, 0 if it shrinks."""
    lower_ascii: bool
    """Whether ASCII letters become lower-case."""
    skips: Skips
    """Characters that stay, and ASCII letters that are only lower-cased."""


class Runs(NamedTuple):
    """Runs of characters of a set, for `matches.next_run`."""

    members: npt.NDArray[np.bool_]
    """bool[0x110000], the set."""
    usual: int
    """The member that texts have most, if it is of ASCII, or 0."""
    least: int
    """The least number of characters."""
    spares_usual: bool
    """Whether a run of one `usual` does not count."""
    skips: Skips
    """Characters that are no members, and `usual`."""

    @classmethod
    def of(cls, members: npt.NDArray[np.bool_], usual: str, least: int = 1, spares_usual: bool = False) -> Self:
        """Lowers the runs of a set."""
        byte = ord(usual) if usual < "\x80" else 0
        return cls(read_only(members), byte, least, spares_usual, Skips.of(~members, chr(byte)))


class NormalForm(NamedTuple):
    """One of Unicode's normal forms."""

    kinds: npt.NDArray[np.uint8]
    """uint8[0x110000]: INERT, ORDERED or OTHER of normalizers.kernels.normal_forms."""
    combining: npt.NDArray[np.uint8]
    """uint8[0x110000]: canonical combining class."""
    decompositions: npt.NDArray[np.int32]
    """int32[0x110000]: 0 for no decomposition, else `offset << 5 | n_characters` into `parts`. Hangul is computed."""
    parts: npt.NDArray[np.int32]
    growth: npt.NDArray[np.int8]
    """int8[0x110000]: bytes that full decomposition adds."""
    composes: bool
    is_second: npt.NDArray[np.bool_]
    """bool[0x110000]: characters that combine with one before them, except Hangul."""
    skips: Skips
    """Characters that are inert and stay."""
    pairs: npt.NDArray[np.uint64]
    """uint64[PAIR_SLOTS]: `first << 42 | second << 21 | composite`, by hash of the first two; 0 in free slots."""


class PieceScratch(NamedTuple):
    """Work space for one decomposed piece of text."""

    characters: npt.NDArray[np.int32]
    classes: npt.NDArray[np.uint8]
    sorted: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    """int64[256]."""


class CharsMap(NamedTuple):
    """A SentencePiece character map."""

    units: npt.NDArray[np.uint32]
    """uint32[n]: the double-array trie."""
    texts: Texts
    """The text from each place of the pool to the next NUL, by place."""
    places: npt.NDArray[np.int32]
    """int32[0x110000]: one more than where the text of a character begins in the pool; 0 if it has none."""
    graphemes: npt.NDArray[np.uint8]
    """uint8[0x110000]: see normalizers.kernels.precompiled."""
    skips: Skips
    """Characters that stay and join nothing."""


def _largest_run(kept: npt.NDArray[np.bool_], sizes: npt.NDArray[np.int64]) -> tuple[np.uint64, np.uint64]:
    """Returns the summands of `Skips` for a run of the lower seven bits of bytes."""
    best, first, last, start = 0, 0, -1, 0
    for stop in range(1, 129):
        if not kept[stop - 1]:
            start = stop
        elif sizes[start:stop].sum() > best:
            best, first, last = int(sizes[start:stop].sum()), start, stop - 1
    if last < 0:
        return np.uint64(0), np.uint64(0)  # carries for no byte
    return np.uint64((0x80 - first) * _EACH_BYTE), np.uint64((0x7F - last) * _EACH_BYTE)


def character_map(changes: Mapping[int, str]) -> CharacterMap:
    """Lowers a map from code points to texts of at most 31 bytes."""
    replacements, growth = np.zeros(N_CODE_POINTS, np.int32), np.zeros(N_CODE_POINTS, np.int8)
    pool = bytearray(1)  # offset 0 stays unused, so that a replacement is never 0
    for code_point, text in changes.items():
        encoded = text.encode()
        replacements[code_point] = len(pool) << 5 | len(encoded)
        growth[code_point] = max(0, len(encoded) - len(chr(code_point).encode()))
        pool += encoded
    lower_ascii = changes.get(ord("A")) == "a"
    skips = Skips.of(replacements == 0, string.ascii_uppercase if lower_ascii else "")
    return CharacterMap(
        read_only(replacements), np.frombuffer(bytes(pool), np.uint8), read_only(growth), lower_ascii, skips
    )


def _with_newer(old: dict[Any, str], newer: Callable[[str], dict[Any, str]], name: str, unicode: str) -> dict[Any, str]:
    return old if unicode == HF_UNICODE_VERSION else old | newer(f"text/{name}")


@functools.cache
def decompositions(unicode: str = HF_UNICODE_VERSION, compatible: bool = False) -> dict[int, str]:
    """Returns the full decompositions, except for Hangul: those of NFKD if `compatible`, else those of NFD."""
    canonical = _with_newer(unicode_tables.decompositions(), data.texts, "canonical", unicode)
    if not compatible:
        return canonical
    return _with_newer(canonical | data.texts("normalization/compatibility"), data.texts, "compatibility", unicode)


@functools.cache
def compositions(unicode: str = HF_UNICODE_VERSION) -> dict[tuple[str, str], str]:
    """Returns pair of characters -> the character that they compose into, except for Hangul."""
    return _with_newer(data.compositions("normalization/compositions"), data.compositions, "compositions", unicode)


@functools.cache
def combining(unicode: str = HF_UNICODE_VERSION) -> npt.NDArray[np.uint8]:
    """Returns the canonical combining classes, uint8[0x110000]."""
    if unicode == HF_UNICODE_VERSION:
        return unicode_tables.combining_classes()
    if unicode == unicode_tables.HF_1:
        return unicode_tables.combining_classes(unicode)
    # No character has a class in both tables.
    return read_only(unicode_tables.combining_classes() | data.numbers("text/combining_classes"))


@functools.cache
def normal_form(form: str, unicode: str) -> NormalForm:
    """Lowers a normal form: `NFC`, `NFD`, `NFKC` or `NFKD`."""
    mapping, canonical = decompositions(unicode, "K" in form), decompositions(unicode)
    classes, composed, composes = combining(unicode), compositions(unicode), form.endswith("C")
    kinds = np.zeros(N_CODE_POINTS, np.uint8)
    kinds[classes > 0] = normal_forms.ORDERED
    places, growth = np.zeros(N_CODE_POINTS, np.int32), np.zeros(N_CODE_POINTS, np.int8)
    parts: list[int] = []
    is_second = np.zeros(N_CODE_POINTS, np.bool_)
    composites = set(composed.values())
    is_second[[ord(second) for _, second in composed]] = True
    for code_point, text in mapping.items():
        places[code_point] = len(parts) << 5 | len(text)
        parts += map(ord, text)
        growth[code_point] = max(0, len(text.encode()) - len(chr(code_point).encode()))
        # A composite stays as it is, unless its first part combines with the character before, or its compatibility
        # decomposition is different.
        stays = composes and chr(code_point) in composites and text == canonical.get(code_point)
        if not stays or classes[ord(text[0])] or is_second[ord(text[0])]:
            kinds[code_point] = normal_forms.OTHER
    # Syllables without a trailing consonant have two jamos of three bytes, the others three.
    growth[HANGUL_FIRST : HANGUL_LAST + 1] = 6
    growth[HANGUL_FIRST : HANGUL_LAST + 1 : 28] = 3
    pairs = np.zeros(normal_forms.PAIR_SLOTS, np.uint64)
    if composes:
        kinds[is_second] = normal_forms.OTHER
        kinds[0x1161 : 0x1161 + 21] = kinds[0x11A8 : 0x11A8 + 27] = normal_forms.OTHER
        for (first, second), composite in composed.items():
            pair = ord(first) << 21 | ord(second)
            slot = _pair_slot(pair)
            while pairs[slot]:
                slot = (slot + 1) % normal_forms.PAIR_SLOTS
            pairs[slot] = pair << 21 | ord(composite)
    else:
        kinds[HANGUL_FIRST : HANGUL_LAST + 1] = normal_forms.OTHER
    return NormalForm(
        read_only(kinds), read_only(classes), read_only(places), read_only(np.array(parts, np.int32)),
        read_only(growth), composes, read_only(is_second), Skips.of((kinds == normal_forms.INERT) & (growth == 0)),
        read_only(pairs),
    )  # fmt: skip


def _pair_slot(pair: int) -> int:
    """Computes `normal_forms.pair_slot`."""
    return (pair * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 52


def piece_scratch(n_characters: int) -> PieceScratch:
    """Makes scratch for pieces of up to `n_characters` characters. Memory pages that none reaches are never touched."""
    n = n_characters
    return PieceScratch(np.empty(n, np.int32), np.empty(n, np.uint8), np.empty(n, np.int32), np.empty(256, np.int64))


@functools.cache
def graphemes() -> npt.NDArray[np.uint8]:
    """Returns the grapheme category of every character, uint8[0x110000]; see normalizers.kernels.precompiled."""
    classes = np.zeros(N_CODE_POINTS, np.uint8)
    classes[ord("\r")], classes[ord("\n")] = precompiled.CR, precompiled.LF
    for number, name in enumerate(data.names("normalization/grapheme_names")):
        classes[data.members_of_number("normalization/graphemes", number)] |= getattr(precompiled, name)
    return read_only(classes)


_MAX_MAPPED = 256
"""The most bytes that a character map may put in place of a character; NFKC's longest text has 33."""


@functools.lru_cache(maxsize=4)
def chars_map(precompiled_charsmap: bytes) -> CharsMap:
    """Lowers a character map as SentencePiece writes it: size of the trie in bytes, trie, texts that end with NUL.

    Raises:
      ValueError: if it is not one.
    """
    n_units = int.from_bytes(precompiled_charsmap[:4], "little") // 4
    if not 0 < n_units <= (len(precompiled_charsmap) - 4) // 4:
        raise ValueError(
            f"precompiled_charsmap: a trie of {n_units} units does not fit into {len(precompiled_charsmap)} bytes; "
            "expected a little-endian uint32 of the trie's size in bytes, the trie, and the texts"
        )
    pool = precompiled_charsmap[4 + 4 * n_units :] or b"\0"
    try:
        pool.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"precompiled_charsmap: the texts after the trie are not UTF-8: {error}") from None
    if (longest := max(map(len, pool.split(b"\0")))) > _MAX_MAPPED:
        raise ValueError(f"precompiled_charsmap: a text has {longest} bytes, allowed are {_MAX_MAPPED}")
    units = np.frombuffer(precompiled_charsmap, "<u4", n_units, 4).astype(np.uint32)
    ends = np.append(np.flatnonzero(np.frombuffer(pool, np.uint8) == 0), len(pool))
    starts = np.arange(len(pool))
    stops = ends[np.searchsorted(ends, starts)]
    texts = Texts(np.frombuffer(pool + bytes(SPARE_BYTES), np.uint8), read_only(starts), read_only(stops))
    places = np.zeros(N_CODE_POINTS, np.int32)
    precompiled.texts_of_characters(read_only(units), texts, np.empty(4, np.uint8), places)
    skips = Skips.of((places == 0) & (graphemes() == precompiled.ANY))
    return CharsMap(read_only(units), texts, read_only(places), graphemes(), skips)
