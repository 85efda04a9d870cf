# SPDX-License-Identifier: Apache-2.0
"""Steps of a graph that one worker does."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam


def call_once(pipeline: beam.Pipeline, label: str, function: Callable[..., Any], *args: Any) -> Any:
    """Returns a PCollection of one element: the result of `function(*args)`; `args` may be side inputs.

    `beam.Create` of one element would do the same with four steps instead of two; a runner takes some 10 ms for each.
    """
    return pipeline | f"{label}Start" >> beam.Impulse() | label >> beam.Map(_call, function, *args)


def with_memory(step: beam.PTransform, pipeline: beam.Pipeline, min_ram: str) -> beam.PTransform:
    """Returns a step for which Dataflow takes a worker with so much memory, as in "16GB".

    Other runners (Beam 2.77) do nothing with the hint, but start workers of their own for the step.
    """
    is_heeded = type(pipeline.runner).__name__ == "DataflowRunner"
    return step.with_resource_hints(min_ram=min_ram) if is_heeded else step


def _call(_: bytes, function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
