# SPDX-License-Identifier: Apache-2.0
"""Reads windows back and counts the documents in them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.books.shard_entry import Written
from tokenmill.pipeline.books.sums_kernels import add_values
from tokenmill.pipeline.output.packing.marks import Marks
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.tokenizer import Layout, Truncation

Spans = tuple[np.ndarray, np.ndarray, np.ndarray]
"""ids int32, starts int64[n] and stops int64[n]: where in `ids` the tokens of each row are, without its padding."""


class ExpectedWindows:
    """The windows that a shard must have, computed from the lengths of its documents; takes 40 bytes per row."""

    def __init__(self, found: Mapping[str, Any], doc_ids: pa.ChunkedArray, lengths: np.ndarray) -> None:
        """Takes the documents.

        Args:
          found: the manifest.
          doc_ids: the ids of the documents, in their order.
          lengths: int64[n_documents], how many tokens each has.
        """
        truncation = found["config"]["tokenizer"]["truncation"]
        self.marks = Marks.from_record(found["marks"])
        self.stride = truncation["stride"]
        self.lengths = lengths
        self.texts, self.starts, self.stops = Layout(
            np.array(self.marks.before, np.int32),
            np.array(self.marks.after, np.int32),
            Truncation(truncation["max_length"], stride=self.stride),
        ).windows(lengths)
        firsts = np.flatnonzero(np.diff(self.texts, prepend=-1))
        self.numbers = np.arange(self.texts.size) - np.repeat(firsts, np.diff(firsts, append=self.texts.size))
        self._doc_ids = doc_ids

    def check_columns(self, batch: pa.RecordBatch, first: int, where: str) -> None:
        """Raises ValueError unless rows, the first of which is number `first`, name the expected windows."""
        rows = slice(first, first + batch.num_rows)
        for name, expected in (("document", self.texts[rows]), ("window", self.numbers[rows])):
            if name in batch.schema.names:
                wrong = np.flatnonzero(batch.column(name).to_numpy() != expected)
                if wrong.size:
                    row = int(wrong[0])
                    raise ValueError(f"{where}: {name} of row {first + row} must be {expected[row]}")
        if "window" in batch.schema.names:
            doc_ids = self._doc_ids.take(pa.array(self.texts[rows])).combine_chunks()
            if not pc.all(pc.equal(doc_ids, batch.column("doc_id")), min_count=0).as_py():
                raise ValueError(f"{where}: not the ids of the documents that they are windows of")


def count(
    batches: Iterable[tuple[pa.RecordBatch, Spans]],
    name: str,
    entry: Written,
    expected: ExpectedWindows,
    counted: Statistics,
    hashes: np.ndarray | None = None,
) -> None:
    """Counts a shard of windows.

    Args:
      batches: the rows of the shard, and where in each the tokens of its rows are.
      name: the name of the file, for messages.
      entry: the entry of the shard.
      expected: the windows that its rows must be.
      counted: empty statistics; filled with windows as rows, and with the tokens and lengths of documents.
      hashes: uint64[n_documents], zeros; filled with a hash of each document's tokens (`kernels.add_values` of
        `shuffling`).

    Raises:
      ValueError: if a row is not the window that it must be.
    """
    marks, stride = expected.marks, expected.stride
    around = Marks(before=marks.before, after=marks.after)
    tail = np.zeros(0, np.int32)
    n_rows = 0
    for batch, (ids, starts, stops) in batches:
        where = f"{name}, row {n_rows} and on"
        rows = slice(n_rows, n_rows + batch.num_rows)
        sizes, numbers, texts = (expected.stops - expected.starts)[rows], expected.numbers[rows], expected.texts[rows]
        if sizes.size != batch.num_rows or (sizes + around.n_special != stops - starts).any():
            raise ValueError(f"{where}: not the windows of documents that have the tokens in the table of documents")
        around.check_rows(ids, starts, stops, where)
        expected.check_columns(batch, n_rows, where)
        starts, stops = starts + len(around.before), stops - len(around.after)
        is_later = numbers > 0
        is_last = expected.stops[rows] == expected.lengths[texts]
        Marks(prepend=marks.prepend).check_rows(ids, starts[~is_later], stops[~is_later], f"{where}, the first windows")
        Marks(append=marks.append).check_rows(ids, starts[is_last], stops[is_last], f"{where}, the last windows")
        tail = _check_repeated(ids, starts, stops, is_later, stride, tail, where)
        _check_unknown(batch, ids, starts, stops, is_later, is_last, marks, counted.unk_id, where)
        own = starts + np.where(is_later, stride, 0)
        counted.update(pa.array(np.full(batch.num_rows, ""), pa.string()), ids, own, stops)
        if hashes is not None:
            found = np.zeros(batch.num_rows, np.uint64)
            add_values(ids, own, stops, expected.starts[rows] + own - starts, found)
            np.add.at(hashes, texts, found)
        n_rows += batch.num_rows
    if n_rows != expected.texts.size:
        raise ValueError(f"{name}: {n_rows} rows, but its documents have {expected.texts.size} windows")
    counts = entry.windows or {}
    counted.add({"n_tokens": counts["n_repeated"] + counts["n_special"]})
    counted.add({"n_oov_tokens": -entry.n_documents * (*marks.prepend, *marks.append).count(counted.unk_id)})
    counted.set_lengths(expected.lengths)


def _check_repeated(
    ids: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    is_later: np.ndarray,
    stride: int,
    tail: np.ndarray,
    where: str,
) -> np.ndarray:
    """Raises ValueError unless each window begins as the one before it ends; returns the end of the last one.

    `tail`, int32[<= stride], is the end of the row before the first one.
    """
    if not stops.size:
        return tail
    rows = np.flatnonzero(is_later)
    places = np.arange(stride)
    before = np.empty((rows.size, stride), np.int32)
    is_behind = rows > 0  # for row 0 the row before was in another batch
    before[is_behind] = ids[(stops[rows[is_behind] - 1] - stride)[:, None] + places]
    if rows.size and rows[0] == 0:
        before[0] = tail
    is_right = (before == ids[starts[rows][:, None] + places]).all(axis=1)
    if not is_right.all():
        row = int(rows[np.argmin(is_right)])
        raise ValueError(f"{where}: row {row} of these does not begin with the {stride} tokens that end the one before")
    return ids[max(int(stops[-1]) - stride, int(starts[-1])) : stops[-1]].copy()


def _check_unknown(
    batch: pa.RecordBatch,
    ids: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    is_later: np.ndarray,
    is_last: np.ndarray,
    marks: Marks,
    unk_id: int,
    where: str,
) -> None:
    """Raises ValueError unless the column `n_oov`, if there is one, counts the unknown tokens of text in each row."""
    if "n_oov" not in batch.schema.names:
        return
    n_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(ids == unk_id)])
    n_unknown = n_before[stops] - n_before[starts]
    n_unknown -= np.where(is_later, 0, marks.prepend.count(unk_id)) + np.where(is_last, marks.append.count(unk_id), 0)
    wrong = np.flatnonzero(batch.column("n_oov").to_numpy() != n_unknown)
    if wrong.size:
        raise ValueError(f"{where}: n_oov of row {wrong[0]} of these must be {n_unknown[wrong[0]]}")
