# SPDX-License-Identifier: Apache-2.0
"""Patterns as automata: any pattern at the speed of a table, or several, each cutting what the one before left.

`data[i:end]` is valid UTF-8 and not empty. Bytes after `end` may be read, never beyond the array, and never decide
anything.

Its slow twin is `tokenizer.pre_tokenizers.patterns.find_segments`; `tests/tokenizer/pre_tokenizers/test_automata.py`
compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.compiling.kernel import kernel, kernel_part, leading_zeros, load_u64, trailing_zeros, unlikely
from tokenizer.compiling.references import values_of
from tokenizer.kernels.automata_composed import ANY_CASE, GIVEN_UP, OPEN_BYTES, Composed, pass_letters, read_on
from tokenizer.kernels.scanners_parts import leading_letters, leading_lower
from tokenizer.kernels.utf8 import decode_utf8

_THREE_BYTES = 0xE1
"""First byte of characters of three bytes and more, but those of the scripts of India, which have spaces."""
_FIRST, _LAST, _BASE, _BITS, _LONG_STARTS, _AT, _PLACE, _ROOT = range(8)
_MATCHED, _ALIVE = np.uint64(1), np.uint64(2)
_ONE = np.uint64(1)
_FREE_STEPS = 64
"""Behind a match so many looks are not counted: they are at most so many times the text."""
STEPS_OF_MEBIBYTE = 1 << 30
"""How often patterns may look at a character in vain, for each started mebibyte of a text, before it is given up; some
would take the square of its length."""
LEFT, GAVE_UP = 0, 1
"""Places in `Automata.steps`."""


class Automata(NamedTuple):
    """Patterns in the order in which they cut; `w` kinds of characters and the end of the text."""

    classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: twice the kind that a code point is of, less than 2 * w."""
    byte_classes: npt.NDArray[np.uint8]
    """uint8[256]: the same of what a byte is spelled as in GPT-2's alphabet."""
    transitions: npt.NDArray[np.int32]
    """int32[n_states, w + 2, 2] in one row: what an entry goes on as by the kind of the next character or the end of
    the text, and which letters leave it as it is. An entry is the place of a state, and one more if a match ends before
    the character that has led to it: so each state is there twice. From the first one nothing can match."""
    starts: npt.NDArray[np.int32]
    """int32[n_patterns, 2 * w + 1]: the first entry, by twice the kind of the character before, 2 * w for none."""
    looks_behind: npt.NDArray[np.bool_]
    """bool[n_patterns]: where it starts depends on the character before."""
    spelled: npt.NDArray[np.bool_]
    """bool[n_patterns]: sees bytes spelled in GPT-2's alphabet."""
    firsts: npt.NDArray[np.bool_]
    """bool[n_patterns, 256]: whether a match might begin with a character that begins with this byte."""
    composed: Composed
    """All of them as `automata_composed` has them, if it does."""
    candidates: npt.NDArray[np.int64]
    """int64[n_patterns], changed: before this place no match begins."""
    ends: npt.NDArray[np.int64]
    """int64[n_patterns + 1], changed: where the text ends, and the piece of each pattern, that is being cut."""
    begins: npt.NDArray[np.int64]
    """int64[n_patterns + 1], changed: where these begin."""
    block: npt.NDArray[np.int64]
    """int64[8], changed: where a block begins, where its last word starts, which byte the lowest bit is of, the bits of
    where words start in it, and of where characters of three bytes begin; then, of all patterns as one, how far it
    has read, in which state it is, and where the last word starts that the first pattern has cut."""
    steps: npt.NDArray[np.int64]
    """int64[2], changed: how many looks at characters of this text are left, and 1 if they were too few somewhere."""


@kernel_part
def _kind(data, i, classes, byte_classes, spelled):
    """Returns twice the kind that the character at i is of, and where the next one begins."""
    b = data[np.uint64(i)]
    if spelled:
        return np.int64(byte_classes[b]), i + 1
    if b < 128:
        return np.int64(classes[b]), i + 1
    code_point, after = decode_utf8(data, i)
    return np.int64(classes[np.uint64(code_point)]), after


@kernel_part
def _match_end(data, i, end, pattern, before, automata, spelled):
    """Returns where the match that begins at i, behind a character of kind `before`, ends; i where there is none."""
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
    """Returns twice the kind that the character before i is of."""
    if i == begin:
        return np.int64(automata.starts.shape[1] - 1)
    at = i - 1
    while not spelled and data[np.uint64(at)] & 0xC0 == 0x80:
        at -= 1
    return _kind(data, at, automata.classes, automata.byte_classes, spelled)[0]


@kernel_part
def _candidate(data, i, end, pattern, automata):
    """Returns the first place from i on where a match might begin, `end` where there is none; remembers it."""
    firsts = automata.firsts
    while i < end and not firsts[pattern, data[np.uint64(i)]]:
        i += 1
    automata.candidates[pattern] = i
    return i


@kernel_part
def _find(data, begin, i, end, pattern, automata, spelled):
    """Returns where the match, or what lies before one, that begins at i ends, and whether it is a match.

    Where the next match might begin is looked for beyond the end: what comes next is asked about too.
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
    """Makes ready for the text `data[i:end]`."""
    automata.ends[:] = i
    automata.ends[0] = end
    automata.begins[0] = i
    automata.candidates[:] = i - 1
    automata.steps[LEFT] = (1 + ((end - i) >> 20)) * STEPS_OF_MEBIBYTE


@kernel_part
def next_segment(data, begin, i, end, pattern, automata):
    """Returns where the match of a pattern, or what lies before one, that begins at i ends, and whether it is a match.

    `data[begin:end]` is the text, or a piece of the one that `start_text` was called for; pattern: uint64.
    """
    if automata.spelled[pattern]:
        return _find(data, begin, i, end, pattern, automata, True)
    return _find(data, begin, i, end, pattern, automata, False)


@kernel_part
def next_automata(data, i, end, automata):
    """Cuts with one pattern after the other; a scanner, see `scanning`. Texts end at different places."""
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
    """Returns which words begin with a long character, or one byte and such, and have six bytes before the next one."""
    near = bits >> _ONE
    near |= near >> _ONE
    near |= near >> np.uint64(2) | near >> np.uint64(4)
    return bits & ~near & (longs | longs >> _ONE)


@kernel
def _cut_again(reference, i, stop, end):
    """Has the patterns cut one after the other from i, where the first one cuts, up to where a word starts."""
    data, automata = values_of(reference)
    for level in range(1, automata.ends.size):
        automata.ends[level] = i
    while i < stop:
        i = next_automata(data, i, end, automata)


@kernel
def _read_block(reference, i, end):
    """Finds words from i on with all patterns as one; returns False where they must cut one after the other."""
    data, automata = values_of(reference)
    block, composed = automata.block, automata.composed
    if automata.ends[0] != end:
        start_text(i, end, automata)
        block[_PLACE] = GIVEN_UP
    if block[_PLACE] == GIVEN_UP:
        if automata.ends[1] > i:
            return False
        # Where the first pattern cuts, all begin anew.
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
    """Returns where words start in a block from i on, bit 0 being i, up to the first that had better be cut."""
    bits, long_starts = np.uint64(block[_BITS]), np.uint64(block[_LONG_STARTS])
    ahead = i - block[_BASE]
    if ahead < 0:
        # A word that was begun before what was read last.
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
    """Returns where the word ends that starts at i, before the last one of a block."""
    ahead = max(i + 1 - block[_BASE], 0)
    return block[_BASE] + ahead + trailing_zeros(np.uint64(block[_BITS]) >> np.uint64(ahead))


@kernel
def _starts(reference, i, end):
    """Returns where words start from i on, as far as they lie in 64 bytes, bit 0 being i; remembers them."""
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
    # Words of other scripts take the long way, which cuts them where it can.
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
    """Returns where words start, as a call unless that is known: it has enough to keep in registers.

    reference: of data and Automata.
    """
    _, automata = values_of(reference)
    if _is_known(i, automata.block):
        return _known_starts(data, i, automata.block)
    if _is_other_script(data, i):
        return np.uint64(0)
    return _starts(reference, i, end)


@kernel_part
def next_referred(data, i, end, reference):
    """`next_automata` behind `referred_starts`, which may have gone farther."""
    _, automata = values_of(reference)
    if _is_known(i, automata.block):
        return _known_stop(i, automata.block)
    return _next(reference, i, end)
