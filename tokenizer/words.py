# SPDX-License-Identifier: Apache-2.0
"""`Words`: the pre-tokens of a column of text, which pre-tokenizers hand to models."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.ragged import Ragged, read_only


class Words(NamedTuple):
    """The pre-tokens of a column. None is empty, and none overlap; bytes of `values` may belong to no word."""

    values: npt.NDArray[Any]
    """uint8[n]: UTF-8, or for byte-level models the bytes of the text."""
    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    """int64[n_words]: each word is `values[starts[i]:stops[i]]`."""
    row_offsets: npt.NDArray[np.int64]
    """int64[n_rows + 1]: the words of row r are `row_offsets[r]:row_offsets[r + 1]`."""

    @property
    def n_words(self) -> int:
        """The number of words."""
        return self.starts.size

    @property
    def max_word(self) -> int:
        """The number of bytes in the longest word, 0 if there are no words."""
        return int((self.stops - self.starts).max(initial=0))

    def word(self, i: int) -> bytes:
        """Returns the bytes of one word."""
        return bytes(self.values[self.starts[i] : self.stops[i]])


def whole_rows(rows: Ragged) -> Words:
    """Makes every row that is not empty one word."""
    filled = np.diff(rows.offsets) > 0
    row_offsets = np.zeros(rows.n_rows + 1, np.int64)
    np.cumsum(filled, out=row_offsets[1:])
    return Words(read_only(rows.values), rows.offsets[:-1][filled], rows.offsets[1:][filled], row_offsets)


def begins_with(
    values: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], text: bytes
) -> npt.NDArray[np.bool_]:
    """Returns which of the stretches `values[starts[k]:stops[k]]` begin with `text`, bool[n]."""
    found = stops - starts >= len(text)
    for k, byte in enumerate(text):
        found[found] = values[starts[found] + k] == byte
    return found
