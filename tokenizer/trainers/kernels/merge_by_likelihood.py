# SPDX-License-Identifier: Apache-2.0
"""The rule `likelihood`: a tournament of rows of pairs, by exact scores. The tables are those of `pair_merging`.

    links:     int32[capacity, 4]      the next and the previous pair in a row, and in a column; changed
    heads:     int32[2, n_symbols]     the first pair of each row, and of each column; changed
    best:      int64[n_leaves, 3]      the record of each row, see `merge_most_likely`; changed
    tree:      int32[2 * n_leaves]     a tournament of the rows; changed
    symbol_counts: int64[n_leaves]     how often each symbol occurs; changed

Its reference implementation is `tests.reference.trainers.train_wordpiece`;
`tests/tokenizer/trainers/test_wordpiece_trainer.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.trainers.kernels.pair_merging import (
    COUNT,
    FIRST,
    KEY,
    N_PAIRS,
    N_TOKENS,
    N_TOUCHED,
    QUEUED,
    RIGHT_BITS,
    SYMBOL,
    WORD,
    has_room,
    join,
    list_occurrences,
    merge_occurrences,
    note_merge,
)

NEXT_IN_ROW, PREVIOUS_IN_ROW, NEXT_IN_COLUMN, PREVIOUS_IN_COLUMN = range(4)

_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

# float64 scores that differ by more than this factor compare like the exact ones: three conversions, a product and a
# quotient are off by less than 6 * 2**-53 each.
_CLEARLY = 1.0 + 1e-12


@kernel_part
def _multiply(a, b):
    """Returns the high and low 64 bits of a product of two uint64."""
    low = (a & _LOW_HALF) * (b & _LOW_HALF)
    cross = (a >> _HALF) * (b & _LOW_HALF)
    other = (a & _LOW_HALF) * (b >> _HALF)
    middle = (low >> _HALF) + (cross & _LOW_HALF) + (other & _LOW_HALF)
    high = (a >> _HALF) * (b >> _HALF) + (cross >> _HALF) + (other >> _HALF) + (middle >> _HALF)
    return high, (middle << _HALF) | (low & _LOW_HALF)


@kernel_part
def _multiply_three(a, b, c):
    """Returns the product of three non-negative int64 as 192 bits, highest first."""
    high, low = _multiply(np.uint64(a), np.uint64(b))
    carried, lowest = _multiply(low, np.uint64(c))
    highest, middle = _multiply(high, np.uint64(c))
    middle += carried
    if middle < carried:
        highest += np.uint64(1)
    return highest, middle, lowest


@kernel
def compare_scores(count, first, second, count_2, first_2, second_2):
    """Returns the sign of count / (first * second) - count_2 / (first_2 * second_2), exactly; all positive int64."""
    score = np.float64(count) / (np.float64(first) * np.float64(second))
    score_2 = np.float64(count_2) / (np.float64(first_2) * np.float64(second_2))
    if score > score_2 * _CLEARLY:
        return 1
    if score_2 > score * _CLEARLY:
        return -1
    high, middle, low = _multiply_three(count, first_2, second_2)
    high_2, middle_2, low_2 = _multiply_three(count_2, first, second)
    if high != high_2:
        return 1 if high > high_2 else -1
    if middle != middle_2:
        return 1 if middle > middle_2 else -1
    if low != low_2:
        return 1 if low > low_2 else -1
    return 0


@kernel
def _play(tree, best, symbol_counts, node):
    """Decides one match of the tournament; a tie goes to the smaller row, which is the left one."""
    a, b = np.int64(tree[2 * node]), np.int64(tree[2 * node + 1])
    if best[a, 0] < 0 or best[b, 0] < 0:
        b_wins = best[b, 0] >= 0
    else:
        b_wins = compare_scores(best[a, 1], best[a, 2], symbol_counts[a], best[b, 1], best[b, 2], symbol_counts[b]) < 0
    tree[node] = b if b_wins else a


@kernel
def _replay(tree, best, symbol_counts, row):
    """Decides the matches of `row` again, from its leaf to the root."""
    node = (tree.size // 2 + row) // 2
    while node >= 1:
        _play(tree, best, symbol_counts, node)
        node //= 2


@kernel
def _improves_row(best, pairs, symbol_counts, pair):
    """Makes `pair` the best of its row if it beats what is recorded there; a tie goes to the smaller right id."""
    row = pairs[pair, KEY] >> 32
    right = pairs[pair, KEY] & RIGHT_BITS
    if best[row, 0] >= 0:
        order = compare_scores(pairs[pair, COUNT], symbol_counts[right], 1, best[row, 1], best[row, 2], 1)
        if order < 0 or (order == 0 and pairs[pair, KEY] >= pairs[best[row, 0], KEY]):
            return False
    best[row, 0] = pair
    best[row, 1] = pairs[pair, COUNT]
    best[row, 2] = symbol_counts[right]
    return True


@kernel
def _link(links, heads, pairs, pair):
    """Puts a pair into the lists of its row (same left) and its column (same right)."""
    for axis in range(2):
        symbol = pairs[pair, KEY] >> 32 if axis == 0 else pairs[pair, KEY] & RIGHT_BITS
        following = heads[axis, symbol]
        links[pair, 2 * axis] = following
        links[pair, 2 * axis + 1] = -1
        if following >= 0:
            links[following, 2 * axis + 1] = pair
        heads[axis, symbol] = pair
    pairs[pair, QUEUED] = 1


@kernel
def _unlink(links, heads, pairs, pair):
    for axis in range(2):
        symbol = pairs[pair, KEY] >> 32 if axis == 0 else pairs[pair, KEY] & RIGHT_BITS
        following, preceding = links[pair, 2 * axis], links[pair, 2 * axis + 1]
        if preceding >= 0:
            links[preceding, 2 * axis] = following
        else:
            heads[axis, symbol] = following
        if following >= 0:
            links[following, 2 * axis + 1] = preceding
    pairs[pair, QUEUED] = 0


@kernel
def rank_rows(positions, counts, pairs, state, min_count, links, heads, best, tree, symbol_counts):
    """Fills the tables of `merge_most_likely` for words in which nothing has been merged yet."""
    for at in range(positions.shape[0]):
        symbol_counts[positions[at, SYMBOL]] += counts[positions[at, WORD]]
    for pair in range(state[N_PAIRS]):
        if pairs[pair, COUNT] >= min_count:
            _link(links, heads, pairs, pair)
            _improves_row(best, pairs, symbol_counts, pair)
    n_leaves = np.int64(tree.size // 2)
    for row in range(n_leaves):
        tree[n_leaves + row] = row
    for node in range(n_leaves - 1, 0, -1):
        _play(tree, best, symbol_counts, node)


@kernel
def _search_row(pairs, links, heads, best, tree, symbol_counts, row):
    best[row, 0] = -1
    pair = np.int64(heads[0, row])
    while pair >= 0:
        _improves_row(best, pairs, symbol_counts, pair)
        pair = np.int64(links[pair, NEXT_IN_ROW])
    _replay(tree, best, symbol_counts, row)


@kernel
def _raise_bounds(pairs, touched, state, min_count, links, heads, best, tree, symbol_counts, left, right):
    """Compares every pair whose value in its row the merge of these two may have raised with the row's record."""
    for i in range(state[N_TOUCHED]):
        pair = np.int64(touched[i])
        if pairs[pair, COUNT] >= min_count and pairs[pair, QUEUED] == 0:
            _link(links, heads, pairs, pair)
        elif pairs[pair, COUNT] < min_count and pairs[pair, QUEUED] == 1:
            _unlink(links, heads, pairs, pair)
        if pairs[pair, QUEUED] == 1 and _improves_row(best, pairs, symbol_counts, pair):
            _replay(tree, best, symbol_counts, pairs[pair, KEY] >> 32)
    for symbol in (left, right):
        pair = np.int64(heads[1, symbol])
        while pair >= 0:
            if _improves_row(best, pairs, symbol_counts, pair):
                _replay(tree, best, symbol_counts, pairs[pair, KEY] >> 32)
            pair = np.int64(links[pair, NEXT_IN_COLUMN])


@kernel
def merge_most_likely(
    positions,
    counts,
    pairs,
    slots,
    touched,
    merges,
    state,
    occurrences,
    pool,
    token_offsets,
    token_slots,
    prefix,
    min_count,
    links,
    heads,
    best,
    tree,
    symbol_counts,
):
    """Merges the pair of maximum count(ab) / (count(a) * count(b)) again and again; False if it needs more room.

    All pairs that share their left symbol form a row, those that share their right symbol a column; `heads`
    int32[2, n_symbols] and `links` int32[capacity, 4] list both, QUEUED is 1 for the pairs in them, which are those
    frequent enough. `best[row]` int64[3] records a pair of the row (-1: none) with its count and its right symbol's
    count: a bound on count(ab) / count(b) in the row, and exact if both numbers are still true. `tree`
    int32[2 * n_leaves] is a tournament of the rows, by that bound / count(a).

    The bound is maintained as follows. Within a row count(a) is a common factor, so a change of count(a) moves the row
    in the tree and changes nothing inside. Inside, a value rises only if count(ab) rises (the pair is in `touched`) or
    count(b) falls (b is one of the two merged symbols, whose columns are walked); every such pair is compared with the
    record. A value that falls leaves the record too high, as a bound may be: when such a row wins the tournament, its
    record is not exact, the row is searched again, and the tournament repeated. An exact winner is the maximum, ties
    included: an equal pair with smaller ids would have risen to that value since, and been compared.
    """
    while state[N_TOKENS] < token_offsets.size - 1:
        row = np.int64(tree[1])
        pair = best[row, 0]
        if pair < 0:
            return True
        left = pairs[pair, KEY] >> 32
        right = pairs[pair, KEY] & RIGHT_BITS
        if pairs[pair, QUEUED] == 0 or pairs[pair, COUNT] != best[row, 1] or symbol_counts[right] != best[row, 2]:
            _search_row(pairs, links, heads, best, tree, symbol_counts, row)
            continue
        n_occurrences = list_occurrences(positions, pairs[pair, FIRST], occurrences)
        if not has_room(pool, token_offsets, pairs, merges, state, left, right, n_occurrences):
            return False
        merged = join(pool, token_offsets, token_slots, prefix, state, left, right)
        count = merge_occurrences(
            positions, counts, pairs, slots, touched, state, occurrences, n_occurrences, left, right, merged
        )
        note_merge(merges, state, left, right, merged)
        symbol_counts[left] -= count
        symbol_counts[right] -= count
        symbol_counts[merged] += count
        for symbol in (left, right):
            if symbol_counts[symbol] == 0:
                best[symbol, 0] = -1  # its last occurrence is gone, and with it every pair of its row
        _raise_bounds(pairs, touched, state, min_count, links, heads, best, tree, symbol_counts, left, right)
        for symbol in (left, right, merged):
            _replay(tree, best, symbol_counts, symbol)
    return True
