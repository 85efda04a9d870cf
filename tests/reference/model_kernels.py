# SPDX-License-Identifier: Apache-2.0
"""Kernels that run a model on words one after the other, without a cache."""

from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels.unigram import unigram_word
from tokenmill.tokenizer.kernels.whole_words import wordlevel_word


@kernel
def encode_words(values, starts, stops, model, scratch, ends, out, out_offsets):
    """Tokenizes words with Unigram.

    Args:
      values: uint8[n]; starts, stops: int64[n_words] into it.
      model: UnigramTables; scratch: UnigramScratch; ends: int64[n]; for the longest word, for work.
      out: int32 with room for one id per byte of all words, filled; out_offsets: int64[n_words + 1], filled.
    """
    o = 0
    out_offsets[0] = 0
    for k in range(starts.size):
        if stops[k] > starts[k]:
            o, _ = unigram_word(values[starts[k] : stops[k]], stops[k] - starts[k], model, scratch, out, o, ends)
        out_offsets[k + 1] = o


@kernel
def look_up_words(data, starts, stops, model, out, ends):
    """Looks words up in a WordLevel vocabulary.

    Args:
      data: uint8[n], readable 16 bytes beyond every word; starts, stops: int64[n_words]; model: WordLevelTables.
      out: int32[n_words], filled; ends: int64[1], for work.
    """
    for t in range(starts.size):
        wordlevel_word(data[starts[t] :], stops[t] - starts[t], model, 0, out, t, ends)
