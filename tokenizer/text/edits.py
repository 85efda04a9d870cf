# SPDX-License-Identifier: Apache-2.0
"""`EditingStep`, for steps whose kernel finds edits; applies lists of edits to rows."""

import abc
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tokenizer import recycled
from tokenizer.normalizers.base import Applied, Edges, TextStep
from tokenizer.ragged import Ragged, read_only
from tokenizer.text.kernels import edit_lists

_ROOM = 1 << 12
"""The number of edits that the first call has room for."""


def found_edits(find: Callable[[npt.NDArray[np.int64]], int]) -> npt.NDArray[np.int64]:
    """Calls a kernel, again with more room if needed, and returns its edits, int64[n, 3]; see `edit_lists.add_edit`.

    Memory: 24 bytes for each edit.
    """
    edits = np.empty((_ROOM, 3), np.int64)
    n = find(edits)
    if n > _ROOM:
        edits = np.empty((n, 3), np.int64)
        n = find(edits)
    return edits[:n]


def apply_edits(rows: Ragged, edits: npt.NDArray[np.int64], texts: Sequence[str]) -> Applied:
    """Applies edits, int64[n, 3]; their new texts are given as numbers in `texts`."""
    if not len(edits):
        return Applied(rows, 0)
    encoded = [text.encode() for text in texts]
    pool_offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=pool_offsets[1:])
    pool = np.frombuffer(bytearray().join(encoded), np.uint8)
    removed = int((edits[:, 1] - edits[:, 0]).sum())
    added = int(np.diff(pool_offsets)[edits[:, 2]].sum())
    out = recycled.empty(rows.n_values - removed + added, np.uint8)
    offsets = np.empty(rows.n_rows + 1, np.int64)
    n_changed = edit_lists.apply_edits(
        rows.values, rows.offsets, read_only(edits), read_only(pool), read_only(pool_offsets), out, offsets
    )
    return Applied(Ragged(read_only(out), offsets), int(n_changed))


class EditingStep(TextStep):
    """A step whose kernel finds edits."""

    texts: tuple[str, ...] = ("",)
    """The texts that edits put in, by number."""

    @abc.abstractmethod
    def find_edits(self, rows: Ragged, edges: Edges, edits: npt.NDArray[np.int64]) -> int:
        """Fills `edits`, int64[room, 3], with the first `room` edits; returns how many there are in all."""

    def apply_rows(self, rows: Ragged, edges: Edges) -> Applied:
        """Applies the step to rows; see `TextStep`."""
        return apply_edits(rows, found_edits(lambda edits: self.find_edits(rows, edges, edits)), self.texts)
