# SPDX-License-Identifier: Apache-2.0
"""The manifest: what a finished job left in its output folder.

It says nothing about where files lie, so it is the same bytes wherever the same job ran over the same files.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipeline import filenames, storage
from pipeline.books import ledger, partitions
from pipeline.books.equations import check_balance
from pipeline.books.job_record import Job, read_job
from pipeline.books.job_sums import add_up, check_inputs, files_of, identities
from pipeline.books.ledger import FileRecord, LedgerEntry
from pipeline.books.quantities import BooksError
from pipeline.books.shard_entry import ShardEntry, add_sums, check_sums
from pipeline.config.kept_fields import decode_fields
from pipeline.filenames import MANIFEST, keys_name
from pipeline.splits import Split

FORMAT_VERSION = 4
"""Version of the manifest."""


def build(
    job: Job,
    splits: Sequence[Split],
    entries: Sequence[LedgerEntry],
    *,
    tokenizer: Mapping[str, Any] | None = None,
    files: Iterable[FileRecord] = (),
    marks: Mapping[str, Any] | None = None,
    packing: Mapping[str, Any] | None = None,
    shards: Sequence[ShardEntry] | None = None,
) -> dict[str, Any]:
    """Returns the manifest of a finished job.

    Args:
      job: the job that ran.
      splits: the plan.
      entries: of every split, in the order of the plan.
      tokenizer: what the manifest says of the tokenizer, plain JSON.
      files: the files that the job wrote beside shards and rejects.
      marks: the ids around every document, plain JSON; None for a job without shards.
      packing: what the manifest says of packing, plain JSON; None where rows are documents.
      shards: of a job that shuffles, in order; None where every split is a shard.

    Raises:
      BooksError: if a split, a shard or the whole does not balance, or bytes of an input file were left out or read
        twice.
    """
    if [(split.id, split.pieces) for split in splits] != [(entry.split_id, entry.pieces) for entry in entries]:
        raise BooksError(f"{len(splits)} splits were planned, but the ledger's {len(entries)} entries are not theirs")
    for entry in entries:
        check_balance(entry)
    check_inputs(entries, is_whole="replay_of" not in job.parts)
    shuffle = None
    if shards is not None:
        if wrong := [line for shard in shards for line in shard.imbalances()]:
            raise BooksError("\n".join(wrong))
        check_sums(entries, shards)
        shuffle = {"splits": [entry.split_id for entry in entries], "sums": add_sums(shards).to_record()}
    totals = add_up(entries, shards)
    written: list[tuple[ledger.Written, dict[str, str]]] = [(entry, {"split": entry.split_id}) for entry in entries]
    if shards is not None:
        written = [(shard, {"entry": shard.shard_id}) for shard in shards]
    return {
        "format_version": FORMAT_VERSION,
        **{name: value for name, value in job.parts.items() if name != "format_version"},
        "job_digest": job.digest,
        "tokenizer": dict(tokenizer) if tokenizer is not None else None,
        "inputs": inputs(entries),
        "fields": {field.name: str(field.type) for field in decode_fields(splits[0].fields if splits else "")},
        "shards": [{**_record(entry.shard), **of} for entry, of in written],
        "companions": [{**_record(file), **of} for entry, of in written for file in entry.companions],
        "documents": [{**_record(entry.documents), **of} for entry, of in written if entry.documents is not None],
        "marks": dict(marks) if marks is not None else None,
        "packing": dict(packing) if packing is not None else None,
        "shuffle": shuffle,
        "rejects": [{**_record(entry.rejects), "split": entry.split_id} for entry in entries if entry.rejects],
        "files": [_record(file) for file in sorted(files, key=lambda file: file.file)],
        "totals": totals,
        "balance": identities(totals),
    }


def split_ids(manifest: Mapping[str, Any]) -> list[str]:
    """Returns the ids of all splits of a job, in the order of the plan."""
    shuffle = manifest["shuffle"]
    return [record["split"] for record in manifest["shards"]] if shuffle is None else list(shuffle["splits"])


def shard_files(manifest: Mapping[str, Any]) -> set[str]:
    """Returns the names of the files in the ledger that belong to merged shards; none if the job does not shuffle."""
    ids = [record["entry"] for record in manifest["shards"] if "entry" in record]
    return {name(shard_id) for shard_id in ids for name in (filenames.entry_name, keys_name)}


def read(output: str) -> dict[str, Any]:
    """Returns the manifest of a folder.

    Raises:
      ValueError: if there is none, or it cannot be read.
    """
    path = storage.join(output, MANIFEST)
    if not storage.exists(path):
        if partitions.is_partitioned(output):
            folders = ", ".join(partitions.folders_of(output))
            raise ValueError(f"{output!r} holds the folders of several tokenizers; name one of them: {folders}")
        unfinished = "; its job has not finished" if read_job(output) else ""
        raise ValueError(f"{output!r} holds no {MANIFEST}{unfinished}")
    with storage.open_read(path) as handle:
        try:
            manifest = json.loads(handle.read())
        except ValueError as error:
            raise ValueError(f"{path!r} is not a manifest: {error}") from error
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if isinstance(version, int) and version != FORMAT_VERSION:
        raise ValueError(
            f"{path!r} has format {version}, but this TokenMill reads {FORMAT_VERSION}: use the TokenMill that wrote "
            "the folder, or run the job again with --overwrite"
        )
    if version != FORMAT_VERSION or not _is_whole(manifest):
        raise ValueError(f"{path!r} is not a manifest of format {FORMAT_VERSION}")
    return manifest


def read_json(output: str, name: str) -> dict[str, Any]:
    """Returns the JSON of a file in an output folder.

    Raises:
      OSError: if it cannot be read; ValueError: if it is not JSON.
    """
    with storage.open_read(storage.join(output, name)) as handle:
        found: dict[str, Any] = json.loads(handle.read())
    return found


def _is_whole(manifest: Mapping[str, Any]) -> bool:
    """Returns whether a manifest has the parts that its readers look at; `verify` looks at all of it."""
    tokenizer, config, totals = (manifest.get(name) for name in ("tokenizer", "config", "totals"))
    records = [manifest.get(name) for name in ("shards", "companions", "documents", "rejects", "files")]
    return (
        (tokenizer is None or (isinstance(tokenizer, dict) and isinstance(tokenizer.get("digest"), str)))
        and isinstance(config, dict)
        and isinstance(totals, dict)
        and isinstance(totals.get("rejected"), dict)
        and all(isinstance(each, list) for each in records)
        and all(isinstance(record, dict) and "file" in record for each in records for record in each or ())
    )


def _record(file: FileRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(file).items() if value is not None}


def inputs(entries: Iterable[LedgerEntry]) -> list[dict[str, Any]]:
    """Returns what the manifest says of the input files, in the order of the plan: what they are, what was read."""
    files = []
    for (piece, *_), counts in files_of(entries):
        record = {"name": piece.name, "n_bytes": piece.n_bytes, "format": piece.format}
        if piece.compression != "none":
            record["compression"] = piece.compression
        if counts.sha256:
            record["sha256"] = counts.sha256
        read = {name: value for name, value in counts.to_record().items() if name != "sha256"}
        files.append({**record, "read": read})
    return files
