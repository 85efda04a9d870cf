# SPDX-License-Identifier: Apache-2.0
"""The kernel that counts words between white space and characters, 64 bytes at a time.

Its reference implementation is `builtins.str.split`; `tests/pipeline/statistics/test_words.py` compares them.
`words.split` does the same on columns.
"""

import functools

import numpy as np
from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import count_ones, intrinsic, kernel, types

_BLOCK = 64
READS = _BLOCK + 2
"""Bytes that are read for a block: its last character may extend over two more."""
_ONE, _TWO, _62, _63 = (np.uint64(n) for n in (1, 2, 62, 63))


def _load(context, builder, signature, args, ahead):
    byte, block = ir.IntType(8), ir.VectorType(ir.IntType(8), _BLOCK)
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    place = builder.add(args[1], ir.Constant(args[1].type, ahead))
    address = builder.gep(builder.bitcast(data, byte.as_pointer()), [place])
    return builder.load(builder.bitcast(address, block.as_pointer()), align=1)


def _every(value):
    return ir.Constant(ir.VectorType(ir.IntType(8), _BLOCK), [value] * _BLOCK)


@intrinsic
def _classify(typingctx, array, index):
    """Returns three masks of the 64 bytes at an index: ASCII white space; continuation bytes; non-ASCII bytes."""

    def codegen(context, builder, signature, args):
        text = _load(context, builder, signature, args, 0)
        blank = builder.icmp_unsigned("==", text, _every(0x20))
        for first, n in ((0x09, 5), (0x1C, 4)):
            blank = builder.or_(blank, builder.icmp_unsigned("<", builder.sub(text, _every(first)), _every(n)))
        masks = [
            blank,
            builder.icmp_signed("<", text, _every(0xC0)),
            builder.icmp_signed("<", text, _every(0)),
        ]
        bits = [builder.bitcast(mask, ir.IntType(64)) for mask in masks]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.uint64, 3)(array, types.int64), codegen


@intrinsic
def _wide_blanks(typingctx, array, index):
    """Returns masks of the 64 bytes at an index: where white space of two bytes begins, and of three bytes."""

    def codegen(context, builder, signature, args):
        first, second, third = (_load(context, builder, signature, args, ahead) for ahead in range(3))

        def equal(vector, value):
            return builder.icmp_unsigned("==", vector, _every(value))

        def both(*masks):
            return functools.reduce(builder.and_, masks)

        def either(*masks):
            return functools.reduce(builder.or_, masks)

        # U+0085 and U+00A0; U+1680; U+2000 to U+200A, U+2028, U+2029, U+202F; U+205F; U+3000.
        of_two = both(equal(first, 0xC2), either(equal(second, 0x85), equal(second, 0xA0)))
        general = either(
            builder.icmp_unsigned("<", builder.sub(third, _every(0x80)), _every(11)),
            *(equal(third, value) for value in (0xA8, 0xA9, 0xAF)),
        )
        of_three = either(
            both(equal(first, 0xE1), equal(second, 0x9A), equal(third, 0x80)),
            both(equal(first, 0xE2), equal(second, 0x80), general),
            both(equal(first, 0xE2), equal(second, 0x81), equal(third, 0x9F)),
            both(equal(first, 0xE3), equal(second, 0x80), equal(third, 0x80)),
        )
        bits = [builder.bitcast(mask, ir.IntType(64)) for mask in (of_two, of_three)]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.uint64, 2)(array, types.int64), codegen


@kernel
def count_characters_and_words(data, offsets, end, n_characters, n_words):
    """Counts the characters of each text, and its words between white space, as `str.split` cuts.

    Args:
      data: uint8[n_bytes], valid UTF-8.
      offsets: int64[n + 1], the texts in it.
      end: uint8[n_end], the last `READS` bytes of `data`, or all if there are fewer, and as many more of any kind.
      n_characters, n_words: int64[n], filled.
    """
    n_safe = max(data.size - READS, 0)
    for row in range(n_words.size):
        i, stop = offsets[row], offsets[row + 1]
        characters, words = np.int64(0), np.int64(0)
        # Carried from block to block: whether white space comes before it, and where wide white space extends into it.
        before, reached = _ONE, np.uint64(0)
        while i < stop:
            block, at = (data, i) if i <= n_safe and data.size >= READS else (end, i - n_safe)
            blanks, tails, high = _classify(block, at)
            blanks |= reached
            reached = np.uint64(0)
            if high != np.uint64(0):
                of_two, of_three = _wide_blanks(block, at)
                blanks |= of_two | of_two << _ONE | of_three | of_three << _ONE | of_three << _TWO
                reached = of_two >> _63 | of_three >> _62 | of_three >> _63
            within = ~np.uint64(0) >> np.uint64(_BLOCK - min(stop - i, _BLOCK))
            words += count_ones(~blanks & (blanks << _ONE | before) & within)
            characters += count_ones(~tails & within)
            before = blanks >> _63
            i += _BLOCK
        n_characters[row], n_words[row] = characters, words
