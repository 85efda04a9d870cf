# SPDX-License-Identifier: Apache-2.0
"""Finishes an output folder of committed splits: vocabulary, statistics, and the manifest last. No Beam here.

    ledger, statistics of splits --Totals--> sums, lists --> vocabulary, statistics, manifest.json

A job of many splits is added up in chunks of `CHUNK_ENTRIES` splits, or shards of a shuffle, whose sums and lists go
into files in `_tmp/`. The last step joins them in the order of the plan, so the result is the same as without chunks.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger, lists, manifest, parts
from tokenmill.pipeline.books.job_books import JobBooks, PlannedSplits, check_balance, read_committed
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry, ShardEntry, Written
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.reject_limits import by_limits, check_rejects, check_unknown
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.input.unusable import check_usable
from tokenmill.pipeline.isolating import in_turn
from tokenmill.pipeline.jobs.planning import read_plan
from tokenmill.pipeline.output import folders, tables
from tokenmill.pipeline.output.arranging import row_form
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.output.shard import row_schemas
from tokenmill.pipeline.output.vocabulary_files import formats_of, vocabulary_files, write_file
from tokenmill.pipeline.output.writers import formats, mds
from tokenmill.pipeline.reporting.stats import summarize
from tokenmill.pipeline.shuffling import plan_shards
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.statistics.vocabulary import token_counts
from tokenmill.pipeline.tokenizing.pages import schema_of_rows, tokenizer_info
from tokenmill.pipeline.training.train import Vocabulary
from tokenmill.tokenizer import Tokenizer

CHUNK_ENTRIES = 256
"""Entries added up in a chunk; the last step holds nothing of them, but takes a few milliseconds for each chunk."""

_READABLE = ("parquet", "arrow")
"""The formats that `datasets` reads; of several, one is the data."""


class Totals(JobBooks):
    """The books of a job with its statistics: all that the manifest and the statistics follow from."""

    def __init__(self, output: str, listed: lists.Sink, statistics: Statistics, **settings: Any) -> None:
        """Starts at zero.

        Args:
          output: the output folder.
          listed: gets the records of the manifest's lists.
          statistics: those of nothing, of the job's vocabulary.
          settings: those of `JobBooks`.
        """
        super().__init__(listed.take, **settings)
        self.statistics = statistics
        self.mds_shards: list[mds.Shard] = []
        self._output, self._listed = output, listed

    @classmethod
    def of(cls, config: Config, job: Job, tokenizer: Tokenizer, listed: lists.Lists, *, is_chunk: bool = False) -> Self:
        """Returns those of a job, or of a chunk of it, before anything is added."""
        kind = {"is_shuffled": config.output.shuffle is not None, "is_whole": "replay_of" not in job.parts}
        statistics = Statistics(tokenizer.n_ids, tokenizer.unk_token_id)
        return cls(config.output.path, listed, statistics, **kind, is_chunk=is_chunk, limits=config.input)

    def add_committed(self, kind: str, ids: Iterable[str], tokenizer: str) -> None:
        """Adds "splits", with their statistics, or "shards" of a shuffle, in the order of the plan.

        Args:
          kind: which of both.
          ids: their ids.
          tokenizer: the digest of the tokenizer that must have made them.

        Raises:
          BooksError: if one is not committed, or does not balance.
        """

        def split(split_id: str) -> tuple[LedgerEntry, Statistics]:
            entry = read_committed(split_id, self._output, tokenizer)
            check_balance(entry)
            return entry, self._read_statistics(storage.join(self._output, entry.statistics.file))

        def shard(shard_id: str) -> ShardEntry:
            entry = ShardEntry.read(self._output, shard_id)
            if entry is None:
                raise BooksError(f"shard {shard_id} has not been merged")
            check_balance(entry)
            return entry

        waits = storage.is_remote(self._output)
        if kind == "splits":
            for entry, statistics in in_turn(split, ids, waits=waits):
                self.statistics.merge(statistics)
                self.add(entry)
        else:
            for merged in in_turn(shard, ids, waits=waits):
                self.add_shard(merged)

    def summarize(self, table: pa.Table) -> dict[str, Any]:
        """Returns the contents of stats.json, after all was added; table: `vocabulary.TOKEN_COUNTS` of the job."""
        self.statistics.add_groups(self.counts.groups)
        packing, windows, chat = (self.totals.get(name) for name in ("packing", "windows", "chat"))
        return summarize(self.statistics, table, packing, windows, chat, self.by_source)

    def save(self, path: str) -> None:
        """Writes a chunk into files whose names begin with `path`; again, the same bytes."""
        assert isinstance(self._listed, lists.Lists)
        self._listed.save(path)
        storage.write_atomic(f"{path}.statistics", self.statistics.to_bytes())
        self.counts.add_groups(self.statistics.groups)  # the words that were dropped
        record = {**self.to_record(), "mds_shards": self.mds_shards}
        storage.write_atomic(f"{path}.json", json.dumps(record).encode())

    def join_saved(self, paths: Sequence[str]) -> None:
        """Adds chunks that `save` has written, in order."""

        def read(path: str) -> tuple[dict[str, Any], Statistics]:
            with storage.open_read(f"{path}.json") as books:
                return json.load(books), self._read_statistics(f"{path}.statistics")

        assert isinstance(self._listed, lists.Lists)
        saved = in_turn(read, paths, waits=storage.is_remote(self._output))
        for path, (chunk, statistics) in zip(paths, saved, strict=True):
            self.statistics.merge(statistics)
            self.join(chunk)
            self._listed.extend(path)
            self.mds_shards += map(tuple, chunk["mds_shards"])

    def _add_written(self, entry: Written, of: Mapping[str, str]) -> None:
        super()._add_written(entry, of)
        files = (entry.shard, *entry.companions)
        self.mds_shards += ((file.file, file.n_bytes, file.rows or 0) for file in files if file.file.endswith(".mds"))

    def _read_statistics(self, path: str) -> Statistics:
        with storage.open_read(path) as handle:
            unk_id = self.statistics.unk_id
            return Statistics.from_bytes(handle.read(), unk_id if unk_id >= 0 else None)


def add_up_chunk(config: Config, job: Job, tokenizer: Tokenizer, kind: str, number: int, ids: Iterable[str]) -> None:
    """Adds up some splits or shards, as `kind` says, and saves them as a chunk; raises as `Totals.add_committed`."""
    totals = Totals.of(config, job, tokenizer, lists.Lists(config.output.path, is_chunk=True), is_chunk=True)
    totals.add_committed(kind, ids, tokenizer.digest)
    totals.save(storage.join(config.output.path, _chunk_name(kind, number)))


def _chunk_name(kind: str, number: int) -> str:
    return f"{filenames.TEMPORARY}/{kind}-{number:08d}"


@dataclass(frozen=True)
class Folder:
    """A folder of committed splits that can be finished."""

    config: Config
    job: Job
    """As `folders.prepare_output` was given it."""
    splits: PlannedSplits
    tokenizer: Tokenizer
    """The tokenizer that made the tokens."""
    files: Sequence[FileRecord] = ()
    """Other files of the folder for the manifest to list."""
    n_added_up: Mapping[str, int] | None = None
    """How many chunks `add_up_chunk` has made of each kind; None: none."""

    @property
    def n_planned(self) -> int:
        """The shards of a shuffle, else the splits."""
        return len(plan_shards(self.config.output, self.splits, self.job.digest)) or len(self.splits)


def folders_of(
    config: Config,
    jobs: Mapping[str, tuple[Config, Job]],
    tokenizers: Sequence[Tokenizer],
    vocabularies: Sequence[Vocabulary],
    added: Sequence[tuple[int, str]] | None,
) -> dict[str, Folder]:
    """Returns the folders of a job by their names; writes the records of trained vocabularies.

    Args:
      config: the config of the whole job, whose plan is read.
      jobs: the config and the job of each folder.
      tokenizers: the tokenizer of each.
      vocabularies: what was trained, for a folder each or one for all.
      added: the number of the folder and the kind of each chunk that `add_up_chunk` has made; None: none.
    """
    records = {each.folder: replace(each, folder="") for each in vocabularies}
    made: dict[str, Folder] = {}
    for i, ((name, (of, job)), tokenizer) in enumerate(zip(jobs.items(), tokenizers, strict=True)):
        planned = read_plan(storage.join(config.output.path, filenames.PLAN))
        splits = PlannedSplits(split.of_folder(i, job.digest) for split in planned)
        files = [_write_record(of.output.path, records[of.trained_label])] if records else []
        n_added_up = None if added is None else {kind: added.count((i, kind)) for kind in ("splits", "shards")}
        made[name] = Folder(of, job, splits, tokenizer, files, n_added_up)
    return made


def finish_output(folder: Folder, lease: Lease | None = None) -> Mapping[str, Any]:
    """Turns committed splits into a finished output folder: vocabulary, statistics, and the manifest last.

    Reads the ledger entry by entry, or chunks of it that are added up. It holds the statistics of one vocabulary, 8
    bytes for each split of the plan, 8 for the name of each written file, and the index of MDS shards.

    Args:
      folder: all its splits must be committed.
      lease: must still be valid when the manifest is written; None if nobody owns the folder.

    Returns:
      The manifest.

    Raises:
      BooksError: if a split is not committed, or anything does not add up; there is no manifest then.
      ValueError: if all records were rejected, more than the config allows or too much of a file, or the folder has
        another owner now; there is no manifest then either.
    """
    output = folder.config.output.path
    listed = lists.Lists(output)
    added = _add_up(folder, listed)
    summed = manifest.sums(added)
    files = [write_file(output, name, data) for name, data in files_of(folder, added).items()]
    built = manifest_of(folder, summed, listed.finish(), [*files, *folder.files])
    _check_losses(folder, added)
    suffix, *companions = formats.suffixes(folder.config.output)
    folders.publish(output, folder.job, built, suffix=suffix, companions=companions, lease=lease)
    return lists.opened(output, built)


def files_of(folder: Folder, added: Totals) -> dict[str, bytes]:
    """Returns the files of a folder besides shards, ledger and manifest: a function of the ledger's sums alone."""
    config, tokenizer = folder.config, folder.tokenizer
    table = token_counts(added.statistics.token_counts, tokenizer)
    return {
        **vocabulary_files(tokenizer, formats_of(config)),
        filenames.TOKEN_COUNTS: _to_parquet(table),
        filenames.STATS: ledger.to_json(added.summarize(table)),
        **_mds_index(config, tokenizer, added.mds_shards, folder.splits.fields),
        **_hub_config(config.output.formats),
    }


def manifest_of(
    folder: Folder, summed: Mapping[str, Any], listed: Mapping[str, Any], files: Sequence[FileRecord]
) -> dict[str, Any]:
    """Returns the manifest of a folder, a function of the ledger and the files.

    Args:
      folder: the folder.
      summed: `manifest.sums` of its books.
      listed: the lists, from `lists.Lists.finish`.
      files: the files besides shards and ledger.
    """
    form = row_form(folder.config, folder.tokenizer)
    return manifest.build(
        folder.job,
        summed,
        listed,
        tokenizer=_describe(folder.tokenizer),
        files=files,
        marks=form.marks.to_record(),
        packing={"separator_id": form.separator_id, "pad_id": form.pad_id} if form.is_packed else None,
        fields=folder.splits.fields,
    )


def _add_up(folder: Folder, listed: lists.Lists) -> Totals:
    """Returns the totals of a folder; raises BooksError unless they are those of its plan."""
    planned, added = folder.splits, Totals.of(folder.config, folder.job, folder.tokenizer, listed)
    shards = [shard.id for shard in plan_shards(folder.config.output, planned, folder.job.digest)]
    for kind, ids in (("splits", planned.ids()), ("shards", shards)):
        if folder.n_added_up is None:
            added.add_committed(kind, ids, folder.tokenizer.digest)
        else:
            output, n = folder.config.output.path, folder.n_added_up[kind]
            added.join_saved([storage.join(output, _chunk_name(kind, i)) for i in range(n)])
        added.close()
    added.check_planned(planned, shards)
    return added


def _describe(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the section of the manifest about the tokenizer."""
    info = tokenizer_info(tokenizer)
    return {
        "digest": info.digest,
        "vocab_size": info.vocab_size,
        "special_ids": dict(info.special_ids),
        "unk_id": tokenizer.unk_token_id,
        "pad_id": tokenizer.padding.pad_id if tokenizer.padding is not None else None,
        "token_dtype": info.token_dtype.name,
        "unicode": tokenizer.unicode_versions,
    }


def _check_losses(folder: Folder, added: Totals) -> None:
    """Raises ValueError if more is lost than the config allows."""
    config, output = folder.config, folder.config.output.path
    if "replay_of" not in folder.job.parts:  # it may end with all records rejected again, and reports them itself
        for section, read in by_limits(config.input, added.totals, added.by_source):
            digest = folder.tokenizer.digest
            entries = (read_committed(split_id, output, digest) for split_id in folder.splits.ids())
            where = storage.join(output, filenames.REJECTED)
            check_usable(read["n_records"], read["rejected"], entries, section, where=where, kept=_rejects(output))
        if added.lossy is not None:
            added.lossy.check()
    check_rejects(config.input, added.totals, added.by_source)
    if config.output.parts is None:
        check_unknown(added.totals, config.tokenizer)


def finish_job(
    config: Config,
    job: Job,
    todo: Mapping[str, Folder],
    n_done: int,
    lease: Lease | None,
    counted: str | None = None,
) -> None:
    """Finishes each folder of a job; of an output in parts, writes `parts.json` above them last.

    Args:
      config: the config of the whole job.
      job: the whole job.
      todo: the folders by their names; "" if there is only one.
      n_done: how many splits, or shards of a shuffle, are committed in all folders.
      lease: the lease of the folder of the whole job.
      counted: the folder of the word counts that a vocabulary was trained on.

    Raises:
      BooksError, ValueError: as `finish_output`, or if something planned is not done, if the folders together do not
        balance, or all of them together have more rejects than the config allows; there is no `parts.json` then.
    """
    if n_done != (n_planned := sum(folder.n_planned for folder in todo.values())):
        kind = "splits" if config.output.shuffle is None else "shards"
        raise BooksError(f"{n_planned} {kind} were planned, and {n_done} are done")
    output, files = config.output.path, _counts_files(config, counted)
    finished: dict[str, Mapping[str, Any]] = {}
    for name, folder in todo.items():
        path = folder.config.output.path
        if folder.n_added_up is not None and storage.exists(storage.join(path, filenames.MANIFEST)):
            finished[name] = manifest.read(path)  # by an attempt that died behind it
            folders.clear_working_files(path)
            continue
        if not name:
            folder = replace(folder, files=[*folder.files, *files])
        finished[name] = finish_output(folder, lease)
    if "" in finished:
        return
    manifests = {name: (ledger.describe(output, f"{name}/{filenames.MANIFEST}"), finished[name]) for name in finished}
    of_hub = [write_file(output, *each) for each in _hub_config(config.output.formats, [*todo]).items()]
    built = parts.build(job, manifests, [*files, *of_hub])
    check_rejects(config.input, built["totals"], built.get("by_source", {}))
    check_unknown(built["totals"], config.tokenizer)
    folders.clear_working_files(output)  # of the counts; each folder has removed its own
    if lease is not None:
        lease.check()
    write_file(output, filenames.PARTS, ledger.to_json(built))


def finish_counting(
    config: Config, job: Job, counted: str | None, vocabularies: Sequence[Vocabulary], lease: Lease | None
) -> None:
    """Finishes the folder of a job that writes no shards: vocabularies, if it trains, and the manifest last.

    Args:
      config: the config of the job.
      job: the job.
      counted: the folder of the finished word counts.
      vocabularies: what was trained.
      lease: as in `finish_output`.
    """
    output, tokenizer = config.output.path, None
    files = _counts_files(config, counted)
    for vocabulary in vocabularies:
        trained = Tokenizer.from_str(vocabulary.tokenizer_json)
        written = vocabulary_files(trained, formats_of(config), vocabulary.folder)
        files += [write_file(output, name, data) for name, data in written.items()]
        files.append(_write_record(output, vocabulary))
        if not vocabulary.folder:
            tokenizer = {"digest": trained.digest, "vocab_size": trained.n_ids}
    listed = lists.Lists(output)
    built = manifest.build(job, manifest.sums(JobBooks(listed.take)), listed.finish(), tokenizer=tokenizer, files=files)
    folders.publish(output, job, built, lease=lease)


def _write_record(output: str, vocabulary: Vocabulary) -> FileRecord:
    folder = f"{filenames.VOCABULARY}/{vocabulary.folder}" if vocabulary.folder else filenames.VOCABULARY
    return write_file(output, f"{folder}/{filenames.TRAINING_NAME}", ledger.to_json(vocabulary.record))


def _counts_files(config: Config, counted: str | None) -> list[FileRecord]:
    """Returns the files of the word counts that are in the output folder; those of another are not the job's."""
    output = config.output.path
    if counted != output:
        return []
    names = counts.REPORT_NAME, counts.ALPHABET_NAME, filenames.list_name("counted")
    there = (ledger.describe(output, name) for name in names if storage.exists(storage.join(output, name)))
    return [*counts.open_counts(output).files, *there]


def _rejects(output: str) -> Iterator[dict[str, Any]]:
    """Yields the rejects of a folder; it is not looked into before the first is asked for."""
    for name in storage.list_files(storage.join(output, filenames.REJECTED)):
        for batch in tables.read_rejects(output, f"{filenames.REJECTED}/{name}"):
            yield from batch.to_pylist()


def _mds_index(config: Config, tokenizer: Tokenizer, shards: list[mds.Shard], fields: str) -> dict[str, bytes]:
    if "mds" not in config.output.formats:
        return {}
    schema = row_schemas(schema_of_rows(config, fields), row_form(config, tokenizer), config.output)["mds"]
    return {filenames.MDS_INDEX: mds.make_index(shards, mds.columns_of(schema, tokenizer_info(tokenizer)))}


def _to_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def _hub_config(names: Iterable[str], beside: Sequence[str] = ()) -> dict[str, bytes]:
    """Returns `.huggingface.yaml` by its name, if `datasets` reads one of the formats.

    It says which files are the data, so that `datasets.load_dataset(folder)` reads the rows. Without it `datasets` and
    hubs guess by names and endings: they take `vocab/training.json` for data to train on, and tables of documents for
    rows.

    Args:
      names: the formats of the shards.
      beside: the folders of parts: with one tokenizer they are one data set, with several one each.
    """
    format_ = next((each for each in _READABLE if each in {*names}), None)
    if format_ is None:
        return {}
    paths = {"default": {"train": [f"{name}/" for name in beside] or [""]}}
    if any(name.startswith("tokenizer=") for name in beside):
        paths = {name.partition("=")[2]: {"train": [f"{name}/"]} for name in beside}
    elif beside and "=" not in beside[0]:  # shares
        paths = {"default": {name: [f"{name}/"] for name in beside}}
    configs = [
        {
            "config_name": name,
            "data_files": [
                {"split": split, "path": [f"{place}tokens-*-of-*.{format_}" for place in places]}
                for split, places in splits.items()
            ],
        }
        for name, splits in paths.items()
    ]
    # JSON is YAML, and the same bytes whatever the version of a library.
    return {filenames.HUB: ledger.to_json({"configs": configs})}
