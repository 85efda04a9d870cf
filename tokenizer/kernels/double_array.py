# SPDX-License-Identifier: Apache-2.0
"""A trie over bytes as a double array: one int64 a state, so that a step is one load.

A state holds the place of its children, the byte that leads here, and the piece that ends here. No two states have the
same place for their children, so comparing the byte alone proves the parent. The root is at place 0.

Its reference implementation is `builtins.dict`; `tests/tokenizer/models/test_double_array.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

# A state: bits 0..8 the byte that leads here (NO_BYTE in an empty place), bits 9..33 the piece that ends here plus one,
# bits 34..62 the base: its child by byte b is at base ^ b. Base 0 is the empty first block: no children.
NO_BYTE, LABEL_MASK = 256, 511
PIECE_SHIFT, PIECE_MASK = 9, (1 << 25) - 1
BASE_SHIFT = 34

_TRIES = 64
"""How many free places are tried, oldest first, before the whole newest block is tried, and then a new one opened."""


@kernel_part
def child(units, place, byte):
    """Returns the place of a state's child, -1 if no piece goes on with the byte."""
    at = (units[place] >> BASE_SHIFT) ^ np.int64(byte)
    return at if units[at] & LABEL_MASK == byte else np.int64(-1)


@kernel_part
def piece(units, place):
    """Returns the piece that ends at a state, -1 if none does."""
    return (units[place] >> PIECE_SHIFT & PIECE_MASK) - 1


@kernel
def build_double_array(values, offsets, pieces, units, next_free, previous_free, base_taken, children, stack):
    """Builds the trie of a vocabulary.

    Args:
      values, offsets: uint8[n_bytes] and int64[n + 1], the pieces as bytes: sorted, distinct, none empty; n at least 1.
      pieces: int32[n], the number to store where each one ends.
      units: int64[multiple of 256, at least 1024], filled.
      next_free, previous_free: int32 of the same size, for work; base_taken: bool of the same size, all False.
      children: int64[257, 2], for work.
      stack: int64[n_bytes + 2, 4], for work.

    Returns:
      `(places used, base of the root)`, or `(0, 0)` if `units` is too small.
    """
    capacity = units.size
    for t in range(512):
        units[t] = NO_BYTE
    # The free places from the second block on are a circular list around place 0.
    for t in range(256, 512):
        next_free[t] = t + 1
        previous_free[t] = t - 1
    next_free[511] = 0
    previous_free[256] = 0
    next_free[0] = 256
    previous_free[0] = 511
    n_used = 512
    root_base = 0
    depth_0 = 1
    stack[0, 0] = 0  # place of the state
    stack[0, 1] = 0
    stack[0, 2] = pieces.size
    stack[0, 3] = 0
    while depth_0 > 0:
        depth_0 -= 1
        place = stack[depth_0, 0]
        first = stack[depth_0, 1]
        last = stack[depth_0, 2]
        depth = stack[depth_0, 3]
        if offsets[first + 1] - offsets[first] == depth:
            units[place] |= np.int64(pieces[first] + 1) << PIECE_SHIFT
            first += 1
        if first == last:
            continue
        n_children = 0
        t = first
        while t < last:
            byte = np.int64(values[offsets[t] + depth])
            children[n_children, 0], children[n_children, 1] = byte, t
            n_children += 1
            t += 1
            while t < last and np.int64(values[offsets[t] + depth]) == byte:
                t += 1
        children[n_children, 1] = last
        # Find a base under which every child's place is free.
        byte_0 = children[0, 0]
        base = np.int64(-1)
        free = np.int64(next_free[0])
        for attempt in range(_TRIES + 512):
            if attempt < _TRIES:
                if free == 0:
                    continue
                candidate = free ^ byte_0
                free = np.int64(next_free[free])
            elif attempt < _TRIES + 256:
                candidate = np.int64(n_used - 256 + attempt - _TRIES)
            else:
                if attempt == _TRIES + 256:
                    # Drop the places that have been passed over most often, so that the work stays linear.
                    for _ in range(_TRIES // 2):
                        passed = np.int64(next_free[0])
                        if passed == 0:
                            break
                        next_free[0] = next_free[passed]
                        previous_free[next_free[passed]] = 0
                        next_free[passed] = -1
                    if n_used + 256 > capacity:
                        return 0, 0
                    tail = np.int64(previous_free[0])
                    for t in range(n_used, n_used + 256):
                        units[t] = NO_BYTE
                        next_free[t] = t + 1
                        previous_free[t] = t - 1
                    previous_free[n_used] = tail
                    next_free[tail] = n_used
                    next_free[n_used + 255] = 0
                    previous_free[0] = n_used + 255
                    n_used += 256
                candidate = np.int64(n_used - 256 + attempt - _TRIES - 256)
            if base_taken[candidate] or candidate < 256:
                continue
            fits = True
            for k in range(n_children):
                if (units[candidate ^ children[k, 0]] & LABEL_MASK) != NO_BYTE:
                    fits = False
                    break
            if fits:
                base = candidate
                break
        base_taken[base] = True
        units[place] |= base << BASE_SHIFT
        if depth == 0:
            root_base = base
        for k in range(n_children):
            place = base ^ children[k, 0]
            units[place] = children[k, 0]
            if next_free[place] >= 0:
                next_free[previous_free[place]] = next_free[place]
                previous_free[next_free[place]] = previous_free[place]
            stack[depth_0, 0] = place
            stack[depth_0, 1] = children[k, 1]
            stack[depth_0, 2] = children[k + 1, 1]
            stack[depth_0, 3] = depth + 1
            depth_0 += 1
    return n_used, root_base
