# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of rows are: from how long each is, or from the words that they are parts of.

Its reference implementation is `tokenmill.tokenizer.plan.EncodePlan.align`; `tests/tokenizer/test_offsets.py`
compares them.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part


@kernel_part
def _trim(token, is_first, trims, n_leading, n_trailing, start, stop):
    """See `post_processors.trim_offsets`."""
    for add_prefix_space in trims:
        n = n_leading[token]
        if not (n == 1 and add_prefix_space and (is_first or start == 0)):
            start = min(start + n, max(stop, start))
        n = n_trailing[token]
        if 0 < n <= stop:
            stop = max(stop - n, start)
    return start, stop


@kernel
def find_spans(
    n_bytes, n_leading, n_trailing, values, offsets, ids, id_offsets, trims, in_bytes, starts, stops, is_right
):
    """Finds where tokens are that are the bytes of their row, one after the other.

    Args:
      n_bytes, n_leading, n_trailing: int32[n_ids], see `offsets.TokenLengths`.
      values: uint8[n], valid UTF-8; offsets: int64[n_rows + 1].
      ids: int32[n_tokens]; id_offsets: int64[n_rows + 1], from 0 to n_tokens, in order.
      trims: bool[n], see `assembling.assemble`; in_bytes: whether to count bytes, else characters.
      starts, stops: int32[n_tokens], filled: counted from the start of the row; 0 in rows that are not right.
      is_right: bool[n_rows], filled: whether the tokens of a row have as many bytes as it.
    """
    for row in range(offsets.size - 1):
        at = offsets[row]
        first, last = id_offsets[row], id_offsets[row + 1]
        left = offsets[row + 1] - at
        right = True
        for t in range(first, last):
            n = np.int64(-1)
            if 0 <= ids[t] < n_bytes.size:
                n = np.int64(n_bytes[ids[t]])
            right = right and 0 < n <= left
            left -= n
        right = right and left == 0
        is_right[row] = right
        i = at
        n_before = np.int64(0)  # characters that begin before i
        for t in range(first, last):
            start, stop = np.int64(0), np.int64(0)
            if right:
                token = ids[t]
                end = i + n_bytes[token]
                if in_bytes:
                    start, stop = i - at, end - at
                else:
                    start = n_before - np.int64(values[i] & 0xC0 == 0x80)
                    while i < end:
                        n_before += np.int64(values[i] & 0xC0 != 0x80)
                        i += 1
                    stop = n_before
                i = end
                start, stop = _trim(token, t == first, trims, n_leading, n_trailing, start, stop)
            starts[t], stops[t] = start, stop


@kernel
def trim_spans(ids, id_offsets, n_leading, n_trailing, trims, starts, stops):
    """Trims offsets, int32[n_tokens] each, in place, but not those of ids that are none; otherwise as `find_spans`."""
    for row in range(id_offsets.size - 1):
        for t in range(id_offsets[row], id_offsets[row + 1]):
            if not 0 <= ids[t] < n_leading.size:  # they may be a user's
                continue
            is_first = t == id_offsets[row]
            start, stop = np.int64(starts[t]), np.int64(stops[t])
            starts[t], stops[t] = _trim(ids[t], is_first, trims, n_leading, n_trailing, start, stop)
