# SPDX-License-Identifier: Apache-2.0
"""The books of a job with several folders: `partitions.json`, which sums up the manifests of its folders.

There is one for each tokenizer, `tokenizer=zh`, or, with one tokenizer, one for each language, `lang=zh`, as readers of
hive take it. Rows have a column `lang`, which readers replace by the name of the folder, so the two must agree. A job
with `output.splits` has one for each part, `train`.

Every folder accounts for all records of the input. In each, the records that another folder has count as filtered, by
the rule `OTHER_PARTITION`. So each folder balances by itself, and over all of them every record is a document,
rejected, or filtered exactly once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import json_files, quantities, shapes
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.rules import OTHER_PARTITION
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.languages import DEFAULT, UNKNOWN, PartitionConfig
from tokenmill.pipeline.config.output import largest
from tokenmill.pipeline.filenames import PARTITIONS

FORMAT_VERSION = 1
"""The version of the format of partitions.json."""

_SHAPE = TypeAdapter(shapes.Partitions)

_WITH_REJECTS = (f"tokenizer={DEFAULT}", f"lang={UNKNOWN}")
"""The folders of a job by language, one of which has what readers reject."""

_EACH_HAS_ALL = ("n_records", "n_bytes", "n_skipped_bytes")
"""Counts that are of the whole input, and so the same in every folder."""

_ADDED = (
    *("n_documents", "rejected", "n_document_bytes", "n_rejected_bytes"),
    *(each.name for each in quantities.TOKENIZED if each.name != "n_documents"),
    *("shard_rows", "shard_tokens", "shard_bytes", "reject_rows", "reject_bytes"),
)


def partition_configs(config: Config) -> dict[str, Config]:
    """Returns the config of each folder by its name, first that of all rejects and of what no other folder is for.

    Each is a config for one folder, and what it describes is what the folder holds. There are none if that is `config`.
    """
    languages, tokenizer, splits = config.languages, config.tokenizer, config.output.splits
    if splits and config.output.part is None:
        changes = {name: {"part": name, "path": storage.join(config.output.path, name)} for name in _ordered(splits)}
        outputs = {name: config.output.model_copy(update=change) for name, change in changes.items()}
        return {name: config.model_copy(update={"output": output}) for name, output in outputs.items()}
    if languages is None or languages.partition is not None:
        return {}
    if tokenizer.by is not None:
        files: Mapping[str, str | None] = tokenizer.files or dict.fromkeys(config.counts.languages)
        column, rest, others = "tokenizer", DEFAULT, sorted({*files} - {DEFAULT})
    elif config.output.partition_by:
        files, column, rest, others = {}, "lang", UNKNOWN, sorted({*languages.keep} - {UNKNOWN})
    else:
        return {}
    found = {}
    for name in (rest, *others):
        folder = f"{column}={name}"
        partition = PartitionConfig(of=DEFAULT, others=others) if name == rest else PartitionConfig(of=name)
        sections: dict[str, dict[str, Any]] = {
            "languages": {"partition": partition},
            "output": {"path": storage.join(config.output.path, folder)},
        }
        if tokenizer.by is not None:
            sections["tokenizer"] = {"by": None, "files": {}, "file": files.get(name)}
            sections["counts"] = {"by": [], "languages": []}
        changed = {key: getattr(config, key).model_copy(update=update) for key, update in sections.items()}
        found[folder] = config.model_copy(update=changed)
    return found


def _ordered(splits: Mapping[str, float]) -> list[str]:
    return sorted(splits, key=lambda name: (name != largest(splits), name))


def language_of(folder: str) -> str:
    """Returns the language that a folder is named after, `default` among them; "" if it is that of a part.

    >>> language_of("tokenizer=zh")
    'zh'
    """
    return folder.partition("=")[2]


def build(
    job: Job, parts: Mapping[str, tuple[FileRecord, Mapping[str, Any]]], files: Sequence[FileRecord]
) -> dict[str, Any]:
    """Returns the contents of `partitions.json` for finished folders.

    Args:
      job: the job of all of them.
      parts: by the name of the folder, the record of its manifest, and the manifest.
      files: the word counts that the tokenizers were trained on, beside the folders; none if they were not.

    Raises:
      BooksError: if the folders did not read the same, or together do not have every record exactly once.
    """
    splits = job.parts["config"]["output"].get("splits") or {}
    order = _ordered(splits) or sorted(parts, key=lambda name: (name not in _WITH_REJECTS, name))
    parts = {name: parts[name] for name in order}
    totals = add_up({name: manifest["totals"] for name, (_, manifest) in parts.items()})
    if wrong := quantities.imbalances(quantities.OF_INPUT, totals):
        raise BooksError("\n".join(f"all partitions: {line}" for line in wrong))
    others = [language_of(name) for name in parts if language_of(name) != DEFAULT]
    return {
        "format_version": FORMAT_VERSION,
        **{name: job.parts[name] for name in ("job", "versions", "unicode")},
        "job_digest": job.digest,
        "by": "split" if splits else "lang",
        "partitions": [
            {
                "folder": name,
                **({"share": splits[name]} if splits else _languages(name, others)),
                "tokenizer": {key: manifest["tokenizer"][key] for key in ("digest", "vocab_size", "token_dtype")},
                "job_digest": manifest["job_digest"],
                "manifest": record.to_record(),
                "totals": {key: manifest["totals"][key] for key in (*_EACH_HAS_ALL, "filtered", *_ADDED)},
            }
            for name, (record, manifest) in parts.items()
        ],
        "files": [file.to_record() for file in files],
        "totals": totals,
        "balance": [equation.terms(totals) for equation in quantities.OF_INPUT],
    }


def _languages(folder: str, others: Sequence[str]) -> dict[str, Any]:
    if language_of(folder) == DEFAULT:
        return {"languages": None, "other_than": others}
    return {"languages": [language_of(folder)]}


def add_up(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the totals of all folders together, from those of each by its name.

    Raises:
      BooksError: if two of them read or filtered different things.
    """
    shared = {name: _shared(totals) for name, totals in parts.items()}
    (first, expected), *rest = shared.items()
    for name, found in rest:
        if wrong := [f"{key} {found[key]} != {n} of {first}" for key, n in expected.items() if found[key] != n]:
            raise BooksError(f"{name}: {'; '.join(wrong)}")
    sums: dict[str, Any] = {}
    for name in _ADDED:
        for totals in parts.values():
            sums[name] = quantities.plus(sums[name], totals[name]) if name in sums else totals[name]
    # A folder filters what every folder filters, and what the others have. Subtracting the latter leaves the former.
    elsewhere = sum(
        totals["n_document_bytes"] + totals["n_rejected_bytes"] for name, totals in parts.items() if name != first
    )
    n_filtered_bytes = parts[first]["n_filtered_bytes"] - elsewhere
    if n_filtered_bytes < 0 or (n_filtered_bytes and not expected["filtered"]):
        found = parts[first]["n_filtered_bytes"]
        raise BooksError(f"{first}: {found} bytes are filtered, of which other partitions have {elsewhere}")
    return expected | sums | {"n_filtered_bytes": n_filtered_bytes}


def _shared(totals: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the counts that are the same in every partition."""
    filtered = {rule: n for rule, n in totals["filtered"].items() if rule != OTHER_PARTITION}
    return {name: totals[name] for name in _EACH_HAS_ALL} | {"filtered": filtered}


def is_partitioned(output: str) -> bool:
    """Returns whether a folder holds the finished results of a job with several folders."""
    return storage.exists(storage.join(output, PARTITIONS))


def read(output: str) -> dict[str, Any]:
    """Returns `partitions.json` of a folder.

    Raises:
      ValueError: if it cannot be read; OSError: if there is none.
    """
    found: dict[str, Any] = json_files.read(output, PARTITIONS)
    version = found.get("format_version") if isinstance(found, dict) else None
    path = storage.join(output, PARTITIONS)
    if version != FORMAT_VERSION:
        raise ValueError(f"{path!r} has format {version!r}, but this TokenMill reads {FORMAT_VERSION}")
    json_files.check(found, _SHAPE, f"{path!r} cannot be read as TokenMill writes it")
    return found


def folders_of(output: str) -> Sequence[str]:
    """Returns the folders of a job with several; of any other job the folder itself.

    Raises:
      ValueError: if `partitions.json` cannot be read.
    """
    if not is_partitioned(output):
        return [output]
    return [storage.join(output, each["folder"]) for each in read(output)["partitions"]]
