# SPDX-License-Identifier: Apache-2.0
"""A forecast of a job: tokens, rejects, shards and their bytes, each with bounds, from a trial on a sample."""

import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenmill.pipeline.config.formats import formats_with
from tokenmill.pipeline.estimating import sample
from tokenmill.pipeline.estimating.estimates import Estimate, Scale, Work
from tokenmill.pipeline.estimating.sample import Excerpt
from tokenmill.pipeline.estimating.trial import INLINE, TrialBooks, Watch, peak_memory, run, sampled
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.running.display import megabytes
from tokenmill.pipeline.running.messages import explain
from tokenmill.pipeline.running.runners import RunnerSettings
from tokenmill.pipeline.shuffling import plan_passes
from tokenmill.pipeline.splits import Splits

SAMPLE_BYTES = 64 << 20
"""At most this much text is read; a smaller corpus is read completely."""
SAMPLE_SECONDS = 3.0
"""Less is read if the job's work on it would take more processor time than this. Other programs of a busy machine make
no sample smaller."""
SHARD_SIZE_MATTERS = 0.02
"""How much better or worse the job's shards may compress than those of the sample, because of their size."""
SAMPLE_VOCABULARY = 0.03
"""How much tokens of a vocabulary trained on the sample may differ from those of one trained on everything."""
_SHARD_BYTES = 16 << 20
"""The most text of a shard of the sample: enough for a full row group, so that bytes per token are realistic."""
_PROBE_BYTES, _PROBE_PLACES = 2 << 20, 8
"""So much text, from so many places, measures the start and the speed before the sample is chosen; few, as a job reads
in order."""
_SLOW_START = 5.0
_BYTES_IN_RUNS = {"n_tokens": 4, "n_documents": 60}
"""What a run of a shuffle takes for each token, and for each document with its id, about."""

_OF_VOCABULARY = ("n_text_tokens", "n_cut_tokens", "n_tokens", "n_oov_tokens", "shard_", "n_documents.")
"""What the names of numbers begin with that depend on the vocabulary."""
_OF_UNREADABLE = ("n_records", "rejected", "rejected.unreadable_file")
_IN_PROPORTION = {
    "n_words": "n_text_tokens",  # in proportion to characters its bounds would be too narrow
    **dict.fromkeys(("n_special_tokens", "n_added_tokens"), "n_documents"),
    **dict.fromkeys(("shard_rows", "shard_tokens"), "n_tokens"),
    "n_cut_tokens": "n_cut_tokens",
}
"""What is counted of whole splits, by what is as evenly spread."""


@dataclass(frozen=True)
class Forecast:
    """What a job would do."""

    plan: JobPlan
    sample_bytes: int
    """Bytes that were read of the input, decompressed."""
    is_whole: bool
    """Whether that is all of it."""
    factor: float
    """The size of the corpus as a multiple of the sample, in planned bytes."""
    notes: tuple[str, ...]
    """What the reader should know about the sample."""
    totals: Mapping[str, Estimate]
    """By the names of the manifest's `totals`; rejects by "rejected.<reason>", filtered by "filtered.<rule>"."""
    padding: float | None
    """The share of padding in rows, from 0 to 1; None if rows are not padded."""
    unknown: tuple[tuple[str, int], ...]
    """The unknown characters of the sample and how often they occur, the most frequent first."""
    n_shards: int
    shard_bytes: Mapping[str, Estimate]
    """By format, index files included."""
    start_seconds: float
    """How long the job takes besides its work, here."""
    work: Work
    """The work of the job, for estimates of time and memory."""

    def of_kind(self, kind: str) -> Iterator[tuple[str, Estimate]]:
        """Yields the estimates of rejects by reason, or of filtered documents by rule."""
        return ((name, each) for name, each in self.totals.items() if name.startswith(f"{kind}."))

    def value(self, name: str) -> int:
        """Returns the estimate of a total without its bounds; 0 if it is none of this job."""
        return self.totals[name].value if name in self.totals else 0


def forecast(plan: JobPlan, settings: RunnerSettings = INLINE) -> Forecast:
    """Tries a job on a sample of its input, or on all of it if that is small.

    Args:
      plan: of the job.
      settings: where it is to run.

    Raises:
      OSError: if the input cannot be read, or the temporary folder cannot be written.
      ValueError: if the job would fail on the sample.
    """
    probe = _probe(plan)
    start_seconds, other_bytes = _start(plan, settings, probe) if plan.splits else 0.0, peak_memory()
    budget = _affordable_bytes(plan, probe)
    excerpts = [] if budget is None else sample.choose(plan.splits, plan.config.input, budget)
    splits, n_shards = plan.splits, len(plan.shards()) or len(plan.splits)  # each with documents for every folder
    if budget is not None:
        n_bytes = min(splits.n_work // max(1, n_shards), _SHARD_BYTES) if plan.tokenizes else 0
        splits = sample.together(excerpts, n_bytes, splits.fields)
    with sampled(plan, splits, shards=0 if budget is None else len(splits)) as tried:
        watch = _run(tried)
        books = TrialBooks.read(tried)
        unknown = books.read_unknown()
    is_guess = plan.counts_words and plan.tokenizes and tried.is_sample
    more = SAMPLE_VOCABULARY if is_guess else 0.0
    scale = Scale(books.units(excerpts), plan.n_bytes) if tried.is_sample else None
    totals, shard_bytes = _totals(plan, books, scale, more)
    n_passes, notes = _passes(plan), _notes(excerpts, is_guess)
    if plan.tokenizes and plan.config.output.shuffle is not None:
        notes = [_disk_of_runs(totals, n_passes), *notes]
    factor = scale.factor if scale is not None else 1.0
    merging = watch.seconds(planning.SHUFFLING_STAGE) * (1 + n_passes) / (1 + _passes(tried))
    return Forecast(
        plan=plan,
        sample_bytes=books.totals.get("n_bytes", 0),
        is_whole=scale is None,
        factor=factor,
        notes=tuple(notes),
        totals=totals,
        padding=books.padding,
        unknown=unknown,
        n_shards=len(plan.shards()) or len(plan.splits) * max(1, len(plan.parts)),
        shard_bytes=shard_bytes,
        start_seconds=start_seconds if plan.splits else watch.start_seconds,
        work=Work(
            split_bytes=plan.splits.sizes,
            pace=watch.pace(),
            merge_seconds=(merging + watch.seconds(planning.MERGING_STAGE)) * factor,
            train_seconds=watch.seconds(planning.TRAINING_STAGE),
            worker_bytes=watch.memory,
            other_bytes=other_bytes,
        ),
    )


def _probe(plan: JobPlan) -> Splits:
    """Returns what is tried before the sample is chosen: so much of the input that it takes no time, or all of it."""
    if plan.splits.n_work <= _PROBE_BYTES:
        return plan.splits
    excerpts = sample.choose(plan.splits, plan.config.input, _PROBE_BYTES, _PROBE_PLACES)
    return sample.together(excerpts, _PROBE_BYTES, plan.splits.fields)  # one split, as the job has large ones


def _start(plan: JobPlan, settings: RunnerSettings, probe: Splits) -> float:
    """Returns the seconds that a job takes besides its work: Beam is imported, and workers start and end."""
    started = time.perf_counter()
    importlib.import_module("tokenmill.pipeline.transforms.jobs")
    importing, seconds = time.perf_counter() - started, _SLOW_START + 1
    for _ in range(2):
        if seconds > _SLOW_START:  # the first time, kernels may have been compiled
            with sampled(plan, probe, shards=1) as tried:
                seconds = _run(tried, settings if settings.name is None else INLINE).start_seconds
    return importing + seconds


def _affordable_bytes(plan: JobPlan, probe: Splits) -> int | None:
    """Returns how much text to read: at most `SAMPLE_BYTES` and `SAMPLE_SECONDS`; None: all that there is."""
    if probe is plan.splits:
        return None
    with sampled(plan, probe, shards=1) as tried:
        pace = _run(tried).pace(of_processor=True) * plan.n_bytes / plan.splits.n_work
    budget = SAMPLE_BYTES
    while budget > _PROBE_BYTES and pace * budget > SAMPLE_SECONDS:
        budget //= 2
    return None if plan.splits.n_work <= budget else budget


def _run(tried: JobPlan, settings: RunnerSettings = INLINE) -> Watch:
    try:
        return run(tried, settings)
    except Exception as error:  # whatever a runner makes of it
        raise ValueError(explain(error, tried.config.output.path)) from error


def _passes(plan: JobPlan) -> int:
    shuffle = plan.config.output.shuffle
    if shuffle is None or not plan.tokenizes:
        return 0
    return len(plan_passes(len(plan.splits), plan.splits.n_work, shuffle.run_bytes))


def _totals(
    plan: JobPlan, books: TrialBooks, scale: Scale | None, more: float
) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    """Returns the estimates of what is counted, and of the bytes of each format.

    They are better than the sample by what was learnt when files were opened. Unreadable files are few and lie
    together, so a sample says little of them; and where each file is a document, listing them has counted the records.

    Args:
      plan: of the job.
      books: what was counted of the sample.
      scale: what scales it up; None if it is all of the input.
      more: an additional uncertainty of what the vocabulary decides.
    """
    if scale is None:
        exact = {name: Estimate.exact(n) for name, n in books.totals.items()}
        return exact, {name: Estimate.exact(n) for name, n in books.n_bytes.items()}
    totals: dict[str, Estimate] = {}
    for name, n in books.totals.items():
        wider = more if name.startswith(_OF_VOCABULARY) else 0.0
        by = _IN_PROPORTION.get(name, "")
        if name == "shard_rows" and books.rows_are_documents:
            by = "n_documents"
        is_of_units = not by or not plan.tokenizes
        totals[name] = scale.estimate(name, more=wider) if is_of_units else scale.in_proportion(n, by, more=wider)
    of_bytes = SHARD_SIZE_MATTERS + more
    shard_bytes = {name: scale.in_proportion(n, "n_tokens", more=of_bytes) for name, n in books.n_bytes.items()}
    of = plan.splits
    known = {**dict.fromkeys(_OF_UNREADABLE, of.n_unreadable), "n_bytes": of.unreadable_bytes}
    totals |= {name: totals.get(name, Estimate.exact(0)).plus(n) for name, n in known.items() if n}
    sections = plan.config.input.by_source.values()
    if all(each.format in formats_with("document") and each.document == "file" for each in sections):
        totals["n_records"] = Estimate.exact(of.n_pieces)
        totals["n_documents"] = totals["n_records"].minus((totals["rejected"], totals["filtered"]))
        if books.rows_are_documents:
            totals["shard_rows"] = totals["n_documents"]
    return totals, shard_bytes


def _disk_of_runs(totals: Mapping[str, Estimate], n_passes: int) -> str:
    """Returns what a shuffle needs of the disk of the output until the job ends, and how many passes it has."""
    n_bytes = sum(size * totals[name].value for name, size in _BYTES_IN_RUNS.items() if name in totals)
    note = f"the shuffle needs about {megabytes(n_bytes * (1 + n_passes))} more in _runs/, until the job ends"
    if n_passes:
        note += f"; passes before its shards are merged: {n_passes}, each as long as merging them, by this estimate"
    return note


def _notes(excerpts: Sequence[Excerpt], is_guess: bool) -> list[str]:
    notes = []
    limited = [excerpt.pieces[0] for excerpt in excerpts if excerpt.pieces[0].limit]
    if any(piece.has_rows for piece in limited):
        notes.append(
            "of each large run of row groups the beginning was read; the bounds assume that the rest is like it"
        )
    if n := sum(not piece.has_rows for piece in limited):
        notes.append(
            f"{n} files that are read from their beginning, such as compressed ones, were not read to their end; the "
            "bounds assume that the rest is like what was read"
        )
    if is_guess:
        notes.append(
            "the vocabulary was trained on the sample; that of the job will be another one, so its tokens are a guess"
        )
    return notes
