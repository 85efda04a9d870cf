# SPDX-License-Identifier: Apache-2.0
"""The base class of most steps: gathers elements into a column, computes new columns from it, yields elements again.

Beam's own batches, `process_batch`, hold 4,096 elements, however large these are, and cost 9 µs more per element than
the code here (Beam 2.77): as much as tokenizing two kilobytes.
"""

import bisect
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import PCollection
from apache_beam.typehints import no_annotations, typehints
from apache_beam.utils.shared import Shared
from apache_beam.utils.windowed_value import WindowedValue

from tokenmill.pipeline.isolating import isolate
from tokenmill.pipeline.rows import declared_types
from tokenmill.pipeline.rows import elements as elements_of
from tokenmill.pipeline.rows.errors import ErrorHandling, Failed, FallibleTransform, Results, RowsError, failed_element
from tokenmill.pipeline.transforms import arrow_coder

BATCH_CHARACTERS = 250_000
"""A batch is complete with this many characters, or ids: a call then costs little, and data stays in the CPU cache."""

BATCH_ELEMENTS = 4096
"""A batch is complete with this many elements, however short they are."""

KEPT_FUNCTIONS = 16
"""A worker keeps the functions, and so tokenizers, of this many side inputs: those that were used last."""

_ARROW = frozenset((pa.RecordBatch, pa.Table))
_Rows = npt.NDArray[np.int64]
_Made = TypeVar("_Made")


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
          given: the value of the side input; None without one. The function may be used by several threads.

        Raises what keeps it from that; the function raises `RowsError` where it knows which rows cannot be used.
        """

    def display_data(self) -> Mapping[str, Any]:
        """Returns what to show of it beside the fields."""


@dataclasses.dataclass(frozen=True)
class Computed:
    """New columns, and a way to get their values as Python objects where elements are rows."""

    columns: Mapping[str, pa.Array]
    values: Callable[[str], Sequence[Any]] | None = None
    """Makes the Python values of a column; None: `to_pylist`."""
    rows: np.ndarray | None = None
    """int64[n]: the index of the element that each row comes from; None: row i comes from element i."""
    report: Callable[[], None] | None = None
    """Adds the rows to metrics; called once they have been computed as a whole."""

    def values_of(self, name: str) -> Sequence[Any]:
        """Returns the values of a column, a Python object for each row."""
        return self.columns[name].to_pylist() if self.values is None else self.values(name)


class RowTransform(FallibleTransform):
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
        if side_input is None:
            columns.prepare(None)  # raises here what workers would raise later
        self._columns = columns
        self._column = column
        self._side_input = side_input

    def display_data(self) -> dict[str, Any]:
        """Returns the field that is read, those that are made, the digest of the tokenizer and all options."""
        return {"column": self._column, "fields": ", ".join(self._columns.fields), **self._columns.display_data()}

    @no_annotations  # which do not know of a second output
    def expand(self, pcoll: PCollection[Any]) -> Results:
        """Adds the step to a pipeline."""
        name, pcoll = type(self).__name__, declared_types.declared(self, pcoll)
        reads = self._columns.reads if self._errors is None else None
        made = declared_types.extended_type(pcoll.element_type, self._column, self._columns.fields, name, reads)
        given = () if self._side_input is None else (self._side_input,)
        kind: type[_ComputeFn] = _GatherBesideFn if given else _GatherFn
        if elements_of.are_batches(pcoll.element_type):
            arrow_coder.register()
            kind = _BatchFn
        step = beam.ParDo(kind(self._columns, self._column, type(self), self._errors, bool(given)), *given)
        outputs = pcoll | name >> step
        if self._errors is None:
            outputs = outputs | "Deal" >> beam.Map(_as_it_is).with_output_types(made)
        return self._results(pcoll, outputs, made, typehints.Any if kind is _BatchFn else pcoll.element_type)


def _as_it_is(element: _Made) -> _Made:
    """Returns its argument, and so keeps elements from being lost that a DoFn yields in `finish_bundle`.

    If the next step has `process_batch`, as `WriteToParquet` of rows does, Beam 2.77 flushes its batch before
    `finish_bundle` is called, and drops later elements without an error. With this step between the two it does not.
    """
    return element


class _ComputeFn(beam.DoFn):
    """What the DoFns for rows and for batches have in common."""

    def __init__(
        self,
        columns: Columns,
        column: str,
        transform: type[beam.PTransform],
        errors: ErrorHandling | None,
        has_side_input: bool = False,
    ) -> None:
        self._columns = columns
        self._column = column
        self._step = transform.__name__
        self._errors = errors
        self._needs_given = has_side_input
        self._shared = Shared()
        self._functions: dict[Any, Callable[[pa.Array], Computed]] = {}
        self._n_in = Metrics.counter(transform, "elements-in")
        self._n_failed = Metrics.counter(transform, "elements-failed")

    def setup(self) -> None:
        """Prepares what needs no side input, once for all threads of the process, before the first element comes."""
        if not self._needs_given:
            self._functions[None] = self._shared.acquire(lambda: self._columns.prepare(None))

    def teardown(self) -> None:
        self._functions.clear()

    def _prepare(self, given: Any) -> Callable[[pa.Array], Computed]:
        function = self._functions.pop(given, None)  # the last is the one used last
        if function is None:
            if len(self._functions) == KEPT_FUNCTIONS:
                del self._functions[next(iter(self._functions))]
            function = self._columns.prepare(given)
        self._functions[given] = function
        return function

    def _failed(self, element: Any, error: Exception) -> Failed:
        """Returns an element for the second output; raises ValueError if there is none, or it does not take `error`."""
        failed = failed_element(self._errors, self._step, element, error)
        self._n_failed.inc()
        return failed

    def _batches(self, element: Any, function: Callable[[pa.Array], Computed]) -> Iterator[Any]:
        """Yields the outputs of a batch or table."""
        arrow_coder.register()
        for batch in elements_of.batches_of(element) or ():
            self._n_in.inc(batch.num_rows)
            try:
                elements_of.check_batch(batch)
            except ValueError as error:  # looking at a row of it could end the process
                yield self._failed(f"an Arrow batch of {batch.num_rows} rows", error)
                continue
            yield from self._batch_outputs(batch, function)

    def _batch_outputs(self, batch: pa.RecordBatch, function: Callable[[pa.Array], Computed]) -> Iterator[Any]:
        def compute(rows: _Rows) -> Computed:
            column = elements_of.batch_column(_rows_of(batch, rows), self._column, self._columns.reads)
            if column.null_count:
                raise ValueError(f"the field {self._column!r} is null")
            computed = function(column)
            elements_of.check_new(batch.schema.names, computed.columns.keys() - {self._column})
            return computed

        def unusable(rows: _Rows) -> Mapping[int, Exception]:
            return elements_of.unusable_rows(_rows_of(batch, rows), self._column)

        for rows, computed, failed in _stretches(batch.num_rows, compute, unusable):
            for i, error in failed.items():
                yield self._failed(elements_of.only_row(batch.slice(i, 1)), error)
            if computed is not None:
                if computed.report is not None:
                    computed.report()
                taken = rows if computed.rows is None else rows[computed.rows]
                yield elements_of.with_columns(_rows_of(batch, taken), computed.columns)


def _rows_of(batch: pa.RecordBatch, rows: _Rows) -> pa.RecordBatch:
    """Returns rows of a batch in any order; the batch itself if these are all of it."""
    is_all = rows.size == batch.num_rows and bool((rows == np.arange(rows.size)).all())
    return batch if is_all else elements_of.take_rows(batch, rows)


def _stretches(
    n: int, compute: Callable[[_Rows], _Made], unusable: Callable[[_Rows], Mapping[int, Exception]] = lambda _: {}
) -> Iterator[tuple[_Rows, _Made | None, Mapping[int, Exception]]]:
    """Computes rows 0 to `n` together; if that fails, without the rows at fault.

    Args:
      n: how many there are.
      compute: takes the numbers of rows. Raises `RowsError` if it knows which are at fault; otherwise, if `unusable`
        does not know either, all are halved until they are alone.
      unusable: takes the numbers of rows, and returns the errors of those at fault by their place among these.

    Yields:
      For each stretch of rows in order: those that were computed, what was made of them, and the errors of the others.
    """

    def work(start: int, stop: int) -> tuple[_Rows, _Made | None, dict[int, Exception]]:
        rows, failed = np.arange(start, stop), dict[int, Exception]()
        while True:
            try:
                return rows, compute(rows), failed
            except RowsError as error:
                found = error.failed
            except Exception:
                found = unusable(rows)
                if not found:
                    raise
            failed |= {int(rows[i]): error for i, error in found.items()}
            rows = np.delete(rows, [*found])
            if not rows.size:
                return rows, None, failed

    for start, stop, result in isolate(work, n, Exception):
        if not isinstance(result, Exception):
            yield result
        elif start < stop:  # nothing of no rows can be used
            yield np.arange(0), None, {start: result}


class _BatchFn(_ComputeFn):
    """For PCollections of Arrow batches or tables."""

    def process(self, element: pa.RecordBatch | pa.Table, given: Any = None) -> Iterator[Any]:
        return self._batches(element, self._prepare(given))


class _Gathered:
    """Elements that go through the function together, and where each belongs."""

    def __init__(self, function: Callable[[pa.Array], Computed]) -> None:
        self.function = function
        self.elements: list[Any] = []
        self.places: list[tuple[int, Any, Any, Any]] = []  # index of the first element there, timestamp, window, pane
        self.micros: int | None = None  # of the last of them; comparing timestamps costs more than all else here
        self.window: Any = None
        self.pane: Any = None


class _GatherFn(_ComputeFn):
    """For PCollections of rows; of Arrow batches and tables among them, each goes by itself."""

    def start_bundle(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._gathered: _Gathered | None = None  # for the last side input, which is this one
        self._given: Any = None
        self._by_given: dict[Any, _Gathered] = {}  # windows have side inputs of their own
        self._getters: dict[type, Callable[[Any], Any]] = {}
        self._n_elements = self._n_characters = 0

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[Any] | None:
        return self._gather(element, None, timestamp, window, pane)

    def _gather(self, element: Any, given: Any, timestamp: Any, window: Any, pane: Any) -> Iterator[Any] | None:
        if type(element) in _ARROW:
            return self._batches(element, self._prepare(given))
        gathered = self._gathered
        if gathered is None or given is not self._given:
            gathered = self._by_given.get(given)
            if gathered is None:
                gathered = self._by_given[given] = _Gathered(self._prepare(given))
            self._gathered, self._given = gathered, given
        if (
            timestamp.micros != gathered.micros
            or (window is not gathered.window and window != gathered.window)
            or (pane is not gathered.pane and pane != gathered.pane)
        ):
            gathered.micros, gathered.window, gathered.pane = timestamp.micros, window, pane
            gathered.places.append((len(gathered.elements), timestamp, window, pane))
        gathered.elements.append(element)
        self._n_elements += 1
        get = self._getters.get(type(element))
        if get is None:
            get = self._getters[type(element)] = elements_of.getter_of(type(element), self._column)
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # `usable` finds it again
            self._n_characters += len(get(element))
        if self._n_characters < BATCH_CHARACTERS and self._n_elements < BATCH_ELEMENTS:
            return None
        return self._flush()

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._flush()

    def _flush(self) -> Iterator[Any]:
        """Yields the outputs of the gathered elements, each with the timestamp, window and pane of its element."""
        batches = [*self._by_given.values()]
        self._clear()
        for gathered in batches:
            self._n_in.inc(len(gathered.elements))
            outputs = self._outputs(gathered.function, gathered.elements)
            starts = [start for start, *_ in gathered.places]
            for index, output in outputs:
                _, timestamp, window, pane = gathered.places[bisect.bisect_right(starts, index) - 1]
                yield WindowedValue(output, timestamp, (window,), pane)

    def _outputs(self, function: Callable[[pa.Array], Computed], elements: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yields pairs of an element's index and one of its outputs."""
        column, good, unusable = elements_of.usable(elements, self._column, self._columns.reads)
        for i, error in unusable:
            yield i, self._failed(elements[i], error)

        def compute(rows: _Rows) -> tuple[Computed, dict[str, Any]]:
            some = column
            if rows.size < len(good):
                some = column.take(pa.array(rows)) if isinstance(column, pa.Array) else [column[i] for i in rows]
            computed = function(some)
            return computed, {name: computed.values_of(name) for name in computed.columns}

        for rows, made, failed in _stretches(len(good), compute) if good else ():
            for row, error in failed.items():
                yield good[row], self._failed(elements[good[row]], error)
            if made is not None:
                yield from self._made_of([good[row] for row in rows.tolist()], elements, *made)

    def _made_of(
        self, indices: Sequence[int], elements: Sequence[Any], computed: Computed, columns: Mapping[str, Any]
    ) -> Iterator[tuple[int, Any]]:
        if computed.report is not None:
            computed.report()
        sources = indices if computed.rows is None else [indices[row] for row in computed.rows.tolist()]
        rows = elements_of.extend([elements[i] for i in sources], self._column, columns)
        failures = set()
        for i, row in zip(sources, rows, strict=True):
            if not isinstance(row, Exception):
                yield i, row
            elif i not in failures:
                failures.add(i)
                yield i, self._failed(elements[i], row)


class _GatherBesideFn(_GatherFn):
    """For PCollections of rows, with a side input, which costs some microseconds per element."""

    def process(  # type: ignore[override]
        self,
        element: Any,
        given: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[Any] | None:
        return self._gather(element, given, timestamp, window, pane)


class Gather(beam.DoFn):
    """Makes Arrow batches of elements, for a step that makes something else of many, such as counts.

    Rows are gathered, those of each window by themselves. Arrow batches and tables among them pass one by one.
    """

    def __init__(
        self,
        field: str,
        rows: Callable[[Sequence[Any]], pa.RecordBatch],
        batch: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        """Takes what makes batches, which raises an error that shows an element that cannot be used.

        Args:
          field: the field whose sizes say when there are enough rows.
          rows: makes a batch of rows.
          batch: makes one of a batch, whose buffers have been checked.
        """
        self._field, self._rows, self._batch = field, rows, batch

    def setup(self) -> None:
        """Makes Beam send batches as Arrow IPC streams."""
        arrow_coder.register()

    def start_bundle(self) -> None:
        """Begins without rows."""
        self._by_window: dict[Any, list[Any]] = {}
        self._n_elements = self._n_characters = 0

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        """Yields batches once there are enough rows, and each Arrow batch at once."""
        if type(element) in _ARROW:
            for batch in elements_of.batches_of(element) or ():
                elements_of.check_batch(batch)
                yield self._batch(batch)
            return
        self._by_window.setdefault(window, []).append(element)
        self._n_elements += 1
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # `usable` finds it again
            self._n_characters += len(elements_of.getter_of(type(element), self._field)(element))
        if self._n_characters >= BATCH_CHARACTERS or self._n_elements >= BATCH_ELEMENTS:
            yield from self.finish_bundle()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields batches of the rows that are left."""
        by_window = self._by_window
        self.start_bundle()
        for window, elements in by_window.items():
            yield WindowedValue(self._rows(elements), window.max_timestamp(), (window,))


def gather_field(step: str, field: str, type_: pa.DataType) -> beam.ParDo:
    """Returns `Gather` for one field, which has the column `field` of its batches, without nulls."""
    rows, batch = (
        functools.partial(_field_of_rows, step, field, type_),
        functools.partial(_field_of, step, field, type_),
    )
    return beam.ParDo(Gather(field, rows, batch)).with_output_types(pa.RecordBatch)


def _field_of_rows(step: str, field: str, type_: pa.DataType, rows: Sequence[Any]) -> pa.RecordBatch:
    return pa.record_batch({field: column_of(step, rows, field, type_)})


def _field_of(step: str, field: str, type_: pa.DataType, batch: pa.RecordBatch) -> pa.RecordBatch:
    column = elements_of.batch_column(batch, field, type_)
    if column.null_count:
        raise ValueError(f"{step}: the field {field!r} is null in {column.null_count} of {len(column)} rows")
    return pa.record_batch({field: column})


def column_of(step: str, elements: Sequence[Any], field: str, type_: pa.DataType) -> pa.Array:
    """Returns a field of elements as a column; raises ValueError, showing the element, if one cannot be used."""
    column, _, failed = elements_of.usable(elements, field, type_)
    for i, error in failed:
        failed_element(None, step, elements[i], error)
    return column


@dataclasses.dataclass(frozen=True)
class _Check:
    """Computes no columns: elements pass as they are, if their field can be read and the check does not raise."""

    reads: pa.DataType | None
    check: Callable[[Any, Any], None] | None

    @property
    def fields(self) -> Mapping[str, Any]:
        return {}

    def display_data(self) -> Mapping[str, Any]:
        return {}

    def prepare(self, given: Any) -> Callable[[pa.Array], Computed]:
        def compute(column: pa.Array) -> Computed:
            if self.check is not None:
                self.check(given, column)
            return Computed({})

        return compute


@dataclasses.dataclass(frozen=True)
class Check:
    """A field that a step needs, and what is wrong with its values."""

    column: str
    reads: pa.DataType | None
    """The type of the field; None: any, and the check takes a list of values, or the column of a batch as it is."""
    check: Callable[[Any, Any], None] | None = None
    """Raises an error if values, of which none is null, cannot be used; takes the value of the side input, and them."""
    side_input: Any = None


def expand_checked(
    step: FallibleTransform,
    pcoll: PCollection[Any],
    expand: Callable[[PCollection[Any]], PCollection[Any]],
    *checks: Check,
) -> Results:
    """Expands a step that makes something else of many elements, such as counts; elements fail before it counts them.

    Args:
      step: the step, whose `with_exception_handling` decides.
      pcoll: its input.
      expand: adds the step itself.
      *checks: what is checked if the step has a second output.
    """
    arrow_coder.register()
    errors = step._errors
    if errors is None:
        made = expand(pcoll)
        return step._results(pcoll, made, made.element_type, None)
    good, failed = pcoll, []
    for each in checks:
        check = RowTransform(_Check(each.reads, each.check), each.column, each.side_input)
        check = check.with_exception_handling(
            exc_class=errors.exc_class, on_failure_callback=errors.on_failure_callback
        )
        good, letters = good | f"Check {each.column}" >> check
        failed.append(letters | f"Failed {each.column}" >> beam.Map(_as_failed))
    made = expand(good)
    element_type: Any = typehints.Any if elements_of.are_batches(pcoll.element_type) else pcoll.element_type
    return step._results(pcoll, (made, *failed) | "Both" >> beam.Flatten(), made.element_type, element_type)


def _as_failed(letter: Any) -> Failed:
    """Returns a letter on its way. `Failed` itself would tell Beam a type that its runtime checks find nowhere."""
    return Failed(letter)
