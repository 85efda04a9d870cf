# SPDX-License-Identifier: Apache-2.0
"""`Normalizer`, the interface: columns of text in compiled code, and single texts with alignments in plain Python."""

import abc
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer.aligned import AlignedText
from tokenizer.errors import TextGrowthError, check_strings
from tokenizer.ragged import Errors, Ragged, read_only, string_array, text_rows


class Normalizer(abc.ABC):
    """Text to text, before anything is split."""

    @property
    def is_fast(self) -> bool:
        """Whether columns are normalized by compiled code only; if not, Python runs once for every row."""
        return True

    @abc.abstractmethod
    def normalize_rows(self, rows: Ragged) -> Ragged:
        """Normalizes a column of valid UTF-8, values uint8[n]; returns `rows` itself if nothing changes."""

    @abc.abstractmethod
    def normalize_aligned(self, text: AlignedText) -> AlignedText:
        """Normalizes one text like `normalize_rows`, with alignments as in HF. Slow."""

    def normalize_arrow(self, texts: Any, errors: Errors = "strict") -> pa.LargeStringArray:
        """Normalizes a text column; rows and their order stay, nulls become empty, nothing aliases the input.

        Args:
          texts, errors: as for `Tokenizer.encode_arrow`.

        Raises:
          TypeError: if `texts` is not a text column. ValueError: if it is not valid.
        """
        rows = text_rows(texts, errors)
        normalized = self.normalize_rows(rows)
        values, offsets = normalized
        if normalized is rows:
            values, offsets = values[offsets[0] : offsets[-1]].copy(), offsets - offsets[0]
        return string_array(values, offsets)

    def normalize_str(self, text: str) -> str:
        """Normalizes one text."""
        check_strings("text", [text])
        return str(self.normalize_arrow([text])[0].as_py())


def rows_of(values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Ragged:
    """Wraps the output of a kernel, without the room that it did not use."""
    return Ragged(read_only(values[: offsets[-1]]), offsets)


def unless_same(rows: Ragged, normalized: Ragged) -> Ragged:
    """Returns `rows` itself if `normalized` is equal to it."""
    first, last = int(rows.offsets[0]), int(rows.offsets[-1])
    same = last - first == normalized.n_values and np.array_equal(rows.offsets - first, normalized.offsets)
    return rows if same and np.array_equal(rows.values[first:last], normalized.values) else normalized


MAX_GROWTH, FREE_BYTES = 16, 1024
"""A text may become this many times as long, and this many bytes longer. NFKC makes 33 bytes of the 3 of U+FDFA."""


def check_content(name: str, content: str) -> None:
    """Raises ValueError if a text that a step puts in, for each match or row, is longer than that of any real file."""
    if len(content) > FREE_BYTES or len(content.encode("utf-8", "surrogatepass")) > FREE_BYTES:
        raise ValueError(f"{name} has {len(content)} characters, of which at most {FREE_BYTES} bytes are allowed")


def check_growth(n_before: Any, n_after: Any) -> None:
    """Raises TextGrowthError if a text has become too long; both are numbers of bytes, of one text or of several."""
    too_long = n_after > MAX_GROWTH * n_before + FREE_BYTES
    if np.any(too_long):
        first = int(np.argmax(too_long))
        n_before, n_after = int(np.atleast_1d(n_before)[first]), int(np.atleast_1d(n_after)[first])
        raise TextGrowthError(
            f"normalizers or decoders make {n_after} bytes of {n_before}; at most {MAX_GROWTH} times as many and "
            f"{FREE_BYTES} more are allowed"
        )


def grown(rows: Ragged, normalized: Ragged) -> Ragged:
    """Returns normalized rows; raises TextGrowthError if one of them has become too long."""
    if normalized is not rows:
        check_growth(np.diff(rows.offsets), np.diff(normalized.offsets))
    return normalized
