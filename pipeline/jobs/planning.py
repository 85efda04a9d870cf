# SPDX-License-Identifier: Apache-2.0
"""Plans a job before it does anything: its tokenizer, its splits, its output folder. No Beam here."""

import dataclasses
import functools
import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import parts
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.config.job import Config, JobName
from tokenmill.pipeline.config.kept_fields import decode_fields, encode_fields
from tokenmill.pipeline.config.output import PackingConfig
from tokenmill.pipeline.counting.count import Counting, check_sources
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.counting.partitions import n_partitions_of
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.output import arranging, folders
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.output.vocabulary_files import check_formats
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.running import progress
from tokenmill.pipeline.shuffling import PlannedShard, plan_shards
from tokenmill.pipeline.splits import Split, Splits
from tokenmill.pipeline.tokenizing.chat import ChatTexts, with_made
from tokenmill.pipeline.tokenizing.fim import FillInMiddle
from tokenmill.pipeline.tokenizing.pages import check_field
from tokenmill.pipeline.tokenizing.steps import steps_of
from tokenmill.pipeline.training.tokenizers import counting_tokenizer, given_tokenizer, stand_in
from tokenmill.pipeline.training.train import check_counts
from tokenmill.tokenizer import Tokenizer

COUNTING_STAGE = "counting"
MERGING_STAGE = "merging"
TRAINING_STAGE = "training"
TOKENIZING_STAGE = "tokenizing"
SHUFFLING_STAGE = "shuffling"
FINISHING_STAGE = "finishing"

_NO_END = (
    "output.packing puts documents one behind the other, and no token says where one ends; set "
    "output.packing.separator, for example to '<|endoftext|>', or output.append"
)


@dataclass(frozen=True)
class JobPlan:
    """A job that can start."""

    name: JobName
    """The job to do; `run` with an existing tokenizer is `tokenize`."""
    config: Config
    job: Job
    splits: Splits
    tokenizer: Tokenizer | None
    """The tokenizer to use, if it exists already."""
    counting_json: str | None
    """JSON of the tokenizer that defines the words, if words are counted."""
    warnings: tuple[str, ...] = ()
    """What the user should know before the job starts, a line each."""
    parts: Mapping[str, "JobPlan"] = field(default_factory=dict)
    """Of an output in parts, the job of each folder by its name. All have the same `splits`, whose ids are those of the
    first folder."""
    is_sample: bool = False
    """Whether `splits` are a sample of those of a job, which a plan tries: it has parts of files, and need not have
    every language."""
    lease: Lease | None = None
    """Lease of the output folder, which must still be valid when the job publishes; None if nobody owns the folder."""

    @property
    def folders(self) -> Mapping[str, "JobPlan"]:
        """The job of each folder by its name; of one folder this one, by ""."""
        return self.parts or {"": self}

    @property
    def with_own_tokenizer(self) -> Mapping[str, "JobPlan"]:
        """The folders whose tokenizers are all that there are: all folders, or the first, by ""."""
        parts = self.config.output.parts
        are_several = parts is not None and (parts.tokenizers or parts.train)
        return self.folders if are_several else {"": next(iter(self.folders.values()))}

    @property
    def tokenizer_path(self) -> str:
        """Where `prepare` writes an existing tokenizer; workers read it there, to keep the Beam graph small."""
        return storage.join(self.config.output.path, filenames.TOKENIZER)

    @property
    def counts_words(self) -> bool:
        """Whether words are counted."""
        return self.counting_json is not None

    @property
    def counts_given(self) -> str | None:
        """The folder of counts to train on, if this job does not count them."""
        train = self.config.tokenizer.train
        return train.counts if train is not None and self.name in ("run", "train") else None

    @property
    def tokenizes(self) -> bool:
        """Whether shards are written."""
        return self.name in ("run", "tokenize")

    @property
    def plan_path(self) -> str:
        """Where `prepare` writes the splits."""
        return storage.join(self.config.output.path, filenames.PLAN)

    @functools.cached_property
    def planned(self) -> PlannedSplits:
        """The plan in short; to make it takes a look at every split."""
        return PlannedSplits(self.splits)

    @property
    def n_bytes(self) -> int:
        """Planned bytes of the input, read once."""
        return self.splits.n_bytes

    def stages(self) -> list[progress.Stage]:
        """Returns the stages whose amount of work is known, in order."""
        stages = []
        if self.counts_words:
            stages.append(progress.Stage.of(COUNTING_STAGE, filenames.COUNTED_LEDGER, self.splits))
        if self.tokenizes:
            name, first = next(iter(self.folders.items()))
            folder = storage.join(name, filenames.LEDGER) if name else filenames.LEDGER
            stages.append(progress.Stage.of(TOKENIZING_STAGE, folder, self.splits))
            if shards := first.shards():  # of the largest part
                lengths = {shard.id: shard.n_planned for shard in shards}
                stages.append(progress.Stage(SHUFFLING_STAGE, folder, lengths))
        return stages

    def shards(self) -> list[PlannedShard]:
        """Returns the shards of a job that shuffles, of all folders; none if every split is a shard."""
        if self.parts:
            return [shard for part in self.parts.values() for shard in part.shards()]
        if not self.tokenizes or self.config.output.shuffle is None:
            return []
        return plan_shards(self.config.output, self.planned, self.job.digest)

    def counting(self) -> Counting | None:
        """Returns what is counted of the words; None if they are not."""
        if self.counting_json is None:
            return None
        config, n = self.config, n_partitions_of(self.splits.n_work)
        words = config.input, config.output.path, self.counting_json, config.counts, config.text
        return Counting(*words, n, f"{self.planned.digest:016x}", self.is_sample)


def plan_job(name: JobName, config: Config) -> JobPlan:
    """Plans what a job will do; reads the tokenizer, looks at the input as `plan_splits` does, and writes nothing.

    Raises:
      ValueError: naming all input files and tokenizers that cannot be used.
      OSError: when the only problem is that files cannot be read.
    """
    configs = parts.configs(config) if name in ("run", "tokenize") else {"": config}
    return _plan(name, config) if "" in configs else _plan_parts(name, config, configs)


def _plan_parts(name: JobName, config: Config, configs: Mapping[str, Config]) -> JobPlan:
    plans: dict[str, JobPlan] = {}
    problems: list[Exception] = []
    for folder, each in configs.items():
        # The input is looked at once: all have the same splits, but for their ids.
        first = next(iter(plans.values()), None)
        of_parts = each.output.parts
        if first is not None and first.config.tokenizer == each.tokenizer:
            plans[folder] = _plan_again(first, each)
            continue
        key = f"output.parts.tokenizers.{of_parts.only}" if of_parts and of_parts.tokenizers else "tokenizer.file"
        try:
            plans[folder] = _plan(name, each, key, first.splits if first is not None else None)
        except (OSError, ValueError) as error:
            problems.append(error)
    if problems:
        kind = OSError if all(isinstance(problem, OSError) for problem in problems) else ValueError
        raise kind("\n".join(dict.fromkeys(line for problem in problems for line in str(problem).splitlines())))
    first = next(iter(plans.values()))
    digests = {folder: plan.job.parts["tokenizer"] for folder, plan in plans.items()}
    job = Job({**Job.of(first.name, config, None, steps=steps_of(name)).parts, "folders": digests})
    warnings = tuple(dict.fromkeys(line for plan in plans.values() for line in plan.warnings))
    return JobPlan(first.name, config, job, first.splits, None, first.counting_json, warnings, plans)


def _plan_again(plan: JobPlan, config: Config) -> JobPlan:
    """Plans a job that differs from another only in its folder and in whose documents it is for."""
    output = config.output.model_copy(update={"packing": plan.config.output.packing})
    config = config.model_copy(update={"output": output})
    tokenizer, counts = (plan.job.parts.get(each) for each in ("tokenizer", "counts"))
    job = Job.of(plan.name, config, tokenizer, counts, steps_of(plan.name))
    return dataclasses.replace(plan, config=config, job=job)


def _padded(config: Config, packing: PackingConfig, tokenizer: Tokenizer) -> Config:
    """Returns a config that names the token that fills sequences up: a saved tokenizer does not say what its files did.

    Raises:
      ValueError: as `packing_ids`.
    """
    _, pad_id = arranging.packing_ids(packing, tokenizer)
    name = None if pad_id is None else tokenizer.id_to_token(pad_id)
    output = config.output.model_copy(update={"packing": packing.model_copy(update={"pad_token": name})})
    return config.model_copy(update={"output": output})


class _Given(NamedTuple):
    """What a job has before it looks at its input: an existing tokenizer, or what counts words for a vocabulary."""

    config: Config
    """Complete: it names the token that fills sequences up."""
    tokenizer: Tokenizer | None = None
    counting_json: str | None = None
    counts_digest: str | None = None
    """Of existing word counts."""
    has_end: bool = False
    """Whether something ends every document."""


def _given(name: JobName, config: Config) -> _Given:
    """Opens what a config names; raises OSError or ValueError if it cannot be used."""
    tokenizes, train = name in ("run", "tokenize"), config.tokenizer.train if name in ("run", "train") else None
    given = _Given(config, has_end=config.tokenizer.add_special_tokens or config.output.append is not None)
    if train is not None and train.counts is not None:
        artifact = open_counts(train.counts)
        check_counts(artifact, config.tokenizer, config.train_by)
        given = given._replace(counts_digest=artifact.digest)
    elif train is not None or not tokenizes:
        given = given._replace(counting_json=counting_tokenizer(config.tokenizer, tuple(config.text.tokens)).to_str())
    else:
        tokenizer = given_tokenizer(config)
        has_end = bool(arranging.lay_out(config, tokenizer).marks.right)
        if config.output.packing is not None:
            config = _padded(config, config.output.packing, tokenizer)
        given = _Given(config, tokenizer, has_end=has_end)
    fim = config.output.fim if tokenizes else None
    if made := given.tokenizer or (stand_in(config) if train and (fim or config.output.vocabulary) else None):
        check_formats(made, config.output)
        if fim is not None:
            FillInMiddle.of(fim, made)
    return given


def _plan(name: JobName, config: Config, key: str = "tokenizer.file", planned: Splits | None = None) -> JobPlan:
    """Plans a job with one tokenizer.

    Args:
      name: the name of the job.
      config: the config of the job.
      key: where the config names the tokenizer.
      planned: the splits of another job with the same input.
    """
    tokenizes = name in ("run", "tokenize")
    problems: list[Exception] = []
    said: list[str] = []
    given = _Given(config)
    try:
        given = _given(name, config)
    except (OSError, ValueError) as error:
        kind = OSError if isinstance(error, OSError) else ValueError
        section = key if config.tokenizer.file else "tokenizer"
        names_key = str(error).startswith(("output.", "tokenizer."))
        problems.append(kind(f"{error}" if names_key else f"{section}: {error}"))
    config, tokenizer, counting_json = given.config, given.tokenizer, given.counting_json
    trains = name in ("run", "train") and config.tokenizer.train is not None
    name = "tokenize" if name == "run" and not trains else name
    digest = tokenizer.digest if tokenizer is not None else None
    job = Job.of(name, config, digest, given.counts_digest, steps_of(name))
    splits = Splits((), "")
    try:
        if planned:
            splits = planned
        elif tokenizes or counting_json is not None:
            _check_beside(config)
            splits = plan_splits(config.input, job.digest, said)
            _check_apart(config, splits)
            if config.chat is not None:
                splits.fields = encode_fields(with_made(decode_fields(splits.fields), config.chat))
            if tokenizes and splits and (of := config.output.parts) and of.shares and of.by is not None:
                check_field(decode_fields(splits.fields), of.by)
        if counting_json is not None:
            check_sources(splits, config.counts)
    except (OSError, ValueError) as error:
        problems.append(error)
    if config.chat is not None and tokenizer is not None:
        try:
            said += ChatTexts.of_section(config.chat, "messages", tokenizer).check()
        except ValueError as error:
            problems.append(error)
    if problems:
        kind = OSError if all(isinstance(problem, OSError) for problem in problems) else ValueError
        raise kind("\n".join(str(problem) for problem in problems))
    packing = config.output.packing
    is_chat = config.input.is_chat  # whose template ends each text
    if tokenizes and packing is not None and packing.separator is None and not given.has_end and not is_chat:
        said.append(_NO_END)
    if tokenizer is not None:
        said += tokenizer.assumptions
    return JobPlan(name, config, job, splits, tokenizer, counting_json, tuple(said))


def _check_beside(config: Config) -> None:
    """Raises ValueError if a folder or a `**` of the input leads to the output, so that the next run would read it."""
    output = config.output.path
    for path in config.input.all_paths:
        is_remote = storage.is_remote(path)
        deep = re.match(r"(|[^*?[]*/)\*\*(/|$)", path)
        folder = deep[1] if deep else path if not is_remote and os.path.isdir(path) else None
        if folder is None or is_remote != storage.is_remote(output):
            continue
        above, below = (folder, output) if is_remote else (os.path.realpath(folder or "."), os.path.realpath(output))
        if f"{below.rstrip('/')}/".startswith(f"{above.rstrip('/')}/") and below.rstrip("/") != above.rstrip("/"):
            raise ValueError(
                f"output.path: {output!r} is below {path!r} of the input, so another run, or --resume, would read what "
                "this one writes; choose a folder elsewhere"
            )


def _check_apart(config: Config, splits: Splits) -> None:
    """Raises ValueError if a file of the input is below the output folder, where all files are those of a job."""
    output = config.output.path
    is_remote = storage.is_remote(output)
    if all(storage.is_remote(path) != is_remote for path in config.input.all_paths):
        return
    folder = output.rstrip("/") + "/" if is_remote else os.path.join(os.path.realpath(output), "")
    places: dict[str, str] = {}
    for piece in (piece for split in splits for piece in split.pieces):
        where, _, name = piece.path.replace(os.sep, "/").rpartition("/")
        if where not in places:
            places[where] = where if storage.is_remote(where) else os.path.realpath(where or ".")
        if f"{places[where]}/{name}".startswith(folder):
            raise ValueError(f"output.path: {output!r} holds the input, {piece.path!r}; choose a folder without inputs")


def prepare(plan: JobPlan, mode: folders.Mode) -> list[str]:
    """Prepares the output folder for a job and writes its plan there, and the tokenizer if it exists already.

    Returns:
      A warning, in a list, if the job that is resumed had input files that are not there now.

    Raises:
      ValueError: when the folder holds something else than `mode` allows.
    """
    for each in (plan, *plan.parts.values()):
        output, n_splits = each.config.output, 0 if each.parts or not each.tokenizes else len(each.splits)
        suffix, *companions = formats.suffixes(output) if n_splits else ("",)
        folders.prepare_output(
            output.path,
            each.job,
            mode,
            n_splits=n_splits,
            suffix=suffix,
            companions=companions,
            n_shards=len(each.shards()) or None,
            reads=_reads(each.config),
        )
        _delete_half_written(output.path)
        if each.tokenizer is not None:
            storage.write_atomic(each.tokenizer_path, each.tokenizer.to_str().encode())
    warnings = _gone(plan) if mode == "resume" and storage.exists(plan.plan_path) else []
    storage.write_atomic(plan.plan_path, (f"{line}\n".encode() for line in plan.splits.lines_by_work()))
    return warnings


def _gone(plan: JobPlan) -> list[str]:
    """Warns of files that the job was planned with, and that its input no longer has by their path or their name.

    Holds 16 bytes for each file of the input. Where hashes are equal by chance, a file is not named.
    """
    places = (place for split in plan.splits for piece in split.pieces for place in (piece.path, piece.name))
    now = array("q", map(hash, places))
    np.asarray(memoryview(now)).sort()  # in place
    n, first = 0, ""
    try:
        for piece in (piece for split in read_plan(plan.plan_path) for piece in split.pieces if piece.start == 0):
            found = [(bisect_left(now, each), each) for each in (hash(piece.path), hash(piece.name))]
            if not any(i < len(now) and now[i] == each for i, each in found):
                n, first = n + 1, first or piece.path
    except (ValueError, TypeError):
        return [f"{plan.plan_path!r} is damaged, so input files that this job had and that are gone are not named"]
    if not n:
        return []
    gone = f"input files that this job had are gone: {n:,}, such as {first!r}; what was read of them leaves the output"
    return [f"{gone}; unless you mean that, put them back, and resume again"]


def _reads(config: Config) -> list[str]:
    """Returns the tokenizers and word counts that a job reads."""
    of, parts = config.tokenizer, config.output.parts
    paths = (of.file, of.train and of.train.counts, *(parts.tokenizers.values() if parts else ()))
    return [path for path in paths if path]


def _delete_half_written(output: str) -> None:
    """Removes what `storage.write_atomic` leaves beside a file when the process is killed before it renames."""
    storage.delete_tree(storage.join(output, filenames.COUNTED_SPLITS, filenames.TEMPORARY))
    for folder in (*folders.FOLDERS, filenames.COUNTED_LEDGER):
        path = storage.join(output, folder) if folder else output
        for name in storage.list_files(path):
            if storage.HALF_WRITTEN.search(name):
                storage.delete(storage.join(path, name))


def read_plan(path: str) -> Iterator[Split]:
    """Yields the splits that `prepare` wrote, those with most work first."""
    with storage.open_read(path) as handle:
        for line in handle:
            yield Split.from_json(line.decode())
