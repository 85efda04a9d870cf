# SPDX-License-Identifier: Apache-2.0
"""The function of a kernel that Python calls: it reads its arguments by itself, and needs nothing of numba's.

In: what numba has compiled for some types. Out: a library of numba's with one function that others see,
`PyObject *entry(PyObject *raise, PyObject *const *arguments, Py_ssize_t n)`, in the convention of `METH_FASTCALL`.

It calls public functions of Python's C API only, and reads numpy arrays where their struct, which is public and has not
changed since numpy 1.7, says so. So the same machine code runs on every Python that we support and beside any numba,
or none. It trusts the types of its arguments: `machine_code.signature` has looked at them.
"""

import itertools
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.np.arrayobj import make_array, populate_array

_I32, _I64, _OBJECT = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
_DATA, _SHAPE, _STRIDES = 16, 32, 40
"""Where the struct of an array has its address and the addresses of its shape and strides."""


class _Library(JITCodeLibrary):
    """A library in which only the function that it is named after is seen from outside.

    Each process of numba's counts functions anew, so others may have the names of those of another kernel.
    """

    def _optimize_final_module(self) -> None:
        for value in itertools.chain(self._final_module.functions, self._final_module.global_variables):
            if not value.is_declaration and value.name != self.name:
                value.linkage = "internal"
        super()._optimize_final_module()


@global_compiler_lock
def compiled(result: Any, name: str) -> Any:
    """Makes machine code of a numba CompileResult, with an entry of a name; returns a library of numba's.

    Raises:
      NotImplementedError: for an argument or a result of another type than numbers, arrays and tuples of these.
    """
    library = _Library(result.target_context.codegen(), name)
    library.enable_object_caching()
    library.add_linking_library(result.library)
    library.add_ir_module(_module(library, result.target_context, result.fndesc, name))
    library.finalize()
    return library


def _module(library: Any, context: Any, function: Any, name: str) -> ir.Module:
    """Returns the entry as a module of its own."""
    module = library.create_ir_module(name)
    entry = ir.Function(module, ir.FunctionType(_OBJECT, [_OBJECT, _OBJECT.as_pointer(), _I64]), name)
    builder = ir.IRBuilder(entry.append_basic_block())
    to_raise, arguments, _ = entry.args
    values = [
        _read(context, builder, kind, builder.load(builder.gep(arguments, [_I64(i)])))
        for i, kind in enumerate(function.argtypes)
    ]
    thread = _call(builder, "PyEval_SaveThread", _OBJECT)
    # Else the kernel would be there twice: pasted into its entry, and for others that call it.
    status, value = context.call_conv.call_function(
        builder, context.declare_function(module, function), function.restype, function.argtypes, values,
        attrs=("noinline",),
    )  # fmt: skip
    _call(builder, "PyEval_RestoreThread", ir.VoidType(), thread)
    with builder.if_then(status.is_error, likely=False):
        what = builder.load(status.excinfoptr)  # bytes that numba has pickled, and how many
        pickled, size = (builder.extract_value(what, i) for i in (0, 1))
        pickled = _call(builder, "PyBytes_FromStringAndSize", _OBJECT, pickled, builder.sext(size, _I64))
        _call(builder, "PyObject_CallOneArg", _OBJECT, to_raise, pickled)
        _call(builder, "Py_DecRef", ir.VoidType(), pickled)
        builder.ret(_OBJECT(None))
    builder.ret(_object(context, builder, function.restype, value))
    return module


def _call(builder: ir.IRBuilder, name: str, kind: ir.Type, *arguments: ir.Value) -> ir.Value:
    """Calls a function of Python."""
    signature = ir.FunctionType(kind, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


def _read(context: Any, builder: ir.IRBuilder, kind: Any, given: ir.Value) -> ir.Value:
    """Returns a Python object as a value of numba's."""
    if isinstance(kind, types.Array):
        return _array(context, builder, kind, given)
    if isinstance(kind, types.BaseTuple):
        items = (_call(builder, "PyTuple_GetItem", _OBJECT, given, _I64(i)) for i in range(len(kind)))
        values = [_read(context, builder, of, item) for of, item in zip(kind.types, items, strict=True)]
        return context.make_tuple(builder, kind, values)
    if isinstance(kind, types.Boolean):
        return builder.icmp_signed("!=", _call(builder, "PyObject_IsTrue", _I32, given), _I32(0))
    if isinstance(kind, types.Integer):  # any object that Python takes for an index
        number = _call(builder, "PyLong_AsUnsignedLongLongMask", _I64, given)
        return number if kind.bitwidth == 64 else builder.trunc(number, ir.IntType(kind.bitwidth))
    if kind == types.float64:
        return _call(builder, "PyFloat_AsDouble", ir.DoubleType(), given)
    if kind == types.none:
        return context.get_dummy_value()
    raise NotImplementedError(f"a kernel is given {kind}")


def _array(context: Any, builder: ir.IRBuilder, kind: Any, given: ir.Value) -> ir.Value:
    """Returns numba's struct for an array of numpy's, which must live as long as the call."""

    def field(at: int, of: ir.Type) -> ir.Value:
        return builder.load(builder.bitcast(builder.gep(given, [_I64(at)]), of.as_pointer()))

    sizes = []
    for at in (_SHAPE, _STRIDES):
        first = field(at, _I64.as_pointer()) if kind.ndim else None
        sizes.append([builder.load(builder.gep(first, [_I64(i)])) for i in range(kind.ndim)])
    values = make_array(kind)(context, builder)
    data = field(_DATA, context.get_data_type(kind.dtype).as_pointer())
    itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    populate_array(values, data=data, shape=sizes[0], strides=sizes[1], itemsize=itemsize, meminfo=None)
    return values._getvalue()


def _object(context: Any, builder: ir.IRBuilder, kind: Any, value: ir.Value) -> ir.Value:
    """Returns a value of numba's as a new Python object."""
    if isinstance(kind, types.BaseTuple) and not isinstance(kind, types.BaseNamedTuple):
        made = _call(builder, "PyTuple_New", _OBJECT, _I64(len(kind)))
        for i, of in enumerate(kind.types):
            item = _object(context, builder, of, builder.extract_value(value, i))
            _call(builder, "PyTuple_SetItem", _I32, made, _I64(i), item)
        return made
    if isinstance(kind, types.Boolean):
        return _call(builder, "PyBool_FromLong", _OBJECT, builder.zext(value, _I64))
    if isinstance(kind, types.Integer):
        widened = (builder.sext if kind.signed else builder.zext)(value, _I64) if kind.bitwidth < 64 else value
        return _call(builder, f"PyLong_From{'' if kind.signed else 'Unsigned'}LongLong", _OBJECT, widened)
    if kind == types.float64:
        return _call(builder, "PyFloat_FromDouble", _OBJECT, value)
    if kind == types.none:
        none = cgutils.add_global_variable(builder.module, _OBJECT.pointee, "_Py_NoneStruct")
        _call(builder, "Py_IncRef", ir.VoidType(), none)
        return none
    raise NotImplementedError(f"a kernel returns {kind}")
