# SPDX-License-Identifier: Apache-2.0
"""`Words`: the pre-tokens of a column of text, which pre-tokenizers hand to models."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


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
