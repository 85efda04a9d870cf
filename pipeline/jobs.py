# SPDX-License-Identifier: Apache-2.0
"""The jobs, each a function that adds its graph to a pipeline. They build; whoever calls them runs.

    plan = planning.plan_job("run", config)
    planning.prepare(plan, "new")
    with beam.Pipeline(runner, options=options) as pipeline:
        jobs.build(pipeline, plan)

What crosses the runner are splits as JSON, ids, and one `tokenizer.json`. Whatever runs where and how often, the output
folder is the same to the byte: splits commit by rename, and the last step, which writes the manifest, reads the ledger.
"""

from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from pipeline import counting, ledger, manifest, planning, progress, tokenizing
from pipeline.counting import PartitionCounts
from pipeline.ledger import BooksError, FileRecord
from pipeline.planning import JobPlan
from pipeline.splits import Split
from pipeline.transforms import CountSplits, MergeCounts, TokenizeSplits, TrainVocabulary, compiled_tokenizer
from tokenizer import Tokenizer


def build(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Adds the graph of `plan`; returns a PCollection with one element, the digest of the job, once it is done."""
    return {"count": count, "train": train, "tokenize": tokenize, "run": run}[plan.name](pipeline, plan)


def count(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Counts words: input -> counts/."""
    counts = _count(pipeline, plan)
    return counts | "Finish" >> beam.Map(_finish_counting, None, plan.job, plan.config.output.path)


def train(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Trains a vocabulary: input -> counts/ -> vocab/."""
    counts = _count(pipeline, plan)
    tokenizer = counts | "TrainVocabulary" >> TrainVocabulary(plan.config.tokenizer, plan.config.output.path)
    return counts | "Finish" >> beam.Map(
        _finish_counting, beam.pvalue.AsSingleton(tokenizer), plan.job, plan.config.output.path
    )


def tokenize(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Tokenizes with a tokenizer that exists: input -> shards."""
    tokenizer = pipeline | "Tokenizer" >> beam.Create([plan.tokenizer_json]).with_output_types(str)
    return _tokenize(pipeline, plan, tokenizer, None)


def run(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Trains a vocabulary and tokenizes with it, in one graph: input -> counts/ -> vocab/ -> shards."""
    counts = _count(pipeline, plan)
    tokenizer = counts | "TrainVocabulary" >> TrainVocabulary(plan.config.tokenizer, plan.config.output.path)
    return _tokenize(pipeline, plan, tokenizer, counts)


def _splits(pipeline: beam.Pipeline, plan: JobPlan, label: str) -> Any:
    """Returns the splits of the plan as JSON, dealt out to all workers."""
    return (
        pipeline
        | f"{label}Plan" >> beam.Create([plan.plan_path])
        | f"{label}ReadPlan" >> beam.FlatMap(planning.read_plan).with_output_types(str)
        | f"{label}Spread" >> beam.Reshuffle()
    )


def _count(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Returns one list, the finished counts artifact as `PartitionCounts` in JSON; an earlier run may have made it."""
    finished = plan.finished_counts()
    if finished is not None:
        descriptors = [counts.to_json() for counts in finished]
        return pipeline | "FinishedCounts" >> beam.Create([descriptors]).with_output_types(list[str])
    if plan.counting_json is None:
        raise ValueError(f"the job {plan.name} does not count words")
    output = plan.config.output.path
    key = counting.count_key(plan.config.input, plan.counting_json)
    counts = _splits(pipeline, plan, "Count") | "CountSplits" >> CountSplits(
        plan.config.input, output, plan.counting_json
    )
    return counts | "MergeCounts" >> MergeCounts(output, key)


def _tokenize(pipeline: beam.Pipeline, plan: JobPlan, tokenizer: Any, counts: Any) -> Any:
    ids = _splits(pipeline, plan, "Tokenize") | "TokenizeSplits" >> TokenizeSplits(
        plan.config, len(plan.splits), beam.pvalue.AsSingleton(tokenizer)
    )
    # A job that has not trained has no counts: an empty list says so.
    partitions: Any = beam.pvalue.AsSingleton(counts) if counts is not None else []
    return (
        pipeline
        | "Once" >> beam.Create([plan.plan_path])
        | "Finish"
        >> beam.Map(
            _finish_tokenizing,
            beam.pvalue.AsList(ids),
            beam.pvalue.AsSingleton(tokenizer),
            partitions,
            plan.config,
            plan.job,
        ).with_output_types(str)
    )


def _finish_tokenizing(
    plan_path: str, ids: Sequence[str], tokenizer_json: str, partitions: Sequence[str], config: Any, job: manifest.Job
) -> str:
    _enter_finishing()
    splits = sorted(map(Split.from_json, planning.read_plan(plan_path)), key=lambda split: split.index)
    if sorted(ids) != sorted(split.id for split in splits):
        raise BooksError(f"{len(splits)} splits were planned, and the {len(ids)} that are done are not these")
    output = config.output.path
    files = _counts_files(partitions, output)
    tokenizing.finish_output(config, job, splits, compiled_tokenizer(tokenizer_json), files=files)
    counting.delete_staged(output)
    return job.digest


def _finish_counting(partitions: Sequence[str], tokenizer_json: str | None, job: manifest.Job, output: str) -> str:
    _enter_finishing()
    files = _counts_files(partitions, output)
    tokenizer = None
    if tokenizer_json is not None:
        trained = Tokenizer.from_str(tokenizer_json)
        files += tokenizing.write_vocabulary(output, trained)
        tokenizer = {"digest": trained.digest, "vocab_size": trained.n_ids}
    manifest.publish(output, job, [], manifest.build(job, [], [], tokenizer=tokenizer, files=files))
    counting.delete_staged(output)
    return job.digest


def _counts_files(partitions: Sequence[str], output: str) -> list[FileRecord]:
    if not partitions:
        return []
    files = [PartitionCounts.from_json(text).file for text in partitions]
    return [*files, ledger.describe(output, counting.TOTALS_NAME)]


def _enter_finishing() -> None:
    watcher = progress.current()
    if watcher is not None:
        watcher.enter(planning.FINISHING_STAGE)
