# SPDX-License-Identifier: Apache-2.0
"""What intrinsics on vectors say to LLVM, which chooses the instructions, also where a machine has none for them."""

from collections.abc import Sequence

from llvmlite import ir

from tokenizer.kernels.compiling import cgutils

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))


def constant(kind: ir.Type, values: Sequence[int]) -> ir.Constant:
    """Returns a vector of these."""
    return ir.Constant(ir.VectorType(kind, len(values)), list(values))


def all_of(kind: ir.Type, n: int, value: int) -> ir.Constant:
    """Returns a vector of n times the same."""
    return constant(kind, [value] * n)


def spread(builder: ir.IRBuilder, value: ir.Value, n: int) -> ir.Value:
    """Returns a vector of n times a value."""
    nothing = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    first = builder.insert_element(nothing, value, I32(0))
    return builder.shuffle_vector(first, nothing, all_of(I32, n, 0))


def pick(builder: ir.IRBuilder, values: ir.Value, others: ir.Value, places: Sequence[int]) -> ir.Value:
    """Returns the elements at these places, which go on in `others` behind the last of `values`."""
    return builder.shuffle_vector(values, others, constant(I32, places))


def load_bytes(builder: ir.IRBuilder, start: ir.Value, n: int) -> ir.Value:
    """Loads n bytes from anywhere."""
    return builder.load(builder.bitcast(start, ir.VectorType(I8, n).as_pointer()), align=1)


def gather(builder: ir.IRBuilder, start: ir.Value, index: ir.Value, kind: ir.IntType) -> ir.Value:
    """Loads `start[i]`, of that type, for every i of a vector of int32 below 2^31."""
    n = index.type.count
    vector, mask = ir.VectorType(kind, n), ir.VectorType(I1, n)
    places = builder.gep(start, [index], source_etype=kind)
    places.type = ir.VectorType(ir.PointerType(), n)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [places.type, I32, mask, vector]),
        f"llvm.masked.gather.v{n}i{kind.width}.v{n}p0",
    )
    align = I32(kind.width // 8)
    return builder.call(function, [places, align, all_of(I1, n, 1), ir.Constant(vector, ir.Undefined)])


def bits(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Returns a vector of up to 64 conditions as the bits of an int64."""
    n = mask.type.count
    joined = builder.bitcast(mask, ir.IntType(n))
    return joined if n == 64 else builder.zext(joined, I64)
