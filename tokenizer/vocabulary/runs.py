# SPDX-License-Identifier: Apache-2.0
"""What training can merge in counted words, found in little memory: runs of neighbours that are frequent enough.

A merge joins two entries at one place, where two old tokens are neighbours; so it occurs at most as often as these are
neighbours in all words. Where they are too rarely, nothing is ever merged, and the word can be cut in two there without
an effect on any count. Most word n-grams fall apart so, into few runs that occur again and again.

How often two tokens are neighbours needs a bound only, for a cut that is not made has no effect either: pairs are
hashed to a fixed number of sums, and the sum of a pair, with all that have the same hash, is no less than its count.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.trainers.word_counts import CountedWords
from tokenmill.tokenizer.vocabulary.words import Counts, Cuts, Ints, cutter, portions

MAX_TOKENS = 1 << 26
"""The most tokens of distinct runs: training takes about 40 bytes for each."""

_ROOM = 256 << 20
"""Bytes of runs that are gathered before they are added up."""

_BITS = 24
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Neighbours:
    """Which tokens are neighbours in counted words, with a bound of how often. Memory: 128 MB."""

    def __init__(self, counts: Counts, tokenizer: Tokenizer) -> None:
        """Reads all words once.

        Args:
          counts: word counts.
          tokenizer: cuts them.
        """
        self._counts, self._cut = counts, cutter(tokenizer)
        self._bounds = np.zeros(1 << _BITS, np.int64)
        for part in portions(counts):
            cuts = self._cut(part)
            keys, at = cuts.neighbours()
            np.add.at(self._bounds, _hashes(keys), part.counts[cuts.rows[at]])

    def count_of(self, rank: int) -> int:
        """Returns how often, at most, the pair occurs that so many pairs are as frequent as; 0 if there are fewer."""
        used = self._bounds[self._bounds > 0]
        return int(np.partition(used, -rank)[-rank]) if rank <= used.size else 0

    def runs(self, least: int, room: int = _ROOM) -> CountedWords:
        """Returns the runs of two tokens or more that merges of at least `least` occurrences can change.

        Reads all words once more. Memory: twice `room`, or thrice the result, what is more.

        Raises:
          ValueError: if they have more than `MAX_TOKENS` tokens.
        """
        pending, n_bytes, limit = list[pa.Table](), 0, room
        for part in portions(self._counts):
            pending.append(self._runs_in(part.counts, self._cut(part), least))
            n_bytes += pending[-1].nbytes
            if n_bytes >= limit:
                pending = [_summed(pending)]
                n_bytes = pending[0].nbytes
                limit = max(room, 2 * n_bytes)
        whole = _summed(pending)
        keys = whole["run"].combine_chunks()
        offsets = np.frombuffer(keys.buffers()[1], np.int64)[: len(keys) + 1] // 4
        return CountedWords(np.frombuffer(keys.buffers()[2] or b"", np.int32), offsets, whole["count"].to_numpy())

    def _runs_in(self, counts: Ints, cuts: Cuts, least: int) -> pa.Table:
        keys, at = cuts.neighbours()
        joins = np.zeros(cuts.values.size + 1, np.bool_)  # whether a token goes on with the one before it
        joins[at + 1] = self._bounds[_hashes(keys)] >= least
        starts = np.flatnonzero(~joins[:-1] & joins[1:])
        stops = np.flatnonzero(joins[:-1] & ~joins[1:]) + 1
        lengths = stops - starts
        offsets = np.append(0, np.cumsum(lengths))
        values = cuts.values[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
        buffers = [None, pa.py_buffer(4 * offsets), pa.py_buffer(np.ascontiguousarray(values, np.int32))]
        runs = pa.LargeBinaryArray.from_buffers(pa.large_binary(), starts.size, buffers)
        return _summed([pa.table({"run": runs, "count": counts[cuts.rows[starts]]})])


def _hashes(keys: Ints) -> npt.NDArray[np.uint64]:
    return keys.astype(np.uint64) * _GOLDEN >> np.uint64(64 - _BITS)


def _summed(tables: Sequence[pa.Table]) -> pa.Table:
    """Returns the sum of `count` by `run`."""
    table = pa.concat_tables(tables).group_by("run", use_threads=False).aggregate([("count", "sum")])
    if (n_tokens := (pc.sum(pc.binary_length(table["run"])).as_py() or 0) // 4) > MAX_TOKENS:
        raise ValueError(
            f"what can be merged has {n_tokens:,} tokens, more than the {MAX_TOKENS:,} that memory is bounded for; "
            "raise min_count, or add fewer entries"
        )
    return table.rename_columns({"count_sum": "count"})
