# SPDX-License-Identifier: Apache-2.0
"""Which merges of BPE can ever be made, where a list has several ways to make a token.

Up to the moment when two neighbours become a token, nothing has merged across the ends of the two, so all that has
happened between them is what happens to these symbols alone. Whatever is around a token, it is therefore always made in
the same way, by one merge of the list, and the others that would make it never find their two parts beside each other.

Whether the parts of a merge are made at all can be told from how each was made. Backwards from the last merge in either
part, the symbols that met at the border are known at every moment, and none of these pairs may have been a better merge
than the one that came next on either side.

Its slow twin is `tokenizer.models.bpe.BPE.tokenize`; `tests/tokenizer/models/test_bpe_reachable.py` compares them.
"""

import numpy as np

from tokenizer.compiling.kernel import kernel, kernel_part
from tokenizer.kernels.bpe_pairs import NO_RANK, is_sparse, pair_rank, set_rank

UNCERTAIN, CROWDED = -1, -2


@kernel_part
def _stay_apart(left, right, strengths, splits, slots, bits):
    """Whether both tokens are made out of their symbols when these stand beside each other."""
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
            # Among equals the leftmost goes first: the one across before the one on the right.
            limit = of_right + 1
            right = splits[0, right]


@kernel
def find_reachable(lefts, rights, products, initial, slots, bits, strengths, splits, reached):
    """Fills a pair table with the merges that can be made, numbered in their order.

    Args:
      lefts, rights, products: int32[n], the merges, best first; a text has only one spelling in `initial`.
      initial: int64[n_initial], ids of the symbols that words begin as.
      slots: uint64[n], with `bits` of it an empty pair table, filled.
      strengths: int64[n_ids], all -1; filled with 0 for initial symbols, 1 + its number for what a merge makes.
      splits: int32[2, n_ids], filled with the two that each of the latter is made of.
      reached: int32[n], filled with the index of each merge that can be made.

    Returns:
      How many these are. UNCERTAIN where it cannot be told: where merges make initial symbols, or one of something
      that a later merge makes, or the same pair comes twice. CROWDED where it must be tried again with more bits.
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
