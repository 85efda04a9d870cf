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
from tokenmill.pipeline.estimating.costs import Work, peak_memory
from tokenmill.pipeline.estimating.estimates import Estimate, Scale, Unit
from tokenmill.pipeline.estimating.sample import Excerpt, TrialSplit
from tokenmill.pipeline.estimating.trial import Trial
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.reporting.stats import packed
from tokenmill.pipeline.running.display import megabytes
from tokenmill.pipeline.shuffling.passes import plan_passes
from tokenmill.pipeline.shuffling.shards import PlannedShard, plan_shards
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
_PROBE_BYTES = 2 << 20
"""So much text is read to measure the speed of the work, before the sample is chosen."""
_PROBE_PLACES = 8
"""Text for measuring the speed is read from this many places: few, because a job reads sequentially."""

_BYTES_IN_RUNS = {"n_tokens": 4, "n_documents": 60}
"""What a run of a shuffle takes for each token, and for each document with its id, about."""

_OF_TEXT = ("n_records", "n_documents", "n_bytes", "n_chars", "n_words")
_AROUND_TEXT = ("n_special_tokens", "n_added_tokens")
_OF_UNREADABLE = ("n_records", "rejected", "rejected.unreadable_file")
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
    at_first = peak_memory()
    counting = tokenizing = None
    unknown: tuple[tuple[str, int], ...] = ()
    train_seconds = 0.0
    budget = _affordable_bytes(plan)
    is_whole = budget is None
    is_guess = plan.counts_words and plan.tokenizes and not is_whole
    excerpts = [] if budget is None else sample.choose(plan.splits, plan.config.input, budget)
    with trial.temporary(plan.config) as config:
        if plan.counting_json is not None:
            counting = trial.count_words(_splits(plan, excerpts, 0), config, plan.counting_json)
        if plan.tokenizes:
            started = time.perf_counter()
            tokenizers = _tokenizers(plan, config, is_whole)
            train_seconds = time.perf_counter() - started if plan.config.tokenizer.train is not None else 0.0
            n_shards = len(plan.shards()) or len(plan.splits)  # each with documents for every folder
            splits = _splits(plan, excerpts, min(plan.splits.n_work // max(1, n_shards), _SHARD_BYTES))
            config, shards = _with_shards(plan, config, splits, is_whole)
            folders = _folders(config, tokenizers)
            tokenizing = trial.tokenize(splits, folders, shards)
            unknown = _unknown(tokenizing, folders)
    trials = [each for each in (counting, tokenizing) if each is not None]
    scale = _scale(plan, excerpts, trials[-1].units if trials else [], is_whole)
    n_passes, notes = _n_passes(plan), _notes(excerpts, is_guess)
    totals = _estimates(scale, is_guess, tokenizes=tokenizing is not None) if trials else {}
    if totals and not is_whole:
        totals |= _known(plan, totals)
    if plan.tokenizes and plan.config.output.shuffle is not None:
        notes = [_disk_of_runs(totals, n_passes), *notes]
    return Forecast(
        plan=plan,
        sample_bytes=scale.counted("n_bytes"),
        is_whole=is_whole,
        factor=scale.factor,
        notes=tuple(notes),
        totals=totals,
        padding=_padding(plan.config, tokenizing) if tokenizing is not None else None,
        unknown=unknown,
        n_shards=_n_shards(plan),
        shard_bytes=_shard_bytes(plan, scale, is_guess, is_whole) if tokenizing is not None else {},
        work=Work(
            split_bytes=plan.splits.sizes,
            pace=sum(each.pace for each in trials),
            merge_seconds=sum(each.merge_seconds * (1 + (n_passes if each is tokenizing else 0)) for each in trials)
            * scale.factor,
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
                done = trial.count_words(_splits(plan, probe, 0), config, plan.counting_json)
            else:
                splits = _splits(plan, probe, _PROBE_BYTES)
                done = trial.tokenize(splits, _folders(config, tokenizers), {})
            seconds = time.thread_time() - started
    pace = seconds / max(1, sum(unit.counts["n_bytes"] for unit in done.units))
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
    folders = plan.folders
    if plan.config.tokenizer.train is None:
        texts = {folder: part.tokenizer.to_str() for folder, part in folders.items() if part.tokenizer is not None}
    else:
        labels = {folder: part.config.trained_label for folder, part in folders.items()}
        must_be = [*labels.values()] if is_whole and all(labels.values()) else []
        counts = open_counts(plan.counts_given or config.output.path)
        of = config.tokenizer
        if of.train is not None and of.train.model == "unigram" and not is_whole and plan.counts_given is None:
            # A sample may have too few words for a vocabulary that the whole input gives.
            of = of.model_copy(update={"train": of.train.model_copy(update={"hard_vocab_limit": False})})
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
    """Returns config and tokenizer of each folder of a trial."""
    configs = parts.configs(config)
    return {folder: (each, tokenizers[folder]) for folder, each in configs.items()}


def _with_shards(
    plan: JobPlan, config: Config, splits: Sequence[TrialSplit], is_whole: bool
) -> tuple[Config, dict[str, list[PlannedShard]]]:
    """Returns the config of a trial and the shards of each folder to merge: those of the job, or one for each split."""
    shuffle = config.output.shuffle
    if shuffle is None:
        return config, {}
    if not is_whole:
        output = config.output.model_copy(update={"shuffle": shuffle.model_copy(update={"shards": len(splits)})})
        config = config.model_copy(update={"output": output})
    planned = plan.planned if is_whole else PlannedSplits(each.split for each in splits)
    configs, salt = parts.configs(config), plan.job.digest
    return config, {name: plan_shards(each.output, planned, salt) for name, each in configs.items()}


def _n_shards(plan: JobPlan) -> int:
    return len(plan.shards()) or len(plan.splits) * max(1, len(plan.parts))


def _n_passes(plan: JobPlan) -> int:
    """Returns how many passes a shuffle makes over its runs before it merges shards."""
    shuffle = plan.config.output.shuffle
    if shuffle is None or not plan.tokenizes:
        return 0
    return len(plan_passes(len(plan.splits), plan.splits.n_work, shuffle.run_bytes))


def _padding(config: Config, tried: Trial) -> float | None:
    if (padding := config.tokenizer.padding) is not None:
        n_rows, n_tokens = (
            sum(getattr(entry.shard, name) or 0 for entry in tried.shards) for name in ("rows", "tokens")
        )
        return 1 - n_tokens / max(1, n_rows * padding.length)
    if config.output.packing is None:
        return None
    counts: Counter[str] = Counter()
    for entry in tried.shards:
        counts.update(entry.of("packing") or {})
    return packed(counts).share_of_padding or 0.0


def _unknown(tried: Trial, folders: Mapping[str, tuple[Config, Tokenizer]]) -> tuple[tuple[str, int], ...]:
    found: Counter[str] = Counter()
    for folder, (config, tokenizer) in folders.items():
        total = Statistics(tokenizer.n_ids, tokenizer.unk_token_id)
        for entry in tried.entries[folder]:
            with storage.open_read(storage.join(config.output.path, entry.statistics.file)) as handle:
                total.merge(Statistics.from_bytes(handle.read(), tokenizer.unk_token_id))
        code_points, counts = total.oov_chars()
        found.update(dict(zip(map(chr, code_points.tolist()), counts.tolist(), strict=True)))
    return tuple(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def _shard_bytes(plan: JobPlan, scale: Scale, is_guess: bool, is_whole: bool) -> dict[str, Estimate]:
    more = (0.0 if is_whole else SHARD_SIZE_MATTERS) + (SAMPLE_VOCABULARY if is_guess else 0.0)
    return {name: scale.estimate(f"bytes.{name}", more=more) for name in map(str, plan.config.output.formats)}


def _estimates(scale: Scale, is_guess: bool, *, tokenizes: bool) -> dict[str, Estimate]:
    found = {name: scale.estimate(name) for name in (*_OF_TEXT, *(_AROUND_TEXT if tokenizes else ()))}
    of_folders = (name for name in scale.names if name.partition(".")[0] in trial.OF_FOLDERS and "." in name)
    for name in (*_OF_TOKENIZER, *of_folders) if tokenizes else ():
        found[name] = scale.estimate(name, more=SAMPLE_VOCABULARY if is_guess else 0.0)
    for kind in ("rejected", "filtered"):
        names = (kind, *(name for name in scale.names if name.startswith(f"{kind}.")))
        found |= {name: scale.estimate(name) for name in names}
    return found


def _scale(plan: JobPlan, excerpts: Sequence[Excerpt], units: Sequence[Unit], is_whole: bool) -> Scale:
    """Returns what scales the counts of a sample up to the whole input."""
    for unit, n_bytes in zip(units, sample.stands_for(excerpts, plan.n_bytes), strict=False):
        unit.stands_for = n_bytes
    _leave_out_unreadable(excerpts, units)
    return Scale(units, None if is_whole else plan.n_bytes)


def _leave_out_unreadable(excerpts: Sequence[Excerpt], units: Sequence[Unit]) -> None:
    """Takes files that the plan knows to be unreadable out of the counts of a sample: `_known` adds all of them."""
    for excerpt, unit in zip(excerpts, units, strict=False):
        unreadable = [piece for piece in excerpt.pieces if piece.problem]
        for name in _OF_UNREADABLE if unreadable else ():
            unit.counts[name] -= len(unreadable)
        unit.counts["n_bytes"] -= sum(piece.stop - piece.start for piece in unreadable)


def _known(plan: JobPlan, totals: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Returns the estimates that what was learnt when files were opened makes better.

    Unreadable files are few and lie together, so a sample says little of them; and where each file is a document,
    listing them has counted the records.
    """
    splits = plan.splits
    unreadable = {**dict.fromkeys(_OF_UNREADABLE, splits.n_unreadable), "n_bytes": splits.unreadable_bytes}
    found = {name: totals.get(name, Estimate(0, 0, 0)).plus(n) for name, n in unreadable.items() if n}
    sections = plan.config.input.by_source.values()
    if all(each.format in formats_with("document") and each.document == "file" for each in sections):
        found["n_records"] = Estimate(splits.n_pieces, splits.n_pieces, splits.n_pieces)
        left_out = (found.get("rejected", totals["rejected"]), totals["filtered"])
        found["n_documents"] = found["n_records"].minus(left_out)
        if plan.tokenizes and totals["shard_rows"].value == totals["n_documents"].value:  # neither packed nor windows
            found["shard_rows"] = found["n_documents"]
    return found


def _disk_of_runs(totals: Mapping[str, Estimate], n_passes: int) -> str:
    """Returns what a shuffle needs of the disk of the output until the job ends, and how many passes it has."""
    n_bytes = sum(size * totals[name].value for name, size in _BYTES_IN_RUNS.items() if name in totals)
    said = f"the shuffle needs about {megabytes(n_bytes * (1 + n_passes))} more in _runs/, until the job ends"
    if n_passes:
        said += f"; passes before its shards are merged: {n_passes}, each as long as merging them, by this estimate"
    return said


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
