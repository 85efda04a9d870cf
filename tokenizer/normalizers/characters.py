# SPDX-License-Identifier: Apache-2.0
"""Normalizers that look at one character at a time: their base class, HF's, and BERT's, which is made of such."""

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import kernel_memory, recycled
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import (
    Applied,
    Edges,
    Edit,
    Normalizer,
    TextStep,
    edits_of_characters,
    rows_of,
    unless_same,
)
from tokenmill.tokenizer.normalizers.forms import NFD
from tokenmill.tokenizer.normalizers.kernels import characters as kernels
from tokenmill.tokenizer.normalizers.tables import HF_UNICODE_VERSION
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.traced import Traced
from tokenmill.tokenizer.unicode import data as unicode_data
from tokenmill.tokenizer.unicode import tables as unicode_tables


class CharacterStep(TextStep):
    """A step that looks at one character at a time: each stays, is removed, or becomes others."""

    @abc.abstractmethod
    def changes(self) -> dict[int, str]:
        """Returns code point -> replacement, of at most 31 bytes, for the characters that change."""

    def active(self) -> npt.NDArray[np.bool_]:
        return _character_map(self).replacements != 0

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        changes = _changes(self)
        return edits_of_characters(text, lambda c: changes.get(ord(c), c))

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        mapping = _character_map(self)
        changes, added = kernels.measure(rows.values, rows.offsets[0], rows.offsets[-1], mapping)
        if not changes and not mapping.lower_ascii:
            return Applied(rows, 0)
        out = recycled.empty(rows.n_values + added + tables.SPARE_BYTES, np.uint8)
        offsets = np.empty(rows.n_rows + 1, np.int64)
        n_changed = kernels.map_characters(rows.values, rows.offsets, mapping, out, offsets)
        return Applied(rows_of(out, offsets) if n_changed else rows, int(n_changed))

    def trace(self, text: Traced, edges: Edges | None = None) -> Traced:
        rows = self.apply_rows(text.rows, edges or Edges.of(text.rows.n_rows)).rows
        return text if rows is text.rows else text.repeated(rows, _widths(self)[text.code_points()])


@functools.lru_cache(maxsize=64)
def _changes(step: CharacterStep) -> dict[int, str]:
    return step.changes()


@functools.lru_cache(maxsize=16)
def _widths(step: CharacterStep) -> npt.NDArray[np.uint8]:
    """Returns how many characters each becomes, uint8[0x110000]."""
    widths = np.ones(0x110000, np.uint8)
    for character, new in _changes(step).items():
        widths[character] = len(new)
    return read_only(widths)


@functools.lru_cache(maxsize=64)
def _character_map(step: CharacterStep) -> tables.CharacterMap:
    return tables.character_map(_changes(step))


@dataclasses.dataclass(frozen=True)
class Lowercase(CharacterStep):
    """Full lower-case mappings, whatever the context: a final sigma is lower-cased like any other."""

    name = "lowercase"

    def changes(self) -> dict[int, str]:
        return unicode_tables.lowercase()


@dataclasses.dataclass(frozen=True)
class StripAccents(CharacterStep):
    """Removes combining marks of all kinds (Mn, Mc and Me), without decomposing anything."""

    name = "StripAccents"

    def changes(self) -> dict[int, str]:
        marks = unicode_data.members("normalization/combining_marks")
        return dict.fromkeys(np.flatnonzero(marks).tolist(), "")


@dataclasses.dataclass(frozen=True)
class Nmt(CharacterStep):
    """SentencePiece's clean-up for machine translation: removes control characters; odd white space becomes a space."""

    name = "Nmt"

    def changes(self) -> dict[int, str]:
        removed = [*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F]
        spaces = [0x09, 0x0A, 0x0C, 0x0D, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]
        return dict.fromkeys(removed, "") | dict.fromkeys(spaces, " ")


def lowered_bytes(texts: Sequence[bytes]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    """Returns a text of at most eight bytes for each byte as `map_bytes` takes them, uint64[256] and uint8[256]."""
    eights = np.frombuffer(b"".join(text.ljust(8, b"\0") for text in texts), "<u8").astype(np.uint64)
    return read_only(eights), read_only(np.array(list(map(len, texts)), np.uint8))


def map_bytes(rows: Ragged, texts: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]], n_bytes: int) -> Ragged:
    """Puts a text in place of each byte of rows; see `lowered_bytes`; `n_bytes` is the most that all may become."""
    out, offsets = recycled.empty(n_bytes + tables.SPARE_BYTES, np.uint8), np.empty(rows.n_rows + 1, np.int64)
    kernels.map_bytes(rows.values, rows.offsets, *texts, out, offsets)
    return rows_of(out, offsets)


_SPELLINGS = lowered_bytes([character.encode() for character in BYTE_ALPHABET])


@dataclasses.dataclass(frozen=True)
class ByteLevel(Normalizer):
    """Turns every byte of the UTF-8 into a character of GPT-2's byte alphabet."""

    def normalize_rows(self, rows: Ragged) -> Ragged:
        normalized = map_bytes(rows, _SPELLINGS, 2 * rows.n_values)  # no character has more than two bytes
        # If the result has the same length, all bytes are spelled as themselves.
        return rows if normalized.n_values == rows.n_values else normalized

    def trace(self, text: Traced) -> Traced:
        rows = self.normalize_rows(text.rows)
        n_bytes = np.diff(np.append(np.flatnonzero(text.rows.values & 0xC0 != 0x80), text.rows.n_values))
        return text if rows is text.rows else text.repeated(rows, n_bytes)


@dataclasses.dataclass(frozen=True)
class BertNormalizer(Normalizer):
    """BERT's normalizer: clean-up, isolation of CJK ideographs, accent stripping, lower-casing, in this order.

    Source: HF tokenizers `normalizers/bert.rs`; the same on every code point (tests/parity/test_unicode_tables.py).
    """

    clean_text: bool = True
    """Removes control characters, NUL and U+FFFD; turns white space into spaces."""
    handle_chinese_chars: bool = True
    """Puts spaces around CJK ideographs."""
    strip_accents: bool | None = None
    """Decomposes and removes nonspacing marks; None follows `lowercase`."""
    lowercase: bool = True
    unicode: str = dataclasses.field(default="8", repr=False)
    """The version of Unicode that accents are stripped by; see `unicode.tables.BERT_UNICODE`."""

    def __post_init__(self) -> None:
        unicode_tables.check_bert_unicode(self.unicode)

    def options(self) -> dict[str, Any]:
        """Returns the options, with `strip_accents` true or false."""
        strip = self.lowercase if self.strip_accents is None else self.strip_accents
        return {
            "clean_text": self.clean_text,
            "handle_chinese_chars": self.handle_chinese_chars,
            "strip_accents": strip,
            "lowercase": self.lowercase,
            "unicode": self.unicode,
        }

    def normalize_rows(self, rows: Ragged) -> Ragged:
        tables = unicode_tables.bert_tables(**self.options(), pre_tokenize=False)
        # An ideograph grows from three bytes to five at most.
        out = recycled.empty(int(rows.n_values * max(tables.max_bytes_ratio, 5 / 3)) + 16, np.uint8)
        offsets = np.zeros(rows.n_rows + 1, np.int64)
        scratch = kernel_memory.new_scratch(int(rows.max_row * tables.max_bytes_ratio) + 16)
        kernels.normalize(rows.values, rows.offsets, tables, self.clean_text, scratch, out, offsets)
        return unless_same(rows, rows_of(out, offsets))

    def trace(self, text: Traced) -> Traced:
        for step in self.steps():
            text = step.trace(text)
        return text

    def steps(self) -> list[Normalizer]:
        """Returns simpler normalizers that do the same, one after the other."""
        steps: list[Normalizer] = [_CleanUp()] if self.clean_text else []
        steps += [_Apart()] if self.handle_chinese_chars else []
        if self.options()["strip_accents"]:
            steps += [NFD(HF_UNICODE_VERSION if self.unicode == "8" else self.unicode), _StripMarks()]
        return [*steps, Lowercase()] if self.lowercase else steps


def _members(name: str) -> list[int]:
    members: list[int] = np.flatnonzero(unicode_tables.property_table(name)).tolist()
    return members


@dataclasses.dataclass(frozen=True)
class _CleanUp(CharacterStep):
    """Removes control characters, and makes white space spaces."""

    def changes(self) -> dict[int, str]:
        return dict.fromkeys({*_members("spaces")} - {ord(" ")}, " ") | dict.fromkeys(_members("dropped"), "")


@dataclasses.dataclass(frozen=True)
class _Apart(CharacterStep):
    """Puts spaces around ideographs."""

    def changes(self) -> dict[int, str]:
        return {ideograph: f" {chr(ideograph)} " for ideograph in _members("cjk")}


@dataclasses.dataclass(frozen=True)
class _StripMarks(CharacterStep):
    """Removes nonspacing marks."""

    def changes(self) -> dict[int, str]:
        return dict.fromkeys(_members("nonspacing_marks"), "")
