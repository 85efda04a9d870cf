# SPDX-License-Identifier: Apache-2.0
"""The input files that a ledger names, for what reads them again: somebody else may have written the ledger."""

from collections.abc import Sequence

from tokenmill.pipeline import storage
from tokenmill.pipeline.input.archives import split_path
from tokenmill.pipeline.splits import Piece


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
