# SPDX-License-Identifier: Apache-2.0
"""Finding added tokens in rows of text, leftmost and longest, in one pass.

Its reference implementation is `tokenmill.tokenizer.added_tokens.segments_of`; `tests/parity/test_added_tokens.py`
compares both with HF's.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.double_array import child, piece
from tokenmill.tokenizer.kernels.text_parts import find_byte, is_member_before, run_end, run_start
from tokenmill.tokenizer.kernels.utf8 import next_character

IS_SINGLE_WORD, STRIPS_LEFT, STRIPS_RIGHT, IS_TEXT = 1, 2, 4, 8
"""Bits that say how an added token matches. IS_TEXT: its occurrences are counted but stay text."""


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
def find_added(
    values, offsets, units, kinds, starters, only_starter, word_characters, spaces, hits, starts, stops, tokens, rows,
    longest, lengths, whole, again,
):  # fmt: skip
    """Finds the added tokens of rows.

    Args:
      values, offsets: uint8[n], valid UTF-8, and int64[n_rows + 1].
      units: int64[n], the trie of the tokens' bytes, see `kernels.double_array`; its pieces are indices into `kinds`.
      kinds: uint8[n_tokens], the bits above; starters: bool[256], first bytes of tokens; only_starter: the one first
        byte if all tokens share it, else -1.
      word_characters, spaces: bool[0x110000].
      hits: int64[n_tokens], added to: occurrences, including those that stay text.
      starts, stops: int64[room]; tokens, rows: int32[room]; filled with the first `room` that do not stay text.
      longest: int32[offsets[-1] - offsets[0]], what `find_longest` found; empty to search the trie at each place.
      lengths: int64[n_tokens], the bytes of each token.
      whole: bool[n_rows], the rows that are not looked into.
      again: bool[n_rows], filled: true in rows in which a token begins in white space that another one has taken; there
        places overlap, see `added_tokens.segments_of`.

    Returns:
      How many do not stay text, which may be more than `starts` had room for.
    """
    n = 0
    for row in range(offsets.size - 1):
        if whole[row]:
            continue
        first = offsets[row]
        end = offsets[row + 1]
        taken = first
        i = first
        while i < end:
            if not starters[values[i]]:
                i = find_byte(values, i + 1, end, only_starter) if only_starter >= 0 else i + 1
                continue
            node = np.int64(0)
            best = np.int64(-1)
            stop = i
            j = i
            if longest.size > 0:
                best = np.int64(longest[i - offsets[0]])
                stop = i + lengths[best] if best >= 0 else i
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
            if kind & IS_SINGLE_WORD and not _stands_alone(values, first, end, start, stop, word_characters):
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
            if start < taken:
                again[row] = True
            hits[best] += 1
            if n < starts.size:
                starts[n] = start
                stops[n] = stop
                tokens[n] = best
                rows[n] = row
            n += 1
            taken = stop
    return n


@kernel
def cut_segments(offsets, starts, stops, tokens, rows, n, segment_starts, segment_stops, segment_tokens, row_segments):
    """Cuts rows at the added tokens found in them.

    Args:
      offsets: int64[n_rows + 1]; starts, stops: int64[room]; tokens, rows: int32[room]: what `find_added` found; n: how
        many.
      segment_starts, segment_stops: int64[n_rows + 2 * n]; segment_tokens: int32[n_rows + 2 * n]: token or -1 for
        text; filled.
      row_segments: int64[n_rows + 1]: row r is the segments `row_segments[r]:row_segments[r + 1]`; filled.

    Returns:
      The number of segments. Every row has at least one, and every byte is in one.
    """
    k = 0
    s = 0
    row_segments[0] = 0
    for row in range(offsets.size - 1):
        at = offsets[row]
        while k < n and rows[k] == row:
            if at < starts[k]:
                segment_starts[s] = at
                segment_stops[s] = starts[k]
                segment_tokens[s] = -1
                s += 1
            segment_starts[s] = starts[k]
            segment_stops[s] = stops[k]
            segment_tokens[s] = tokens[k]
            s += 1
            at = stops[k]
            k += 1
        if at < offsets[row + 1] or s == row_segments[row]:
            segment_starts[s] = at
            segment_stops[s] = offsets[row + 1]
            segment_tokens[s] = -1
            s += 1
        row_segments[row + 1] = s
    return s
