# SPDX-License-Identifier: Apache-2.0
"""The `kernel` decorator: numba compilation, cached on disk in a way that stays right.

numba's own `cache=True` notices a change in the file of a function, not in the files of the functions it calls, and
fails where neither the source tree nor the home directory can be written. Here the cache of a kernel is named by a
digest over its file and every kernel file that this one imports, and the first writable place of three holds it: beside
the sources, the user's cache directory, the temporary directory. `TOKENMILL_CACHE_DIR` overrides the choice.
"""

import functools
import hashlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils, entrypoints, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserWideCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.typing.typeof import typeof_impl
from numba.extending import intrinsic
from numba.np import numpy_support

_KERNEL_DIRECTORY = Path(__file__).parent
_IMPORT = re.compile(rb"^from tokenizer\.kernels(?:\.(\w+) import | import ([\w, ]+)$)", re.MULTILINE)
_announced: list[bool] = []


@functools.cache
def _imports(path: Path) -> tuple[bytes, frozenset[Path]]:
    """Returns the source in a file, and the kernel files that it names in its imports."""
    source = path.read_bytes()
    names = [name for module, modules in _IMPORT.findall(source) for name in (module or modules).split(b",")]
    return source, frozenset(_KERNEL_DIRECTORY / f"{name.split()[0].decode()}.py" for name in names)


def kernel_sources(path: Path) -> dict[Path, bytes]:
    """Returns `path` and all kernel files whose code can be compiled into its kernels, with their sources."""
    found: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        path = waiting.pop()
        found[path], imported = _imports(path)
        waiting += imported - found.keys()
    return found


@functools.cache
def _sources_digest(path: Path) -> str:
    # Code compiled with bounds checks is other code; numba itself would not notice.
    digest = hashlib.sha256(f"{numba.__version__} {numba.config.BOUNDSCHECK}".encode())
    for file, source in sorted(kernel_sources(path).items()):
        digest.update(file.name.encode() + b"\0" + source)
    return digest.hexdigest()[:16]


@functools.cache
def cache_directory(path: Path) -> Path:
    """Returns where the compiled kernels of one source file are kept: the first directory that can be written.

    Raises:
      OSError: when none of the candidates can be written; names them.
    """
    chosen = os.environ.get("TOKENMILL_CACHE_DIR")
    home_cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    candidates = (
        [Path(chosen)]
        if chosen
        else [
            _KERNEL_DIRECTORY / "__pycache__",
            Path(home_cache) / "tokenmill",
            Path(tempfile.gettempdir()) / f"tokenmill-{os.getuid() if hasattr(os, 'getuid') else 'cache'}",
        ]
    )
    for candidate in candidates:
        directory = candidate / f"kernels-{path.stem}-{_sources_digest(path)}"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if hasattr(os, "getuid") and directory.stat().st_uid != os.getuid():
                continue  # compiled code is executed: never read it from a directory of somebody else
            tempfile.TemporaryFile(dir=directory).close()
        except OSError:
            continue
        return directory
    raise OSError(
        f"no directory for compiled kernels can be written, tried {[str(c) for c in candidates]}; "
        "set TOKENMILL_CACHE_DIR to a writable directory"
    )


class _KernelLocator(UserWideCacheLocator):
    """Puts compiled code into the `cache_directory()` of its file, valid for exactly these sources."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(cache_directory(Path(self._py_file)))

    def get_source_stamp(self) -> str:
        return _sources_digest(Path(self._py_file))


_typeof_any_array = typeof_impl.dispatch(np.ndarray)


@typeof_impl.register(np.ndarray)
def _typeof_array(array: Any, context: Any) -> types.Type:
    """As numba's own, which loads `numpy.ma` to see that an array is not masked; none is before somebody loads that."""
    if "numpy.ma" in sys.modules:
        return _typeof_any_array(array, context)
    layout = numpy_support.map_layout(array)
    return types.Array(numpy_support.from_dtype(array.dtype), array.ndim, layout, readonly=not array.flags.writeable)


class _LoadedLibrary(JITCodeLibrary):
    """Compiled code from the cache.

    The cache has machine code, and bitcode for kernels that call this one to inline. LLVM takes longer to read the
    bitcode than everything else here together, so it is read only when such a kernel is compiled.
    """

    def __init__(self, codegen: Any, serialized: Any, entry_point: str) -> None:
        name, _, (machine_code, self._bitcode) = serialized
        super().__init__(codegen, name)
        self.enable_object_caching()
        self._set_compiled_object(machine_code)
        self._finalize_final_module()
        codegen._engine._defined_symbols.add(entry_point)

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._bitcode)
        return self._shared_module


class _KernelCacheImpl(CompileResultCacheImpl):
    _locator_classes = [_KernelLocator]

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        serialized, function, environment, signature, objectmode, lifted, annotation, init, environments = payload
        library = _LoadedLibrary(target_context.codegen(), serialized, function.llvm_cpython_wrapper_name)
        for referenced in environments:
            library.codegen.set_env(referenced.env_name, referenced)
        return CompileResult(
            typing_context=target_context.typing_context,
            target_context=target_context,
            entry_point=target_context.get_executable(library, function, environment),
            typing_error=None,
            type_annotation=annotation,
            signature=signature,
            objectmode=objectmode,
            lifted=lifted,
            fndesc=function,
            library=library,
            call_helper=None,
            environment=environment,
            metadata=None,
            reload_init=init,
            referenced_envs=environments,
        )


class _KernelCache(FunctionCache):
    _impl_class = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # numba would first import all that it knows how to compile, which takes longer than loading what is compiled.
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is not None:
                return found
        _announce()
        entrypoints.init_all()
        target_context.refresh()
        return None


def _announce() -> None:
    """Says once per process that a pause is a compilation, not a hang."""
    if not _announced:
        _announced.append(True)
        print(
            "tokenmill: compiling kernels for this machine (once; cached afterwards) ...", file=sys.stderr, flush=True
        )


class Kernel:
    """A function that is compiled, or loaded from the cache, when it is first called.

    There are hundreds of them and a process needs a few, so numba hears of each only when it is called, or when
    another kernel that calls it is compiled.
    """

    def __init__(self, function: Callable[..., Any], *, is_part: bool, vectorize: bool = True) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._is_part = is_part
        self._vectorize = vectorize

    @functools.cached_property
    def _dispatcher(self) -> Any:
        with _making:
            made = self.__dict__.get("_dispatcher")
            return self._make_dispatcher() if made is None else made

    def _make_dispatcher(self) -> Any:
        if self._is_part:
            return numba.njit(nogil=True, forceinline=True, _nrt=False)(self._function)
        # Unless told otherwise, what a part calls is inlined like the part.
        dispatcher = numba.njit(nogil=True, forceinline=False, _nrt=False)(self._function)
        dispatcher._cache = _KernelCache(self._function)
        # Other packages' extensions of numba are for compiling only, see _KernelCache.
        dispatcher._compilation_chain_init_hook = _do_nothing
        dispatcher._compiler.compile = functools.partial(_compile, dispatcher._compiler.compile, self._vectorize)
        return dispatcher

    def __call__(self, *args: Any) -> Any:
        """Runs it."""
        return self._dispatcher(*args)

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of a global that it does not know."""
        return self._dispatcher._numba_type_

    def __reduce__(self) -> str:
        return self.__qualname__  # by name, like any function


_making = threading.RLock()


def _do_nothing() -> None: ...


def _compile(compile_kernel: Callable[..., Any], vectorize: bool, args: Any, return_type: Any) -> Any:
    # numba has no such option for a function; it looks into its configuration when it optimizes one, and compiles one
    # at a time. Kernels that this one calls are compiled in between, and say for themselves.
    before = numba.config.LOOP_VECTORIZE
    numba.config.LOOP_VECTORIZE = int(vectorize)
    try:
        return compile_kernel(args, return_type)
    finally:
        numba.config.LOOP_VECTORIZE = before


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles `function` on first call: no Python objects, releases the GIL, cached on disk.

    It must not allocate arrays. In return there is no reference counting in it: with counting on, every use of an array
    inside a loop is an atomic operation, and the BERT kernel runs at a tenth of its speed.
    """
    return Kernel(function, is_part=False)


def kernel_of_short_loops(function: Callable[..., Any]) -> Any:
    """As `kernel`, for one whose loops take a few rounds at most, of ids of a word or bytes of a part.

    LLVM would vectorize them, and what it does before and behind such a loop takes longer than the loop.
    """
    return Kernel(function, is_part=False, vectorize=False)


def kernel_part(function: Callable[..., Any]) -> Any:
    """Compiles `function` for use inside a `kernel` only, always inlined."""
    return Kernel(function, is_part=True)


@intrinsic
def load_u64(typingctx: Any, array: Any, index: Any) -> Any:
    """Reads eight bytes of a `uint8` array at any alignment, little-endian: `load_u64(data, i) -> uint64`.

    The caller guarantees `i + 8 <= data.size`.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [args[1]])
        return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(array, types.int64), codegen


@intrinsic
def store_u64(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Writes eight bytes into a `uint8` array at any alignment, little-endian: `store_u64(data, i, value)`.

    The caller guarantees `i + 8 <= data.size`.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [args[1]])
        builder.store(args[2], builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), codegen


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Asks for the cache line of `array[index]`, an element of an int64 array or the first of its row; no more."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        stride = cgutils.unpack_tuple(builder, view.strides)[0]
        data = builder.bitcast(view.data, ir.IntType(8).as_pointer())
        address = builder.gep(data, [builder.mul(args[1], stride)])
        i32 = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), i32, i32, i32]),
            "llvm.prefetch.p0i8",
        )
        builder.call(function, [address, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.uint64), codegen


@intrinsic
def unlikely(typingctx: Any, condition: Any) -> Any:
    """Returns a condition, of which the compiler is told to lay out the code for when it is not true."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i1 = ir.IntType(1)
        expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(i1, [i1, i1]), "llvm.expect.i1")
        return builder.call(expect, [args[0], i1(0)])

    return types.boolean(types.boolean), codegen


@intrinsic
def float_of_bits(typingctx: Any, bits: Any) -> Any:
    """Reads the low 32 bits of a uint64 as a number in single precision."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.trunc(args[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.uint64), codegen


@intrinsic
def trailing_zeros(typingctx: Any, value: Any) -> Any:
    """Counts the zero bits below the lowest set bit of a uint64; 64 for zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def leading_zeros(typingctx: Any, value: Any) -> Any:
    """Counts the zero bits above the highest set bit of a uint64; 64 for zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@intrinsic
def count_ones(typingctx: Any, value: Any) -> Any:
    """Counts the set bits of a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen
