# SPDX-License-Identifier: Apache-2.0
"""Tokenizes the rejected records of a job again, after a fix; reads only these, and writes them to `replay/`.

`replay/` in an output folder is itself an output folder, with shards, rejects, ledger and manifest. The record of its
job has the digest of the manifest that it completes, so the two are proven together. Every replay starts from the
rejects of the job and replaces the previous replay.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.job_record import Job, differences
from tokenmill.pipeline.books.ledger import LedgerEntry, runs_of
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.books.manifest import split_ids
from tokenmill.pipeline.books.quantities import COMMITTED, BooksError
from tokenmill.pipeline.config.input import LIMITS, InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.filenames import REPLAY
from tokenmill.pipeline.input.readers import is_cut_by_bytes
from tokenmill.pipeline.input.reading import Wanted
from tokenmill.pipeline.input.splitting import MAX_PIECES
from tokenmill.pipeline.jobs.finish import Folder, finish_output
from tokenmill.pipeline.jobs.same_job import check_tokenizer, padded_as
from tokenmill.pipeline.output import folders, tables
from tokenmill.pipeline.output.ownership import Lease
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.proving.report import VerifyReport, check_unchanged
from tokenmill.pipeline.proving.verify import verify
from tokenmill.pipeline.shuffling import plan_shards
from tokenmill.pipeline.splits import Piece, Splits
from tokenmill.pipeline.tokenizing.steps import steps_of
from tokenmill.pipeline.tokenizing.tokenize import merge_planned, tokenize_split
from tokenmill.tokenizer import Tokenizer

_MAY_CHANGE = ("paths", "exclude", "text_field", "text_fields", "join", "id_field", "max_document_bytes", *LIMITS)


def replay(config: Config, lease: Lease | None = None) -> Mapping[str, Any]:
    """Tokenizes the rejected records of a finished job again, as the config says now, into `replay/`.

    Lines of uncompressed files are read by their byte ranges. A compressed file, a file that is one document, or a run
    of row groups is read completely, and all but the rejected records are left out. Splits are done one after another,
    in this process. Memory: the positions of the rejects of one file, and what `tokenize_split` holds.

    Args:
      config: the config of the job. In `input` the fields and the limits may have changed; nothing else may.
      lease: the lease of the folder of the job, of which `replay/` is a part; None if nobody owns it.

    Returns:
      The manifest of the replay.

    Raises:
      ValueError: if the job is not finished, the config would give other tokens, or a file has changed.
      OSError: if a file cannot be read.
      BooksError: if not every rejected record of the job was read again.
    """
    output = config.output.path
    manifest = read_manifest(output)
    if manifest["tokenizer"] is None or not manifest["shards"]:
        raise ValueError(f"{output!r} holds no shards: there is nothing to replay")
    _check_config(config, manifest)
    tokenizer = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER)))
    job = _job_of(output, config, manifest)
    groups = _numbered(_groups(output, manifest, config.input))
    splits = Splits([[piece for piece, _ in group] for group in groups], job.digest, _fields_of(output, manifest))
    folder = storage.join(output, REPLAY)
    inside = config.model_copy(update={"output": config.output.model_copy(update={"path": folder})})
    suffix, *companions = formats.suffixes(config.output)
    planned = PlannedSplits(splits)
    shards = plan_shards(config.output, planned, job.digest)
    folders.prepare_output(
        folder,
        job,
        "overwrite",
        n_splits=len(splits),
        suffix=suffix,
        companions=companions,
        n_shards=len(shards) or None,
    )
    entries = []
    for split, group in zip(splits, groups, strict=True):
        wanted = {i: offsets for i, (_, offsets) in enumerate(group) if offsets is not None}
        entries.append(tokenize_split(split, inside, tokenizer, len(splits), wanted=Wanted(COMMITTED, wanted)))
    for shard in shards:
        merge_planned(shard, [runs_of(entry) for entry in entries], inside, tokenizer)
    built = finish_output(Folder(inside, job, planned, tokenizer), lease)
    _check_books(manifest, built)
    return built


def verify_replay(output: str, report: VerifyReport) -> None:
    """Verifies a replay, if there is one and its job is proven; adds the findings to the report of the job's folder."""
    folder = storage.join(output, REPLAY)
    if not report.is_proven or not storage.exists(storage.join(folder, filenames.MANIFEST)):
        return
    replayed = verify(folder)
    replayed.problems = [f"{REPLAY}/{problem}" for problem in replayed.problems]
    report.merge(replayed)
    manifest = read_manifest(folder)
    try:
        if manifest["replay_of"] != _manifest_digest(output):
            raise BooksError(f"{REPLAY}: belongs to another run of the job; run tokenmill replay again")
        _check_books(read_manifest(output), manifest)
    except BooksError as error:
        report.problems.append(str(error))


def _check_books(manifest: Mapping[str, Any], replayed: Mapping[str, Any]) -> None:
    """Checks that a replay has read all rejected records of the job it completes, and no others.

    Args:
      manifest: manifest of the job.
      replayed: manifest of its replay.

    Raises:
      BooksError: with both numbers.
    """
    n_rejected = sum(manifest["totals"]["rejected"].values())
    totals = replayed["totals"]
    n_again = totals["n_records"] - totals["filtered"].get(COMMITTED, 0)
    if n_again != n_rejected:
        raise BooksError(f"{REPLAY}: {n_again} records read again != {n_rejected} rejected by the job")


def _manifest_digest(output: str) -> str:
    """Returns the SHA-256 of the manifest that a replay completes."""
    return ledger.describe(output, filenames.MANIFEST).sha256


def _check_config(config: Config, manifest: Mapping[str, Any]) -> None:
    now = Job.of("", padded_as(manifest, config), None).parts["config"]
    then = manifest["config"]
    wrong = [
        f"{where}: {before!r} there, {value!r} now"
        for section in now
        for where, before, value in _compare(section, then.get(section), now[section])
    ]
    wrong += differences(manifest.get("steps"), steps_of("replay") or None, "steps")
    if wrong:
        raise ValueError(
            f"cannot replay in {config.output.path!r}: {'; '.join(wrong)}; only {', '.join(_MAY_CHANGE)} of input may "
            "change"
        )
    if wrong := check_tokenizer(manifest["tokenizer"]["digest"], manifest["unicode"], config):
        raise ValueError(f"cannot replay in {config.output.path!r}: {'; '.join(wrong)}; it must be the same")


def _compare(section: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields each setting of a section that has changed but must not: its name, and both values."""
    if not isinstance(now, dict) or not isinstance(then, dict):  # `normalize` and `spans` are lists
        yield from [(section, then, now)] if then != now else []
        return
    may_change = _MAY_CHANGE if section.startswith("input") else ()
    for name in now:
        where, before, value = f"{section}.{name}", then.get(name), now[name]
        if where == "input.sources":
            for each in sorted({*(before or {}), *value}):
                yield from _compare(f"{where}.{each}", (before or {}).get(each), value.get(each))
        elif name not in may_change and before != value:
            yield where, before, value


def _job_of(output: str, config: Config, manifest: Mapping[str, Any]) -> Job:
    job = Job.of("replay", config, manifest["tokenizer"]["digest"], steps=steps_of("replay"))
    return Job({**job.parts, "replay_of": _manifest_digest(output)})


def _fields_of(output: str, manifest: Mapping[str, Any]) -> str:
    entries = (ledger.LedgerEntry.read(output, split_id) for split_id in split_ids(manifest))
    return next((entry.fields for entry in entries if entry is not None), "")


def _groups(
    output: str, manifest: Mapping[str, Any], config: InputConfig
) -> Iterator[list[tuple[Piece, np.ndarray | None]]]:
    """Yields the pieces of each split, and for those that are read completely, the wanted offsets."""
    limit, named = manifest["config"]["input"]["split_bytes"], config.all_paths
    group: list[tuple[Piece, np.ndarray | None]] = []
    n_bytes = 0
    for record in manifest["rejects"]:
        entry = ledger.LedgerEntry.read(output, record["split"])
        if entry is None:
            raise ValueError(f"{filenames.entry_name(record['split'])}: missing, or not a ledger entry")
        for piece, offsets in _pieces(output, entry, record["file"], config, named):
            is_full = n_bytes + piece.n_planned > limit or len(group) == MAX_PIECES
            if group and (is_full or group[0][0].source != piece.source):
                yield group
                group, n_bytes = [], 0
            group.append((piece, offsets))
            n_bytes += piece.n_planned
    if group:
        yield group


def _numbered(groups: Iterable[list[tuple[Piece, np.ndarray | None]]]) -> list[list[tuple[Piece, np.ndarray | None]]]:
    """Returns groups with their files renumbered, because a replay does not read all of them."""
    numbers: dict[tuple[str, str], int] = {}
    return [
        [
            (dataclasses.replace(piece, file=numbers.setdefault((piece.path, piece.name), len(numbers))), offsets)
            for piece, offsets in group
        ]
        for group in groups
    ]


def _pieces(
    output: str, entry: LedgerEntry, name: str, config: InputConfig, named: Sequence[str]
) -> Iterator[tuple[Piece, np.ndarray | None]]:
    table = pa.Table.from_batches(tables.read_rejects(output, name))
    sources = np.array(table["source"].to_pylist(), dtype=object)
    offsets, sizes = table["offset"].to_numpy(), table["n_bytes"].to_numpy()
    names = [piece.name for piece in entry.pieces]
    for piece in entry.pieces:
        is_of = sources == piece.name
        if not is_of.any():
            continue
        if names.count(piece.name) > 1:
            raise ValueError(f"split {entry.split_id}: two files are named {piece.name!r}; their rejects look the same")
        try:
            check_unchanged(piece, output, named)
        except ValueError as error:
            raise ValueError(f"{error}: run the job again with --resume, then replay") from error
        if is_cut_by_bytes(piece, config.of(piece.source).document):
            for start, stop in _runs(offsets[is_of], sizes[is_of]):
                yield dataclasses.replace(piece, start=start, stop=stop), None
        else:
            yield piece, offsets[is_of]


def _runs(offsets: np.ndarray, sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields the ranges of records in order; adjacent records share one range."""
    run: tuple[int, int] | None = None
    for start, size in sorted(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        if run is not None and run[1] == start:
            run = run[0], start + size
            continue
        if run is not None:
            yield run
        run = start, start + size
    if run is not None:
        yield run
