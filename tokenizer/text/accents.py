# SPDX-License-Identifier: Apache-2.0
"""`StripAccents`: removes accents, and reports the words that this made the same."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.normalizers.base import Applied, Edges, MergedWords
from tokenmill.tokenizer.normalizers.edit_lists import EditingStep, apply_edits, found_edits, lowered_texts
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.normalizers.tables import UNICODE_VERSION, Skips, decompositions
from tokenmill.tokenizer.ragged import Ragged, gathered, read_only, string_array, text_rows
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.base import MAX_MERGED_SOURCES, add_merged
from tokenmill.tokenizer.text.kernels import accents as kernels

Mode = Literal["none", "latin-only", "all"]

_MAX_WORD_BYTES = 64
"""The most bytes of a word that is listed."""


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
    """Removes the nonspacing marks (Mn) of letters, and lists the words that became the same.

    Source, up to normalization: the usual recipe, NFD without general category Mn. A character without marks in its
    decomposition stays as it is. `all` destroys meaning in scripts whose vowels and tones are such marks (Hindi, Thai,
    Hebrew, Arabic), and merges `ā á ǎ à`; `latin-only` changes only letters of the Latin script; `none` does nothing.

    The report lists what changed words became, with the counts of each changed word and of the plain one. Words are
    letters, marks and numbers in a row, of at most 64 bytes; the plain word is only counted in batches that contain a
    changed one. Memory is bounded by `MAX_MERGED_SOURCES`.
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

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        edits, new = self.find_edits(rows, edges)
        applied = apply_edits(rows, edits, lowered_texts(new))
        if not len(edits):
            return applied
        merged, n_not_listed = self._merged(rows, read_only(edits))
        return applied._replace(merged=merged, n_merged_not_listed=n_not_listed)

    def _merged(self, rows: Ragged, edits: npt.NDArray[np.int64]) -> tuple[tuple[MergedWords, ...], int]:
        """Returns the words that edited words became, each with its sources, and how many occurrences are left out."""
        is_word = tables.members("words")
        spans = np.empty((len(edits), 2), np.int64)
        spans = spans[: kernels.find_edited_words(rows.values, rows.offsets, edits, is_word, spans)]
        short = spans[spans[:, 1] - spans[:, 0] <= _MAX_WORD_BYTES]
        words = string_array(*gathered(rows.values, short[:, 0], short[:, 1]))
        counted = pa.Table.from_struct_array(words.value_counts())
        counted = counted.sort_by([("counts", "descending"), ("values", "ascending")]).combine_chunks()
        n_not_listed = len(spans) - len(short) + (pc.sum(counted["counts"].slice(MAX_MERGED_SOURCES)).as_py() or 0)
        sources, counts = (counted[name].slice(0, MAX_MERGED_SOURCES) for name in ("values", "counts"))
        source_rows = text_rows(sources)
        composed = _composed(source_rows)
        targets = _composed(EditingStep.apply_rows(self, source_rows, Edges.of(source_rows.n_rows)).rows)
        found = zip(targets.to_pylist(), composed.to_pylist(), counts.to_pylist(), strict=True)
        merged, _ = add_merged(tuple(MergedWords(word, {source: n}) for word, source, n in found), ())
        plain = self._plain(rows, [m.word for m in merged], is_word)
        listed, n_dropped = add_merged(merged, tuple(MergedWords(word, {word: n}) for word, n in plain.items() if n))
        return listed, n_not_listed + n_dropped

    def _plain(self, rows: Ragged, targets: list[str], is_word: npt.NDArray[np.bool_]) -> dict[str, int]:
        """Counts the words that are one of `targets` without an edit."""
        listed = text_rows(pa.array(targets, pa.large_string()))
        slots = np.zeros(1 << (2 * len(targets)).bit_length(), np.int64)
        kernels.index_words(listed.values, listed.offsets, slots)
        counts = np.zeros(len(targets), np.int64)
        kernels.count_listed_words(
            rows.values, rows.offsets, is_word, listed.values, listed.offsets, read_only(slots), listed.max_row, counts
        )
        return dict(zip(targets, counts.tolist(), strict=True))


def _composed(rows: Ragged) -> pa.LargeStringArray:
    composed = NormalForm("NFC").apply_rows(rows, Edges.of(rows.n_rows)).rows
    first = composed.offsets[0]
    return string_array(composed.values[first : composed.offsets[-1]].copy(), composed.offsets - first)
