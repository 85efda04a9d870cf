# SPDX-License-Identifier: Apache-2.0
"""The steps for Beam YAML: `tokenmill.yaml` in this folder maps `Tokenize` to `tokenize`, and so on.

The keys of `config` are the arguments of the steps in Python; `error_handling: {output: NAME}` works as for Beam's own.
"""

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection, Row
from apache_beam.typehints import no_annotations
from apache_beam.typehints.row_type import RowTypeConstraint

from tokenmill.pipeline.rows.corpus import ReadCorpus
from tokenmill.pipeline.rows.errors import Results
from tokenmill.pipeline.rows.shards import WriteShards
from tokenmill.pipeline.rows.texts import IdentifyLanguage, Normalize, RenderChat
from tokenmill.pipeline.rows.tokenize import Detokenize, Tokenize
from tokenmill.pipeline.rows.vocabulary import CountWords, TrainVocabulary, VocabularyStatistics


def _step(step: type[beam.PTransform], finish: Callable[[Any], Any] | None = None) -> Callable[..., beam.PTransform]:
    """Returns the function that makes a step from a `config`; `finish`, if given, turns the step's output into rows."""

    def make(*, error_handling: Mapping[str, Any] | None = None, **config: Any) -> beam.PTransform:
        made: Any = step(**config)
        if error_handling is not None:
            options = dict(error_handling)
            if (bad := options.pop("output", None)) is None or options.keys() & {"main_tag", "dead_letter_tag"}:
                raise ValueError(
                    f"{step.__name__}: error_handling {dict(error_handling)}: needs output, the name of the second "
                    "output, and takes threshold and such, but no other names of outputs"
                )
            handled = made.with_exception_handling(dead_letter_tag=bad, **options)
            return _Finished(handled, lambda got: _named(got, bad, finish))
        return made if finish is None else _Finished(made, finish)

    # Beam learns the allowed keys from the signature.
    parameters = []
    for each in list(inspect.signature(step.__init__).parameters.values())[1:]:
        kind = each.kind if each.kind is inspect.Parameter.VAR_KEYWORD else inspect.Parameter.KEYWORD_ONLY
        parameters.append(each.replace(kind=kind, annotation=inspect.Parameter.empty))
    make.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    make.__doc__ = step.__doc__
    return make


class _Finished(beam.PTransform):
    def __init__(self, step: beam.PTransform, finish: Callable[[Any], Any]) -> None:
        super().__init__()
        self._step = step
        self._finish = finish

    @no_annotations  # which do not know of a second output
    def expand(self, pcoll: PCollection[Any]) -> Results | dict[str, PCollection[Any]]:
        return self._finish(pcoll | self._step)


def _named(outputs: Any, bad: str, finish: Callable[[Any], Any] | None) -> dict[str, Any]:
    return {"good": outputs.good if finish is None else finish(outputs.good), bad: outputs[bad]}


def _as_rows(results: PCollection[Any], name: str) -> PCollection[Row]:
    """Returns rows with one field, of results that are texts, or of JSON."""
    made = RowTypeConstraint.from_fields([(name, str)])
    return results | "AsRow" >> beam.Map(_as_row, name).with_output_types(made)


def _as_row(result: Any, name: str) -> Row:
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, sort_keys=True)
    return Row(**{name: text})


read_corpus = _step(ReadCorpus)
normalize = _step(Normalize)
identify_language = _step(IdentifyLanguage)
render_chat = _step(RenderChat)
tokenize = _step(Tokenize)
detokenize = _step(Detokenize)
count_words = _step(CountWords)
train_vocabulary = _step(TrainVocabulary, functools.partial(_as_rows, name="tokenizer_json"))
vocabulary_statistics = _step(VocabularyStatistics, functools.partial(_as_rows, name="statistics_json"))
write_shards = _step(WriteShards)
