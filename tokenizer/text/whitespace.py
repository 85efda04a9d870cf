# SPDX-License-Identifier: Apache-2.0
"""`Whitespace`: collapses and strips white space, and keeps line breaks or not."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edit_lists import EditingStep, found_edits
from tokenmill.tokenizer.normalizers.kernels import whitespace as kernels
from tokenmill.tokenizer.normalizers.tables import Runs
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.text import tables

Newlines = Literal["space", "keep", "paragraphs"]


@dataclasses.dataclass(frozen=True)
class Whitespace(EditingStep):
    """Collapses and strips white space.

    A run of white space inside a text becomes one space. If it has line breaks (U+000A, U+000D, the two together,
    U+0085, U+2028, U+2029), `newlines` says what it becomes: one space, like all other runs; only its line breaks, as
    U+000A; or these, but at most two, so that paragraphs stay apart.
    """

    name = "whitespace"

    collapse: bool = True
    """Whether to collapse runs; without it only `strip` has an effect."""
    strip: bool = True
    """Whether to remove white space at both ends of a document."""
    newlines: Newlines = "keep"
    python: bool = False
    """Whether U+001C to U+001F are white space too, as in Python, and so in CLIP's clean-up."""

    def __post_init__(self) -> None:
        if self.newlines not in ("space", "keep", "paragraphs"):
            raise ValueError(f"newlines must be space, keep or paragraphs, got {self.newlines!r}")

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        runs = _runs(tables.PYTHON_SPACES if self.python else tables.SPACES)
        breaks = {"space": kernels.AS_SPACE, "keep": kernels.KEEP, "paragraphs": kernels.PARAGRAPHS}[self.newlines]
        options = runs, self.collapse, breaks, self.strip
        return found_edits(kernels.find_whitespace, rows, *edges, *options), ("", " ", "\n", "\n\n")


@functools.cache
def _runs(spaces: frozenset[str]) -> Runs:
    return Runs.of(tables.table_of(spaces), " ", spares_usual=True)
