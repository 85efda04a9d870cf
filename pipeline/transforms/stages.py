# SPDX-License-Identifier: Apache-2.0
"""What steps share: tokenizers, reports to Beam's counters and to the progress display, and steps that one worker does.

Tokenizers arrive in workers as text, and each process builds them once. Beam's `Shared` is not for them: it holds on to
one object of a stage, where fused steps may have several, and cannot take one that this process has already.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsSingleton, PCollection

from tokenmill.pipeline.running import progress
from tokenmill.pipeline.running.progress import Amount
from tokenmill.tokenizer import Tokenizer

_Result = TypeVar("_Result")

TokenizerText = str | AsSingleton
"""A `tokenizer.json` as text, or a side input that holds one."""

_compiled: dict[str, Tokenizer] = {}
_compiling = threading.Lock()
_KEPT_TOKENIZERS = 16


def compiled_tokenizer(tokenizer_json: str) -> Tokenizer:
    """Returns the tokenizer of a `tokenizer.json`, built once per process and shared by its threads.

    Building one takes seconds if the vocabulary is large. Keeps those that were used last.
    """
    return compiled_tokenizers([tokenizer_json], 1)[0]


def compiled_tokenizers(texts: Sequence[str], n: int) -> list[Tokenizer]:
    """Returns the tokenizer of each of `n` folders; `texts` are theirs, or one for all. Keeps all of them."""
    with _compiling:
        for text in dict.fromkeys(texts):
            found = _compiled.pop(text) if text in _compiled else Tokenizer.from_str(text)
            _keep(text, found, wanted=texts)  # the last is the one used last
        tokenizers = [_compiled[text] for text in texts]
    return tokenizers if len(tokenizers) == n else tokenizers * n


def keep_compiled(tokenizer: Tokenizer) -> None:
    """Makes `compiled_tokenizer` return `tokenizer` for its text in this process instead of parsing the text again."""
    with _compiling:
        _keep(tokenizer.to_str(), tokenizer)


def _keep(tokenizer_json: str, tokenizer: Tokenizer, wanted: Collection[str] = ()) -> None:
    for old in [text for text in _compiled if text not in wanted][: max(0, len(_compiled) + 1 - _KEPT_TOKENIZERS)]:
        del _compiled[old]
    _compiled[tokenizer_json] = tokenizer


class Meter:
    """How far a split or a shard is; told to the progress display of this process, if somebody watches."""

    def __init__(self, stage: str, split_id: str) -> None:
        """Starts at zero."""
        self._stage, self._id, self._watcher = stage, split_id, progress.current()
        self.done = Amount()
        enter_stage(stage)

    def add(self, amount: Amount) -> None:
        """Adds what was read or written.

        Raises:
          Cancelled: if the job is to stop.
          ValueError: if more records were rejected, in all splits together, than the job may have.
        """
        self.done = self.done.plus(amount)
        if self._watcher is not None:
            self._watcher.advance(self._stage, self._id, amount)

    def finish(self) -> None:
        """Tells that the split is committed."""
        if self._watcher is not None:
            self._watcher.finish(self._stage, self._id)


class StageReport:
    """Reports a step over splits, or shards, to Beam, in counters, and to the progress display of this process."""

    def __init__(self, transform: type[beam.PTransform], stage: str, unit: str = "splits") -> None:
        """Takes the namespace of the counters, the stage, and what an element is."""
        self._stage, counter = stage, functools.partial(Metrics.counter, transform)
        self._bytes, self._tokens, self._done = map(counter, ("bytes-in", "tokens-out", f"{unit}-done"))
        self._documents, self._rejected, self._filtered = (
            counter(f"documents-{name}") for name in ("in", "rejected", "filtered")
        )

    @contextlib.contextmanager
    def of(self, split_id: str) -> Iterator[progress.OnBatch]:
        """Yields the function to call after each batch of a split or a shard."""
        meter = Meter(self._stage, split_id)

        def on_batch(amount: Amount) -> None:
            self._bytes.inc(amount.n_bytes)
            self._documents.inc(amount.n_records - amount.n_rejected - amount.n_filtered)
            self._rejected.inc(amount.n_rejected)
            self._filtered.inc(amount.n_filtered)
            self._tokens.inc(amount.n_tokens)
            meter.add(amount)

        yield on_batch
        self._done.inc()
        meter.finish()


def enter_stage(stage: str) -> None:
    """Tells the progress display of this process that the job is in `stage`, which is not measured by splits."""
    watcher = progress.current()
    if watcher is not None:
        watcher.enter(stage)


def call_once(
    pipeline: beam.Pipeline, label: str, function: Callable[..., _Result], *args: Any, kind: Any = Any
) -> PCollection[_Result]:
    """Returns a PCollection of one element: the result of `function(*args)`; `args` may be side inputs.

    `kind` is the type of the result, by which Beam chooses its coder; `Any`: it is pickled.
    `beam.Create` of one element would do the same with four steps instead of two; a runner takes some 10 ms for each.
    """
    step = beam.Map(_call, function, *args).with_output_types(kind)
    return pipeline | f"{label}Start" >> beam.Impulse() | label >> step


class Number(beam.PTransform):
    """Counts elements. Input: any. Output: how many there are, or nothing if there are none.

    Beam's combines (2.77) are of more steps, of which some have no type: `--type_check_strictness=ALL_REQUIRED` fails.
    """

    def expand(self, elements: PCollection[Any]) -> PCollection[int]:  # noqa: D102
        together = elements | "One" >> beam.Map(_one).with_output_types(tuple[int, int]) | beam.GroupByKey()
        return together | self.label >> beam.MapTuple(_total).with_output_types(int)


def _one(_: Any) -> tuple[int, int]:
    return 0, 1


def _total(_: int, ones: Iterable[int]) -> int:
    return sum(ones)


def with_memory(step: beam.PTransform, pipeline: beam.Pipeline, min_ram: str) -> beam.PTransform:
    """Returns a step for which Dataflow takes a worker with so much memory, as in "16GB".

    Other runners (Beam 2.77) do nothing with the hint, but start workers of their own for the step.
    """
    is_heeded = type(pipeline.runner).__name__ == "DataflowRunner"
    return step.with_resource_hints(min_ram=min_ram) if is_heeded else step


def _call(_: bytes, function: Any, *args: Any) -> Any:  # with --runtime_type_check Beam 2.77 fails on `Callable`
    return function(*args)
