# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels with numba. Imported only if a kernel is not found compiled.

numba's own cache is kept where `kernel_files` says; its docstring says why.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import binding
from numba import _dynfunc
from numba.core import entrypoints, typed_passes, types, untyped_passes
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, UserWideCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target
from numba.core.typing.typeof import typeof_impl
from numba.np import numpy_support

from tokenmill.tokenizer.compiling import kernel_files, numba_additions

_announced: list[bool] = []
numba_additions.install()


def dispatcher(function: Callable[..., Any], *, is_part: bool, is_made: bool, vectorize: bool) -> Any:
    """Makes numba's dispatcher for a kernel, or for a part of kernels; see `compiling`.

    is_made: whether it is made of parts, its closure. numba's cache would not know these, and no kernel calls it.
    """
    if is_part:
        options = {"forceinline": True, "no_cpython_wrapper": True, "pipeline_class": _PartCompiler}
    else:
        # Without `forceinline=False`, a kernel that a part calls would be inlined like the part.
        options = {"forceinline": False, "pipeline_class": _KernelCompiler}
    with _configured("DISABLE_JIT", 0):  # kernels are no Python: they have instructions of LLVM
        made = numba.njit(nogil=True, _nrt=False, no_cfunc_wrapper=True, **options)(function)
    if is_part:
        return made
    with _configured("CACHE_LOCATOR_CLASSES", ""):  # no other place is named after all sources
        made._cache = NullCache() if is_made else _KernelCache(function)
    # Loading needs no extensions of numba from other packages, see _KernelCache.
    made._compilation_chain_init_hook = _do_nothing
    made._compiler.compile = functools.partial(_compile, made._compiler.compile, vectorize)
    return made


def compiled(made: Any, arguments: tuple[Any, ...]) -> CompileResult:
    """Loads or compiles a dispatcher's function for the types of the arguments."""
    kinds = tuple(made.typeof_pyval(argument) for argument in arguments)
    made.compile(kinds)
    return made.overloads[kinds]


class _KernelCompiler(Compiler):
    """numba's compiler without the passes for features that kernels do not use, which take a tenth of the time."""

    def define_pipelines(self) -> list[PassManager]:
        """Returns numba's passes, except for closures, array expressions, `with`, generators and inlined numba."""
        passes = PassManager("kernel")
        for compiled_by in (
            untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
            untyped_passes.RewriteSemanticConstants, untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites,
            untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis,
            typed_passes.IRLegalization, typed_passes.AnnotateTypes, typed_passes.NativeLowering,
            typed_passes.NoPythonBackend,
        ):  # fmt: skip
            passes.add_pass(compiled_by, compiled_by.__name__)
        passes.finalize()
        return [passes]


class _PartLibrary(JITCodeLibrary):
    """The code of a part, which kernels inline: optimized, but not made machine code, which would double the time."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _PartCompiler(_KernelCompiler):
    """Compiles a part only as far as kernels need it; it cannot be called from Python."""

    def _compile_bytecode(self) -> CompileResult:
        state = self.state
        state.flags.no_compile = True
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        result: CompileResult = super()._compile_bytecode()
        state.library.finalize()
        # numba wants a function here; it uses it only as the name of the part.
        name = _dynfunc.make_function(state.func_id.module, state.func_id.func_name, "", 0, result.environment, ())
        state.targetctx.insert_user_function(name, result.fndesc, [state.library])
        return result._replace(entry_point=name)


class _KernelLocator(UserWideCacheLocator):
    """Puts compiled code into the `kernel_files.cache_directory()` of its file, valid for exactly these sources."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(kernel_files.cache_directory(Path(self._py_file)))

    def ensure_cache_path(self) -> None:
        """Does nothing: the directory is there, or nothing can be kept."""

    def get_source_stamp(self) -> str:
        return kernel_files.sources_digest(Path(self._py_file))


_typeof_any_array = typeof_impl.dispatch(np.ndarray)


@typeof_impl.register(np.ndarray)
def _typeof_array(array: Any, context: Any) -> types.Type:
    """Does what numba's own does, without importing `numpy.ma`: unless that is loaded, no array can be masked."""
    if "numpy.ma" in sys.modules:
        return _typeof_any_array(array, context)
    layout = numpy_support.map_layout(array)
    return types.Array(numpy_support.from_dtype(array.dtype), array.ndim, layout, readonly=not array.flags.writeable)


class _LoadedLibrary(JITCodeLibrary):
    """Compiled code from the cache.

    The cache has machine code, and bitcode for kernels that inline this one. LLVM takes longer to read the bitcode than
    for everything else here, so it is read only when such a kernel is compiled.
    """

    def __init__(self, codegen: Any, serialized: Any, entry_point: str) -> None:
        name, _, (self._machine_code, self._bitcode) = serialized
        super().__init__(codegen, name)
        self.enable_object_caching()
        self._set_compiled_object(self._machine_code)
        self._finalize_final_module()
        codegen._engine._defined_symbols.add(entry_point)

    def serialize_using_object_code(self) -> Any:
        return self.name, "object", (self._machine_code, self._bitcode)

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
        # numba would first import everything that it can compile, which takes longer than loading the compiled code.
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is not None:
                return found
        _announce()
        prepare()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        # What cannot be kept, as on a full disk, is compiled again by the next process.
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


def prepare() -> None:
    """Initializes numba as compiling the first kernel would."""
    entrypoints.init_all()
    cpu_target.target_context.refresh()


def _announce() -> None:
    """Logs once per process that the pause is a compilation, not a hang."""
    if not _announced and sys.stderr is not None:  # else `print` would take stdout
        _announced.append(True)
        asked = " and ".join(kernel_files.numba_settings())
        for_what = f"with {asked}" if asked else "for this machine"
        print(f"tokenmill: compiling kernels {for_what} (once; cached afterwards) ...", file=sys.stderr, flush=True)


def _do_nothing() -> None: ...


def _compile(compile_kernel: Callable[..., Any], vectorize: bool, args: Any, return_type: Any) -> Any:
    # numba has no such option for a single function; it reads its configuration when it optimizes one, and compiles one
    # at a time. Kernels that this one calls are compiled in between, with their own setting.
    with _configured("LOOP_VECTORIZE", int(vectorize)):
        return compile_kernel(args, return_type)


@contextlib.contextmanager
def _configured(name: str, value: int | str) -> Iterator[None]:
    """Sets one of numba's settings while the block runs."""
    before = getattr(numba.config, name, None)
    setattr(numba.config, name, value)
    try:
        yield
    finally:
        setattr(numba.config, name, before)
