# SPDX-License-Identifier: Apache-2.0
"""Types of values inside of kernels that numba does not have. Imported where a kernel with them is compiled."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models, register_default


class Reference(types.Type):
    """Where values of some numba type are, on the stack of the kernel that has called `references.refer`."""

    def __init__(self, values: types.Type) -> None:
        self.values = values
        super().__init__(name=f"Reference({values})")


@register_default(Reference)
class _ReferenceModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, manager[kind.values].get_value_type().as_pointer())


class Keys(types.Type):
    """uint32[n], a vector in registers; see `bpe_short`."""

    def __init__(self, n: int) -> None:
        self.n = n
        super().__init__(name=f"Keys{n}")


@register_default(Keys)
class _KeysModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Keys) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.IntType(32), kind.n))
