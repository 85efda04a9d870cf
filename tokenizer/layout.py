# SPDX-License-Identifier: Apache-2.0
"""From the tokens of texts to rows: cut to length, put between special tokens, padded."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer import recycled, row_kernels
from tokenmill.tokenizer.post_processors import Padding, TemplateProcessing, Truncation
from tokenmill.tokenizer.ragged import id_rows, list_array, null_rows, read_only

Int64s = npt.NDArray[np.int64]


class Windows(NamedTuple):
    """Overlapping parts that together cover each text, ordered by text, then by place in it."""

    texts: Int64s
    """int64[n]: the text that each window is of."""
    starts: Int64s
    """int64[n]: its first token, counted in the text."""
    stops: Int64s
    """int64[n]: the token after its last."""


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """The special tokens around the tokens of a text, and how long and short a row may be.

    It works on columns of bare tokens, as `Tokenizer.encode_bare` returns them. A caller can so count what truncation
    removes: the column has the lengths before, `kept` returns those after.
    """

    before: npt.NDArray[np.int32]
    """int32[n]: ids in front of every text."""
    after: npt.NDArray[np.int32]
    """int32[n]: ids after every text."""
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
          template: its special tokens before and after A go around each text.
          truncation: None does not shorten rows.
          padding: None does not lengthen them.
          prepend: more ids, between the template's and the text.
          append: more ids, between the text and the template's.
        """
        before, after = template.around
        first, last = (read_only(np.array(ids, np.int32)) for ids in ([*before, *prepend], [*append, *after]))
        return cls(first, last, truncation, padding)

    @property
    def n_around(self) -> int:
        """How many tokens are put around every text."""
        return self.before.size + self.after.size

    def kept(self, lengths: Int64s) -> Int64s:
        """Returns how many tokens of each text truncation keeps, int64[n]; lengths: int64[n], how many there are.

        Raises:
          ValueError: if the tokens around a text alone exceed the maximum length.
        """
        if self.truncation is None:
            return lengths
        # The one place that knows what fits is `Truncation.lengths`; it raises if nothing does.
        longest = int(lengths.max(initial=0))
        return np.minimum(lengths, self.truncation.lengths(longest, None, self.n_around)[0])

    def windows(self, lengths: Int64s) -> Windows:
        """Returns the windows of texts: of each the part that truncation keeps and those that overflow, as `Encoding`.

        Neighbouring windows have `truncation.stride` tokens in common; a text that fits is one window.

        Args:
          lengths: int64[n], the tokens of each text.

        Raises:
          ValueError: if there is no truncation, it cuts on the left, or windows would have no token besides the stride.
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
        """Truncates, lays out and pads a column of int32 ids; null for null.

        Raises:
          TypeError: if it is not a list column of integers. ValueError: if it is not valid, or as `kept`.
        """
        if not self.n_around and self.truncation is None and self.padding is None:
            return column
        ids = id_rows(column)
        starts, stops = ids.offsets[:-1], ids.offsets[1:]
        if self.truncation is not None:
            kept = self.kept(stops - starts)
            starts, stops = (stops - kept, stops) if self.truncation.direction == "left" else (starts, starts + kept)
        return self.lay_out(ids.values, starts, stops, null_rows(column))

    def spans(self, rows: pa.LargeListArray, kept: Int64s) -> tuple[Int64s, Int64s]:
        """Returns where each row, without its padding, starts and stops in the ids of a column that `apply` returned.

        Args:
          rows: int32 ids of n texts.
          kept: int64[n], how many tokens of each text are in its row.
        """
        offsets, n = rows.offsets.to_numpy(), kept + self.n_around
        if self.padding is not None and self.padding.direction == "left":
            return offsets[1:] - n, offsets[1:]
        return offsets[:-1], offsets[:-1] + n

    def lay_out(
        self, values: npt.NDArray[np.int32], starts: Int64s, stops: Int64s, nulls: pa.Array | None = None
    ) -> pa.LargeListArray:
        """Lays out and pads spans of tokens, one row each, without truncation.

        Args:
          values: int32, the tokens.
          starts: int64[n], where in `values` each span begins.
          stops: int64[n], where it ends.
          nulls: bool[n], rows that are null; None for none.

        Raises:
          ValueError: if a span is not inside `values`.
        """
        if starts.size and (starts.min() < 0 or stops.max() > values.size or (stops < starts).any()):
            raise ValueError(f"spans must be inside the {values.size} tokens, got {starts.min()}..{stops.max()}")
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
