# SPDX-License-Identifier: Apache-2.0
"""Which pieces two others make, for sentencepiece's BPE.

Its slow twin is in `tests/tokenizer/formats/test_sentencepiece_file.py`.
"""

from tokenizer.compiling.kernel import kernel
from tokenizer.kernels.whole_words import whole_word


@kernel
def find_merges(values, offsets, order, slots, pool, can_merge, has_length, most_bytes, merges):
    """Finds every way to make a piece of two others, shorter first parts first.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the pieces in UTF-8.
      order: int64[n_order], those that can merge, in which order to go through them.
      slots: int64[n_slots, 4]; pool: uint8[n_pool]: word table of the pieces with their numbers.
      can_merge: bool[n], whether each can.
      has_length: bool[longest + 1], whether one of so many bytes can.
      most_bytes: how many bytes of pieces may be looked at.
      merges: int32[3, most merges], filled with the numbers of first parts, second parts and what they make.

    Returns:
      How many merges there are, and how many pieces have been gone through: not all of them where one has more merges
      than there is room for, or more is to be looked at than allowed.
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
