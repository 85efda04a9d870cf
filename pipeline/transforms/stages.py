# SPDX-License-Identifier: Apache-2.0
"""Reports of the steps of a job, to Beam's counters and to the progress display of this process."""

import contextlib
from collections.abc import Iterator

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
