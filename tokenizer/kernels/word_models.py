# SPDX-License-Identifier: Apache-2.0
"""Models over words that have been found already: BPE; WordPiece, WordLevel and Unigram, which may read spelled bytes.

A model is a `kernel_part` `tokenize(word, w, is_flagged, model, model_scratch, out, o, ends) -> (o, has_unknown)`,
passed by name and inlined, so that every model has machine code of its own; is_flagged: whether it is only a part of a
word, and not the last. With it kernels are made that handle the spans that the encode loop's table does not have, that
align tokens, and that count what unknown tokens swallow.

Its reference implementations are `tokenmill.tokenizer.models.bpe.BPE.tokenize_bytes`,
`tokenmill.tokenizer.reference_encoding.wordpiece`, `tokenmill.tokenizer.models.wordlevel.WordLevel.tokenize`,
`tokenmill.tokenizer.models.unigram.Unigram.tokenize`; `tests/tokenizer/test_encode.py` compares them, and
`tests/tokenizer/models/test_bpe_cuts.py` the cuts of BPE.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, store_u64
from tokenmill.tokenizer.compiling.references import values_of
from tokenmill.tokenizer.kernels.bpe import bpe_word
from tokenmill.tokenizer.kernels.bpe_crossings import character_value, is_apart, is_apart_at, may_cross
from tokenmill.tokenizer.kernels.bpe_pairs import may_join
from tokenmill.tokenizer.kernels.encode_loop import AT, KEY_0, KEY_1, SLOT, STOP
from tokenmill.tokenizer.kernels.span_table import FLAG, MISSES, find_span, remember_span
from tokenmill.tokenizer.kernels.spelled_bytes import read_word
from tokenmill.tokenizer.kernels.unigram import unigram_word
from tokenmill.tokenizer.kernels.utf8 import add_whole_characters, character_bytes, continues_character, decode_utf8
from tokenmill.tokenizer.kernels.whole_words import whole_word, wordlevel_word
from tokenmill.tokenizer.kernels.word_table import SHORT_WORD_BYTES, add_count, word_key_anywhere
from tokenmill.tokenizer.kernels.wordpiece import wordpiece

_LONGEST_UNCUT = 6
"""In bytes: shorter words of characters, or as long ones, are not cut."""

_THREE_BYTES = 0xE1
"""The least first byte of characters of three bytes or more, except those of India's scripts, which use spaces."""


@kernel_part
def _copy_span(data, at, w, word):
    """Copies a span of w bytes to the beginning of `word`, which has room for eight bytes more."""
    q = 0
    if at + w + 8 <= data.size:
        while q < w:
            store_u64(word, q, load_u64(data, at + q))
            q += 8
    for r in range(q, w):
        word[r] = data[at + r]


@kernel_part
def miss_by(tokenize, arguments, k, o):
    """Appends the ids of span k of a batch and puts them in the table.

    Args:
      tokenize: runs the model: `tokenize(word, w, is_flagged, model, model_scratch, out, o, ends) -> (o, has_unknown)`.
      arguments: a reference to the text, the model, its scratch and the Work.
    """
    data, model, model_scratch, work = values_of(arguments)
    table, batch, out = work.table, work.batch, work.out
    flag = batch[AT + k] & FLAG
    at = np.int64(batch[AT + k] ^ flag)
    w = np.int64(batch[STOP + k]) - at
    k0, k1 = batch[KEY_0 + k], batch[KEY_1 + k]
    before = o
    o, found, has_unknown, j = find_span(table, data, at, w, k0, k1, batch[SLOT + k], out, o)
    if not found:
        _copy_span(data, at, w, work.word)
        o, has_unknown = tokenize(work.word, w, flag != np.uint64(0), model, model_scratch, out, before, work.ends)
        table.state[MISSES] += 1
        if o == before or out[before] >= 0:  # else a character is unknown, and the whole call fails
            remember_span(table, data, at, w, k0, k1, j, out, before, o, has_unknown)
    if has_unknown and work.tallying:
        h0, h1 = word_key_anywhere(data, at, w)
        add_count(work.tally, data, at, w, h0, h1, 1)
    return o


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
    """Tokenizes one word, or a part of one.

    models: a pair: the model without its suffix, for all parts of a word but the last, and the whole.
    """
    inner, model = models
    if is_inner:
        return bpe_word(word, 0, w, inner, model_scratch, out, o, ends)
    return bpe_word(word, 0, w, model, model_scratch, out, o, ends)


@kernel
def miss(arguments, k, o):
    """See `miss_by`; the model is a pair, as in `tokenize`."""
    return miss_by(tokenize, arguments, k, o)


@kernel_part
def _wordpiece(text, n, model, scratch, out, o, ends):
    return wordpiece(text, n, model, out, o, ends)


@kernel_part
def tokenize_wordpiece(word, w, is_flagged, model, reading, out, o, ends):
    """Tokenizes one word. reading: spelled_bytes.Reading."""
    return read_word(_wordpiece, word, w, model, reading, out, o, ends)


@kernel_part
def tokenize_wordlevel(word, w, is_flagged, model, reading, out, o, ends):
    """Tokenizes one word. reading: spelled_bytes.Reading."""
    return read_word(wordlevel_word, word, w, model, reading, out, o, ends)


@kernel_part
def tokenize_unigram(word, w, is_flagged, model, reading, out, o, ends):
    """Tokenizes one word. reading: spelled_bytes.Reading."""
    return read_word(unigram_word, word, w, model, reading, out, o, ends)


@kernel
def miss_wordpiece(arguments, k, o):
    """See `miss_by`."""
    return miss_by(tokenize_wordpiece, arguments, k, o)


@kernel
def miss_wordlevel(arguments, k, o):
    """See `miss_by`."""
    return miss_by(tokenize_wordlevel, arguments, k, o)


@kernel
def miss_unigram(arguments, k, o):
    """See `miss_by`."""
    return miss_by(tokenize_unigram, arguments, k, o)


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
