# SPDX-License-Identifier: Apache-2.0
"""BPE fused with each scanner: one kernel per pattern that byte-level models ship, from raw bytes to ids.

Every kernel is `encode_joined`, or `encode_apart` where there is something between words, for its scanner; its name is
the scanner's. `inner` is the model without its suffix, for parts that are not the last of their word; in kernels that
are not among `OF_SUFFIXES` it is the model itself.
"""

import numpy as np

from tokenizer.kernels import ascii_blocks, scanners
from tokenizer.kernels.bpe_characters import END_ROWS, emit_characters, remember_character
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.scanned_words import encode_apart, encode_automata, encode_joined
from tokenizer.kernels.word_cache import emit_short
from tokenizer.kernels.word_encoding import encode_word
from tokenizer.kernels.words_bpe import is_whole, mark_inner, next_cut, tokenize, tokenize_inner


@kernel_part
def _encode_parts(has_suffix, data, i, stop, n_readable, is_asked, models, model_scratch, work, tallying, o):
    """`encode_found` of BPE, which cuts words; has_suffix: whether the last part of a word may be another one."""
    inner, model = models
    taken, slots, ids, characters = work.cache.taken, work.cache.slots, work.cache.ids, work.cache.characters
    out, part = work.out, work.scratch.word
    end_rows = END_ROWS if has_suffix else 0
    slot_mask = np.uint64(slots.shape[0] - 1)
    at = i
    # Asked for are words of ASCII, which are not cut.
    while True:
        at, o = emit_characters(data, at, stop, model, end_rows, characters, out, o)
        if at == stop:
            return o, True
        cut = next_cut(data, at, stop, inner)
        w = cut - at
        is_done = False
        if has_suffix and cut < stop:
            w = mark_inner(data, at, w, part)
            o_word = o
            o, is_done = emit_short(taken, slots, slot_mask, ids, part, 0, w, out, o)
            if not is_done:
                o, fits = encode_word(tokenize_inner, part, 0, w, inner, model_scratch, work, tallying, o)
                if not fits:
                    return o, False
                remember_character(data, at, w - 1, inner, 0, characters, out, o_word, o)
            at = cut
            continue
        if at < n_readable and not is_asked:
            o, is_done = emit_short(taken, slots, slot_mask, ids, data, at, w, out, o)
        if not is_done:
            o_word = o
            o, fits = encode_word(tokenize, data, at, w, model, model_scratch, work, tallying, o)
            if not fits:
                return o, False
            if at < n_readable and not is_whole(data, at, w, model):
                remember_character(data, at, w, inner, end_rows, characters, out, o_word, o)
        at = cut


@kernel_part
def _encode_inner(data, i, stop, n_readable, is_asked, models, model_scratch, work, tallying, o):
    return _encode_parts(False, data, i, stop, n_readable, is_asked, models, model_scratch, work, tallying, o)


OF_SUFFIXES = ("clip", "clip_openai", "nonspace", "unicode_words", "bert")
"""Kernels for models whose suffix marks the last part of a word; the others do not know it."""


@kernel_part
def _encode_last(data, i, stop, n_readable, is_asked, models, model_scratch, work, tallying, o):
    has_suffix = models[1].suffix.size > models[0].suffix.size
    return _encode_parts(has_suffix, data, i, stop, n_readable, is_asked, models, model_scratch, work, tallying, o)


@kernel
def gpt2(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_gpt2, ascii_blocks.gpt2_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def gpt2_digits(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_gpt2_digits, ascii_blocks.no_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_cl100k, ascii_blocks.cl100k_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_ascii(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_cl100k_ascii, ascii_blocks.cl100k_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_tiktoken(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_cl100k_tiktoken, ascii_blocks.cl100k_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_ruby(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_cl100k_ruby, ascii_blocks.cl100k_ruby_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen2(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_qwen2, ascii_blocks.qwen2_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen2_ascii(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_qwen2_ascii, ascii_blocks.qwen2_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen35(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_qwen35, ascii_blocks.qwen2_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def o200k(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_o200k, ascii_blocks.o200k_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def tekken(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_tekken, ascii_blocks.tekken_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def kimi_k2(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_kimi_k2, ascii_blocks.kimi_k2_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def deepseek(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_deepseek, ascii_blocks.no_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def bloom(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_bloom, ascii_blocks.bloom_starts,
        _encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def automata(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_automata(_encode_inner, classes, rows, added, (inner, model), model_scratch, work, tallying)


@kernel
def clip(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_apart(
        scanners.next_clip, ascii_blocks.clip_starts, ascii_blocks.clip_stops,
        _encode_last, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def clip_openai(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_apart(
        scanners.next_clip_openai, ascii_blocks.no_starts, ascii_blocks.no_starts,
        _encode_last, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def nonspace(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_apart(
        scanners.next_nonspace, ascii_blocks.nonspace_starts, ascii_blocks.nonspace_stops,
        _encode_last, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def unicode_words(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_apart(
        scanners.next_unicode_words, ascii_blocks.unicode_words_starts, ascii_blocks.unicode_words_stops,
        _encode_last, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def bert(classes, rows, added, inner, model, model_scratch, work, tallying):
    return encode_apart(
        scanners.next_bert, ascii_blocks.bert_starts, ascii_blocks.bert_stops,
        _encode_last, classes, rows, added, (inner, model), model_scratch, work, tallying,
    )  # fmt: skip
