# SPDX-License-Identifier: Apache-2.0
"""The base class of most steps: gathers elements into a column, computes new columns from it, yields elements again.

Beam's own batches, `process_batch`, hold 4,096 elements, however large these are, and cost 9 µs more per element than
the code here (Beam 2.77): as much as tokenizing two kilobytes.
"""

import collections
import contextlib
import copy
import dataclasses
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import Row
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.windowed_value import WindowedValue

from tokenmill.pipeline.rows import elements as elements_of
from tokenmill.pipeline.transforms import arrow_coder as arrow_coder  # noqa: PLC0414  # registers the coder, here and in every worker

BATCH_CHARACTERS = 250_000
"""A batch is complete with this many characters, or ids: a call then costs little, and data stays in the CPU cache."""

BATCH_ELEMENTS = 4096
"""A batch is complete with this many elements, however short they are."""


class Columns(Protocol):
    """What a step computes: a column of the input in, new columns out."""

    @property
    def reads(self) -> pa.DataType:
        """The type of the input column; ids that are read are cast to it."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The new fields and their types, as Beam's type hints."""

    def prepare(self, given: Any) -> Callable[[pa.Array], "Computed"]:
        """Returns the function that computes the new columns of a batch.

        Args:
          given: the value of the side input; None without one.
        """


@dataclasses.dataclass(frozen=True)
class Computed:
    """New columns, and a way to get their values as Python objects where elements are rows."""

    columns: Mapping[str, pa.Array]
    values: Callable[[str], Any] | None = None
    """Makes the Python values of a column; None: `to_pylist`."""
    rows: np.ndarray | None = None
    """int64[n]: the index of the element that each row comes from; None: row i comes from element i."""

    def values_of(self, name: str) -> Any:
        """Returns the values of a column, a Python object for each row."""
        return self.columns[name].to_pylist() if self.values is None else self.values(name)


@dataclasses.dataclass(frozen=True)
class ErrorHandling:
    """The arguments of `with_exception_handling`."""

    main_tag: str
    dead_letter_tag: str
    exc_class: Any


class RowTransform(beam.PTransform):
    """Gives elements more fields. Each subclass passes to `__init__` the `Columns` that compute them.

    Counters, in the namespace of the subclass: elements-in, elements-failed.
    """

    def __init__(self, columns: Columns, column: str, side_input: Any = None) -> None:
        """Makes a step.

        Args:
          columns: what it computes.
          column: the field that it reads.
          side_input: the side input whose value goes to `columns.prepare`; None: there is none.
        """
        super().__init__()
        self._columns = columns
        self._column = column
        self._side_input = side_input
        self._errors: ErrorHandling | None = None

    def with_exception_handling(
        self, main_tag: str = "good", dead_letter_tag: str = "bad", *, exc_class: Any = Exception
    ) -> "RowTransform":
        """Returns this step with two outputs, as Beam's method of this name does for a DoFn.

        Args:
          main_tag: names the first output.
          dead_letter_tag: names the second: `beam.Row(element, msg, stack)` for each element that cannot be used.
          exc_class: the exceptions that are caught; others end the pipeline.
        """
        handling = copy.copy(self)
        handling._errors = ErrorHandling(main_tag, dead_letter_tag, exc_class)
        return handling

    def display_data(self) -> dict[str, Any]:
        """Returns the field that is read and those that are made."""
        return {"column": self._column, "fields": ", ".join(self._columns.fields)}

    def expand(self, pcoll: Any) -> Any:
        """Adds the step to a pipeline."""
        name = type(self).__name__
        made = elements_of.extended_type(pcoll.element_type, self._column, self._columns.fields, name)
        given = () if self._side_input is None else (self._side_input,)
        kind: type[_ComputeFn] = _BatchFn
        if not elements_of.are_batches(pcoll.element_type):
            kind = _GatherBesideFn if given else _GatherFn
        step = beam.ParDo(kind(self._columns, self._column, type(self), self._errors), *given)
        if self._errors is None:
            return pcoll | name >> step | "Deal" >> beam.Map(_as_it_is).with_output_types(made)
        element_type: Any = typehints.Any if kind is _BatchFn else pcoll.element_type
        letters = RowTypeConstraint.from_fields([("element", element_type), ("msg", str), ("stack", str)])
        main, bad = self._errors.main_tag, self._errors.dead_letter_tag
        outputs = pcoll | name >> step.with_outputs(bad, main="main")
        good = outputs["main"] | "Deal" >> beam.Map(_as_it_is).with_output_types(made)
        failed = outputs[bad] | "DealFailed" >> beam.Map(_as_it_is).with_output_types(letters)
        make: Any = collections.namedtuple  # the names are not known before, which mypy wants
        return make("Outputs", [main, bad])(good, failed)


def _as_it_is(element: Any) -> Any:
    """Returns its argument, and so keeps elements from being lost that a DoFn yields in `finish_bundle`.

    If the next step has `process_batch`, as `WriteToParquet` of rows does, Beam 2.77 flushes its batch before
    `finish_bundle` is called, and drops later elements without an error. With this step between the two it does not.
    """
    return element


class _ComputeFn(beam.DoFn):
    """What the DoFns for rows and for batches have in common."""

    def __init__(
        self, columns: Columns, column: str, transform: type[beam.PTransform], errors: ErrorHandling | None
    ) -> None:
        self._columns = columns
        self._column = column
        self._step = transform.__name__
        self._errors = errors
        self._given: Any = None
        self._function: Callable[[pa.Array], Computed] | None = None
        self._n_in = Metrics.counter(transform, "elements-in")
        self._n_failed = Metrics.counter(transform, "elements-failed")

    def _prepare(self, given: Any) -> Callable[[pa.Array], Computed]:
        if self._function is None or given is not self._given:
            self._function, self._given = self._columns.prepare(given), given
        return self._function

    def _checked(self, column: pa.Array) -> pa.Array:
        if column.null_count:
            raise ValueError(f"the field {self._column!r} is null")
        return column

    def _failed(self, element: Any, error: Exception) -> beam.pvalue.TaggedOutput:
        """Returns an element for the second output; raises ValueError if there is none, or it does not take `error`."""
        if self._errors is None or not isinstance(error, self._errors.exc_class):
            shown = repr(element)
            shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
            raise ValueError(
                f"{self._step}: {type(error).__name__}: {error}; the element is {shown}. "
                "with_exception_handling() gives such elements an output of their own"
            ) from error
        self._n_failed.inc()
        stack = "".join(traceback.format_exception(error))
        letter = Row(element=element, msg=f"{type(error).__name__}: {error}", stack=stack)
        return beam.pvalue.TaggedOutput(self._errors.dead_letter_tag, letter)


class _BatchFn(_ComputeFn):
    """For PCollections of Arrow batches. A batch that fails is halved until the rows that fail are alone."""

    def process(self, element: pa.RecordBatch, given: Any = None) -> Iterator[Any]:
        self._n_in.inc(element.num_rows)
        elements_of.check_batch(element)
        yield from self._outputs(element, self._prepare(given))

    def _outputs(self, batch: pa.RecordBatch, function: Callable[[pa.Array], Computed]) -> Iterator[Any]:
        try:
            computed = function(self._checked(elements_of.batch_column(batch, self._column, self._columns.reads)))
            elements_of.check_new(batch.schema.names, computed.columns.keys() - {self._column})
        except Exception as error:
            if batch.num_rows == 1:
                yield self._failed(elements_of.only_row(batch), error)
            elif batch.num_rows:
                half = batch.num_rows // 2
                yield from self._outputs(batch.slice(0, half), function)
                yield from self._outputs(batch.slice(half), function)
            return
        if computed.rows is not None:
            batch = batch.take(pa.array(computed.rows))
        columns = {**dict(zip(batch.schema.names, batch.columns, strict=True)), **computed.columns}
        yield pa.record_batch(list(columns.values()), names=list(columns))


class _GatherFn(_ComputeFn):
    """For PCollections of rows."""

    def start_bundle(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._gathered: list[Any] = []
        self._places: list[tuple[int, Any, Any]] = []  # index of the first element with them, timestamp, window
        self._micros: int | None = None  # of the last of them; comparing timestamps costs more than all else here
        self._window: Any = None
        self._n_characters = 0
        self._get: Callable[[Any], Any] | None = None

    def process(
        self, element: Any, timestamp: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any] | None:
        return self._gather(element, None, timestamp, window)

    def _gather(self, element: Any, given: Any, timestamp: Any, window: Any) -> Iterator[Any] | None:
        flushed = None
        if self._gathered and given is not self._given and given != self._given:
            flushed = list(self._flush())  # the side input has changed: the gathered elements belong to the old one
        self._prepare(given)
        if timestamp.micros != self._micros or (window is not self._window and window != self._window):
            self._micros, self._window = timestamp.micros, window
            self._places.append((len(self._gathered), timestamp, window))
        if self._get is None:
            self._get = elements_of.getter_of(element, self._column)
        self._gathered.append(element)
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # computing finds it again
            self._n_characters += len(self._get(element))
        if self._n_characters < BATCH_CHARACTERS and len(self._gathered) < BATCH_ELEMENTS:
            return iter(flushed) if flushed else None
        return iter([*(flushed or ()), *self._flush()])

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._flush()

    def _flush(self) -> Iterator[Any]:
        """Yields the outputs of the gathered elements, each with the timestamp and window of its element."""
        gathered, places = self._gathered, self._places
        if not gathered:
            return
        self._clear()
        self._n_in.inc(len(gathered))
        starts = [start for start, _, _ in places[1:]]
        at, stop = 0, starts[0] if starts else len(gathered)
        for index, output in self._outputs(gathered, 0):
            while index >= stop:
                at += 1
                stop = starts[at] if at < len(starts) else len(gathered)
            _, timestamp, window = places[at]
            if isinstance(output, beam.pvalue.TaggedOutput):
                placed = WindowedValue(output.value, timestamp, (window,))
                yield beam.pvalue.TaggedOutput(output.tag, placed)
            else:
                yield WindowedValue(output, timestamp, (window,))

    def _outputs(self, elements: list[Any], first: int) -> Iterator[tuple[int, Any]]:
        """Yields pairs of an element's index in the batch and one of its outputs; `elements[0]` has index `first`."""
        assert self._function is not None
        try:
            column = elements_of.column_of(elements, self._column, self._columns.reads)
            computed = self._function(self._checked(column))
            columns = {name: computed.values_of(name) for name in computed.columns}
            sources = range(len(elements)) if computed.rows is None else computed.rows.tolist()
            rows = list(elements_of.extend([elements[i] for i in sources], self._column, columns))
        except Exception as error:
            if len(elements) == 1:
                yield first, self._failed(elements[0], error)
                return
            half = len(elements) // 2
            yield from self._outputs(elements[:half], first)
            yield from self._outputs(elements[half:], first + half)
            return
        yield from ((first + i, row) for i, row in zip(sources, rows, strict=True))


class _GatherBesideFn(_GatherFn):
    """For PCollections of rows, with a side input, which costs some microseconds per element."""

    def process(  # type: ignore[override]
        self,
        element: Any,
        given: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any] | None:
        return self._gather(element, given, timestamp, window)
