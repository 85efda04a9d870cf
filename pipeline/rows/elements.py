# SPDX-License-Identifier: Apache-2.0
"""Elements of PCollections as columns: read fields of rows or batches, and give rows or batches more of them."""

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
from apache_beam.pvalue import Row

from tokenmill.tokenizer import check_array

Column = Any
"""An Arrow array, or a list of values."""
_Element = TypeVar("_Element")

_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
STRINGS = frozenset(_AS_BYTES)
"""The types of columns of text."""


class Field(NamedTuple):
    """A field that a step reads."""

    name: str
    type: pa.DataType | None
    """A string, or what numbers are cast to; None: the column is a list of values, or that of a batch as it is."""
    is_optional: bool = False
    """Whether elements may lack it, or have null; its type is None then."""

    @property
    def is_text(self) -> bool:
        """Whether its values must be strings."""
        return self.type is not None and pa.types.is_string(self.type)


def getter_of(kind: type, name: str) -> Callable[[Any], Any]:
    """Returns a function that gets a field of elements of a type; of a string it returns the string."""
    if issubclass(kind, str):
        return str.__str__  # an enum of strings has a `__str__` that gives its name
    return operator.itemgetter(name) if issubclass(kind, dict) else operator.attrgetter(name)


def usable(
    elements: Sequence[Any], fields: Sequence[Field]
) -> tuple[list[Column], Sequence[int], dict[int, Exception]]:
    """Reads fields of elements, which may be strings, dicts and rows in any order; whatever else comes is not usable.

    What cannot be used is found by looking at each element, so that a bad one costs little more than a good one.

    Returns:
      The column of each field, of the elements that can be used; the indices of these; the errors of the others.
    """
    good: Sequence[int] = range(len(elements))
    failed: dict[int, Exception] = {}
    while True:
        some = elements if len(good) == len(elements) else [elements[i] for i in good]
        columns, wrong = [], dict[int, Exception]()
        for field in fields:
            column = _read(some, field)
            if isinstance(column, dict):
                wrong = {**column, **wrong}
            else:
                columns.append(column)
        if not wrong:
            return columns, good, dict(sorted(failed.items()))
        failed |= {good[i]: error for i, error in wrong.items()}
        good = [each for i, each in enumerate(good) if i not in wrong]


def _read(elements: Sequence[Any], field: Field) -> Column | dict[int, Exception]:
    """Returns a field of elements as a column, or the errors of those that cannot be used."""
    kinds = set(map(type, elements))
    if len(kinds) == 1 and not field.is_optional:  # as nearly always
        with contextlib.suppress(Exception):
            values = list(map(getter_of(kinds.pop(), field.name), elements))
            kinds = set(map(type, values))
            if kinds == {str} or not (field.is_text or type(None) in kinds):
                return _column_of(values, field.type)
    values, failed = [], {}
    for i, element in enumerate(elements):
        try:
            values.append(_value_of(element, field))
        except Exception as error:
            failed[i] = error.with_traceback(None)
    if failed:
        return failed
    with contextlib.suppress(pa.ArrowException, UnicodeError, ValueError, TypeError, OverflowError):
        return _column_of(values, field.type)
    # Not where that error is caught: it would be the context of each of these, which take long to format then.
    failed = {i: wrong for i, value in enumerate(values) if (wrong := _error_of(value, field)) is not None}
    # If each fits, Arrow may find no type for all of them before it is told one.
    return failed or pa.concat_arrays([_column_of([value], field.type) for value in values])


def _value_of(element: Any, field: Field) -> object:
    kind = type(element)
    try:
        value = getter_of(kind, field.name)(element)
    except (AttributeError, KeyError) as error:
        if field.is_optional:
            return None
        names = ""
        with contextlib.suppress(Exception):
            names = f", only {', '.join(map(repr, reader_of(kind, field.name)(element)))}"
        what = "elements are strings, dicts, rows or Arrow batches"
        raise type(error)(f"{kind.__name__} has no field {field.name!r}{names}; {what}") from None
    if value is None and not field.is_optional:
        raise ValueError(f"the field {field.name!r} is null")
    if field.is_text and not isinstance(value, str):
        raise TypeError(f"the field {field.name!r} must be a string, got {value!r:.80}; decode or cast it")
    return value


def _column_of(values: list[Any], type_: pa.DataType | None) -> Column:
    if type_ is None:
        return values
    if pa.types.is_string(type_):
        return pa.array(values, type_)
    # Told the type, Arrow (25) would cut fractions in lists off, and take bytes for lists of numbers; and a cast takes
    # texts for numbers.
    column = pa.array(values)
    of = column.type.value_type if hasattr(column.type, "value_type") else column.type
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    if not pa.types.is_large_binary(type_) and not any(test(of) for test in tests):
        raise TypeError(f"numbers are needed, got values of the type {of}")
    return column.cast(type_)


def _error_of(value: Any, field: Field) -> Exception | None:
    """Returns why a value cannot be in a column, None if it can."""
    try:
        if field.is_text:  # a column of one value takes ten times as long
            value.encode()
        else:
            _column_of([value], field.type)
    except Exception as error:
        return error.with_traceback(None)
    return None


def unusable_rows(batch: pa.RecordBatch, fields: Sequence[Field]) -> dict[int, Exception]:
    """Returns, by row, why rows of a checked batch cannot be used: nulls, and text that is not UTF-8."""
    wrong: dict[int, Exception] = {}
    for name, _, is_optional in fields:
        if name not in batch.schema.names or is_optional:
            continue
        column = _decoded(batch.column(name))
        for i in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            wrong.setdefault(i, ValueError(f"the field {name!r} is null"))
        for i, data in enumerate(column.view(_AS_BYTES[column.type]).to_pylist() if column.type in STRINGS else ()):
            try:
                _ = data is not None and data.decode()
            except UnicodeDecodeError as error:
                what = f"{error.reason} 0x{data[error.start]:02x} at byte {error.start} of it"
                wrong.setdefault(i, ValueError(f"the field {name!r} is not UTF-8: {what}"))
    return wrong


def batch_column(batch: pa.RecordBatch, field: Field) -> pa.Array:
    """Returns a column of a checked batch: strings as they are, after a dictionary, others as their field has it.

    Raises:
      KeyError: if there is no such column. TypeError: if text is wanted and the column holds none.
      ValueError: if a value is null.
    """
    if field.name not in batch.schema.names:
        if field.is_optional:
            return pa.nulls(batch.num_rows)
        raise KeyError(f"the batch has no field {field.name!r}, only {', '.join(map(repr, batch.schema.names))}")
    column = _decoded(batch.column(field.name))
    if column.null_count and not field.is_optional:
        raise ValueError(f"the field {field.name!r} is null")
    if field.type is None:
        return column
    if not field.is_text:
        if hasattr(column, "value_lengths"):
            # `cast` of Arrow (25) looks at values before and behind a slice, and makes lists of other rows of views.
            ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy(), dtype=np.int64)
            offsets = pa.array(np.concatenate(([0], ends)))
            column = pa.LargeListArray.from_arrays(offsets, column.flatten(), mask=column.is_null())
        return column.cast(field.type)
    if column.type not in STRINGS and not pa.types.is_null(column.type):
        raise TypeError(f"the field {field.name!r} must be a string, got {column.type}; cast it")
    return column


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def check_batch(batch: pa.RecordBatch) -> None:
    """Checks a batch from another step, so that nothing reads outside its buffers.

    Raises:
      ValueError: if it is not a valid batch; the message names the column.
    """
    batch.validate()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if isinstance(column, pa.DictionaryArray) and column.type.value_type in STRINGS:
            # As for columns of text, it is known of each row whether it is UTF-8, not of all.
            values = column.dictionary.view(_AS_BYTES[column.type.value_type])
            column = pa.DictionaryArray.from_arrays(column.indices, values, safe=False)
        try:
            check_array(column)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None


def with_columns(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Returns a batch with columns added or replaced; its other fields, and all metadata, stay as they are."""
    for name, column in columns.items():
        i = batch.schema.get_field_index(name)
        if i < 0:
            batch = batch.append_column(name, column)
        else:
            batch = batch.set_column(i, batch.schema.field(i).with_type(column.type), column)
    return batch


def take_rows(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    """Returns rows of a batch, int64[n], in any order and number."""
    if rows.size == batch.num_rows and (rows == np.arange(rows.size)).all():
        return batch
    try:
        return batch.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # Arrow (25) has no `take` for views of strings
        return pa.concat_batches([batch.slice(0, 0), *(batch.slice(i, 1) for i in rows.tolist())])


def only_row(batch: pa.RecordBatch) -> dict[str, Any]:
    """Returns the row of a batch of one; strings that are not UTF-8 as bytes.

    What Python cannot hold, such as a time after the year 9999, stays in a batch of its own.
    """
    row = {}
    for name, column in zip(batch.schema.names, map(_decoded, batch.columns), strict=True):
        try:
            row[name] = column[0].as_py()
        except Exception:
            is_text = column.type in STRINGS
            row[name] = column[0].as_buffer().to_pybytes() if is_text else pa.record_batch({name: column})
    return row


def extend(elements: Sequence[Any], field: str, columns: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """Yields each element with more fields: a dict for a dict, else a `beam.Row`; or the error, if it cannot have them.

    An error is a ValueError if the element has one of the other fields, a TypeError if a key of a dict is no string.

    Args:
      elements: of any types that `usable` takes.
      field: the name that a string gets as a field of its row.
      columns: the values of each new field, one per element; of the old fields only `field` may be replaced.
    """
    names = tuple(columns)
    new = set(names) - {field}
    readers: dict[type, Callable[[Any], Mapping[str, Any]]] = {}
    for element, values in zip(elements, zip(*columns.values(), strict=True), strict=True):
        kind = type(element)
        read = readers.get(kind)
        if read is None:
            read = readers[kind] = reader_of(kind, field)
        try:
            old = read(element)
        except AttributeError:
            what = "is no dict, beam.Row, NamedTuple or dataclass, whose fields are known"
            yield AttributeError(f"{kind.__name__} {what}")
            continue
        if not new.isdisjoint(old):
            yield _taken(old, new)
            continue
        fields = {**old, **dict(zip(names, values, strict=True))}
        if issubclass(kind, dict):
            wrong = [key for key in old if type(key) is not str]
            message = "the keys of a dict must be strings, got {!r}; rename this field"
            yield TypeError(message.format(wrong[0])) if wrong else fields
        else:
            row = Row()
            row.__dict__ = fields
            yield row


def check_new(old: Iterable[str], new: Iterable[str]) -> None:
    """Raises ValueError if a field that a step adds is there already."""
    if not set(new).isdisjoint(old):
        raise _taken(old, new)


def _taken(old: Iterable[str], new: Iterable[str]) -> ValueError:
    return ValueError(
        f"the rows have a field {min(set(old) & set(new))!r} already, which would be overwritten; drop or rename it, "
        "or name the output of the step otherwise"
    )


def reader_of(kind: type, field: str) -> Callable[[Any], Mapping[str, Any]]:
    """Returns a function that maps an element of this type to its fields by name."""
    if issubclass(kind, dict):
        return itself
    if issubclass(kind, str):
        return lambda element: {field: element}
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
        return lambda element: {name: getattr(element, name) for name in names}
    return vars if issubclass(kind, Row) else operator.methodcaller("_asdict")


def itself(element: _Element) -> _Element:
    """Returns its argument."""
    return element


def are_batches(element_type: Any) -> bool:
    """Returns whether a PCollection with this element type holds Arrow batches or tables instead of rows."""
    return element_type is pa.RecordBatch or element_type is pa.Table


def batches_of(element: Any) -> Sequence[pa.RecordBatch] | None:
    """Returns the Arrow batches of an element, in order: of a table those that it is made of; None of a row."""
    if isinstance(element, pa.Table):
        return cast(Sequence[pa.RecordBatch], element.to_batches())
    return (element,) if isinstance(element, pa.RecordBatch) else None


def n_rows(element: Any) -> int:
    """Returns how many rows an element is."""
    return element.num_rows if are_batches(type(element)) else 1
