# SPDX-License-Identifier: Apache-2.0
"""The rule `likelihood`: a tournament of rows of pairs, by exact scores.

    tables: Merging                    of `pair_merging`; changed
    rows: Rows                         changed

Its reference implementation is `tests.reference.trainers.train_wordpiece`;
`tests/tokenizer/trainers/test_wordpiece_trainer.py` compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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


class Rows(NamedTuple):
    """The pairs by their left symbol, in rows, and by their right symbol, in columns; see `merge_most_likely`."""

    links: npt.NDArray[np.int32]
    """int32[capacity, 4]: the next and the previous pair in a row, and in a column."""
    heads: npt.NDArray[np.int32]
    """int32[2, n_symbols]: the first pair of each row, and of each column."""
    best: npt.NDArray[np.int64]
    """int64[n_leaves, 3]: a pair of each row (-1: none), with its count and its right symbol's count."""
    tree: npt.NDArray[np.int32]
    """int32[2 * n_leaves]: a tournament of the rows."""
    symbol_counts: npt.NDArray[np.int64]
    """int64[n_leaves]: how often each symbol occurs."""


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
def _play(rows, node):
    """Decides one match of the tournament; a tie goes to the smaller row, which is the left one."""
    tree, best, symbol_counts = rows.tree, rows.best, rows.symbol_counts
    a, b = np.int64(tree[2 * node]), np.int64(tree[2 * node + 1])
    if best[a, 0] < 0 or best[b, 0] < 0:
        b_wins = best[b, 0] >= 0
    else:
        b_wins = compare_scores(best[a, 1], best[a, 2], symbol_counts[a], best[b, 1], best[b, 2], symbol_counts[b]) < 0
    tree[node] = b if b_wins else a


@kernel
def _replay(rows, row):
    """Decides the matches of `row` again, from its leaf to the root."""
    node = (rows.tree.size // 2 + row) // 2
    while node >= 1:
        _play(rows, node)
        node //= 2


@kernel
def _improves_row(tables, rows, pair):
    """Makes `pair` the best of its row if it beats what is recorded there; a tie goes to the smaller right id."""
    pairs, best, symbol_counts = tables.pairs, rows.best, rows.symbol_counts
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
def _link(tables, rows, pair):
    """Puts a pair into the lists of its row (same left) and its column (same right)."""
    pairs, links, heads = tables.pairs, rows.links, rows.heads
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
def _unlink(tables, rows, pair):
    pairs, links, heads = tables.pairs, rows.links, rows.heads
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
def rank_rows(tables, min_count, rows):
    """Fills `rows`, whose arrays are -1 or 0, for words in which nothing has been merged yet."""
    positions, pairs, tree = tables.positions, tables.pairs, rows.tree
    for at in range(positions.shape[0]):
        rows.symbol_counts[positions[at, SYMBOL]] += tables.counts[positions[at, WORD]]
    for pair in range(tables.state[N_PAIRS]):
        if pairs[pair, COUNT] >= min_count:
            _link(tables, rows, pair)
            _improves_row(tables, rows, pair)
    n_leaves = np.int64(tree.size // 2)
    for row in range(n_leaves):
        tree[n_leaves + row] = row
    for node in range(n_leaves - 1, 0, -1):
        _play(rows, node)


@kernel
def _search_row(tables, rows, row):
    rows.best[row, 0] = -1
    pair = np.int64(rows.heads[0, row])
    while pair >= 0:
        _improves_row(tables, rows, pair)
        pair = np.int64(rows.links[pair, NEXT_IN_ROW])
    _replay(rows, row)


@kernel
def _raise_bounds(tables, min_count, rows, left, right):
    """Compares every pair whose value in its row the merge of these two may have raised with the row's record."""
    pairs = tables.pairs
    for i in range(tables.state[N_TOUCHED]):
        pair = np.int64(tables.touched[i])
        if pairs[pair, COUNT] >= min_count and pairs[pair, QUEUED] == 0:
            _link(tables, rows, pair)
        elif pairs[pair, COUNT] < min_count and pairs[pair, QUEUED] == 1:
            _unlink(tables, rows, pair)
        if pairs[pair, QUEUED] == 1 and _improves_row(tables, rows, pair):
            _replay(rows, pairs[pair, KEY] >> 32)
    for symbol in (left, right):
        pair = np.int64(rows.heads[1, symbol])
        while pair >= 0:
            if _improves_row(tables, rows, pair):
                _replay(rows, pairs[pair, KEY] >> 32)
            pair = np.int64(rows.links[pair, NEXT_IN_COLUMN])


@kernel
def merge_most_likely(tables, min_count, rows):
    """Merges the pair of maximum count(ab) / (count(a) * count(b)) again and again; False if it needs more room.

    All pairs that share their left symbol form a row, those that share their right symbol a column; QUEUED is 1 for the
    pairs in them, which are those frequent enough. What `best` records is a bound on count(ab) / count(b) in the row,
    and exact if both numbers are still true. The tournament goes by that bound / count(a).

    The bound is maintained as follows. Within a row count(a) is a common factor, so a change of count(a) moves the row
    in the tree and changes nothing inside. Inside, a value rises only if count(ab) rises (the pair is in `touched`) or
    count(b) falls (b is one of the two merged symbols, whose columns are walked); every such pair is compared with the
    record. A value that falls leaves the record too high, as a bound may be: when such a row wins the tournament, its
    record is not exact, the row is searched again, and the tournament repeated. An exact winner is the maximum, ties
    included: an equal pair with smaller ids would have risen to that value since, and been compared.
    """
    pairs, best, symbol_counts = tables.pairs, rows.best, rows.symbol_counts
    while tables.state[N_TOKENS] < tables.token_offsets.size - 1:
        row = np.int64(rows.tree[1])
        pair = best[row, 0]
        if pair < 0:
            return True
        left = pairs[pair, KEY] >> 32
        right = pairs[pair, KEY] & RIGHT_BITS
        if pairs[pair, QUEUED] == 0 or pairs[pair, COUNT] != best[row, 1] or symbol_counts[right] != best[row, 2]:
            _search_row(tables, rows, row)
            continue
        n_occurrences = list_occurrences(tables, pairs[pair, FIRST])
        if not has_room(tables, left, right, n_occurrences):
            return False
        merged = join(tables, left, right)
        count = merge_occurrences(tables, n_occurrences, left, right, merged)
        note_merge(tables, left, right, merged)
        symbol_counts[left] -= count
        symbol_counts[right] -= count
        symbol_counts[merged] += count
        for symbol in (left, right):
            if symbol_counts[symbol] == 0:
                best[symbol, 0] = -1  # its last occurrence is gone, and with it every pair of its row
        _raise_bounds(tables, min_count, rows, left, right)
        for symbol in (left, right, merged):
            _replay(rows, symbol)
    return True
