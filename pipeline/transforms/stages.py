# SPDX-License-Identifier: Apache-2.0
"""What steps of a job share: reports to Beam's counters and to the progress display, and steps that one worker does."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics

from tokenmill.pipeline.running import clock, progress


class StageReport:
    """Reports a step over splits to Beam, in counters, and to the progress display of this process."""

    def __init__(self, transform: type[beam.PTransform], stage: str) -> None:
        self._stage = stage
        names = ("bytes-in", "documents-in", "documents-rejected", "tokens-out", "documents-filtered")
        self._counters = [Metrics.counter(transform, name) for name in names]
        self._done = Metrics.counter(transform, "splits-done")

    @contextlib.contextmanager
    def of(self, split_id: str, watch: clock.Stopwatch | None = None) -> Iterator[progress.OnBatch]:
        """Yields the function to call after each batch of a split or a shard; `watch` is stopped if there was one."""
        totals = [0, 0, 0, 0, 0]
        watcher = progress.current()

        def on_batch(n_bytes: int, n_documents: int, n_rejected: int, n_tokens: int, n_filtered: int) -> None:
            for i, number in enumerate((n_bytes, n_documents, n_rejected, n_tokens, n_filtered)):
                totals[i] += number
            if watcher is not None:
                n_records = n_documents + n_rejected + n_filtered
                watcher.advance(self._stage, split_id, n_bytes, n_rejected, n_tokens, n_records)

        yield on_batch
        if watch is not None and any(totals):  # otherwise an earlier run had committed it
            watch.stop(n_bytes=totals[0], n_tokens=totals[3])
        for counter, number in zip(self._counters, totals, strict=True):
            counter.inc(number)
        self._done.inc()
        if watcher is not None:
            watcher.finish(self._stage, split_id)


def enter_stage(stage: str) -> None:
    """Tells the progress display of this process that the job is in `stage`, which is not measured by splits."""
    watcher = progress.current()
    if watcher is not None:
        watcher.enter(stage)


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
