# SPDX-License-Identifier: Apache-2.0
"""The reference implementation of the MDS writer: one sample at a time."""

import struct
from collections.abc import Mapping, Sequence

import numpy as np


def encode_sample(columns: Sequence[str], sample: Mapping[str, str | int | np.ndarray]) -> bytes:
    """Returns a sample as MDS stores it.

    Args:
      columns: in the order of the shard.
      sample: for each column a string, an integer (int64, of fixed size), or an array of one dimension.
    """
    sizes, body = b"", b""
    for name in columns:
        value = sample[name]
        if isinstance(value, int):
            body += struct.pack("<q", value)
            continue
        data = value.encode() if isinstance(value, str) else encode_array(value)
        sizes += struct.pack("<I", len(data))
        body += data
    return sizes + body


def encode_array(values: np.ndarray) -> bytes:
    """Returns an array of one dimension with its shape, as the encoding `ndarray:<dtype>` stores it."""
    for width, code in enumerate("BHIQ"):
        if len(values) < 1 << (8 << width):
            return struct.pack(f"<B{code}", 4 | width, len(values)) + values.tobytes()
    raise ValueError(f"an array of {len(values)} values")
