# SPDX-License-Identifier: Apache-2.0
"""Words tokenized at random: BPE-dropout, and Unigram paths drawn by score. No word cache: a word varies each time."""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.bpe import bpe_word_dropout
from tokenmill.tokenizer.kernels.bpe_merging import dropout_key
from tokenmill.tokenizer.kernels.unigram import sample_word


@kernel_part
def _each_word(tokenize, words, added, keys, model, model_scratch, scratch, out, out_offsets):
    """Tokenizes the words of rows; the arguments are those of `drop` and `sample`.

    `tokenize(word, w, model, key, model_scratch, out, o, ends)` returns the number of ids so far, -1 to give up; then
    the result is False.
    """
    values, starts, stops, row_offsets = words
    o = 0
    out_offsets[0] = 0
    for row in range(row_offsets.size - 1):
        if added[row] >= 0:
            out[o] = added[row]
            o += 1
        else:
            for k in range(row_offsets[row], row_offsets[row + 1]):
                w = stops[k] - starts[k]
                for q in range(w):
                    scratch.word[q] = values[starts[k] + q]
                key = np.uint64(dropout_key(keys[row], k - row_offsets[row]))
                o = tokenize(scratch.word, w, model, key, model_scratch, out, o, scratch.ends)
                if o < 0:
                    return False
        out_offsets[row + 1] = o
    return True


@kernel_part
def _drop_word(word, w, model, key, model_scratch, out, o, ends):
    o, _ = bpe_word_dropout(word, 0, w, model, model_scratch, out, o, ends, key)
    return o


@kernel_part
def _sample_word(word, w, model_and_alpha, key, model_scratch, out, o, ends):
    model, alpha = model_and_alpha
    stop, _ = sample_word(word, w, model, alpha, key, model_scratch, out, o, ends)
    return np.int64(-1) if stop > o and out[o] < 0 else stop


@kernel
def drop(words, added, keys, model, model_scratch, scratch, out, out_offsets):
    """Tokenizes the words of rows with BPE-dropout.

    Args:
      words: words.Words; added: int32[n_rows], the id of rows that are an added token, -1 for the others.
      keys: uint64[n_rows], what the draws of a row depend on, besides the number of the word in it.
      model, model_scratch: as for `bpe.bpe_word_dropout`; scratch: kernel_memory.Scratch for the longest word.
      out: int32 with room for all ids; out_offsets: int64[n_rows + 1], filled.
    """
    _each_word(_drop_word, words, added, keys, model, model_scratch, scratch, out, out_offsets)


@kernel
def sample(words, added, keys, model, alpha, model_scratch, scratch, out, out_offsets):
    """Tokenizes the words of rows by drawn paths; alpha as for `unigram.sample_word`, the rest as for `drop`.

    Returns:
      False if a character is not in the vocabulary and the model has no unknown token; the output is then unusable.
    """
    return _each_word(_sample_word, words, added, keys, (model, alpha), model_scratch, scratch, out, out_offsets)
