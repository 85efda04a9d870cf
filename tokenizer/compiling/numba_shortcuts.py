# SPDX-License-Identifier: Apache-2.0
"""What makes numba compile kernels in less time, by its internals; `numba_compiler` tries whether they are there.

It does not change what is compiled: passes for features that no kernel uses are left out, parts become no machine code,
and numba does not find out again for every call what the types of a builtin are.
"""

import sys
from typing import Any

import numpy as np
from numba import _dynfunc
from numba.core import typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_machinery import PassManager
from numba.core.typing.typeof import typeof_impl
from numba.np import numpy_support


class _PartLibrary(JITCodeLibrary):
    """The code of a function before it has an entry: neither optimized nor made machine code.

    Kernels inline most of it, and are optimized with all that they inline. Doing it for each part, too, would take a
    fifth more (quickstart: 23.7 instead of 18.7 s), and machine code twice the time.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class ShortCompiler(Compiler):
    """numba's compiler as far as kernels and parts need it, without a function that Python can call: see `entries`."""

    def define_pipelines(self) -> list[PassManager]:
        """Returns numba's passes, except for closures, array expressions, `with`, generators and inlined numba.

        These take a tenth of the time.
        """
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


_typeof_any_array = typeof_impl.dispatch(np.ndarray)


@typeof_impl.register(np.ndarray)
def _typeof_array(array: Any, context: Any) -> types.Type:
    """Does what numba's own does, without importing `numpy.ma`: unless that is loaded, no array can be masked."""
    if "numpy.ma" in sys.modules:
        return _typeof_any_array(array, context)
    layout = numpy_support.map_layout(array)
    return types.Array(numpy_support.from_dtype(array.dtype), array.ndim, layout, readonly=not array.flags.writeable)


_resolve = types.BaseFunction.get_call_type
_resolved: dict[Any, Any] = {}


def _call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """Returns the signature of a call of a builtin, cached; numba itself tries all overloads of `+` for every `+`."""
    if kws:
        return _resolve(function, context, args, kws)
    key = function, context, tuple(args)
    if key not in _resolved:
        _resolved[key] = _resolve(function, context, args, kws)
    return _resolved[key]


types.BaseFunction.get_call_type = _call_type
