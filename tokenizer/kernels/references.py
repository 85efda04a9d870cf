# SPDX-License-Identifier: Apache-2.0
"""Many arguments of a kernel as one: a kernel that is called often takes longer to be given its arrays than to start.

numba passes seven numbers for every array of one dimension, most of them on the stack. `refer(values)` puts a tuple of
anything into memory once, and `values_of(reference)` reads it back in whatever is called with the reference.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic


class Reference(types.Type):
    """Where values of some numba type are, on the stack of the kernel that has called `refer`."""

    def __init__(self, values: types.Type) -> None:
        self.values = values
        super().__init__(name=f"Reference({values})")


@register_default(Reference)
class _ReferenceModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, manager[kind.values].get_value_type().as_pointer())


@intrinsic
def refer(typingctx: Any, values: Any) -> Any:
    """Puts values into memory that lasts as long as the call of the kernel around it; returns where they are.

    A change of what the values were taken from does not change them.
    """

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return cgutils.alloca_once_value(builder, args[0])

    return Reference(values)(values), codegen


@intrinsic
def values_of(typingctx: Any, reference: Any) -> Any:
    """Reads the values back."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load(args[0])

    return reference.values(reference), codegen
