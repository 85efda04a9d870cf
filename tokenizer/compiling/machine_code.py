# SPDX-License-Identifier: Apache-2.0
"""The files of compiled kernels; linked without importing numba, which would take longer than all the rest of loading.

numba compiles a kernel to an object file, whose entry (`entries`) Python can call. `save` keeps that file, and `load`
links it with the same linker, LLVM's. If anything is not as expected, the result is None, and numba compiles it again.
"""

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.tokenizer.compiling import library
from tokenmill.tokenizer.compiling.waiting import waiting

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Later:
    """A module that is imported when one of its attributes is first used: where a library has all kernels, never."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


binding: Any = Later("llvmlite.binding")

_IN_C_ORDER, _IN_FORTRAN_ORDER = 0x1, 0x2
"""Flags of an array. To numba an array that is contiguous in both orders is in C's order."""
_MASKS = _IN_FORTRAN_ORDER, _IN_C_ORDER
"""The flags that matter, for arrays that are not in C's order and that are."""
_MOST_DTYPES = 12
"""The largest of numpy's type numbers for bool, integers, float32 and float64."""
_ARRAY = np.ndarray
_SCALARS = {
    int: "int64", bool: "bool", float: "float64", type(None): "None", np.bool_: "bool", np.uint8: "uint8",
    np.int32: "int32", np.uint32: "uint32", np.int64: "int64", np.uint64: "uint64", np.float64: "float64",
}  # fmt: skip
"""numba's types of numbers, by their types."""


def signature(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Returns a key with all that machine code distinguishes in the types of arguments; None for one of another kind.

    An array that must not be written is of the same kind as one that may: numba, which is given the arguments for which
    a kernel is compiled, refuses to compile one that writes what must not be written.
    """
    kinds: list[Any] = []
    return tuple(kinds) if _add_kinds(arguments, kinds) else None


def _add_kinds(values: tuple[Any, ...], kinds: list[Any]) -> bool:
    # Every call of a kernel runs this over some dozens of arrays, so it is written to be fast.
    for value in values:
        kind = type(value)
        if kind is _ARRAY:
            dtype = value.dtype
            number = dtype.num
            if number > _MOST_DTYPES or not dtype.isnative:
                return False
            flags = value.flags.num
            kinds.append(flags & _MASKS[flags & _IN_C_ORDER] | number << 12 | value.ndim << 20)
        elif issubclass(kind, tuple):
            kinds.append(kind)
            kinds.append(len(value))
            if not _add_kinds(value, kinds):
                return False
        elif kind in _SCALARS and (kind is not int or -(1 << 63) <= value < 1 << 63):
            kinds.append(_SCALARS[kind])
        else:
            return False
    return True


def row(origin: str, kinds: tuple[Any, ...]) -> str:
    """Returns a line that tells a kernel and its `signature` from all others: `module:name`, a tab, and its kinds.

    An array is its dtype and dimensions, such as `uint8*1`, and its order if that is not C's; a tuple is its class and
    length, and its values follow.
    """
    words: list[str] = []
    for kind in kinds:
        if isinstance(kind, str):
            words.append(kind)
        elif isinstance(kind, type):
            words.append(f"{kind.__module__}.{kind.__qualname__}:")
        elif words and words[-1].endswith(":"):
            words[-1] += str(kind)
        else:
            order = "" if kind & _IN_C_ORDER else "F" if kind & _IN_FORTRAN_ORDER else "A"
            words.append(f"{_DTYPES[kind >> 12 & 0xFF]}*{kind >> 20}{order}")
    return f"{origin}\t{' '.join(words)}"


_DTYPES = {np.dtype(name).num: name for name in "bool int8 uint8 int16 uint16 int32 uint32 float32 float64".split()}
_DTYPES |= {np.dtype(code).num: np.dtype(code).name for code in "lLqQ"}
"""Names of dtypes; there are two numbers for each of 64 bits."""
_HEAD = "n_bytes", "entry", "externals"
"""The first line of a file, as JSON: bytes of code, name of the function in it, and of those that it needs."""


def path_of(directory: Path, row: str, vectorize: bool, settings: Mapping[str, str]) -> Path:
    """Returns the file of a kernel's machine code for a `row`, and the processor of `kernel_files` settings."""
    digest = hashlib.sha256(repr((row, vectorize, _machine(settings))).encode()).hexdigest()[:24]
    name = row.partition("\t")[0].partition(":")[2].partition("(")[0]
    return directory / f"{name}-{digest}.kernel"


def load(path: Path) -> Callable[..., Any] | None:
    """Links a saved kernel; returns None if there is none, or it cannot be linked."""
    try:
        head, _, code = _read_own(path).partition(b"\n")
        n_bytes, entry, externals = (json.loads(head)[name] for name in _HEAD)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # LLVM aborts the process if it does not find a symbol.
    if n_bytes != len(code) or not all(map(_engine() and binding.address_of_symbol, externals)):
        return None
    _engine().add_object_file(binding.ObjectFileRef.from_data(code))
    _engine().finalize_object()
    address = _engine().get_function_address(entry)
    return library.function_at(address, path.name.partition("-")[0]) if address else None


def is_own_file(status: os.stat_result) -> bool:
    """Returns whether something is a regular file of this user: no link, no pipe."""
    return stat.S_ISREG(status.st_mode) and (not hasattr(os, "getuid") or status.st_uid == os.getuid())


def _read_own(path: Path) -> bytes:
    """Returns the contents of a file of this user; raises OSError for any other. What is examined is what is read."""
    flags = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    with open(os.open(path, os.O_RDONLY | flags), "rb") as file:
        if not is_own_file(os.fstat(file.fileno())):
            raise PermissionError(f"{path} is no file of this user")
        return file.read()


def save(path: Path, compiled: Any) -> bool:
    """Saves a library of numba's, named after its entry; returns whether it could be written."""
    try:
        _, _, (code, bitcode) = compiled.serialize_using_object_code()
    except (AttributeError, TypeError, ValueError, RuntimeError):  # in a numba that keeps it elsewhere
        return False
    module = binding.parse_bitcode(bitcode)
    declared = [*(f.name for f in module.functions if f.is_declaration)]
    declared += [variable.name for variable in module.global_variables if variable.is_declaration]
    externals = sorted(name for name in declared if not name.startswith("llvm."))
    head = dict(zip(_HEAD, (len(code), compiled.name, externals), strict=True))
    part = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
            part.write(json.dumps(head).encode() + b"\n" + code)
        os.replace(part.name, path)
    except OSError:
        if part is not None:
            Path(part.name).unlink(missing_ok=True)
        return False
    return True


@contextlib.contextmanager
def making(path: Path) -> Iterator[None]:
    """Lets one thread of one process at a time make the file `path`; others wait.

    The lock ends with the process that holds it, however that ends. If files cannot be locked, nobody waits: two may
    then do the same work, and the result of the last is kept.
    """
    lock = path.with_suffix(".lock")
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            with contextlib.suppress(OSError):
                file = stack.enter_context(lock.open("wb"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    with waiting.wait():
                        fcntl.flock(file, fcntl.LOCK_EX)
                # Those who wait already keep the file open, and find the work done.
                stack.callback(lock.unlink, missing_ok=True)
        yield


def numba_folder() -> Path:
    """Returns where numba is installed, without importing it."""
    found = importlib.util.find_spec("numba")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@functools.cache
def _engine() -> Any:
    """Returns LLVM's linker, which has the code of what it linked, and threads may run that to the very end."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        opt=3, reloc="static" if _is_x86() else "default", codemodel="jitdefault", jit=True
    )
    return library.kept_forever(binding.create_mcjit_compiler(binding.parse_assembly(""), machine))


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def _machine(settings: Mapping[str, str]) -> tuple[str, ...]:
    name, features = _host()
    name, features = settings.get("NUMBA_CPU_NAME", name), settings.get("NUMBA_CPU_FEATURES", features)
    return binding.get_default_triple(), name, features


@functools.cache
def _host() -> tuple[str, str]:
    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
