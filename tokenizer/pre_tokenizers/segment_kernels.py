# SPDX-License-Identifier: Apache-2.0
"""Kernels that cut pieces of text: at delimiters, with any behaviour.

Segments cover pieces of text without gaps; each is either a match of the delimiter or the text between two matches.

    values:    uint8[n_bytes]          UTF-8
    starts, stops: int64[n_pieces]     the pieces `values[starts[k]:stops[k]]`
    out_starts, out_stops: int64[n]    the pre-tokens; filled, with room for one for each byte
    counts:    int64[n_pieces + 1]     the number of pre-tokens before each piece; filled, except the first, which is 0

Its reference implementation is in `tests/reference/splitting.py`; `tests/parity/test_pre_tokenizers.py` compares
pre-tokenizers with HF's.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, load_u64, store_u64, trailing_zeros
from tokenmill.tokenizer.kernels.automata import next_segment, start_text
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS

_FIRST_PATTERN = np.uint64(0)
_SPACES = np.uint64(0x20) * EACH_BYTE

REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS = 0, 1, 2, 3, 4


@kernel
def segments_of_automaton(values, starts, stops, automata, inverted, out_starts, out_stops, out_match, counts):
    """Makes what a pattern matches a match, or, with `inverted`, the segments between. A segment has at least one byte.

    automata: Automata of one pattern, changed; out_match: bool[n_bytes], filled: whether each segment is a match.
    """
    n = 0
    for k in range(starts.size):
        i = starts[k]
        start_text(i, stops[k], automata)
        while i < stops[k]:
            stop, is_match = next_segment(values, starts[k], i, stops[k], _FIRST_PATTERN, automata)
            out_starts[n] = i
            out_stops[n] = stop
            out_match[n] = is_match != inverted
            n += 1
            i = stop
        counts[k + 1] = n


@kernel
def merge_segments(behavior, starts, stops, match, counts):
    """Applies a behaviour to segments, in place: the result has no more segments, and none is empty.

    Source: HF tokenizers `tokenizer/normalizer.rs`, `NormalizedString::split`: of several matches in a row, only the
    first is merged with the segment before, or the last with the one after; the others stay alone.

    Args:
      behavior: one of the constants above.
      starts, stops: int64[n], changed: segments, which may be empty.
      match: bool[n].
      counts: int64[n_pieces + 1], changed: the number of segments before each piece.
    """
    n = 0
    first = 0
    for k in range(counts.size - 1):
        last = counts[k + 1]
        n_before = n
        previous_match = False
        for j in range(first, last):
            merges = False
            if behavior == REMOVED:
                if match[j]:
                    continue
            elif behavior == MERGED_WITH_PREVIOUS:
                merges = match[j] and not previous_match
                previous_match = match[j]
            elif behavior == MERGED_WITH_NEXT:
                merges = j > first and match[j - 1] and not match[j]
            elif behavior == CONTIGUOUS:
                merges = match[j] == previous_match
                previous_match = match[j]
            if merges and n > n_before:
                stops[n - 1] = stops[j]
            else:
                starts[n] = starts[j]
                stops[n] = stops[j]
                n += 1
        # Empty segments are removed only now: an empty match still has neighbours.
        kept = n_before
        for j in range(n_before, n):
            if starts[j] < stops[j]:
                starts[kept] = starts[j]
                stops[kept] = stops[j]
                kept += 1
        n = kept
        first = last
        counts[k + 1] = n


@kernel
def count_blanks(values, starts, stops):
    """Counts the spaces in pieces."""
    n = 0
    for k in range(starts.size):
        for i in range(starts[k], stops[k]):
            n += values[i] == 0x20
    return n


@kernel
def split_at_blanks(values, starts, stops, prefixed, insert, out, out_starts, out_stops, counts):
    """Copies pieces, with `insert` in place of spaces and before some, and cuts them before every `insert`, old or new.

    Args:
      values, starts, stops: pieces, none of them empty, see the module.
      prefixed: bool[n_pieces], those that get an `insert` in front.
      insert: uint8[m], one character, then eight bytes of padding.
      out: uint8 with room for all and eight bytes more, filled.
      out_starts, out_stops: int64[n_words], filled, with room for a word for each byte and each prefix.
      counts: int64[n_pieces + 1], filled: the number of words before each piece.
    """
    n_insert = insert.size - 8
    inserted = load_u64(insert, 0)
    firsts = np.uint64(insert[0]) * EACH_BYTE
    o = 0
    n = 0
    counts[0] = 0
    for k in range(starts.size):
        i, end = starts[k], stops[k]
        out_starts[n] = o
        if prefixed[k]:
            store_u64(out, o, inserted)
            o += n_insert
        while i < end:
            if i + 8 <= end:
                # The lowest bit is for the first space or first byte of `insert`.
                eight = load_u64(values, i)
                space, first = eight ^ _SPACES, eight ^ firsts
                hits = (((space - EACH_BYTE) & ~space) | ((first - EACH_BYTE) & ~first)) & HIGH_BITS
                skipped = trailing_zeros(hits) >> 3
                store_u64(out, o, eight)
                i += skipped
                o += skipped
                if skipped == 8:
                    continue
            w = np.int64(values[i] == 0x20)
            if w == 0 and values[i] == insert[0] and i + n_insert <= end:
                w = n_insert
                for q in range(1, n_insert):
                    if values[i + q] != insert[q]:
                        w = 0
            if w == 0:
                out[o] = values[i]
                i += 1
                o += 1
                continue
            if o > out_starts[n]:
                out_stops[n] = o
                n += 1
                out_starts[n] = o
            store_u64(out, o, inserted)
            i += w
            o += n_insert
        out_stops[n] = o
        n += 1
        counts[k + 1] = n
