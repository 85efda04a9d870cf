# SPDX-License-Identifier: Apache-2.0
"""EM of a Unigram training: expected counts, best paths and the loss without a piece, over all words at once.

The lattice of a word is implied by the longest piece that begins at each place: the shorter ones are prefixes of that
piece, and a piece links to its longest prefix that is a piece. So one number per place is enough.

    text, starts:  the words, see `unigram_suffixes`
    longest:       int32[n], the longest piece that begins at each place, -1 if there is none
    links:         int64[n_pieces], the longest prefix that is a piece << LENGTH_BITS | characters; -1 for no prefix

Pieces are numbered in the order of their characters, so a piece comes after its prefixes. If a single character is no
piece, it may be unknown: so there is always a path.

Its reference implementations are `tests.reference.unigram_trainer.expect` and
`tests.reference.unigram_trainer.find_best`; `tests/tokenizer/trainers/test_unigram_em.py` compares them.
"""

import math

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

LENGTH_BITS = 16
LENGTH_MASK = (1 << LENGTH_BITS) - 1

_LOW, _HIGH = 2.0**-200, 2.0**200
_LARGEST = 2.0**1000


@kernel
def link_pieces(pieces, offsets, links):
    """Fills `links`.

    Args:
      pieces: int32[n_characters], the characters of all pieces; offsets: int64[n_pieces + 1]. They are distinct, in
        order, and none is longer than `LENGTH_MASK`.
      links: int64[n_pieces], filled.
    """
    for piece in range(links.size):
        length = offsets[piece + 1] - offsets[piece]
        beginning = np.int64(piece - 1)
        while beginning >= 0:
            n = links[beginning] & LENGTH_MASK
            k = np.int64(0)
            while k < n and k < length and pieces[offsets[piece] + k] == pieces[offsets[beginning] + k]:
                k += 1
            if k == n:
                break
            beginning = links[beginning] >> LENGTH_BITS
        links[piece] = beginning << LENGTH_BITS | length


@kernel
def match_pieces(text, suffixes, common, pieces, offsets, links, longest):
    """Finds the pieces in the words, by walking both in the order of their characters.

    Args:
      text: int32[n]; suffixes: int32[n_suffixes]; common: int32[n_suffixes + 1]: of `unigram_suffixes`, sorted as deep
        as the longest piece or deeper.
      pieces, offsets, links: of `link_pieces`; characters that the text does not have are too high for it.
      longest: int32[n], -1 everywhere, filled where the text is not 0.
    """
    current = np.int64(-1)
    piece = np.int64(0)
    for i in range(suffixes.size):
        while current >= 0 and (links[current] & LENGTH_MASK) > common[i]:
            current = links[current] >> LENGTH_BITS
        at = np.int64(suffixes[i])
        while piece < links.size:
            first = offsets[piece]
            length = offsets[piece + 1] - first
            k = np.int64(0)
            while k < length and pieces[first + k] == text[at + k]:
                k += 1
            if k == length:
                current = piece
            elif pieces[first + k] > text[at + k]:
                break
            piece += 1
        longest[at] = current


@kernel
def keep_pieces(links, is_kept, new_links, new_pieces):
    """Drops pieces: renumbers those that are kept, and finds the replacement of each old one.

    Args:
      links: int64[n_pieces]; is_kept: bool[n_pieces].
      new_links: int64[pieces kept], filled.
      new_pieces: int32[n_pieces], filled: the new number of the piece's longest prefix that is kept, often itself; -1
        if there is none.
    """
    n = 0
    for piece in range(links.size):
        beginning = links[piece] >> LENGTH_BITS
        if beginning >= 0:
            beginning = np.int64(new_pieces[beginning])
        if is_kept[piece]:
            new_links[n] = beginning << LENGTH_BITS | (links[piece] & LENGTH_MASK)
            new_pieces[piece] = n
            n += 1
        else:
            new_pieces[piece] = beginning


@kernel
def expect(starts, counts, longest, links, probabilities, unknown, unit, forward, backward, scalings, expected):
    """Adds the expected count of each piece, over all paths through all words, to `expected`.

    It computes forward, then backward sums of probabilities. Sums that become too small are scaled up by a power of
    two, together with all those that a piece across the place can reach.

    Args:
      starts, longest, links: see the module; counts: int64[n_runs].
      probabilities: float64[n_pieces], all positive; unknown: that of a character that is no piece.
      unit: a power of two; the counts times the characters add up to less than 2**62 of its parts.
      forward, backward: float64[longest run + 1]; scalings: int32 of the same size; for work.
      expected: int64[n_pieces], in parts of 1 / unit, added to. The contribution of a word is rounded for each piece,
        so the sums do not depend on the order of the words.
    """
    reach = np.int64(1)
    for piece in range(links.size):
        reach = max(reach, links[piece] & LENGTH_MASK)
    for run in range(counts.size):
        base = starts[run]
        n = starts[run + 1] - 1 - base
        forward[: n + 1] = 0.0
        forward[0] = 1.0
        n_scalings = 0
        for i in range(n):
            if forward[i] < _LOW:
                stop = min(n, i + reach) + 1
                highest = 0.0
                for j in range(i, stop):
                    highest = max(highest, forward[j])
                if highest < _LOW:
                    for j in range(i, stop):
                        forward[j] *= _HIGH
                    n_scalings += 1
            scalings[i] = n_scalings
            sum_here = forward[i]
            piece = np.int64(longest[base + i])
            length = np.int64(0)
            while piece >= 0:
                link = links[piece]
                length = link & LENGTH_MASK
                forward[i + length] += sum_here * probabilities[piece]
                piece = link >> LENGTH_BITS
            if length != 1:
                forward[i + 1] += sum_here * unknown
        scalings[n] = n_scalings
        backward[n] = np.float64(counts[run]) * unit / forward[n]
        for i in range(n - 1, -1, -1):
            if scalings[i] != scalings[i + 1]:
                for j in range(i + 1, min(n, i + reach) + 1):
                    backward[j] = min(backward[j] * _HIGH, _LARGEST)
            sum_here = forward[i]
            total = 0.0
            piece = np.int64(longest[base + i])
            length = np.int64(0)
            while piece >= 0:
                link = links[piece]
                length = link & LENGTH_MASK
                share = backward[i + length] * probabilities[piece]
                expected[piece] += np.int64(sum_here * share + 0.5)
                total += share
                piece = link >> LENGTH_BITS
            if length != 1:
                total += backward[i + 1] * unknown
            backward[i] = min(total, _LARGEST)


@kernel_part
def _digamma(x):
    """Returns the derivative of the logarithm of the gamma function, as sentencepiece approximates it."""
    result = 0.0
    while x < 7.0:
        result -= 1.0 / x
        x += 1.0
    x -= 0.5
    xx = 1.0 / x
    xx2 = xx * xx
    xx4 = xx2 * xx2
    return (
        result
        + math.log(x)
        + (1.0 / 24.0) * xx2
        - (7.0 / 960.0) * xx4
        + (31.0 / 8064.0) * xx4 * xx2
        - (127.0 / 30720.0) * xx4 * xx4
    )


@kernel
def maximize(expected, unit, scores):
    """Fills the scores of the pieces, logarithms of probabilities, from their expected counts.

    Args:
      expected: int64[n_pieces], positive, of `expect`; unit: as there.
      scores: float64[n_pieces], filled.
    """
    total = np.int64(0)
    for piece in range(expected.size):
        total += expected[piece]
    of_total = _digamma(np.float64(total) / unit)
    for piece in range(expected.size):
        scores[piece] = _digamma(np.float64(expected[piece]) / unit) - of_total


@kernel
def score_seeds(shares, log_total, scores):
    """Finds the scores of seed pieces from their shares of the total.

    shares: int64[n]; scores: float64[n], filled.
    """
    for i in range(shares.size):
        scores[i] = math.log(np.float64(shares[i])) - log_total


@kernel
def exponentiate(scores, probabilities):
    """Finds the probabilities of scores.

    scores: float64[n]; probabilities: float64[n], filled.
    """
    for i in range(scores.size):
        probabilities[i] = math.exp(scores[i])


@kernel_part
def _find_best(base, n, longest, links, scores, unknown, whole, best, last):
    """Finds the best path through the `n` characters from `base` on; of equal ones that whose last piece is longer.

    Pieces that reach beyond are left out, and, if `whole` is False, the piece that is all of it. `last` gets the last
    piece of the best path to each place, -1 for an unknown character.
    """
    best[: n + 1] = -np.inf
    best[0] = 0.0
    for i in range(n):
        piece = np.int64(longest[base + i])
        length = np.int64(0)
        while piece >= 0:
            link = links[piece]
            length = link & LENGTH_MASK
            if i + length <= n and (whole or length < n):
                score = best[i] + scores[piece]
                if score > best[i + length]:
                    best[i + length] = score
                    last[i + length] = piece
            piece = link >> LENGTH_BITS
        if length != 1 and best[i] + unknown > best[i + 1]:
            best[i + 1] = best[i] + unknown
            last[i + 1] = -1


@kernel
def count_best(starts, counts, longest, links, scores, unknown, best, last, frequencies):
    """Adds how often each piece occurs in the best paths of all words to `frequencies`.

    Args:
      starts, counts, longest, links: as for `expect`.
      scores: float64[n_pieces]; unknown: the score of a character that is no piece.
      best: float64[longest run + 1]; last: int32 of the same size; for work.
      frequencies: int64[n_pieces], added to.
    """
    for run in range(counts.size):
        n = starts[run + 1] - 1 - starts[run]
        _find_best(starts[run], n, longest, links, scores, unknown, True, best, last)
        while n > 0:
            piece = np.int64(last[n])
            if piece < 0:
                n -= 1
            else:
                frequencies[piece] += counts[run]
                n -= links[piece] & LENGTH_MASK


@kernel
def weigh_pieces(places, longest, links, scores, unknown, frequencies, best, last, losses):
    """Fills the likelihood that is lost without each piece, if its occurrences were cut in the next best way.

    Args:
      places: int32[n_pieces], a place in the text where each piece occurs.
      longest, links, scores, unknown: as for `count_best`; frequencies: int64[n_pieces], its result.
      best: float64[longest piece + 1]; last: int32 of the same size; for work.
      losses: float64[n_pieces], filled: -inf for a piece that is in no best path, or whose own text has another best
        path; inf for a single character, which nothing can replace.
    """
    total = np.int64(0)
    for piece in range(links.size):
        total += frequencies[piece]
    log_total = math.log(np.float64(total))
    for piece in range(links.size):
        if frequencies[piece] == 0:
            losses[piece] = -np.inf
            continue
        n = links[piece] & LENGTH_MASK
        if n == 1:
            losses[piece] = np.inf
            continue
        _find_best(np.int64(places[piece]), n, longest, links, scores, unknown, False, best, last)
        if best[n] > scores[piece]:
            losses[piece] = -np.inf
            continue
        frequency = np.float64(frequencies[piece])
        n_others = 0
        of_others = 0.0
        while n > 0:
            other = np.int64(last[n])
            if other < 0:
                of_others += math.log(frequency)
                n -= 1
            else:
                of_others += math.log(np.float64(frequencies[other]) + frequency)
                n -= links[other] & LENGTH_MASK
            n_others += 1
        of_others -= n_others * math.log(np.float64(total) + frequency * (n_others - 1))
        losses[piece] = frequency * (math.log(frequency) - log_total - of_others)
