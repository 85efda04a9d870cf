# SPDX-License-Identifier: Apache-2.0
"""BPE fused with each scanner: one kernel per pattern that byte-level models ship, from raw bytes to ids.

Every kernel is `_encode` for its scanner; its name is the scanner's.
"""

import numpy as np

from tokenizer.kernels import ascii_blocks, scanners
from tokenizer.kernels.ascii_blocks import BLOCK_READS
from tokenizer.kernels.bpe_characters import emit_characters, remember_character
from tokenizer.kernels.compiling import kernel, kernel_part, trailing_zeros
from tokenizer.kernels.hot_words import emit_hot, remember_hot
from tokenizer.kernels.scanners_parts import skip_spaces
from tokenizer.kernels.word_cache import AT_BYTE, AT_ID, AT_ROW, COUNTER_TOTAL, IN_ROW, emit_short
from tokenizer.kernels.word_encoding import encode_word, stop_early
from tokenizer.kernels.word_table import SHORT_WORD_BYTES
from tokenizer.kernels.words_bpe import is_whole, next_cut, tokenize

_ONE = np.uint64(1)
_TWO = np.uint64(2)


@kernel_part
def _encode(next_stop, next_start, word_starts, classes, rows, added, model, model_scratch, work, tallying):
    """Encodes rows, a ragged.Ragged of bytes, whose words a scanner finds; otherwise as `word_encoding.encode_words`.

    A scanner is a `kernel_part` `next_stop(data, i, end, classes) -> stop`, and `next_start` likewise where there is
    something between words; they are passed by name and inlined.

    `word_starts(data, i)` is one of `ascii_blocks`. Most words lie in blocks of ASCII and are in the cache, at the
    first place looked at: they take the short way, everything else the long one.
    """
    data, offsets = rows
    position, out, slots, ids = work.position, work.out, work.cache.slots, work.cache.ids
    characters, hot = work.cache.characters, work.cache.hot
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
            room = min(end - i, BLOCK_READS + 1)
            if room > 2 and i < n_readable and data[i] < 128 and data[i + 1] < 128:
                # Without what lies beyond the text or depends on that, and without the word at i itself.
                starts = word_starts(data, i) & ((_TWO << np.uint64(room - 2)) - _ONE) & ~_ONE
            while starts != np.uint64(0):
                stop = block + trailing_zeros(starts)
                starts &= starts - _ONE
                o, is_done = emit_hot(hot, data, i, stop - i, out, o)
                if not is_done:
                    before = o
                    o, is_done = emit_short(slots, slot_mask, ids, data, i, stop - i, out, o)
                    if not is_done:
                        break
                    remember_hot(hot, data, i, stop - i, out, before, o)
                n_words += 1
                i = stop
            if stop == i:
                if i > block:
                    continue
                stop = next_stop(data, i, end, classes)
            at = i
            before = o
            while True:
                at, o = emit_characters(data, at, stop, model.longest_whole, characters, out, o)
                if at == stop:
                    break
                cut = next_cut(data, at, stop, model)
                is_done = False
                if at < n_readable:
                    o, is_done = emit_short(slots, slot_mask, ids, data, at, cut - at, out, o)
                if not is_done:
                    o_word = o
                    o, fits = encode_word(tokenize, data, at, cut - at, model, model_scratch, work, tallying, o)
                    if not fits:
                        return stop_early(work, row, i, before, n_words)
                    if at < n_readable and not is_whole(data, at, cut - at, model):
                        remember_character(data, at, cut - at, model, characters, out, o_word, o)
                at = cut
            n_words += 1
            i = next_start(data, stop, end, classes)
        work.out_offsets[row + 1] = o
    work.tally.state[COUNTER_TOTAL] += n_words
    return True


@kernel_part
def _nothing_between(data, i, end, classes):
    return i


@kernel
def gpt2(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_gpt2, _nothing_between, ascii_blocks.gpt2_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def gpt2_digits(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_gpt2_digits, _nothing_between, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_cl100k, _nothing_between, ascii_blocks.cl100k_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_ascii(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_cl100k_ascii, _nothing_between, ascii_blocks.cl100k_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_tiktoken(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_cl100k_tiktoken, _nothing_between, ascii_blocks.cl100k_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_ruby(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_cl100k_ruby, _nothing_between, ascii_blocks.cl100k_ruby_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen2(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_qwen2, _nothing_between, ascii_blocks.qwen2_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen2_ascii(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_qwen2_ascii, _nothing_between, ascii_blocks.qwen2_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen35(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_qwen35, _nothing_between, ascii_blocks.qwen2_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def o200k(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_o200k, _nothing_between, ascii_blocks.o200k_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def tekken(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_tekken, _nothing_between, ascii_blocks.tekken_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def deepseek(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_deepseek, _nothing_between, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def clip(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_clip, skip_spaces, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def clip_openai(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_clip_openai, skip_spaces, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def nonspace(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_nonspace, skip_spaces, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def unicode_words(classes, rows, added, model, model_scratch, work, tallying):
    return _encode(
        scanners.next_unicode_words, skip_spaces, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip
