# SPDX-License-Identifier: Apache-2.0
"""What training can merge in counted words, found in little memory: runs of neighbours that are frequent enough.

A merge joins two entries at one place, where two old tokens are neighbours; so it occurs at most as often as these are
neighbours in all words. Where they are too rarely, nothing is ever merged, and the word can be cut in two there without
an effect on any count. Most word n-grams fall apart so, into few runs that occur again and again.
"""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.trainers.word_counts import CountedWords
from tokenmill.tokenizer.vocabulary.words import Counts, Ints, portions

MAX_TOKENS = 1 << 26
"""The most tokens of distinct runs: training takes about 40 bytes for each."""

_N_PARTITIONS = 64
_ROOM = 256 << 20
"""Bytes of sums that are held before they are written to files."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mergeable_runs(counts: Counts, tokenizer: Tokenizer, min_count: int, room: int = _ROOM) -> CountedWords:
    """Returns the runs of two tokens or more that merges of at least `min_count` occurrences can change.

    Memory: `room`, twice; a 64th of all distinct pairs and of all distinct runs; and the result. Disk: the distinct
    pairs or runs of each `room`, in the folder for temporary files.

    Raises:
      ValueError: if there are more than `MAX_TOKENS`.
    """

    def pairs() -> Iterator[pa.Table]:
        for part in portions(counts):
            cuts = part.cut(tokenizer)
            keys, at = cuts.neighbours()
            yield _keyed(keys, keys.astype(np.uint64), part.counts[cuts.rows[at]])

    often = (table.filter(pc.greater_equal(table["count"], min_count)) for table in summed_by_hash(pairs(), room))
    frequent = np.sort(np.concatenate([np.empty(0, np.int64), *(table["key"].to_numpy() for table in often)]))

    def runs() -> Iterator[pa.Table]:
        for part in portions(counts):
            cuts = part.cut(tokenizer)
            keys, at = cuts.neighbours()
            places = np.searchsorted(frequent, keys)
            joins = np.zeros(cuts.values.size + 1, np.bool_)  # whether a token goes on with the one before it
            joins[at[np.append(frequent, -1)[places] == keys] + 1] = True
            starts = np.flatnonzero(~joins[:-1] & joins[1:])
            stops = np.flatnonzero(joins[:-1] & ~joins[1:]) + 1
            if not starts.size:
                continue
            lengths = stops - starts
            offsets = np.append(0, np.cumsum(lengths))
            values = cuts.values[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
            buffers = [None, pa.py_buffer(4 * offsets), pa.py_buffer(np.ascontiguousarray(values, np.int32))]
            array = pa.LargeBinaryArray.from_buffers(pa.large_binary(), starts.size, buffers)
            hashes = np.add.reduceat(values.astype(np.uint64) * _GOLDEN, offsets[:-1])
            yield _keyed(array, hashes, part.counts[cuts.rows[starts]])

    tables, n_tokens = list[pa.Table](), 0
    for table in summed_by_hash(runs(), room):
        tables.append(table)
        n_tokens += pc.sum(pc.binary_length(table["key"])).as_py() // 4
        if n_tokens > MAX_TOKENS:
            raise ValueError(
                f"what can be merged has more than {MAX_TOKENS:,} tokens, as many as memory is bounded for; raise "
                f"min_count, now {min_count}"
            )
    if not tables:
        return CountedWords(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int64))
    whole = pa.concat_tables(tables).combine_chunks()
    keys = whole["key"].combine_chunks()
    offsets = np.append(0, np.cumsum(pc.binary_length(keys).to_numpy() // 4)).astype(np.int64)
    values = np.frombuffer(keys.buffers()[2], np.int32)[keys.offset :][: offsets[-1]]
    return CountedWords(values, offsets, whole["count"].to_numpy().astype(np.int64))


def _keyed(keys: pa.Array | Ints, hashes: npt.NDArray[np.uint64], counts: Ints) -> pa.Table:
    """Returns the sums of counts by key, with the partition of each."""
    partitions = (hashes * _GOLDEN >> np.uint64(58)).astype(np.uint8)
    return _summed(pa.table({"partition": partitions, "key": keys, "count": counts}))


def _summed(table: pa.Table) -> pa.Table:
    sums = table.group_by(["partition", "key"], use_threads=False).aggregate([("count", "sum")])
    return sums.rename_columns({"count_sum": "count"}).select(["partition", "key", "count"])


def summed_by_hash(tables: Iterable[pa.Table], room: int) -> Iterator[pa.Table]:
    """Yields the sums of `count` by `key`, one partition after the other; more of them than memory holds."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        pending, n_bytes, n_files = list[pa.Table](), 0, 0
        for table in tables:
            pending.append(table)
            n_bytes += table.nbytes
            if n_bytes < room:
                continue
            pending = [_summed(pa.concat_tables(pending))]
            n_bytes = pending[0].nbytes
            if n_bytes >= room // 2:
                for partition, rows in _split(pending[0]):
                    with (
                        pa.OSFile(str(Path(folder) / f"{partition}-{n_files}"), "wb") as file,
                        pa.ipc.new_stream(file, rows.schema) as writer,
                    ):
                        writer.write_table(rows)
                pending, n_bytes, n_files = [], 0, n_files + 1
        rest = dict(_split(_summed(pa.concat_tables(pending)))) if pending else {}
        for partition in range(_N_PARTITIONS):
            paths = sorted(Path(folder).glob(f"{partition}-*"))
            spilled = [pa.ipc.open_stream(path.read_bytes()).read_all() for path in paths]
            if parts := [*spilled, *([rest[partition]] if partition in rest else [])]:
                yield _summed(pa.concat_tables(parts))


def _split(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yields the rows of each partition."""
    table = table.sort_by("partition")
    bounds = np.searchsorted(table["partition"].to_numpy(), np.arange(_N_PARTITIONS + 1))
    for partition in range(_N_PARTITIONS):
        start, stop = bounds[partition : partition + 2].tolist()
        if start < stop:
            yield partition, table.slice(start, stop - start)
