# SPDX-License-Identifier: Apache-2.0
"""Patterns as automata: any pattern at the speed of a table, or several, each cutting the pieces of the one before.

`data[i:end]` is valid UTF-8 and not empty. Bytes after `end` may be read, never beyond the array, but do not affect the
result.

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.patterns.find_segments`;
`tests/tokenizer/pre_tokenizers/test_automata.py` compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, leading_zeros, load_u64, trailing_zeros, unlikely
from tokenmill.tokenizer.compiling.references import values_of
from tokenmill.tokenizer.kernels.automata_composed import (
    ANY_CASE,
    GIVEN_UP,
    OPEN_BYTES,
    Composed,
    pass_letters,
    read_on,
)
from tokenmill.tokenizer.kernels.scanners_parts import leading_letters, leading_lower
from tokenmill.tokenizer.kernels.utf8 import decode_utf8

_THREE_BYTES = 0xE1
"""The least first byte of characters of three bytes or more, except those of India's scripts, which use spaces."""
_FIRST, _LAST, _BASE, _BITS, _LONG_STARTS, _AT, _PLACE, _ROOT = range(8)
_MATCHED, _ALIVE = np.uint64(1), np.uint64(2)
_ONE = np.uint64(1)
_FREE_STEPS = 64
"""Steps beyond a match that are not counted: in all they are at most this many times the text."""
STEPS_OF_MEBIBYTE = 1 << 30
"""Steps beyond matches that patterns may take for each started mebibyte of a text, before they give up on it; some
patterns would take the square of its length."""
LEFT, GAVE_UP = 0, 1
"""Places in `Automata.steps`."""


class Automata(NamedTuple):
    """Patterns in the order in which they cut, over `w` kinds of characters and the end of the text."""

    classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: twice the kind of each code point, less than 2 * w."""
    byte_classes: npt.NDArray[np.uint8]
    """uint8[256]: twice the kind of the character that spells each byte in GPT-2's alphabet."""
    transitions: npt.NDArray[np.int32]
    """int32[n_states, w + 2, 2], flattened: the next entry, by the kind of the next character or the end of the text;
    then the letters that leave the state unchanged. An entry is the place of a state, plus one if a match ends before
    the character that led there; so each state is stored twice. From the first state nothing can match."""
    starts: npt.NDArray[np.int32]
    """int32[n_patterns, 2 * w + 1]: the first entry, by twice the kind of the character before, 2 * w for none."""
    looks_behind: npt.NDArray[np.bool_]
    """bool[n_patterns]: whether the first entry depends on the character before."""
    spelled: npt.NDArray[np.bool_]
    """bool[n_patterns]: whether the pattern reads bytes spelled in GPT-2's alphabet."""
    firsts: npt.NDArray[np.bool_]
    """bool[n_patterns, 256]: whether a match may begin with a character whose first byte this is."""
    composed: Composed
    """All patterns as one automaton; without entries if they do not fit into one."""
    candidates: npt.NDArray[np.int64]
    """int64[n_patterns], changed: no match of the pattern begins before this place."""
    ends: npt.NDArray[np.int64]
    """int64[n_patterns + 1], changed: the ends of the text, and of each pattern's current piece."""
    begins: npt.NDArray[np.int64]
    """int64[n_patterns + 1], changed: the beginnings of the same."""
    block: npt.NDArray[np.int64]
    """int64[8], changed. A block of known words: its beginning, the start of its last word, the byte of its lowest bit,
    a bit where each word starts, a bit where each word to be cut starts. Then the state of all patterns as one: how far
    it has read, the place of its state, the start of the last word that the first pattern has cut."""
    steps: npt.NDArray[np.int64]
    """int64[2], changed: the steps left for this text, and 1 if they ever ran out."""


@kernel_part
def _kind(data, i, classes, byte_classes, spelled):
    """Returns twice the kind of the character at i, int64, and where the next character begins."""
    b = data[np.uint64(i)]
    if spelled:
        return np.int64(byte_classes[b]), i + 1
    if b < 128:
        return np.int64(classes[b]), i + 1
    code_point, after = decode_utf8(data, i)
    return np.int64(classes[np.uint64(code_point)]), after


@kernel_part
def _match_end(data, i, end, pattern, before, automata, spelled):
    """Returns where the match that begins at i ends, i if there is none; before: twice the kind of the one before."""
    classes, byte_classes, transitions = automata.classes, automata.byte_classes, automata.transitions
    last_column = np.int64(automata.starts.shape[1] - 1)
    n_readable = data.size - 8
    entry = np.uint64(automata.starts[pattern, before])
    stop = i
    at = i
    while at < end:
        kind, after = _kind(data, at, classes, byte_classes, spelled)
        last = entry
        entry = np.uint64(transitions[entry + np.uint64(kind)])
        if entry & _MATCHED:
            stop = at
        if entry < _ALIVE:
            break
        at = after
        if entry == last and at < n_readable:
            loop = transitions[entry + np.uint64(last_column + 2)]
            if loop != 0:
                eight = load_u64(data, at)
                n = leading_letters(eight) if loop == ANY_CASE else leading_lower(eight)
                if n > 0:
                    at = min(at + n, end)
                    if entry & _MATCHED:
                        stop = at - 1
    if unlikely(at - stop > _FREE_STEPS):
        automata.steps[LEFT] -= at - stop
    if at >= end and transitions[entry + np.uint64(last_column)] & 1:
        return end
    return stop


@kernel_part
def _kind_before(data, begin, i, automata, spelled):
    """Returns twice the kind of the character before i; 2 * w at the beginning of the text."""
    if i == begin:
        return np.int64(automata.starts.shape[1] - 1)
    at = i - 1
    while not spelled and data[np.uint64(at)] & 0xC0 == 0x80:
        at -= 1
    return _kind(data, at, automata.classes, automata.byte_classes, spelled)[0]


@kernel_part
def _candidate(data, i, end, pattern, automata):
    """Returns the first place from i on where a match may begin, `end` if there is none; stores it in `candidates`."""
    firsts = automata.firsts
    while i < end and not firsts[pattern, data[np.uint64(i)]]:
        i += 1
    automata.candidates[pattern] = i
    return i


@kernel_part
def _find(data, begin, i, end, pattern, automata, spelled):
    """Returns the end of the segment that begins at i, a match or the text before one, and whether it is a match.

    The search for the next candidate goes on beyond `end`, since later calls ask about the bytes there.
    """
    beyond = automata.ends[0]
    at = automata.candidates[pattern]
    if at < i:
        at = _candidate(data, i, beyond, pattern, automata)
    while at < end:
        before = np.int64(0)
        if automata.looks_behind[pattern]:
            before = _kind_before(data, begin, at, automata, spelled)
        stop = _match_end(data, at, end, pattern, before, automata, spelled)
        if unlikely(automata.steps[LEFT] < 0):
            automata.steps[GAVE_UP] = 1
            break
        if stop > at:
            return (stop, True) if at == i else (at, False)
        at = _candidate(data, at + 1, beyond, pattern, automata)
    return end, False


@kernel_part
def start_text(i, end, automata):
    """Prepares `automata` for the text `data[i:end]`."""
    automata.ends[:] = i
    automata.ends[0] = end
    automata.begins[0] = i
    automata.candidates[:] = i - 1
    automata.steps[LEFT] = (1 + ((end - i) >> 20)) * STEPS_OF_MEBIBYTE


@kernel_part
def next_segment(data, begin, i, end, pattern, automata):
    """Returns the end of the segment of a pattern that begins at i, a match or the text before one, and which it is.

    `data[begin:end]` is the text that `start_text` was called for, or a piece of it; pattern: uint64.
    """
    if automata.spelled[pattern]:
        return _find(data, begin, i, end, pattern, automata, True)
    return _find(data, begin, i, end, pattern, automata, False)


@kernel_part
def next_automata(data, i, end, automata):
    """Cuts with one pattern after the other; a scanner, see `scanning`. No two texts may end at the same place."""
    ends, begins = automata.ends, automata.begins
    n = np.uint64(automata.spelled.size)
    level = np.uint64(0)
    if ends[0] != end:
        start_text(i, end, automata)
    else:
        level = n
        while ends[level] <= i:
            level -= _ONE
    stop = ends[level]
    while level < n:
        stop, _ = next_segment(data, begins[level], i, stop, level, automata)
        level += _ONE
        begins[level] = i
        ends[level] = stop
    return stop


@kernel_part
def _is_other_script(data, i):
    return data[np.uint64(i)] >= _THREE_BYTES or data[np.uint64(i + 1)] >= _THREE_BYTES


@kernel_part
def _long_starts(bits, longs):
    """Returns the words that begin with a long character, or one byte and such, and have more than six bytes."""
    near = bits >> _ONE
    near |= near >> _ONE
    near |= near >> np.uint64(2) | near >> np.uint64(4)
    return bits & ~near & (longs | longs >> _ONE)


@kernel
def _cut_again(reference, i, stop, end):
    """Cuts with one pattern after the other from i, where the first pattern cuts, up to `stop`, where a word starts."""
    data, automata = values_of(reference)
    for level in range(1, automata.ends.size):
        automata.ends[level] = i
    while i < stop:
        i = next_automata(data, i, end, automata)


@kernel
def _read_block(reference, i, end):
    """Finds words from i on with all patterns as one; returns False if they must cut one after the other."""
    data, automata = values_of(reference)
    block, composed = automata.block, automata.composed
    if automata.ends[0] != end:
        start_text(i, end, automata)
        block[_PLACE] = GIVEN_UP
    if block[_PLACE] == GIVEN_UP:
        if automata.ends[1] > i:
            return False
        # Where the first pattern cuts, all patterns start again.
        block[_AT] = block[_ROOT] = i
        block[_PLACE] = composed.width
    while True:
        base = block[_AT] - OPEN_BYTES
        bits, roots, longs, at, place = read_on(data, block[_AT], end, block[_PLACE], composed, automata.classes)
        block[_AT], block[_PLACE] = at, place
        if roots != np.uint64(0):
            block[_ROOT] = base + 63 - leading_zeros(roots)
        found = bits != np.uint64(0)
        last = i
        if found:
            last = base + 63 - leading_zeros(bits)
            block[_FIRST], block[_LAST], block[_BASE] = i, last, base
            block[_BITS], block[_LONG_STARTS] = np.int64(bits), np.int64(_long_starts(bits, longs))
        if place == GIVEN_UP:
            _cut_again(reference, block[_ROOT], last, end)
        if found or place == GIVEN_UP:
            return found
        block[_AT] = pass_letters(data, at, end, place, composed)


@kernel_part
def _known_starts(data, i, block):
    """Returns a bit for each known word of the block that starts from i on, bit 0 for i, up to the first to be cut."""
    bits, long_starts = np.uint64(block[_BITS]), np.uint64(block[_LONG_STARTS])
    ahead = i - block[_BASE]
    if ahead < 0:
        # The word began before the bytes that were read last.
        if ahead <= -64 or _is_other_script(data, i):
            return np.uint64(0)
        bits <<= np.uint64(-ahead)
        long_starts <<= np.uint64(-ahead)
    else:
        bits >>= np.uint64(ahead)
        long_starts >>= np.uint64(ahead)
    if long_starts != np.uint64(0):
        bits &= long_starts ^ (long_starts - _ONE)
    return bits


@kernel_part
def _known_stop(i, block):
    """Returns where the word that starts at i ends; it is in the block, and not its last."""
    ahead = max(i + 1 - block[_BASE], 0)
    return block[_BASE] + ahead + trailing_zeros(np.uint64(block[_BITS]) >> np.uint64(ahead))


@kernel
def _starts(reference, i, end):
    """Returns a bit for each word that starts in the 64 bytes from i on, bit 0 for i; keeps them in the block."""
    data, automata = values_of(reference)
    block = automata.block
    is_composed = automata.composed.entries.size > 0
    if is_composed and _read_block(reference, i, end):
        return _known_starts(data, i, block)
    if automata.ends[0] != end:
        start_text(i, end, automata)
    block[_FIRST] = block[_BASE] = i
    block[_LONG_STARTS] = 0
    bits = np.uint64(0)
    at = i
    last = i
    # Words of other scripts go through `_next`, and are cut into parts.
    while at < end and data[np.uint64(at)] < _THREE_BYTES and (at + 1 >= end or data[np.uint64(at + 1)] < _THREE_BYTES):
        at = next_automata(data, at, end, automata)
        if at - i >= 64:
            break
        bits |= _ONE << np.uint64(at - i)
        last = at
        if is_composed and automata.ends[1] <= at:
            break
    block[_LAST] = last
    block[_BITS] = np.int64(bits)
    return bits


@kernel
def _next(reference, i, end):
    data, automata = values_of(reference)
    if automata.composed.entries.size > 0 and _read_block(reference, i, end):
        return _known_stop(i, automata.block)
    return next_automata(data, i, end, automata)


@kernel_part
def _is_known(i, block):
    return block[_FIRST] <= i < block[_LAST]


@kernel_part
def referred_starts(word_starts, data, i, end, reference):
    """Returns where words start; calls `_starts`, instead of inlining it, if that is not known: registers are scarce.

    reference: to the data and an Automata.
    """
    _, automata = values_of(reference)
    if _is_known(i, automata.block):
        return _known_starts(data, i, automata.block)
    if _is_other_script(data, i):
        return np.uint64(0)
    return _starts(reference, i, end)


@kernel_part
def next_referred(data, i, end, reference):
    """Does `next_automata` after `referred_starts`, which may have read ahead."""
    _, automata = values_of(reference)
    if _is_known(i, automata.block):
        return _known_stop(i, automata.block)
    return _next(reference, i, end)
