# SPDX-License-Identifier: Apache-2.0
"""The findings of a verification, and the checks with which its parts begin: files, and input, are as recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.input.archives import split_path
from tokenmill.pipeline.splits import Piece


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
    has_digest: bool = True
    """Whether all manifests have a digest, which shows that nobody has changed them. Earlier versions wrote none."""

    @property
    def is_proven(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def merge(self, other: "VerifyReport") -> None:
        """Adds what another report found."""
        self.problems += other.problems
        self.has_digest = self.has_digest and other.has_digest
        for name in ("n_files", "n_bytes", "n_rows", "n_tokens", "n_trained"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def check_file(output: str, record: FileRecord, report: VerifyReport) -> bool:
    """Returns whether a file has its recorded size and checksum; adds the bytes read, or the problem, to the report."""
    problem = ledger.problem(output, record)
    report.n_files += 1
    if problem is not None:
        report.problems.append(problem)
        return False
    report.n_bytes += record.n_bytes
    return True


def check_unchanged(piece: Piece, output: str, named: Sequence[str] = ()) -> None:
    """Checks that an input file may be read, and is as it was when the job read it.

    The path is taken literally, and must be that of a regular file of the recorded size and time. On a store it is
    read only where the user has named that kind of store, so a folder from elsewhere opens no connection.

    Args:
      piece: from the ledger.
      output: the output folder, as the user named it.
      named: other paths that the user named: `input.paths` of a config.

    Raises:
      ValueError: if it is not as it was, or may not be read; OSError: if it cannot be read.
    """
    scheme, is_remote, _ = piece.path.partition("://")
    if is_remote and scheme not in {path.partition("://")[0] for path in (output, *named) if storage.is_remote(path)}:
        raise ValueError(
            f"{piece.path!r} is not read: only the ledger names a store of the kind {scheme!r}; give the config of the "
            "job, whose input.paths name it"
        )
    archive, member = split_path(piece.path)
    found = storage.find(archive)
    if found is None:
        raise ValueError(f"{piece.path!r} is not there any more, so it cannot be read again")
    if found.version != piece.version or (not member and found.n_bytes != piece.n_bytes):
        raise ValueError(f"{piece.path!r} has changed since the job, so it cannot be read again")
