# SPDX-License-Identifier: Apache-2.0
"""Checks whether an output folder belongs to the job of a config, not to another job that wrote to the same folder."""

from collections.abc import Mapping
from typing import Any

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import parts
from tokenmill.pipeline.books.job_record import Job, differences, read_job
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.filenames import REPLAY
from tokenmill.pipeline.tokenizing.steps import steps_of
from tokenmill.pipeline.training.tokenizers import given_tokenizer
from tokenmill.tokenizer import UNICODE_VERSIONS

_DECIDES = ("config", "counts", "sources", "steps", "text")
"""The parts of a job's record that are compared, besides the tokenizer; the others are versions."""

_NOT_COMPARED = "it cannot be compared with what made the folder"
_AS_IT_IS = "give the folder in place of the config to take it as it is"


def check_same_job(output: str, config: Config) -> None:
    """Checks that the contents of an output folder were made, or replayed, by the job of a config.

    This compares everything that decides whether a job may be resumed, except versions: all settings, the tokenizer
    that `tokenizer.file` names, and the counts that `tokenizer.train.counts` names. The paths of input and output do
    not count. A folder without a record of its job passes, because there is nothing to compare.

    Raises:
      ValueError: naming what differs, or if the tokenizer or the counts of the config cannot be read.
    """
    records = [read_job(folder) for folder in (output, storage.join(output, REPLAY))]
    try:
        found = [difference(record[0].parts, config) for record in records if record is not None]
    except ValueError as error:
        raise ValueError(f"{error}; {_AS_IT_IS}") from error
    if found and all(found):
        different = "; ".join(found[0])
        raise ValueError(
            f"{output!r} holds the results of a job that differs from the config in {different}; {_AS_IT_IS}"
        )


def check_tokenizer(digest: str, unicode: Mapping[str, str], config: Config) -> list[str]:
    """Returns a line, in a list, if `tokenizer.file` of a config is not the tokenizer with this digest.

    Args:
      digest: the digest of the folder's tokenizer.
      unicode: the versions of Unicode that the digest includes; if they are others now, nothing is compared.
      config: the current config; without `tokenizer.file`, nothing is compared.
    """
    if config.tokenizer.file is None or dict(unicode) != dict(UNICODE_VERSIONS):
        return []
    try:
        now = given_tokenizer(config).digest
    except (OSError, ValueError) as error:
        raise ValueError(f"tokenizer.file: {error}; {_NOT_COMPARED}") from error
    return differences(digest, now, "tokenizer")


def difference(there: Mapping[str, Any], config: Config, job: str = "") -> list[str]:
    """Returns in what a job with the parts `there` differs from the job of a config, versions apart, as lines.

    job: what the other job must be; "": any.
    """
    is_run = job == "run" and config.tokenizer.train is None  # which tokenizes, and no more
    if job and (lines := differences(there["job"], "tokenize" if is_run else job, "job")):
        return lines
    counts = train.counts if (train := config.tokenizer.train) is not None else None
    digest = None
    if counts is not None and there.get("counts") is not None:
        try:
            digest = open_counts(counts).digest
        except (OSError, ValueError) as error:
            raise ValueError(f"tokenizer.train.counts: {error}; {_NOT_COMPARED}") from error
    here = Job.of(there["job"], padded_as(there, config), None, digest, steps_of(there["job"])).parts
    lines = [line for name in _DECIDES for line in differences(there.get(name), here.get(name), name)]
    if "folders" in there:
        now = parts.configs(config)
        names = differences(sorted(there["folders"]), sorted(now), "folders")
        each = ((digest, now[name]) for name, digest in there["folders"].items() if name in now)
        return [
            *lines,
            *names,
            *(line for digest, part in each for line in check_tokenizer(digest, there["unicode"], part)),
        ]
    if there["tokenizer"] is None:
        return lines
    if there["job"] == "tokenize" and config.tokenizer.file is None:
        return [*lines, *differences(there["tokenizer"], None, "tokenizer")]
    return [*lines, *check_tokenizer(there["tokenizer"], there["unicode"], config)]


def padded_as(there: Mapping[str, Any], config: Config) -> Config:
    """Returns a config that names the token with which the job of a manifest pads, where it leaves that to the job."""
    packing = config.output.packing
    if packing is None or packing.pad_token is not None:
        return config
    found = ((there["config"].get("output") or {}).get("packing") or {}).get("pad_token")
    packing = packing.model_copy(update={"pad_token": found})
    return config.model_copy(update={"output": config.output.model_copy(update={"packing": packing})})
