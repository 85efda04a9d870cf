# SPDX-License-Identifier: Apache-2.0
"""An operation for Beam's `MLTransform`: trains a vocabulary when artifacts are written, uses it when they are read.

Beam's own `ComputeAndApplyVocabulary` needs TensorFlow, and its tokens are whole words.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.ml.transforms.base import ArtifactMode, MLTransformProvider
from apache_beam.pvalue import PCollection
from apache_beam.typehints import no_annotations

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.file import section
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.rows.arguments import checked
from tokenmill.pipeline.rows.tokenize import Tokenize
from tokenmill.pipeline.rows.vocabulary import CountWords, TrainVocabulary


class ComputeAndApplyTokenizer(MLTransformProvider):
    """Trains a vocabulary on columns of text, and replaces the texts by their ids.

        MLTransform(write_artifact_location=folder, transforms=[ComputeAndApplyTokenizer(["text"], vocab_size=8000)])
        MLTransform(read_artifact_location=folder)  # elsewhere and later, the same vocabulary

    The artifact is a `tokenizer.json`, which other libraries read too.
    """

    @checked
    def __init__(self, columns: Sequence[str], *, max_length: int | None = None, **train: Any) -> None:
        """Makes the operation.

        Args:
          columns: the fields with text; they share one vocabulary.
          max_length: at most this many ids for a text; None: no limit.
          **train: keys of the section `tokenizer.train` of a config.

        Raises:
          ValueError: if an option is not allowed; the message names it.
        """
        TrainVocabulary(**train)  # raises here what the pipeline would raise later
        truncation = None if max_length is None else {"max_length": max_length}
        section(TokenizerConfig, "tokenizer", {"truncation": truncation}, type(self).__name__)  # this, too
        self.columns = list(columns)
        self._options = {"max_length": max_length}
        self._train = train

    def get_ptransform_for_processing(self, **kwargs: Any) -> beam.PTransform:
        """Returns the step. Beam calls this, and stores the returned step with the artifact."""
        return _TrainAndTokenize(
            self.columns, self._options, self._train, kwargs["artifact_location"], kwargs["artifact_mode"]
        )


@dataclasses.dataclass
class _TrainAndTokenize(beam.PTransform):
    """The step. Its fields are plain types, because Beam writes them as JSON."""

    columns: list[str]
    options: dict[str, Any]
    train: dict[str, Any]
    artifact_location: str
    artifact_mode: str
    handling: dict[str, Any] | None = None
    """The arguments of `with_exception_handling`; None: what cannot be used is an error."""

    def with_exception_handling(self, **options: Any) -> beam.PTransform:
        return dataclasses.replace(self, handling=options)

    @no_annotations  # which do not know of a second output
    def expand(self, pcoll: PCollection[Any]) -> PCollection[Any] | tuple[PCollection[Any], PCollection[Any]]:
        path = storage.join(self.artifact_location, "tokenizer.json")
        source: Any = path
        if self.artifact_mode == ArtifactMode.PRODUCE:
            texts = [
                pcoll | f"Texts of {column}" >> beam.FlatMap(_text_of, column).with_output_types(str)
                for column in self.columns
            ]
            counts = texts | "All" >> beam.Flatten() | CountWords(train=self.train)
            source = counts | TrainVocabulary(**self.train)
            _ = source | "Save" >> beam.Map(_save, path)
        failed = []
        for column in self.columns:
            step = Tokenize(source, column=column, output=column, with_counts=False, **self.options)
            if self.handling is None:
                pcoll = pcoll | f"Tokenize {column}" >> step
            else:
                pcoll, bad = pcoll | f"Tokenize {column}" >> step.with_exception_handling(**self.handling)
                failed.append(bad)
        if self.handling is None:
            return pcoll
        # `MLTransform` wants what Beam's own steps give: (element, (type, message, stack)).
        return pcoll, failed | "Failed" >> beam.Flatten() | "AsBeamHasThem" >> beam.Map(_as_tuple)


def _as_tuple(letter: Any) -> tuple[Any, tuple[None, str, str]]:
    return letter.element, (None, letter.msg, letter.stack)


def _text_of(element: Any, column: str) -> list[str]:
    """Returns the text of an element in a list; an empty list if it has none, an error that `Tokenize` will report."""
    text = element.get(column) if isinstance(element, dict) else getattr(element, column, None)
    return [text] if isinstance(text, str) else []


def _save(tokenizer_json: str, path: str) -> None:
    storage.write_atomic(path, tokenizer_json.encode())
