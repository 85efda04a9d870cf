# SPDX-License-Identifier: Apache-2.0
"""Counts the scripts of documents in one pass over the bytes of a column, ASCII eight bytes at a time.

Its reference implementation is in `tests/tokenizer/languages/test_languages.py`.
"""

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel, load_u64
from tokenmill.tokenizer.kernels.utf8 import EACH_BYTE, HIGH_BITS, next_character

NO_SCRIPT, LATIN, HAN, KANA, HANGUL = range(5)
"""The numbers of scripts that kernels know; hiragana and katakana are one script."""

TOTAL, FIRST, N_FIRST, SECOND, N_SECOND, N_KANA = range(6)
"""The columns of `found` in `count_scripts`."""

N_COLUMNS = 6

_CASE = np.uint64(0x20) * EACH_BYTE
_FROM_A, _PAST_Z = np.uint64(0x80 - ord("a")) * EACH_BYTE, np.uint64(0x80 - ord("{")) * EACH_BYTE


@kernel
def count_scripts(data, offsets, script_of, counts, found):
    """Counts the characters of each script in each row, and finds the two most frequent.

    Here Han and kana are one script; ties go to the smaller number.

    Args:
      data: uint8[n], valid UTF-8; offsets: int64[n_rows + 1] into it.
      script_of: uint8[0x110000], the script of each character, NO_SCRIPT if it has none. ASCII letters are LATIN, other
        ASCII is NO_SCRIPT.
      counts: int64[n_scripts], for work.
      found: int64[n_rows, N_COLUMNS], filled: characters with a script; the first script and its characters, the second
        and its characters, NO_SCRIPT and 0 if there is none; characters of kana.
    """
    for row in range(offsets.size - 1):
        for script in range(counts.size):
            counts[script] = 0
        latin = np.uint64(0)
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            if i + 8 <= end:
                eight = load_u64(data, i)
                if (eight & HIGH_BITS) == np.uint64(0):
                    eight |= _CASE
                    letters = ((eight + _FROM_A) & ~(eight + _PAST_Z) & HIGH_BITS) >> np.uint64(7)
                    latin += (letters * EACH_BYTE) >> np.uint64(56)
                    i += 8
                    continue
            code_point, i = next_character(data, i)
            counts[script_of[code_point]] += 1
        counts[LATIN] += np.int64(latin)
        kana = counts[KANA]
        counts[HAN] += kana
        counts[KANA] = 0
        total, first, n_first, second, n_second = 0, 0, 0, 0, 0
        for script in range(1, counts.size):
            n = counts[script]
            total += n
            if n > n_first:
                second, n_second = first, n_first
                first, n_first = script, n
            elif n > n_second:
                second, n_second = script, n
        found[row, TOTAL] = total
        found[row, FIRST] = first
        found[row, N_FIRST] = n_first
        found[row, SECOND] = second
        found[row, N_SECOND] = n_second
        found[row, N_KANA] = kana
