# SPDX-License-Identifier: Apache-2.0
"""Proves the results of a job with several folders: each by itself, then `partitions.json`, which sums them up."""

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import manifest, partitions
from tokenmill.pipeline.books.job_record import differences, read_job
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.filenames import PARTITIONS
from tokenmill.pipeline.proving.report import VerifyReport, check_file
from tokenmill.pipeline.proving.verify import verify


def verify_partitions(output: str) -> VerifyReport:
    """Checks all folders of a job with several as `verify` does, and that together they have every record once.

    Raises:
      OSError: if a folder cannot be read at all.
    """
    report = VerifyReport()
    try:
        found = partitions.read(output)
        record = read_job(output)
        files = [FileRecord(**each) for each in found["files"]]
        for file in files:
            check_file(output, file, report)
        for part in found["partitions"]:
            check_file(output, FileRecord(**part["manifest"]), report)
            proven = verify(storage.join(output, part["folder"]))
            proven.problems = [f"{part['folder']}/{problem}" for problem in proven.problems]
            report.merge(proven)
        if record is None:
            report.problems.append(f"{output!r} has no record of its job")
        elif report.is_proven:
            listed = {part["folder"]: FileRecord(**part["manifest"]) for part in found["partitions"]}
            names = [name for name in record[0].parts["partitions"] if name in listed]
            parts = {name: (listed[name], manifest.read(storage.join(output, name))) for name in names}
            report.problems += [
                f"{PARTITIONS}: {line}" for line in differences(found, partitions.build(record[0], parts, files))
            ]
    except ValueError as error:
        report.problems.append(str(error))
    except (KeyError, TypeError, AttributeError) as error:
        report.problems.append(f"{PARTITIONS}: not as TokenMill writes it: {error!r}")
    return report
