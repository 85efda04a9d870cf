# SPDX-License-Identifier: Apache-2.0
"""Proves an output in parts: each folder by itself, then `parts.json`, which sums them up."""

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import manifest, parts
from tokenmill.pipeline.books.job_record import differences, read_job
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.filenames import PARTS
from tokenmill.pipeline.proving.report import VerifyReport, check_file
from tokenmill.pipeline.proving.verify import verify


def verify_parts(output: str) -> VerifyReport:
    """Checks all folders of an output in parts as `verify` does, and that together they have every record once.

    Raises:
      OSError: if a folder cannot be read at all.
    """
    report = VerifyReport()
    try:
        found = parts.read(output)
        record = read_job(output)
        files = [FileRecord(**each) for each in found["files"]]
        manifests = {part["folder"]: FileRecord(**part["manifest"]) for part in found["parts"]}
        for file in files:
            check_file(output, file, report)
        for name, file in manifests.items():
            check_file(output, file, report)
            proven = verify(storage.join(output, name))
            proven.problems = [f"{name}/{problem}" for problem in proven.problems]
            report.merge(proven)
        if record is None:
            report.problems.append(f"{output!r} has no record of its job")
        elif report.is_proven:
            job, _ = record
            read = {
                name: (file, manifest.read(storage.join(output, name)))
                for name, file in manifests.items()
                if name in job.parts["folders"]
            }
            again = parts.build(job, read, files)
            report.problems += [f"{PARTS}: {line}" for line in differences(found, again)]
    except ValueError as error:
        report.problems.append(str(error))
    except (KeyError, TypeError, AttributeError) as error:
        report.problems.append(f"{PARTS}: not as TokenMill writes it: {error!r}")
    return report
