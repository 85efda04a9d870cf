# SPDX-License-Identifier: Apache-2.0
"""`Publish`, the last step of every job: it finishes the output folder, and writes the manifest last.

    Done --CountDone, and AddUp of many-------+
    folder of the counts, list[Vocabulary] ---+--> Publish --digest of the job-->

All that it waits for comes as side inputs, so it runs once, when everything is committed.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PBegin, PCollection

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger, lists, manifest
from tokenmill.pipeline.books.job_books import JobBooks, PlannedSplits
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.jobs import finish, planning
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.output.vocabulary_files import formats_of, vocabulary_files, write_file
from tokenmill.pipeline.shuffling import plan_shards
from tokenmill.pipeline.training.train import Vocabulary
from tokenmill.pipeline.transforms.elements import Done
from tokenmill.pipeline.transforms.stages import call_once, compiled_tokenizers, enter_stage, number_of
from tokenmill.tokenizer import Tokenizer

_Jobs = Mapping[str, tuple[Config, Job]]
_PartKey = tuple[int, str, int]
"""A folder, "splits" or "shards", and the number of the part."""


@dataclasses.dataclass(eq=False)
class Publish(beam.PTransform):
    """Finishes the output folder of a job. Input: a pipeline. Output: one element, the digest of the job."""

    plan: JobPlan
    tokenized: Mapping[str, PCollection[Any]] | None = None
    """What is committed, as `TokenizeCorpus` returns it; None: the job does not tokenize."""
    texts: Sequence[AsSingleton] = ()
    """The tokenizers of the folders, or one for all."""
    counted: PCollection[str] | None = None
    """The folder of the counts artifact."""
    vocabularies: PCollection[list[Vocabulary]] | None = None

    def expand(self, begin: PBegin) -> PCollection[str]:  # noqa: D102
        plan, pipeline, made = self.plan, begin.pipeline, (self.counted, self.vocabularies)
        counted, vocabularies = (AsSingleton(each) if each is not None else None for each in made)
        if self.tokenized is None:
            finishing = _finish_counting, counted, vocabularies, plan.job, plan.config, plan.lease
            return call_once(pipeline, "Finish", *finishing, kind=str)
        n_done = number_of([*self.tokenized.values()][-1], "CountDone")  # the shards of a shuffle, else the splits
        jobs = {name: (each.config, each.job) for name, each in plan.folders.items()}
        done = n_done, counted, vocabularies, self._added_up(jobs, self.tokenized)
        whole = jobs, plan.config, plan.job, plan.lease
        return call_once(pipeline, "Finish", _finish_tokenizing, *done, *whole, *self.texts, kind=str)

    def _added_up(self, jobs: _Jobs, tokenized: Mapping[str, PCollection[Any]]) -> AsList | None:
        """Returns a side input: folder and kind of each part of the ledger that workers add up; None: there are few.

        Parts are added up in the order of the plan, which a CombineFn could not promise, and two results depend on it.
        The lists of the manifest are in that order. And of more than `MAX_OOV_WORDS` words with an unknown token the
        rarest are dropped, each time that many are held. No bound is free of the order and keeps the frequent ones,
        which are what the list is for: how frequent a word is only the whole sum tells, and a rule that need not know
        it, such as one by a hash, drops the most frequent word as often as the rarest.
        """
        plan, n = self.plan, finish.PART_ENTRIES
        if max(len(plan.splits), len(plan.shards())) <= n:
            return None
        keyed = [
            done | f"Part{kind}" >> beam.Map(_by_part, kind, n).with_output_types(tuple[_PartKey, Done])
            for kind, done in tokenized.items()
        ]
        add_up = beam.Map(_add_up_part, jobs, *self.texts).with_output_types(tuple[int, str])
        return AsList(keyed | "AllParts" >> beam.Flatten() | beam.GroupByKey() | "AddUp" >> add_up)


def _by_part(done: Done | SplitRuns, kind: str, n: int) -> tuple[_PartKey, Done]:
    name = done.id if isinstance(done, Done) else done.split_id
    return (done.folder, kind, done.index // n), Done(done.folder, done.index, name)


def _add_up_part(element: tuple[_PartKey, Iterable[Done]], jobs: _Jobs, *tokenizers: str) -> tuple[int, str]:
    enter_stage(planning.FINISHING_STAGE)
    (folder, kind, number), entries = element
    config, job = [*jobs.values()][folder]
    tokenizer = compiled_tokenizers(tokenizers, len(jobs))[folder]
    ids = [each.id for each in sorted(entries, key=lambda done: done.index)]
    finish.add_up_part(config, job, tokenizer, kind, number, ids)
    return folder, kind


def _finish_tokenizing(
    n_done: int,
    counted: str | None,
    vocabularies: Sequence[Vocabulary] | None,
    added: Sequence[tuple[int, str]] | None,
    jobs: _Jobs,
    config: Config,
    job: Job,
    lease: Lease | None,
    *tokenizers: str,
) -> str:
    enter_stage(planning.FINISHING_STAGE)
    trained = {each.folder: dataclasses.replace(each, folder="") for each in vocabularies or ()}
    todo: dict[str, finish.Folder] = {}
    n_planned = 0
    for i, ((name, (part, its_job)), tokenizer) in enumerate(
        zip(jobs.items(), compiled_tokenizers(tokenizers, len(jobs)), strict=True)
    ):
        planned = planning.read_plan(storage.join(config.output.path, filenames.PLAN))
        splits = PlannedSplits(split.renamed(its_job.digest) if i else split for split in planned)
        files = [_write_record(part.output.path, trained[part.trained_label])] if trained else []
        counts = None if added is None else {kind: added.count((i, kind)) for kind in ("splits", "shards")}
        todo[name] = finish.Folder(part, its_job, splits, tokenizer, files, counts)
        n_planned += len(plan_shards(part.output, splits, its_job.digest)) or len(splits)
    if n_done != n_planned:
        kind = "splits" if config.output.shuffle is None else "shards"
        raise BooksError(f"{n_planned} {kind} were planned, and {n_done} are done")
    output = config.output.path
    finish.finish_job(config, job, todo, lease, _counts_files(counted, output))
    return job.digest


def _finish_counting(
    counted: str | None,
    vocabularies: Sequence[Vocabulary] | None,
    job: Job,
    config: Config,
    lease: Lease | None,
) -> str:
    enter_stage(planning.FINISHING_STAGE)
    output = config.output.path
    files = _counts_files(counted, output)
    tokenizer = None
    for vocabulary in vocabularies or ():
        trained = Tokenizer.from_str(vocabulary.tokenizer_json)
        written = vocabulary_files(trained, formats_of(config), vocabulary.folder)
        files += [write_file(output, name, data) for name, data in written.items()]
        files.append(_write_record(output, vocabulary))
        if not vocabulary.folder:
            tokenizer = {"digest": trained.digest, "vocab_size": trained.n_ids}
    listed = lists.Lists(output)
    built = manifest.build(job, manifest.sums(JobBooks(listed.take)), listed.finish(), tokenizer=tokenizer, files=files)
    folders.publish(output, job, built, lease=lease)
    return job.digest


def _write_record(output: str, vocabulary: Vocabulary) -> FileRecord:
    folder = f"{filenames.VOCABULARY}/{vocabulary.folder}" if vocabulary.folder else filenames.VOCABULARY
    return write_file(output, f"{folder}/{filenames.TRAINING_NAME}", ledger.to_json(vocabulary.record))


def _counts_files(counted: str | None, output: str) -> list[FileRecord]:
    if counted != output:  # none, or those of another folder
        return []
    names = counts.REPORT_NAME, counts.ALPHABET_NAME, filenames.list_name("counted")
    found = (ledger.describe(output, name) for name in names if storage.exists(storage.join(output, name)))
    return [*counts.open_counts(output).files, *found]
