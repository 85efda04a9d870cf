# SPDX-License-Identifier: Apache-2.0
"""A kernel that finds the bytes that are not UTF-8.

Its reference implementation is Python's decoder; `tests/pipeline/input/test_text.py` compares them.
"""

from typing import Any

from tokenmill.tokenizer.compiling.kernel import kernel


@kernel
def find_invalid(data: Any, starts: Any, stops: Any, found: Any) -> None:
    """Finds the first byte of each line that begins no character in UTF-8.

    Args:
      data: uint8[n_bytes], the bytes that contain the lines.
      starts: int64[n_lines], where lines begin; stops: int64[n_lines], where they end.
      found: int64[n_lines], filled with positions in `data`; -1 for a line that is valid.
    """
    for row in range(starts.size):
        i, stop = starts[row], stops[row]
        found[row] = -1
        while i < stop:
            b = data[i]
            if b < 0x80:
                i += 1
                continue
            # The least and the greatest second byte keep out long forms, surrogates and what is above U+10FFFF.
            n, least, most = 0, 0x80, 0xBF
            if 0xC2 <= b <= 0xDF:
                n = 2
            elif 0xE0 <= b <= 0xEF:
                n = 3
                if b == 0xE0:
                    least = 0xA0
                elif b == 0xED:
                    most = 0x9F
            elif 0xF0 <= b <= 0xF4:
                n = 4
                if b == 0xF0:
                    least = 0x90
                elif b == 0xF4:
                    most = 0x8F
            is_valid = n > 0 and i + n <= stop and least <= data[i + 1] <= most
            for k in range(2, n):
                is_valid = is_valid and data[i + k] & 0xC0 == 0x80
            if not is_valid:
                found[row] = i
                break
            i += n
