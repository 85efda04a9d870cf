# SPDX-License-Identifier: Apache-2.0
"""Shortcuts for numba where it does one thing again and again. Imported where kernels are compiled.

What is compiled stays the same: numba only remembers what it has found out, which it would do anew for every call.
"""

from typing import Any

from numba.core import types
from numba.core.compiler import Flags

_resolve = types.BaseFunction.get_call_type
_resolved: dict[Any, Any] = {}


def install() -> None:
    """Makes numba take the shortcuts, for the rest of this process."""
    Flags.__hash__ = _hash_flags
    Flags.__eq__ = _are_equal
    types.BaseFunction.get_call_type = _call_type


def _hash_flags(flags: Flags) -> int:
    # Flags are part of the keys under which numba keeps functions that it has compiled, beside types that tell these
    # apart; numba's own digest takes all fifty flags out and sorts them, each time it looks something up.
    return 0


def _are_equal(flags: Flags, other: object) -> bool:
    if not isinstance(other, Flags):
        return NotImplemented
    return bool(flags._values == other._values or flags.values() == other.values())


def _call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """Returns the signature of a call of something built in; numba tries everything it knows of `+` for every `+`."""
    if kws:
        return _resolve(function, context, args, kws)
    key = function, context, tuple(args)
    if key not in _resolved:
        _resolved[key] = _resolve(function, context, args, kws)
    return _resolved[key]
