# SPDX-License-Identifier: Apache-2.0
"""The manifest: what a finished job left in its output folder.

It names no folder of the input or the output, so the same job over the same files gives the same bytes anywhere.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, model_validator

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import json_files, lists, parts, quantities
from tokenmill.pipeline.books.job_books import JobBooks, identities
from tokenmill.pipeline.books.job_record import Job, read_job
from tokenmill.pipeline.books.json_files import AnyJson, Count, Hash, TokenId, VocabularySize, shallow
from tokenmill.pipeline.books.ledger import FileRecord, json_pieces
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.sums import Sums, imbalance_of_sums
from tokenmill.pipeline.config.kept_fields import decode_fields
from tokenmill.pipeline.filenames import MANIFEST

FORMAT_VERSION = 4
"""The version of a manifest that contains all its lists."""
LISTED_VERSION = 5
"""The version of a manifest with a list in a file of its own, which readers of version 4 do not know; see `lists`."""

_VERSIONS = FORMAT_VERSION, LISTED_VERSION


_OF_A_FOLDER = lists.ALWAYS | {
    *(name for each in (*quantities.OF_INPUT, *quantities.OF_TOKENS) for name in (*each.left, *each.right)),
    *("n_splits", "n_chars", "n_words", "shard_rows", "shard_tokens", "shard_bytes", "reject_rows"),
}
"""The totals of a folder that readers rely on."""


class _Tokenizer(BaseModel):
    digest: str
    vocab_size: VocabularySize | None = None
    unk_id: TokenId | None = None
    pad_id: TokenId | None = None
    special_ids: dict[str, TokenId] = {}


class _Padding(BaseModel):
    length: Annotated[int, Field(strict=True, ge=1, lt=1 << 31)]
    side: Literal["right", "left"]


class _Truncation(BaseModel):
    max_length: Annotated[int, Field(strict=True, ge=1)]
    stride: Annotated[int, Field(strict=True, ge=0)]


class _TokenizerConfig(BaseModel):
    padding: _Padding | None = None
    truncation: _Truncation | None = None


class _Packing(BaseModel):
    length: Annotated[int, Field(strict=True, ge=1, le=1 << 24)]


class _Shuffle(BaseModel):
    seed: Count


class _OutputConfig(BaseModel):
    format: str | list[str] = []
    packing: _Packing | None = None
    shuffle: _Shuffle | None = None


class _Config(BaseModel):
    """The sections that readers use themselves; `Config` checks them all where a job is done again."""

    input: dict[str, Any] = {}
    tokenizer: _TokenizerConfig = _TokenizerConfig()
    output: _OutputConfig = _OutputConfig()


class _Marks(lists.Closed):
    before: list[TokenId] = []
    prepend: list[TokenId] = []
    append: list[TokenId] = []
    after: list[TokenId] = []


class _Separators(BaseModel):
    separator_id: TokenId | None
    pad_id: TokenId | None


class _Shuffled(BaseModel):
    splits: list[Hash]
    sums: Sums


class _Manifest(BaseModel):
    """What readers of a manifest rely on; it has more keys."""

    job: str
    job_digest: str
    config: Annotated[_Config, BeforeValidator(shallow)]
    versions: dict[str, str]
    unicode: dict[str, str]
    tokenizer: _Tokenizer | None
    kept: dict[str, str] = Field(alias="fields")
    inputs: list[lists.Input] | lists.File
    shards: list[lists.Shard] | lists.File
    companions: list[lists.Written] | lists.File
    documents: list[lists.Written] | lists.File
    rejects: list[lists.Written] | lists.File
    marks: _Marks | None
    packing: _Separators | None
    shuffle: _Shuffled | None
    files: list[lists.File]
    totals: Annotated[lists.Counts, lists.has(_OF_A_FOLDER)]
    by_source: dict[str, lists.Counts] = {}
    balance: AnyJson

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        output, truncation = self.config.output, self.config.tokenizer.truncation
        if ("packing" in self.totals or self.packing is not None) and (output.packing is None or self.packing is None):
            raise ValueError("packing: rows are packed by config, packing and totals, or by none of them")
        if "windows" in self.totals and truncation is None:
            raise ValueError("config.tokenizer.truncation: missing, although totals count windows")
        if self.shards and self.tokenizer is None:
            raise ValueError("tokenizer: missing, although there are shards")
        of = "split" if self.shuffle is None else "entry"
        for kind, key in (("shards", of), ("companions", of), ("documents", of), ("rejects", "split")):
            records = getattr(self, kind)
            if isinstance(records, list) and any(getattr(record, key) is None for record in records):
                raise ValueError(f"{kind}: {key!r} is missing in a record")
        if self.shuffle is not None and output.shuffle is None:
            raise ValueError("config.output.shuffle: missing, although documents are shuffled")
        return self


_SHAPE = TypeAdapter(_Manifest)


class NameSet:
    """Names by 64 bits of a hash, because a job may have tens of millions of files.

    With n names, another name is wrongly found with a probability of n / 2**64.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._hashes = np.sort(np.fromiter(map(_hash, names), np.uint64))

    def __contains__(self, name: str) -> bool:
        place = self._hashes.searchsorted(number := np.uint64(_hash(name)))
        return bool((self._hashes[place : place + 1] == number).any())


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
        name: value.file.to_record() if isinstance(value, lists.ListedRecords) else value
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

    def names() -> Iterator[str]:
        for kind in ("shards", "companions", "documents", "rejects"):
            yield from (record["file"] for record in manifest[kind])
        for split in split_ids(manifest):
            yield from (filenames.entry_name(split), filenames.statistics_name(split))
        for shard in (record["entry"] for record in manifest["shards"] if "entry" in record):
            yield from (filenames.entry_name(shard), filenames.keys_name(shard))
        yield from (file.file for file in lists.files_of_lists(manifest))

    return NameSet(names())


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
        index = next((name for name in filenames.INDEXES if storage.exists(storage.join(output, name))), None)
        hint = f"; it has {index}, an index of rows of outputs, which `verify`, `trace` and tokenmill.data read"
        raise ValueError(f"{output!r} holds no {MANIFEST}{unfinished or (hint if index else '')}")
    what = f"a manifest of format {FORMAT_VERSION} or {LISTED_VERSION}"
    return lists.opened(output, json_files.read(output, MANIFEST, _SHAPE, what=what, versions=_VERSIONS))
