# SPDX-License-Identifier: Apache-2.0
"""Counts the scripts of documents, and scores languages by byte n-grams, which an automaton finds (naive Bayes).

Its reference implementation is `tests.reference.languages.identify_text`;
`tests/tokenizer/languages/test_languages.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, load_u64
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, next_character

SAMPLE_BYTES = 2048
"""The most bytes of a document that are read."""

ROOM = 3 * SAMPLE_BYTES + 16
"""The most n-grams of a piece: one may end at each byte, and composing characters may turn one byte into three."""


@kernel
def cut_samples(data, offsets, bounds):
    """Finds the pieces of documents that are read: both ends, each a whole number of characters.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      bounds: int64[n_rows, 3], filled: where the first piece, which begins the document, stops; where the middle of it
        is, at a character; and where the last piece, which ends the document, starts. A document that is no longer
        than a piece has the last half of it as its last piece.
    """
    for row in range(offsets.size - 1):
        start = offsets[row]
        end = offsets[row + 1]
        stop = min(end, start + SAMPLE_BYTES)
        while stop < end and stop > start and (data[stop] & 0xC0) == 0x80:
            stop -= 1
        middle = start + (stop - start) // 2
        while middle < stop and (data[middle] & 0xC0) == 0x80:
            middle += 1
        last = middle
        if stop < end:
            last = max(stop, end - SAMPLE_BYTES // 2)
            while last < end and (data[last] & 0xC0) == 0x80:
                last += 1
        bounds[row, 0] = stop
        bounds[row, 1] = middle
        bounds[row, 2] = last


@kernel
def score_pieces(data, starts, stops, moves, bases, outputs, weights, priors, logs, counts, touched, scores):
    """Scores pieces of text: the prior of each class plus, for each n-gram, its weight times log(1 + count).

    Args:
      data: uint8[n]; starts, stops: int64[n_pieces], pieces of at most ROOM bytes.
      moves: uint32[m], the automaton: the state after `state` and byte b is moves[bases[state] + b].
      bases: int64[n_states]; outputs: int32[n_states], the n-gram that ends in a state, -1 if none.
      weights: float32[n_grams, n_classes]; priors: float32[n_classes].
      logs: float32[ROOM + 1], log(1 + count).
      counts: int32[n_grams], zeros before and after; touched: int32[ROOM]; for work.
      scores: float32[n_pieces, n_classes], filled; 0 if no n-gram is found.
    """
    for piece in range(starts.size):
        state = np.int64(0)
        n = 0
        for i in range(starts[piece], stops[piece]):
            state = np.int64(moves[bases[state] + np.int64(data[i])])
            gram = np.int64(outputs[state])
            if gram >= 0:
                if counts[gram] == 0:
                    touched[n] = gram
                    n += 1
                counts[gram] += 1
        for k in range(priors.size):
            scores[piece, k] = priors[k] if n > 0 else np.float32(0)
        for j in range(n):
            gram = np.int64(touched[j])
            log = logs[counts[gram]]
            counts[gram] = 0
            for k in range(priors.size):
                scores[piece, k] += log * weights[gram, k]


NO_SCRIPT, LATIN, HAN, KANA, HANGUL = range(5)
"""The numbers of scripts that kernels know; hiragana and katakana are one script."""

TOTAL, FIRST, N_FIRST, SECOND, N_SECOND, N_KANA = range(6)
"""The columns of `found` in `count_scripts`."""

N_COLUMNS = 6

_CASE = np.uint64(0x20) * EACH_BYTE
_FROM_A, _PAST_Z = np.uint64(0x80 - ord("a")) * EACH_BYTE, np.uint64(0x80 - ord("{")) * EACH_BYTE


@kernel
def count_scripts(data, offsets, script_of, counts, found):
    """Counts the characters of each script in each row, and finds the two most frequent.

    Here Han and kana are one script; ties go to the smaller number.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      script_of: uint8[0x110000], the script of each character, NO_SCRIPT if it has none. ASCII letters are LATIN, other
        ASCII is NO_SCRIPT.
      counts: int64[n_scripts], for work.
      found: int64[n_rows, N_COLUMNS], filled: characters with a script; the first script and its characters, the second
        and its characters, NO_SCRIPT and 0 if there is none; characters of kana.
    """
    for row in range(offsets.size - 1):
        for script in range(counts.size):
            counts[script] = 0
        latin = np.uint64(0)
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            if i + 8 <= end:
                eight = load_u64(data, i)
                if (eight & HIGH_BITS) == np.uint64(0):
                    eight |= _CASE
                    letters = ((eight + _FROM_A) & ~(eight + _PAST_Z) & HIGH_BITS) >> np.uint64(7)
                    latin += (letters * EACH_BYTE) >> np.uint64(56)
                    i += 8
                    continue
            code_point, i = next_character(data, i)
            counts[script_of[code_point]] += 1
        counts[LATIN] += np.int64(latin)
        kana = counts[KANA]
        counts[HAN] += kana
        counts[KANA] = 0
        total, first, n_first, second, n_second = 0, 0, 0, 0, 0
        for script in range(1, counts.size):
            n = counts[script]
            total += n
            if n > n_first:
                second, n_second = first, n_first
                first, n_first = script, n
            elif n > n_second:
                second, n_second = script, n
        found[row, TOTAL] = total
        found[row, FIRST] = first
        found[row, N_FIRST] = n_first
        found[row, SECOND] = second
        found[row, N_SECOND] = n_second
        found[row, N_KANA] = kana
