# SPDX-License-Identifier: Apache-2.0
"""BPE of characters in the loop of `normalized_words`."""

import numpy as np

from tokenizer.kernels.bpe import bpe_word
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.normalized_words import encode_rows


@kernel_part
def _encode_text(text, n, model, scratch, out, o):
    o, _ = bpe_word(text, 0, n, model, scratch.bpe, out, o, scratch.ends)
    return o, np.inf  # the merges decide, no sum does


@kernel
def encode(rows, added, tables, model, scratch, work, tallying):
    """See `normalized_words.encode_rows`. model: BPETables; scratch: MergingScratch."""
    return encode_rows(_encode_text, rows, added, tables, model, scratch, work, tallying)
