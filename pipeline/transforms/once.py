# SPDX-License-Identifier: Apache-2.0
"""A step of a graph that makes one worker call a function once."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam


def call_once(pipeline: beam.Pipeline, label: str, function: Callable[..., Any], *args: Any) -> Any:
    """Returns a PCollection of one element: the result of `function(*args)`; `args` may be side inputs.

    `beam.Create` of one element would do the same with four steps instead of two; a runner takes some 10 ms for each.
    """
    return pipeline | f"{label}Start" >> beam.Impulse() | label >> beam.Map(_call, function, *args)


def _call(_: bytes, function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
