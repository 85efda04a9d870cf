# SPDX-License-Identifier: Apache-2.0
"""The merges of BPE: lowest rank first, and leftmost among equals, until none is left.

A long word is first cut into stretches wherever no merge can reach across: where none has a left part that ends with
the symbol before and a right part that begins with the one after. The two sides of such a place never affect each
other.

Stretches of up to 256 symbols have, for every symbol, a 32-bit key `rank << 8 | position` of the pair that begins
there. The smallest key gives both rank and place of the next merge; it is found eight keys at a time, and a merge
changes two keys and clears a third. Longer stretches use a heap of `rank << 32 | position`, and so do all if different
merges can be equally good.

Its reference implementation is `tokenmill.tokenizer.models.bpe_reference.tokenize_bytes`;
`tests/tokenizer/models/test_bpe.py` compares them.
"""

import numpy as np
from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import cgutils, intrinsic, kernel, kernel_part, types
from tokenmill.tokenizer.kernels.bpe_pairs import (
    LEAST_NO_KEY,
    NO_KEY,
    NO_PAIR,
    NO_RANK,
    may_join,
    pair_of,
    pair_rank,
    rank_of,
)

MAX_SCANNED = 256
"""Stretches of more symbols than this use the heap."""
MAX_UNCUT = 64
"""Words of more symbols than this are cut into stretches; for shorter ones it does not pay."""


@intrinsic
def _smallest_key(typingctx, keys, n):
    """Returns the smallest of `keys[:n]`, uint32; n is a positive multiple of eight."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        eight = ir.VectorType(ir.IntType(32), 8)
        i64 = ir.IntType(64)

        def load(index):
            return builder.load(builder.bitcast(builder.gep(data, [index]), eight.as_pointer()), align=4)

        first = load(ir.Constant(i64, 0))
        before = builder.block
        loop = builder.append_basic_block("eights")
        after = builder.append_basic_block("smallest")
        eights = ir.Constant(i64, 8)
        builder.cbranch(builder.icmp_signed(">", args[1], eights), loop, after)
        builder.position_at_end(loop)
        index, least = builder.phi(i64), builder.phi(eight)
        value = load(index)
        lower = builder.select(builder.icmp_unsigned("<", value, least), value, least)
        following = builder.add(index, eights)
        index.add_incoming(eights, before)
        index.add_incoming(following, loop)
        least.add_incoming(first, before)
        least.add_incoming(lower, loop)
        builder.cbranch(builder.icmp_signed("<", following, args[1]), loop, after)
        builder.position_at_end(after)
        smallest = builder.phi(eight)
        smallest.add_incoming(first, before)
        smallest.add_incoming(lower, loop)
        reduce = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.IntType(32), [eight]), "llvm.vector.reduce.umin.v8i32"
        )
        return builder.call(reduce, [smallest])

    return types.uint32(keys, types.int64), codegen


# The symbols of a stretch are linked by `nexts` and `previous`. The first symbol always survives, and leads to the
# others; the last one leads to the end of the stretch. Model is BPETables, scratch BPEScratch with room for the word.


@kernel_part
def merge_scanning(start, end, model, scratch):
    """Merges up to MAX_SCANNED linked symbols whose keys are set, up to a multiple of eight keys."""
    ids, nexts, previous, keys = scratch.ids, scratch.nexts, scratch.previous, scratch.keys
    slots, bits, products, first_product = model.pairs, model.pair_bits, model.products, model.first_product
    scanned = (end - start + 7) & ~7
    while True:
        best = _smallest_key(keys, scanned)
        if best >= LEAST_NO_KEY:
            break
        place = np.uint64(best & np.uint32(0xFF))
        i = np.uint64(start) + place
        rank = np.uint64(best >> np.uint32(8))
        # A load that all others wait for, and mostly from a distant cache, is avoided where ids follow ranks.
        symbol = np.int32(first_product + np.int64(rank)) if first_product >= 0 else products[rank]
        gone = np.uint64(nexts[i])
        after = np.uint64(nexts[gone])
        ids[i] = symbol
        nexts[i] = after
        previous[after] = i
        # No branch on whether there are symbols before and after: if there is none, NO_PAIR is looked up.
        none_before = -np.int64(np.int64(previous[i]) < start)
        none_after = -np.int64(np.int64(after) >= end)
        before = np.uint64(previous[i] - none_before)
        pair_before = pair_of(ids[before], symbol) | (np.uint64(none_before) & NO_PAIR)
        pair_after = pair_of(symbol, ids[after]) | (np.uint64(none_after) & NO_PAIR)
        # If there is none before, this key is overwritten by the next line.
        place_before = before - np.uint64(start)
        keys[place_before] = rank_of(slots, bits, pair_before) << np.uint32(8) | np.uint32(place_before)
        keys[place] = rank_of(slots, bits, pair_after) << np.uint32(8) | np.uint32(place)
        keys[gone - np.uint64(start)] = NO_KEY


@kernel_part
def link(start, end, scratch):
    """Links the symbols of a stretch, one to the next."""
    for q in range(start, end):
        scratch.nexts[q] = q + 1
        scratch.previous[q] = q - 1
    scratch.previous[end] = end - 1


@kernel_part
def set_keys(start, end, model, scratch):
    """Sets the keys of all pairs of a stretch, and NO_KEY from there to a multiple of eight."""
    n = end - start
    for q in range(n - 1):
        rank = pair_rank(model.pairs, model.pair_bits, scratch.ids[start + q], scratch.ids[start + q + 1])
        scratch.keys[q] = rank << np.uint32(8) | np.uint32(q)
    for q in range(n - 1, (n + 7) & ~7):
        scratch.keys[q] = NO_KEY


@kernel_part
def _order(rank, model):
    """Returns the priority of a merge, uint64: the least is the best."""
    return np.uint64(model.orders[rank] if model.orders.size > 0 else rank)


@kernel_part
def _push_pair(end, model, scratch, i, size):
    """Stores the rank of the pair that begins at symbol i, adds it to the heap if it merges; returns the new size."""
    after = np.int64(scratch.nexts[i])
    rank = NO_RANK
    if after < end:
        rank = pair_rank(model.pairs, model.pair_bits, scratch.ids[i], scratch.ids[after])
    scratch.ranks[i] = rank
    if rank != NO_RANK:
        size = push(scratch.heap, size, _order(rank, model) << np.uint64(32) | np.uint64(i))
    return size


@kernel_part
def merge_at(model, scratch, i, rank):
    """Merges symbol i with its right neighbour; returns the symbol before i."""
    gone = np.int64(scratch.nexts[i])
    after = np.int64(scratch.nexts[gone])
    scratch.ids[i] = model.products[rank]
    scratch.ranks[gone] = NO_RANK
    scratch.nexts[i] = after
    scratch.previous[after] = i
    return np.int64(scratch.previous[i])


@kernel_part
def _random(key, counter):
    """Returns 24 random bits: draw number `counter` of the stream named by `key` (SplitMix64)."""
    z = key + (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(40)


@kernel_part
def dropout_key(seed, occurrence):
    """Returns the key of the random stream of one occurrence of a word: the same in any batch, process or thread."""
    z = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(occurrence)
    z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return z ^ (z >> np.uint64(32))


@kernel
def merge_long(start, end, model, scratch, key):
    """Merges the linked symbols start..end, any number; a kernel, so that not every other one is compiled with a copy.

    An item whose pair has changed in the meantime is skipped. If the new pair is equally good, it has an item of its
    own, which does nothing once the first has merged.

    With dropout each possible merge is skipped with a probability, as HF does. Skipped items return to the heap after
    the next one that is not skipped, if there is one. As in HF, items that are out of date take a draw too.

    Args:
      model: BPETables; without dropout its `dropout_threshold` is 0.
      scratch: BPEScratch, changed.
      key: uint64, the `dropout_key` of this occurrence of the word.
    """
    heap, ranks, skipped = scratch.heap, scratch.ranks, scratch.skipped
    threshold = np.uint64(model.dropout_threshold)
    n_skipped, n_draws = 0, 0
    size = 0
    for q in range(start, end):
        size = _push_pair(end, model, scratch, q, size)
    while size > 0:
        item = heap[0]
        size = pop(heap, size)
        n_draws += 1
        if threshold > 0 and _random(key, n_draws) < threshold:
            skipped[n_skipped] = item
            n_skipped += 1
            continue
        for q in range(n_skipped):
            size = push(heap, size, skipped[q])
        n_skipped = 0
        i = np.int64(item & np.uint64(0xFFFFFFFF))
        if ranks[i] == NO_RANK or _order(ranks[i], model) != item >> np.uint64(32):
            continue
        before = merge_at(model, scratch, i, ranks[i])
        size = _push_pair(end, model, scratch, i, size)
        if before >= start:
            size = _push_pair(end, model, scratch, before, size)


@kernel_part
def merge(n, model, scratch):
    """Links and merges n symbols, one or more, stretch by stretch."""
    start = 0
    while start < n:
        end = start + 1
        if n <= MAX_UNCUT:
            end = n
        else:
            while end < n and may_join(model.joins, scratch.ids[end - 1], scratch.ids[end]):
                end += 1
        link(start, end, scratch)
        if end - start > MAX_SCANNED or model.orders.size > 0:
            merge_long(start, end, model, scratch, np.uint64(0))
        elif end - start > 1:
            set_keys(start, end, model, scratch)
            merge_scanning(start, end, model, scratch)
        start = end


@kernel_part
def push(heap, size, item):
    """Adds an item to a heap of `size` items, whose array has room for one more; returns the new size."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent] <= item:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = item
    return size + 1


@kernel_part
def pop(heap, size):
    """Removes the first item, `heap[0]`, of a heap of `size` items, at least one; returns the new size."""
    size -= 1
    item = heap[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if item <= heap[child]:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = item
    return size
