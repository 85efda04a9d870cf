# SPDX-License-Identifier: Apache-2.0
"""The actual numbers for a forecast, if the output folder of the config has the finished job."""

import itertools
from collections.abc import Mapping

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import manifest, parts
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.estimating.trial import OF_FOLDERS, bytes_of, of_folder
from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.running import clock


def outcome(plan: JobPlan) -> Mapping[str, float] | None:
    """Returns the counts of the finished job under the names of the forecast; None if there is no such job.

    Bytes of a format are "bytes.<format>", the time is "seconds", if `clock.json` is there.

    Raises:
      OSError, ValueError: if a file of the folder cannot be read.
    """
    output = plan.config.output.path
    if parts.is_in_parts(output):
        told = parts.read(output)
    elif storage.exists(storage.join(output, filenames.MANIFEST)):
        told = manifest.read(output)
    else:
        return None
    if told["job_digest"] != plan.job.digest:
        return None
    totals = told["totals"]
    if counts.REPORT_NAME in {record["file"] for record in told["files"]} and not plan.tokenizes:
        totals = counts.read_report(output)["totals"]
    actual: dict[str, float] = {name: n for name, n in totals.items() if isinstance(n, int)}
    for kind in ("rejected", "filtered"):
        actual |= {kind: sum(totals[kind].values()), **{f"{kind}.{name}": n for name, n in totals[kind].items()}}
    for part in told.get("parts", ()):
        actual |= {of_folder(name, part["folder"]): part["totals"][name] for name in OF_FOLDERS}
    written = (
        itertools.chain(books["shards"], books["companions"]) for books in map(manifest.read, parts.folders_of(output))
    )
    files = ((record["file"], record["n_bytes"]) for record in itertools.chain(*written))
    for format_, n in bytes_of(plan.config.output, files).items():
        actual[f"bytes.{format_}"] = n
    if storage.exists(storage.join(output, filenames.CLOCK)):
        times = clock.read(output)
        actual |= {"seconds": times["seconds"], "workers": times["workers"]}
    return actual
