# SPDX-License-Identifier: Apache-2.0
"""`EditingStep`, for steps whose kernel finds edits; applies lists of edits to rows."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.normalizers.base import Applied, Edges, Edit, TextStep, check_room, grown, rows_of
from tokenmill.tokenizer.normalizers.kernels import edit_lists
from tokenmill.tokenizer.normalizers.kernels.edit_lists import Texts
from tokenmill.tokenizer.normalizers.tables import SPARE_BYTES
from tokenmill.tokenizer.ragged import Int64s, Ragged, characters_before, read_only, stretches, text_rows

_ROOM, _BYTES_PER_EDIT = 1 << 12, 4
"""The first call has room for this many edits, or for one in so many bytes."""


def found_edits(find: Any, rows: Ragged, *tables: Any) -> npt.NDArray[np.int64]:
    """Calls a kernel that `edit_lists.finder` made, again with more room if needed; returns its edits, int64[n, 3].

    Memory: 24 bytes for each edit.
    """
    n = max(_ROOM, rows.n_values // _BYTES_PER_EDIT)
    room = 0
    while n > room:
        room = n
        edits = recycled.empty(3 * room, np.int64).reshape(room, 3)
        n = find(rows.values, rows.offsets, tables, edits)
    return edits[:n]


def lowered_texts(texts: Sequence[str]) -> Texts:
    """Returns texts as `apply_edits` takes them."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    pool = np.frombuffer(bytearray().join([*encoded, bytes(SPARE_BYTES)]), np.uint8)
    return Texts(read_only(pool), read_only(offsets[:-1]), read_only(offsets[1:]))


def apply_edits(rows: Ragged, edits: npt.NDArray[np.int64], texts: Texts) -> Applied:
    """Applies edits, int64[n, 3]; their new texts are given by numbers.

    Raises:
      TextGrowthError: if a row becomes too long.
    """
    if not len(edits):
        return Applied(rows, 0)
    edits = read_only(edits)
    n_bytes = rows.n_values + edit_lists.edited_bytes(edits, texts)
    check_room(rows, n_bytes)
    out, offsets = recycled.empty(n_bytes + SPARE_BYTES, np.uint8), np.empty(rows.n_rows + 1, np.int64)
    n_changed = edit_lists.apply_edits(rows.values, rows.offsets, edits, texts, out, offsets)
    return Applied(grown(rows, rows_of(out, offsets)), int(n_changed))


def prepend(rows: Ragged, where: npt.NDArray[np.bool_], text: str) -> Applied:
    """Puts a text in front of rows; where: bool[n_rows], which must not be empty."""
    starts = rows.offsets[:-1][where]
    return apply_edits(rows, np.column_stack((starts, starts, np.zeros_like(starts))), lowered_texts([text]))


def places_in_text(text: str, places: npt.NDArray[np.int64]) -> list[list[int]]:
    """Returns places in the UTF-8 of a text, int64[n, k], as places in the text."""
    begins = np.frombuffer(text.encode(), np.uint8) & 0xC0 != 0x80
    found: list[list[int]] = np.concatenate(([0], np.cumsum(begins)))[places].tolist()
    return found


def in_characters(rows: Ragged, edits: Int64s) -> tuple[Int64s, Int64s]:
    """Returns where edits, int64[n, 3], start and stop, in characters of rows whose offsets begin at 0."""
    starts, stops = characters_before(rows.values, edits[:, :2].ravel()).reshape(-1, 2).T
    return starts, stops


def put_at_last(n_characters: int, starts: Int64s, stops: Int64s, n_put: Int64s) -> Int64s:
    """Returns how many characters become of each, int64[n_characters], if stretches are replaced.

    starts, stops: int64[n], none of which is empty; n_put: how many new characters have the place of each's last one.
    """
    n_new = np.ones(n_characters, np.int64)
    n_new[stretches(starts, stops)] = 0
    n_new[stops - 1] = n_put
    return n_new


class EditingStep(TextStep):
    """A step whose kernel finds edits."""

    @abc.abstractmethod
    def find_edits(self, rows: Ragged, edges: Edges) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
        """Returns the edits of rows, int64[n, 3]: start, stop, number of the new text; and the new texts."""

    def edits(self, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
        edits, texts = self.find_edits(text_rows([text]), Edges.of(1, begins, ends))
        places = places_in_text(text, edits[:, :2])
        return [Edit(start, stop, texts[k]) for (start, stop), k in zip(places, edits[:, 2].tolist(), strict=True)]

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        edits, texts = self.find_edits(rows, edges)
        return apply_edits(rows, edits, lowered_texts(texts))
