# SPDX-License-Identifier: Apache-2.0
"""Whether an output folder is of the job that a config describes, or of another that wrote to the same place."""

from collections.abc import Mapping
from typing import Any

from pipeline import storage
from pipeline.books.job_record import Job, differences, read_job
from pipeline.config.job import Config
from pipeline.counting.counts import open_counts
from pipeline.filenames import REPLAY
from pipeline.training.tokenizers import given_tokenizer
from tokenizer import UNICODE_VERSIONS

_DECIDES = ("config", "counts", "sources", "text")
"""Parts of a job that a config decides, beside the tokenizer; the others are versions."""

_NOT_COMPARED = "it cannot be compared with what made the folder"
_AS_IT_IS = "give the folder in place of the config to take it as it is"


def check_same_job(output: str, config: Config) -> None:
    """Checks that what lies in the output folder of a config was made by it, or replayed by it.

    Compared is what decides whether a job may be resumed, but for versions: all settings, the tokenizer that
    `tokenizer.file` names, and the counts that `tokenizer.train.counts` names. Where input and output lie is not.
    A folder without a record of its job passes: there is nothing to compare.

    Raises:
      ValueError: naming what differs, or if the tokenizer or the counts of the config cannot be read.
    """
    records = [read_job(folder) for folder in (output, storage.join(output, REPLAY))]
    try:
        found = [_different(record[0].parts, config) for record in records if record is not None]
    except ValueError as error:
        raise ValueError(f"{error}; {_AS_IT_IS}") from error
    if found and all(found):
        different = "; ".join(found[0])
        raise ValueError(
            f"{output!r} holds the results of a job that differs from the config in {different}; {_AS_IT_IS}"
        )


def check_tokenizer(digest: str, unicode: Mapping[str, str], config: Config) -> list[str]:
    """Returns what is different if `tokenizer.file` of a config is another tokenizer than the one with this digest.

    Args:
      digest: of the tokenizer there.
      unicode: the versions of Unicode it was taken with; with others the same tokenizer has another one.
      config: of now; nothing is different where it has no file.
    """
    if config.tokenizer.file is None or dict(unicode) != dict(UNICODE_VERSIONS):
        return []
    try:
        now = given_tokenizer(config).digest
    except (OSError, ValueError) as error:
        raise ValueError(f"tokenizer.file: {error}; {_NOT_COMPARED}") from error
    return differences(digest, now, "tokenizer")


def _different(there: Mapping[str, Any], config: Config) -> list[str]:
    counts = train.counts if (train := config.tokenizer.train) is not None else None
    digest = None
    if counts is not None and there.get("counts") is not None:
        try:
            digest = open_counts(counts).digest
        except (OSError, ValueError) as error:
            raise ValueError(f"tokenizer.train.counts: {error}; {_NOT_COMPARED}") from error
    here = Job.of(there["job"], config, None, digest).parts
    lines = [line for name in _DECIDES for line in differences(there.get(name), here.get(name), name)]
    if there["tokenizer"] is None:
        return lines
    if there["job"] == "tokenize" and config.tokenizer.file is None:
        return [*lines, *differences(there["tokenizer"], None, "tokenizer")]
    return [*lines, *check_tokenizer(there["tokenizer"], there["unicode"], config)]
