# SPDX-License-Identifier: Apache-2.0
"""The `kernel` decorator: machine code from the wheel's library, from the cache on disk, or from numba."""

import functools
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llvmlite import ir

from tokenmill.tokenizer.compiling import kernel_files, library, machine_code
from tokenmill.tokenizer.compiling.waiting import waiting


class Kernel:
    """A function that is compiled, or loaded, when it is first called.

    There are hundreds of kernels, and a process needs a few; so numba sees a kernel only when it is compiled, or when
    another one that calls it is.
    """

    def __init__(
        self, function: Callable[..., Any], *, is_part: bool, vectorize: bool = True, name: str = "",
        sources: tuple[Path, ...] = (),
    ) -> None:  # fmt: skip
        """Wraps a function.

        name, sources: for a kernel that is made of parts, its closure: its name, and all files that the parts are in.
        """
        functools.update_wrapper(self, function)
        file = Path(function.__code__.co_filename)
        self._files, self._alone = (sources, file) if sources else ((file,), None)
        if name:
            self.__name__ = self.__qualname__ = name
        self.origin = f"{self.__module__}:{self.__qualname__}"
        """Its module, and in it its name, or the call that makes it."""
        self._function = function
        self._is_part = is_part
        self.vectorize = vectorize
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        """Runs it."""
        return self._run(machine_code.signature(args), args)

    def bound(self, *first: Any) -> "BoundKernel":
        """Returns this kernel with its first arguments bound, so that the kinds of these are found only once."""
        return BoundKernel(self, first)

    def _run(self, kinds: tuple[Any, ...] | None, args: tuple[Any, ...]) -> Any:
        run = self._compiled.get(kinds)
        if run is None:
            run = self._make(kinds, args)
        return run(*args)

    def _make(self, kinds: tuple[Any, ...] | None, args: tuple[Any, ...]) -> Callable[..., Any]:
        """Loads or compiles the code for these arguments; keeps it for others of the same kinds."""
        if self._is_part:
            raise TypeError(f"{self.origin} is a part of kernels, with no code of its own")
        if kinds is None:
            raise TypeError(f"kernel {self.origin} is given what is no array, number or tuple of these: {args!r:.200}")
        row = machine_code.row(self.origin, kinds)
        used.add(row)
        settings = kernel_files.numba_settings()
        if not settings and (found := library.load(row)) is not None:
            return self._compiled.setdefault(kinds, found)
        directory = kernel_files.cache_directory(*self._files, alone=self._alone)
        path = machine_code.path_of(directory, row, self.vectorize, settings)
        if (found := self._load(path, kinds)) is not None:
            return found
        # If another process is compiling this kernel, only this call waits, and then loads what that has made.
        with machine_code.making(path), _making:
            return self._load(path, kinds) or self._compile(path, row, kinds, args)

    def _load(self, path: Path, kinds: Any) -> Callable[..., Any] | None:
        with _making:
            found = self._compiled.get(kinds) or machine_code.load(path)
            return None if found is None else self._compiled.setdefault(kinds, found)

    def _compile(self, path: Path, row: str, kinds: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
        asked = " and ".join(kernel_files.numba_settings())
        for_what = f"with {asked}" if asked else "for this machine"
        with waiting.wait(f"compiling kernels {for_what} (once; cached afterwards) ..."):
            from tokenmill.tokenizer.compiling import numba_compiler

            types = numba_compiler.types_of(self.dispatcher, args)
            code = numba_compiler.compiled(self.dispatcher, types, library.symbol(row), vectorize=self.vectorize)
        if machine_code.save(path, code):
            saved.append(path)
        return self._compiled.setdefault(
            kinds, library.function_at(code.get_pointer_to_function(code.name), self.origin)
        )

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What numba makes of the function."""
        from tokenmill.tokenizer.compiling import numba_compiler

        with _making:
            made = self.__dict__.get("dispatcher")
            return numba_compiler.dispatcher(self._function, is_part=self._is_part) if made is None else made

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of a global that it does not know."""
        return self.dispatcher._numba_type_

    def __reduce__(self) -> str:
        return self.__qualname__  # by name, like any function


class BoundKernel:
    """A kernel whose first arguments are bound."""

    def __init__(self, kernel: Kernel, first: tuple[Any, ...]) -> None:
        self._kernel, self._first = kernel, first
        self._kinds = machine_code.signature(first)

    def __call__(self, *others: Any) -> Any:
        """Runs it with its bound arguments and `others`."""
        kinds = machine_code.signature(others)
        known = self._kinds is not None and kinds is not None
        return self._kernel._run(self._kinds + kinds if known else None, (*self._first, *others))  # type: ignore[operator]

    def prepared(self, *others: Any) -> Callable[[], Any]:
        """Returns a call with these arguments; their kinds are looked at now, and not in every call.

        Raises:
          TypeError: if one is of an unknown kind.
        """
        args = (*self._first, *others)
        kinds = machine_code.signature(args)
        if kinds is None:
            raise TypeError(f"a call of {self._kernel.__name__} cannot be prepared: an argument is of an unknown kind")
        return functools.partial(self._kernel._compiled.get(kinds) or self._kernel._make(kinds, args), *args)


class _Intrinsic:
    """LLVM instructions for kernels; numba sees them only when a kernel that uses them is compiled."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    @functools.cached_property
    def _numba_type_(self) -> Any:
        """What numba asks of a global that it does not know."""
        from numba.core.typing.templates import make_intrinsic_template

        return types.Function(make_intrinsic_template(self, self._function, self.__name__, kwargs={}))


types: Any = machine_code.Later("numba.core.types")
cgutils: Any = machine_code.Later("numba.core.cgutils")
"""Numba's modules, for the code of intrinsics."""
_making = threading.RLock()
saved: list[Path] = []
"""The files of the kernels that this process has compiled."""
used: set[str] = set()
"""The kernels that this process has loaded or compiled, as `machine_code.row` describes them."""


def intrinsic(function: Callable[..., Any]) -> Any:
    """Does what numba's decorator of this name does: `function` generates the LLVM code that replaces a call."""
    return _Intrinsic(function)


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles `function` on first call: no Python objects, releases the GIL, cached on disk.

    It must not allocate arrays, so that it needs no reference counting: with that, every use of an array inside a loop
    is an atomic operation, and the BERT kernel runs at a tenth of its speed.
    """
    return Kernel(function, is_part=False)


def kernel_of_short_loops(function: Callable[..., Any]) -> Any:
    """Does what `kernel` does, without vectorizing loops: for loops of a few rounds, such as over the ids of a word.

    The code that LLVM puts before and after a vectorized loop would take longer than such a loop.
    """
    return Kernel(function, is_part=False, vectorize=False)


def made_kernel(name: str, function: Callable[..., Any], *parts: Any) -> Any:
    """Makes a kernel of a function inside another one, a `maker`, whose variables it uses, under the given name.

    parts: the kernels and parts among these variables; they tell which files its code is in.
    """
    sources = tuple(dict.fromkeys(Path(part.__wrapped__.__code__.co_filename) for part in parts))
    return Kernel(function, is_part=False, vectorize=False, name=name, sources=sources)


def maker(make: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a function that returns a `made_kernel` make it once for the same arguments, which are kernels.

    The kernel is known by this call, in which each is the literal of its `origin`; so a library can be built of it.
    """
    kernels: dict[str, Any] = {}
    signature = inspect.signature(make)

    @functools.wraps(make)
    def cached(*args: Any, **options: Any) -> Any:
        asked = signature.bind(*args, **options)
        asked.apply_defaults()
        call = ", ".join(f"{name}={value.origin!r}" for name, value in asked.arguments.items())
        if call not in kernels:
            made = make(*args, **options)
            made.origin = f"{make.__module__}:{make.__qualname__}({call})"
            kernels[call] = made
        return kernels[call]

    return cached


def kernel_part(function: Callable[..., Any]) -> Any:
    """Compiles `function` for use inside kernels only, always inlined."""
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
def unlikely(typingctx: Any, condition: Any) -> Any:
    """Returns the condition, and tells the compiler to lay out the code for the case that it is false."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i1 = ir.IntType(1)
        expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(i1, [i1, i1]), "llvm.expect.i1")
        return builder.call(expect, [args[0], i1(0)])

    return types.boolean(types.boolean), codegen


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
