# SPDX-License-Identifier: Apache-2.0
"""Finishes an output folder of committed splits: vocabulary, statistics, and the manifest last. No Beam here."""

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger, lists, manifest, parts
from tokenmill.pipeline.books.job_books import PlannedSplits, read_committed
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.reject_limits import by_limits, check_rejects, check_unknown
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input.unusable import check_usable
from tokenmill.pipeline.jobs.totals import Totals, part_path, totals_of
from tokenmill.pipeline.output import folders, tables
from tokenmill.pipeline.output.arranging import row_form
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.output.shard import row_schemas
from tokenmill.pipeline.output.vocabulary_files import formats_of, vocabulary_files, write_file
from tokenmill.pipeline.output.writers import formats, mds
from tokenmill.pipeline.shuffling.shards import plan_shards
from tokenmill.pipeline.statistics.token_table import token_counts
from tokenmill.pipeline.tokenizing.pages import schema_of_rows, tokenizer_info
from tokenmill.tokenizer import Tokenizer

_READABLE = ("parquet", "arrow")
"""The formats that `datasets` reads; of several, one is the data."""


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
    """How many parts `totals.add_up_part` has made of each kind; None: none."""


def finish_output(folder: Folder, lease: Lease | None = None) -> Mapping[str, Any]:
    """Turns committed splits into a finished output folder: vocabulary, statistics, and the manifest last.

    Reads the ledger entry by entry, or parts of it that are added up. It holds the statistics of one vocabulary, 8
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
    summed = manifest.sums(added.books)
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
    config, planned, output, digest = folder.config, folder.splits, folder.config.output.path, folder.tokenizer.digest
    added, n_added_up = totals_of(config, folder.job, folder.tokenizer, listed), folder.n_added_up
    shards = plan_shards(config.output, planned, folder.job.digest)
    if n_added_up is None:
        added.read_splits(planned.ids(), digest)
        added.books.close()
        added.read_shards(shard.id for shard in shards)
    else:
        added.join([part_path(output, "splits", i) for i in range(n_added_up["splits"])])
        added.books.close()
        added.join([part_path(output, "shards", i) for i in range(n_added_up["shards"])])
    added.check_planned(itertools.chain(planned.ids(), (shard.id for shard in shards)), planned.digest)
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
    config, output, books = folder.config, folder.config.output.path, added.books
    if "replay_of" not in folder.job.parts:  # it may end with all records rejected again, and reports them itself
        for section, read in by_limits(config.input, books.totals, books.by_source):
            digest = folder.tokenizer.digest
            entries = (read_committed(split_id, output, digest) for split_id in folder.splits.ids())
            where = storage.join(output, filenames.REJECTED)
            check_usable(read["n_records"], read["rejected"], entries, section, where=where, kept=_rejects(output))
        if added.lossy is not None:
            added.lossy.check()
    check_rejects(config.input, books.totals, books.by_source)
    if config.output.parts is None:
        check_unknown(books.totals, config.tokenizer)


def finish_job(
    config: Config, job: Job, todo: Mapping[str, Folder], lease: Lease | None, files: Sequence[FileRecord] = ()
) -> None:
    """Finishes each folder of a job; of an output in parts, writes `parts.json` above them last.

    Args:
      config: the config of the whole job.
      job: the whole job.
      todo: the folders by their names; "" if there is only one.
      lease: the lease of the folder of the whole job.
      files: files in `output.path` besides those of folders, to be listed.

    Raises:
      BooksError, ValueError: as `finish_output`, or if the folders together do not balance, or all of them together
        have more rejects than the config allows; there is no `parts.json` then.
    """
    output = config.output.path
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
