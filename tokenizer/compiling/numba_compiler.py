# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels with numba. Imported only if a kernel is not found compiled.

What needs numba's internals is in `numba_shortcuts`, and makes compiling take half the time. It is tried once; a numba
that it does not fit compiles without it. Compiled kernels are kept by `machine_code`, not by numba.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba.core import entrypoints, types
from numba.core.registry import cpu_target
from numba.extending import models, register_model


class Reference(types.Type):
    """The type of an address of values, on the stack of the kernel that has called `references.refer`."""

    def __init__(self, values: types.Type) -> None:
        self.values = values
        super().__init__(name=f"Reference({values})")


@register_model(Reference)
class _ReferenceModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, manager[kind.values].get_value_type().as_pointer())


def dispatcher(function: Callable[..., Any], *, is_part: bool, vectorize: bool) -> Any:
    """Makes numba's dispatcher for a kernel, or for a part of kernels; see `compiling`."""
    with _configured("DISABLE_JIT", 0):  # kernels are no Python: they have instructions of LLVM
        if _shortcuts_fit():
            return _made(function, is_part, vectorize)
        return numba.njit(nogil=True, _nrt=False, forceinline=is_part)(function)


def compiled(made: Any, arguments: tuple[Any, ...]) -> Any:
    """Compiles a dispatcher's function for the types of the arguments; returns numba's CompileResult."""
    kinds = tuple(made.typeof_pyval(argument) for argument in arguments)
    if kinds not in made.overloads:
        entrypoints.init_all()
        cpu_target.target_context.refresh()
        made.compile(kinds)
    return made.overloads[kinds]


def _made(function: Callable[..., Any], is_part: bool, vectorize: bool) -> Any:
    """Makes a dispatcher that takes the shortcuts."""
    from tokenmill.tokenizer.compiling import numba_shortcuts

    if is_part:
        options = {"forceinline": True, "no_cpython_wrapper": True, "pipeline_class": numba_shortcuts.PartCompiler}
    else:
        # Without `forceinline=False`, a kernel that a part calls would be inlined like the part.
        options = {"forceinline": False, "pipeline_class": numba_shortcuts.KernelCompiler}
    made = numba.njit(nogil=True, _nrt=False, no_cfunc_wrapper=True, **options)(function)
    if not is_part:
        made._compiler.compile = functools.partial(_compile, made._compiler.compile, vectorize)
    return made


@functools.cache
def _shortcuts_fit() -> bool:
    """Compiles a kernel of a part with the shortcuts; returns whether they fit this version of numba. Says if not."""
    try:
        part = _made(_next, True, False)

        def two_more(values: Any) -> int:
            values[0] = part(part(values[0]))
            return int(values[0])

        values = np.zeros(1, np.int64)
        found = compiled(_made(two_more, False, False), (values,)).entry_point(values)
        if found == values[0] == 2:
            return True
        problem: object = f"found {found}"
    except Exception as error:  # whatever internals raise that have changed
        problem = f"{type(error).__name__}: {error}"
    if sys.stderr is not None:
        line = (str(problem).splitlines() or [""])[0]
        print(
            f"tokenmill: numba {numba.__version__} is new to this version, and compiles kernels in more time ({line})",
            file=sys.stderr,
        )
    return False


def _next(number: int) -> int:
    return number + 1


def _compile(compile_kernel: Callable[..., Any], vectorize: bool, args: Any, return_type: Any) -> Any:
    # numba has no such option for a single function; it reads its configuration when it optimizes one, and compiles one
    # at a time. Kernels that this one calls are compiled in between, with their own setting.
    with _configured("LOOP_VECTORIZE", int(vectorize)):
        return compile_kernel(args, return_type)


@contextlib.contextmanager
def _configured(name: str, value: int) -> Iterator[None]:
    """Sets one of numba's settings while the block runs."""
    before = getattr(numba.config, name, None)
    setattr(numba.config, name, value)
    try:
        yield
    finally:
        setattr(numba.config, name, before)
