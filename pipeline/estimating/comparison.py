# SPDX-License-Identifier: Apache-2.0
"""The actual numbers for a forecast, if the output folder of the config has the finished job."""

import itertools
from collections.abc import Mapping
from typing import Any

from pipeline import filenames, storage
from pipeline.books import manifest
from pipeline.books.manifest import read_json
from pipeline.counting import counts
from pipeline.estimating.trial import bytes_of
from pipeline.jobs.planning import JobPlan


def outcome(plan: JobPlan) -> Mapping[str, float] | None:
    """Returns the counts of the finished job under the names of the forecast; None if there is no such job.

    Bytes of a format are "bytes.<format>", the time is "seconds", if `clock.json` is there.

    Raises:
      OSError, ValueError: if a file of the folder cannot be read.
    """
    output = plan.config.output.path
    if not storage.exists(storage.join(output, filenames.MANIFEST)):
        return None
    told = manifest.read(output)
    if told["job_digest"] != plan.job.digest:
        return None
    totals = told["totals"]
    if counts.REPORT_NAME in {record["file"] for record in told["files"]} and not plan.tokenizes:
        totals = read_json(output, counts.REPORT_NAME)["totals"]
    actual: dict[str, float] = {name: n for name, n in totals.items() if isinstance(n, int)}
    for kind in ("rejected", "filtered"):
        actual |= {kind: sum(totals[kind].values()), **{f"{kind}.{name}": n for name, n in totals[kind].items()}}
    files = ((record["file"], record["n_bytes"]) for record in itertools.chain(told["shards"], told["companions"]))
    for format_, n in bytes_of(plan.config.output, files).items():
        actual[f"bytes.{format_}"] = n
    if storage.exists(storage.join(output, filenames.CLOCK)):
        clock: dict[str, Any] = read_json(output, filenames.CLOCK)
        actual |= {"seconds": clock["seconds"], "workers": clock["workers"]}
    return actual
