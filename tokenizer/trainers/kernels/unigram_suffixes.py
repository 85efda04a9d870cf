# SPDX-License-Identifier: Apache-2.0
"""Seed pieces of a Unigram training: the substrings of the words that may be pieces, found in a suffix array.

The words are in one text of numbered characters, each run of known characters followed by a 0, which is no character:

    text:      int32[n]       1.. in the order of code points, 0 after each run
    starts:    int64[n_runs + 1], where each run begins; the last one is where the next would begin
    suffixes:  int32[n_suffixes], places in the text, ordered by what follows there up to the end of the run

Suffixes are compared up to `depth` characters, one more than a piece may have: two that agree so far count as equal.

Its reference implementation is `tests.reference.unigram_trainer.find_seeds`;
`tests/tokenizer/trainers/test_unigram_em.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

DIGIT_BITS = 11
"""The number of bits that a pass of the sort orders by."""

SCRIPT_MASK = 0xFF
IS_DIGIT, IS_SPACE, IS_INHERITED = 1 << 8, 1 << 9, 1 << 10
"""Bits of `classes`: besides these, it has the script of a character."""

SPLIT_BY_SCRIPT, SPLIT_BY_NUMBER, SPLIT_DIGITS, SPLIT_BY_SPACE, SPACE_AS_SUFFIX, SPACES_ALONE = (
    1 << i for i in range(6)
)
"""The rules of `is_valid_piece`, one bit each."""

_ANY_SCRIPT = 0


@kernel
def lay_out_runs(code_points, offsets, counts, numbers, text, starts, run_counts, run_of):
    """Writes the text: the words, cut at characters without a number.

    Args:
      code_points: int32[n_characters]; offsets: int64[n_words + 1]; counts: int64[n_words].
      numbers: int32[0x110000], the number of each character, 0 for those that are in no piece.
      text, run_of: int32 with room for all characters and words, filled; the latter has the run of each place.
      starts, run_counts: int64 with room for one more than the characters, filled.

    Returns:
      `(runs, places used in the text)`.
    """
    n_runs = 0
    n = 0
    starts[0] = 0
    for word in range(counts.size):
        for at in range(offsets[word], offsets[word + 1] + 1):
            number = 0
            if at < offsets[word + 1]:
                number = numbers[code_points[at]]
            if number == 0 and n == starts[n_runs]:
                continue
            text[n] = number
            run_of[n] = n_runs
            n += 1
            if number == 0:
                run_counts[n_runs] = counts[word]
                n_runs += 1
                starts[n_runs] = n
    return n_runs, n


@kernel
def pack_ranks(text, ranks, n_bits, n_packed, known, keys, suffixes):
    """Packs `n_packed` ranks, of places `known` characters apart from each suffix on, into `n_bits` bits each.

    Args:
      text: int32[n].
      ranks: int32[n], the rank of each place by its next `known` characters, from 1, 0 where the text is 0.
      n_bits: enough for any rank; n_bits * n_packed is at most 63.
      known: at least 1; for 1, the text itself may be the ranks.
      keys: int64[n_suffixes]; suffixes: int32[n_suffixes]: one per place that is no 0, filled in the order of the text.
    """
    row = suffixes.size
    end = text.size
    for place in range(text.size - 1, -1, -1):
        if text[place] == 0:
            end = place
            continue
        key = np.int64(0)
        for k in range(n_packed):
            at = place + k * known
            key = key << n_bits | (np.int64(ranks[at]) if at < end else np.int64(0))
        row -= 1
        keys[row] = key
        suffixes[row] = place


@kernel
def sort_by_keys(keys, suffixes, other_keys, other_suffixes, histogram, n_bits):
    """Sorts stably by `n_bits` bits of the keys, `DIGIT_BITS` of them at a time, lowest first.

    Args:
      keys: int64[n], suffixes: int32[n], changed.
      other_keys: int64[n]; other_suffixes: int32[n]; filled.
      histogram: int64[2**DIGIT_BITS], for work.
      n_bits: at most 63.

    Returns:
      Whether the result is in the other arrays.
    """
    in_other = False
    for shift in range(0, n_bits, DIGIT_BITS):
        histogram[:] = 0
        for i in range(keys.size):
            histogram[(keys[i] >> shift) & ((1 << DIGIT_BITS) - 1)] += 1
        total = 0
        for digit in range(histogram.size):
            n = histogram[digit]
            histogram[digit] = total
            total += n
        for i in range(keys.size):
            digit = (keys[i] >> shift) & ((1 << DIGIT_BITS) - 1)
            to = histogram[digit]
            histogram[digit] = to + 1
            other_keys[to] = keys[i]
            other_suffixes[to] = suffixes[i]
        keys, other_keys = other_keys, keys
        suffixes, other_suffixes = other_suffixes, suffixes
        in_other = not in_other
    return in_other


@kernel
def rank(keys, suffixes, ranks):
    """Writes the rank of each suffix, from 1, equal for equal keys, into `ranks`; returns the highest one.

    Args:
      keys: int64[n_suffixes]; suffixes: int32[n_suffixes]; sorted.
      ranks: int32[n], filled at the places of the text.
    """
    highest = 0
    for i in range(keys.size):
        if i == 0 or keys[i] != keys[i - 1]:
            highest += 1
        ranks[suffixes[i]] = highest
    return highest


@kernel
def measure_common(text, suffixes, depth, common):
    """Writes how many characters each suffix has in common with the one before, `depth` at most.

    Args:
      text: int32[n]; suffixes: int32[n_suffixes]; depth: see the module.
      common: int32[n_suffixes + 1], filled; the first and the last are 0.
    """
    common[0] = 0
    common[suffixes.size] = 0
    for i in range(1, suffixes.size):
        a = np.int64(suffixes[i - 1])
        b = np.int64(suffixes[i])
        n = 0
        while n < depth and text[a + n] != 0 and text[a + n] == text[b + n]:
            n += 1
        common[i] = n


@kernel_part
def is_valid_piece(text, start, length, classes, rules):
    """Whether sentencepiece would take these characters for a piece; see `TrainerInterface::IsValidSentencePiece`."""
    all_spaces = False
    if rules & SPACES_ALONE:
        all_spaces = True
        for k in range(length):
            all_spaces = all_spaces and (classes[text[start + k]] & IS_SPACE) != 0
    script_before = _ANY_SCRIPT
    for k in range(length):
        of_character = classes[text[start + k]]
        if of_character & IS_SPACE:
            if not all_spaces:
                is_last = k == length - 1
                if rules & SPACE_AS_SUFFIX:
                    if not is_last and (rules & SPLIT_BY_SPACE or k == 0):
                        return False
                elif k > 0 and (rules & SPLIT_BY_SPACE or is_last):
                    return False
            continue
        script = of_character & SCRIPT_MASK
        if of_character & IS_INHERITED:
            script = script_before
        if of_character & IS_DIGIT:
            if not rules & SPLIT_BY_NUMBER:
                script = _ANY_SCRIPT
            if rules & SPLIT_DIGITS and length > 1:
                return False
        if (
            rules & SPLIT_BY_SCRIPT
            and script != _ANY_SCRIPT
            and script_before != _ANY_SCRIPT
            and script != script_before
        ):
            return False
        script_before = script
    return True


@kernel_part
def _emit(text, suffixes, sums, first, last, length, classes, rules, least_at_ends, rows, n):
    """Adds a row for the substring that the suffixes `first` to `last - 1` begin with, if it may be a seed."""
    if length < 2 or not is_valid_piece(text, np.int64(suffixes[first]), length, classes, rules):
        return n
    frequency = sums[last] - sums[first]
    # Suffixes that end their run come before those that go on: if the last one ends its run, all do.
    if text[suffixes[last - 1] + length] == 0 and frequency < least_at_ends:
        return n
    rows[n, 0] = first
    rows[n, 1] = length
    rows[n, 2] = frequency * length
    return n + 1


@kernel
def find_substrings(text, suffixes, common, depth, classes, rules, least_at_ends, sums, stack, rows):
    """Lists the substrings that are not always followed by the same character, and may be pieces.

    A substring is the common prefix of a range of suffixes; the ranges are found from the lengths of common prefixes,
    with a stack of open ranges. The end of a run counts as one more character; but a substring that is always followed
    by that is listed too if it occurs at least `least_at_ends` times.

    Args:
      text: `unigram_seeds.Text`; suffixes, depth: see the module.
      common: of `measure_common`.
      classes: int32[numbers]; rules: see `is_valid_piece`; least_at_ends: see above.
      sums: int64[n_suffixes + 1], filled: the total occurrences of the suffixes before each one.
      stack: int64[depth + 2, 2], for work: length and first suffix of the open ranges.
      rows: int64[2 * n_suffixes, 3], filled: first suffix, length, score, which is the occurrences times the length.

    Returns:
      The number of rows, which are in no particular order.
    """
    sums[0] = 0
    for i in range(suffixes.size):
        sums[i + 1] = sums[i] + text.counts[text.run_of[suffixes[i]]]
    n = 0
    n_open = 0
    for i in range(suffixes.size + 1):
        first = np.int64(i)
        while n_open > 0 and stack[n_open - 1, 0] > common[i]:
            n_open -= 1
            first = stack[n_open, 1]
            if stack[n_open, 0] < depth:
                n = _emit(
                    text.values, suffixes, sums, first, i, stack[n_open, 0], classes, rules, least_at_ends, rows, n
                )
        if n_open == 0 or stack[n_open - 1, 0] < common[i]:
            stack[n_open, 0] = common[i]
            stack[n_open, 1] = first
            n_open += 1
        if i < suffixes.size:
            length = min(np.int64(depth), text.starts[text.run_of[suffixes[i]] + 1] - 1 - suffixes[i])
            if length > stack[n_open - 1, 0]:
                stack[n_open, 0] = length
                stack[n_open, 1] = i
                n_open += 1
    return n
