# SPDX-License-Identifier: Apache-2.0
"""Finds the pieces that are made of two others, for sentencepiece's BPE.

Its reference implementation is in `tests/tokenizer/formats/test_sentencepiece_file.py`.
"""

from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels.whole_words import whole_word


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
