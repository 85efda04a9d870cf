# SPDX-License-Identifier: Apache-2.0
"""WordPiece, WordLevel and Unigram over words that have been found already, which they may read as spelled bytes.

Its reference implementations are `tokenmill.tokenizer.reference_encoding.wordpiece`,
`tokenmill.tokenizer.models.wordlevel.WordLevel.tokenize`, `tokenmill.tokenizer.models.unigram.Unigram.tokenize`;
`tests/tokenizer/test_encode.py` compares them.
"""

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.misses import miss_by
from tokenmill.tokenizer.kernels.spelled_bytes import read_word
from tokenmill.tokenizer.kernels.unigram import unigram_word
from tokenmill.tokenizer.kernels.whole_words import wordlevel_word
from tokenmill.tokenizer.kernels.wordpiece import wordpiece


@kernel_part
def _wordpiece(text, n, model, scratch, out, o, ends):
    return wordpiece(text, n, model, out, o, ends)


@kernel_part
def tokenize_wordpiece(word, w, is_flagged, model, reading, out, o, ends):
    """Tokenizes one word; see `word_loops`. reading: spelled_bytes.Reading."""
    return read_word(_wordpiece, word, w, model, reading, out, o, ends)


@kernel_part
def tokenize_wordlevel(word, w, is_flagged, model, reading, out, o, ends):
    """Tokenizes one word; see `word_loops`. reading: spelled_bytes.Reading."""
    return read_word(wordlevel_word, word, w, model, reading, out, o, ends)


@kernel_part
def tokenize_unigram(word, w, is_flagged, model, reading, out, o, ends):
    """Tokenizes one word; see `word_loops`. reading: spelled_bytes.Reading."""
    return read_word(unigram_word, word, w, model, reading, out, o, ends)


@kernel
def miss_wordpiece(arguments, k, o):
    """See `misses.miss_by`."""
    return miss_by(tokenize_wordpiece, arguments, k, o)


@kernel
def miss_wordlevel(arguments, k, o):
    """See `misses.miss_by`."""
    return miss_by(tokenize_wordlevel, arguments, k, o)


@kernel
def miss_unigram(arguments, k, o):
    """See `misses.miss_by`."""
    return miss_by(tokenize_unigram, arguments, k, o)
