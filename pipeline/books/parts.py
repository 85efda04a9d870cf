# SPDX-License-Identifier: Apache-2.0
"""The books of an output in parts: `parts.json`, which sums up the manifests of its folders.

Every folder accounts for all records of the input. In each, the records that another part has count as filtered, by
the rule `OTHER_PART`. So each folder balances by itself, and over all of them every record is a document, rejected, or
filtered exactly once.

The folders are called `tokenizer=zh` where each has its tokenizer, `lang=zh` where they have one, as readers of hive
take it, and `train` where parts are shares. Rows have a column `lang`, which readers replace by the name of the folder,
so the two must agree.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import json_files, lists, quantities
from tokenmill.pipeline.books.counts import Counts, flatten, nest
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.json_files import AnyJson, PartName, VocabularySize
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.quantities import OF_A_STEP, OTHER_PART, BooksError
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.filenames import MANIFEST, PARTS, VOCABULARY

FORMAT_VERSION = 1
"""The version of the format of parts.json."""

_EACH_HAS_ALL = ("n_records", "n_bytes", "n_skipped_bytes")
"""Counts that are of the whole input, and so the same in every folder."""

_ADDED = (
    *("n_documents", "rejected", "n_document_bytes", "n_rejected_bytes"),
    *(each.name for each in quantities.TOKENIZED if each.name != "n_documents"),
    *("shard_rows", "shard_tokens", "shard_bytes", "reject_rows", "reject_bytes"),
)


class _PartTokenizer(BaseModel):
    digest: str
    vocab_size: VocabularySize


class _Part(BaseModel):
    folder: PartName
    tokenizer: _PartTokenizer
    job_digest: str
    manifest: lists.File
    totals: Annotated[lists.Counts, lists.has(lists.ALWAYS)]


class _Parts(BaseModel):
    """What readers of `parts.json` rely on."""

    job: str
    job_digest: str
    versions: dict[str, str]
    parts: Annotated[list[_Part], Field(min_length=1)]
    files: list[lists.File]
    totals: Annotated[lists.Counts, lists.has(lists.ALWAYS)]
    balance: AnyJson


_SHAPE = TypeAdapter(_Parts)


def configs(config: Config) -> dict[str, Config]:
    """Returns the config of each folder by its name, first the one with all rejects; of one folder `config`, by ""."""
    parts = config.output.parts
    if parts is None or parts.only is not None:
        return {"": config}
    column = "" if parts.shares else "tokenizer=" if parts.tokenizers or parts.train else "lang="
    folders = {f"{column}{name}": name for name in config.part_names}
    return {folder: config.for_part(name, storage.join(config.output.path, folder)) for folder, name in folders.items()}


def build(
    job: Job, folders: Mapping[str, tuple[FileRecord, Mapping[str, Any]]], files: Sequence[FileRecord]
) -> dict[str, Any]:
    """Returns the contents of `parts.json` for finished folders.

    Args:
      job: the job of all of them.
      folders: by the name of the folder, the record of its manifest, and the manifest.
      files: files beside the folders, such as the word counts that tokenizers were trained on.

    Raises:
      BooksError: if the folders did not read the same, or together do not have every record exactly once.
    """
    totals = add_up({name: manifest["totals"] for name, (_, manifest) in sorted(folders.items())})
    if wrong := quantities.imbalances(quantities.OF_INPUT, flatten(totals)):
        raise BooksError("\n".join(f"all parts: {line}" for line in wrong))
    section = job.parts["config"]["output"]["parts"]
    sources = [manifest.get("by_source", {}) for _, manifest in folders.values()]
    return {
        "format_version": FORMAT_VERSION,
        **{name: job.parts[name] for name in ("job", "versions", "unicode")},
        "job_digest": job.digest,
        "by": section["by"] or "id",
        "parts": [
            {
                "folder": name,
                "share": section["shares"].get(name),
                "tokenizer": {key: manifest["tokenizer"][key] for key in ("digest", "vocab_size", "token_dtype")},
                "job_digest": manifest["job_digest"],
                "manifest": record.to_record(),
                "totals": {key: manifest["totals"][key] for key in (*_EACH_HAS_ALL, "filtered", *_ADDED)},
            }
            for name, (record, manifest) in sorted(folders.items())
        ],
        "files": [file.to_record() for file in files],
        "totals": totals,
        **(
            {"by_source": {name: _add_source([each[name] for each in sources]) for name in sources[0]}}
            if sources[0]
            else {}
        ),
        "balance": [equation.terms(flatten(totals)) for equation in quantities.OF_INPUT],
    }


def _add_source(reads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what all folders have of one source; they read the same, and reject different records."""
    found: dict[str, Any] = {"n_rejected_bytes": sum(read.get("n_rejected_bytes", 0) for read in reads), "rejected": {}}
    for read in reads:
        found["rejected"] = quantities.plus(found["rejected"], read.get("rejected"))
    for name in ("n_documents", "n_tokens"):
        found[name] = sum(read.get(name, 0) for read in reads)
    return {**{name: reads[0].get(name, 0) for name in ("n_files", "n_records", "n_bytes")}, **found}


def together(folders: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Returns numbers of all folders together, from those of each; names as `counts.flatten` gives them.

    What a folder reads and rules leave out is the same in all of them. Filtered bytes are not added either, as they are
    also those of other folders: they are what documents and rejects leave.
    """
    sums = Counts()
    for numbers in folders:
        sums.add(numbers)
    found = {**sums.groups[""], **{name: n for name, n in folders[0].items() if _is_of_all(name)}}
    found.pop(f"filtered:{OTHER_PART}", None)
    used = ("n_skipped_bytes", "n_document_bytes", "n_rejected_bytes")
    return {**found, "n_filtered_bytes": found["n_bytes"] - sum(found[name] for name in used)}


def _is_of_all(name: str) -> bool:
    """Returns whether a number is that of the whole input in every folder."""
    kind, _, rule = name.partition(":")
    return name in _EACH_HAS_ALL or (kind == "filtered" and rule not in {OTHER_PART, *OF_A_STEP})


def add_up(folders: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the totals of all folders together, from those of each by its name.

    Raises:
      BooksError: if two of them read or filtered different things.
    """
    names = (*_EACH_HAS_ALL, "filtered", *_ADDED)
    (first, expected), *others = (
        (folder, flatten({name: totals[name] for name in names})) for folder, totals in folders.items()
    )
    for folder, numbers in others:
        shared = sorted(name for name in {*expected, *numbers} if _is_of_all(name))
        pairs = [(name, numbers.get(name, 0), expected.get(name, 0)) for name in shared]
        if wrong := [f"{name} {ours} != {theirs} of {first}" for name, ours, theirs in pairs if ours != theirs]:
            raise BooksError(f"{folder}: {'; '.join(wrong)}")
    sums = together([expected, *(numbers for _, numbers in others)])
    totals = {"rejected": {}, "filtered": {}, **nest(sums)}
    n, filtered = totals["n_filtered_bytes"], totals["filtered"]
    if n < 0 or (n and not filtered):
        raise BooksError(
            f"all parts: documents and rejects leave {n} of {totals['n_bytes']} bytes, but rules filter "
            f"{filtered or 'nothing'}"
        )
    return totals


def is_in_parts(output: str) -> bool:
    """Returns whether a folder holds a finished output in parts."""
    return storage.exists(storage.join(output, PARTS))


def read(output: str) -> dict[str, Any]:
    """Returns `parts.json` of a folder.

    Raises:
      ValueError: if it cannot be read; OSError: if there is none.
    """
    found: dict[str, Any] = json_files.read(output, PARTS, _SHAPE, versions=[FORMAT_VERSION])
    return found


def vocabulary_in(path: str) -> str:
    """Returns where the vocabulary of an output folder is, in parts or not; any other path as it is.

    Raises:
      ValueError: if the folders of an output in parts have several vocabularies.
    """
    folders = folders_of(path)
    if folders[0] == path and not storage.exists(storage.join(path, MANIFEST)):
        return path
    vocabularies = [storage.join(folder, VOCABULARY) for folder in folders]
    if folders[0] != path and len({each["tokenizer"]["digest"] for each in read(path)["parts"]}) > 1:
        raise ValueError(f"{path!r} has several vocabularies; name one of them: {', '.join(vocabularies)}")
    return vocabularies[0]


def folders_of(output: str) -> Sequence[str]:
    """Returns the folders of an output in parts; of any other the folder itself.

    Raises:
      ValueError: if `parts.json` cannot be read.
    """
    if not is_in_parts(output):
        return [output]
    return [storage.join(output, each["folder"]) for each in read(output)["parts"]]
