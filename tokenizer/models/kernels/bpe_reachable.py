# SPDX-License-Identifier: Apache-2.0
"""Finds the merges of BPE that can ever be made, if a list has several ways to make a token.

Until two neighbours become a token, nothing has merged across the outer ends of the two. So everything inside has
happened as if these symbols were alone. Whatever is around a token, it is therefore always made in the same way, by one
merge of the list; the parts of the other merges that would make it never meet.

Whether the parts of a merge are made at all follows from how each of them is made. Going backwards from the last merge
in either part, the symbols that meet at the border are known at every moment, and none of these pairs may be a better
merge than the next one on either side.

Its reference implementation is `tokenmill.tokenizer.models.bpe.BPE.tokenize`;
`tests/tokenizer/models/test_bpe_reachable.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.kernels.bpe_pairs import NO_RANK, is_sparse, pair_rank, set_rank

UNCERTAIN, CROWDED = -1, -2


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
