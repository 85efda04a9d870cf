# SPDX-License-Identifier: Apache-2.0
"""A naive Bayes classifier over byte n-grams, which an automaton finds: scores of languages for pieces of text.

Its reference implementation is `tests.reference.languages.identify_text`;
`tests/tokenizer/languages/test_languages.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel

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
