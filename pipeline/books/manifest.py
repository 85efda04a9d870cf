# SPDX-License-Identifier: Apache-2.0
"""The manifest: what a finished job left in its output folder.

It names no folder of the input or the output, so the same job over the same files gives the same bytes anywhere.
"""

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import json_files, parts, shapes
from tokenmill.pipeline.books.job_books import JobBooks, identities
from tokenmill.pipeline.books.job_record import Job, read_job
from tokenmill.pipeline.books.ledger import FileRecord, json_pieces
from tokenmill.pipeline.books.lists import ListedRecords, files_of_lists, opened
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.sums import imbalance_of_sums
from tokenmill.pipeline.config.kept_fields import decode_fields
from tokenmill.pipeline.filenames import MANIFEST

FORMAT_VERSION = 4
"""The version of a manifest that contains all its lists."""
LISTED_VERSION = 5
"""The version of a manifest with a list in a file of its own, which readers of version 4 do not know; see `lists`."""

_VERSIONS = FORMAT_VERSION, LISTED_VERSION
_SHAPE = TypeAdapter(shapes.Manifest)


class NameSet:
    """Names by 64 bits of a hash, because a job may have tens of millions of files.

    With n names, another name is wrongly found with a probability of n / 2**64.
    """

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._sorted: np.ndarray | None = None

    def add(self, names: Iterable[str]) -> None:
        """Adds names."""
        self._hashes.extend(map(_hash, names))
        self._sorted = None

    def __contains__(self, name: str) -> bool:
        if self._sorted is None:
            self._sorted = np.sort(np.array(self._hashes, np.uint64))
        place = int(np.searchsorted(self._sorted, np.uint64(_hash(name))))
        return place < self._sorted.size and int(self._sorted[place]) == _hash(name)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def build(
    job: Job,
    summed: Mapping[str, Any],
    listed: Mapping[str, Any],
    *,
    tokenizer: Mapping[str, Any] | None = None,
    files: Iterable[FileRecord] = (),
    marks: Mapping[str, Any] | None = None,
    packing: Mapping[str, Any] | None = None,
    fields: str = "",
) -> dict[str, Any]:
    """Returns the manifest of a finished job.

    Args:
      job: the job that ran.
      summed: `sums` of the books of all splits and shards, closed.
      listed: the lists, from `lists.Lists.finish`.
      tokenizer: the section about the tokenizer, plain JSON.
      files: the files that the job wrote besides shards and rejects.
      marks: the ids around every document, plain JSON; None for a job without shards.
      packing: the section about packing, plain JSON; None where rows are documents.
      fields: the kept fields, as in `Split.fields`.
    """
    are_short = all(isinstance(records, list) for records in listed.values())
    built = {
        "format_version": FORMAT_VERSION if are_short else LISTED_VERSION,
        **{name: value for name, value in job.parts.items() if name != "format_version"},
        "job_digest": job.digest,
        "tokenizer": dict(tokenizer) if tokenizer is not None else None,
        "fields": {field.name: str(field.type) for field in decode_fields(fields)},
        **listed,
        "marks": dict(marks) if marks is not None else None,
        "packing": dict(packing) if packing is not None else None,
        "files": [file.to_record() for file in sorted(files, key=lambda file: file.file)],
        **summed,
    }
    return {**built, "digest": digest(built)}


def sums(books: JobBooks) -> dict[str, Any]:
    """Returns the keys of a manifest that sum up the ledger.

    Raises:
      BooksError: if the totals do not balance, or bytes of an input file were left out or read twice.
    """
    shuffle = None
    wrong = list(books.problems)
    if books.is_shuffled:
        wrong += imbalance_of_sums(books.sorted, books.merged)
        shuffle = {"splits": books.sorted_splits, "sums": books.merged.to_record()}
    if wrong:
        raise BooksError("\n".join(wrong))
    return {
        "shuffle": shuffle,
        "totals": books.totals,
        **({"by_source": books.by_source} if books.by_source else {}),
        "balance": identities(books.totals),
    }


def digest(manifest: Mapping[str, Any]) -> str:
    """Returns the SHA-256, in hex, of a manifest without its `digest`, as it is written; it may be opened."""
    records = {
        name: value.file.to_record() if isinstance(value, ListedRecords) else value
        for name, value in manifest.items()
        if name != "digest"
    }
    hashed = hashlib.sha256()
    for piece in json_pieces(records):
        hashed.update(piece)
    return hashed.hexdigest()


def split_ids(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yields the ids of all splits of a job, in the order of the plan."""
    shuffle = manifest["shuffle"]
    return iter(shuffle["splits"]) if shuffle is not None else (record["split"] for record in manifest["shards"])


def results(manifest: Mapping[str, Any]) -> NameSet:
    """Returns the names of all result files of a job that its manifest or its ledger lists."""
    names = NameSet()
    names.add(record["file"] for kind in ("shards", "companions", "documents", "rejects") for record in manifest[kind])
    names.add(
        name(split) for split in split_ids(manifest) for name in (filenames.entry_name, filenames.statistics_name)
    )
    shards = (record["entry"] for record in manifest["shards"] if "entry" in record)
    names.add(name(shard) for shard in shards for name in (filenames.entry_name, filenames.keys_name))
    names.add(file.file for file in files_of_lists(manifest))
    return names


def check_folder(output: str) -> None:
    """Raises a FileNotFoundError if there is no such folder; one in an object store exists as soon as it is named."""
    if not storage.is_remote(output) and not os.path.isdir(output):
        where = "" if os.path.isabs(output) else f" in {os.getcwd()!r}"
        is_file = "; give the folder that a file is in" if os.path.exists(output) else ""
        raise FileNotFoundError(f"there is no folder {output!r}{where}{is_file}")


def read(output: str) -> dict[str, Any]:
    """Returns the manifest of a folder; records of long lists are read when they are asked for.

    Raises:
      FileNotFoundError: if there is no such folder.
      ValueError: if it holds no manifest, or one that cannot be read.
    """
    if not storage.exists(storage.join(output, MANIFEST)):
        if parts.is_in_parts(output):
            folders = ", ".join(parts.folders_of(output))
            raise ValueError(f"{output!r} holds several folders with results; name one of them: {folders}")
        unfinished = "; its job has not finished" if read_job(output) else ""
        check_folder(output)
        raise ValueError(f"{output!r} holds no {MANIFEST}{unfinished}")
    what = f"a manifest of format {FORMAT_VERSION} or {LISTED_VERSION}"
    return opened(output, json_files.read(output, MANIFEST, _SHAPE, what=what, versions=_VERSIONS))
