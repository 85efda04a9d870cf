# SPDX-License-Identifier: Apache-2.0
"""The kernels that a wheel brings along: a shared library for its kind of machine, which `tools.library` builds.

A kernel is found in it by its `machine_code.row`; its function is called as Python calls any that is written in C.
Neither numba nor LLVM is imported. The library belongs to whom the module beside it belongs to.
"""

import ctypes
import functools
import hashlib
import pickle
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

PATH = Path(__file__).parents[1] / "compiled" / "kernels.so"
"""Where a wheel has the library; a checkout has none."""
FEATURES = "avx avx2 bmi1 bmi2 f16c fma abm movbe popcnt sse4_2"
"""What a processor needs for it on x86-64, as Linux spells it: the level v3, of nearly all in ten years."""
_METH_FASTCALL = 0x80


class _Method(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype, _new_function.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)


def function_at(address: int, name: str) -> Callable[..., Any]:
    """Returns the function of a kernel's entry, see `entries`, as one that Python can call."""
    method = kept_forever(_Method(name.encode(), address, _METH_FASTCALL, None))
    made: Callable[..., Any] = _new_function(ctypes.addressof(method), _raise, None)
    return made


def kept_forever(value: Any) -> Any:
    """Returns a value that is never freed: functions are looked at when Python ends, after modules have gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value


def _raise(pickled: bytes) -> NoReturn:
    """Raises what a kernel has raised: numba has pickled the class, its arguments and a place."""
    kind, arguments, _ = pickle.loads(pickled)
    raise kind(*(arguments or ()))


def symbol(row: str) -> str:
    """Returns the name of a kernel's entry in a library."""
    return f"tokenmill_{hashlib.sha256(row.encode()).hexdigest()[:24]}"


def load(row: str) -> Callable[..., Any] | None:
    """Returns a kernel of the library for this processor; None if there is no library, or it has no such kernel."""
    opened = _library()
    function = getattr(opened, symbol(row), None) if opened is not None else None
    if function is None:
        return None
    return function_at(ctypes.cast(function, ctypes.c_void_p).value or 0, row.partition("\t")[0])


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Opens the library, if there is one and this processor can run it."""
    try:
        return ctypes.CDLL(str(PATH)) if PATH.is_file() and _can_run() else None
    except OSError:  # of another system
        return None


def _can_run() -> bool:
    """Whether this processor has all features that the library may use; the wheel is for its kind."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return True
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = re.search(r"^flags\s*:(.*)$", file.read(1 << 14), re.MULTILINE)
    return flags is not None and set(FEATURES.split()) <= set(flags[1].split())
