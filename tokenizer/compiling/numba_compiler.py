# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels with numba. Imported only if a kernel is not found compiled.

What needs numba's internals to save time is in `numba_shortcuts`, and makes compiling take half the time. It is tried
once; a numba that it does not fit compiles without it. Compiled kernels are kept by `machine_code`, not by numba.
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

from tokenmill.tokenizer.compiling import entries


class Reference(types.Type):
    """The type of an address of values, on the stack of the kernel that has called `references.refer`."""

    def __init__(self, values: types.Type) -> None:
        self.values = values
        super().__init__(name=f"Reference({values})")


@register_model(Reference)
class _ReferenceModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, manager[kind.values].get_value_type().as_pointer())


def dispatcher(function: Callable[..., Any], *, is_part: bool) -> Any:
    """Makes numba's dispatcher for a kernel, or for a part of kernels; see `compiling`."""
    with _configured("DISABLE_JIT", 0):  # kernels are no Python: they have instructions of LLVM
        if _shortcuts_fit():
            return _made(function, is_part)
        return numba.njit(nogil=True, _nrt=False, forceinline=is_part)(function)


def compiled(made: Any, kinds: tuple[Any, ...], name: str, *, vectorize: bool) -> Any:
    """Compiles a dispatcher's function for numba's types of its arguments.

    Returns:
      Library of numba's, with the machine code of a function of this name that Python can call; see `entries`.
    """
    if kinds not in made.overloads:
        entrypoints.init_all()
        cpu_target.target_context.refresh()
        made.compile(kinds)
    # numba has no such option for a single function; it reads its configuration when it optimizes one.
    with _configured("LOOP_VECTORIZE", int(vectorize)):
        return entries.compiled(made.overloads[kinds], name)


def types_of(made: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns numba's types of arguments."""
    return tuple(made.typeof_pyval(argument) for argument in arguments)


def _made(function: Callable[..., Any], is_part: bool) -> Any:
    """Makes a dispatcher that takes the shortcuts."""
    from tokenmill.tokenizer.compiling import numba_shortcuts

    # Without `forceinline=False`, a kernel that a part calls would be inlined like the part.
    options = {"forceinline": is_part, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(nogil=True, _nrt=False, pipeline_class=numba_shortcuts.ShortCompiler, **options)(function)


@functools.cache
def _shortcuts_fit() -> bool:
    """Compiles a kernel of a part with the shortcuts; returns whether they fit this version of numba. Says if not."""
    try:
        part = _made(_next, True)

        def two_more(values: Any) -> int:
            values[0] = part(part(values[0]))
            return int(values[0])

        made = _made(two_more, False)
        library = compiled(made, types_of(made, (np.zeros(1, np.int64),)), "two_more", vectorize=False)
        if library.get_pointer_to_function("two_more"):
            return True
        problem: object = "no machine code"
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


@contextlib.contextmanager
def _configured(name: str, value: int) -> Iterator[None]:
    """Sets one of numba's settings while the block runs."""
    before = getattr(numba.config, name, None)
    setattr(numba.config, name, value)
    try:
        yield
    finally:
        setattr(numba.config, name, before)
