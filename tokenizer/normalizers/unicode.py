# SPDX-License-Identifier: Apache-2.0
"""Normalizers by character properties: normal forms, case, accents, SentencePiece's clean-up, GPT-2's byte alphabet."""

import abc
import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from tokenizer.aligned import AlignedText
from tokenizer.normalizers import tables
from tokenizer.normalizers.alignment import Change, expand, keep, transform
from tokenizer.normalizers.base import Normalizer, rows_of, unless_same
from tokenizer.normalizers.kernels import character_maps, normal_forms
from tokenizer.ragged import Ragged, read_only
from tokenizer.unicode import data as unicode_data
from tokenizer.unicode import tables as unicode_tables


@dataclasses.dataclass(frozen=True)
class _NormalForm(Normalizer):
    """One of Unicode's normal forms, in the Unicode version of HF tokenizers, which is 9.0."""

    def _is_compatible(self) -> bool:
        return isinstance(self, (NFKC, NFKD))

    def _composes(self) -> bool:
        return isinstance(self, (NFC, NFKC))

    @property
    def form(self) -> tables.NormalForm:
        """The tables of the form for kernels."""
        return tables.normal_form(self._is_compatible(), self._composes())

    def changed_characters(self) -> npt.NDArray[np.bool_]:
        """Returns which characters decompose or may decompose, bool[0x110000]."""
        form = self.form
        changed = form.decompositions != 0
        changed[unicode_tables.HANGUL_FIRST : unicode_tables.HANGUL_LAST + 1] = True
        return changed

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8; see `Normalizer`."""
        form = self.form
        changes, added = normal_forms.measure(rows.values, rows.offsets[0], rows.offsets[-1], form)
        if not changes:
            return rows
        # U+FDFA has three bytes and decomposes into 18 characters, the most per byte; every character has a byte or
        # more.
        scratch = tables.piece_scratch(min(6 * rows.max_row, rows.max_row + added))
        out = np.empty(rows.n_values + added + tables.SPARE_BYTES, np.uint8)
        offsets = np.empty(rows.n_rows + 1, np.int64)
        normal_forms.normalize(rows.values, rows.offsets, form, scratch, out, offsets)
        return unless_same(rows, rows_of(out, offsets))

    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text, with alignments; see `Normalizer`."""
        changes: list[Change] = []
        pending: list[Change] = []  # combining characters that are not in order yet
        for char in text.text:
            for i, part in enumerate(tables.decompose(char, self._is_compatible())):
                if _class(part) == 0:
                    changes += sorted(pending, key=lambda change: _class(change[0]))
                    pending = []
                    changes.append((part, int(i > 0)))
                else:
                    pending.append((part, int(i > 0)))
        changes += sorted(pending, key=lambda change: _class(change[0]))
        return transform(text, _composed(changes) if self._composes() else changes)


def _class(char: str) -> int:
    return int(unicode_tables.combining_classes()[ord(char)])


def _composite(first: str, second: str) -> str | None:
    a, b = ord(first), ord(second)
    if 0x1100 <= a < 0x1113 and 0x1161 <= b < 0x1176:
        return chr(0xAC00 + (a - 0x1100) * 588 + (b - 0x1161) * 28)
    if 0xAC00 <= a < 0xD7A4 and (a - 0xAC00) % 28 == 0 and 0x11A8 <= b < 0x11C3:
        return chr(a + b - 0x11A7)
    return tables.compositions().get((first, second))


def _composed(changes: list[Change]) -> list[Change]:
    """Composes canonically; a composite replaces all its parts."""
    done: list[Change] = []
    starter, last_class = -1, -1
    for char, change in changes:
        combining = _class(char)
        if starter >= 0 and last_class < combining:
            composite = _composite(done[starter][0], char)
            if composite:
                done[starter] = (composite, done[starter][1] + change - 1)
                continue
        if combining == 0:
            starter, last_class = len(done), -1
        else:
            last_class = combining
        done.append((char, change))
    return done


class NFC(_NormalForm):
    """Canonical decomposition, then canonical composition."""


class NFD(_NormalForm):
    """Canonical decomposition."""


class NFKC(_NormalForm):
    """Compatibility decomposition, then canonical composition."""


class NFKD(_NormalForm):
    """Compatibility decomposition."""


@dataclasses.dataclass(frozen=True)
class _CharacterMap(Normalizer):
    """A normalizer that looks at one character at a time."""

    @abc.abstractmethod
    def _changes(self) -> dict[int, str]:
        """Returns code point -> replacement, for the characters that change."""

    def changed_characters(self) -> npt.NDArray[np.bool_]:
        """Returns which characters are removed or become others, bool[0x110000]."""
        return _character_map(type(self)).replacements != 0

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8; see `Normalizer`."""
        mapping = _character_map(type(self))
        changed, added = character_maps.measure(rows.values, rows.offsets[0], rows.offsets[-1], mapping)
        if not changed:
            return rows
        out = np.empty(rows.n_values + added + tables.SPARE_BYTES, np.uint8)
        offsets = np.empty(rows.n_rows + 1, np.int64)
        character_maps.map_characters(rows.values, rows.offsets, mapping, out, offsets)
        return rows_of(out, offsets)

    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text, with alignments; see `Normalizer`."""
        changes = _changes(type(self))
        text = keep(text, lambda c: changes.get(ord(c)) != "")
        return expand(text, lambda c: changes.get(ord(c), c))


@functools.cache
def _changes(kind: type[_CharacterMap]) -> dict[int, str]:
    return kind()._changes()


@functools.cache
def _character_map(kind: type[_CharacterMap]) -> tables.CharacterMap:
    return tables.character_map(_changes(kind))


class Lowercase(_CharacterMap):
    """Full lower-case mappings, whatever the context: a final sigma is lower-cased like any other."""

    def _changes(self) -> dict[int, str]:
        return unicode_tables.lowercase()


class StripAccents(_CharacterMap):
    """Removes combining marks of all kinds (Mn, Mc and Me), without decomposing anything."""

    def _changes(self) -> dict[int, str]:
        marks = unicode_data.members("normalization/combining_marks")
        return dict.fromkeys(np.flatnonzero(marks).tolist(), "")


class Nmt(_CharacterMap):
    """SentencePiece's clean-up for machine translation: removes control characters; odd white space becomes a space."""

    def _changes(self) -> dict[int, str]:
        removed = [*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F]
        spaces = [0x09, 0x0A, 0x0C, 0x0D, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD]
        return dict.fromkeys(removed, "") | dict.fromkeys(spaces, " ")


@functools.cache
def byte_alphabet() -> str:
    """Returns GPT-2's characters for the 256 bytes: printable Latin-1 characters themselves, others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(b) if b in printable else chr(next(others)) for b in range(256))


@functools.cache
def _two_bytes() -> npt.NDArray[np.uint64]:
    return read_only(np.array([int.from_bytes(c.encode(), "little") for c in byte_alphabet()], np.uint64))


@dataclasses.dataclass(frozen=True)
class ByteLevel(Normalizer):
    """Turns every byte of the UTF-8 into a character of GPT-2's byte alphabet."""

    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8; see `Normalizer`."""
        out = np.empty(2 * rows.n_values + tables.SPARE_BYTES, np.uint8)  # no character has more than two bytes
        offsets = np.empty(rows.n_rows + 1, np.int64)
        character_maps.map_bytes(rows.values, rows.offsets, _two_bytes(), out, offsets)
        # If the result has the same length, all bytes are spelled as themselves.
        return rows if offsets[-1] == rows.n_values else rows_of(out, offsets)

    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text, with alignments; see `Normalizer`."""
        return expand(text, lambda c: "".join(byte_alphabet()[b] for b in c.encode()))
