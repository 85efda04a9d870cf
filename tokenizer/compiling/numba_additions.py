# SPDX-License-Identifier: Apache-2.0
"""Additions to numba: a type that it does not have, and a shortcut. Imported only where kernels are compiled.

The shortcut does not change what is compiled: numba only caches what it would find out again for every call.
"""

from typing import Any

from numba.core import types
from numba.core.datamodel import models, register_default

_resolve = types.BaseFunction.get_call_type
_resolved: dict[Any, Any] = {}


class Reference(types.Type):
    """The type of an address of values, on the stack of the kernel that has called `references.refer`."""

    def __init__(self, values: types.Type) -> None:
        self.values = values
        super().__init__(name=f"Reference({values})")


@register_default(Reference)
class _ReferenceModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, manager[kind.values].get_value_type().as_pointer())


def install() -> None:
    """Installs the shortcut, for the rest of this process."""
    types.BaseFunction.get_call_type = _call_type


def _call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """Returns the signature of a call of a builtin, cached; numba itself tries all overloads of `+` for every `+`."""
    if kws:
        return _resolve(function, context, args, kws)
    key = function, context, tuple(args)
    if key not in _resolved:
        _resolved[key] = _resolve(function, context, args, kws)
    return _resolved[key]
