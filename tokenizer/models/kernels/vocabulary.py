# SPDX-License-Identifier: Apache-2.0
"""Kernels over a vocabulary in arrays: decode its characters, look up texts.

Its reference implementation is `builtins.dict`; `tests/tokenizer/models/test_vocabulary.py` compares them.
"""

from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels.utf8 import copy_bytes, next_character
from tokenmill.tokenizer.kernels.whole_words import whole_word


@kernel
def decode_texts(values, offsets, points, point_offsets):
    """Decodes texts to code points.

    Args:
      values, offsets: uint8[n_bytes] and int64[n + 1], UTF-8.
      points: int32 with room for all; point_offsets: int64[n + 1]; filled.
    """
    o = 0
    point_offsets[0] = 0
    for t in range(offsets.size - 1):
        i = offsets[t]
        while i < offsets[t + 1]:
            points[o], i = next_character(values, i)
            o += 1
        point_offsets[t + 1] = o


@kernel
def find_texts(values, offsets, slots, pool, found):
    """Looks up texts in a word table.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the texts, padded.
      slots: int64[n_slots, 4]; pool: uint8[n_pool]: the table.
      found: int64[n], filled with the table's value for each text, -1 if it is not there.
    """
    for t in range(found.size):
        w = offsets[t + 1] - offsets[t]
        found[t] = -1 if w == 0 else whole_word(values, offsets[t], w, slots, pool)


@kernel
def take_texts(values, offsets, order, taken, taken_offsets):
    """Copies texts in a given order.

    Args:
      values, offsets: uint8 and int64[n + 1], the texts; order: int64[n_taken], their numbers.
      taken: uint8 with room for all; taken_offsets: int64[n_taken + 1]; filled.
    """
    o = 0
    taken_offsets[0] = 0
    for q in range(order.size):
        t = order[q]
        o = copy_bytes(values, offsets[t], offsets[t + 1], taken, o)
        taken_offsets[q + 1] = o
