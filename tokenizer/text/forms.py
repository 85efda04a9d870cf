# SPDX-License-Identifier: Apache-2.0
"""Unicode's four normal forms as text steps."""

import dataclasses
import itertools
import unicodedata
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenizer import recycled
from tokenizer.normalizers.kernels import normal_forms
from tokenizer.normalizers.tables import SPARE_BYTES, piece_scratch
from tokenizer.ragged import Ragged, read_only
from tokenizer.text import tables
from tokenizer.text.base import Applied, Edges, Edit, TextStep

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


_SHORT = 100


def _normalized(form: Form, text: str) -> str:
    """Returns `unicodedata.normalize(form, text)` in nearly linear time, though that sorts marks by insertion."""
    if len(text) > _SHORT:
        decomposed = "".join(unicodedata.normalize("NFKD" if "K" in form else "NFD", c) for c in text)
        runs = itertools.groupby(decomposed, lambda c: unicodedata.combining(c) != 0)
        # Insertion sort is linear for marks that are in order already.
        text = "".join(c for _, run in runs for c in sorted(run, key=unicodedata.combining))
    return unicodedata.normalize(form, text)


@dataclasses.dataclass(frozen=True)
class NormalForm(TextStep):
    """A normal form, of the Unicode version of `tables`. Text that is in normal form already is only scanned.

    Source: `unicodedata.normalize`; the same on all text whose characters Python knows.
    """

    form: Form = "NFC"

    @property
    def name(self) -> str:  # type: ignore[override]
        """Its name in a config."""
        return self.form.lower()

    def to_config(self) -> str:
        """Returns the step as a config writes it."""
        return self.name

    def active(self) -> npt.NDArray[np.bool_]:
        """Returns the characters that are not inert; see `TextStep`."""
        form = tables.normal_form("K" in self.form, self.form.endswith("C"))
        return form.kinds != normal_forms.INERT

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`.

        A piece reaches from an inert character to the next; a piece that changes is one edit.
        """
        kinds = tables.normal_form("K" in self.form, self.form.endswith("C")).kinds
        cuts = [i for i, c in enumerate(text) if i == 0 or kinds[ord(c)] == normal_forms.INERT]
        edits = []
        for start, stop in zip(cuts, [*cuts[1:], len(text)], strict=False):
            new = _normalized(self.form, text[start:stop])
            if new != text[start:stop]:
                edits.append(Edit(start, stop, new))
        return edits

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        """Applies the step to rows; see `TextStep`."""
        form = tables.normal_form("K" in self.form, self.form.endswith("C"))
        changes, added = normal_forms.measure(rows.values, rows.offsets[0], rows.offsets[-1], form)
        if not changes:
            return Applied(rows, 0)
        # U+FDFA has three bytes and decomposes into 18 characters, the most per byte; every character has a byte or
        # more.
        scratch = piece_scratch(min(6 * rows.max_row, rows.max_row + added))
        out = recycled.empty(rows.n_values + added + SPARE_BYTES, np.uint8)
        offsets = np.empty(rows.n_rows + 1, np.int64)
        n_changed = normal_forms.normalize(rows.values, rows.offsets, form, scratch, out, offsets)
        if not n_changed:
            return Applied(rows, 0)
        return Applied(Ragged(read_only(out[: offsets[-1]]), offsets), int(n_changed))
