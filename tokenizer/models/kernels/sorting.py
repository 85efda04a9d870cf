# SPDX-License-Identifier: Apache-2.0
"""Sorts texts by their bytes, eight bytes at a time, in time bounded by n log n and by the number of bytes.

Its reference implementation is `builtins.sorted`; `tests/tokenizer/models/test_vocabulary.py` compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64
from tokenmill.tokenizer.kernels.utf8 import copy_bytes
from tokenmill.tokenizer.kernels.word_table import first_bytes

_SHORT_RUN = 12
"""The number of texts that are sorted by insertion before runs are merged."""
_REST_SHIFT = 32
"""An item is the number of a text, and in the bits above how many of its bytes are left, at most nine."""
_INDEX_MASK = (1 << _REST_SHIFT) - 1
_MORE = 9


@kernel_part
def _reversed_bytes(eight):
    eight = (eight & np.uint64(0x00FF00FF00FF00FF)) << np.uint64(8) | (eight >> np.uint64(8)) & np.uint64(
        0x00FF00FF00FF00FF
    )
    eight = (eight & np.uint64(0x0000FFFF0000FFFF)) << np.uint64(16) | (eight >> np.uint64(16)) & np.uint64(
        0x0000FFFF0000FFFF
    )
    return eight << np.uint64(32) | eight >> np.uint64(32)


@kernel_part
def _comes_before(key, item, other_key, other_item):
    """Whether an item comes strictly before another: by eight bytes, and if these are equal, by what is left of it."""
    return key < other_key or (key == other_key and item >> _REST_SHIFT < other_item >> _REST_SHIFT)


@kernel_part
def _sort_run(keys, items, start, stop):
    for q in range(start + 1, stop):
        key, item = keys[q], items[q]
        r = q
        while r > start and _comes_before(key, item, keys[r - 1], items[r - 1]):
            keys[r] = keys[r - 1]
            items[r] = items[r - 1]
            r -= 1
        keys[r] = key
        items[r] = item


@kernel_part
def _merge(keys, items, start, middle, stop, to_keys, to_items):
    left, right = start, middle
    for o in range(start, stop):
        takes_right = left >= middle or (
            right < stop and _comes_before(keys[right], items[right], keys[left], items[left])
        )
        q = right if takes_right else left
        to_keys[o] = keys[q]
        to_items[o] = items[q]
        right += takes_right
        left += not takes_right


@kernel_part
def _key(values, offsets, t, done):
    """Returns eight bytes of text t from byte `done` on, the first one highest, and its item."""
    at = offsets[t] + done
    left = min(offsets[t + 1] - at, _MORE)
    return _reversed_bytes(first_bytes(load_u64(values, at), min(left, 8))), left << _REST_SHIFT | t


@kernel
def first_keys(values, offsets, keys):
    """Finds the first eight bytes of each text, the first one highest; arguments as for `sort_texts`.

    keys: uint64[n], filled.
    """
    for t in range(keys.size):
        keys[t] = _key(values, offsets, t, 0)[0]


@kernel
def sort_texts(values, offsets, order, items, keys, other_items, other_keys, stack):
    """Sorts distinct texts by their bytes; they are sorted by the first eight already.

    Args:
      values, offsets: uint8[n_bytes + 16] and int64[n + 1], the texts, padded.
      order: int64[n], the number of each, changed.
      items, other_items: int64[n]; keys, other_keys: uint64[n]; stack: int64[n + 1, 3]; for work.
    """
    for q in range(order.size):
        keys[q] = _key(values, offsets, order[q], 0)[0]
    depth = 0
    q = 0
    while q < order.size:
        r = q + 1
        while r < order.size and keys[r] == keys[q]:
            r += 1
        if r - q > 1:
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = q, r, 0
            depth += 1
        q = r
    while depth > 0:
        depth -= 1
        start, stop, done = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        for q in range(start, stop):
            keys[q], items[q] = _key(values, offsets, order[q], done)
        for q in range(start, stop, _SHORT_RUN):
            _sort_run(keys, items, q, min(q + _SHORT_RUN, stop))
        width = _SHORT_RUN
        while width < stop - start:
            for q in range(start, stop, 2 * width):
                _merge(keys, items, q, min(q + width, stop), min(q + 2 * width, stop), other_keys, other_items)
            keys, other_keys = other_keys, keys
            items, other_items = other_items, items
            width *= 2
        q = start
        while q < stop:
            r = q + 1
            while r < stop and keys[r] == keys[q] and items[r] >> _REST_SHIFT == items[q] >> _REST_SHIFT:
                r += 1
            if r - q > 1 and items[q] >> _REST_SHIFT == _MORE:
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = q, r, done + 8
                depth += 1
            while q < r:
                order[q] = items[q] & _INDEX_MASK
                q += 1


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
