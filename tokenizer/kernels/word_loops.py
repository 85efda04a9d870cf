# SPDX-License-Identifier: Apache-2.0
"""A loop over words that have been found, which aligns them; kernels are made of it and a model.

A model is a `kernel_part` `tokenize(word, w, is_flagged, model, model_scratch, out, o, ends) -> (o, has_unknown)`,
passed by name and inlined, so that every model has machine code of its own; is_flagged: whether it is only a part of a
word, and not the last.
"""

from tokenmill.tokenizer.compiling.kernel import kernel_part


@kernel_part
def align_words(tokenize, words, model, model_scratch, scratch, out, ends, numbers):
    """Encodes words, and finds where in its word each token ends.

    Args:
      out: int32[n], ends: int64[n], numbers: int32[n] (the word's), filled: one entry per token, with room for one per
        byte.

    Returns:
      The number of tokens.
    """
    values, starts, stops, _ = words
    o = 0
    for k in range(starts.size):
        w = stops[k] - starts[k]
        for q in range(w):
            scratch.word[q] = values[starts[k] + q]
        before = o
        o, _ = tokenize(scratch.word, w, False, model, model_scratch, out, o, scratch.ends)
        for t in range(before, o):
            ends[t] = scratch.ends[t - before]
            numbers[t] = k
    return o
