# SPDX-License-Identifier: Apache-2.0
"""Helpers for intrinsics on vectors, in LLVM's terms: LLVM chooses the instructions of whatever machine it is."""

from collections.abc import Sequence

from llvmlite import ir

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def constant(kind: ir.Type, values: Sequence[int]) -> ir.Constant:
    """Returns a constant vector of `values`."""
    return ir.Constant(ir.VectorType(kind, len(values)), list(values))


def all_of(kind: ir.Type, n: int, value: int) -> ir.Constant:
    """Returns a vector of n times the same value."""
    return constant(kind, [value] * n)


def pick(builder: ir.IRBuilder, values: ir.Value, others: ir.Value, places: Sequence[int]) -> ir.Value:
    """Returns the elements at `places` of `values` followed by `others`."""
    return builder.shuffle_vector(values, others, constant(I32, places))


def load_bytes(builder: ir.IRBuilder, start: ir.Value, n: int) -> ir.Value:
    """Loads n bytes from any address."""
    return builder.load(builder.bitcast(start, ir.VectorType(I8, n).as_pointer()), align=1)


def bits(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Returns a vector of up to 64 conditions as the bits of an int64."""
    n = mask.type.count
    joined = builder.bitcast(mask, ir.IntType(n))
    return joined if n == 64 else builder.zext(joined, I64)
