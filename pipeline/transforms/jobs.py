# SPDX-License-Identifier: Apache-2.0
"""The jobs as Beam graphs, and as text. The caller prepares the folder and runs the pipeline.

    plan = planning.plan_job("run", config)
    with ownership.own(config.output.path, "run") as lease:
        planning.prepare(plan, "new")
        with beam.Pipeline(runner, options=options) as pipeline:
            jobs.build(pipeline, dataclasses.replace(plan, lease=lease))

`elements` lists what flows between the steps. Wherever and however often a step runs, the output folder is the same,
byte for byte: splits commit by rename, and the last step, which writes the manifest, reads the ledger.
"""

import re
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.pvalue import AsSingleton, PCollection

from tokenmill.pipeline import storage
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.training.train import Vocabulary
from tokenmill.pipeline.transforms.counting import CountCorpus, TrainVocabulary
from tokenmill.pipeline.transforms.publishing import Publish
from tokenmill.pipeline.transforms.stages import call_once, keep_compiled
from tokenmill.pipeline.transforms.tokenizing import TokenizeCorpus

_PACKAGE = __name__.rpartition(".")[0]


def build(pipeline: beam.Pipeline, plan: JobPlan) -> PCollection[str]:
    """Adds the graph of `plan`; returns a PCollection with one element, the digest of the job, once it is done."""
    return {"count": count, "train": train, "tokenize": tokenize, "run": run}[plan.name](pipeline, plan)


def count(pipeline: beam.Pipeline, plan: JobPlan) -> PCollection[str]:
    """Counts words: input -> counts/."""
    counted = pipeline | "CountCorpus" >> CountCorpus(plan)
    return pipeline | "Publish" >> Publish(plan, counted=counted)


def train(pipeline: beam.Pipeline, plan: JobPlan) -> PCollection[str]:
    """Trains vocabularies: input -> counts/ -> vocab/, or from existing counts."""
    counted = pipeline | "CountCorpus" >> CountCorpus(plan)
    vocabularies = counted | "TrainVocabulary" >> TrainVocabulary(plan)
    return pipeline | "Publish" >> Publish(plan, counted=counted, vocabularies=vocabularies)


def tokenize(pipeline: beam.Pipeline, plan: JobPlan) -> PCollection[str]:
    """Tokenizes with existing tokenizers: input -> shards."""
    texts = _given(pipeline, plan)
    done = pipeline | "TokenizeCorpus" >> TokenizeCorpus(plan, texts)
    return pipeline | "Publish" >> Publish(plan, done, texts)


def run(pipeline: beam.Pipeline, plan: JobPlan) -> PCollection[str]:
    """Trains a vocabulary, or one for each part, and tokenizes, in one graph: input -> counts/ -> shards, vocab/.

    A run that goes on trains again, from the same counts to the same vocabulary; `Publish` writes it.
    """
    counted = pipeline | "CountCorpus" >> CountCorpus(plan)
    vocabularies = counted | "TrainVocabulary" >> TrainVocabulary(plan)
    texts = _trained(vocabularies, plan)
    done = pipeline | "TokenizeCorpus" >> TokenizeCorpus(plan, texts)
    return pipeline | "Publish" >> Publish(plan, done, texts, counted, vocabularies)


def _given(pipeline: beam.Pipeline, plan: JobPlan) -> list[AsSingleton]:
    """Returns the existing tokenizer of each folder, or one for all: the text that `planning.prepare` wrote."""
    texts = []
    for name, folder in plan.with_own_tokenizer.items():
        assert folder.tokenizer is not None
        keep_compiled(folder.tokenizer)  # for workers that live in this process
        text = call_once(pipeline, f"Tokenizer{name}", storage.read_text, folder.tokenizer_path, kind=str)
        texts.append(AsSingleton(text))
    return texts


def _trained(vocabularies: PCollection[list[Vocabulary]], plan: JobPlan) -> list[AsSingleton]:
    """Returns the trained tokenizer of each folder, or one for all."""
    labels = {name: folder.config.trained_label for name, folder in plan.with_own_tokenizer.items()}
    steps = {name: beam.Map(_text_of, label).with_output_types(str) for name, label in labels.items()}
    return [AsSingleton(vocabularies | f"Tokenizer{name}" >> step) for name, step in steps.items()]


def _text_of(vocabularies: Sequence[Vocabulary], label: str) -> str:
    (text,) = (each.tokenizer_json for each in vocabularies if each.folder == label)
    return text


def outline(plan: JobPlan) -> list[str]:
    """Returns a line for each step of a job, inside its composite, with the elements that it gives."""
    pipeline = beam.Pipeline(runner="FnApiRunner")  # which builds the graph and runs nothing
    build(pipeline, plan)
    found = _Outline()
    pipeline.visit(found)
    return found.lines


class _Outline(PipelineVisitor):
    """Collects the lines; what is inside of Beam's own composites, such as Reshuffle, is left out."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._n_foreign = 0

    def enter_composite_transform(self, node: AppliedPTransform) -> None:
        if node.full_label:
            self.visit_transform(node)
        self._n_foreign += _is_foreign(node)

    def leave_composite_transform(self, node: AppliedPTransform) -> None:
        self._n_foreign -= _is_foreign(node)

    def visit_transform(self, node: AppliedPTransform) -> None:
        if not self._n_foreign:
            self.lines.append(_line(node))


def _is_foreign(node: AppliedPTransform) -> bool:
    return node.transform is not None and not type(node.transform).__module__.startswith(_PACKAGE)


def _line(node: AppliedPTransform) -> str:
    *above, name = node.full_label.split("/")
    made = ", ".join(dict.fromkeys(_shown(each.element_type) for each in node.outputs.values()))
    return f"{'  ' * len(above)}{name}{f' -> {made}' if made else ''}"


def _shown(kind: object) -> str:
    """Returns the name of a type, without the modules that it and its arguments are from."""
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", name).replace("List[", "list[").replace("Tuple[", "tuple[")
