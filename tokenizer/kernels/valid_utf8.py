# SPDX-License-Identifier: Apache-2.0
"""A kernel that finds the bytes that are not UTF-8, 32 bytes at a time.

Its reference implementation is Python's decoder; `tests/tokenizer/test_utf8.py` compares them.
"""

import functools

import numpy as np
from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import intrinsic, kernel, kernel_part, load_u64, types
from tokenmill.tokenizer.compiling.vectors import I8, I64, all_of, load_bytes
from tokenmill.tokenizer.kernels.utf8 import HIGH_BITS

_BLOCK = 32
_SECONDS = ((0xE0, 0xA0, True), (0xED, 0xA0, False), (0xF0, 0x90, True), (0xF4, 0x90, False))
"""First bytes, and the second bytes that may not follow them: those below a value, or those from it on. They keep out
long forms, surrogates and what is above U+10FFFF."""


@intrinsic
def _is_wrong(typingctx, array, index):
    """Whether `data[index:index + 32]` has a byte that no character has, or that cannot follow the three before it.

    What the last character of these bytes lacks is not seen. The caller guarantees that there are three bytes before.
    """

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.gep(data, [args[1]])
        here, first, second, third = (
            load_bytes(builder, builder.gep(place, [ir.Constant(I64, -back)]), _BLOCK) for back in range(4)
        )

        def compared(how, values, value):
            return builder.icmp_unsigned(how, values, all_of(I8, _BLOCK, value))

        # A byte continues a character exactly where one of the three before it begins a character that long.
        leads = ((first, 0xC0), (second, 0xE0), (third, 0xF0))
        wanted = functools.reduce(builder.or_, (compared(">=", before, lead) for before, lead in leads))
        wrong = builder.xor(wanted, builder.icmp_signed("<", here, all_of(I8, _BLOCK, 0xC0 - 0x100)))
        for lead, value, is_below in _SECONDS:
            beyond = compared("<" if is_below else ">=", here, value)
            wrong = builder.or_(wrong, builder.and_(compared("==", first, lead), beyond))
        for how, value in (("==", 0xC0), ("==", 0xC1), (">=", 0xF5)):
            wrong = builder.or_(wrong, compared(how, here, value))
        bits = ir.IntType(_BLOCK)
        return builder.icmp_unsigned("!=", builder.bitcast(wrong, bits), ir.Constant(bits, 0))

    return types.boolean(array, types.int64), codegen


@kernel_part
def _is_ascii(data, i):
    """Whether `data[i:i + 32]` is ASCII."""
    low = load_u64(data, i) | load_u64(data, i + 8)
    return (low | load_u64(data, i + 16) | load_u64(data, i + 24)) & HIGH_BITS == np.uint64(0)


@kernel_part
def _past_valid(data, i, start, stop):
    """Returns where a character begins, from i on, with valid UTF-8 before it if `data[start:i]` is valid."""
    while i + _BLOCK <= stop and _is_ascii(data, i):
        i += _BLOCK
    if i < start + 3:
        return i
    before = i
    while i + _BLOCK <= stop and not _is_ascii(data, i) and not _is_wrong(data, i):
        i += _BLOCK
    # Back to the last character, which may lack bytes.
    while i > before and data[i - 1] >= 0x80:
        i -= 1
        if data[i] >= 0xC0:
            break
    return i


@kernel
def find_invalid(data, starts, stops, found):
    """Finds the first byte of each stretch that begins no character in UTF-8.

    Args:
      data: uint8[n_bytes], the bytes that contain the stretches.
      starts: int64[n], where they begin; stops: int64[n], where they end.
      found: int64[n], filled with positions in `data`; -1 for a stretch that is valid.
    """
    for row in range(starts.size):
        start, stop = starts[row], stops[row]
        i = start
        found[row] = -1
        while i < stop:
            i = _past_valid(data, i, start, stop)
            if i >= stop:
                break
            b = data[i]
            if b < 0x80:
                i += 1
                continue
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
