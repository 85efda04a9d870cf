# SPDX-License-Identifier: Apache-2.0
"""The transform from the counts artifact to vocabularies."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.jobs.planning import TRAINING_STAGE
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.training.train import train_vocabularies
from tokenmill.pipeline.transforms.once import with_memory
from tokenmill.pipeline.transforms.stages import enter_stage

_TRAINING_MEMORY = "16GB"
"""All other steps take less than 2 GB, whatever the input is."""


@dataclasses.dataclass
class TrainVocabularies(beam.PTransform):
    """Trains vocabularies on a counts artifact.

    Input: one element of any value, once the artifact is finished. Output: one list of `train.Vocabulary` as
    JSON: each a `tokenizer.json` as text, with the truncation and padding of the config, and its training record.
    Memory: all distinct words of the artifact, on one worker. Deterministic: a function of the counts and the config.
    """

    config: TokenizerConfig
    counts: str
    """The folder of the artifact."""
    span_tokens: Sequence[str] = ()
    """Tokens of spans, special tokens like those of the config."""
    by: str | None = None
    labels: Sequence[str] = ()
    """As `train_vocabularies` takes both."""

    def expand(self, finished: Any) -> Any:  # noqa: D102
        step = beam.Map(_train, self).with_output_types(list[str])
        return finished | "Train" >> with_memory(step, finished.pipeline, _TRAINING_MEMORY)


def _train(_: Any, parameters: TrainVocabularies) -> list[str]:
    enter_stage(TRAINING_STAGE)
    watcher, counts = progress.current(), open_counts(parameters.counts)
    tell = functools.partial(watcher.measure, TRAINING_STAGE) if watcher is not None else None
    tokens, by, labels = tuple(parameters.span_tokens), parameters.by, parameters.labels
    vocabularies = train_vocabularies(counts, parameters.config, tokens, tell, by, labels)
    return [vocabulary.to_json() for vocabulary in vocabularies]
