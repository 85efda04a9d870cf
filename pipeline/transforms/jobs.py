# SPDX-License-Identifier: Apache-2.0
"""The jobs as Beam graphs. The caller prepares the folder and runs the pipeline.

    plan = planning.plan_job("run", config)
    with ownership.own(config.output.path, "run") as lease:
        planning.prepare(plan, "new")
        with beam.Pipeline(runner, options=options) as pipeline:
            jobs.build(pipeline, dataclasses.replace(plan, lease=lease))

`elements` lists what flows between the steps. Wherever and however often a step runs, the output folder is the same,
byte for byte: splits commit by rename, and the last step, which writes the manifest, reads the ledger.
"""

from collections.abc import Sequence

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from tokenmill.pipeline import storage
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.training.train import Vocabulary
from tokenmill.pipeline.transforms.counting import CountCorpus, TrainVocabulary
from tokenmill.pipeline.transforms.publishing import Publish
from tokenmill.pipeline.transforms.stages import call_once, keep_compiled
from tokenmill.pipeline.transforms.tokenizing import TokenizeCorpus


def build(pipeline: beam.Pipeline, plan: JobPlan) -> PCollection[str]:
    """Adds the graph of `plan`; returns a PCollection with one element, the digest of the job, once it is done."""
    return pipeline | "Publish" >> work(pipeline, plan)


def work(pipeline: beam.Pipeline, plan: JobPlan) -> Publish:
    """Adds the graph of `plan` but for its last step, which it returns: a sample is not published."""
    return {"count": count, "train": train, "tokenize": tokenize, "run": run}[plan.name](pipeline, plan)


def count(pipeline: beam.Pipeline, plan: JobPlan) -> Publish:
    """Counts words: input -> counts/."""
    counted = pipeline | "CountCorpus" >> CountCorpus(plan)
    return Publish(plan, counted=counted)


def train(pipeline: beam.Pipeline, plan: JobPlan) -> Publish:
    """Trains vocabularies: input -> counts/ -> vocab/, or from existing counts."""
    counted = pipeline | "CountCorpus" >> CountCorpus(plan)
    vocabularies = counted | "TrainVocabulary" >> TrainVocabulary(plan)
    return Publish(plan, counted=counted, vocabularies=vocabularies)


def tokenize(pipeline: beam.Pipeline, plan: JobPlan) -> Publish:
    """Tokenizes with existing tokenizers: input -> shards."""
    tokenizers = _given(pipeline, plan)
    tokenized = pipeline | "TokenizeCorpus" >> TokenizeCorpus(plan, tokenizers)
    return Publish(plan, tokenized, tokenizers)


def run(pipeline: beam.Pipeline, plan: JobPlan) -> Publish:
    """Trains a vocabulary, or one for each part, and tokenizes, in one graph: input -> counts/ -> shards, vocab/.

    A run that goes on trains again, from the same counts to the same vocabulary; `Publish` writes it.
    """
    counted = pipeline | "CountCorpus" >> CountCorpus(plan)
    vocabularies = counted | "TrainVocabulary" >> TrainVocabulary(plan)
    tokenizers = _trained(vocabularies, plan)
    tokenized = pipeline | "TokenizeCorpus" >> TokenizeCorpus(plan, tokenizers)
    return Publish(plan, tokenized, tokenizers, counted, vocabularies)


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
    steps = {name: beam.Map(_text_of, label, plan.is_sample).with_output_types(str) for name, label in labels.items()}
    return [AsSingleton(vocabularies | f"Tokenizer{name}" >> step) for name, step in steps.items()]


def _text_of(vocabularies: Sequence[Vocabulary], label: str, is_sample: bool) -> str:
    texts = {each.folder: each.tokenizer_json for each in vocabularies}
    if not texts:
        raise ValueError("there are no words to train on")
    # Nothing is known of a language that a sample lacks, but that it is rare; a tokenizer of another stands in.
    return texts[label] if not is_sample else texts.get(label, vocabularies[0].tokenizer_json)
