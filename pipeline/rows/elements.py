# SPDX-License-Identifier: Apache-2.0
"""Elements of PCollections: get a field of one, give one more fields, and say the type of the result."""

import dataclasses
import difflib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from apache_beam.pvalue import Row
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint


def getter_of(element: Any, field: str) -> Callable[[Any], Any]:
    """Returns a function that gets `field` of elements of this one's type; of a string it returns the string."""
    if isinstance(element, str):
        return str
    return operator.itemgetter(field) if isinstance(element, dict) else operator.attrgetter(field)


def extend(elements: Sequence[Any], field: str, columns: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """Yields each element with more fields: a dict for a dict, else a `beam.Row`.

    Args:
      elements: all of one type.
      field: the name that a string gets as a field of its row.
      columns: the values of each new field, one per element; an old field of that name is replaced.
    """
    names = tuple(columns)
    readers: dict[type, Callable[[Any], Mapping[str, Any]]] = {}
    for element, values in zip(elements, zip(*columns.values(), strict=True), strict=True):
        kind = type(element)
        read = readers.get(kind)
        if read is None:
            read = readers[kind] = _reader_of(kind, field)
        fields = {**read(element), **dict(zip(names, values, strict=True))}
        if issubclass(kind, dict):
            yield fields
        else:
            row = Row()
            row.__dict__ = fields
            yield row


def _reader_of(kind: type, field: str) -> Callable[[Any], Mapping[str, Any]]:
    """Returns a function that maps an element of this type to its fields by name."""
    if issubclass(kind, dict):
        return _itself
    if issubclass(kind, str):
        return lambda element: {field: element}
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
        return lambda element: {name: getattr(element, name) for name in names}
    return vars if issubclass(kind, Row) else operator.methodcaller("_asdict")


def _itself(element: Any) -> Any:
    return element


def are_batches(element_type: Any) -> bool:
    """Returns whether a PCollection with this element type holds Arrow batches instead of rows."""
    return element_type is pa.RecordBatch


def extended_type(element_type: Any, field: str, outputs: Mapping[str, Any], step: str) -> Any:
    """Returns the type of what `extend` yields.

    Args:
      element_type: the type of the input elements, as Beam knows it; `Any` where it does not.
      field: the field that the step reads.
      outputs: the types of the new fields.
      step: its name, for messages.

    Raises:
      ValueError: if the elements are known to have no such field.
    """
    if are_batches(element_type):
        return pa.RecordBatch
    if element_type is str:
        return RowTypeConstraint.from_fields([(field, str), *outputs.items()])
    is_row = isinstance(element_type, RowTypeConstraint)
    row = element_type if is_row else RowTypeConstraint.from_user_type(element_type)
    if row is None:
        is_dict = element_type is dict or isinstance(element_type, typehints.DictConstraint)
        return typehints.Dict[str, typehints.Any] if is_dict else typehints.Any
    fields = dict(row._fields)
    if field not in fields:
        near = difflib.get_close_matches(field, fields, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{step}: the rows have no field {field!r}, only {', '.join(fields)}{hint}")
    return RowTypeConstraint.from_fields(list({**fields, **outputs}.items()))


def check_global(pcoll: Any, step: str) -> None:
    """Raises ValueError if a PCollection is in windows, for a step that has one result for all."""
    if not pcoll.windowing.is_default():
        raise ValueError(f"{step}: the rows are in windows ({pcoll.windowing.windowfn}), but it has one result for all")
