# SPDX-License-Identifier: Apache-2.0
"""`StripAccents`: removes accents."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edit_lists import EditingStep, found_edits
from tokenmill.tokenizer.normalizers.tables import UNICODE_VERSION, Skips, decompositions
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.kernels import accents as kernels

Mode = Literal["none", "latin-only", "all"]


class _Tables(NamedTuple):
    kinds: npt.NDArray[np.uint8]
    texts: npt.NDArray[np.int32]
    skips: Skips
    new: tuple[str, ...]
    """The texts whose numbers are in `texts`."""


@functools.cache
def _tables(mode: Mode) -> _Tables:
    marks, latin = tables.members("nonspacing_marks"), tables.members("latin")
    kinds = np.zeros(N_CODE_POINTS, np.uint8)
    kinds[latin] = kernels.LATIN
    kinds[marks] = kernels.MARK
    texts = np.zeros(N_CODE_POINTS, np.int32)
    numbers = {"": 0}
    for code_point, text in decompositions(UNICODE_VERSION).items():
        stripped = "".join(c for c in text if not marks[ord(c)])
        if stripped != text and not marks[code_point] and (mode == "all" or latin[ord(stripped[0])]):
            texts[code_point] = numbers.setdefault(stripped, len(numbers))
    stays = (kinds != kernels.MARK) & (texts == 0) & ((kinds != kernels.LATIN) | (mode == "all"))
    stays[:128] = True
    return _Tables(read_only(kinds), read_only(texts), Skips.of(stays), tuple(numbers))


@dataclasses.dataclass(frozen=True)
class StripAccents(EditingStep):
    """Removes the nonspacing marks (Mn) of letters.

    Source, up to normalization: the usual recipe, NFD without general category Mn. A character without marks in its
    decomposition stays as it is. `all` destroys meaning in scripts whose vowels and tones are such marks (Hindi, Thai,
    Hebrew, Arabic), and merges `ā á ǎ à`; `latin-only` changes only letters of the Latin script; `none` does nothing.
    """

    name = "strip_accents"

    mode: Mode = "latin-only"

    def __post_init__(self) -> None:
        if self.mode not in ("none", "latin-only", "all"):
            raise ValueError(f"mode must be none, latin-only or all, got {self.mode!r}")

    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        kinds, texts, skips, new = _tables(self.mode)
        if self.mode == "none":
            return np.empty((0, 3), np.int64), new
        return found_edits(kernels.find_accents, rows, kinds, texts, skips, self.mode == "latin-only"), new
