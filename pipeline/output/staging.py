# SPDX-License-Identifier: Apache-2.0
"""Files on their way to their final names: written elsewhere, hashed, flushed to disk, then renamed.

A split is written under `_tmp/`, in a directory that only this attempt uses; every file is closed and on disk before it
gets its final name, and the ledger entry comes last. So an entry exists only where everything it names does, and a
second attempt, or two at once, do no harm: they write the same bytes under the same names.
"""

import contextlib
import hashlib
import io
import os
import uuid
from typing import Any, BinaryIO, Self

from tokenmill.pipeline import storage
from tokenmill.pipeline.books.job_books import check_balance
from tokenmill.pipeline.books.ledger import FileRecord, ShardEntry, SplitEntry
from tokenmill.pipeline.filenames import TEMPORARY, entry_name


class StagedFile(io.RawIOBase):
    """A file on its way to a final name; hashes what is written to it."""

    def __init__(self, name: str, path: str) -> None:
        """Creates the file.

        Args:
          name: its final name, relative to the output folder.
          path: where it is until then.
        """
        super().__init__()
        self.name = name
        self.path = path
        self._handle: BinaryIO = storage.create(path)
        self._hash = hashlib.sha256()
        self._n_bytes = 0
        self._is_discarded = False

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns how many bytes have been written."""
        return self._n_bytes

    def write(self, data: Any, /) -> int:
        """Appends `data`, any buffer of bytes, and returns its length."""
        view = memoryview(data)
        if not self._is_discarded:
            self._handle.write(view)
            self._hash.update(view)
            self._n_bytes += view.nbytes
        return view.nbytes

    def finish(self, rows: int | None = None, tokens: int | None = None) -> FileRecord:
        """Flushes the file to disk, closes it and returns its record, under its final name."""
        storage.finish(self._handle)
        self.close()
        return FileRecord(self.name, self._n_bytes, self._hash.hexdigest(), rows, tokens)

    def discard(self) -> None:
        """Removes the file, finished or not.

        An unfinished file accepts later writes and drops them: an Arrow writer that is left in the middle writes its
        end only when it is garbage-collected.
        """
        self._is_discarded = True
        with contextlib.suppress(OSError):  # the file is not wanted any more, so it may be incomplete
            self._handle.close()
        storage.delete(self.path)


class Staging:
    """The files of one attempt at a split. As a context manager, removes what an error or a commit leaves behind."""

    def __init__(self, output: str, split_id: str) -> None:
        """Starts an attempt; nothing is created yet.

        Args:
          output: the output folder.
          split_id: the id of the split or the shard.
        """
        self._output, self._id = output, split_id
        # Random, so that no two attempts share a directory, on whatever machines; it is removed with the attempt.
        self._directory = storage.join(output, TEMPORARY, f"{split_id}-{uuid.uuid4().hex}")
        self._files: list[StagedFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.discard()
        storage.delete_tree(self._directory)

    def create(self, name: str) -> StagedFile:
        """Starts the file that will be `name` in the output folder."""
        file = StagedFile(name, storage.join(self._directory, name.replace("/", "-")))
        self._files.append(file)
        return file

    def publish(self) -> None:
        """Gives the files their final names, in the order they were created; all must be finished."""
        for file in self._files:
            destination = storage.join(self._output, file.name)
            storage.make_directory(os.path.dirname(destination))
            storage.rename(file.path, destination)
        self._files = []

    def commit(self, entry: SplitEntry | ShardEntry) -> None:
        """Publishes the files of a split or a merged shard, then writes its entry.

        Raises:
          BooksError: if the entry does not balance; nothing has got a final name then.
        """
        check_balance(entry)
        self.publish()
        storage.write_atomic(storage.join(self._output, entry_name(self._id)), entry.to_json())
