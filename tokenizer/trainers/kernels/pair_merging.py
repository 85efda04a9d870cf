# SPDX-License-Identifier: Apache-2.0
"""Vocabulary training by merging pairs of adjacent symbols: the loops behind `tokenmill.tokenizer.trainers`.

A word is a run of rows of one table, linked to its left and right neighbour, so that a merge costs the same in a word
of ten characters and of ten million. Every row that begins a pair is also a member of that pair's list of occurrences,
and leaves it the moment the pair is gone: so the lists are exact, and all merges of a training together replace at most
as many pairs as there are characters.

    tables: Merging                    changed

Tokens are byte strings in one pool, `pool[token_offsets[id]:token_offsets[id + 1]]`; two ids never have the same bytes.
Counts are trusted to be positive and to add up to less than 2**63 over all characters: then no sum here overflows.

Kernels take all of it as one tuple, and do not allocate. Those that may run out of room return False before they change
anything, with what they need in `state`; `tokenmill.tokenizer.trainers.merging` provides it and calls again.

Its reference implementations are `tests.reference.trainers.train_bpe` and `tests.reference.trainers.train_wordpiece`;
`tests/tokenizer/trainers/test_bpe_trainer.py` compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

CONTINUES, ENDS = 1, 2

SYMBOL, PREVIOUS, NEXT, WORD, PAIR, EARLIER, LATER = range(7)
KEY, COUNT, FIRST, STEP, QUEUED = range(5)
N_PAIRS, N_TOUCHED, N_STEPS, N_QUEUED, N_TOKENS, N_MERGES, ROWS_WANTED, BYTES_WANTED = range(8)
LEFT, RIGHT, PRODUCT, N_TOKENS_AFTER = range(4)

RIGHT_BITS = 0xFFFFFFFF
_HALF = np.uint64(32)
_PAIR_HASH = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: spreads consecutive keys over the high bits
_FNV_BASIS = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


class Merging(NamedTuple):
    """The words, pairs and tokens of a training; a capacity is a power of two."""

    positions: npt.NDArray[np.int32]
    """int32[n_characters, 7], one row per character: SYMBOL (-1 once merged into its left neighbour), PREVIOUS and NEXT
    row in the word, WORD, PAIR that begins here, EARLIER and LATER row in that pair's list; -1 where there is none."""
    counts: npt.NDArray[np.int64]
    """int64[n_words]: how often each word occurs."""
    pairs: npt.NDArray[np.int64]
    """int64[capacity, 5], one row per pair ever met: KEY (left << 32 | right), COUNT (its occurrences now, each times
    its word's count), FIRST row of its list, STEP that last changed it, QUEUED (what the rule notes about it)."""
    slots: npt.NDArray[np.int32]
    """int32[2 * capacity]: open addressing over KEY, row of `pairs` or -1."""
    touched: npt.NDArray[np.int32]
    """int32[capacity]: the pairs whose count the last merge has changed."""
    merges: npt.NDArray[np.int32]
    """int32[n, 4]: what was merged, in order: LEFT and RIGHT symbol, their PRODUCT, N_TOKENS_AFTER."""
    state: npt.NDArray[np.int64]
    """int64[8]: the numbers that outlive a call, N_PAIRS and following."""
    occurrences: npt.NDArray[np.int32]
    """int32[n_characters], for work: the rows of a pair's list."""
    pool: npt.NDArray[np.uint8]
    """uint8[n_pool]: the tokens, one after the other."""
    token_offsets: npt.NDArray[np.int64]
    """int64[n_tokens + 1]: where each begins in the pool."""
    token_slots: npt.NDArray[np.int32]
    """int32[power of two]: open addressing over their bytes, id or -1."""
    prefix: npt.NDArray[np.uint8]
    """uint8[n_prefix]: what continues a word in front of a token."""


@kernel_part
def _place(at, start, stop):
    """Returns the place of a character in its word: CONTINUES unless it is the first, ENDS if it is the last."""
    return (CONTINUES if at > start else 0) | (ENDS if at == stop - 1 else 0)


@kernel
def count_characters(values, offsets, counts, occurrences, places):
    """Counts every character, and notes at which places of words it occurs.

    Args:
      values: int32[n_characters] code points, or uint8[n_characters] bytes, the words one after the other.
      offsets: int64[n_words + 1], row boundaries in `values`.
      counts: int64[n_words], how often each word occurred.
      occurrences: int64[n_distinct], added to; longer than the largest value.
      places: uint8[n_distinct], added to: bit `place` is set if a character occurs at that place of some word.
    """
    for word in range(counts.size):
        for at in range(offsets[word], offsets[word + 1]):
            occurrences[values[at]] += counts[word]
            places[values[at]] |= 1 << _place(at, offsets[word], offsets[word + 1])


@kernel
def lay_out_words(values, offsets, ids, positions):
    """Fills `positions` with these words, in no pair's list yet; returns how many rows they take.

    Args:
      values: int32[n_characters] or uint8[n_characters], as in `count_characters`.
      offsets: int64[n_words + 1].
      ids: int32[4, n_distinct], symbol of each character by its place in the word, -1 to leave the character out.
      positions: int32[n_characters, 7], all -1; changed.
    """
    n_positions = 0
    for word in range(offsets.size - 1):
        previous = -1
        for at in range(offsets[word], offsets[word + 1]):
            symbol = ids[_place(at, offsets[word], offsets[word + 1]), values[at]]
            if symbol < 0:
                continue
            positions[n_positions, SYMBOL] = symbol
            positions[n_positions, WORD] = word
            positions[n_positions, PREVIOUS] = previous
            if previous >= 0:
                positions[previous, NEXT] = n_positions
            previous = n_positions
            n_positions += 1
    return n_positions


@kernel_part
def _slot_of(tables, key):
    """Returns the slot that holds the pair `key`, or the free slot where it belongs."""
    slots, pairs = tables.slots, tables.pairs
    mask = np.int64(slots.size - 1)
    slot = np.int64((np.uint64(key) * _PAIR_HASH) >> _HALF) & mask
    while slots[slot] >= 0 and pairs[slots[slot], KEY] != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def find_pair(tables, key):
    """Returns the row of a pair, -1 if it never occurred."""
    return np.int64(tables.slots[_slot_of(tables, key)])


@kernel
def fill_slots(tables):
    """Enters the pairs into slots that are all free."""
    for pair in range(tables.state[N_PAIRS]):
        tables.slots[_slot_of(tables, tables.pairs[pair, KEY])] = pair


@kernel_part
def _touch(tables, pair):
    pairs, touched, state = tables.pairs, tables.touched, tables.state
    if pairs[pair, STEP] != state[N_STEPS]:
        pairs[pair, STEP] = state[N_STEPS]
        touched[state[N_TOUCHED]] = pair
        state[N_TOUCHED] += 1


@kernel
def _add_occurrence(tables, at, count):
    """Puts row `at` into the list of the pair that begins there."""
    positions, pairs, state = tables.positions, tables.pairs, tables.state
    key = (np.int64(positions[at, SYMBOL]) << 32) | np.int64(positions[positions[at, NEXT], SYMBOL])
    slot = _slot_of(tables, key)
    pair = np.int64(tables.slots[slot])
    if pair < 0:
        pair = state[N_PAIRS]
        state[N_PAIRS] += 1
        tables.slots[slot] = pair
        pairs[pair, KEY] = key
        pairs[pair, COUNT] = 0
        pairs[pair, FIRST] = -1
        pairs[pair, STEP] = -1
        pairs[pair, QUEUED] = 0
    first = pairs[pair, FIRST]
    positions[at, PAIR] = pair
    positions[at, EARLIER] = -1
    positions[at, LATER] = first
    if first >= 0:
        positions[first, EARLIER] = at
    pairs[pair, FIRST] = at
    pairs[pair, COUNT] += count
    _touch(tables, pair)


@kernel
def _remove_occurrence(tables, at, count):
    """Takes row `at` out of the list of the pair that began there."""
    positions, pairs = tables.positions, tables.pairs
    pair = np.int64(positions[at, PAIR])
    earlier = positions[at, EARLIER]
    later = positions[at, LATER]
    if earlier >= 0:
        positions[earlier, LATER] = later
    else:
        pairs[pair, FIRST] = later
    if later >= 0:
        positions[later, EARLIER] = earlier
    positions[at, PAIR] = -1
    pairs[pair, COUNT] -= count
    _touch(tables, pair)


@kernel
def add_all(tables, start):
    """Puts all rows from `start` on into their pairs' lists; returns the row where it stopped for lack of room."""
    positions, pairs = tables.positions, tables.pairs
    for at in range(start, positions.shape[0]):
        if tables.state[N_PAIRS] == pairs.shape[0]:
            return at
        if positions[at, NEXT] >= 0:
            _add_occurrence(tables, at, tables.counts[positions[at, WORD]])
    return positions.shape[0]


@kernel
def list_occurrences(tables, first):
    """Copies the members of a list, so that it may change while they are visited; returns how many there are."""
    positions, occurrences = tables.positions, tables.occurrences
    n_occurrences = 0
    at = first
    while at >= 0:
        occurrences[n_occurrences] = at
        n_occurrences += 1
        at = np.int64(positions[at, LATER])
    return n_occurrences


@kernel
def merge_occurrences(tables, n_occurrences, left, right, merged):
    """Replaces every (left, right) by `merged`, left to right in each word.

    Only a pair of equal symbols can overlap itself, so only for these the order matters: a run of them is merged from
    its first row on, and occurrences inside the run are skipped.

    Returns:
      the number of replacements, each times its word's count. `touched` holds the pairs whose count changed.
    """
    positions, occurrences, state = tables.positions, tables.occurrences, tables.state
    state[N_STEPS] += 1
    state[N_TOUCHED] = 0
    total = np.int64(0)
    for i in range(n_occurrences):
        at = np.int64(occurrences[i])
        if positions[at, SYMBOL] != left:
            continue  # merged with the run that it belongs to
        previous = np.int64(positions[at, PREVIOUS])
        if left == right and previous >= 0 and positions[previous, SYMBOL] == left:
            continue
        count = tables.counts[positions[at, WORD]]
        while True:
            second = np.int64(positions[at, NEXT])
            after = np.int64(positions[second, NEXT])
            previous = np.int64(positions[at, PREVIOUS])
            _remove_occurrence(tables, at, count)
            if after >= 0:
                _remove_occurrence(tables, second, count)
            if previous >= 0:
                _remove_occurrence(tables, previous, count)
            positions[at, SYMBOL] = merged
            positions[at, NEXT] = after
            positions[second, SYMBOL] = -1
            if after >= 0:
                positions[after, PREVIOUS] = at
                _add_occurrence(tables, at, count)
            if previous >= 0:
                _add_occurrence(tables, previous, count)
            total += count
            if left != right or after < 0 or positions[after, SYMBOL] != left:
                break
            second = np.int64(positions[after, NEXT])
            if second < 0 or positions[second, SYMBOL] != left:
                break
            at = after
    return total


@kernel
def _slot_of_token(tables, start, stop):
    """Returns the slot of the token with the bytes `pool[start:stop]`, or the free slot where it belongs."""
    token_slots, pool, token_offsets = tables.token_slots, tables.pool, tables.token_offsets
    digest = _FNV_BASIS
    for i in range(start, stop):
        digest = (digest ^ np.uint64(pool[i])) * _FNV_PRIME
    mask = np.int64(token_slots.size - 1)
    slot = np.int64((digest * _PAIR_HASH) >> _HALF) & mask
    while token_slots[slot] >= 0:
        token = token_slots[slot]
        begin = token_offsets[token]
        if token_offsets[token + 1] - begin == stop - start:
            same = 0
            while same < stop - start and pool[begin + same] == pool[start + same]:
                same += 1
            if same == stop - start:
                break
        slot = (slot + 1) & mask
    return slot


@kernel
def fill_token_slots(tables):
    """Enters the tokens into slots that are all free; twice as many slots as tokens or more."""
    for token in range(tables.state[N_TOKENS]):
        slot = _slot_of_token(tables, tables.token_offsets[token], tables.token_offsets[token + 1])
        tables.token_slots[slot] = token


@kernel
def join(tables, left, right):
    """Returns the id of left + right without its prefix, a new one if there is no such token."""
    pool, token_offsets, token_slots, prefix, state = (
        tables.pool,
        tables.token_offsets,
        tables.token_slots,
        tables.prefix,
        tables.state,
    )
    start = token_offsets[right]
    stop = token_offsets[right + 1]
    same = 0
    while same < prefix.size and start + same < stop and pool[start + same] == prefix[same]:
        same += 1
    if same == prefix.size:
        start += same
    begin = token_offsets[state[N_TOKENS]]
    end = begin
    for i in range(token_offsets[left], token_offsets[left + 1]):
        pool[end] = pool[i]
        end += 1
    for i in range(start, stop):
        pool[end] = pool[i]
        end += 1
    slot = _slot_of_token(tables, begin, end)
    if token_slots[slot] < 0:
        token_slots[slot] = state[N_TOKENS]
        state[N_TOKENS] += 1
        token_offsets[state[N_TOKENS]] = end
    return np.int64(token_slots[slot])


@kernel
def note_merge(tables, left, right, merged):
    """Records that these two were merged; `has_room` has checked that there is room."""
    merges, state = tables.merges, tables.state
    merges[state[N_MERGES], LEFT] = left
    merges[state[N_MERGES], RIGHT] = right
    merges[state[N_MERGES], PRODUCT] = merged
    merges[state[N_MERGES], N_TOKENS_AFTER] = state[N_TOKENS]
    state[N_MERGES] += 1


@kernel_part
def has_room(tables, left, right, n_occurrences):
    """True if these occurrences can be merged: each makes two pairs at most, all of them with the new token."""
    token_offsets, pairs, state = tables.token_offsets, tables.pairs, tables.state
    size = token_offsets[left + 1] - token_offsets[left] + token_offsets[right + 1] - token_offsets[right]
    state[BYTES_WANTED] = token_offsets[state[N_TOKENS]] + size
    state[ROWS_WANTED] = state[N_PAIRS] + 2 * min(n_occurrences, state[N_TOKENS] + 1)
    has_bytes = state[BYTES_WANTED] <= tables.pool.size
    return has_bytes and state[ROWS_WANTED] <= pairs.shape[0] and state[N_MERGES] < tables.merges.shape[0]
