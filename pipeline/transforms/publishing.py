# SPDX-License-Identifier: Apache-2.0
"""`Publish`, the last step of every job: it finishes the output folder, and writes the manifest last.

All that it waits for comes as side inputs, so it runs once, when everything is committed.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton, PBegin, PCollection

from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs import finish, planning
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.training.train import Vocabulary
from tokenmill.pipeline.transforms.elements import Done
from tokenmill.pipeline.transforms.stages import Number, call_once, compiled_tokenizers, enter_stage
from tokenmill.pipeline.transforms.tokenizing import Tokenized

_Jobs = Mapping[str, tuple[Config, Job]]
_Chunk = tuple[int, str, int]
"""A folder, "splits" or "shards", and the number of some entries of its ledger that are added up together."""


@dataclasses.dataclass(eq=False)
class Publish(beam.PTransform):
    """Finishes the output folder of a job. Input: a pipeline. Output: one element, the digest of the job."""

    plan: JobPlan
    tokenized: Tokenized | None = None
    """What is committed; None: the job does not tokenize."""
    tokenizers: Sequence[AsSingleton] = ()
    """Those of the folders, or one for all, as text."""
    counted: PCollection[str] | None = None
    """The folder of the counts artifact."""
    vocabularies: PCollection[list[Vocabulary]] | None = None

    def expand(self, begin: PBegin) -> PCollection[str]:  # noqa: D102
        plan, pipeline, made = self.plan, begin.pipeline, (self.counted, self.vocabularies)
        counted, vocabularies = (AsSingleton(each) if each is not None else None for each in made)
        if self.tokenized is None:
            finishing = _finish_counting, counted, vocabularies, plan.job, plan.config, plan.lease
            return call_once(pipeline, "Finish", *finishing, kind=str)
        n_done = AsSingleton((self.tokenized.shards or self.tokenized.splits) | "NumberDone" >> Number(), 0)
        jobs = {name: (each.config, each.job) for name, each in plan.folders.items()}
        done = n_done, counted, vocabularies, self._added_up(jobs, self.tokenized)
        whole = jobs, plan.config, plan.job, plan.lease
        return call_once(pipeline, "Finish", _finish_tokenizing, *done, *whole, *self.tokenizers, kind=str)

    def _added_up(self, jobs: _Jobs, tokenized: Tokenized) -> AsList | None:
        """Returns a side input: folder and kind of each chunk of the ledger that workers add up; None: there are few.

        Chunks are added up in the order of the plan, which a CombineFn could not promise, and two results depend on it.
        The lists of the manifest are in that order. And of more than `MAX_OOV_WORDS` words with an unknown token the
        rarest are dropped, each time that many are held. No bound is free of the order and keeps the frequent ones,
        which are what the list is for: how frequent a word is only the whole sum tells, and a rule that need not know
        it, such as one by a hash, drops the most frequent word as often as the rarest.
        """
        plan, n = self.plan, finish.CHUNK_ENTRIES
        if max(len(plan.splits), len(plan.shards())) <= n:
            return None
        keyed = [
            done | f"Chunk{kind}" >> beam.Map(_by_chunk, kind, n).with_output_types(tuple[_Chunk, Done])
            for kind, done in tokenized._asdict().items()
            if done is not None
        ]
        add_up = beam.Map(_add_up_chunk, jobs, *self.tokenizers).with_output_types(tuple[int, str])
        chunks = keyed | "AllChunks" >> beam.Flatten().with_output_types(tuple[_Chunk, Done])
        return AsList(chunks | beam.GroupByKey() | "AddUp" >> add_up)


def _by_chunk(done: Done | SplitRuns, kind: str, n: int) -> tuple[_Chunk, Done]:
    name = done.id if isinstance(done, Done) else done.split_id
    return (done.folder, kind, done.index // n), Done(done.folder, done.index, name)


def _add_up_chunk(element: tuple[_Chunk, Iterable[Done]], jobs: _Jobs, *tokenizers: str) -> tuple[int, str]:
    enter_stage(planning.FINISHING_STAGE)
    (folder, kind, number), entries = element
    config, job = [*jobs.values()][folder]
    tokenizer = compiled_tokenizers(tokenizers, len(jobs))[folder]
    ids = [each.id for each in sorted(entries, key=lambda done: done.index)]
    finish.add_up_chunk(config, job, tokenizer, kind, number, ids)
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
    opened = compiled_tokenizers(tokenizers, len(jobs))
    folders = finish.folders_of(config, jobs, opened, vocabularies or (), added)
    finish.finish_job(config, job, folders, n_done, lease, counted)
    return job.digest


def _finish_counting(
    counted: str | None, vocabularies: Sequence[Vocabulary] | None, job: Job, config: Config, lease: Lease | None
) -> str:
    enter_stage(planning.FINISHING_STAGE)
    finish.finish_counting(config, job, counted, vocabularies or (), lease)
    return job.digest
