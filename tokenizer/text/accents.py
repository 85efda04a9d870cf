# SPDX-License-Identifier: Apache-2.0
"""`StripAccents`: removes accents, and reports the words that this made the same."""

import dataclasses
import functools
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenizer import edit_kernels
from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.normalizers.base import Applied, Edges, Edit, MergedWords, TextStep
from tokenizer.normalizers.forms import NormalForm
from tokenizer.normalizers.tables import decompositions, first_byte_steps
from tokenizer.ragged import Ragged, read_only, string_array, text_rows
from tokenizer.text import tables
from tokenizer.text.base import MAX_MERGED_SOURCES, add_merged
from tokenizer.text.edits import apply_edits, found_edits
from tokenizer.text.kernels import accents as kernels

Mode = Literal["none", "latin-only", "all"]

_MAX_WORD_BYTES = 64
"""The most bytes of a word that is listed."""


class _Tables(NamedTuple):
    kinds: npt.NDArray[np.uint8]
    texts: npt.NDArray[np.int32]
    steps: npt.NDArray[np.uint8]
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
    for code_point, text in decompositions(tables.UNICODE_VERSION).items():
        stripped = "".join(c for c in text if not marks[ord(c)])
        if stripped != text and not marks[code_point] and (mode == "all" or latin[ord(stripped[0])]):
            texts[code_point] = numbers.setdefault(stripped, len(numbers))
    stays = (kinds != kernels.MARK) & (texts == 0) & ((kinds != kernels.LATIN) | (mode == "all"))
    return _Tables(read_only(kinds), read_only(texts), first_byte_steps(stays), tuple(numbers))


@dataclasses.dataclass(frozen=True)
class StripAccents(TextStep):
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

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        """Returns the edits of one text; see `TextStep`."""
        marks, latin = tables.members("nonspacing_marks"), tables.members("latin")
        edits: list[Edit] = []
        strips = self.mode == "all"
        for i, char in enumerate(text if self.mode != "none" else ""):
            full = decompositions(tables.UNICODE_VERSION).get(ord(char), char)
            if not marks[ord(char)]:
                strips = self.mode == "all" or bool(latin[ord(full[0])])
            new = "".join(c for c in full if not marks[ord(c)]) if strips else full
            if len(new) < len(full):
                edits.append(Edit(i, i + 1, new))
        return edits

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        """Applies the step to rows; see `TextStep`."""
        if self.mode == "none":
            return Applied(rows, 0)
        edits = self._find(rows)
        applied = apply_edits(rows, edits, _tables(self.mode).new)
        if not len(edits):
            return applied
        merged, n_not_listed = self._merged(rows, read_only(edits))
        return applied._replace(merged=merged, n_merged_not_listed=n_not_listed)

    def _find(self, rows: Ragged) -> npt.NDArray[np.int64]:
        kinds, texts, steps, _ = _tables(self.mode)
        only_latin = self.mode == "latin-only"
        return found_edits(
            lambda edits: kernels.find_accents(rows.values, rows.offsets, kinds, texts, steps, only_latin, edits)
        )

    def _merged(self, rows: Ragged, edits: npt.NDArray[np.int64]) -> tuple[tuple[MergedWords, ...], int]:
        """Returns the words that edited words became, each with its sources, and how many occurrences are left out."""
        is_word = tables.members("words")
        spans = np.empty((len(edits), 2), np.int64)
        spans = spans[: kernels.find_edited_words(rows.values, rows.offsets, edits, is_word, spans)]
        short = spans[spans[:, 1] - spans[:, 0] <= _MAX_WORD_BYTES]
        words = _gathered(rows, short)
        counted = pa.Table.from_struct_array(words.value_counts())
        counted = counted.sort_by([("counts", "descending"), ("values", "ascending")]).combine_chunks()
        n_not_listed = len(spans) - len(short) + (pc.sum(counted["counts"].slice(MAX_MERGED_SOURCES)).as_py() or 0)
        sources, counts = (counted[name].slice(0, MAX_MERGED_SOURCES) for name in ("values", "counts"))
        source_rows = text_rows(sources)
        composed = _composed(source_rows)
        targets = _composed(apply_edits(source_rows, self._find(source_rows), _tables(self.mode).new).rows)
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


def _gathered(rows: Ragged, spans: npt.NDArray[np.int64]) -> pa.LargeStringArray:
    """Returns `rows.values[start:stop]` for every span, int64[n, 2], as a text column."""
    starts, stops = np.ascontiguousarray(spans[:, 0]), np.ascontiguousarray(spans[:, 1])
    out, offsets = np.empty(int((stops - starts).sum()), np.uint8), np.empty(len(spans) + 1, np.int64)
    edit_kernels.gather(rows.values, starts, stops, out, offsets)
    return string_array(out, offsets)
