# SPDX-License-Identifier: Apache-2.0
"""BPE over words that have been found already.

Its reference implementation is `tokenmill.tokenizer.models.bpe.BPE.tokenize_bytes`;
`tests/tokenizer/models/test_bpe_cuts.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.bpe import bpe_word
from tokenmill.tokenizer.kernels.bpe_crossings import character_value, is_apart, is_apart_at, may_cross
from tokenmill.tokenizer.kernels.bpe_pairs import may_join
from tokenmill.tokenizer.kernels.misses import miss_by
from tokenmill.tokenizer.kernels.utf8 import character_bytes, decode_utf8
from tokenmill.tokenizer.kernels.whole_words import whole_word
from tokenmill.tokenizer.kernels.word_table import SHORT_WORD_BYTES

_LONGEST_UNCUT = 6
"""In bytes: shorter words of characters, or as long ones, are not cut."""

_THREE_BYTES = 0xE1
"""The least first byte of characters of three bytes or more, except those of India's scripts, which use spaces."""


@kernel_part
def is_whole(data, at, w, model):
    """Whether `data[at:at + w]`, as a whole word, is an entry that merges would not make; see `next_cut`."""
    return w <= model.longest_whole and whole_word(data, at, w, model.whole_slots, model.whole_pool) >= 0


@kernel_part
def _is_cut(data, at, cut, stop, model):
    """Whether `data[at:stop]`, a word or the rest of one, may be cut at `cut`, where no token reaches across.

    A part must not be an entry that only a whole word can become.
    """
    return not is_whole(data, at, cut - at, model) and not is_whole(data, cut, stop - cut, model)


@kernel_part
def _symbol(data, at, model):
    """Returns the symbol of the character at `at`, -1 if the vocabulary does not have it."""
    if data[at] < 0x80:
        return np.int64(model.characters[0, data[at]]) - 1
    code_point, _ = decode_utf8(data, at)
    return np.int64(model.characters[0, code_point]) - 1


@kernel_part
def _next_character_cut(data, at, stop, model):
    """Does `next_cut` for words of characters: a row of text with "▁" for spaces may be a single word.

    A word is cut before characters of three bytes or more, if no merge joins one with the character before it.
    """
    if stop - at <= _LONGEST_UNCUT or model.characters.shape[0] != 1:
        return stop
    if stop + SHORT_WORD_BYTES > data.size or is_whole(data, at, stop - at, model):
        return stop
    for q in range(at + 1, stop):
        if data[q] < _THREE_BYTES:
            continue
        p = q - 1
        while data[p] & 0xC0 == 0x80:
            p -= 1
        left, right = _symbol(data, p, model), _symbol(data, q, model)
        if left >= 0 and right >= 0 and not may_join(model.joins, left, right) and _is_cut(data, at, q, stop, model):
            return q
    return stop


@kernel_part
def _next_byte_cut(data, at, stop, model):
    """Does `next_cut` for byte-level words; see `bpe_crossings`.

    Only words that begin with a character of three bytes or more, or with a space and one, are cut.
    """
    if stop + SHORT_WORD_BYTES > data.size:
        return stop
    if data[at] < _THREE_BYTES and data[at + 1] < _THREE_BYTES:
        return stop
    n_before = character_bytes(data[at])
    before = character_value(data, at, n_before)
    q = at + n_before
    while q < stop:
        n = character_bytes(data[q])
        character = character_value(data, q, n)
        crosses = n == 1 or not is_apart(model.apart, before, n_before)
        crosses = crosses and (n == 1 or may_cross(model, before, n_before, character, n))
        if not crosses and _is_cut(data, at, q, stop, model):
            return q
        before, n_before = character, n
        q += n
    return stop


@kernel_part
def next_cut(data, at, stop, models, tallying):
    """Returns where the part of a word that begins at `at` ends, so that no token reaches across; `stop` for no cut."""
    inner, _ = models
    if not inner.byte_level:
        return stop if tallying else _next_character_cut(data, at, stop, inner)  # counted words stay whole
    if not inner.plain_bytes or inner.suffix.size > 0 or at + 3 >= stop:
        return stop
    # This covers most Chinese text, for most models.
    if data[at + 3] >= 0x80 and is_apart_at(inner.apart, data, at) and inner.longest_whole == 0:
        return at + 3
    return _next_byte_cut(data, at, stop, inner)


@kernel_part
def tokenize(word, w, is_inner, models, model_scratch, out, o, ends):
    """Tokenizes one word, or a part of one; see `word_loops`.

    models: a pair: the model without its suffix, for all parts of a word but the last, and the whole.
    """
    inner, model = models
    if is_inner:
        return bpe_word(word, 0, w, inner, model_scratch, out, o, ends)
    return bpe_word(word, 0, w, model, model_scratch, out, o, ends)


@kernel
def miss(arguments, k, o):
    """See `misses.miss_by`; the model is a pair, as in `tokenize`."""
    return miss_by(tokenize, arguments, k, o)
