# SPDX-License-Identifier: Apache-2.0
"""Finds the rows that a slow step may change; selects among spans.

Its reference implementation is `tests.reference.text_steps`; `tests/tokenizer/text/test_steps.py` compares them,
and `test_spans.py` and `test_candidates.py` beside it.
"""

import numpy as np
from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import intrinsic, kernel, trailing_zeros, types
from tokenmill.tokenizer.kernels.utf8 import decode_utf8

_ZERO, _ONE = np.uint64(0), np.uint64(1)


@intrinsic
def _first_bytes(typingctx, array, index, prints):
    """Returns a mask of the 64 bytes at an index: where characters begin, without printing ASCII if `prints`."""

    def codegen(context, builder, signature, args):
        block = ir.VectorType(ir.IntType(8), 64)

        def every(value):
            return ir.Constant(block, [value] * 64)

        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [args[1]])
        text = builder.load(builder.bitcast(address, block.as_pointer()), align=1)
        begins = builder.icmp_signed(">=", text, every(0xC0))
        # First bytes from 0xC0 on, ASCII below 0x20, and U+007F.
        others = builder.icmp_unsigned("<", builder.add(text, every(0x40)), every(0x60))
        others = builder.or_(others, builder.icmp_unsigned("==", text, every(0x7F)))
        masks = [builder.bitcast(mask, ir.IntType(64)) for mask in (others, begins)]
        return builder.select(args[2], *masks)

    return types.uint64(array, types.int64, types.boolean), codegen


@kernel
def find_characters(data, offsets, wanted, firsts, prints, found):
    """Finds rows that contain one of a set of characters.

    Args:
      data: uint8[n], of which rows are valid UTF-8; offsets: int64[n_rows + 1] into it.
      wanted: bool[0x110000].
      firsts: bool[256]: whether a character that begins with this byte may be wanted.
      prints: whether none of the printing characters of ASCII is wanted.
      found: bool[n_rows], changed: set for rows with one.
    """
    row = 0
    end = offsets[found.size]
    i = offsets[0]
    while i < end:
        # In blocks over all rows together; byte by byte where a block would reach beyond the array.
        n = 64 if i + 64 <= data.size else 1
        mask = _first_bytes(data, i, prints) if n == 64 else np.uint64((data[i] & 0xC0) != 0x80)
        block = i
        i += n
        while mask != _ZERO:
            at = block + trailing_zeros(mask)
            mask &= mask - _ONE
            if not firsts[data[at]]:
                continue
            if at >= end:
                break
            if wanted[np.int64(data[at]) if data[at] < 128 else decode_utf8(data, at)[0]]:
                while offsets[row + 1] <= at:
                    row += 1
                found[row] = True
                i = offsets[row + 1]
                break


@kernel
def select_leftmost(spans, taken):
    """Takes the spans, in order, that do not overlap one taken before.

    Args:
      spans: int64[n, 3], ordered by start, then by rule: start, stop, rule.
      taken: bool[n], filled.
    """
    last = np.int64(-1)
    for i in range(spans.shape[0]):
        taken[i] = spans[i, 0] >= last
        if taken[i]:
            last = spans[i, 1]
