# SPDX-License-Identifier: Apache-2.0
"""BPE fused with each scanner: one kernel per pattern that byte-level models ship, from raw bytes to ids.

Every kernel is `_encode`, or `_encode_apart` where there is something between words, for its scanner; its name is the
scanner's.
"""

import numpy as np

from tokenizer.kernels import ascii_blocks, scanners
from tokenizer.kernels.ascii_blocks import BLOCK_READS
from tokenizer.kernels.automata import next_referred, referred_starts
from tokenizer.kernels.bpe_characters import END_ROWS, emit_characters, remember_character
from tokenizer.kernels.compiling import kernel, kernel_part, trailing_zeros
from tokenizer.kernels.hot_words import emit_hot, remember_hot
from tokenizer.kernels.references import refer
from tokenizer.kernels.scanners_parts import skip_spaces
from tokenizer.kernels.word_cache import AT_BYTE, AT_ID, AT_ROW, COUNTER_TOTAL, IN_ROW, emit_short
from tokenizer.kernels.word_encoding import encode_word, stop_early
from tokenizer.kernels.word_table import SHORT_WORD_BYTES
from tokenizer.kernels.words_bpe import is_whole, mark_inner, next_cut, tokenize, tokenize_inner

_ONE = np.uint64(1)
_TWO = np.uint64(2)


@kernel_part
def _encode_words(
    next_stop, next_start, find_starts, word_starts, word_stops, are_apart,
    classes, rows, added, inner, model, model_scratch, work, tallying,
):  # fmt: skip
    """Encodes rows, a ragged.Ragged of bytes, whose words a scanner finds; otherwise as `word_encoding.encode_words`.

    A scanner is a `kernel_part` `next_stop(data, i, end, classes) -> stop`, and `next_start` likewise where there is
    something between words; they are passed by name and inlined.

    `word_starts(data, i)` and `word_stops(data, i)` are of `ascii_blocks`. Most words lie in blocks of ASCII and are in
    the cache, at the first place looked at: they take the short way, everything else the long one. `find_starts` says
    where words start in the 64 bytes from i, bit 0 being i; it is `_ascii_starts`, or whatever else knows it.

    `are_apart`, a constant, says whether there is something between words, and whether a model may end words with a
    suffix. `inner` is then the model without it, for parts that are not the last of their word; else it is `model`.
    """
    data, offsets = rows
    position, out, slots, ids = work.position, work.out, work.cache.slots, work.cache.ids
    characters, hot, part = work.cache.characters, work.cache.hot, work.scratch.word
    has_suffix = are_apart and model.suffix.size > inner.suffix.size
    end_rows = END_ROWS if has_suffix else 0
    slot_mask = np.uint64(slots.shape[0] - 1)
    n_readable = data.size - BLOCK_READS - SHORT_WORD_BYTES
    o = position[AT_ID]
    n_words = 0
    for row in range(position[AT_ROW], offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        if position[IN_ROW] != 0:
            i = position[AT_BYTE]
            position[IN_ROW] = 0
        elif added.size > 0 and added[row] >= 0:
            out[o] = added[row]
            o += 1
            i = end
        i = next_start(data, i, end, classes)
        while i < end:
            block = i
            stop = i
            starts = np.uint64(0)
            stops = np.uint64(0)
            if i < n_readable:
                starts = find_starts(word_starts, data, i, end, classes) & ~_ONE
                if are_apart and starts != np.uint64(0):
                    stops = word_stops(data, i)
            while starts != np.uint64(0):
                start = block + trailing_zeros(starts)
                starts &= starts - _ONE
                stop = start
                if are_apart:
                    stop = block + trailing_zeros(stops)
                    stops &= stops - _ONE
                o, is_done = emit_hot(hot, data, i, stop - i, out, o)
                if not is_done:
                    before = o
                    o, is_done = emit_short(slots, slot_mask, ids, data, i, stop - i, out, o)
                    if not is_done:
                        break
                    remember_hot(hot, data, i, stop - i, out, before, o)
                n_words += 1
                i = start
            if stop <= i:
                if i > block:
                    continue
                stop = next_stop(data, i, end, classes)
            at = i
            before = o
            while True:
                at, o = emit_characters(data, at, stop, model, end_rows, characters, out, o)
                if at == stop:
                    break
                cut = next_cut(data, at, stop, inner)
                w = cut - at
                is_done = False
                if has_suffix and cut < stop:
                    w = mark_inner(data, at, w, part)
                    o_word = o
                    o, is_done = emit_short(slots, slot_mask, ids, part, 0, w, out, o)
                    if not is_done:
                        o, fits = encode_word(tokenize_inner, part, 0, w, inner, model_scratch, work, tallying, o)
                        if not fits:
                            return stop_early(work, row, i, before, n_words)
                        remember_character(data, at, w - 1, inner, 0, characters, out, o_word, o)
                    at = cut
                    continue
                if at < n_readable:
                    o, is_done = emit_short(slots, slot_mask, ids, data, at, w, out, o)
                if not is_done:
                    o_word = o
                    o, fits = encode_word(tokenize, data, at, w, model, model_scratch, work, tallying, o)
                    if not fits:
                        return stop_early(work, row, i, before, n_words)
                    if at < n_readable and not is_whole(data, at, w, model):
                        remember_character(data, at, w, inner, end_rows, characters, out, o_word, o)
                at = cut
            n_words += 1
            i = next_start(data, stop, end, classes)
        work.out_offsets[row + 1] = o
    work.tally.state[COUNTER_TOTAL] += n_words
    return True


@kernel_part
def _ascii_starts(word_starts, data, i, end, classes):
    """Returns where words start, without what lies beyond the text or depends on that; 0 if that is not known."""
    room = min(end - i, BLOCK_READS + 1)
    if room > 2 and data[i] < 128 and data[i + 1] < 128:
        return word_starts(data, i) & ((_TWO << np.uint64(room - 2)) - _ONE)
    return np.uint64(0)


@kernel_part
def _encode(next_stop, word_starts, classes, rows, added, inner, model, model_scratch, work, tallying):
    """`_encode_words` for scanners that leave nothing out."""
    return _encode_words(
        next_stop, _nothing_between, _ascii_starts, word_starts, ascii_blocks.no_starts, False,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel_part
def _encode_apart(
    next_stop, word_starts, word_stops, classes, rows, added, inner, model, model_scratch, work, tallying
):
    """`_encode_words` for scanners that leave white space out."""
    return _encode_words(
        next_stop, skip_spaces, _ascii_starts, word_starts, word_stops, True,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel_part
def _nothing_between(data, i, end, classes):
    return i


@kernel
def gpt2(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_gpt2, ascii_blocks.gpt2_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def gpt2_digits(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_gpt2_digits, ascii_blocks.no_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_cl100k, ascii_blocks.cl100k_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_ascii(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_cl100k_ascii, ascii_blocks.cl100k_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_tiktoken(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_cl100k_tiktoken, ascii_blocks.cl100k_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_ruby(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_cl100k_ruby, ascii_blocks.cl100k_ruby_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen2(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_qwen2, ascii_blocks.qwen2_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen2_ascii(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_qwen2_ascii, ascii_blocks.qwen2_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen35(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_qwen35, ascii_blocks.qwen2_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def o200k(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_o200k, ascii_blocks.o200k_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def tekken(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_tekken, ascii_blocks.tekken_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def deepseek(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_deepseek, ascii_blocks.no_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def bloom(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_bloom, ascii_blocks.bloom_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def automata(classes, rows, added, inner, model, model_scratch, work, tallying):
    values, _ = rows
    return _encode_words(
        next_referred, _nothing_between, referred_starts, ascii_blocks.no_starts, ascii_blocks.no_starts, False,
        refer((values, classes)), rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def clip(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode_apart(
        scanners.next_clip, ascii_blocks.clip_starts, ascii_blocks.clip_stops,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def clip_openai(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode_apart(
        scanners.next_clip_openai, ascii_blocks.no_starts, ascii_blocks.no_starts,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def nonspace(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode_apart(
        scanners.next_nonspace, ascii_blocks.nonspace_starts, ascii_blocks.nonspace_stops,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def unicode_words(classes, rows, added, inner, model, model_scratch, work, tallying):
    return _encode_apart(
        scanners.next_unicode_words, ascii_blocks.unicode_words_starts, ascii_blocks.unicode_words_stops,
        classes, rows, added, inner, model, model_scratch, work, tallying,
    )  # fmt: skip
