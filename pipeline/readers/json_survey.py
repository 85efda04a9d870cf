# SPDX-License-Identifier: Apache-2.0
"""What must be known of lines before pyarrow's JSON parser may have them, 64 bytes at a time."""

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tokenizer.kernels.compiling import count_ones, kernel, kernel_part, trailing_zeros

HAS_NUL, MAY_NOT_BE_FINITE = 1, 2
"""Marks of a line: it holds a NUL byte; it may hold `NaN`, `Inf` or `Infinity` as a value."""

_BLOCK = 64
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@intrinsic
def _classify(typingctx, array, index):
    """Returns masks of the 64 bytes at an index: NUL; where `NaN` or `Inf` begins; `{` or `[`. Reads two more bytes."""

    def codegen(context, builder, signature, args):
        block = ir.VectorType(ir.IntType(8), 64)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data

        def load(ahead):
            address = builder.gep(data, [builder.add(args[1], ir.IntType(64)(ahead))])
            return builder.load(builder.bitcast(address, block.as_pointer()), align=1)

        def equal(vector, character):
            return builder.icmp_unsigned("==", vector, ir.Constant(block, [ord(character)] * 64))

        here, second, third = load(0), load(1), load(2)
        nan = builder.and_(builder.and_(equal(here, "N"), equal(second, "a")), equal(third, "N"))
        inf = builder.and_(builder.and_(equal(here, "I"), equal(second, "n")), equal(third, "f"))
        # The two brackets differ in one bit.
        brackets = equal(builder.or_(here, ir.Constant(block, [0x20] * 64)), "{")
        masks = [equal(here, "\0"), builder.or_(nan, inf), brackets]
        bits = [builder.bitcast(mask, ir.IntType(64)) for mask in masks]
        return context.make_tuple(builder, signature.return_type, bits)

    return types.UniTuple(types.uint64, 3)(array, types.int64), codegen


@kernel_part
def _may_be_value(data, start, place):
    """Whether what stands at `place`, in a line from `start` on, may be a value: after `:`, `,`, `[` and blanks."""
    before = place - 1
    if before >= start and data[before] == 0x2D:
        before -= 1
    while before >= start and (data[before] == 0x20 or data[before] == 0x09 or data[before] == 0x0D):
        before -= 1
    return before >= start and (data[before] == 0x3A or data[before] == 0x2C or data[before] == 0x5B)


@kernel_part
def _begins_constant(data, i):
    if i + 2 >= data.size:
        return False
    a, b, c = data[i], data[i + 1], data[i + 2]
    return (a == 0x4E and b == 0x61 and c == 0x4E) or (a == 0x49 and b == 0x6E and c == 0x66)


@kernel
def survey(data, starts, nexts, marks, n_brackets):
    """Marks lines, and counts opening brackets in them, those in strings included.

    Args:
      data: uint8, the lines.
      starts, nexts: int64[n_lines], increasing: a line is `data[start:next]`.
      marks: uint8[n_lines], zeros; filled.
      n_brackets: int64[n_lines]; filled.
    """
    for line in range(starts.size):
        i, stop = starts[line], nexts[line]
        mark = 0
        n = 0
        while i < stop:
            if i + _BLOCK + 2 <= data.size:
                zeros, places, brackets = _classify(data, i)
                if stop - i < _BLOCK:
                    within = (_ONE << np.uint64(stop - i)) - _ONE
                    zeros &= within
                    places &= within
                    brackets &= within
                if zeros != _ZERO:
                    mark |= HAS_NUL
                while places != _ZERO:
                    if _may_be_value(data, starts[line], i + trailing_zeros(places)):
                        mark |= MAY_NOT_BE_FINITE
                    places &= places - _ONE
                n += count_ones(brackets)
                i += _BLOCK
            else:
                b = data[i]
                if b == 0:
                    mark |= HAS_NUL
                elif (b | 0x20) == 0x7B:
                    n += 1
                elif _begins_constant(data, i) and _may_be_value(data, starts[line], i):
                    mark |= MAY_NOT_BE_FINITE
                i += 1
        marks[line] = mark
        n_brackets[line] = n


@intrinsic
def _marks_in_string(typingctx, array, index):
    """Returns the mask of quotes and backslashes among the 64 bytes at an index."""

    def codegen(context, builder, signature, args):
        block = ir.VectorType(ir.IntType(8), 64)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), block.as_pointer())
        text = builder.load(address, align=1)
        quotes = builder.icmp_unsigned("==", text, ir.Constant(block, [0x22] * 64))
        backslashes = builder.icmp_unsigned("==", text, ir.Constant(block, [0x5C] * 64))
        return builder.bitcast(builder.or_(quotes, backslashes), ir.IntType(64))

    return types.uint64(array, types.int64), codegen


@kernel_part
def _string_end(line, i):
    """Returns the place of the quote that ends the string whose content begins at i, or a place beyond the line."""
    while i < line.size:
        if i + _BLOCK <= line.size:
            marks = _marks_in_string(line, i)
            if marks == _ZERO:
                i += _BLOCK
                continue
            i += trailing_zeros(marks)
        if line[i] == 0x22:
            return i
        i += 2 if line[i] == 0x5C else 1
    return i


@kernel
def is_deeper(line, max_depth):
    """Whether arrays and objects of a line, uint8, nest more than `max_depth` deep; brackets in strings count not."""
    depth = 0
    i = 0
    while i < line.size:
        b = line[i]
        if b == 0x22:
            i = _string_end(line, i + 1)
        elif b == 0x7B or b == 0x5B:
            depth += 1
            if depth > max_depth:
                return True
        elif b == 0x7D or b == 0x5D:
            depth -= 1
        i += 1
    return False
