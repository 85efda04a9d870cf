# SPDX-License-Identifier: Apache-2.0
"""Patterns as automata: any pattern at the speed of a table, or several, each cutting the pieces of the one before.

The encode loop finds most words of ASCII by `blocks`, others by the kinds of two characters, and asks an automaton for
what these leave undecided.

`data[i:end]` is valid UTF-8 and not empty. Bytes after `end` may be read, never beyond the array, but do not affect the
result.

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.patterns.find_segments`;
`tests/tokenizer/pre_tokenizers/test_automata.py` compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, unlikely
from tokenmill.tokenizer.kernels.blocks import SECOND, Rules
from tokenmill.tokenizer.kernels.by_address import fields_of
from tokenmill.tokenizer.kernels.ideographs import ideographs_end, is_ideograph
from tokenmill.tokenizer.kernels.scanners_parts import leading_letters, leading_lower
from tokenmill.tokenizer.kernels.utf8 import decode_utf8

_MATCHED, _ALIVE = np.uint64(1), np.uint64(2)
_ONE = np.uint64(1)
_FREE_STEPS = 64
"""Steps beyond a match that are not counted: in all they are at most this many times the text."""
STEPS_OF_MEBIBYTE = 1 << 30
"""Steps beyond matches that patterns may take for each started mebibyte of a text, before they give up on it; some
patterns would take the square of its length."""
LEFT, GAVE_UP = 0, 1
"""Places in `Automata.steps`."""
ANY_CASE, LOWER_CASE, IDEOGRAPHS, MATCHED_LETTERS, MATCHED_IDEOGRAPHS = 1, 2, 4, 8, 16
"""Characters of which any number leave a state unchanged: ASCII letters, the lower-case ones of these, ideographs; and
whether a match ends before each of them."""


class Automata(NamedTuple):
    """Patterns in the order in which they cut, over `w` kinds of characters and the end of the text."""

    classes: npt.NDArray[np.uint8]
    """uint8[0x110000]: twice the kind of each code point, less than 2 * w."""
    byte_classes: npt.NDArray[np.uint8]
    """uint8[256]: twice the kind of the character that spells each byte in GPT-2's alphabet."""
    transitions: npt.NDArray[np.int32]
    """int32[n_states, w + 2, 2], flattened: the next entry, by the kind of the next character or the end of the text;
    then the characters that leave the state unchanged. An entry is the place of a state, plus one if a match ends
    before the character that led there; so each state is stored twice. From the first state nothing can match."""
    starts: npt.NDArray[np.int32]
    """int32[n_patterns, 2 * w + 1]: the first entry, by twice the kind of the character before, 2 * w for none."""
    looks_behind: npt.NDArray[np.bool_]
    """bool[n_patterns]: whether the first entry depends on the character before."""
    spelled: npt.NDArray[np.bool_]
    """bool[n_patterns]: whether the pattern reads bytes spelled in GPT-2's alphabet."""
    firsts: npt.NDArray[np.bool_]
    """bool[n_patterns, 256]: whether a match may begin with a character whose first byte this is."""
    candidates: npt.NDArray[np.int64]
    """int64[n_patterns], changed: no match of the pattern begins before this place."""
    matches: npt.NDArray[np.int64]
    """int64[n_patterns], changed: where the match ends that begins at the candidate; -1 if that is not known."""
    ends: npt.NDArray[np.int64]
    """int64[n_patterns + 1], changed: the ends of the text, and of each pattern's current piece."""
    begins: npt.NDArray[np.int64]
    """int64[n_patterns + 1], changed: the beginnings of the same."""
    steps: npt.NDArray[np.int64]
    """int64[2], changed: the steps left for this text, and 1 if they ever ran out."""


class Cuts(NamedTuple):
    """Patterns that the encode loop cuts with."""

    automata: Automata
    rules: Rules
    """Where they cut ASCII."""
    keeps_all: bool
    """Whether all segments are words."""
    drops_matches: bool
    """If segments are dropped: whether these are the matches, or what is between them."""
    root: npt.NDArray[np.int64]
    """int64[1], changed: the last place known where the first of several patterns cuts."""


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
        entry = np.uint64(transitions[entry + np.uint64(kind)])
        if entry & _MATCHED:
            stop = at
        if entry < _ALIVE:
            break
        at = after
        loop = transitions[entry + np.uint64(last_column + 2)]
        if loop != 0 and at < n_readable:
            run, width, matched = at, 1, loop & MATCHED_LETTERS
            if data[np.uint64(at)] >= 128:
                if loop & IDEOGRAPHS and is_ideograph(data, at):
                    run, width, matched = ideographs_end(data, at, end), 3, loop & MATCHED_IDEOGRAPHS
            elif loop & (ANY_CASE | LOWER_CASE):
                eight = load_u64(data, at)
                n = leading_letters(eight) if loop & ANY_CASE else leading_lower(eight)
                run = min(at + n, end)
            if run > at:
                at = run
                entry &= ~_MATCHED
                if matched:
                    entry |= _MATCHED
                    stop = at - width
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
    automata.matches[pattern] = -1
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
        stop = automata.matches[pattern]
        if stop < 0:
            before = np.int64(0)
            if automata.looks_behind[pattern]:
                before = _kind_before(data, begin, at, automata, spelled)
            stop = _match_end(data, at, end, pattern, before, automata, spelled)
            if unlikely(automata.steps[LEFT] < 0):
                automata.steps[GAVE_UP] = 1
                break
        if stop > at:
            if at == i:
                return stop, True
            # The next call asks for it.
            automata.matches[pattern] = stop
            return at, False
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


@kernel
def _start_row(own, loop, i, end):
    """Prepares for the row that ends at `end`; i is in it, and not its beginning if the loop has gone back."""
    cuts, _ = fields_of(own)
    _, offsets, _, _ = fields_of(loop)
    begin = i
    if cuts.automata.ends.size > 2:
        begin = offsets[np.searchsorted(offsets, end) - 1]
    start_text(begin, end, cuts.automata)
    cuts.root[0] = begin


@kernel_part
def start_row(own, loop, i, end):
    """Does `_start_row` if this row is another than that before; the first one may end where one of the last call did.

    own: a reference to Cuts and one more; loop: to an encode_loop.Loop.
    """
    cuts, _ = fields_of(own)
    _, offsets, _, _ = fields_of(loop)
    if cuts.automata.ends[0] != end or i == offsets[0]:
        _start_row(own, loop, i, end)


@kernel_part
def _catch_up(data, i, cuts):
    """Finds the segments of all patterns but the last that i is in; the last one cuts at i."""
    automata, root = cuts.automata, cuts.root
    ends, begins = automata.ends, automata.begins
    last = automata.spelled.size
    if ends[last] > i:
        # The loop has gone back, and what was found ahead of i says nothing of what is before that.
        begins[1:] = ends[1:] = root[0] if root[0] <= i else begins[0]
        automata.candidates[:] = begins[1] - 1
    elif ends[last] < root[0] <= i:
        # Where the first pattern cuts, all start again.
        begins[1:] = ends[1:] = root[0]
    for level in range(1, last):
        at = max(ends[level], begins[level - 1])
        while at <= i:
            stop, _ = next_segment(data, at, at, ends[level - 1], np.uint64(level - 1), automata)
            begins[level] = at
            ends[level] = at = stop


@kernel_part
def known_word(data, i, end, cuts):
    """Does `next_word` where the characters around the end of the segment decide; returns i if they do not."""
    pairs = cuts.rules.pairs
    if pairs.size == 0:
        return i, False
    classes, byte_classes = cuts.automata.classes, cuts.automata.byte_classes
    kind, after = _kind(data, i, classes, byte_classes, False)
    if data[np.uint64(i)] >= 128 and is_ideograph(data, i):
        after = max(after, ideographs_end(data, i, end))
    if after >= end:
        return i, False
    following, _ = _kind(data, after, classes, byte_classes, False)
    outcome = pairs[np.uint64(kind >> 1), np.uint64(following >> 1)]
    if outcome == 0:
        return i, False
    if outcome & SECOND:
        cuts.root[0] = after
    return after, cuts.keeps_all or outcome & SECOND != 0


@kernel
def next_word(own, loop, i, end):
    """Finds the segment that begins at i, where one is known to begin; after `start_row`, with the same references.

    Returns:
      Where it ends, and whether it is kept.
    """
    cuts, _ = fields_of(own)
    data, _, _, _ = fields_of(loop)
    automata = cuts.automata
    ends = automata.ends
    _catch_up(data, i, cuts)
    last = np.uint64(automata.spelled.size - 1)
    stop, is_match = next_segment(data, i, i, ends[last], last, automata)
    ends[last + _ONE] = stop
    return stop, is_match != cuts.drops_matches
