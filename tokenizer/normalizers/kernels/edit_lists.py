# SPDX-License-Identifier: Apache-2.0
"""Lists of edits: the loop that finds them in rows, whatever it looks for, and the kernel that applies them.

    rows -> finder: edits, int64[n, 3] -> apply_edits: new rows

Its reference implementation is `tokenmill.tokenizer.normalizers.base.replaced`; `tests/tokenizer/text/test_steps.py`
compares them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part, load_u64, made_kernel, store_u64
from tokenmill.tokenizer.kernels.utf8 import copy_bytes

NOTHING, SPACE = 0, 1
"""Numbers of the texts that most finders put in."""


class Texts(NamedTuple):
    """The texts that edits put in, by number."""

    pool: npt.NDArray[np.uint8]
    """uint8[n]; padded, so that short texts can be copied eight bytes at a time."""
    starts: npt.NDArray[np.int64]
    """int64[n_texts], where each is in `pool`."""
    stops: npt.NDArray[np.int64]
    """int64[n_texts]."""


@kernel_part
def add_edit(edits, n, start, stop, text):
    """Adds an edit if there is room; returns how many edits there are, with this one.

    Args:
      edits: int64[room, 3], `start, stop, text` in rows.
      n: the number of edits before.
      start, stop: the bytes that are removed; text: number of the text that replaces them.
    """
    if n < edits.shape[0]:
        edits[n, 0] = start
        edits[n, 1] = stop
        edits[n, 2] = text
    return n + 1


def finder(function):
    """Makes a kernel, of the same name, of a part that finds the edits of one row.

    The part is `find(data, i, end, row, tables, edits, n) -> n`: it adds the edits of `data[i:end]`, row number `row`,
    to a list of n with `add_edit`, and returns how many there are then.
    """
    find = kernel_part(function)

    def find_edits(data, offsets, tables, edits):
        """Finds the edits of rows; returns their number, which may be more than `room`.

        Args:
          data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
          tables: a tuple of arrays, such as bool[0x110000], and numbers: what the part looks for.
          edits: int64[room, 3], filled with the first `room` edits; see `add_edit`.
        """
        n = 0
        for row in range(offsets.size - 1):
            n = find(data, offsets[row], offsets[row + 1], row, tables, edits, n)
        return n

    made = made_kernel(function.__name__, find_edits, find)
    made.origin = find.origin
    return made


@kernel
def edited_bytes(edits, texts):
    """Returns by how many bytes edits lengthen rows; takes arguments of `apply_edits`."""
    added = 0
    for e in range(edits.shape[0]):
        text = edits[e, 2]
        added += texts.stops[text] - texts.starts[text] - (edits[e, 1] - edits[e, 0])
    return added


@kernel_part
def _copy_short(data, i, stop, out, o):
    """Does `copy_bytes`, with few branches for few bytes; `out` must have room for eight bytes more."""
    while i < stop and i + 8 <= data.size:
        store_u64(out, o, load_u64(data, i))
        i += 8
        o += 8
    if i > stop:
        return o - (i - stop)
    while i < stop:
        out[o] = data[i]
        i += 1
        o += 1
    return o


@kernel
def apply_edits(data, offsets, edits, texts, out, out_offsets):
    """Applies edits to rows.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      edits: int64[n_edits, 3], in order, without overlap; see `add_edit`. None reaches beyond a row, and insertions are
        not at the ends of rows.
      texts: Texts, the new ones.
      out: uint8 with room for the result and eight bytes more; out_offsets: int64[n_rows + 1], filled.

    Returns:
      The number of characters replaced or removed, and of characters inserted without replacing any.
    """
    changed = 0
    o = 0
    e = 0
    out_offsets[0] = 0
    for row in range(offsets.size - 1):
        i = offsets[row]
        end = offsets[row + 1]
        while e < edits.shape[0] and edits[e, 0] < end:
            start, stop, text = edits[e, 0], edits[e, 1], edits[e, 2]
            first, past = texts.starts[text], texts.stops[text]
            o = _copy_short(data, i, start, out, o)
            for q in range(start, stop):
                changed += np.int64((data[q] & 0xC0) != 0x80)
            if start == stop:
                for q in range(first, past):
                    changed += np.int64((texts.pool[q] & 0xC0) != 0x80)
            o = _copy_short(texts.pool, first, past, out, o)
            i = stop
            e += 1
        o = copy_bytes(data, i, end, out, o)
        out_offsets[row + 1] = o
    return changed
