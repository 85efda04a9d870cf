# SPDX-License-Identifier: Apache-2.0
"""Adds up any number of word counts in bounded memory: counts that do not fit go to a file, and are merged from it.

Word counts come as tables of `schemas.WORD_COUNTS`, in any order. They are added up in memory as long as the distinct
words take no more than `MERGE_BYTES`; then they become a sorted run of a file. Runs are merged block by block.
Every run has one block in memory; the smallest of their last words is the limit. All words up to the limit can be
added up, because later blocks have only words after it. The result does not depend on how the counts were cut into
tables, because sums do not.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.output.staging import Staging
from tokenmill.tokenizer import add_word_counts

MERGE_BYTES = 64 << 20
"""Distinct words and counts held in memory before they become a run; a merge takes about six times as much."""

_BATCH_BYTES = 1 << 16
"""About the size of a record batch of a run; a block is at least one."""

_BLOCKS_BYTES = 64 << 20
"""The blocks of all runs together take about this much, as long as each is at least a batch; of one run, a MiB."""


def merge_counts(tables: Iterable[pa.Table], output: str, name: str) -> Iterator[pa.Table]:
    """Yields the sums of word counts, word by word, ordered by word bytes, in tables of any size, none empty.

    Args:
      tables: tables of `schemas.WORD_COUNTS`.
      output: the folder in whose `_tmp/` a file may be made; it is removed at the end.
      name: what is merged, for the name of this file.

    Memory: about `6 * MERGE_BYTES`, or thrice a table that is larger; then 64 MiB for the blocks of up to 1024 runs, as
    80 million words are 50 runs, and beyond a thousandth of the distinct words.

    Raises:
      OverflowError: if counts add up to more than 63 bits hold.
    """
    merged, pending, n_pending = schemas.WORD_COUNTS.empty_table(), list[pa.Table](), 0
    with Staging(output, f"merge-{name}") as staging:
        runs = _Runs(staging)
        for table in tables:
            pending.append(table)
            n_pending += table.nbytes
            if n_pending > MERGE_BYTES:
                merged, pending, n_pending = add_word_counts([merged, *pending]), [], 0
                if merged.nbytes > MERGE_BYTES:
                    runs.add(merged)
                    merged = schemas.WORD_COUNTS.empty_table()
        merged = add_word_counts([merged, *pending])
        if runs.ranges:
            runs.add(merged)
            del merged, pending
            with runs.open() as handle, pa.ipc.open_file(handle) as reader:
                yield from merge_streams([_read(reader, each, len(runs.ranges)) for each in runs.ranges])
        elif merged.num_rows:
            yield merged


class _Runs:
    """A staged file of sorted runs; there is none before the first run."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self.ranges: list[range] = []
        """The numbers of the record batches of each run."""

    def add(self, table: pa.Table) -> None:
        """Writes one more run."""
        if not self.ranges:
            self._file = self._staging.create("words.arrow")
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            self._writer = pa.ipc.new_file(self._file, table.schema, options=options)
        n_rows = max(1, table.num_rows * _BATCH_BYTES // max(1, table.nbytes))
        batches = table.to_batches(max_chunksize=n_rows)
        for batch in batches:
            self._writer.write_batch(batch)
        first = self.ranges[-1].stop if self.ranges else 0
        self.ranges.append(range(first, first + len(batches)))

    def open(self) -> BinaryIO:
        """Ends the file and opens it for reading."""
        self._writer.close()
        self._file.finish()
        return storage.open_read(self._file.path)


def _read(reader: pa.ipc.RecordBatchFileReader, run: range, n_runs: int) -> Iterator[pa.Table]:
    """Yields the blocks of a run."""
    n_batches = max(1, min(1 << 20, _BLOCKS_BYTES // n_runs) // _BATCH_BYTES)
    for first in range(0, len(run), n_batches):
        yield pa.Table.from_batches([reader.get_batch(i) for i in run[first : first + n_batches]])


def merge_streams(streams: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yields the sums of streams of word counts, each ordered by word bytes throughout; see `merge_counts`."""
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
