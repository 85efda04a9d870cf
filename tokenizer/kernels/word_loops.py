# SPDX-License-Identifier: Apache-2.0
"""Loops over words that have been found, for aligning and for counting; kernels are made of them and a model.

A model is a `kernel_part` `tokenize(word, w, is_flagged, model, model_scratch, out, o, ends) -> (o, has_unknown)`,
passed by name and inlined, so that every model has machine code of its own; is_flagged: whether it is only a part of a
word, and not the last.
"""

from tokenmill.tokenizer.compiling.kernel import kernel_part
from tokenmill.tokenizer.kernels.utf8 import add_whole_characters, continues_character


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


@kernel_part
def count_swallowed(tokenize, words, counts, model, model_scratch, scratch, out, unk_id, characters):
    """Adds up, by code point, the characters that the unknown token swallowed in words that occurred `counts` times.

    Args:
      words: words.Words; counts: int64[n_words].
      out: int32 with room for the ids of the longest word, for work.
      unk_id: the unknown token, -1 if there is none.
      characters: int64[0x110000], added to. A character counts once if unknown tokens have any of its bytes, but not if
        it is split between two words.
    """
    values, starts, stops, _ = words
    for k in range(starts.size):
        w = stops[k] - starts[k]
        for q in range(w):
            scratch.word[q] = values[starts[k] + q]
        n_tokens, _ = tokenize(scratch.word, w, False, model, model_scratch, out, 0, scratch.ends)
        begin = 0
        counted = 0
        for t in range(n_tokens):
            if out[t] == unk_id:
                while begin > counted and continues_character(scratch.word[begin]):
                    begin -= 1
                begin = max(begin, counted)
                counted = add_whole_characters(scratch.word, begin, scratch.ends[t], w, counts[k], characters)
            begin = scratch.ends[t]
