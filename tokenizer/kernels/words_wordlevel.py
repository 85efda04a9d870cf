# SPDX-License-Identifier: Apache-2.0
"""WordLevel over words that have been found already.

Its slow twin is `tokenizer.models.wordlevel.WordLevel.tokenize`; `tests/tokenizer/models/test_wordlevel.py` compares
them.
"""

from tokenizer.compiling.kernel import kernel, kernel_part
from tokenizer.kernels import word_loops
from tokenizer.kernels.misses import miss_by
from tokenizer.kernels.spelled_bytes import read_word
from tokenizer.kernels.whole_words import wordlevel_word


@kernel_part
def _tokenize_text(text, n, model, model_scratch, out, o, ends):
    return wordlevel_word(text, 0, n, model, out, o, ends)


@kernel_part
def tokenize(word, w, model, reading, out, o, ends):
    """Tokenizes one word; see `word_loops`. reading: spelled_bytes.Reading."""
    return read_word(_tokenize_text, word, w, model, reading, out, o, ends)


@kernel_part
def _tokenize_span(word, w, is_flagged, model, reading, out, o, ends):
    return tokenize(word, w, model, reading, out, o, ends)


@kernel
def miss(arguments, k, o):
    """See `misses.miss_by`."""
    return miss_by(_tokenize_span, arguments, k, o)


@kernel
def align(words, model, model_scratch, scratch, out, ends, numbers):
    """See `word_loops.align_words`."""
    return word_loops.align_words(tokenize, words, model, model_scratch, scratch, out, ends, numbers)


@kernel
def count_swallowed(words, counts, model, model_scratch, scratch, out, unk_id, characters):
    """See `word_loops.count_swallowed`."""
    word_loops.count_swallowed(tokenize, words, counts, model, model_scratch, scratch, out, unk_id, characters)
