# SPDX-License-Identifier: Apache-2.0
"""The merges of BPE for a word of up to 32 symbols, as `bpe_merging.merge_scanning` does them.

The keys of the pairs are one vector in registers: a key that has just been stored cannot be read together with others
without waiting until the store is done, which would take as long as the rest of a merge. Which symbols are left is a
bit each, so that the ones before and after need no memory either.
"""

import numpy as np
from llvmlite import ir

from tokenizer.kernels.bpe_pairs import LEAST_NO_KEY, NO_KEY, NO_PAIR, pair_of, rank_of
from tokenizer.kernels.compiling import cgutils, intrinsic, kernel_part, leading_zeros, trailing_zeros, types
from tokenizer.kernels.vectors import I32, all_of, constant, spread

MAX_SHORT, MAX_MEDIUM = 16, 32
"""Symbols that there are vectors for: most words have no more than sixteen, and half a vector is half the work."""
_ONE = np.uint64(1)


def _no_keys(n):
    from tokenizer.kernels.numba_additions import Keys

    def codegen(context, builder, signature, args):
        return all_of(I32, n, int(NO_KEY))

    return Keys(n)(), codegen


@intrinsic
def no_short_keys(typingctx):
    """Returns MAX_SHORT times `NO_KEY`."""
    return _no_keys(MAX_SHORT)


@intrinsic
def no_medium_keys(typingctx):
    """Returns MAX_MEDIUM times `NO_KEY`."""
    return _no_keys(MAX_MEDIUM)


@intrinsic
def with_key(typingctx, keys, place, key):
    """Returns the keys with one set; place: uint64 below their number, key: uint32."""
    n = keys.n

    def codegen(context, builder, signature, args):
        here = builder.icmp_unsigned("==", spread(builder, builder.trunc(args[1], I32), n), constant(I32, range(n)))
        return builder.select(here, spread(builder, args[2], n), args[0])

    return keys(keys, types.uint64, types.uint32), codegen


@intrinsic
def _least(typingctx, keys):
    """Returns the smallest."""

    def codegen(context, builder, signature, args):
        reduce = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(I32, [args[0].type]),
            f"llvm.vector.reduce.umin.v{keys.n}i32",
        )
        return builder.call(reduce, args)

    return types.uint32(keys), codegen


@kernel_part
def merge_short(n, keys, model, scratch):
    """Merges n symbols in `scratch.ids`, no more than there are keys; returns which are left, and the end, as bits."""
    ids = scratch.ids
    slots, bits, products = model.pairs, model.pair_bits, model.products
    left = (_ONE << np.uint64(n + 1)) - _ONE
    while True:
        best = _least(keys)
        if best >= LEAST_NO_KEY:
            return left
        place = np.uint64(best & np.uint32(0xFF))
        symbol = products[np.uint64(best >> np.uint32(8))]
        behind = left & (~_ONE << place)
        gone = np.uint64(trailing_zeros(behind))
        behind &= behind - _ONE
        after = np.uint64(trailing_zeros(behind))
        left ^= _ONE << gone
        ahead = left & ((_ONE << place) - _ONE)
        ids[place] = symbol
        # Whether there are symbols before and after is not branched on: where not, it is NO_PAIR that is looked up.
        none_before = -np.int64(ahead == np.uint64(0))
        none_after = -np.int64(after == np.uint64(n))
        before = np.uint64(63 - leading_zeros(ahead | _ONE))
        pair_before = pair_of(ids[before], symbol) | (np.uint64(none_before) & NO_PAIR)
        pair_after = pair_of(symbol, ids[after]) | (np.uint64(none_after) & NO_PAIR)
        key_before = rank_of(slots, bits, pair_before) << np.uint32(8) | np.uint32(before)
        key = rank_of(slots, bits, pair_after) << np.uint32(8) | np.uint32(place)
        # If there is none before, this one is overwritten.
        keys = with_key(keys, before, key_before)
        keys = with_key(keys, place, key)
        keys = with_key(keys, gone, NO_KEY)


@kernel_part
def emit_short_merges(left, scratch, out, o, ends):
    """Writes the symbols that are left; returns the new o."""
    at = np.uint64(o)
    k = np.uint64(0)
    behind = left & (left - _ONE)
    while behind != np.uint64(0):
        out[at + k] = scratch.ids[np.uint64(trailing_zeros(left))]
        ends[k] = scratch.stops[np.uint64(trailing_zeros(behind)) - _ONE]
        k += _ONE
        left = behind
        behind &= behind - _ONE
    return o + np.int64(k)
