# SPDX-License-Identifier: Apache-2.0
"""Finding added tokens in rows of text, leftmost and longest, in one pass.

Its reference implementation is `tokenmill.tokenizer.reference_encoding.segments_of`;
`tests/parity/test_added_tokens.py` compares both with HF's.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.double_array import child, piece
from tokenmill.tokenizer.kernels.text_parts import find_byte, is_member_before, run_end, run_start
from tokenmill.tokenizer.kernels.utf8 import next_character

IS_SINGLE_WORD, STRIPS_LEFT, STRIPS_RIGHT, IS_TEXT = 1, 2, 4, 8
"""Bits that say how an added token matches. IS_TEXT: its occurrences are counted but stay text."""


class Wanted(NamedTuple):
    """Added tokens, and what says where they match."""

    units: npt.NDArray[np.int64]
    """int64[n]: the trie of their bytes, see `kernels.double_array`; its pieces are the numbers of the tokens."""
    kinds: npt.NDArray[np.uint8]
    """uint8[n_tokens]: the bits above."""
    lengths: npt.NDArray[np.int64]
    """int64[n_tokens]: their bytes."""
    starters: npt.NDArray[np.bool_]
    """bool[256]: the first bytes of tokens."""
    only_starter: int
    """The one first byte if all tokens share it, else -1."""
    word_characters: npt.NDArray[np.bool_]
    """bool[0x110000]."""
    spaces: npt.NDArray[np.bool_]
    """bool[0x110000]."""


class Places(NamedTuple):
    """Places in rows, in order, each with what is there."""

    starts: npt.NDArray[np.int64]
    """int64[n]: where each begins in the bytes of all rows."""
    stops: npt.NDArray[np.int64]
    """int64[n]."""
    numbers: npt.NDArray[np.int32]
    """int32[n]: the number of what is there."""
    rows: npt.NDArray[np.int32]
    """int32[n]: the row of each."""


@kernel_part
def _stands_alone(data, first, end, start, stop, word_characters):
    """Whether no word character is right before `start` or right after `stop`."""
    if start > first and is_member_before(data, start, word_characters):
        return False
    return stop == end or not word_characters[next_character(data, stop)[0]]


@kernel
def link_suffixes(data, offsets, roots, units, suffixes, longest):
    """Makes an automaton (Aho and Corasick) of a trie of tokens that are spelled backwards.

    Args:
      data: uint8[n_bytes]; offsets: int64[n_tokens + 1]: the tokens, spelled backwards.
      roots: int64[n_tokens], for work: the node that each token has reached.
      units: int64[n], the trie of these tokens; see `kernels.double_array`.
      suffixes: int32[n], filled: the node of the longest proper suffix of a node's text that is in the trie.
      longest: int32[n], filled: the number of the longest token that a node's text ends with, -1 for none.
    """
    suffixes[:] = -1
    suffixes[0] = 0
    longest[0] = -1
    roots[:] = 0
    depth = 0
    goes_on = True
    while goes_on:
        goes_on = False
        for t in range(roots.size):
            q = offsets[t] + depth
            if q >= offsets[t + 1]:
                continue
            goes_on = True
            parent = roots[t]
            node = child(units, parent, data[q])
            roots[t] = node
            if suffixes[node] >= 0:
                continue
            found = np.int64(0)
            if parent > 0:
                above = np.int64(suffixes[parent])
                found = child(units, above, data[q])
                while found < 0 and above > 0:
                    above = np.int64(suffixes[above])
                    found = child(units, above, data[q])
                found = max(found, np.int64(0))
            suffixes[node] = found
            ends = piece(units, node)
            longest[node] = ends if ends >= 0 else longest[found]
        depth += 1


@kernel
def find_longest(values, offsets, units, suffixes, longest, found):
    """Finds the longest token at every place of rows, from their ends on, in time that the tokens do not matter for.

    Args:
      values: uint8[n]; offsets: int64[n_rows + 1].
      units: int64[n]; suffixes, longest: int32[n]; see `link_suffixes`.
      found: int32[offsets[-1] - offsets[0]], filled: the number of the longest token that begins there, -1 for none.
    """
    base = offsets[0]
    for row in range(offsets.size - 1):
        node = np.int64(0)
        i = offsets[row + 1]
        while i > offsets[row]:
            i -= 1
            following = child(units, node, values[i])
            while following < 0 and node > 0:
                node = np.int64(suffixes[node])
                following = child(units, node, values[i])
            node = max(following, np.int64(0))
            found[i - base] = longest[node]


@kernel
def find_added(values, offsets, wanted, hits, places, longest, whole):
    """Finds the added tokens of rows.

    Args:
      values, offsets: uint8[n], valid UTF-8, and int64[n_rows + 1].
      wanted: `Wanted`.
      hits: int64[n_tokens], added to: occurrences, including those that stay text.
      places: `Places` with some room, filled with the first ones that do not stay text.
      longest: int32[offsets[-1] - offsets[0]], what `find_longest` found; empty to search the trie at each place.
      whole: bool[n_rows], the rows that are not looked into.

    Returns:
      How many do not stay text, which may be more than `places` had room for.
    """
    units, kinds, only_starter, spaces = wanted.units, wanted.kinds, wanted.only_starter, wanted.spaces
    n = 0
    for row in range(offsets.size - 1):
        if whole[row]:
            continue
        first = offsets[row]
        end = offsets[row + 1]
        taken = first
        i = first
        while i < end:
            if not wanted.starters[values[i]]:
                i = find_byte(values, i + 1, end, only_starter) if only_starter >= 0 else i + 1
                continue
            node = np.int64(0)
            best = np.int64(-1)
            stop = i
            j = i
            if longest.size > 0:
                best = np.int64(longest[i - offsets[0]])
                stop = i + wanted.lengths[best] if best >= 0 else i
                j = end
            while j < end:
                node = child(units, node, values[j])
                if node < 0:
                    break
                j += 1
                if piece(units, node) >= 0:
                    best = piece(units, node)
                    stop = j
            if best < 0:
                i += 1
                continue
            start = i
            i = stop
            kind = kinds[best]
            if kind & IS_SINGLE_WORD and not _stands_alone(values, first, end, start, stop, wanted.word_characters):
                continue
            if kind & IS_TEXT:
                hits[best] += 1
                continue
            if kind & STRIPS_LEFT:
                start = max(run_start(values, start, taken, spaces), taken)
            if kind & STRIPS_RIGHT:
                stop = run_end(values, stop, end, spaces)
            if stop <= start:  # the token before it has taken all of its text, as white space
                continue
            hits[best] += 1
            if n < places.starts.size:
                places.starts[n] = start
                places.stops[n] = stop
                places.numbers[n] = best
                places.rows[n] = row
            n += 1
            taken = stop
    return n


@kernel
def cut_segments(offsets, places, segment_starts, segment_stops, segment_numbers, row_segments):
    """Cuts rows at places in them.

    Args:
      offsets: int64[n_rows + 1]; places: n `Places`.
      segment_starts, segment_stops: int64[n_rows + 2 * n]; segment_numbers: int32[n_rows + 2 * n]: the number of what
        is there, -1 for text; filled.
      row_segments: int64[n_rows + 1]: row r is the segments `row_segments[r]:row_segments[r + 1]`; filled.

    Returns:
      The number of segments. Every row has at least one, and every byte is in one.
    """
    starts, stops, rows = places.starts, places.stops, places.rows
    n = starts.size
    k = 0
    s = 0
    row_segments[0] = 0
    for row in range(offsets.size - 1):
        at = offsets[row]
        while k < n and rows[k] == row:
            if at < starts[k]:
                segment_starts[s] = at
                segment_stops[s] = starts[k]
                segment_numbers[s] = -1
                s += 1
            segment_starts[s] = starts[k]
            segment_stops[s] = stops[k]
            segment_numbers[s] = places.numbers[k]
            s += 1
            at = stops[k]
            k += 1
        if at < offsets[row + 1] or s == row_segments[row]:
            segment_starts[s] = at
            segment_stops[s] = offsets[row + 1]
            segment_numbers[s] = -1
            s += 1
        row_segments[row + 1] = s
    return s
