# SPDX-License-Identifier: Apache-2.0
"""The record of a job in its output folder, written before any other file, so that a job recognizes its own work.

The digest of a `Job` decides whether a folder may be resumed. The planned names decide which files are TokenMill's.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from tokenmill.pipeline import VERSION, storage
from tokenmill.pipeline.books import json_files
from tokenmill.pipeline.books.json_files import Count, PartName
from tokenmill.pipeline.books.ledger import to_json
from tokenmill.pipeline.config.input import PLACES
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.filenames import JOB
from tokenmill.pipeline.schemas import SHARD_FORMAT_VERSION
from tokenmill.tokenizer import UNICODE_VERSIONS


@dataclass(frozen=True)
class Job:
    """What decides the bytes of an output folder, besides the input files."""

    parts: Mapping[str, Any]
    """Plain JSON: the job's name; its config without paths; the versions of TokenMill and of libraries that the output
    may depend on; and the digest of a given tokenizer."""

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the parts."""
        return hashlib.sha256(to_json(self.parts)).hexdigest()

    @classmethod
    def of(cls, name: str, config: Config, tokenizer: str | None, counts: str | None = None, steps: str = "") -> Self:
        """Returns the job of a config.

        Args:
          name: the name of the job, for example "tokenize".
          config: its config; the paths of input, tokenizer and output do not count.
          tokenizer: digest of the tokenizer; None for a job that trains one, where config and input decide it.
          counts: digest of the counts that it trains on; None if it counts words itself.
          steps: what its pages go through, by name; "" for what TokenMill comes with.
        """
        # Limits and further formats for the vocabulary change no byte of the other files.
        places: Any = {
            "input": PLACES,
            "tokenizer": {
                "file": True,
                "max_unknown_fraction": True,
                "train": {"counts": True},
                "truncation": {"warn_above": True},
            },
            "output": {"path": True, "vocabulary": True, "report": True},
        }
        versions = {"pyarrow": pa.__version__, "tokenmill": VERSION}
        if config.output.compression == "gzip":
            versions["zlib"] = zlib.ZLIB_RUNTIME_VERSION
        settings = config.model_dump(mode="json", exclude=places)
        if of_parts := settings["output"]["parts"]:  # not the paths, but which languages have a part
            of_parts["tokenizers"] = {name: name for name in of_parts["tokenizers"]}
        parts: dict[str, Any] = {
            "config": settings,
            "format_version": SHARD_FORMAT_VERSION,
            "job": name,
            "tokenizer": tokenizer,
            **({"counts": counts} if counts is not None else {}),
            "unicode": dict(UNICODE_VERSIONS),
            "versions": versions,
        }
        if config.counts.sources:
            parts["sources"] = list(config.counts.sources)  # their order matters, but keys are sorted below
        if steps:
            parts["steps"] = steps
        if config.text:
            parts["text"] = config.text.parts()
        return cls(json.loads(to_json(parts)))


@dataclass(frozen=True)
class PlannedNames:
    """How many shards a job planned to write here, and the ending of their names: enough to recognize them."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    n_splits: Count
    suffix: Annotated[str, Field(pattern=r"^(\.[a-z0-9.]{1,40})?$")]
    """The ending; "" if there are files of rejects, but no shards."""


def read_job(output: str) -> tuple[Job, list[PlannedNames]] | None:
    """Returns the job that an output folder belongs to, and all plans made for it; None if it has no record.

    Raises:
      ValueError: if the record cannot be read.
    """
    if not storage.exists(storage.join(output, JOB)):
        return None
    try:
        record = json_files.read(output, JOB, _SHAPE)
    except ValueError as error:
        path = storage.join(output, JOB)
        raise ValueError(f"{path!r} cannot be read as TokenMill's record of a job: {error}") from error
    return Job(record["parts"]), [PlannedNames(**plan) for plan in record["plans"]]


class _Parts(BaseModel):
    """What readers of a job's parts rely on; it has more keys."""

    job: str
    config: dict[str, Any] = {}
    tokenizer: str | None = None
    unicode: dict[str, str] = {}
    versions: dict[str, str] = {}
    folders: dict[PartName, str | None] = {}


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")

    digest: str
    parts: Annotated[_Parts, BeforeValidator(json_files.shallow)]
    plans: list[PlannedNames]


_SHAPE = TypeAdapter(_Record)


def write_job(output: str, job: Job, plans: Iterable[PlannedNames]) -> None:
    """Writes the record of a job into its output folder."""
    record = {"digest": job.digest, "parts": job.parts, "plans": [asdict(plan) for plan in plans]}
    storage.write_atomic(storage.join(output, JOB), to_json(record))


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """Returns a line for each key that differs between the parts of two jobs, with its path and both values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        return [
            line
            for name in sorted({*there, *here})
            for line in differences(there.get(name), here.get(name), f"{path}.{name}".lstrip("."))
        ]
    shown = ["not set" if value is None else repr(value) for value in (there, here)]
    return [] if there == here else [f"{path.removeprefix('config.')}: {shown[0]} there, {shown[1]} now"]
