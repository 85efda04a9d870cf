# SPDX-License-Identifier: Apache-2.0
"""Kernels that cut at changes of script, and after a number of characters, like `scanning.split_by`.

    values:    uint8[n_bytes]          UTF-8
    starts, stops: int64[n_pieces]     the pieces `values[starts[k]:stops[k]]`
    out_starts, out_stops: int64[n]    the pre-tokens; filled, with room for one for each byte
    counts:    int64[n_pieces + 1]     the number of pre-tokens before each piece; filled, except the first, which is 0

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.pieces.PreTokenizer.split_aligned_pieces`;
`tests/tokenizer/pre_tokenizers/test_components.py` compares them.
"""

from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels.utf8 import next_character


@kernel
def scripts(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits where the script changes. As in HF, the text before the first character with a script is dropped.

    classes: uint8[0x110000], the script of each code point, 0 for any.
    """
    n = 0
    for k in range(starts.size):
        i = starts[k]
        last = 0
        while i < stops[k]:
            code_point, after = next_character(values, i)
            script = classes[code_point]
            if script != 0 and script != last:
                if last != 0:
                    out_stops[n] = i
                    n += 1
                out_starts[n] = i
                last = script
            i = after
        if last != 0:
            out_stops[n] = i
            n += 1
        counts[k + 1] = n


@kernel
def fixed_length(values, starts, stops, length, out_starts, out_stops, counts):
    """Splits after every `length` characters."""
    n = 0
    for k in range(starts.size):
        n_characters = 0
        for i in range(starts[k], stops[k]):
            if values[i] & 0xC0 == 0x80:
                continue
            if n_characters % length == 0:
                if n_characters > 0:
                    out_stops[n] = i
                    n += 1
                out_starts[n] = i
            n_characters += 1
        out_stops[n] = stops[k]
        n += 1
        counts[k + 1] = n
