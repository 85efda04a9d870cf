# SPDX-License-Identifier: Apache-2.0
"""`Whitespace`: collapses and strips white space, and keeps line breaks or not."""

import dataclasses
import functools
import re
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenizer.normalizers.base import Edges, Edit
from tokenizer.normalizers.tables import first_byte_steps
from tokenizer.ragged import Ragged
from tokenizer.text import tables
from tokenizer.text.edits import EditingStep
from tokenizer.text.kernels import whitespace as kernels

Newlines = Literal["space", "keep", "paragraphs"]
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclasses.dataclass(frozen=True)
class Whitespace(EditingStep):
    """Collapses and strips white space.

    A run of white space inside a text becomes one space. If it has line breaks (U+000A, U+000D, the two together,
    U+0085, U+2028, U+2029), `newlines` says what it becomes: one space, like all other runs; only its line breaks, as
    U+000A; or these, but at most two, so that paragraphs stay apart.
    """

    name = "whitespace"
    texts = ("", " ", "\n", "\n\n")

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

    @property
    def _spaces(self) -> frozenset[str]:
        return tables.PYTHON_SPACES if self.python else tables.SPACES

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`."""
        edits: list[Edit] = []
        for run in re.finditer(f"[{''.join(sorted(self._spaces))}]+", text):
            start, stop = run.span()
            if self.strip and ((begins and start == 0) or (ends and stop == len(text))):
                edits.append(Edit(start, stop, ""))
            elif self.collapse:
                edits += self._collapsed(start, run[0])
        return edits

    def _collapsed(self, start: int, run: str) -> list[Edit]:
        breaks = [] if self.newlines == "space" else list(_BREAK.finditer(run))
        if not breaks:
            return [Edit(start, start + len(run), " ")] if run != " " else []
        if self.newlines == "paragraphs" and len(breaks) > 2:
            return [Edit(start, start + len(run), "\n\n")]
        edits, at = [], 0
        for found in breaks:
            # If a carriage return and a line feed follow each other, only the line feed stays.
            begin = found.end() - 1
            edits += [Edit(start + at, start + begin, "")] if at < begin else []
            edits += [Edit(start + begin, start + begin + 1, "\n")] if run[begin] != "\n" else []
            at = found.end()
        return [*edits, Edit(start + at, start + len(run), "")] if at < len(run) else edits

    def find_edits(self, rows: Ragged, edges: Edges, edits: npt.NDArray[np.int64]) -> int:
        """Finds the edits of rows; see `EditingStep`."""
        table, steps = _tables(self._spaces)
        breaks = {"space": kernels.AS_SPACE, "keep": kernels.KEEP, "paragraphs": kernels.PARAGRAPHS}[self.newlines]
        return kernels.find_whitespace(
            rows.values, rows.offsets, edges.begins, edges.ends, table, steps, self.collapse, breaks, self.strip, edits
        )


@functools.cache
def _tables(spaces: frozenset[str]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
    table = tables.table_of(spaces)
    return table, first_byte_steps(~table, with_ascii=True)
