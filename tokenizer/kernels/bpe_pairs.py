# SPDX-License-Identifier: Apache-2.0
"""The pair table of BPE, and the places that no merge reaches across.

Pairs are found in an open-addressing table of 8-byte slots, eight to a cache line. The 48-bit pair (two 24-bit ids)
goes through a bijective hash; its high bits are the home slot, so a slot needs to hold only the low bits, and how far
from home it is:

    63 .. 24  low bits of the hashed pair, left aligned, then the distance from home
    23 .. 0   rank of the merge

Most pairs that are looked up do not merge. Before the slots, in the same array, is a filter, four bits for every
slot: if the bit of a pair is 0, the pair is in no slot. The filter is 16 times smaller than the slots, and so stays in
the cache when they do not.

Its reference implementation is `tokenmill.tokenizer.models.bpe_fields.BPEFields.ranks`;
`tests/tokenizer/models/test_bpe.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

NO_RANK = np.uint32(0xFFFFFF)
"""Rank of a pair that does not merge; real ranks are smaller."""
NO_KEY = np.uint32(0xFFFFFFFF)
"""The key (see bpe_merging) of a place where no pair begins; that of a pair that does not merge has rank `NO_RANK`."""
LEAST_NO_KEY = np.uint32(0xFFFFFF00)
MIN_PAIR_BITS = 14
FILTER_BITS = 2
"""The bits of a place in the filter exceed those of a slot by this many; 64 places are an element."""
JOIN_BITS = 20

NO_PAIR = np.uint64(0xFFFFFFFFFFFF)
"""The number of a pair that is in no table: twice the largest possible id."""

_NO_SLOT = np.uint64(0xFFFFFFFFFFFFFFFF)
_RANK_MASK = np.uint64(0xFFFFFF)
_RANK_BITS = np.uint64(24)
_HASH = np.uint64(0x9E3779B97F4A7C15 << 16 & 0xFFFFFFFFFFFFFFFF)  # odd * 2**16: a bijection of 48 bits into the high 48


@kernel_part
def pair_of(left, right):
    """Returns the number of a pair of ids, uint64."""
    return (np.uint64(left) << np.uint64(24)) | np.uint64(right)


@kernel_part
def _hashed(left, right):
    return pair_of(left, right) * _HASH


@kernel_part
def filter_size(bits):
    """Returns the number of elements that the filter of a pair table takes."""
    return np.uint64(1) << np.uint64(bits + FILTER_BITS - 6)


@kernel_part
def _home(bits, hashed):
    """Returns the home slot of a pair."""
    return filter_size(bits) + (hashed >> np.uint64(64 - bits))


@kernel_part
def _filter_place(bits, hashed):
    """Returns the place of a pair in the filter."""
    return hashed >> np.uint64(64 - FILTER_BITS - bits)


@kernel_part
def rank_of(slots, bits, pair):
    """Returns the rank of a pair, given its number, as uint32; `NO_RANK` if the two do not merge.

    Whether they do is as good as random, so nothing branches on it: an empty slot has the rank `NO_RANK`, and the last
    slot is empty.
    """
    hashed = pair * _HASH
    place = _filter_place(bits, hashed)
    is_set = (slots[place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1)
    last = np.uint64(slots.size - 1)
    j = last ^ ((last ^ _home(bits, hashed)) & -is_set)
    low = hashed << np.uint64(bits)
    distance = np.uint64(0)
    while True:
        slot = slots[j]
        if ((slot ^ low) >> _RANK_BITS == distance) | (slot == _NO_SLOT):
            return np.uint32(slot & _RANK_MASK)
        distance += np.uint64(1)
        j += np.uint64(1)


@kernel_part
def pair_rank(slots, bits, left, right):
    """Does `rank_of` for two ids."""
    return rank_of(slots, bits, pair_of(left, right))


@kernel_part
def _furthest(bits):
    """Returns how far from home a pair may be: one less than fits, so that no pair looks like an empty slot."""
    return (np.uint64(1) << np.uint64(bits - 8)) - np.uint64(2)


@kernel_part
def is_sparse(slots, bits):
    """Whether every search ends before its distance exceeds the bits that it is compared with."""
    run = np.uint64(0)
    for j in range(filter_size(bits), slots.size):
        run = np.uint64(0) if slots[j] == _NO_SLOT else run + np.uint64(1)
        if run > _furthest(bits):
            return False
    return True


@kernel_part
def set_rank(slots, bits, left, right, rank):
    """Sets or replaces the rank of a pair; returns False if the table is too crowded, and for `NO_PAIR`."""
    if pair_of(left, right) == NO_PAIR:
        return False
    hashed = _hashed(left, right)
    place = _filter_place(bits, hashed)
    slots[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))
    j = _home(bits, hashed)
    low = hashed << np.uint64(bits)
    distance = np.uint64(0)
    while distance <= _furthest(bits) and j < np.uint64(slots.size - 1):
        if slots[j] == _NO_SLOT or (slots[j] ^ low) >> _RANK_BITS == distance:
            slots[j] = low | (distance << _RANK_BITS) | np.uint64(rank)
            return True
        distance += np.uint64(1)
        j += np.uint64(1)
    return False


@kernel
def build_pairs(lefts, rights, ranks, slots, bits):
    """Fills the pair table; of equal pairs the last one counts.

    Args:
      lefts, rights, ranks: int32[n], ranks below `NO_RANK`.
      slots: uint64[n]: the filter, zeros, then 2**bits slots and a few more, all ones; filled. The last slot stays
        empty, and so ends every search.
      bits: at least MIN_PAIR_BITS.

    Returns:
      False if the table is too crowded; try again with more bits.
    """
    for k in range(lefts.size):
        if not set_rank(slots, bits, lefts[k], rights[k], ranks[k]):
            return False
    return is_sparse(slots, bits)


@kernel
def build_byte_pairs(byte_symbols, slots, bits, byte_pairs):
    """Fills the table of merges of two bytes.

    Args:
      byte_symbols: int32[4, 256], see `BPETables`.
      slots: uint64[n], the pair table.
      byte_pairs: uint32[65536], filled, by `left << 8 | right` of two bytes: `rank << 8` of their symbols.
    """
    for left in range(256):
        for right in range(256):
            rank = NO_RANK
            if byte_symbols[0, left] >= 0 and byte_symbols[0, right] >= 0:
                rank = pair_rank(slots, bits, byte_symbols[0, left], byte_symbols[0, right])
            byte_pairs[left << 8 | right] = rank << np.uint32(8)


# Places that merges reach across.


@kernel_part
def _join_bit(left, right):
    return _hashed(left, right) >> np.uint64(64 - JOIN_BITS)


@kernel_part
def may_join(joins, left, right):
    """Whether a merge may reach across two neighbouring initial symbols; if not, the two sides are independent."""
    bit = _join_bit(left, right)
    return (joins[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1) != 0


@kernel
def find_joins(lefts, rights, products, firsts, lasts, joins):
    """Sets the bits of neighbouring initial symbols that some merge reaches across.

    Args:
      lefts, rights, products: int32[n], the merges.
      firsts, lasts: int32[n_ids], filled: the initial symbols that each token begins and ends with; on entry, initial
        symbols have their own ids, all other tokens -1.
      joins: uint64[2**JOIN_BITS / 64], zeros, filled.

    Returns:
      False if a token can begin or end with several symbols, as when a merge makes an initial symbol.
    """
    changed = True
    while changed:  # two rounds, the last one to notice, if merges come after those that make their parts
        changed = False
        for rank in range(lefts.size):
            first, last, product = firsts[lefts[rank]], lasts[rights[rank]], products[rank]
            if first < 0 or last < 0 or lasts[lefts[rank]] < 0 or firsts[rights[rank]] < 0:
                continue
            if firsts[product] < 0:
                firsts[product] = first
                lasts[product] = last
                changed = True
            elif firsts[product] != first or lasts[product] != last:
                return False
    for rank in range(lefts.size):
        last, first = lasts[lefts[rank]], firsts[rights[rank]]
        if last >= 0 and first >= 0:
            bit = _join_bit(last, first)
            joins[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
    return True
