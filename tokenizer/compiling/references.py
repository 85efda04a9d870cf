# SPDX-License-Identifier: Apache-2.0
"""Many arguments of a kernel as one: a kernel that is called often takes longer to be given its arrays than to start.

numba passes seven numbers for every array of one dimension, most of them on the stack. `refer(values)` puts a tuple of
anything into memory once, and `values_of(reference)` reads it back in whatever is called with the reference.
"""

from typing import Any

from llvmlite import ir

from tokenizer.compiling.kernel import cgutils, intrinsic


@intrinsic
def refer(typingctx: Any, values: Any) -> Any:
    """Puts values into memory that lasts as long as the call of the kernel around it; returns where they are.

    A change of what the values were taken from does not change them.
    """
    from tokenizer.compiling.numba_additions import Reference

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return cgutils.alloca_once_value(builder, args[0])

    return Reference(values)(values), codegen


@intrinsic
def values_of(typingctx: Any, reference: Any) -> Any:
    """Reads the values back."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load(args[0])

    return reference.values(reference), codegen
