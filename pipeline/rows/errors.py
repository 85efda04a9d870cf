# SPDX-License-Identifier: Apache-2.0
"""A second output for elements that cannot be used, as Beam's `with_exception_handling` gives a DoFn."""

import copy
import dataclasses
import logging
import numbers
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import apache_beam as beam
from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry
from apache_beam.pvalue import DoOutputsTuple, PCollection, Row, TaggedOutput
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from tokenmill.pipeline.rows.declared_types import check_windows_stay, declared_output
from tokenmill.pipeline.rows.elements import n_rows

Results = PCollection[Any] | DoOutputsTuple
"""What a step returns: its results; with exception handling also the second output, unless a handler takes that."""

_STACK_FRAMES = 3
"""Of a stack, the innermost frames are kept: a bad element then costs hundreds of bytes, not thousands."""


class RowsError(ValueError):
    """Rows of a batch cannot be used. What knows which raises this, so that nobody needs to search for them."""

    def __init__(self, failed: Mapping[int, Exception]) -> None:
        """Takes the error of each row that fails, by the index of the row; at least one."""
        super().__init__(str(next(iter(failed.values()))))
        self.failed = failed


@dataclasses.dataclass(frozen=True)
class Failed:
    """An element on its way to the second output."""

    letter: Row


@dataclasses.dataclass(frozen=True)
class ErrorHandling:
    """The arguments of `with_exception_handling`."""

    main_tag: str
    dead_letter_tag: str
    exc_class: Any
    threshold: float
    threshold_windowing: Any
    error_handler: Any
    on_failure_callback: Callable[[Exception, Any], None] | None

    def deal(
        self, step: str, pcoll: Any, outputs: Any, made: Any, make: Callable[[Any], Any] | None, element_type: Any
    ) -> Results:
        """Returns what the step returns: both outputs, or the first one if a handler takes the second.

        Args:
          step: the name of the step.
          pcoll: its input.
          outputs: results, and `Failed` between them.
          made: the type of the results.
          make: makes them of those in `outputs`, and where it fails there is a letter; None: they are that.
          element_type: that of the input elements that fail.
        """
        # What Beam pickles need not be what its type says, and an element that fails often is not: a NamedTuple with
        # None for a string. A coder for rows would end the pipeline at its letter. It also takes numbers alone for a
        # value of a dict that may be a number, a text or None.
        if make is not None or not isinstance(registry.get_coder(element_type), RowCoder):
            element_type = typehints.Any
        letters = RowTypeConstraint.from_fields([("element", element_type), ("msg", str), ("stack", str)])
        deal = beam.ParDo(_DealFn(self, step, make))
        both = deal.with_outputs(self.dead_letter_tag, main=self.main_tag)
        dealt = outputs | "DealFailed" >> both.with_output_types(typehints.Any)
        good, bad = dealt[self.main_tag], dealt[self.dead_letter_tag]
        good.element_type, bad.element_type = made, letters
        if self.threshold < 1:
            windowfn = self.threshold_windowing or pcoll.windowing.windowfn
            check_windows_stay(step, "threshold needs others, as threshold_windowing=FixedWindows(60)", windowfn)
            sums = []
            for name, each in (("All", pcoll), ("Failed", bad)):
                if self.threshold_windowing:
                    each = each | f"Window{name}" >> beam.WindowInto(self.threshold_windowing)
                numbers = each | f"Count{name}" >> beam.Map(n_rows)
                sums.append(numbers | f"Sum{name}" >> beam.CombineGlobally(sum).without_defaults())
            n_all, n_failed = sums
            _ = n_failed | "CheckShare" >> beam.Map(_check_share, beam.pvalue.AsSingleton(n_all), self.threshold)
        if self.error_handler is None:
            return dealt
        self.error_handler.add_error_pcollection(bad)
        return good


@beam.typehints.with_output_types(Any)  # what ALL_REQUIRED of type_check_strictness asks for
class FallibleTransform(beam.PTransform):
    """A step with an optional second output, for elements that it cannot use."""

    _errors: ErrorHandling | None = None

    def _results(self, pcoll: PCollection[Any], outputs: PCollection[Any], made: Any, element_type: Any) -> Results:
        """Returns what the step returns, of the type that `with_output_types` has given; see `ErrorHandling.deal`."""
        made, make = declared_output(self, made)
        if self._errors is not None:
            return self._errors.deal(type(self).__name__, pcoll, outputs, made, make, element_type)
        return outputs if make is None else outputs | "AsDeclared" >> beam.Map(make).with_output_types(made)

    def with_exception_handling(
        self,
        main_tag: str = "good",
        dead_letter_tag: str = "bad",
        *,
        exc_class: Any = Exception,
        partial: bool = False,
        use_subprocess: bool = False,
        threshold: float = 1,
        threshold_windowing: Any = None,
        timeout: float | None = None,
        error_handler: Any = None,
        on_failure_callback: Callable[[Exception, Any], None] | None = None,
        allow_unsafe_userstate_in_process: bool = False,
    ) -> Self:
        """Returns this step with two outputs, as Beam's method of this name does for a DoFn.

        Args:
          main_tag: names the first output.
          dead_letter_tag: names the second: `beam.Row(element, msg, stack)` for each element that cannot be used.
          exc_class: the exceptions that are caught; others end the pipeline.
          partial, allow_unsafe_userstate_in_process: without an effect: an element that fails has no results, and a
            step no state.
          use_subprocess, timeout: not possible, for a step computes many elements at a time.
          threshold: the pipeline fails if more than this share of the elements fail, in a window.
          threshold_windowing: the windows for that; None: those of the input.
          error_handler: takes the second output; then the step returns the first one alone.
          on_failure_callback: called with the exception and the element, on the worker; what it raises is logged.

        Raises:
          ValueError: if an argument is not possible.
        """
        if use_subprocess or timeout:
            raise ValueError(
                f"{type(self).__name__}: use_subprocess and timeout are for steps that take one element at a time; "
                "this one computes many together"
            )
        check_share(type(self).__name__, threshold)
        classes = exc_class if isinstance(exc_class, tuple) else (exc_class,)
        if not all(isinstance(each, type) for each in classes):
            raise ValueError(f"{type(self).__name__}: exc_class must be an exception or a tuple, got {exc_class!r}")
        del partial, allow_unsafe_userstate_in_process
        handling = copy.copy(self)
        handling._errors = ErrorHandling(
            main_tag, dead_letter_tag, exc_class, threshold, threshold_windowing, error_handler, on_failure_callback
        )
        return handling

    def with_error_handler(self, error_handler: Any, **options: Any) -> Self:
        """Returns this step with its second output given to a handler, as Beam's method of this name does."""
        return self if error_handler is None else self.with_exception_handling(error_handler=error_handler, **options)


def check_share(step: str, threshold: object) -> None:
    """Raises ValueError if the threshold of a step is no number from 0 to 1."""
    if not isinstance(threshold, numbers.Real) or not 0 <= float(threshold) <= 1:
        raise ValueError(f"{step}: threshold must be in 0..1, got {threshold!r}")


def failed_element(errors: ErrorHandling | None, step: str, element: Any, error: Exception) -> Failed:
    """Returns an element for the second output; raises ValueError if there is none, or it does not take `error`."""
    if errors is None or not isinstance(error, errors.exc_class):
        shown = repr(element)
        shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
        raise ValueError(
            f"{step}: {type(error).__name__}: {error}; the element is {shown}. "
            "with_exception_handling() gives such elements an output of their own"
        ) from error
    if errors.on_failure_callback is not None:
        try:
            errors.on_failure_callback(error, element)
        except Exception:  # as Beam's own steps do
            logging.getLogger(__name__).warning("%s: on_failure_callback failed", step, exc_info=True)
    stack = "".join(
        traceback.format_exception(type(error), error, error.__traceback__, limit=-_STACK_FRAMES, chain=False)
    )
    return Failed(Row(element=element, msg=f"{type(error).__name__}: {error}", stack=stack))


class _DealFn(beam.DoFn):
    def __init__(self, errors: ErrorHandling, step: str, make: Callable[[Any], Any] | None) -> None:
        self._errors = errors
        self._step = step
        self._make = make

    def process(self, element: Any) -> Iterator[Any]:
        if self._make is not None and not isinstance(element, Failed):
            try:
                element = self._make(element)
            except Exception as error:
                element = failed_element(self._errors, self._step, element, error)
        if isinstance(element, Failed):
            element = TaggedOutput(self._errors.dead_letter_tag, element.letter)
        yield element


def _check_share(n_failed: int, n_all: int, threshold: float) -> None:
    if n_failed > n_all * threshold:
        raise ValueError(f"{n_failed} of {n_all} elements fail, more than the threshold of {threshold} allows")
