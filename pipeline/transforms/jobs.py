# SPDX-License-Identifier: Apache-2.0
"""The jobs: each is a function that adds its graph to a pipeline. The caller runs the pipeline.

    plan = planning.plan_job("run", config)
    with ownership.own(config.output.path, "run") as lease:
        planning.prepare(plan, "new")
        with beam.Pipeline(runner, options=options) as pipeline:
            jobs.build(pipeline, dataclasses.replace(plan, lease=lease))

Only splits as JSON, ids, and one `tokenizer.json` for all workers go through Beam. Wherever and however often a step
runs, the output folder is the same, byte for byte: splits commit by rename, and the last step, which writes the
manifest, reads the ledger.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.combiners import CountCombineFn

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger, lists, manifest
from tokenmill.pipeline.books.job_books import JobBooks
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.planned import PlannedSplits
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.counting.finishing import PartitionCounts, delete_staged
from tokenmill.pipeline.jobs import finish, planning, totals
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.output.vocabulary_files import formats_of, write_file, write_vocabulary
from tokenmill.pipeline.shuffling.passes import plan_passes
from tokenmill.pipeline.shuffling.shards import PlannedShard, name_shards, plan_shards
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.training.train import Vocabulary
from tokenmill.pipeline.transforms.compiled import compiled_tokenizers, keep_compiled
from tokenmill.pipeline.transforms.counting import CountSplits, MergeCounts, TrainVocabularies
from tokenmill.pipeline.transforms.stages import call_once, enter_stage
from tokenmill.pipeline.transforms.tokenizing import (
    DigestRuns,
    FindMergedShards,
    MergeRuns,
    MergeShards,
    TokenizeSplits,
)
from tokenmill.tokenizer import Tokenizer


def build(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Adds the graph of `plan`; returns a PCollection with one element, the digest of the job, once it is done."""
    return {"count": count, "train": train, "tokenize": tokenize, "run": run}[plan.name](pipeline, plan)


def count(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Counts words: input -> counts/."""
    counted = _count(pipeline, plan)
    return counted | "Finish" >> beam.Map(_finish_counting, None, plan.job, plan.config, plan.lease)


def train(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Trains vocabularies: input -> counts/ -> vocab/, or from existing counts."""
    counted = _count(pipeline, plan)
    return counted | "Finish" >> beam.Map(
        _finish_counting, beam.pvalue.AsSingleton(_train(counted, plan)), plan.job, plan.config, plan.lease
    )


def tokenize(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Tokenizes with existing tokenizers: input -> shards."""
    texts = []
    for name, part in _with_own_tokenizer(plan).items():
        assert part.tokenizer is not None
        keep_compiled(part.tokenizer)  # for workers that live in this process
        texts.append(call_once(pipeline, f"Tokenizer{name}", storage.read_text, part.tokenizer_path))
    return _tokenize(pipeline, plan, texts)


def run(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Trains a vocabulary, or one for each part, and tokenizes, in one graph: input -> counts/ -> vocab/ -> shards."""
    counted = _count(pipeline, plan)
    vocabularies = _train(counted, plan)
    texts = [
        vocabularies | f"Tokenizer{name}" >> beam.Map(_tokenizer_of, part.config.trained_label).with_output_types(str)
        for name, part in _with_own_tokenizer(plan).items()
    ]
    return _tokenize(pipeline, plan, texts, counted, vocabularies)


def _train(counted: Any, plan: JobPlan) -> Any:
    config, folder = plan.config, plan.counts_given or plan.config.output.path
    labels = [part.config.trained_label for part in plan.folders.values()] if config.train_by and plan.tokenizes else ()
    train = TrainVocabularies(config.tokenizer, folder, config.text.tokens, config.train_by, labels)
    return counted | "TrainVocabularies" >> train


def _with_own_tokenizer(plan: JobPlan) -> dict[str, JobPlan]:
    """Returns the folders whose tokenizers are all that there are: all folders, or the first."""
    parts = plan.config.output.parts
    are_several = parts is not None and (parts.tokenizers or parts.train)
    return dict(itertools.islice(plan.folders.items(), None if are_several else 1))


def _tokenizer_of(vocabularies: Sequence[str], label: str) -> str:
    (text,) = (each.tokenizer_json for each in map(Vocabulary.from_json, vocabularies) if each.folder == label)
    return text


def _splits(pipeline: beam.Pipeline, label: str, read: Callable[[Any], Iterator[str]], paths: Any) -> Any:
    """Returns the splits of a plan as JSON, dealt out to all workers."""
    read_all = beam.FlatMap(_read, read, paths).with_output_types(str)
    start = pipeline | f"{label}Start" >> beam.Impulse()
    return start | f"{label}ReadPlan" >> read_all | f"{label}Spread" >> beam.Reshuffle()


def _read(_: bytes, read: Callable[[Any], Iterator[str]], paths: Any) -> Iterator[str]:
    return read(paths)


def _count(pipeline: beam.Pipeline, plan: JobPlan) -> Any:
    """Returns one list, the finished counts artifact as `PartitionCounts` in JSON; an earlier run may have made it.

    It is empty if a vocabulary is trained on counts of another folder.
    """
    finished = plan.finished_counts()
    if finished is None and plan.counting_json is None and plan.counts_given is None:
        raise ValueError(f"the job {plan.name} does not count words")
    if finished is not None or plan.counting_json is None:
        descriptors = [each.to_json() for each in finished or []]
        return pipeline | "FinishedCounts" >> beam.Create([descriptors]).with_output_types(list[str])
    config, output = plan.config, plan.config.output.path
    key, n = plan.count_key(plan.counting_json), plan.n_partitions
    counted = _splits(pipeline, "Count", planning.read_plan, plan.plan_path) | "CountSplits" >> CountSplits(
        config.input, output, plan.counting_json, config.counts, n, text=config.text
    )
    merge = MergeCounts(output, key, plan.counting_json, config.counts, n, input=config.input)
    return counted | "MergeCounts" >> merge


def _tokenize(
    pipeline: beam.Pipeline, plan: JobPlan, tokenizers: Sequence[Any], counted: Any = None, trained: Any = None
) -> Any:
    """Tokenizes into all folders, reading each split once; `tokenizers` are theirs, or one for all."""
    texts = [beam.pvalue.AsSingleton(text) for text in tokenizers]
    shuffled = [_Shuffle(pipeline, part, texts[0], name) for name, part in plan.folders.items() if part.shards()]
    merged = [(each.n_merged, each.n_shards) for each in shuffled]
    configs = [part.config for part in plan.folders.values()]
    transform = TokenizeSplits(plan.config.output.path, configs, len(plan.splits), texts, merged)
    splits = _splits(pipeline, "Tokenize", planning.read_splits, [part.plan_path for part in plan.folders.values()])
    done = splits | "TokenizeSplits" >> transform
    ends = done
    if shuffled:
        runs = [done | f"{each.name}Runs" >> beam.FlatMap(_of_folder, i) for i, each in enumerate(shuffled)]
        shards = [each.merge(of) for each, of in zip(shuffled, runs, strict=True)]
        ends = [of | f"{i}Shards" >> beam.Map(_with_folder, i) for i, of in enumerate(shards)]
        ends = ends | "AllShards" >> beam.Flatten()
    n_done = _number_of(ends, "CountDone")
    jobs = {name: (part.config, part.job) for name, part in plan.folders.items()}
    numbers: Any = None
    if max(len(plan.splits), *(each.n_shards for each in shuffled), 0) > (n := totals.PART_ENTRIES):
        kinds = {"splits": done, "shards": ends} if shuffled else {"splits": done}
        keyed = [of | f"Part{kind}" >> beam.Map(_by_part, kind, n) for kind, of in kinds.items()]
        add_up = beam.Map(_add_up_part, jobs, *texts).with_output_types(tuple[int, str])
        numbers = keyed | "AllParts" >> beam.Flatten() | beam.GroupByKey() | "AddUp" >> add_up
    # A job that does not train has no counts and vocabularies, which empty lists say.
    made: list[Any] = [beam.pvalue.AsSingleton(each) if each is not None else [] for each in (counted, trained)]
    made.append(beam.pvalue.AsList(numbers) if numbers is not None else None)
    side_inputs = n_done, *made, jobs, plan.config, plan.job, plan.lease
    return call_once(pipeline, "Finish", _finish_tokenizing, *side_inputs, *texts)


def _number_of(elements: Any, label: str) -> Any:
    """Returns a side input: how many elements there are. With `Count.Globally`, a graph has four more steps."""
    counted = beam.CombineGlobally(CountCombineFn()).without_defaults()
    return beam.pvalue.AsSingleton(elements | label >> counted, default_value=0)


def _finish_tokenizing(
    n_done: int,
    counted: Sequence[str],
    vocabularies: Sequence[str],
    added: Sequence[tuple[int, str]] | None,
    jobs: Mapping[str, tuple[Config, Job]],
    config: Config,
    job: Job,
    lease: Lease | None,
    *tokenizers: str,
) -> str:
    enter_stage(planning.FINISHING_STAGE)
    trained = {each.folder: dataclasses.replace(each, folder="") for each in map(Vocabulary.from_json, vocabularies)}
    todo: dict[str, finish.Folder] = {}
    n_planned = 0
    for i, ((name, (part, its_job)), tokenizer) in enumerate(
        zip(jobs.items(), compiled_tokenizers(tokenizers, len(jobs)), strict=True)
    ):
        splits = PlannedSplits(map(Split.from_json, planning.read_plan(storage.join(part.output.path, filenames.PLAN))))
        files = [_write_record(part.output.path, trained[part.trained_label])] if trained else []
        counts = None if added is None else {kind: added.count((i, kind)) for kind in ("splits", "shards")}
        todo[name] = finish.Folder(part, its_job, splits, tokenizer, files, counts)
        n_planned += len(plan_shards(part.output, len(splits), splits.n_bytes, its_job.digest)) or len(splits)
    if n_done != n_planned:
        kind = "splits" if config.output.shuffle is None else "shards"
        raise BooksError(f"{n_planned} {kind} were planned, and {n_done} are done")
    output = config.output.path
    finish.finish_job(config, job, todo, lease, _counts_files(counted, output))
    delete_staged(output)
    return job.digest


class _Shuffle:
    """The steps of a shuffle of one folder: its shards are named, those merged already found, the others merged."""

    def __init__(self, pipeline: beam.Pipeline, plan: JobPlan, text: Any, name: str = "") -> None:
        shards = plan.shards()
        self.name, self.n_shards = name, len(shards)
        self._plan, self._text = plan, text
        self._n_bytes = sum(shard.n_planned for shard in shards)
        named = beam.FlatMap(name_shards, self._n_bytes, plan.job.digest).with_output_types(PlannedShard)
        find = FindMergedShards(plan.config, plan.plan_path, text)
        found = (
            pipeline
            | f"{name}CountShards" >> beam.Create([len(shards)])  # only their number, to keep the graph small
            | f"{name}NameShards" >> named
            | f"{name}SpreadShards" >> beam.Reshuffle()
            | f"{name}FindMergedShards" >> find
        )
        self.n_merged = _number_of(found, f"{name}CountMerged")
        """How many shards an earlier run has merged."""

    def merge(self, runs: Any) -> Any:
        """Returns the ids of all shards, from `SplitRuns` of all splits as JSON."""
        config, salt = self._plan.config, self._plan.job.digest
        assert config.output.shuffle is not None
        digest = beam.pvalue.AsSingleton(runs | f"{self.name}DigestRuns" >> DigestRuns())
        splits = self._plan.splits
        for i, into in enumerate(plan_passes(len(splits), splits.n_work, config.output.shuffle.run_bytes)):
            runs = runs | f"{self.name}MergeRuns{i}" >> MergeRuns(config, into, self.n_merged, self.n_shards)
        merge = MergeShards(config, self._text, digest, self.n_shards, self._n_bytes, salt)
        return runs | f"{self.name}MergeShards" >> merge


def _of_folder(done: tuple[int, int, str, str], folder: int) -> Iterator[str]:
    if done[0] == folder:
        yield done[3]


def _with_folder(shard: tuple[int, str], folder: int) -> tuple[int, int, str, str]:
    return folder, *shard, ""


def _by_part(done: tuple[int, int, str, str], kind: str, n: int) -> tuple[tuple[int, str, int], tuple[int, str]]:
    folder, index, split_id, _ = done
    return (folder, kind, index // n), (index, split_id)


def _add_up_part(
    element: tuple[tuple[int, str, int], Iterable[tuple[int, str]]],
    jobs: Mapping[str, tuple[Config, Job]],
    *tokenizers: str,
) -> tuple[int, str]:
    enter_stage(planning.FINISHING_STAGE)
    (folder, kind, number), entries = element
    config, job = [*jobs.values()][folder]
    tokenizer = compiled_tokenizers(tokenizers, len(jobs))[folder]
    totals.add_up_part(config, job, tokenizer, kind, number, [split_id for _, split_id in sorted(entries)])
    return folder, kind


def _finish_counting(
    counted: Sequence[str], vocabularies: Sequence[str] | None, job: Job, config: Config, lease: Lease | None = None
) -> str:
    enter_stage(planning.FINISHING_STAGE)
    output = config.output.path
    files = _counts_files(counted, output)
    tokenizer = None
    for vocabulary in map(Vocabulary.from_json, vocabularies or ()):
        trained = Tokenizer.from_str(vocabulary.tokenizer_json)
        files += write_vocabulary(output, trained, formats_of(config), vocabulary.folder)
        files.append(_write_record(output, vocabulary))
        if not vocabulary.folder:
            tokenizer = {"digest": trained.digest, "vocab_size": trained.n_ids}
    listed = lists.Lists(output)
    built = manifest.build(job, manifest.sums(JobBooks(listed.take)), listed.finish(), tokenizer=tokenizer, files=files)
    folders.publish(output, job, built, lease=lease)
    delete_staged(output)
    return job.digest


def _write_record(output: str, vocabulary: Vocabulary) -> FileRecord:
    folder = f"{filenames.VOCABULARY}/{vocabulary.folder}" if vocabulary.folder else filenames.VOCABULARY
    return write_file(output, f"{folder}/{filenames.TRAINING_NAME}", ledger.to_json(vocabulary.record))


def _counts_files(counted: Sequence[str], output: str) -> list[FileRecord]:
    if not counted:
        return []
    files = [PartitionCounts.from_json(text).file for text in counted]
    names = counts.REPORT_NAME, counts.ALPHABET_NAME, filenames.list_name("counted")
    return [*files, *(ledger.describe(output, name) for name in names if storage.exists(storage.join(output, name)))]
