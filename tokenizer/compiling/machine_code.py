# SPDX-License-Identifier: Apache-2.0
"""Loads compiled kernels from disk without importing numba, which would take longer than all the rest of loading.

numba compiles a kernel to an object file, whose entry is a function of Python's own calling convention. `save` keeps
that file, and `load` links it with the same linker, LLVM's. If anything is not as expected, the result is None, and
numba compiles the kernel.
"""

import builtins
import contextlib
import ctypes
import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import binding

from tokenmill.tokenizer.compiling.waiting import waiting

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_IN_C_ORDER, _IN_FORTRAN_ORDER, _WRITABLE = 0x1, 0x2, 0x400
"""Flags of an array. To numba an array that is contiguous in both orders is in C's order."""
_MASKS = _IN_FORTRAN_ORDER | _WRITABLE, _IN_C_ORDER | _WRITABLE
"""The flags that matter, for arrays that are not in C's order and that are."""
_MOST_DTYPES = 12
"""The largest of numpy's type numbers for bool, integers, float32 and float64."""


def signature(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Returns a key with all that numba distinguishes in the types of arguments; None if one is of an unknown kind."""
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
            kinds.append(kind)
        else:
            return False
    return True


_HEAD = "n_bytes", "entry", "environment", "externals"
"""The first line of a file, as JSON: bytes of code, names of symbols in it, and of those that it needs."""
_ARRAY = np.ndarray
_SCALARS = {bool, int, float, type(None), np.bool_, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float64}


def path_of(directory: Path, name: str, kinds: tuple[Any, ...], vectorize: bool, settings: Mapping[str, str]) -> Path:
    """Returns the file of a kernel's machine code for a `signature`, and the processor of `kernel_files` settings."""
    described = [
        f"{kind.__module__}.{kind.__qualname__}{getattr(kind, '_fields', '')}" if isinstance(kind, type) else kind
        for kind in kinds
    ]
    digest = hashlib.sha256(repr((name, vectorize, described, _machine(settings))).encode()).hexdigest()[:24]
    return directory / f"{name.rpartition('.')[2]}-{digest}.kernel"


def load(path: Path, module: str, *, is_installed: bool = False) -> Callable[..., Any] | None:
    """Links a saved kernel; returns None if there is none, or it cannot be linked.

    Args:
      path: its file, see `path_of`.
      module: the name of the kernel's Python module.
      is_installed: the file was installed with this module, and belongs to whom the module belongs to.
    """
    try:
        head, _, code = (path.read_bytes() if is_installed else _read_own(path)).partition(b"\n")
        n_bytes, entry, environment, externals = (json.loads(head)[name] for name in _HEAD)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    linker = _linker()
    # LLVM aborts the process if it does not find a symbol.
    if n_bytes != len(code) or linker is None or not all(map(binding.address_of_symbol, externals)):
        return None
    return linker.link(code, entry, environment, sys.modules[module], path.name.partition("-")[0])


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
    """Saves the machine code of a numba CompileResult; returns whether it could be written."""
    try:
        _, _, (code, bitcode) = compiled.library.serialize_using_object_code()
    except (AttributeError, TypeError, ValueError, RuntimeError):  # in a numba that keeps it elsewhere
        return False
    module = binding.parse_bitcode(bitcode)
    declared = [*(f.name for f in module.functions if f.is_declaration)]
    declared += [variable.name for variable in module.global_variables if variable.is_declaration]
    function = compiled.fndesc
    externals = sorted(name for name in declared if not name.startswith("llvm."))
    values = len(code), function.llvm_cpython_wrapper_name, function.env_name, externals
    head = dict(zip(_HEAD, values, strict=True))
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


class _Linker:
    """LLVM's linker, with the symbols that numba gives it."""

    def __init__(self) -> None:
        helpers, dynamic = _numba_extension("_helperlib"), _numba_extension("_dynfunc")
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_default_triple().create_target_machine(
            opt=3, reloc="static" if _is_x86() else "default", codemodel="jitdefault", jit=True
        )
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        self._make_function = dynamic.make_function
        self._environment = dynamic.Environment({})
        binding.add_symbol("_Py_NoneStruct", id(None))
        for name, address in {**helpers.c_helpers, **dynamic.c_helpers}.items():
            binding.add_symbol(f"numba_{name}", address)
        for name, value in vars(builtins).items():
            if isinstance(value, type) and issubclass(value, BaseException):
                binding.add_symbol(f"PyExc_{name}", id(value))

    def link(self, code: bytes, entry: str, environment: str, module: Any, name: str) -> Callable[..., Any] | None:
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = self._engine.get_function_address(entry)
        place = self._engine.get_global_value_address(environment)
        if not address or not place:
            return None
        # The entry checks that its environment is set; for these kernels it is empty.
        ctypes.c_void_p.from_address(place).value = id(self._environment)
        made: Callable[..., Any] = self._make_function(module, name, "", address, self._environment, (self,))
        return made


@functools.cache
def _linker() -> _Linker | None:
    try:
        return _Linker()
    except (ImportError, RuntimeError, AttributeError, TypeError):
        return None


def _numba_extension(name: str) -> Any:
    """Loads a module of numba that is written in C, without the package around it."""
    found = importlib.machinery.PathFinder.find_spec(name, [str(numba_folder())])
    if found is None or found.origin is None:
        raise ImportError(name)
    spec = importlib.util.spec_from_file_location(f"numba.{name}", found.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def _machine(settings: Mapping[str, str]) -> tuple[str, ...]:
    name, features = _host()
    name, features = settings.get("NUMBA_CPU_NAME", name), settings.get("NUMBA_CPU_FEATURES", features)
    return binding.get_default_triple(), name, features, str(sys.implementation.cache_tag)


@functools.cache
def _host() -> tuple[str, str]:
    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


def runs_here(settings: Mapping[str, str]) -> bool:
    """Returns whether this processor has the features that code compiled with some settings uses."""
    return set(settings["NUMBA_CPU_FEATURES"].split(",")) <= set(_host()[1].split(","))
