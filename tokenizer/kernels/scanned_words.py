# SPDX-License-Identifier: Apache-2.0
"""Words that a scanner finds, encoded in the same pass: loops that kernels are made of by naming scanner and model."""

import numpy as np

from tokenizer.kernels.ascii_blocks import BLOCK_READS, no_starts
from tokenizer.kernels.automata import next_referred, referred_starts
from tokenizer.kernels.compiling import kernel_part, trailing_zeros
from tokenizer.kernels.hot_words import emit_hot, remember_hot
from tokenizer.kernels.references import refer
from tokenizer.kernels.scanners_parts import skip_spaces
from tokenizer.kernels.word_cache import AT_BYTE, AT_ID, AT_ROW, COUNTER_TOTAL, IN_ROW, emit_short
from tokenizer.kernels.word_encoding import encode_anew, encode_word, stop_early
from tokenizer.kernels.word_table import SHORT_WORD_BYTES

_FIRST_RARE, _LAST_RARE = 0xE3, 0xE9
"""First bytes of kana and ideographs."""
_ONE = np.uint64(1)
_TWO = np.uint64(2)


@kernel_part
def _encode_words(
    next_stop, next_start, find_starts, word_starts, word_stops, are_apart, encode_found,
    classes, rows, added, model, model_scratch, work, tallying,
):  # fmt: skip
    """Encodes rows, a ragged.Ragged of bytes, whose words a scanner finds; otherwise as `word_encoding.encode_words`.

    A scanner is a `kernel_part` `next_stop(data, i, end, classes) -> stop`, and `next_start` likewise where there is
    something between words; they are passed by name and inlined, as is the model,
    `encode_found(data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o) -> (o, fits)`, as
    `word_encoding.encode_word`; `is_asked` says whether the cache has been asked for the whole word, in vain.

    `word_starts(data, i)` and `word_stops(data, i)` are of `ascii_blocks`. Most words lie in blocks of ASCII and are in
    the cache, at the first place looked at: they take the short way, everything else the long one. `find_starts` says
    where words start in the 64 bytes from i, bit 0 being i; it is `_ascii_starts`, or whatever else knows it.

    `are_apart`, a constant, says whether there is something between words.
    """
    data, offsets = rows
    position, out, slots, ids, hot = work.position, work.out, work.cache.slots, work.cache.ids, work.cache.hot
    taken, slot_mask = work.cache.taken, np.uint64(slots.shape[0] - 1)
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
                    o, is_done = emit_short(taken, slots, slot_mask, ids, data, i, stop - i, out, o)
                    if not is_done:
                        break
                    remember_hot(hot, data, i, stop - i, out, before, o)
                n_words += 1
                i = start
            is_asked = stop > i
            if not is_asked:
                if i > block:
                    continue
                stop = next_stop(data, i, end, classes)
            before = o
            o, fits = encode_found(data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o)
            if not fits:
                return stop_early(work, row, i, before, n_words)
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
def _nothing_between(data, i, end, classes):
    return i


@kernel_part
def encode_joined(next_stop, word_starts, encode_found, classes, rows, added, model, model_scratch, work, tallying):
    """`_encode_words` for scanners that leave nothing out."""
    return _encode_words(
        next_stop, _nothing_between, _ascii_starts, word_starts, no_starts, False, encode_found,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel_part
def encode_apart(
    next_stop, word_starts, word_stops, encode_found, classes, rows, added, model, model_scratch, work, tallying
):
    """`_encode_words` for scanners that leave white space out."""
    return _encode_words(
        next_stop, skip_spaces, _ascii_starts, word_starts, word_stops, True, encode_found,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel_part
def encode_automata(encode_found, automata, rows, added, model, model_scratch, work, tallying):
    """`_encode_words` for automata."""
    values, _ = rows
    return _encode_words(
        next_referred, _nothing_between, referred_starts, no_starts, no_starts, False, encode_found,
        refer((values, automata)), rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel_part
def encode_uncut(tokenize, data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o):
    """`encode_found` of models that do not cut words, by naming what tokenizes one."""
    return _encode_by(
        encode_word, tokenize, data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o
    )


@kernel_part
def _encode_by(encode_new, tokenize, data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o):
    if i < n_readable and not is_asked:
        taken, slots = work.cache.taken, work.cache.slots
        slot_mask = np.uint64(slots.shape[0] - 1)
        o, is_done = emit_short(taken, slots, slot_mask, work.cache.ids, data, i, stop - i, work.out, o)
        if is_done:
            return o, True
    return encode_new(tokenize, data, i, stop - i, model, model_scratch, work, tallying, o)


@kernel_part
def encode_listed(encode_new, tokenize, data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o):
    """As `encode_uncut`, for models that look words up in a list; `encode_new` is `encode_word`, or likewise.

    What has no spaces has ever new words: most of them would be in the cache once, in front of the words that come
    back, and the list is the closer table.
    """
    if _FIRST_RARE <= data[i] <= _LAST_RARE and i < n_readable:
        return encode_anew(tokenize, data, i, stop - i, model, model_scratch, work, tallying, o)
    return _encode_by(
        encode_new, tokenize, data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o
    )
