# SPDX-License-Identifier: Apache-2.0
"""Puts a space in front of rows, for engines that read the prefix space as part of the text."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import edit_kernels, recycled
from tokenizer.normalizers.base import rows_of
from tokenizer.ragged import Ragged


def begin_with_space(rows: Ragged, *spellings: bytes, where: npt.NDArray[np.bool_] | None = None) -> Ragged:
    """Puts a space before every row that is not empty and begins with none of `spellings`.

    where: bool[n_rows], the rows to consider; all if None.
    """
    wanted = np.diff(rows.offsets) > 0
    if where is not None:
        wanted &= where
    for spelling in spellings:
        wanted &= ~_begins_with(rows, spelling)
    if not wanted.any():
        return rows
    out, offsets = recycled.empty(rows.n_values + rows.n_rows, np.uint8), np.empty(rows.n_rows + 1, np.int64)
    edit_kernels.prepend_byte(rows.values, rows.offsets, wanted, np.uint8(ord(" ")), out, offsets)
    return rows_of(out, offsets)


def _begins_with(rows: Ragged, spelling: bytes) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[Any] = np.diff(rows.offsets) >= len(spelling)
    for k, byte in enumerate(spelling):
        found[found] = rows.values[rows.offsets[:-1][found] + k] == byte
    return found
