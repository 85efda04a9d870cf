# SPDX-License-Identifier: Apache-2.0
"""Finishes an output folder of committed splits: vocabulary, statistics, and the manifest last. No Beam here."""

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.books import ledger, lists, manifest, parts, quantities
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.planned import PlannedSplits
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.reject_limits import RejectLimits, by_limits, check_unknown
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.kept_fields import decode_fields
from tokenmill.pipeline.input.unusable import check_usable
from tokenmill.pipeline.jobs.totals import Totals, part_path
from tokenmill.pipeline.output import folders, rejects_file
from tokenmill.pipeline.output.folders import clear_working_files
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.output.placement import RowForm
from tokenmill.pipeline.output.vocabulary_files import formats_of, write_file, write_vocabulary
from tokenmill.pipeline.output.writers import formats, mds
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.reporting.stats import summarize
from tokenmill.pipeline.shuffling.shards import plan_shards
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.statistics.token_table import token_counts
from tokenmill.pipeline.tokenizing.tokenize import tokenizer_info
from tokenmill.tokenizer import Tokenizer

_READABLE = ("parquet", "arrow")
"""The formats that `datasets` reads; of several, one is the data."""


def finish_output(
    config: Config,
    job: Job,
    splits: Iterable[Split] | PlannedSplits,
    tokenizer: Tokenizer,
    *,
    files: Iterable[FileRecord] = (),
    lease: Lease | None = None,
    parts: Mapping[str, int] | None = None,
) -> tuple[Mapping[str, Any], Statistics]:
    """Turns committed splits into a finished output folder: vocabulary, statistics, and the manifest last.

    Reads the ledger entry by entry, or parts of it that are added up. It holds the statistics of one vocabulary, 16
    bytes for each split of the plan, 8 for the name of each written file, and the index of MDS shards.

    Args:
      config: the config of the job.
      job: as `folders.prepare_output` was given it.
      splits: the plan, in any order; all splits must be committed.
      tokenizer: the tokenizer that made the tokens.
      files: other files of the output folder for the manifest to list.
      lease: must still be valid when the manifest is written; None if nobody owns the folder.
      parts: how many parts `totals.add_up_part` has made of each kind; None: none.

    Returns:
      The manifest, and the statistics of all splits.

    Raises:
      BooksError: if a split is not committed, or anything does not add up; there is no manifest then.
      ValueError: if all records were rejected, more than the config allows or too much of a file, or the folder has
        another owner now; there is no manifest then either.
    """
    output, info = config.output.path, tokenizer_info(tokenizer)
    planned = splits if isinstance(splits, PlannedSplits) else PlannedSplits(splits)
    is_replay = "replay_of" in job.parts
    added = Totals(config, job, tokenizer)
    if parts is None:
        added.add_splits(range(len(planned)), lambda index: planned.entry(index, output, info.digest))
    else:
        added.join([part_path(output, "splits", i) for i in range(parts["splits"])])
    books, total = added.books, added.statistics
    books.close()
    shards = plan_shards(config.output, len(planned), planned.n_bytes, job.digest)
    if parts is None:
        added.add_shards(shard.id for shard in shards)
    else:
        added.join([part_path(output, "shards", i) for i in range(parts["shards"])])
    added.check(itertools.chain(planned.ids(), (shard.id for shard in shards)), planned.digest)
    totals = books.totals
    table = token_counts(total.token_counts, tokenizer)
    told = summarize(total, table, totals.get("packing"), totals.get("windows"), totals.get("chat"), books.by_source)
    written = [
        *write_vocabulary(output, tokenizer, formats_of(config)),
        write_file(output, filenames.TOKEN_COUNTS, _to_parquet(table)),
        write_file(output, filenames.STATS, ledger.to_json(told)),
        *_write_mds_index(config, info, added.mds_shards, planned.fields),
        *_write_hub_config(output, config.output.formats),
        *files,
    ]
    described = {
        "digest": info.digest,
        "vocab_size": info.vocab_size,
        "special_ids": dict(info.special_ids),
        "unk_id": tokenizer.unk_token_id,
        "pad_id": tokenizer.padding.pad_id if tokenizer.padding is not None else None,
        "token_dtype": info.token_dtype.name,
        "unicode": tokenizer.unicode_versions,
    }
    form = RowForm.of(config, tokenizer)
    packed = {"separator_id": form.separator_id, "pad_id": form.pad_id} if form.is_packed else None
    built = manifest.build(
        job,
        books,
        added.lists.finish(),
        tokenizer=described,
        files=written,
        marks=form.marks.to_record(),
        packing=packed,
        fields=planned.fields,
    )
    _check_statistics(totals, total)
    limited = list(by_limits(config.input, totals, books.by_source))
    if not is_replay:  # a replay may end with all its records rejected again, and reports them itself
        for section, read in limited:
            entries, where = planned.entries(output, info.digest), storage.join(output, filenames.REJECTED)
            check_usable(read["n_records"], read["rejected"], entries, section, where=where, kept=_rejects(output))
        added.lossy.check()
    for section, read in limited:
        RejectLimits.of(section).check_all(**read)
    if config.output.parts is None:
        check_unknown(totals, config.tokenizer)
    suffix, *companions = formats.suffixes(config.output)
    folders.publish(output, job, built, suffix=suffix, companions=companions, lease=lease)
    return lists.opened(output, built), total


def finish_job(
    config: Config,
    job: Job,
    folders: Mapping[str, tuple[Config, Job, PlannedSplits, Tokenizer, Sequence[FileRecord], Mapping[str, int] | None]],
    lease: Lease | None,
    files: Sequence[FileRecord] = (),
) -> None:
    """Finishes each folder of a job; of an output in parts, writes `parts.json` above them last.

    Args:
      config: the config of the whole job.
      job: the whole job.
      folders: what `finish_output` needs for each, by its name; "" if it is the only one.
      lease: the lease of the folder of the whole job.
      files: files in `output.path` besides those of folders, to be listed.

    Raises:
      BooksError, ValueError: as `finish_output`, or if the folders together do not balance, or all of them together
        have more rejects than the config allows; there is no `parts.json` then.
    """
    output = config.output.path
    finished: dict[str, Mapping[str, Any]] = {}
    for name, (part, its_job, splits, tokenizer, its_files, its_parts) in folders.items():
        if its_parts is not None and storage.exists(storage.join(part.output.path, filenames.MANIFEST)):
            finished[name] = manifest.read(part.output.path)  # by an attempt that died behind it
            clear_working_files(part.output.path)
            continue
        its_files = [*its_files, *files] if not name else its_files
        built, _ = finish_output(part, its_job, splits, tokenizer, files=its_files, lease=lease, parts=its_parts)
        finished[name] = built
    if "" in finished:
        return
    manifests = {name: (ledger.describe(output, f"{name}/{filenames.MANIFEST}"), finished[name]) for name in finished}
    told = parts.build(job, manifests, [*files, *_write_hub_config(output, config.output.formats, [*folders])])
    totals = told["totals"]
    for section, read in by_limits(config.input, totals, told.get("by_source", {})):
        RejectLimits.of(section).check_all(**read)
    check_unknown(totals, config.tokenizer)
    storage.delete_tree(storage.join(output, filenames.TEMPORARY))  # of the counts; each folder has removed its own
    if lease is not None:
        lease.check()
    write_file(output, filenames.PARTS, ledger.to_json(told))


def _rejects(output: str) -> Iterator[dict[str, Any]]:
    """Yields the rejects of a folder; it is not looked into before the first is asked for."""
    for name in storage.list_files(storage.join(output, filenames.REJECTED)):
        for batch in rejects_file.read(output, f"{filenames.REJECTED}/{name}"):
            yield from batch.to_pylist()


def _check_statistics(totals: Mapping[str, Any], counted: Statistics) -> None:
    for name in (each.name for each in quantities.TOKENIZED):
        if totals[name] != counted[name]:
            raise BooksError(f"{name} of the ledger {totals[name]} != {name} of the statistics {counted[name]}")


def _write_mds_index(config: Config, info: TokenizerInfo, shards: list[mds.Shard], fields: str) -> list[FileRecord]:
    if "mds" not in config.output.formats:
        return []
    trained = schemas.LABELS.name if config.output.has_labels("mds") else schemas.LOSS_MASK.name
    mask = [trained] if schemas.LOSS_MASK.name in config.columns else []
    if config.output.packing is not None:
        schema = schemas.packed([*config.output.packing.boundaries, *mask])
    elif config.tokenizer.has_windows:
        schema = schemas.windowed(schemas.TOKENS)
    else:
        schema = schemas.rows(mask, decode_fields(fields))
    return [write_file(config.output.path, filenames.MDS_INDEX, mds.make_index(shards, mds.columns_of(schema, info)))]


def _to_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def _write_hub_config(output: str, formats: Iterable[str], folders: Sequence[str] = ()) -> list[FileRecord]:
    """Writes `.huggingface.yaml`, if `datasets` reads one of the formats; returns its record.

    It says which files are the data, so that `datasets.load_dataset(folder)` reads the rows. Without it `datasets` and
    hubs guess by names and endings: they take `vocab/training.json` for data to train on, and tables of documents for
    rows.

    Args:
      output: the output folder.
      formats: the formats of the shards.
      folders: those of parts: with one tokenizer they are one data set, with several one each.
    """
    format_ = next((each for each in _READABLE if each in {*formats}), None)
    if format_ is None:
        return []
    paths = {"default": {"train": [f"{name}/" for name in folders] or [""]}}
    if any(name.startswith("tokenizer=") for name in folders):
        paths = {name.partition("=")[2]: {"train": [f"{name}/"]} for name in folders}
    elif folders and "=" not in folders[0]:  # shares
        paths = {"default": {name: [f"{name}/"] for name in folders}}
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
    return [write_file(output, filenames.HUB, ledger.to_json({"configs": configs}))]
