# SPDX-License-Identifier: Apache-2.0
"""What intrinsics on vectors say to LLVM, which chooses the instructions, also where a machine has none for them."""

from collections.abc import Sequence

from llvmlite import ir

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def constant(kind: ir.Type, values: Sequence[int]) -> ir.Constant:
    """Returns a vector of these."""
    return ir.Constant(ir.VectorType(kind, len(values)), list(values))


def all_of(kind: ir.Type, n: int, value: int) -> ir.Constant:
    """Returns a vector of n times the same."""
    return constant(kind, [value] * n)


def pick(builder: ir.IRBuilder, values: ir.Value, others: ir.Value, places: Sequence[int]) -> ir.Value:
    """Returns the elements at these places, which go on in `others` behind the last of `values`."""
    return builder.shuffle_vector(values, others, constant(I32, places))


def load_bytes(builder: ir.IRBuilder, start: ir.Value, n: int) -> ir.Value:
    """Loads n bytes from anywhere."""
    return builder.load(builder.bitcast(start, ir.VectorType(I8, n).as_pointer()), align=1)


def bits(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Returns a vector of up to 64 conditions as the bits of an int64."""
    n = mask.type.count
    joined = builder.bitcast(mask, ir.IntType(n))
    return joined if n == 64 else builder.zext(joined, I64)
