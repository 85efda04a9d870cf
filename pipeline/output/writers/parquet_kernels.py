# SPDX-License-Identifier: Apache-2.0
"""Kernels that turn columns into the contents of Parquet pages: levels of lists, dictionary indices.

Kernels trust their inputs. What they write is read back by other libraries in
`tests/pipeline/output/writers/test_parquet_format.py`.

Source: `Encodings.md` of the Apache Parquet format; its section "Run Length Encoding / Bit-Packing Hybrid".
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part

MAX_LEVEL_BYTES = 3
"""The most bytes of repetition, or of definition, levels per entry: a run of one takes two, longer ones fewer."""


@kernel_part
def _put_run(out: np.ndarray, at: int, length: int, value: int) -> int:
    """Writes a run of `length` times `value` at `out[at]`, unless it is empty; returns the position after it.

    The caller guarantees room: see `MAX_LEVEL_BYTES`.
    """
    if length == 0:
        return at
    header = length << 1
    while header >= 0x80:
        out[at] = header & 0x7F | 0x80
        header >>= 7
        at += 1
    out[at] = header
    out[at + 1] = value
    return at + 2


@kernel_part
def _add(out: np.ndarray, at: int, value: int, length: int, added: int, n: int) -> tuple[int, int, int]:
    """Adds `n` times `added` to a run of `length` times `value`, which is written to `out[at]` if it is another value.

    Returns:
      The position after what is written, and the value and the length of the run that is not.
    """
    if n == 0 or added == value:
        return at, value, length + n
    return _put_run(out, at, length, value), added, n


@kernel
def list_levels(
    offsets: np.ndarray,
    valid: np.ndarray,
    state: np.ndarray,
    max_entries: int,
    repetition: np.ndarray,
    definition: np.ndarray,
) -> tuple[int, int, int, int]:
    """Encodes the levels of the next page of a column of lists, where neither the column nor a list is ever null.

    An entry is an element of a list, or an empty list. Repetition is 0 where a row begins, else 1. Definition is 0 for
    an empty list, 1 for an element; where elements may be null, 1 for null and 2 for the others.

    Args:
      offsets: int64[n_rows + 1], where each list begins; from 0.
      valid: uint8[offsets[-1]], 0 for null elements; or uint8[0] where elements cannot be null.
      state: int64[2], the next row, and the next element in it; changed to those of the next page.
      max_entries: the most entries of a page, at least 1.
      repetition, definition: uint8[>= MAX_LEVEL_BYTES * max_entries], filled.

    Returns:
      The number of entries, of elements that are not null, and the bytes of repetition and of definition levels.
    """
    row, within = state[0], state[1]
    n_rows = offsets.size - 1
    n_entries = n_values = n_repetition = n_definition = 0
    repeated = repeated_run = defined = defined_run = 0
    while row < n_rows and n_entries < max_entries:
        start, length = offsets[row] + within, offsets[row + 1] - offsets[row] - within
        if within == 0:
            n_repetition, repeated, repeated_run = _add(repetition, n_repetition, repeated, repeated_run, 0, 1)
        if within == 0 and length == 0:
            n_definition, defined, defined_run = _add(definition, n_definition, defined, defined_run, 0, 1)
            n_entries += 1
            row += 1
            continue
        n_taken = min(length, max_entries - n_entries)
        n_further = n_taken - 1 if within == 0 else n_taken
        if n_further > 0:
            n_repetition, repeated, repeated_run = _add(repetition, n_repetition, repeated, repeated_run, 1, n_further)
        if valid.size == 0:
            n_definition, defined, defined_run = _add(definition, n_definition, defined, defined_run, 1, n_taken)
            n_values += n_taken
        else:
            for i in range(start, start + n_taken):
                level = 2 if valid[i] else 1
                n_definition, defined, defined_run = _add(definition, n_definition, defined, defined_run, level, 1)
                n_values += level - 1
        n_entries += n_taken
        within += n_taken
        if n_taken == length:
            row += 1
            within = 0
    state[0], state[1] = row, within
    n_repetition = _put_run(repetition, n_repetition, repeated_run, repeated)
    n_definition = _put_run(definition, n_definition, defined_run, defined)
    return n_entries, n_values, n_repetition, n_definition


@kernel
def count_values(values: np.ndarray, counts: np.ndarray) -> None:
    """Counts how often each value occurs.

    Args:
      values: int32[n], below `limit`.
      counts: int64[2, limit], added to; the count of a value is the sum of its two numbers.
    """
    # Two tables in turn: when a value repeats, adding to a number that has just been stored would have to wait.
    for i in range(0, values.size - 1, 2):
        counts[0, values[i]] += 1
        counts[1, values[i + 1]] += 1
    if values.size % 2:
        counts[0, values[-1]] += 1


@kernel
def map_values(values: np.ndarray, indices: np.ndarray, out: np.ndarray) -> None:
    """Looks values up in a table.

    Args:
      values: int32[n], below `indices.size`.
      indices: uint8[limit] or uint16[limit], the index of each value.
      out: uint8[n] or uint16[n], of the type of `indices`, filled with `indices[values]`.
    """
    for i in range(values.size):
        out[i] = indices[values[i]]
