# SPDX-License-Identifier: Apache-2.0
"""Counting words in the encode loop, and the characters of counted words.

Instead of ids, a slot of the table holds how often its span has occurred, so that frequent words are counted in the
processor's cache. A counter that grows, `Work.tally`, has the others: spans too long to be their own key, and those
that were evicted from the table. `move_counts` adds the counts that are in the table.

Its reference implementations are `tests.reference.bert.count_words` and
`tests.reference.counting.count_pre_tokens`; `tests/tokenizer/test_counting.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, leading_zeros, unlikely
from tokenmill.tokenizer.kernels import word_table
from tokenmill.tokenizer.kernels.by_address import fields_of
from tokenmill.tokenizer.kernels.encode_loop import AT, KEY_0, KEY_1, SLOT, STOP, call_miss
from tokenmill.tokenizer.kernels.span_table import EVICTIONS, FLAG, LONGEST, ask_for_line, hash_key, span_key
from tokenmill.tokenizer.kernels.utf8 import add_characters
from tokenmill.tokenizer.kernels.word_table import SHORT_WORD_BYTES, add_count, same_bytes, word_key_anywhere

_ONE, _TWO, _FOUR, _32 = (np.uint64(c) for c in (1, 2, 4, 32))
_LOW = np.uint64(0xFFFFFFFF)
_BYTES = np.uint64((1 << 56) - 1)
_LONG = np.uint64(0xFF << 56)


@kernel_part
def count_all(own, loop, first, n, o):
    """Counts the spans first..n-1 of a batch: a sink of the encode loop, without values of its own."""
    _, _, _, work = fields_of(loop)
    batch, slots = work.batch, work.table.slots
    long_words = work.tally.slots
    mask = np.uint64(long_words.shape[0] - 1)
    for counter in range(first, n):
        k = np.uint64(counter)
        if unlikely(batch[KEY_1 + k] >= _LONG):
            w = np.int64(batch[KEY_1 + k] & _BYTES)
            ask_for_line(long_words, word_table.first_slot(w, batch[KEY_0 + k], np.uint64(0), mask) << _TWO)
    k = np.uint64(first)
    while k < np.uint64(n):
        j, k0, k1 = batch[SLOT + k], batch[KEY_0 + k], batch[KEY_1 + k]
        # Selects the first slot of the line, or else the second, without a branch.
        j += np.uint64((slots[j] ^ k0) | (slots[j + _ONE] ^ k1) != np.uint64(0)) << _TWO
        if unlikely((slots[j] ^ k0) | (slots[j + _ONE] ^ k1) != np.uint64(0)):
            o = call_miss(loop, k, o)
        else:
            slots[j + _TWO] += _ONE
        k += _ONE
    return o


@kernel_part
def _move_count(slots, j, counter):
    """Adds the count in slot j to the counter and empties the slot."""
    w = np.int64(slots[j + _ONE] >> np.uint64(56))
    if w > 0:
        add_count(counter, counter.words, 0, w, slots[j], slots[j + _ONE] & _BYTES, np.int64(slots[j + _TWO]))
    slots[j], slots[j + _ONE], slots[j + _TWO] = np.uint64(0), np.uint64(0), np.uint64(0)


@kernel_part
def miss_count(own, loop, k, o):
    """Counts span k of a batch, which is not in the table: there, instead of a rarer one; in the counter if long."""
    data, _, _, work = fields_of(loop)
    batch, slots = work.batch, work.table.slots
    at = np.int64(batch[AT + k] & ~FLAG)
    w = np.int64(batch[STOP + k]) - at
    if w > LONGEST:
        h0, h1 = batch[KEY_0 + k], np.uint64(0)
        if w == SHORT_WORD_BYTES:
            h0, h1 = word_key_anywhere(data, at, w)
        add_count(work.tally, data, at, w, h0, h1, 1)
        return o
    j = batch[SLOT + k]
    if slots[j + _FOUR + _TWO] < slots[j + _TWO]:
        j += _FOUR
    work.table.state[EVICTIONS] += slots[j + _ONE] != np.uint64(0)
    _move_count(slots, j, work.tally)
    slots[j], slots[j + _ONE], slots[j + _TWO] = batch[KEY_0 + k], batch[KEY_1 + k], _ONE
    return o


@kernel
def move_counts(slots, counter):
    """Moves all counts of a table to a counter that has room for them.

    Args:
      slots: uint64[8 * n_lines], see `span_table`, changed; counter: kernel_memory.CounterArrays, changed.
    """
    for j in range(0, slots.size, 4):
        _move_count(slots, np.uint64(j), counter)


@kernel
def add_up(values, offsets, counts, table, rows, sums):
    """Adds up counts of words that may occur several times.

    Args:
      values: uint8[n_bytes]; offsets: int64[n + 1]: the words; counts: int64[n].
      table: uint64[power of two, more than n], zeros, for work: 32 bits of the hash of each word met, and its number.
      rows: int64[n], filled with the first row of each distinct word; sums: int64[n], filled with its sum.

    Returns:
      The number of distinct words.
    """
    shift = np.uint64(leading_zeros(np.uint64(table.size - 1)))
    last = np.uint64(table.size - 1)
    n = np.int64(0)
    for row in range(counts.size):
        at, w = offsets[row], offsets[row + 1] - offsets[row]
        k0, k1 = span_key(values, at, w)
        h = hash_key(k0, k1)
        j = h >> shift
        h <<= _32
        while table[j] != np.uint64(0):
            if (table[j] ^ h) >> _32 == np.uint64(0):
                known = np.int64(table[j] & _LOW) - 1
                other = offsets[rows[known]]
                if offsets[rows[known] + 1] - other == w:
                    o0, o1 = span_key(values, other, w)
                    if o0 == k0 and o1 == k1 and (w <= LONGEST or same_bytes(values, other, values, at, w)):
                        sums[known] += counts[row]
                        break
            j = (j + _ONE) & last
        else:
            rows[n], sums[n] = row, counts[row]
            n += 1
            table[j] = h | np.uint64(n)
    return n


@kernel
def first_eight(values, offsets, rows, out):
    """Writes the first eight bytes of some words as numbers that sort like the bytes; shorter words are padded with 0.

    Args:
      values: uint8[n_bytes]; offsets: int64[n_words + 1]: words; rows: int64[n], which of them; out: uint64[n], filled.
    """
    for k in range(rows.size):
        at, stop = offsets[rows[k]], offsets[rows[k] + 1]
        number = np.uint64(0)
        for q in range(at, min(at + 8, stop)):
            number |= np.uint64(values[q]) << np.uint64(8 * (7 - q + at))
        out[k] = number


@kernel
def count_characters(values, offsets, counts, characters):
    """Adds up how often each character occurs in words that occur `counts` times.

    Args:
      values: uint8[n]; offsets: int64[n_words + 1]: words of valid UTF-8; counts: int64[n_words].
      characters: int64[0x110000], added to.
    """
    for i in range(counts.size):
        add_characters(values, offsets[i], offsets[i + 1], counts[i], characters)
