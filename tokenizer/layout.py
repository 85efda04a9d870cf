# SPDX-License-Identifier: Apache-2.0
"""Rows of ids laid out for a model: special tokens around them, cut and padded to length."""

import numpy as np

from tokenizer import recycled
from tokenizer.kernels import rows as row_kernels
from tokenizer.post_processors import Padding, TemplateProcessing, Truncation
from tokenizer.ragged import Ragged


def lay_out(
    ids: Ragged, template: TemplateProcessing, truncation: Truncation | None, padding: Padding | None
) -> Ragged:
    """Lays rows out by the single template of a post-processor.

    Args:
      ids: int32 ids of texts, without special tokens.
      template: its pieces in front of A and after it go around each row.
      truncation: None leaves rows as long as they are.
      padding: None leaves them as short.

    Raises:
      ValueError: if the special tokens alone are more than truncation allows.
    """
    names = [piece.name if piece.is_sequence else None for piece in template.single]
    at = names.index("A")
    before, after = (
        np.array([i for p in pieces for i in template.special_tokens[p.name].ids], np.int32)
        for pieces in (template.single[:at], template.single[at + 1 :])
    )
    n_special = before.size + after.size
    lengths = np.diff(ids.offsets)
    kept = lengths
    if truncation:
        # `lengths` says in one place what fits, and raises where nothing does.
        longest = int(lengths.max(initial=0))
        kept = np.minimum(lengths, truncation.lengths(longest, None, n_special)[0])
    padded = padding.target(int(kept.max(initial=0)) + n_special) if padding else 0
    out = recycled.empty(int(np.maximum(kept + n_special, padded).sum()), np.int32)
    offsets = np.zeros(ids.n_rows + 1, np.int64)
    row_kernels.lay_out(
        ids.values, ids.offsets, kept, truncation is not None and truncation.direction == "left",
        before, after, padded, padding.pad_id if padding else 0, padding is not None and padding.direction == "left",
        out, offsets,
    )  # fmt: skip
    return Ragged(out, offsets)
