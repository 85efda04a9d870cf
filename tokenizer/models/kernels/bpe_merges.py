# SPDX-License-Identifier: Apache-2.0
"""Finds the merges of BPE: how each token of a vocabulary is made, and the merges and tokens that are never made.

Until two neighbours become a token, nothing has merged across the outer ends of the two. So everything inside has
happened as if these symbols were alone. Whatever is around a token, it is therefore always made in the same way, by one
merge of the list; the parts of the other merges that would make it never meet.

Whether the parts of a merge are made at all follows from how each of them is made. Going backwards from the last merge
in either part, the symbols that meet at the border are known at every moment, and none of these pairs may be a better
merge than the next one on either side.

Its reference implementation is `tokenmill.tokenizer.models.bpe.BPE.tokenize`;
`tests/tokenizer/models/test_bpe_reachable.py` compares them. That of `find_merges` is in
`tests/tokenizer/formats/test_sentencepiece_file.py`.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.bpe import bpe_word
from tokenmill.tokenizer.kernels.bpe_merging import MAX_SCANNED, link, merge_long, merge_scanning, set_keys
from tokenmill.tokenizer.kernels.bpe_pairs import NO_RANK, is_sparse, pair_rank, set_rank
from tokenmill.tokenizer.kernels.whole_words import whole_word

UNCERTAIN, CROWDED = -1, -2


@kernel
def recover_merges(values, offsets, ranks, order, model, scratch, lefts, rights):
    """Finds the pair that makes each token of a tiktoken vocabulary, at most one for each.

    A token is made of the two parts that are left when everything shorter in it has merged: merges inside its bytes do
    not depend on what is around them. So tokens are gone through by length, and `model.pairs` is filled on the way.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the tokens; ranks: int32[n], the place of each by id.
      order: int64[n], the tokens by length.
      model: `models.bpe.BPETables` with products, and no pairs yet but room for n; scratch: BPEScratch, for work.
      lefts, rights: int32[n], filled; -1 for single bytes and for tokens that merges never make.

    Returns:
      False if the table of pairs needs more bits: try again.
    """
    for t in order:
        lefts[t] = -1
        rights[t] = -1
        at = offsets[t]
        w = offsets[t + 1] - at
        if w < 2:
            continue
        for q in range(w):
            scratch.ids[q] = model.byte_symbols[0, values[at + q]]
        link(0, w, scratch)
        if w <= MAX_SCANNED:
            set_keys(0, w, model, scratch)
            merge_scanning(0, w, model, scratch)
        else:
            merge_long(0, w, model, scratch, np.uint64(0))
        middle = np.int64(scratch.nexts[0])
        if middle < w and scratch.nexts[middle] == w:
            lefts[t] = scratch.ids[0]
            rights[t] = scratch.ids[middle]
            if not set_rank(model.pairs, model.pair_bits, lefts[t], rights[t], ranks[t]):
                return False
    return is_sparse(model.pairs, model.pair_bits)


@kernel
def find_unmerged(values, offsets, ids, model, scratch, out, ends, unmerged):
    """Marks the entries whose own spelling does not merge to them.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the entries; ids: int32[n].
      model: BPETables; scratch: BPEScratch; out: int32[n_ids]; ends: int64[n_ids]: for the longest entry, for work.
      unmerged: bool[n], filled.
    """
    for t in range(ids.size):
        at = offsets[t]
        o, _ = bpe_word(values, at, offsets[t + 1] - at, model, scratch, out, 0, ends)
        unmerged[t] = o != 1 or out[0] != ids[t]


@kernel
def find_merges(values, offsets, order, slots, pool, can_merge, has_length, most_bytes, merges):
    """Finds all ways to make a piece of two others; for each piece, shorter first parts come first.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the pieces in UTF-8.
      order: int64[n_order], the pieces that can merge, in the order to go through them.
      slots: int64[n_slots, 4]; pool: uint8[n_pool]: word table of the pieces with their numbers.
      can_merge: bool[n], whether each piece can merge.
      has_length: bool[longest + 1], whether a piece of so many bytes can merge.
      most_bytes: the most bytes of pieces to look at.
      merges: int32[3, most merges], filled with the numbers of first parts, second parts and products.

    Returns:
      The number of merges, and the number of pieces gone through: not all of them if there is no more room for merges,
      or more than `most_bytes` bytes would have to be looked at.
    """
    o, n_read = 0, 0
    for d in range(order.size):
        t = order[d]
        at = offsets[t]
        w = offsets[t + 1] - at
        for k in range(1, w):
            if values[at + k] & 0xC0 == 0x80 or not has_length[k] or not has_length[w - k]:
                continue
            n_read += w
            if n_read > most_bytes:
                return o, d
            left = whole_word(values, at, k, slots, pool)
            if left < 0 or not can_merge[left]:
                continue
            right = whole_word(values, at + k, w - k, slots, pool)
            if right < 0 or not can_merge[right]:
                continue
            if o == merges.shape[1]:
                return o, d
            merges[0, o] = left
            merges[1, o] = right
            merges[2, o] = t
            o += 1
    return o, order.size


@kernel_part
def _stay_apart(left, right, strengths, splits, slots, bits):
    """Whether both tokens are made from their symbols when these are next to each other."""
    limit = np.int64(NO_RANK) + 1
    while True:
        across = np.int64(pair_rank(slots, bits, left, right)) + 1
        if across < limit:
            return False
        of_left, of_right = strengths[left], strengths[right]
        if of_left == 0 and of_right == 0:
            return True
        if of_left > of_right:
            limit = of_left
            left = splits[1, left]
        else:
            # Of equal ranks the leftmost goes first: the pair across the border before the one on the right.
            limit = of_right + 1
            right = splits[0, right]


@kernel
def find_reachable(lefts, rights, products, initial, slots, bits, strengths, splits, reached):
    """Fills a pair table with the merges that can be made, numbered in their order.

    Args:
      lefts, rights, products: int32[n], the merges, best first; a text has only one spelling in `initial`.
      initial: int64[n_initial], ids of the initial symbols of words.
      slots: uint64[n], an empty pair table of `bits` bits, filled.
      strengths: int64[n_ids], all -1; filled with 0 for initial symbols, 1 + its number for the product of a merge.
      splits: int32[2, n_ids], filled with the two parts of each product.
      reached: int32[n], filled with the index of each merge that can be made.

    Returns:
      The number of merges that can be made. UNCERTAIN if it cannot be told: a merge makes an initial symbol, or has a
      part that a later merge makes, or a pair occurs twice. CROWDED if the table needs more bits: try again.
    """
    n_reached = 0
    for symbol in initial:
        strengths[symbol] = 0
    for k in range(lefts.size):
        left, right, product = lefts[k], rights[k], products[k]
        if strengths[product] == 0:
            return UNCERTAIN
        if strengths[left] < 0 or strengths[right] < 0:
            continue
        if strengths[product] > 0:
            if splits[0, product] == left and splits[1, product] == right:
                return UNCERTAIN
            continue
        if _stay_apart(left, right, strengths, splits, slots, bits):
            if not set_rank(slots, bits, left, right, n_reached):
                return CROWDED
            reached[n_reached] = k
            n_reached += 1
            strengths[product] = n_reached
            splits[0, product] = left
            splits[1, product] = right
    for k in range(lefts.size):
        of_left, of_right, of_product = strengths[lefts[k]], strengths[rights[k]], strengths[products[k]]
        later = max(of_left, of_right)
        if min(of_left, of_right) < 0 or later == 0 or reached[later - 1] < k:
            continue
        if of_product < 0 or of_product > later:
            return UNCERTAIN
    return n_reached if is_sparse(slots, bits) else CROWDED
