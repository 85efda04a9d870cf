# SPDX-License-Identifier: Apache-2.0
"""The findings of a verification, and the check with which all parts of it begin: a file agrees with its record."""

from dataclasses import dataclass, field

from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.ledger import FileRecord


@dataclass
class VerifyReport:
    """What `verify` read, and every problem that it found."""

    problems: list[str] = field(default_factory=list)
    """A line each, with the file and, if numbers differ, both numbers."""
    n_files: int = 0
    n_bytes: int = 0
    n_rows: int = 0
    n_tokens: int = 0
    n_trained: int = 0
    """Tokens that rows of conversations train."""
    compared: dict[str, int] = field(default_factory=dict)
    """Of how many documents the ids are those that something else than our kernels gives: by what that is."""

    @property
    def is_proven(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def merge(self, other: "VerifyReport") -> None:
        """Adds what another report found."""
        self.problems += other.problems
        for name in ("n_files", "n_bytes", "n_rows", "n_tokens", "n_trained"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, n in other.compared.items():
            self.compared[name] = self.compared.get(name, 0) + n


def check_file(output: str, record: FileRecord, report: VerifyReport) -> bool:
    """Returns whether a file has its recorded size and checksum; adds the bytes read, or the problem, to the report."""
    problem = ledger.problem(output, record)
    report.n_files += 1
    if problem is not None:
        report.problems.append(problem)
        return False
    report.n_bytes += record.n_bytes
    return True
