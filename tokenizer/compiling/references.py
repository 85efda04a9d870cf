# SPDX-License-Identifier: Apache-2.0
"""Passes many arguments of a kernel as one: for a kernel that is called often, passing arrays is what takes the time.

numba passes seven numbers for every array of one dimension, most of them on the stack. `refer(values)` stores a tuple
of any values once, and `values_of(reference)` reads it back in a function that is called with the reference.
"""

from typing import Any

from llvmlite import ir

from tokenmill.tokenizer.compiling.kernel import cgutils, intrinsic


@intrinsic
def refer(typingctx: Any, values: Any) -> Any:
    """Stores values in memory that lasts as long as the call of the kernel around it; returns their address.

    The values are copies: assigning to the variables that they came from does not change them.
    """
    from tokenmill.tokenizer.compiling.numba_compiler import Reference

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return cgutils.alloca_once_value(builder, args[0])

    return Reference(values)(values), codegen


@intrinsic
def values_of(typingctx: Any, reference: Any) -> Any:
    """Returns the values that `refer` stored."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load(args[0])

    return reference.values(reference), codegen
