# SPDX-License-Identifier: Apache-2.0
"""Functions that kernels call by their address: a kernel is compiled without those that it calls.

A kernel that inlines others is compiled anew for each combination of them. Here a function, say a model, becomes a
`Step`: the address of its code, and that of its own values, say the model's tables. Any loop can call any step of the
right kind, and each is compiled once. A call takes 2 ns longer, so it is for what happens once a batch, or on a miss.

Such a function is a kernel whose first argument is a reference to its own values, and whose tuples among the others are
references too; `fields_of` reads them. `Bound` makes the step in Python, and keeps its values alive: as long as a step
is in use, so must be its `Bound`. No address comes from anywhere else.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tokenmill.tokenizer.compiling.kernel import cgutils, intrinsic, ir, made_kernel, maker, types

_ARRAY_WORDS = 5
"""The words of eight bytes that numba stores for an array, besides two for each of its dimensions."""


class Step(NamedTuple):
    """A function to call by address."""

    code: int
    """The address of its machine code; 0 for no function."""
    own: int
    """The address of its own values."""


NO_STEP = Step(0, 0)


def _caller(returned: Callable[[], Any]) -> Any:
    """Makes the instruction that calls a step whose function returns values of a type."""

    @intrinsic
    def call(typingctx: Any, step: Any, arguments: Any) -> Any:
        """Calls a step: `call(step, (the function's arguments after its own values))`."""
        kinds = types.voidptr, *arguments.types
        result = returned()

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            convention = context.call_conv
            code, own = (builder.extract_value(args[0], k) for k in range(2))
            pointer = convention.get_function_type(result, kinds).as_pointer()
            given = builder.inttoptr(own, ir.IntType(8).as_pointer()), *cgutils.unpack_tuple(builder, args[1])
            status, value = convention.call_function(builder, builder.inttoptr(code, pointer), result, kinds, given)
            with cgutils.if_unlikely(builder, status.is_error):  # with bounds checks
                convention.return_status_propagate(builder, status)
            return value

        return result(step, arguments), codegen

    return call


call_number = _caller(lambda: types.int64)
call_spans = _caller(lambda: types.UniTuple(types.int64, 5))
call_model = _caller(lambda: types.Tuple((types.int64, types.boolean)))
"""Call steps that return int64, five int64, or int64 and a bool."""


@intrinsic
def fields_of(typingctx: Any, reference: Any) -> Any:
    """Returns the values that a reference points to; only those that are used are read, when the function begins."""

    def load(builder: Any, pointer: Any) -> Any:
        kind = pointer.type.pointee
        if not isinstance(kind, ir.LiteralStructType | ir.ArrayType):
            return builder.load(pointer)
        value = ir.Constant(kind, ir.Undefined)
        for k in range(len(kind)):
            field = load(builder, cgutils.gep_inbounds(builder, pointer, 0, k))
            value = builder.insert_value(value, field, k)
        return value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return load(builder, args[0])

    return reference.values(reference), codegen


@intrinsic
def _keep(typingctx: Any, function: Any, own: Any, others: Any, memory: Any) -> Any:
    """Stores a function's own values at the beginning of `memory`; returns the address of its code, 0 for no room."""
    from tokenmill.tokenizer.compiling.numba_compiler import Reference

    kinds = Reference(own), *(Reference(kind) if isinstance(kind, types.BaseTuple) else kind for kind in others)
    function.get_call_type(typingctx, kinds, {})  # compiles it

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = function.dispatcher.overloads[kinds]
        context.active_code_library.add_linking_library(made.library)
        code = builder.ptrtoint(context.declare_function(builder.module, made.fndesc), ir.IntType(64))
        array = context.make_array(signature.args[3])(context, builder, args[3])
        n_bytes = builder.mul(array.nitems, ir.IntType(64)(8))
        has_room = builder.icmp_unsigned(">=", n_bytes, ir.IntType(64)(context.get_abi_sizeof(args[1].type)))
        with builder.if_then(has_room):
            builder.store(args[1], builder.bitcast(array.data, args[1].type.as_pointer()))
        return builder.select(has_room, code, ir.IntType(64)(0))

    return types.int64(function, own, others, memory), codegen


@maker
def _binder(function: Any) -> Any:
    def bind(own, others, memory):  # type: ignore[no-untyped-def]
        """Returns the address of the code of `function`, and fills `memory`, uint64[n], with its own values."""
        return _keep(function, own, others, memory)

    return made_kernel(f"bind_{function.__name__}", bind, function)


class Bound:
    """A function with its own values, ready to be called by address."""

    def __init__(self, function: Any, others: tuple[Any, ...], *own: Any) -> None:
        """Compiles or loads the function, and stores its values.

        Args:
          function: a kernel, see above; others: values of the types of its other arguments.
          own: its own values, numbers, arrays and tuples of these; a `Bound` among them is passed as its step.
        """
        values = tuple(value.step if isinstance(value, Bound) else value for value in own)
        self._kept, self._memory = own, np.zeros(_n_words(values), np.uint64)
        code = _binder(function)(values, others, self._memory)
        if not code:
            raise MemoryError(f"the values of {function.__name__} take more than {self._memory.nbytes} bytes")
        self.step = Step(code, self._memory.ctypes.data)

    def __reduce__(self) -> str:
        raise TypeError("a bound step holds addresses, which mean nothing in another process: bind it there")


def _n_words(values: tuple[Any, ...]) -> int:
    """Returns the words of eight bytes that values take at most."""
    n = 0
    for value in values:
        if isinstance(value, np.ndarray):
            n += _ARRAY_WORDS + 2 * value.ndim
        else:
            n += _n_words(value) if isinstance(value, tuple) else 1
    return n
