# SPDX-License-Identifier: Apache-2.0
"""Models on one word: BPE; WordPiece, WordLevel and Unigram, which may read spelled bytes.

A model is a kernel `tokenize(own, buffers, w, is_part, o) -> (o, has_unknown)`, called by address; own: a reference to
its tables and its scratch; buffers: to the word, uint8[n], and to the ids and ends of tokens to fill, int32[n] and
int64[n]; is_part: whether the w bytes are only a part of a word, and not the last. With a model, kernels here handle
the spans that the encode loop's table does not have, align tokens, and count what unknown tokens swallow.

Its reference implementations are `tokenmill.tokenizer.models.bpe.BPE.tokenize_bytes`,
`tokenmill.tokenizer.reference_encoding.wordpiece`, `tokenmill.tokenizer.models.wordlevel.WordLevel.tokenize`,
`tokenmill.tokenizer.models.unigram.Unigram.tokenize`; `tests/tokenizer/test_encode.py` compares them, and
`tests/tokenizer/models/test_bpe_cuts.py` the cuts of BPE.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, store_u64
from tokenmill.tokenizer.compiling.references import refer
from tokenmill.tokenizer.kernels.bpe import bpe_part
from tokenmill.tokenizer.kernels.by_address import call_model, fields_of
from tokenmill.tokenizer.kernels.encode_loop import AT, KEY_0, KEY_1, SLOT, STOP
from tokenmill.tokenizer.kernels.span_table import FLAG, MISSES, find_span, remember_span
from tokenmill.tokenizer.kernels.spelled_bytes import read_word
from tokenmill.tokenizer.kernels.unigram import unigram_word
from tokenmill.tokenizer.kernels.utf8 import add_whole_characters, continues_character
from tokenmill.tokenizer.kernels.whole_words import wordlevel_word
from tokenmill.tokenizer.kernels.word_table import add_count, word_key_anywhere
from tokenmill.tokenizer.kernels.wordpiece import wordpiece


@kernel_part
def tokenize_bpe(own, buffers, w, is_part, o):
    """Tokenizes one word, or a part of one: only the last takes the suffix."""
    model, scratch = fields_of(own)
    word, out, ends = fields_of(buffers)
    return bpe_part(word, 0, w, model.suffix.size > 0 and not is_part, model, scratch, out, o, ends)


@kernel_part
def _wordpiece(text, n, model, scratch, out, o, ends):
    return wordpiece(text, n, model, out, o, ends)


@kernel_part
def _read_by(tokenize, own, buffers, w, o):
    """Tokenizes one word, maybe spelled; own: a reference to the model and to spelled_bytes.Reading."""
    model, reading = fields_of(own)
    word, out, ends = fields_of(buffers)
    return read_word(tokenize, word, w, model, reading, out, o, ends)


@kernel_part
def tokenize_wordpiece(own, buffers, w, is_part, o):
    """Tokenizes one word."""
    return _read_by(_wordpiece, own, buffers, w, o)


@kernel_part
def tokenize_wordlevel(own, buffers, w, is_part, o):
    """Tokenizes one word."""
    return _read_by(wordlevel_word, own, buffers, w, o)


@kernel_part
def tokenize_unigram(own, buffers, w, is_part, o):
    """Tokenizes one word."""
    return _read_by(unigram_word, own, buffers, w, o)


MODELS = {
    "bpe": tokenize_bpe, "unigram": tokenize_unigram, "wordlevel": tokenize_wordlevel, "wordpiece": tokenize_wordpiece
}  # fmt: skip


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
def miss(own, loop, k, o):
    """Appends the ids of span k of a batch and puts them in the table; own: a reference to the model, a Step."""
    (model,) = fields_of(own)
    data, _, _, work = fields_of(loop)
    table, batch, out = work.table, work.batch, work.out
    flag = batch[AT + k] & FLAG
    at = np.int64(batch[AT + k] ^ flag)
    w = np.int64(batch[STOP + k]) - at
    k0, k1 = batch[KEY_0 + k], batch[KEY_1 + k]
    before = o
    o, found, has_unknown, j = find_span(table, data, at, w, k0, k1, batch[SLOT + k], out, o)
    if not found:
        _copy_span(data, at, w, work.word)
        buffers = refer((work.word, out, work.ends))
        o, has_unknown = call_model(model, (buffers, w, flag != np.uint64(0), before))
        table.state[MISSES] += 1
        if o == before or out[before] >= 0:  # else a character is unknown, and the whole call fails
            remember_span(table, data, at, w, k0, k1, j, out, before, o, has_unknown)
    if has_unknown and work.tallying:
        h0, h1 = word_key_anywhere(data, at, w)
        add_count(work.tally, data, at, w, h0, h1, 1)
    return o


@kernel
def align(words, model, word, token_ends, out, ends, numbers):
    """Encodes words, and finds where in its word each token ends.

    Args:
      words: words.Words; model: Step.
      word: uint8 with room for the longest word; token_ends: int64 with room for the ends of its tokens; for work.
      out: int32[n], ends: int64[n], numbers: int32[n] (the word's), filled: one entry per token, with room for one per
        byte.

    Returns:
      The number of tokens.
    """
    values, starts, stops, _ = words
    buffers = refer((word, out, token_ends))
    o = 0
    for k in range(starts.size):
        w = stops[k] - starts[k]
        for q in range(w):
            word[q] = values[starts[k] + q]
        before = o
        o, _ = call_model(model, (buffers, w, False, o))
        for t in range(before, o):
            ends[t] = token_ends[t - before]
            numbers[t] = k
    return o


@kernel
def count_swallowed(words, counts, model, word, ends, out, unk_id, characters):
    """Adds up, by code point, the characters that the unknown token swallowed in words that occurred `counts` times.

    Args:
      words: words.Words; counts: int64[n_words]; model: Step.
      word: uint8 with room for the longest word; ends: int64 with room for the ends of its tokens; out: int32 with room
        for these; for work.
      unk_id: the unknown token, -1 if there is none.
      characters: int64[0x110000], added to. A character counts once if unknown tokens have any of its bytes, but not if
        it is split between two words.
    """
    values, starts, stops, _ = words
    buffers = refer((word, out, ends))
    for k in range(starts.size):
        w = stops[k] - starts[k]
        for q in range(w):
            word[q] = values[starts[k] + q]
        n_tokens, _ = call_model(model, (buffers, w, False, np.int64(0)))
        begin = 0
        counted = 0
        for t in range(n_tokens):
            if out[t] == unk_id:
                while begin > counted and continues_character(word[begin]):
                    begin -= 1
                begin = max(begin, counted)
                counted = add_whole_characters(word, begin, ends[t], w, counts[k], characters)
            begin = ends[t]
