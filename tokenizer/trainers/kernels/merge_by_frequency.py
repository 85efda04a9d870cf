# SPDX-License-Identifier: Apache-2.0
"""The rule `frequency`: a heap of pairs, corrected lazily.

    tables:    Merging                 of `pair_merging`; changed
    heap:      int64[capacity, 2]      see `merge_most_frequent`; changed
    lengths:   int32[n_tokens]         characters of each token; changed

Its reference implementation is `tests.reference.trainers.train_bpe`; `tests/tokenizer/trainers/test_bpe_trainer.py`
compares them.
"""

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.trainers.kernels.pair_merging import (
    COUNT,
    FIRST,
    KEY,
    N_QUEUED,
    N_TOKENS,
    N_TOUCHED,
    QUEUED,
    RIGHT_BITS,
    ROWS_WANTED,
    has_room,
    join,
    list_occurrences,
    merge_occurrences,
    note_merge,
)

_BARRED = 2**63 - 1


@kernel_part
def _goes_first(tables, heap, i, j):
    """True if entry `i` of the heap is to be merged before entry `j`: higher count, then smaller (left, right)."""
    if heap[i, 0] != heap[j, 0]:
        return heap[i, 0] > heap[j, 0]
    return tables.pairs[heap[i, 1], KEY] < tables.pairs[heap[j, 1], KEY]


@kernel_part
def _swap(heap, i, j):
    count, pair = heap[i, 0], heap[i, 1]
    heap[i, 0], heap[i, 1] = heap[j, 0], heap[j, 1]
    heap[j, 0], heap[j, 1] = count, pair


@kernel
def _sift_up(tables, heap, i):
    while i > 0 and _goes_first(tables, heap, i, (i - 1) // 2):
        _swap(heap, i, (i - 1) // 2)
        i = (i - 1) // 2


@kernel
def _sift_down(tables, heap, n_queued):
    i = 0
    while 2 * i + 1 < n_queued:
        child = 2 * i + 1
        if child + 1 < n_queued and _goes_first(tables, heap, child + 1, child):
            child += 1
        if not _goes_first(tables, heap, child, i):
            return
        _swap(heap, i, child)
        i = child


@kernel
def _queue_touched(tables, heap, min_count):
    """Queues the touched pairs whose entry would otherwise be too low."""
    pairs, touched, state = tables.pairs, tables.touched, tables.state
    for i in range(state[N_TOUCHED]):
        pair = touched[i]
        if pairs[pair, COUNT] >= min_count and pairs[pair, COUNT] > pairs[pair, QUEUED]:
            pairs[pair, QUEUED] = pairs[pair, COUNT]
            heap[state[N_QUEUED], 0] = pairs[pair, COUNT]
            heap[state[N_QUEUED], 1] = pair
            _sift_up(tables, heap, state[N_QUEUED])
            state[N_QUEUED] += 1
    state[N_TOUCHED] = 0


@kernel
def _correct_top(tables, heap, min_count):
    """Corrects or drops the first entry of the heap until it is exact, or the heap empty."""
    pairs, state = tables.pairs, tables.state
    while state[N_QUEUED] > 0:
        pair = heap[0, 1]
        is_valid = heap[0, 0] == pairs[pair, QUEUED]
        if is_valid and pairs[pair, COUNT] == pairs[pair, QUEUED]:
            return
        if is_valid and pairs[pair, COUNT] >= min_count:
            pairs[pair, QUEUED] = pairs[pair, COUNT]
            heap[0, 0] = pairs[pair, COUNT]
        else:
            if is_valid:
                pairs[pair, QUEUED] = 0
            state[N_QUEUED] -= 1
            _swap(heap, 0, state[N_QUEUED])
        _sift_down(tables, heap, state[N_QUEUED])


@kernel
def merge_most_frequent(tables, min_count, heap, lengths, max_length, reserved_from, reserved_to):
    """Merges the most frequent pair again and again; returns True when done, False if it needs more room.

    `heap` int64[capacity, 2] holds (count when queued, pair) and is corrected lazily. QUEUED is the count of a pair's
    valid entry, 0 if it has none. A pair whose count rises above QUEUED is queued again at once, so that no pair's
    valid entry is ever too low; an entry that is too high goes back with the right count when it comes to the top. So
    an exact entry at the top is the maximum.

    A pair is barred, by a QUEUED that no count exceeds, if its token would have more than `max_length` characters or
    is one of those from `reserved_from` up to `reserved_to`. `lengths` int32[n_tokens] has the characters of words that
    each token covered when it was first made, 0 for tokens that are not symbols yet.
    """
    pairs, state = tables.pairs, tables.state
    while True:
        if state[N_QUEUED] + state[N_TOUCHED] > heap.shape[0]:
            state[ROWS_WANTED] = state[N_QUEUED] + state[N_TOUCHED]
            return False
        _queue_touched(tables, heap, min_count)
        _correct_top(tables, heap, min_count)
        if state[N_QUEUED] == 0 or state[N_TOKENS] == tables.token_offsets.size - 1:
            return True
        pair = heap[0, 1]
        left = pairs[pair, KEY] >> 32
        right = pairs[pair, KEY] & RIGHT_BITS
        length = lengths[left] + lengths[right]
        if length > max_length:
            pairs[pair, QUEUED] = _BARRED
            continue
        n_occurrences = list_occurrences(tables, pairs[pair, FIRST])
        if not has_room(tables, left, right, n_occurrences):
            return False
        merged = join(tables, left, right)
        if reserved_from <= merged < reserved_to:
            pairs[pair, QUEUED] = _BARRED
            continue
        if lengths[merged] == 0:
            lengths[merged] = length
        merge_occurrences(tables, n_occurrences, left, right, merged)
        note_merge(tables, left, right, merged)
