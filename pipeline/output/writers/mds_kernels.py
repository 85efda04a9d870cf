# SPDX-License-Identifier: Apache-2.0
"""Kernels that put columns into the samples of an MDS shard and take them out, without a Python object per row.

A sample is the sizes of its columns of variable size, u32 each, then the columns' bytes. An array of one dimension is a
byte (1 << 2 | w), its length in 2**w bytes, and its values; everything is little-endian.

Its reference implementation is `tests.reference.mds`; `tests/pipeline/output/writers/test_formats.py` compares
them.
"""

from typing import Any

from tokenmill.tokenizer.compiling.kernel import kernel


@kernel
def place(out: Any, at: Any, data: Any, offsets: Any, widths: Any, item_bytes: int) -> None:
    """Writes one column of every row.

    Args:
      out: uint8[n_out], the samples, filled.
      at: int64[n], where in `out` the column of each row goes; changed to the position after it.
      data: uint8[n_bytes], the bytes of all rows.
      offsets: int64[n + 1], where each row begins in `data`.
      widths: int64[n], for arrays the w above; not read for a column of bytes.
      item_bytes: bytes of one value of an array; 0 for a column of bytes.
    """
    for row in range(at.size):
        p = at[row]
        n_bytes = offsets[row + 1] - offsets[row]
        if item_bytes > 0:
            out[p] = 4 | widths[row]
            p += 1
            length = n_bytes // item_bytes
            for _ in range(1 << widths[row]):
                out[p] = length & 255
                length >>= 8
                p += 1
        for i in range(offsets[row], offsets[row + 1]):
            out[p] = data[i]
            p += 1
        at[row] = p


@kernel
def take(data: Any, starts: Any, offsets: Any, out: Any) -> None:
    """Copies one column of every row.

    Args:
      data: uint8[n_bytes], the samples.
      starts: int64[n], where in `data` the bytes of each row begin.
      offsets: int64[n + 1], where in `out` they go; the caller has checked both against the sizes.
      out: uint8[offsets[-1]], filled.
    """
    for row in range(starts.size):
        shift = starts[row] - offsets[row]
        for i in range(offsets[row], offsets[row + 1]):
            out[i] = data[i + shift]
