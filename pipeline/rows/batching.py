# SPDX-License-Identifier: Apache-2.0
"""The one DoFn of all steps: gathers elements into columns, computes on these, yields rows again, or batches.

    elements --usable--> columns --Work.prepare(side input)--> Computed  --extend--> elements with more fields
                 |                        |                    or a batch ---------> what the rest of the step takes
                 +--------- Failed -------+------------------> the second output, or an error

Beam's own batches, `process_batch`, hold 4,096 elements, however large these are, and cost 9 µs more per element than
the code here (Beam 2.77): as much as tokenizing two kilobytes.
"""

import bisect
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

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
from tokenmill.pipeline.rows.arrow_coder import register_batches
from tokenmill.pipeline.rows.elements import Field
from tokenmill.pipeline.rows.errors import ErrorHandling, Failed, FallibleTransform, Results, RowsError, failed_element

BATCH_CHARACTERS = 250_000
"""A batch is complete with this many characters, or ids: a call then costs little, and data stays in the CPU cache."""

BATCH_ELEMENTS = 4096
"""A batch is complete with this many elements, however short they are."""

KEPT_FUNCTIONS = 16
"""A worker keeps the functions, and so tokenizers, of this many side inputs: those that were used last."""

_ARROW = frozenset((pa.RecordBatch, pa.Table))
_Rows = npt.NDArray[np.int64]
_Made = TypeVar("_Made")


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

    def listed(self) -> dict[str, Sequence[Any]]:
        """Returns the values of all columns, a Python object for each row."""
        values = self.values or (lambda name: self.columns[name].to_pylist())
        return {name: values(name) for name in self.columns}


Compute = Callable[..., Computed | pa.RecordBatch]
"""Takes the columns of the fields that are read. Raises `RowsError` where it knows which rows cannot be used."""


@dataclasses.dataclass(frozen=True)
class Work:
    """What a step computes of elements."""

    reads: Sequence[Field]
    """The first says by its sizes when there are enough elements, and names the field of a string."""
    prepare: Callable[[Any], Compute]
    """Returns the function for the value of the side input, None without one; several threads may use it."""
    fields: Mapping[str, Any] | None = None
    """The fields that elements get, and their types, as Beam's type hints; None: the function returns batches."""


class RowTransform(FallibleTransform):
    """A step over elements. Gives them more fields, or makes something else of many of them: then it defines `_make`.

    Counters, in the namespace of the subclass: elements-in, elements-failed.
    """

    def __init__(self, work: Work, side_input: Any = None, **display: Any) -> None:
        """Makes a step.

        Args:
          work: what it computes.
          side_input: the side input whose value goes to `work.prepare`; None: there is none.
          **display: what to show of it.
        """
        super().__init__()
        for name in (*(each.name for each in work.reads), *(work.fields or ())):
            if not name:
                raise ValueError(f"{type(self).__name__}: the name of a field must not be empty")
        if side_input is None:
            work.prepare(None)  # raises here what workers would raise later
        self._work = work
        self._given = () if side_input is None else (side_input,)
        self._display = display

    def display_data(self) -> dict[str, Any]:
        """Returns the field that is read, those that are made, the digest of the tokenizer and all options."""
        fields = {"fields": ", ".join(self._work.fields)} if self._work.fields is not None else {}
        return {"column": self._work.reads[0].name, **fields, **self._display}

    @no_annotations  # which do not know of a second output
    def expand(self, pcoll: PCollection[Any]) -> Results:
        """Adds the step to a pipeline."""
        register_batches()
        work, errors, name = self._work, self._errors, type(self).__name__
        pcoll = declared_types.declared(self, pcoll)
        kind = made = pcoll.element_type
        for field in work.reads:
            if not field.is_optional:
                reads = field.type if errors is None else None
                made = declared_types.extended_type(kind, field.name, work.fields or {}, name, reads)
        outputs = pcoll | name >> beam.ParDo(GatherFn(work, type(self), errors, bool(self._given)), *self._given)
        failing = typehints.Any if elements_of.are_batches(kind) else kind
        if work.fields is not None:
            if errors is None:
                # If the next step has `process_batch`, as `WriteToParquet` of rows does, Beam 2.77 flushes its batch
                # before it calls `finish_bundle` of ours, and drops what that yields. A step between prevents it.
                outputs = outputs | "Deal" >> beam.Map(elements_of.itself).with_output_types(made)
            return self._results(pcoll, outputs, made, failing)
        good = outputs | "Good" >> beam.Filter(lambda each: not isinstance(each, Failed)).with_output_types(
            pa.RecordBatch
        )
        results = self._make(good, pcoll)
        if errors is None:
            return self._results(pcoll, results, results.element_type, None)
        failed = outputs | "Failed" >> beam.Filter(lambda each: isinstance(each, Failed)).with_output_types(
            typehints.Any
        )
        both = (results, failed) | "Both" >> beam.Flatten().with_output_types(Any)
        return self._results(pcoll, both, results.element_type, failing)

    def _make(self, batches: PCollection[pa.RecordBatch], pcoll: PCollection[Any]) -> PCollection[Any]:
        """Returns the results of a step whose work returns batches.

        Args:
          batches: the batches; those of rows are in one window each.
          pcoll: the input of the step.
        """
        raise NotImplementedError


def _rows_at_fault(
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
                wrong = error.failed
            except Exception:
                wrong = unusable(rows)
                if not wrong:
                    raise
            failed |= {int(rows[i]): error for i, error in wrong.items()}
            rows = np.delete(rows, [*wrong])
            if not rows.size:
                return rows, None, failed

    for start, stop, result in isolate(work, n, Exception):
        if not isinstance(result, Exception):
            yield result
        elif start < stop:  # nothing of no rows can be used
            yield np.arange(0), None, {start: result}


class _Gathered:
    """Elements that go through the function together, and where each belongs."""

    def __init__(self, function: Compute) -> None:
        self.function = function
        self.elements: list[Any] = []
        self.places: list[tuple[int, Any, Any, Any]] = []  # index of the first element there, timestamp, window, pane
        self.micros: int | None = None  # of the last of them; comparing timestamps costs more than all else here
        self.window: Any = None
        self.pane: Any = None


class GatherFn(beam.DoFn):
    """Elements -> results, and `Failed` between them. Rows are gathered; Arrow batches and tables go one by one."""

    def __init__(
        self, work: Work, transform: type[beam.PTransform], errors: ErrorHandling | None, has_side_input: bool = False
    ) -> None:
        """Takes the work of a step, its class, its second output, and whether its elements come with a side input."""
        self._work = work
        self._is_apart = work.fields is None  # no batch is of two windows
        self._step = transform.__name__
        self._errors = errors
        self._needs_given = has_side_input
        self._shared = Shared()
        self._functions: dict[Any, Compute] = {}
        self._n_in = Metrics.counter(transform, "elements-in")
        self._n_failed = Metrics.counter(transform, "elements-failed")

    def setup(self) -> None:
        """Prepares what needs no side input, once for all threads of the process, before the first element comes."""
        register_batches()
        if not self._needs_given:
            self._functions[None] = self._shared.acquire(lambda: self._work.prepare(None))

    def teardown(self) -> None:
        """Lets go of the functions."""
        self._functions.clear()

    def _prepare(self, given: Any) -> Compute:
        function = self._functions.pop(given, None)  # the last is the one used last
        if function is None:
            if len(self._functions) == KEPT_FUNCTIONS:
                del self._functions[next(iter(self._functions))]
            function = self._work.prepare(given)
        self._functions[given] = function
        return function

    def start_bundle(self) -> None:
        """Begins without elements."""
        self._gathered: _Gathered | None = None  # those of the last side input and, if batches are made, window
        self._given: Any = None
        self._all_gathered: dict[Any, _Gathered] = {}
        self._getters: dict[type, Callable[[Any], Any]] = {}
        self._n_elements = self._n_characters = 0

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
        given: Any = None,  # the last: Beam leaves out what it has no value for
    ) -> Iterator[Any] | None:
        """Gathers an element; returns the outputs of all once there are enough, and of a batch at once."""
        if type(element) in _ARROW:
            return self._of_batches(element, self._prepare(given))
        gathered = self._gathered
        if gathered is None or given is not self._given or (self._is_apart and window != gathered.window):
            key = (given, window) if self._is_apart else given  # windows have side inputs of their own
            gathered = self._all_gathered.get(key)
            if gathered is None:
                gathered = self._all_gathered[key] = _Gathered(self._prepare(given))
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
            get = self._getters[type(element)] = elements_of.getter_of(type(element), self._work.reads[0].name)
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # `usable` finds it again
            self._n_characters += len(get(element))
        if self._n_characters < BATCH_CHARACTERS and self._n_elements < BATCH_ELEMENTS:
            return None
        return self.finish_bundle()

    def finish_bundle(self) -> Iterator[Any]:
        """Yields the outputs of what is gathered, each with timestamp, window and pane of its element.

        Those of a batch are the end of its window and the window.
        """
        all_gathered = [*self._all_gathered.values()]
        self.start_bundle()
        for gathered in all_gathered:
            self._n_in.inc(len(gathered.elements))
            outputs = self._of_rows(gathered.function, gathered.elements)
            starts = [start for start, *_ in gathered.places]
            for index, output in outputs:
                _, timestamp, window, pane = gathered.places[bisect.bisect_right(starts, index) - 1]
                if isinstance(output, pa.RecordBatch):
                    yield WindowedValue(output, window.max_timestamp(), (window,))
                else:
                    yield WindowedValue(output, timestamp, (window,), pane)

    def _of_rows(self, function: Compute, elements: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yields pairs of an element's index and one of its outputs."""
        columns, good, unusable = elements_of.usable(elements, self._work.reads)
        for i, error in unusable.items():
            yield i, self._failed(elements[i], error)

        def compute(rows: _Rows) -> tuple[Computed | pa.RecordBatch, Mapping[str, Any]]:
            some = columns
            if rows.size < len(good):
                some = [
                    each.take(pa.array(rows)) if isinstance(each, pa.Array) else [each[i] for i in rows]
                    for each in columns
                ]
            computed = function(*some)
            return computed, computed.listed() if isinstance(computed, Computed) else {}

        for rows, made, failed in _rows_at_fault(len(good), compute) if good else ():
            for row, error in failed.items():
                yield good[row], self._failed(elements[good[row]], error)
            if made is None:
                continue
            computed, values = made
            indices = [good[row] for row in rows.tolist()]
            if not isinstance(computed, Computed):
                yield indices[0], computed
            else:
                yield from self._extended(indices, elements, computed, values)

    def _extended(
        self, indices: Sequence[int], elements: Sequence[Any], computed: Computed, values: Mapping[str, Any]
    ) -> Iterator[tuple[int, Any]]:
        if computed.report is not None:
            computed.report()
        sources = indices if computed.rows is None else [indices[row] for row in computed.rows.tolist()]
        rows = elements_of.extend([elements[i] for i in sources], self._work.reads[0].name, values)
        failures = set()
        for i, row in zip(sources, rows, strict=True):
            if not isinstance(row, Exception):
                yield i, row
            elif i not in failures:
                failures.add(i)
                yield i, self._failed(elements[i], row)

    def _of_batches(self, element: Any, function: Compute) -> Iterator[Any]:
        """Yields the outputs of a batch or table."""
        for batch in elements_of.batches_of(element) or ():
            self._n_in.inc(batch.num_rows)
            try:
                elements_of.check_batch(batch)
            except ValueError as error:  # looking at a row of it could end the process
                yield self._failed(f"an Arrow batch of {batch.num_rows} rows", error)
                continue
            yield from self._of_batch(batch, function)

    def _of_batch(self, batch: pa.RecordBatch, function: Compute) -> Iterator[Any]:
        fields = self._work.reads

        def compute(rows: _Rows) -> Computed | pa.RecordBatch:
            some = elements_of.take_rows(batch, rows)
            computed = function(*(elements_of.batch_column(some, field) for field in fields))
            if isinstance(computed, Computed):
                elements_of.check_new(batch.schema.names, computed.columns.keys() - {fields[0].name})
            return computed

        def unusable(rows: _Rows) -> Mapping[int, Exception]:
            return elements_of.unusable_rows(elements_of.take_rows(batch, rows), fields)

        for rows, computed, failed in _rows_at_fault(batch.num_rows, compute, unusable):
            for i, error in failed.items():
                yield self._failed(elements_of.only_row(batch.slice(i, 1)), error)
            if isinstance(computed, Computed):
                if computed.report is not None:
                    computed.report()
                taken = rows if computed.rows is None else rows[computed.rows]
                yield elements_of.with_columns(elements_of.take_rows(batch, taken), computed.columns)
            elif computed is not None:
                yield computed

    def _failed(self, element: Any, error: Exception) -> Failed:
        """Returns an element for the second output; raises ValueError if there is none, or it does not take `error`."""
        failed = failed_element(self._errors, self._step, element, error)
        self._n_failed.inc()
        return failed
