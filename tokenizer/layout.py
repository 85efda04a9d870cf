# SPDX-License-Identifier: Apache-2.0
"""What rows become of the tokens of texts: special tokens around them, cut and padded to length."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer import recycled, row_kernels
from tokenizer.post_processors import Padding, TemplateProcessing, Truncation
from tokenizer.ragged import list_array, null_rows, read_only

Int64s = npt.NDArray[np.int64]


class Windows(NamedTuple):
    """Overlapping parts of texts that together hold all of each, in the order of the texts and of the text."""

    texts: Int64s
    """int64[n]: of which text each is."""
    starts: Int64s
    """int64[n]: its first token, counted in the text."""
    stops: Int64s
    """int64[n]: behind its last token."""


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """What stands around the tokens of a text, and how long and short a row may be.

    It works on columns of tokens as `Tokenizer.encode_bare` returns them, so that whoever must know what truncation
    takes has seen it: lengths before are in the column, `kept` says what stays.
    """

    before: npt.NDArray[np.int32]
    """Ids in front of every text."""
    after: npt.NDArray[np.int32]
    """Ids behind every text."""
    truncation: Truncation | None = None
    padding: Padding | None = None

    @classmethod
    def of(
        cls,
        template: TemplateProcessing,
        truncation: Truncation | None = None,
        padding: Padding | None = None,
        *,
        prepend: Sequence[int] = (),
        append: Sequence[int] = (),
    ) -> Self:
        """Returns the layout of single texts by a template.

        Args:
          template: its pieces in front of A and after it go around each text.
          truncation: None leaves rows as long as they are.
          padding: None leaves them as short.
          prepend: ids between the template's and the text.
          append: ids between the text and the template's.
        """
        names = [piece.name if piece.is_sequence else None for piece in template.single]
        at = names.index("A")
        before, after = (
            [i for piece in pieces for i in template.special_tokens[piece.name].ids]
            for pieces in (template.single[:at], template.single[at + 1 :])
        )
        first, last = (read_only(np.array(ids, np.int32)) for ids in ([*before, *prepend], [*append, *after]))
        return cls(first, last, truncation, padding)

    @property
    def n_around(self) -> int:
        """How many tokens stand around every text."""
        return self.before.size + self.after.size

    def kept(self, lengths: Int64s) -> Int64s:
        """Returns how many tokens of each text stay, int64[n]; from `lengths`, how many there are.

        Raises:
          ValueError: if the tokens around a text alone are more than truncation allows.
        """
        if self.truncation is None:
            return lengths
        # `Truncation.lengths` says in one place what fits, and raises where nothing does.
        longest = int(lengths.max(initial=0))
        return np.minimum(lengths, self.truncation.lengths(longest, None, self.n_around)[0])

    def windows(self, lengths: Int64s) -> Windows:
        """Returns the windows of texts: what truncation leaves of each and what overflows, as in `Encoding`.

        Neighbours have `truncation.stride` tokens in common; a text that fits is one window.

        Args:
          lengths: int64[n], the tokens of each text.

        Raises:
          ValueError: if there is no truncation, it cuts on the left, or it leaves a window no token of its own.
        """
        truncation = self.truncation
        if truncation is None or truncation.direction != "right":
            raise ValueError(f"windows are made by a truncation on the right, got {truncation!r}")
        room = truncation.max_length - self.n_around
        step = room - truncation.stride
        if step < 1:
            raise ValueError(
                f"max_length {truncation.max_length} leaves a window {max(room, 0)} tokens beside the {self.n_around} "
                f"around it, which must be more than stride {truncation.stride}; raise max_length or lower stride"
            )
        n_windows = 1 - np.minimum(room - lengths, 0) // step  # rounded up
        texts = np.repeat(np.arange(lengths.size), n_windows)
        starts = (np.arange(texts.size) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)) * step
        return Windows(texts, starts, np.minimum(starts + room, lengths[texts]))

    def apply(self, column: pa.LargeListArray) -> pa.LargeListArray:
        """Returns a column of int32 ids laid out; null for null.

        Raises:
          ValueError: as `kept`.
        """
        if not self.n_around and self.truncation is None and self.padding is None:
            return column
        offsets = column.offsets.to_numpy()
        starts, stops = offsets[:-1], offsets[1:]
        if self.truncation is not None:
            kept = self.kept(stops - starts)
            starts, stops = (stops - kept, stops) if self.truncation.direction == "left" else (starts, starts + kept)
        return self.lay_out(column.values.to_numpy(), starts, stops, null_rows(column))

    def spans(self, rows: pa.LargeListArray, kept: Int64s) -> tuple[Int64s, Int64s]:
        """Returns where in the ids of rows, as `apply` returned them, each row but its padding starts and stops.

        Args:
          rows: int32 ids of n texts.
          kept: int64[n], the tokens of each text that are in its row.
        """
        offsets, n = rows.offsets.to_numpy(), kept + self.n_around
        if self.padding is not None and self.padding.direction == "left":
            return offsets[1:] - n, offsets[1:]
        return offsets[:-1], offsets[:-1] + n

    def lay_out(
        self, values: npt.NDArray[np.int32], starts: Int64s, stops: Int64s, nulls: pa.Array | None = None
    ) -> pa.LargeListArray:
        """Returns rows of spans of tokens, which nothing is cut off any more.

        Args:
          values: int32.
          starts: int64[n], where in `values` each begins.
          stops: int64[n], where it ends.
          nulls: bool[n], rows that are null; None for none.
        """
        lengths = stops - starts + self.n_around
        padding = self.padding
        padded = padding.target(int(lengths.max(initial=0))) if padding else 0
        out = recycled.empty(int(np.maximum(lengths, padded).sum()), np.int32)
        offsets = np.zeros(lengths.size + 1, np.int64)
        row_kernels.lay_out(
            read_only(values), read_only(starts), read_only(stops), self.before, self.after,
            padded, padding.pad_id if padding else 0, padding is not None and padding.direction == "left",
            out, offsets,
        )  # fmt: skip
        return list_array(out, offsets, nulls)
