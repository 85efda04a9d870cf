# SPDX-License-Identifier: Apache-2.0
"""From the plan of a job to committed shards: `ReadSplits`, then the steps of every folder, all in one fused stage.

    Impulse > ReadPlan > Spread > FindCommitted --committed: Done ------------------------------+
                         Split         |                                                        |
                                       v Todo                                                   v
                                   ReadPages > Normalize > Encode > Count > WriteShards --> Flatten > Done
                                         Page        Page     Page    Page

Five rules keep these steps in one stage, and a split whole:

1. Pages are never encoded: `elements.FusedCoder` refuses, and tells a runner their size.
2. Only `FindCommitted` has side inputs, and no step has state, timers or hints: on Flink and Spark each of these begins
   a new stage.
3. Pages of a split are numbered. Beam does not promise their order, so a step that misses one fails.
4. A step does not hear of an error behind or before it. What `WriteShards` has staged is removed before its next
   bundle, or when its worker is done with it; `jobs.planning.prepare` removes what a killed worker leaves.
5. Statistics travel with the pages, by reference, and are committed with the shard.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import AsSingleton, PBegin, PCollection, TaggedOutput
from apache_beam.typehints import no_annotations

from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.shard_entry import runs_of
from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.jobs.planning import TOKENIZING_STAGE, JobPlan, read_plan
from tokenmill.pipeline.running.clock import Stopwatch
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.pages import Page, Step, Work, read_pages
from tokenmill.pipeline.tokenizing.steps import STEPS
from tokenmill.pipeline.tokenizing.writing import SplitWriter, load_committed
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizers
from tokenmill.pipeline.transforms.elements import Done, Todo
from tokenmill.pipeline.transforms.shuffling import FindMergedShards, MergeShards
from tokenmill.pipeline.transforms.stages import Meter, number_of

PAGES = "pages"
_Of = TypeVar("_Of")


class Tokenized(NamedTuple):
    """What is committed of each folder, in the order of `JobPlan.folders`."""

    splits: "tuple[PCollection[Done | SplitRuns], ...]"
    """Every split: its shard, or its runs if the job shuffles."""
    shards: tuple[PCollection[Done], ...]
    """Every merged shard; empty if the job does not shuffle."""

    @property
    def ends(self) -> tuple[PCollection[Any], ...]:
        """What is committed last."""
        return self.shards or self.splits


class TokenizeCorpus(beam.PTransform):
    """Tokenizes all splits of a plan, each read once, into committed shards of every folder.

    Input: a pipeline. Output: `Tokenized`. A split that is committed already is only looked at. Memory: one page, and
    for each folder its tokens and a row group, or a run two to three times, per worker. Bad documents go to
    `rejected/`.
    """

    def __init__(self, plan: JobPlan, tokenizers: Sequence[TokenizerText]) -> None:
        """Takes a plan, and the `tokenizer.json` of each folder, or one for all."""
        super().__init__()
        self._plan, self._tokenizers = plan, tokenizers

    @no_annotations  # of which Beam takes those of one output only
    def expand(self, begin: PBegin) -> Tokenized:  # noqa: D102
        folders, text = self._plan.folders, self._tokenizers[0]  # a job with several tokenizers does not shuffle
        if self._plan.config.output.shuffle is None:
            return Tokenized(self._split_by_split(begin, "WriteShards", Done), ())
        n_merged = []
        for name, folder in folders.items():
            found = begin | _label(name, "FindMergedShards") >> FindMergedShards(folder, text)
            n_merged.append(number_of(found, _label(name, "NumberMerged")))
        runs = self._split_by_split(begin, "SortRuns", SplitRuns, n_merged)
        shards = []
        for of, (name, folder), n in zip(runs, folders.items(), n_merged, strict=True):
            shards.append(of | _label(name, "MergeShards") >> MergeShards(folder, n, text))
        return Tokenized(runs, tuple(shards))

    def _split_by_split(
        self, begin: PBegin, write: str, made: type, n_merged: Sequence[AsSingleton] = ()
    ) -> "tuple[PCollection[Done | SplitRuns], ...]":
        """Adds the steps of a split, in one stage; `write` and `made` are the name and the type of its last one."""
        read = begin | "ReadSplits" >> ReadSplits(self._plan, self._tokenizers, n_merged)
        done = []
        for i, name in enumerate(self._plan.folders):
            pages = read[PAGES]
            for step in STEPS:  # Normalize, Encode, Count
                fn = beam.ParDo(StepFn(step, i)).with_output_types(Page)
                pages = pages | _label(name, step.__name__) >> fn
            written = pages | _label(name, write) >> beam.ParDo(WriteFn(write, i)).with_output_types(made)
            done.append((read[_committed(i)], written) | _label(name, "AllSplits") >> beam.Flatten())
        return tuple(done)


def _label(folder: str, step: str) -> str:
    return f"{folder} {step}" if folder else step


class ReadSplits(beam.PTransform):
    """Reads the splits of a plan into pages, those of a split one after another.

    Input: a pipeline. Outputs: `PAGES`, and what each folder has already, under the name that `_committed` gives.
    """

    def __init__(self, plan: JobPlan, tokenizers: Sequence[TokenizerText], merged: Sequence[AsSingleton] = ()) -> None:
        """As `TokenizeCorpus`."""
        super().__init__()
        self._plan, self._merged, self._tokenizers = plan, merged, tokenizers

    @no_annotations
    def expand(self, begin: PBegin) -> dict[str, PCollection[Any]]:  # noqa: D102
        folders = list(self._plan.folders.values())
        committed = [_committed(i) for i in range(len(folders))]
        find = beam.ParDo(FindCommitted(folders), len(self._merged), *self._merged, *self._tokenizers)
        splits = begin | "ReadPlan" >> ReadPlan(self._plan.plan_path)
        found = splits | "FindCommitted" >> find.with_outputs(*committed, main="todo")
        found["todo"].element_type = Todo
        for name in committed:
            found[name].element_type = Done if self._plan.config.output.shuffle is None else SplitRuns
        read = beam.ParDo(ReadPages(self._plan.config.output.path)).with_output_types(Page)
        return {PAGES: found["todo"] | "ReadPages" >> read, **{name: found[name] for name in committed}}


class ReadPlan(beam.PTransform):
    """Reads the splits that `jobs.planning.prepare` wrote, and deals them out to all workers.

    Input: a pipeline. Output: `Split`. Splits are not in the graph, which would grow with the input.
    """

    def __init__(self, path: str) -> None:
        """Takes the path of the plan."""
        super().__init__()
        self._path = path

    def expand(self, begin: PBegin) -> PCollection[Split]:  # noqa: D102
        read = beam.FlatMap(_read_plan, self._path).with_output_types(Split)
        return begin | beam.Impulse() | "Read" >> read | "Spread" >> beam.Reshuffle()


def _read_plan(_: bytes, path: str) -> Iterator[Split]:
    return read_plan(path)


def _committed(folder: int) -> str:
    return f"committed{folder}"


class FindCommitted(beam.DoFn):
    """Splits -> `Todo`, or what a folder has committed already. The first step of the stage, and its only side inputs.

    It hands over open tokenizers, by reference: pages and what they are made of do not leave the process.
    """

    def __init__(self, folders: Sequence[JobPlan]) -> None:
        """Takes the plans of the folders."""
        self._configs, self._n_splits = [each.config for each in folders], len(folders[0].splits)
        self._salts = [each.job.digest for each in folders]
        self._n_shards = [len(each.shards()) for each in folders]
        self._done = Metrics.counter("ReadSplits", "splits-done-before")

    def process(self, split: Split, n: int, *merged_and_tokenizers: Any) -> Iterator[Any]:
        """Looks for a split in all folders; the first `n` side inputs are numbers of merged shards."""
        merged, texts = merged_and_tokenizers[:n], merged_and_tokenizers[n:]
        works: list[Work | None] = []
        for i, (config, tokenizer) in enumerate(
            zip(self._configs, compiled_tokenizers(texts, len(self._configs)), strict=True)
        ):
            renamed = split.renamed(self._salts[i]) if i else split
            are_merged = bool(merged) and merged[i] == self._n_shards[i]
            work = Work(renamed, config, tokenizer, self._n_splits, are_merged)
            entry = load_committed(work)
            works.append(work if entry is None else None)
            if entry is not None:
                yield TaggedOutput(_committed(i), _done(entry))
        if any(works):
            yield Todo(split, tuple(works))
        else:
            self._done.inc()
            Meter(TOKENIZING_STAGE, split.id).finish()


class ReadPages(beam.DoFn):
    """`Todo` -> pages. When it has yielded the last one, all steps behind it are done with the split."""

    def __init__(self, output: str) -> None:
        """Takes `output.path`, above all folders."""
        self._output = output
        self._bytes, self._records = (Metrics.counter("ReadSplits", name) for name in ("bytes-in", "records-in"))

    def process(self, todo: Todo) -> Iterator[Page]:
        """Reads a split once for all folders that lack it."""
        split, works = todo
        meter, watch = Meter(TOKENIZING_STAGE, split.id), Stopwatch(self._output, split)
        config = next(work.config for work in works if work is not None)
        for page in read_pages(split, config):
            if page.batch is not None:
                self._bytes.inc(page.batch.n_bytes)
                self._records.inc(page.batch.n_records)
                meter.add(page.batch.n_bytes, page.batch.n_records)
            yield dataclasses.replace(page, works=works, report=meter.written)
        watch.stop(meter.n_bytes, meter.n_tokens)
        meter.finish()


class _OfSplits(beam.DoFn, Generic[_Of]):
    """A step of one folder with something open for each split: made at its first page, let go after its last."""

    def __init__(self, name: str, folder: int, make: Callable[[Work], _Of]) -> None:
        self._name, self._folder, self._make = name, folder, make
        self._open: dict[str, tuple[int, _Of]] = {}

    def _take(self, page: Page) -> _Of | None:
        """Returns what is open for the split of a page; None if the folder has that split.

        Raises:
          RuntimeError: if the page is not the one that follows.
        """
        work = page.works[self._folder]
        if work is None:
            return None
        split_id = work.split.id
        expected, of = self._open.get(split_id) or (0, None)
        if page.number != expected:
            raise RuntimeError(
                f"{self._name}: page {page.number} of split {split_id} comes where page {expected} is next: this "
                "runner does not keep the pages of a split together and in order"
            )
        of = self._make(work) if of is None else of
        self._open[split_id] = page.number + 1, of
        return of

    def _close(self, page: Page) -> None:
        work = page.works[self._folder]
        if page.is_last and work is not None:
            del self._open[work.split.id]

    def finish_bundle(self) -> None:
        """Raises RuntimeError if the last page of a split has not come."""
        if self._open:
            raise RuntimeError(f"{self._name}: a bundle ends within split {min(self._open)}: this runner cut it")


class StepFn(_OfSplits[Step]):
    """One of `STEPS`, for one folder."""

    def __init__(self, step: Callable[[Work], Step], folder: int) -> None:
        """Takes the class of the step, and the number of the folder."""
        super().__init__(step.__name__, folder, step)
        self._documents = Metrics.counter(self._name, "documents-out")

    def start_bundle(self) -> None:
        """Forgets what an error has left."""
        self._open = {}

    def process(self, page: Page) -> Iterator[Page]:
        """Yields the page with what the step makes."""
        if (step := self._take(page)) is not None:
            made = step(page)
            self._documents.inc(made.n_documents)
            yield made
            self._close(page)


class WriteFn(_OfSplits[SplitWriter]):
    """Pages with rows -> `Done`, or `SplitRuns` if the job shuffles, when the last page has committed the split."""

    def __init__(self, name: str, folder: int) -> None:
        """Takes the name of the step and the number of the folder."""
        super().__init__(name, folder, SplitWriter)
        self._documents, self._tokens, self._splits = (
            Metrics.counter(name, each) for each in ("documents-out", "tokens-out", "splits-done")
        )
        self._rejected = Metrics.counter(name, "documents-rejected")

    def start_bundle(self) -> None:
        """Removes what an error in this or another step has left."""
        self.teardown()

    def process(self, page: Page) -> Iterator[Done | SplitRuns]:
        """Writes a page; yields when the split is committed."""
        write = self._take(page)
        if write is None:
            return
        try:
            entry = write(page)
        except BaseException:
            self.teardown()
            raise
        self._close(page)
        if entry is not None:
            write.close()
            self._documents.inc(entry.n_documents)
            self._tokens.inc(entry.n_tokens)
            self._rejected.inc(sum((entry.of("rejected") or {}).values()))
            self._splits.inc()
            yield _done(entry)

    def teardown(self) -> None:
        """Removes what is staged."""
        for _, write in self._open.values():
            write.close()
        self._open = {}


def _done(entry: LedgerEntry) -> Done | SplitRuns:
    return runs_of(entry) if entry.runs is not None else Done(entry.index, entry.split_id)
