# SPDX-License-Identifier: Apache-2.0
"""Puts a space in front of rows, for engines that read the prefix space as part of the text."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.edit_lists import prepend
from tokenmill.tokenizer.ragged import Ragged


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
    return prepend(rows, wanted, " ").rows


def _begins_with(rows: Ragged, spelling: bytes) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[Any] = np.diff(rows.offsets) >= len(spelling)
    for k, byte in enumerate(spelling):
        found[found] = rows.values[rows.offsets[:-1][found] + k] == byte
    return found
