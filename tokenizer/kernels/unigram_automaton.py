# SPDX-License-Identifier: Apache-2.0
"""All pieces that end at each place of a text, in one walk: the automaton of Aho and Corasick over a Unigram trie.

A walk from every place anew reads each byte as often as pieces reach across it. Here the state after a byte is the
longest beginning of a piece that the text ends in there. Where it has no child by the next byte, the next shorter such
beginning is tried, which its `fallback` names. The pieces that end in a state are the state itself, if it is one, then
the next shorter end of it that is one, which its `next_piece` names, and so on: mostly a few short ones that are always
at hand.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.double_array import BASE_SHIFT, NO_BYTE, PIECE_MASK, PIECE_SHIFT

# A state is two int64, side by side so that they share a cache line. The first: bits 0..8 the byte that leads here
# (NO_BYTE in an empty place), 9..31 its base, 32..54 its fallback, 55..62 its bytes where it is a piece. The second:
# bits 0..22 its next piece, 0 for none, 23 whether it is a piece, 32..63 its score in single precision.
# States are numbered as in the trie, but the root, which has no place there, is state 0.
STATE_BASE_SHIFT, FALLBACK_SHIFT, LENGTH_SHIFT = 9, 32, 55
LABEL_MASK, STATE_MASK = 511, (1 << 23) - 1
IS_PIECE, SCORE_SHIFT = 1 << 23, 32


@kernel_part
def child(states, state, byte):
    """Returns the child of a state by a byte, 0 for none."""
    place = ((states[2 * state] >> STATE_BASE_SHIFT) & STATE_MASK) ^ byte
    return place if (states[2 * place] & LABEL_MASK) == byte else np.int64(0)


# A walk through a text has states and places as uint64: so that no index can be taken for one from the end.
_LABEL_MASK, _STATE_MASK, _IS_PIECE = np.uint64(LABEL_MASK), np.uint64(STATE_MASK), np.uint64(IS_PIECE)
_BASE_SHIFT, _FALLBACK_SHIFT = np.uint64(STATE_BASE_SHIFT), np.uint64(FALLBACK_SHIFT)
_LENGTH_SHIFT = np.uint64(LENGTH_SHIFT)
_ONE = np.uint64(1)
ROOT = np.uint64(0)


@kernel_part
def root_base(states):
    """Returns the base of the root, where a walk begins."""
    return np.uint64(states[0]) >> _BASE_SHIFT


@kernel_part
def advance(states, state, base, byte):
    """Returns the state after one more byte, uint64, and its base; `base` is that of `state`."""
    while True:
        place = base ^ byte
        unit = np.uint64(states[place << _ONE])
        if unit & _LABEL_MASK == byte:
            return place, (unit >> _BASE_SHIFT) & _STATE_MASK
        if state == ROOT:
            return state, base
        state = (np.uint64(states[state << _ONE]) >> _FALLBACK_SHIFT) & _STATE_MASK
        base = (np.uint64(states[state << _ONE]) >> _BASE_SHIFT) & _STATE_MASK


@kernel_part
def longest_piece(states, state):
    """Returns the longest piece that ends in a state, as a state, ROOT for none, and the second number of that."""
    more = np.uint64(states[(state << _ONE) | _ONE])
    if more & _IS_PIECE == ROOT:
        state = more & _STATE_MASK
        more = np.uint64(states[(state << _ONE) | _ONE])
    return state, more


@kernel_part
def shorter_piece(states, more):
    """As `longest_piece`, for the next shorter one."""
    state = more & _STATE_MASK
    return state, np.uint64(states[(state << _ONE) | _ONE])


@kernel_part
def piece_bytes(states, state):
    """Returns the bytes of the piece that a state is."""
    return np.int64(np.uint64(states[state << _ONE]) >> _LENGTH_SHIFT)


@kernel
def build_automaton(units, root_base, parents, depths, score_bits, longest, begins, order, states, pieces):
    """Fills the automaton of a trie.

    Args:
      units, root_base, parents, depths: int64[n] and int32[n], as `double_array.build_double_array` makes them, n below
        2**22.
      score_bits: int64[n_pieces], the scores in single precision, their 32 bits as a number.
      longest: pieces of more bytes are left out; at most 255.
      begins: int64[n bytes of the longest piece + 2], zeros, and order: int64[n], for work.
      states: int64[2 * n], filled; pieces: int32[n], the piece that each state is, filled where it is one.
    """
    n = units.size
    n_ordered = 0
    for place in range(n):
        label = units[place] & LABEL_MASK
        states[2 * place] = label | (units[place] >> BASE_SHIFT) << STATE_BASE_SHIFT
        states[2 * place + 1] = 0
        if label != NO_BYTE:
            begins[depths[place] + 1] += 1
            n_ordered += 1
    states[0] = NO_BYTE | root_base << STATE_BASE_SHIFT
    # Shallow states first, as a fallback is less deep than its state.
    for depth in range(1, begins.size):
        begins[depth] += begins[depth - 1]
    for place in range(n):
        if (units[place] & LABEL_MASK) != NO_BYTE:
            depth = depths[place]
            order[begins[depth]] = place
            begins[depth] += 1
    for k in range(n_ordered):
        place = order[k]
        unit = units[place]
        byte, depth = unit & LABEL_MASK, np.int64(depths[place])
        fallback = np.int64(0)
        if depth > 1:
            state = np.int64(parents[place])
            while fallback == 0 and state != 0:
                state = (states[2 * state] >> FALLBACK_SHIFT) & STATE_MASK
                fallback = child(states, state, byte)
        shorter = states[2 * fallback + 1]
        more = fallback if shorter & IS_PIECE else shorter & STATE_MASK
        first = fallback << FALLBACK_SHIFT
        piece = ((unit >> PIECE_SHIFT) & PIECE_MASK) - 1
        if piece >= 0 and depth <= longest:
            first |= depth << LENGTH_SHIFT
            more |= IS_PIECE | score_bits[piece] << SCORE_SHIFT
            pieces[place] = piece
        states[2 * place] |= first
        states[2 * place + 1] = more
