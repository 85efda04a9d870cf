# SPDX-License-Identifier: Apache-2.0
"""Elements of PCollections: get a field of one, give one more fields, and say the type of the result."""

import dataclasses
import difflib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from apache_beam.pvalue import Row
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from tokenmill.tokenizer import check_array


def getter_of(element: Any, field: str) -> Callable[[Any], Any]:
    """Returns a function that gets `field` of elements of this one's type; of a string it returns the string."""
    if isinstance(element, str):
        return str
    return operator.itemgetter(field) if isinstance(element, dict) else operator.attrgetter(field)


def column_of(elements: Sequence[Any], field: str, type_: pa.DataType) -> pa.Array:
    """Returns a field of elements of one type as a column.

    Raises:
      TypeError: if values are of another type; bytes, too, are not text.
    """
    get = getter_of(elements[0], field)
    values = [get(each) for each in elements]
    if pa.types.is_string(type_) and bytes in map(type, values):
        raise TypeError(f"the field {field!r} must be a string, got bytes; decode them")
    return pa.array(values, type_)


def batch_column(batch: pa.RecordBatch, field: str, type_: pa.DataType) -> pa.Array:
    """Returns a column of a checked batch: strings as they are, after a dictionary, and other types as `type_`.

    Raises:
      TypeError: if text is wanted and the column holds none.
    """
    column = batch.column(field)
    if not pa.types.is_string(type_):
        return column.cast(type_)
    column = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    if not any(test(column.type) for test in tests):
        raise TypeError(f"the field {field!r} must be a string, got {column.type}; cast it")
    return column


def check_batch(batch: pa.RecordBatch) -> None:
    """Checks a batch from another step, so that nothing reads outside its buffers.

    Raises:
      ValueError: if it is not a valid batch; the message names the column.
    """
    batch.validate()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            check_array(column)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None


def only_row(batch: pa.RecordBatch) -> dict[str, Any]:
    """Returns the row of a batch of one; strings that are not UTF-8 as bytes."""
    row = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = column[0].as_py()
        except UnicodeDecodeError:
            row[name] = column[0].as_buffer().to_pybytes()
    return row


def extend(elements: Sequence[Any], field: str, columns: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """Yields each element with more fields: a dict for a dict, else a `beam.Row`.

    Args:
      elements: all of one type.
      field: the name that a string gets as a field of its row.
      columns: the values of each new field, one per element; of the old fields only `field` may be replaced.

    Raises:
      ValueError: if an element has one of the other fields. TypeError: if a key of a dict is not a string.
    """
    names = tuple(columns)
    new = set(names) - {field}
    readers: dict[type, Callable[[Any], Mapping[str, Any]]] = {}
    for element, values in zip(elements, zip(*columns.values(), strict=True), strict=True):
        kind = type(element)
        read = readers.get(kind)
        if read is None:
            read = readers[kind] = reader_of(kind, field)
        old = read(element)
        if not new.isdisjoint(old):
            check_new(old, new)
        fields = {**old, **dict(zip(names, values, strict=True))}
        if issubclass(kind, dict):
            for key in old:
                if type(key) is not str:
                    raise TypeError(f"the keys of a dict must be strings, got {key!r}; rename this field")
            yield fields
        else:
            row = Row()
            row.__dict__ = fields
            yield row


def check_new(old: Iterable[str], new: Iterable[str]) -> None:
    """Raises ValueError if a field that a step adds is there already."""
    if taken := sorted(set(old) & set(new)):
        raise ValueError(
            f"the rows have a field {taken[0]!r} already, which would be overwritten; drop or rename it, or name the "
            "output of the step otherwise"
        )


def reader_of(kind: type, field: str) -> Callable[[Any], Mapping[str, Any]]:
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
      ValueError: if the elements are known to have no such field, or one of the new ones already.
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
    try:
        check_new(fields, outputs.keys() - {field})
    except ValueError as error:
        raise ValueError(f"{step}: {error}") from None
    return RowTypeConstraint.from_fields(list({**fields, **outputs}.items()))


def check_global(pcoll: Any, step: str) -> None:
    """Raises ValueError if a PCollection is in windows, for a step that has one result for all."""
    if not pcoll.windowing.is_default():
        raise ValueError(f"{step}: the rows are in windows ({pcoll.windowing.windowfn}), but it has one result for all")
