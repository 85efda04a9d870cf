# SPDX-License-Identifier: Apache-2.0
"""A forecast of a job: tokens, rejects, shards and their bytes, each with bounds, from a trial on a sample."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import parts
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.config.formats import formats_with
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.estimating import sample, trial
from tokenmill.pipeline.estimating.estimates import Estimate, Scale, Work
from tokenmill.pipeline.estimating.sample import Excerpt, TrialSplit
from tokenmill.pipeline.estimating.trial import AROUND_TEXT, OF_FOLDERS, OF_UNREADABLE, Trial
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.reporting.stats import packed
from tokenmill.pipeline.running.display import megabytes
from tokenmill.pipeline.shuffling import PlannedShard, plan_passes, plan_shards
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.training.train import train_vocabularies
from tokenmill.tokenizer import Tokenizer

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
"""So much text, from so many places, measures the speed before the sample is chosen; few, as a job reads in order."""
_BYTES_IN_RUNS = {"n_tokens": 4, "n_documents": 60}
"""What a run of a shuffle takes for each token, and for each document with its id, about."""

_OF_TEXT = ("n_records", "n_documents", "n_bytes", "n_chars", "n_words")
_OF_TOKENIZER = ("n_text_tokens", "n_cut_tokens", "n_tokens", "n_oov_tokens", "shard_rows", "shard_tokens")


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
    work: Work
    """The work of the job, for estimates of time and memory."""

    def of_kind(self, kind: str) -> Iterator[tuple[str, Estimate]]:
        """Yields the estimates of rejects by reason, or of filtered documents by rule."""
        return ((name, each) for name, each in self.totals.items() if name.startswith(f"{kind}."))

    def share(self, name: str, of: str) -> float:
        """Returns a share of two totals, by their estimates; 0 if there is none."""
        part, whole = self.totals.get(name), self.totals.get(of)
        return part.value / whole.value if part is not None and whole is not None and whole.value else 0.0


def forecast(plan: JobPlan) -> Forecast:
    """Tries a job on a sample of its input, or on all of it if that is small.

    Raises:
      OSError: if the input cannot be read, or the temporary folder cannot be written.
      ValueError: if the job would fail on the sample.
    """
    at_first, train_seconds = trial.peak_memory(), 0.0
    counting = tokenizing = None
    unknown: tuple[tuple[str, int], ...] = ()
    budget = _affordable_bytes(plan)
    is_whole = budget is None
    is_guess = plan.counts_words and plan.tokenizes and not is_whole
    excerpts = [] if budget is None else sample.choose(plan.splits, plan.config.input, budget)
    n_shards = len(plan.shards()) or len(plan.splits)  # each with documents for every folder
    with trial.temporary(plan.config) as config:
        if plan.counting_json is not None:
            counting = trial.count_words(_splits(plan, excerpts, 0), config, plan.counting_json)
        if plan.tokenizes:
            started = time.perf_counter()
            tokenizers = _tokenizers(plan, config, is_whole)
            train_seconds = time.perf_counter() - started if plan.config.tokenizer.train is not None else 0.0
            splits = _splits(plan, excerpts, min(plan.splits.n_work // max(1, n_shards), _SHARD_BYTES))
            config, shards = _with_shards(plan, config, splits, is_whole)
            folders = _folders(config, tokenizers)
            tokenizing = trial.tokenize(splits, folders, shards)
            unknown = _unknown(tokenizing, folders)
    trials = [each for each in (counting, tokenizing) if each is not None]
    scale = Scale(trials[-1].units if trials else [], None if is_whole else plan.n_bytes)
    totals = _totals(plan, scale, is_guess, is_whole) if trials else {}
    n_passes, notes = 0, _notes(excerpts, is_guess)
    if plan.tokenizes and plan.config.output.shuffle is not None:
        n_passes = len(plan_passes(len(plan.splits), plan.splits.n_work, plan.config.output.shuffle.run_bytes))
        notes = [_disk_of_runs(totals, n_passes), *notes]
    more = (0.0 if is_whole else SHARD_SIZE_MATTERS) + (SAMPLE_VOCABULARY if is_guess else 0.0)
    merge_seconds = sum(each.merge_seconds * (1 + (n_passes if each is tokenizing else 0)) for each in trials)
    return Forecast(
        plan=plan,
        sample_bytes=scale.counted("n_bytes"),
        is_whole=is_whole,
        factor=scale.factor,
        notes=tuple(notes),
        totals=totals,
        padding=None if tokenizing is None else _padding(plan.config, tokenizing),
        unknown=unknown,
        n_shards=len(plan.shards()) or len(plan.splits) * max(1, len(plan.parts)),
        shard_bytes={
            name: scale.estimate(f"bytes.{name}", more=more)
            for name in map(str, plan.config.output.formats if plan.tokenizes else ())
        },
        work=Work(
            split_bytes=plan.splits.sizes,
            pace=sum(each.pace for each in trials),
            merge_seconds=merge_seconds * scale.factor,
            train_seconds=train_seconds,
            worker_bytes=max((each.memory for each in trials), default=0),
            other_bytes=at_first,
        ),
    )


def _affordable_bytes(plan: JobPlan) -> int | None:
    """Returns how much text to read: at most `SAMPLE_BYTES` and `SAMPLE_SECONDS`; None: all that there is."""
    text = plan.splits.n_work
    if text <= _PROBE_BYTES:
        return None
    probe = sample.choose(plan.splits, plan.config.input, _PROBE_BYTES, _PROBE_PLACES)
    tokenizers = _tokenizers(plan, plan.config, False) if plan.counting_json is None else {}
    for _ in range(2):  # the first time, kernels are loaded, and the tables of the tokenizer made
        with trial.temporary(plan.config) as config:
            started = time.thread_time()
            if plan.counting_json is not None:
                tried = trial.count_words(_splits(plan, probe, 0), config, plan.counting_json)
            else:
                tried = trial.tokenize(_splits(plan, probe, _PROBE_BYTES), _folders(config, tokenizers), {})
            seconds = time.thread_time() - started
    pace = seconds / max(1, sum(unit.counts["n_bytes"] for unit in tried.units))
    budget = SAMPLE_BYTES
    while budget > _PROBE_BYTES and pace * budget > SAMPLE_SECONDS:
        budget //= 2
    return None if text <= budget else budget


def _splits(plan: JobPlan, excerpts: Sequence[Excerpt], n_bytes: int) -> list[TrialSplit]:
    """Returns the splits to try: those of the plan if there are no excerpts, else excerpts, some together."""
    return sample.together(excerpts, n_bytes, plan.splits.fields) if excerpts else sample.everything(plan.splits)


def _tokenizers(plan: JobPlan, config: Config, is_whole: bool) -> dict[str, Tokenizer]:
    """Returns the tokenizer of each folder as a worker gets it, with no word in its tables; trains what there is not.

    Of a language that the sample lacks nothing is known, but that it is rare; a tokenizer of another one stands in.
    """
    folders, of = plan.folders, config.tokenizer
    if of.train is None:
        texts = {folder: part.tokenizer.to_str() for folder, part in folders.items() if part.tokenizer is not None}
    else:
        labels = {folder: part.config.trained_label for folder, part in folders.items()}
        must_be = [*labels.values()] if is_whole and all(labels.values()) else []
        if of.train.model == "unigram" and not is_whole and plan.counts_given is None:
            # A sample may have too few words for a vocabulary that the whole input gives.
            of = of.model_copy(update={"train": of.train.model_copy(update={"hard_vocab_limit": False})})
        counts = open_counts(plan.counts_given or config.output.path)
        vocabularies = train_vocabularies(counts, of, config.text.tokens, by=config.train_by, labels=must_be)
        trained = {vocabulary.folder: vocabulary.tokenizer_json for vocabulary in vocabularies}
        if not trained:
            raise ValueError("the sample has no words to train on")
        any_of_them = next(iter(trained.values()))
        texts = {folder: trained.get(label, any_of_them) for folder, label in labels.items()}
    made = {text: Tokenizer.from_str(text) for text in texts.values()}
    for tokenizer in made.values():  # the first use builds tables, which is a part of the start of a job
        tokenizer.encode_bare(pa.array(["a"], pa.large_string()))
    return {folder: made[text] for folder, text in texts.items()}


def _folders(config: Config, tokenizers: Mapping[str, Tokenizer]) -> dict[str, tuple[Config, Tokenizer]]:
    return {folder: (each, tokenizers[folder]) for folder, each in parts.configs(config).items()}


def _with_shards(
    plan: JobPlan, config: Config, splits: Sequence[TrialSplit], is_whole: bool
) -> tuple[Config, dict[str, list[PlannedShard]]]:
    """Returns the config of a trial and the shards of each folder to merge: those of the job, or one for each split."""
    shuffle = config.output.shuffle
    if shuffle is None:
        return config, {}
    planned = plan.planned
    if not is_whole:
        planned = PlannedSplits(each.split for each in splits)
        output = config.output.model_copy(update={"shuffle": shuffle.model_copy(update={"shards": len(splits)})})
        config = config.model_copy(update={"output": output})
    salt = plan.job.digest
    return config, {name: plan_shards(each.output, planned, salt) for name, each in parts.configs(config).items()}


def _totals(plan: JobPlan, scale: Scale, is_guess: bool, is_whole: bool) -> dict[str, Estimate]:
    """Returns the estimates of what is counted, made better by what was learnt when files were opened.

    Unreadable files are few and lie together, so a sample says little of them; and where each file is a document,
    listing them has counted the records.
    """
    names, guessed = [*_OF_TEXT], list[str]()
    if plan.tokenizes:
        names += AROUND_TEXT
        guessed += [
            *_OF_TOKENIZER,
            *(each for each in scale.names if each.startswith((*(f"{n}." for n in OF_FOLDERS),))),
        ]
    for kind in ("rejected", "filtered"):
        names += [kind, *(each for each in scale.names if each.startswith(f"{kind}."))]
    totals = {name: scale.estimate(name) for name in names}
    totals |= {name: scale.estimate(name, more=SAMPLE_VOCABULARY if is_guess else 0.0) for name in guessed}
    if is_whole:
        return totals
    n_pieces, n_unreadable = plan.splits.n_pieces, plan.splits.n_unreadable
    known = {**dict.fromkeys(OF_UNREADABLE, n_unreadable), "n_bytes": plan.splits.unreadable_bytes}
    is_document = plan.tokenizes and totals["shard_rows"].value == totals["n_documents"].value  # no packing, no windows
    totals |= {name: totals.get(name, Estimate(0, 0, 0)).plus(n) for name, n in known.items() if n}
    sections = plan.config.input.by_source.values()
    if all(each.format in formats_with("document") and each.document == "file" for each in sections):
        totals["n_records"] = Estimate(n_pieces, n_pieces, n_pieces)
        totals["n_documents"] = totals["n_records"].minus((totals["rejected"], totals["filtered"]))
        if is_document:
            totals["shard_rows"] = totals["n_documents"]
    return totals


def _padding(config: Config, tried: Trial) -> float | None:
    if (padding := config.tokenizer.padding) is not None:
        n_rows = sum(entry.shard.rows or 0 for entry in tried.shards)
        return 1 - sum(entry.shard.tokens or 0 for entry in tried.shards) / max(1, n_rows * padding.length)
    if config.output.packing is None:
        return None
    counts: Counter[str] = Counter()
    for entry in tried.shards:
        counts.update(entry.of("packing") or {})
    return packed(counts).share_of_padding or 0.0


def _unknown(tried: Trial, folders: Mapping[str, tuple[Config, Tokenizer]]) -> tuple[tuple[str, int], ...]:
    sums: Counter[str] = Counter()
    for folder, (config, tokenizer) in folders.items():
        total = Statistics(tokenizer.n_ids, tokenizer.unk_token_id)
        for entry in tried.entries[folder]:
            with storage.open_read(storage.join(config.output.path, entry.statistics.file)) as handle:
                total.merge(Statistics.from_bytes(handle.read(), tokenizer.unk_token_id))
        code_points, counts = total.oov_chars()
        sums.update(dict(zip(map(chr, code_points.tolist()), counts.tolist(), strict=True)))
    return tuple(sorted(sums.items(), key=lambda each: (-each[1], each[0])))


def _disk_of_runs(totals: Mapping[str, Estimate], n_passes: int) -> str:
    """Returns what a shuffle needs of the disk of the output until the job ends, and how many passes it has."""
    n_bytes = sum(size * totals[name].value for name, size in _BYTES_IN_RUNS.items() if name in totals)
    note = f"the shuffle needs about {megabytes(n_bytes * (1 + n_passes))} more in _runs/, until the job ends"
    if n_passes:
        note += f"; passes before its shards are merged: {n_passes}, each as long as merging them, by this estimate"
    return note


def _notes(excerpts: Sequence[Excerpt], is_guess: bool) -> list[str]:
    notes = []
    limited = [excerpt.pieces[0] for excerpt in excerpts if excerpt.limit is not None]
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
