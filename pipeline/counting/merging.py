# SPDX-License-Identifier: Apache-2.0
"""Adds up any number of word counts in bounded memory: counts that do not fit go to sorted files, which are merged.

Word counts come as runs: tables of `schemas.WORD_COUNTS`, in any order. Runs are added up in memory as long as
the distinct words take no more than `MERGE_BYTES`; then they become a sorted file. The files are merged block by block.
Every file has one block in memory; the smallest of their last words is the limit. All words up to the limit can be
added up, because later blocks have only words after it. The result does not depend on how the counts were cut into
runs, because sums do not.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.output.staging import Staging
from tokenmill.tokenizer import add_word_counts

MERGE_BYTES = 64 << 20
"""Distinct words and counts held in memory before they become a file; a merge takes about six times as much."""

MAX_RUNS = 64
"""Sorted files merged at once, a block of each in memory."""

_BLOCK_BYTES = 1 << 20


def merge_runs(runs: Iterable[pa.Table], output: str, name: str) -> Iterator[pa.Table]:
    """Yields the sums of runs, word by word, ordered by word bytes, in tables of any size, none empty.

    Args:
      runs: tables of `schemas.WORD_COUNTS`.
      output: the folder in whose `_tmp/` files may be made; they are removed at the end.
      name: what is merged, for the names of these files.

    Memory: about `6 * MERGE_BYTES` and `MAX_RUNS` blocks of 1 MiB; a run that is larger than `MERGE_BYTES`, thrice.

    Raises:
      OverflowError: if counts add up to more than 63 bits hold.
    """
    with _Files(output, name) as files:
        merged, pending, n_pending = schemas.WORD_COUNTS.empty_table(), [], 0
        for run in runs:
            pending.append(run)
            n_pending += run.nbytes
            if n_pending > MERGE_BYTES:
                merged, pending, n_pending = add_word_counts([merged, *pending]), [], 0
                if merged.nbytes > MERGE_BYTES:
                    files.add(_blocks_of(merged))
                    merged = schemas.WORD_COUNTS.empty_table()
        merged = add_word_counts([merged, *pending])
        if not files.paths:
            if merged.num_rows:
                yield merged
            return
        files.add(_blocks_of(merged))
        del merged, pending
        while len(files.paths) > MAX_RUNS:
            files.merge_first(MAX_RUNS)
        yield from merge_streams([files.read(path) for path in files.paths])


def merge_streams(streams: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yields the sums of streams of word counts, each ordered by word bytes throughout; see `merge_runs`."""
    heads = [_Head(stream) for stream in streams]
    while heads := [head for head in heads if head.fill()]:
        end = min(head.last_word() for head in heads)
        yield add_word_counts([head.take_up_to(end) for head in heads])


class _Head:
    """The current block of a stream."""

    def __init__(self, stream: Iterator[pa.Table]) -> None:
        self._stream = stream
        self._block = schemas.WORD_COUNTS.empty_table()

    def fill(self) -> bool:
        """Makes sure that there is a current block with words; returns False at the end of the stream."""
        while not self._block.num_rows:
            block = next(self._stream, None)
            if block is None:
                return False
            self._block = block.combine_chunks()
        return True

    def last_word(self) -> bytes:
        return bytes(self._block["word"][-1].as_py())

    def take_up_to(self, end: bytes) -> pa.Table:
        """Removes and returns the words up to and including `end`."""
        words = self._block["word"]
        low, high = 0, len(words)
        while low < high:
            middle = (low + high) // 2
            if words[middle].as_py() <= end:
                low = middle + 1
            else:
                high = middle
        taken, self._block = self._block.slice(0, low), self._block.slice(low)
        return taken


class _Files(contextlib.AbstractContextManager["_Files"]):
    """Sorted files of word counts, removed at the end."""

    def __init__(self, output: str, name: str) -> None:
        self._staging = Staging(output, f"merge-{name}")
        self._n_files = 0
        self.paths: list[str] = []

    def __exit__(self, *error: object) -> None:
        self._staging.__exit__(*error)

    def add(self, tables: Iterable[pa.Table]) -> None:
        """Writes one more file."""
        self._n_files += 1
        file = self._staging.create(f"run-{self._n_files:05d}.arrow")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(file, schemas.WORD_COUNTS, options=options) as writer:
            for table in tables:
                writer.write_table(table)
        file.finish()
        self.paths.append(file.path)

    def read(self, path: str) -> Iterator[pa.Table]:
        """Yields the blocks of a file."""
        with storage.open_read(path) as handle, pa.ipc.open_file(handle) as file:
            for i in range(file.num_record_batches):
                yield pa.Table.from_batches([file.get_batch(i)])

    def merge_first(self, n: int) -> None:
        """Merges the first n files into one."""
        first, self.paths = self.paths[:n], self.paths[n:]
        merged = merge_streams([self.read(path) for path in first])
        self.add(block for table in merged for block in _blocks_of(table))
        for path in first:
            storage.delete(path)


def _blocks_of(table: pa.Table) -> Iterator[pa.Table]:
    """Yields a table in pieces of about a MiB."""
    n_rows = max(1, table.num_rows * _BLOCK_BYTES // max(1, table.nbytes))
    for start in range(0, table.num_rows, n_rows):
        yield table.slice(start, n_rows)
