# SPDX-License-Identifier: Apache-2.0
"""Unicode's four normal forms: `NormalForm` of any version of Unicode that there are tables of, and HF's."""

import dataclasses
import functools
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import Applied, Edges, Edit, TextStep, rows_of
from tokenmill.tokenizer.normalizers.kernels import normal_forms
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.traced import Traced
from tokenmill.tokenizer.unicode import tables as unicode_tables
from tokenmill.tokenizer.unicode.tables import HANGUL_FIRST, HANGUL_LAST

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
Change = tuple[str, int]
"""A character of the new text, and: 1 if it is inserted; 0 if it replaces one character; -n if it replaces a character
and the n after it, and has the origin of the first.

Source: HF tokenizers `tokenizer/normalizer.rs`, `NormalizedString::transform`.
"""


@dataclasses.dataclass(frozen=True)
class NormalForm(TextStep):
    """A normal form. Text that is in normal form already is only scanned.

    Source: `unicodedata.normalize`; the same on all text whose characters Python knows.
    """

    form: Form = "NFC"
    unicode: str = tables.UNICODE_VERSION
    """The version of Unicode: `tables.UNICODE_VERSION` or `tables.HF_UNICODE_VERSION`."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """Its name in a config."""
        return self.form.lower()

    @property
    def tables(self) -> tables.NormalForm:
        """The tables of the form for kernels."""
        return tables.normal_form(self.form, self.unicode)

    def to_config(self) -> str:
        """Returns the step as a config writes it."""
        return self.name

    def active(self) -> npt.NDArray[np.bool_]:
        return self.tables.kinds != normal_forms.INERT

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`.

        A piece reaches from an inert character to the next; a piece that changes is one edit.
        """
        is_active = self.active()
        cuts = [i for i, c in enumerate(text) if i == 0 or not is_active[ord(c)]]
        edits = []
        for start, stop in zip(cuts, [*cuts[1:], len(text)], strict=False):
            piece = text[start:stop]
            if stop - start > 1 or is_active[ord(piece)]:
                new = "".join(char for char, _ in self.changes_of(piece))
                edits += [Edit(start, stop, new)] if new != piece else []
        return edits

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        form = self.tables
        changes, added = normal_forms.measure(rows.values, rows.offsets[0], rows.offsets[-1], form)
        if not changes:
            return Applied(rows, 0)
        # U+FDFA has three bytes and decomposes into 18 characters, the most per byte; every character has a byte or
        # more.
        scratch = tables.piece_scratch(min(6 * rows.max_row, rows.max_row + added))
        out = recycled.empty(rows.n_values + added + tables.SPARE_BYTES, np.uint8)
        offsets = np.empty(rows.n_rows + 1, np.int64)
        n_changed = normal_forms.normalize(rows.values, rows.offsets, form, scratch, out, offsets)
        return Applied(rows_of(out, offsets) if n_changed else rows, int(n_changed))

    def changes_of(self, text: str) -> list[Change]:
        """Returns the normal form of a text, in plain Python, character by character; see `Change`."""
        classes = tables.combining(self.unicode)
        mapping = tables.decompositions(self.unicode, "K" in self.form)
        changes: list[Change] = []
        pending: list[Change] = []  # combining characters that are not in order yet
        for char in text:
            for i, part in enumerate(mapping.get(ord(char)) or unicode_tables.decompose(ord(char))):
                if classes[ord(part)] == 0:
                    changes += sorted(pending, key=lambda change: classes[ord(change[0])])
                    pending = []
                    changes.append((part, int(i > 0)))
                else:
                    pending.append((part, int(i > 0)))
        changes += sorted(pending, key=lambda change: classes[ord(change[0])])
        return self._composed(changes) if self.form.endswith("C") else changes

    def _composed(self, changes: list[Change]) -> list[Change]:
        """Composes canonically; a composite replaces all its parts."""
        classes, compositions = tables.combining(self.unicode), tables.compositions(self.unicode)
        done: list[Change] = []
        starter, last_class = -1, -1
        for char, change in changes:
            combining = int(classes[ord(char)])
            if starter >= 0 and last_class < combining:
                first = done[starter][0]
                composite = compositions.get((first, char)) or _composed_syllable(ord(first), ord(char))
                if composite:
                    done[starter] = (composite, done[starter][1] + change - 1)
                    continue
            if combining == 0:
                starter, last_class = len(done), -1
            else:
                last_class = combining
            done.append((char, change))
        return done


def _composed_syllable(a: int, b: int) -> str | None:
    if 0x1100 <= a < 0x1113 and 0x1161 <= b < 0x1176:
        return chr(HANGUL_FIRST + (a - 0x1100) * 588 + (b - 0x1161) * 28)
    if HANGUL_FIRST <= a <= HANGUL_LAST and (a - HANGUL_FIRST) % 28 == 0 and 0x11A8 <= b < 0x11C3:
        return chr(a + b - 0x11A7)
    return None


class _HuggingFaceForm(NormalForm):
    """A normal form as HF tokenizers has it. It traces which character became which."""

    def __init__(self, unicode: str = tables.HF_UNICODE_VERSION) -> None:
        super().__init__(self.name, unicode)  # type: ignore[arg-type]

    @property
    def name(self) -> str:  # type: ignore[override]
        """HF's name."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"{self.name}()"

    def trace(self, text: Traced, edges: Edges | None = None) -> Traced:
        """Traces rows; see `TextStep`. A piece reaches from an inert character, or the start of a row, to the next."""
        rows = self.normalize_rows(text.rows)
        if rows is text.rows:
            return text
        codes, bounds = text.code_points(), text.bounds
        is_active = self.active()[codes]
        is_start = ~is_active
        is_start[bounds[:-1][np.diff(bounds) > 0]] = True
        starts = np.flatnonzero(is_start)
        stops = np.append(starts[1:], codes.size)
        changes = np.logical_or.reduceat(is_active, starts)
        n_new = np.ones(codes.size, np.int64)
        in_front: dict[int, int] = {}
        for start, stop in zip(starts[changes].tolist(), stops[changes].tolist(), strict=True):
            n_in_front, *n_new[start:stop] = _n_new_in_piece(self, codes[start:stop].tobytes().decode("utf-32-le"))
            if n_in_front:  # only at the start of a row
                in_front[start] = n_in_front
                n_new[start] += n_in_front
        traced = text.repeated(rows, n_new)
        ends = np.cumsum(n_new)
        for start, n_in_front in in_front.items():  # where the row starts, before its first character
            at = int(ends[start] - n_new[start])
            traced.stops[at : at + n_in_front] = traced.starts[at]
        return traced


@functools.lru_cache(maxsize=1 << 14)
def _n_new_in_piece(step: NormalForm, piece: str) -> tuple[int, ...]:
    """Returns how many characters come before a piece, and how many become of each of its characters."""
    n_new, at = [0] * (len(piece) + 1), 0
    for _, change in step.changes_of(piece):
        n_new[at if change > 0 else at + 1] += 1
        at += 0 if change > 0 else 1 - change
    return tuple(n_new)


class NFC(_HuggingFaceForm):
    """Canonical decomposition, then canonical composition."""


class NFD(_HuggingFaceForm):
    """Canonical decomposition."""


class NFKC(_HuggingFaceForm):
    """Compatibility decomposition, then canonical composition."""


class NFKD(_HuggingFaceForm):
    """Compatibility decomposition."""
