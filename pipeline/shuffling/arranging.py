# SPDX-License-Identifier: Apache-2.0
"""Puts the rows of several arrays into one array, in any order; the reference implementation is `reference.arrange`.

Arrow's `take` on lists makes an index of 8 bytes for every element of a list, twice the size of the elements, and
takes from one array only. Here each row is copied straight to its place.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.columns import children, element_of, numpy_dtype


def arrange(parts: Sequence[pa.Array], places: np.ndarray, field: pa.Field) -> pa.Array:
    """Returns the rows of `parts`, one array after another, each at its place.

    Args:
      parts: arrays of one type.
      places: int64[n], a permutation: row i, counted through all parts, goes to `places[i]`.
      field: the field of the column.
    """
    element = element_of(field.type)
    is_plain = element is not None and not element.nullable and pa.types.is_integer(element.type)
    if element is None or field.nullable or not is_plain:
        order = np.empty_like(places)
        order[places] = np.arange(places.size)
        return pa.concat_arrays(parts).take(pa.array(order))
    lists = [children(part) for part in parts]
    lengths = np.empty(places.size, np.int64)
    lengths[places] = np.concatenate([np.diff(offsets) for offsets, _ in lists])
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    values = np.empty(int(begins[-1]), numpy_dtype(element.type))
    first = 0
    for offsets, elements in lists:
        last = first + offsets.size - 1
        rows = elements.to_numpy(), offsets[:-1], offsets[1:]
        sums_kernels.copy_rows(*rows, begins[places[first:last]], values)
        first = last
    is_narrow = field.type in (pa.string(), pa.binary()) or pa.types.is_list(field.type)
    stored = pa.py_buffer(begins.astype(np.int32) if is_narrow else begins)
    if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        array = pa.array(values, element.type)
        return pa.Array.from_buffers(field.type, places.size, [None, stored], children=[array])
    return pa.Array.from_buffers(field.type, places.size, [None, stored, pa.py_buffer(values)])
