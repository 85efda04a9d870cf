# SPDX-License-Identifier: Apache-2.0
"""BPE over words that something else has found."""

from tokenizer.kernels import word_encoding
from tokenizer.kernels.bpe import bpe_word
from tokenizer.kernels.bpe_crossings import character_bytes, character_value, may_cross
from tokenizer.kernels.compiling import kernel, kernel_part

_LONGEST_WHOLE = 6
"""Bytes; shorter words are looked up as they are."""

_THREE_BYTES = 0xE1
"""First byte of characters of three bytes and more, but those of the scripts of India, which have spaces."""


@kernel_part
def tokenize(word, w, model, model_scratch, out, o, ends):
    """Tokenizes one word; see `word_encoding`."""
    return bpe_word(word, 0, w, model, model_scratch, out, o, ends)


@kernel_part
def next_cut(data, at, stop, model):
    """Returns where the byte-level word `data[at:stop]` may be cut, `stop` for nowhere; see `bpe_crossings`.

    Only words that begin with a character of three bytes or more, or a space and one, are cut.
    """
    w = stop - at
    if w <= max(_LONGEST_WHOLE, model.longest_whole) or not model.plain_bytes or model.suffix.size > 0:
        return stop
    if stop + 8 > data.size:
        return stop
    if data[at] < _THREE_BYTES and data[at + 1] < _THREE_BYTES:
        return stop
    n_before = character_bytes(data[at])
    before = character_value(data, at, n_before)
    q = at + n_before
    while q < stop:
        n = character_bytes(data[q])
        character = character_value(data, q, n)
        if n > 1 and not may_cross(model, before, n_before, character, n):
            return q
        before, n_before = character, n
        q += n
    return stop


@kernel
def encode(words, added, model, model_scratch, work, tallying):
    """See `word_encoding.encode_words`."""
    return word_encoding.encode_words(tokenize, words, added, model, model_scratch, work, tallying)


@kernel
def align(words, model, model_scratch, scratch, out, ends, numbers):
    """See `word_encoding.align_words`."""
    return word_encoding.align_words(tokenize, words, model, model_scratch, scratch, out, ends, numbers)


@kernel
def count_swallowed(words, counts, model, model_scratch, scratch, out, unk_id, characters):
    """See `word_encoding.count_swallowed`."""
    word_encoding.count_swallowed(tokenize, words, counts, model, model_scratch, scratch, out, unk_id, characters)
