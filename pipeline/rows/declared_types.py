# SPDX-License-Identifier: Apache-2.0
"""Types of PCollections: what a step is given and gives, and what it cannot take, as far as types tell."""

import difflib
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import PCollection, PValue, Row
from apache_beam.typehints import typehints
from apache_beam.typehints.native_type_compatibility import convert_to_python_type
from apache_beam.typehints.row_type import RowTypeConstraint

from tokenmill.pipeline.rows.elements import are_batches, batches_of, check_new, itself, reader_of

_SCALARS = (str, bytes, int, float, complex, np.generic, type(None))
"""Types of single values; a field that is declared as one of these holds no ids, and only the first can be text."""

_GROUPS = (Sequence, AbstractSet, np.ndarray, pa.Array)
"""Types of many values; an element or a text is none of these but a string, nor any of `_SCALARS`."""


def declared(step: Any, pcoll: PCollection[Any]) -> PCollection[Any]:
    """Returns the input of a step as the type that `with_input_types` has given to the step, if it has.

    Raises:
      TypeError: if it is several PCollections, or elements of this type are none that a step without a second output
        takes.
    """
    if not isinstance(pcoll, PValue) or pcoll.element_type is PCollection:  # Beam takes some for elements
        raise TypeError(
            f"{type(step).__name__}: it takes one PCollection, got several; take one of them, as in `good, bad = ...`, "
            "or join them by beam.Flatten()"
        )
    hints = step.get_type_hints().input_types
    if hints and hints[0] and hints[0][0] not in (typehints.Any, pcoll.element_type):
        pcoll = pcoll | "Declare" >> beam.Map(itself).with_output_types(hints[0][0])
    kind: Any = pcoll.element_type
    if step._errors is None and _row_of(kind) is None and _is_always(kind, _SCALARS + _GROUPS, but=str):
        pair = "lambda key, text: beam.Row(key=key, text=text)"
        hint = f"beam.MapTuple({pair}) makes rows of key-value pairs" if _is_always(kind, (tuple,)) else "convert them"
        hint = "beam.FlatMap(list) takes them out of lists" if _is_always(kind, (list,)) else hint
        raise TypeError(
            f"{type(step).__name__}: elements are strings, dicts, rows or Arrow batches, but these are declared as "
            f"{_shown(kind)}; {hint}"
        )
    return pcoll


def declared_output(step: Any, made: Any) -> tuple[Any, Callable[[Any], Any] | None]:
    """Returns the type of a step's results, and what makes such of them if `with_output_types` has given another type.

    Args:
      step: the step.
      made: the type of the rows, dicts or batches that it makes.

    Raises:
      ValueError: if the given type is one of rows, and has other fields.
    """
    hints = step.get_type_hints().output_types
    kind: Any = hints[0][0] if hints and hints[0] else typehints.Any
    is_row = isinstance(kind, RowTypeConstraint)
    wanted = _row_of(kind)
    are_rows = made is typehints.Any or _is_dict(made) or isinstance(made, RowTypeConstraint)
    if kind is pa.Table and (made is typehints.Any or are_batches(made)):
        return kind, _as_table
    if wanted is None or kind == made or not are_rows:  # Beam compares them
        return made, None
    if isinstance(made, RowTypeConstraint) and dict(wanted._fields).keys() != dict(made._fields).keys():
        given, found = (", ".join(name for name, _ in row._fields) for row in (wanted, made))
        raise ValueError(f"{type(step).__name__}: with_output_types has the fields {given}, but the rows have {found}")
    return kind, functools.partial(_made_as, Row if is_row else kind)


def _made_as(kind: Callable[..., object], element: Any) -> object:
    if are_batches(type(element)):
        return element
    fields = reader_of(type(element), "")(element)
    try:
        return kind(**fields)
    except TypeError as error:
        raise TypeError(f"with_output_types: no {kind.__name__} has the fields {', '.join(fields)}: {error}") from None


def _as_table(element: Any) -> pa.Table:
    if batches_of(element) is None:
        raise TypeError(f"with_output_types(pa.Table) is for Arrow batches, got {type(element).__name__}")
    return pa.Table.from_batches(batches_of(element))


def _row_of(kind: Any) -> RowTypeConstraint | None:
    """Returns the type of rows that a type is; of a `namedtuple` without types, on which Beam (2.77) fails, of Any."""
    if isinstance(kind, RowTypeConstraint):
        return kind
    try:
        return RowTypeConstraint.from_user_type(kind)
    except KeyError:
        fields: list[Any] = [(name, typehints.Any) for name in kind._fields]
        return RowTypeConstraint.from_fields(fields)


def _is_dict(kind: Any) -> bool:
    return kind is dict or isinstance(kind, typehints.DictConstraint)


def extended_type(
    element_type: Any, field: str, outputs: Mapping[str, Any], step: str, reads: pa.DataType | None = None
) -> object:
    """Returns the type of what `extend` yields.

    Args:
      element_type: the type of the input elements, as Beam knows it; `Any` where it does not.
      field: the field that the step reads.
      outputs: the types of the new fields.
      step: its name, for messages.
      reads: the type of the column that the field becomes; None: any.

    Raises:
      ValueError: if the elements are known to have no such field, or one of the new ones already.
      TypeError: if the field is known to hold neither text nor ids, as `reads` says.
    """
    if are_batches(element_type):
        return pa.RecordBatch
    if element_type is str:
        _check_kind(str, field, step, reads)
        return RowTypeConstraint.from_fields(list({field: str, **outputs}.items())) if outputs else str
    row = _row_of(element_type)
    if row is None and not _is_dict(element_type):
        return typehints.Any
    if row is None:
        _check_kind(getattr(element_type, "value_type", typehints.Any), field, step, reads)
        return typehints.Dict[str, typehints.Any]
    fields: dict[str, Any] = {name: typehints.Any if _is_misread(kind) else kind for name, kind in row._fields}
    if field not in fields:
        near = difflib.get_close_matches(field, fields, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; name it: column=..." if reads is not None else ""
        raise ValueError(f"{step}: the rows have no field {field!r}, only {', '.join(fields)}{hint}")
    _check_kind(fields[field], field, step, reads)
    try:
        check_new(fields, outputs.keys() - {field})
    except ValueError as error:
        raise ValueError(f"{step}: {error}") from None
    return RowTypeConstraint.from_fields(list({**fields, **outputs}.items())) if outputs else element_type


def _check_kind(kind: Any, field: str, step: str, reads: pa.DataType | None) -> None:
    """Raises TypeError if a field that is declared as `kind` can never be read; arguments as of `extended_type`."""
    if reads is None or pa.types.is_large_binary(reads):
        return
    if pa.types.is_string(reads):
        wanted, is_wrong = "a string", _is_always(kind, _SCALARS + _GROUPS + (dict,), but=str)
    elif pa.types.is_integer(reads):
        wanted, is_wrong = "a number", _is_always(kind, (str, bytes, *_GROUPS))
    else:
        wanted, is_wrong = "a list of numbers", _is_always(kind, _SCALARS)
    if is_wrong:
        raise TypeError(f"{step}: the field {field!r} must be {wanted}, but it is declared as {_shown(kind)}")


def _is_always(kind: Any, of: tuple[type, ...], but: tuple[type, ...] | type = ()) -> bool:
    """Returns whether all values of a declared type are of these types, and none of those of `but`."""
    kind = _as_python(kind)
    origin = typing.get_origin(kind) or kind
    if origin in (typing.Union, types.UnionType):
        return all(_is_always(each, of, but) for each in typing.get_args(kind))
    return isinstance(origin, type) and issubclass(origin, of) and not issubclass(origin, but)


def _as_python(kind: object) -> object:
    return convert_to_python_type(kind) if isinstance(kind, typehints.TypeConstraint) else kind


def _shown(kind: Any) -> str:
    kind = _as_python(kind)
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def _is_misread(kind: Any) -> bool:
    """Returns whether Beam's schemas take another type for that of a field, or of what is in it.

    Of `Union[float, int, None]` and of `tuple[float, str]` they take the first alone: numbers would change, texts fail.
    """
    kind = _as_python(kind)
    inner = typing.get_args(kind)
    members = [each for each in inner if each not in (type(None), ...)]
    are_several = any(each != members[0] for each in members)
    if are_several and (type(None) in inner or typing.get_origin(kind) is tuple):
        return True
    if isinstance(kind, type) and (row := _row_of(kind)) is not None:
        members = [each for _, each in row._fields]
    return any(map(_is_misread, members))


def check_windows_stay(step: str, otherwise: str, windowfn: Any) -> None:
    """Raises ValueError if windows merge as elements come; `otherwise` says what to do then."""
    if windowfn.is_merging():
        raise ValueError(f"{step}: {type(windowfn).__name__} are windows that merge: {otherwise}")


def check_global(pcoll: Any, step: str) -> None:
    """Raises ValueError if a PCollection is in windows or has no end, for a step that has one result for all."""
    if not pcoll.is_bounded:
        raise ValueError(f"{step}: it has one result for all rows, and these are a stream, which has no end")
    windowing = pcoll.windowing
    if not windowing.is_default():
        options = ", ".join(f"{name}={value}" for name, value in sorted(vars(windowing.windowfn).items()))
        raise ValueError(
            f"{step}: the rows are in windows, {type(windowing.windowfn).__name__}({options}) with the trigger "
            f"{windowing.triggerfn}, but it has one result for all; put "
            "beam.WindowInto(beam.window.GlobalWindows()) before it"
        )
