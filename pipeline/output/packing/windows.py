# SPDX-License-Identifier: Apache-2.0
"""Cuts documents into overlapping windows of a maximum length, one row each; nothing is lost.

`tokenizer.Layout.windows` defines a window. Each row has the number of its document and its own number within it.
Documents are cut when shards are written, after the shuffle. So whole documents are shuffled, and the windows of a
document stay together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import stretches
from tokenmill.pipeline.output.packing.marks import Marks
from tokenmill.pipeline.output.packing.sequences import Segments
from tokenmill.pipeline.output.writers.base import check_schema
from tokenmill.tokenizer import Layout

BATCH_IDS = 4 << 20
"""Rows with this many ids are made at a time, unless one window has more: windows may repeat most tokens many times."""

COUNTS = ("n_documents", "n_windows", "n_split_documents", "n_tokens", "n_repeated", "n_special")
"""Counts of windows; those of several shards can be added up."""


@dataclass(frozen=True)
class WindowLayout:
    """How documents become windows."""

    layout: Layout
    """Layout of a window: the template's tokens around it, truncation with its stride, padding."""
    marks: Marks
    """The tokens around a document; those of the template are around each window instead."""
    unk_id: int
    """The unknown token, or -1."""
    span_ids: Sequence[int] = ()
    """The tokens of spans that have a source, if rows have sources."""


def windows_summary(counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns the part of stats.json about windows: `COUNTS`, and ratios of cost, which are null without windows."""
    n_tokens = counts["n_tokens"]
    return {
        **{name.removeprefix("n_"): counts[name] for name in COUNTS},
        "share_of_tokens_repeated": counts["n_repeated"] / n_tokens if n_tokens else None,
        "windows_per_document": counts["n_windows"] / counts["n_documents"] if counts["n_documents"] else None,
    }


class Windower:
    """Cuts the documents of one shard into windows; holds the rows of one batch, about `BATCH_IDS` of them."""

    def __init__(self, windows: WindowLayout, schema: pa.Schema) -> None:
        """Starts a shard.

        Args:
          windows: how documents become windows.
          schema: the schema of the documents: `schemas.TOKENS`, perhaps with more columns.
        """
        self.schema = schemas.windowed(schema)
        self.counts = dict.fromkeys(COUNTS, 0)
        self._windows = windows
        self._documents = schema
        self._placed: list[Segments] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields the windows of the documents of a batch.

        Args:
          batch: documents in the schema, not padded, without the template's tokens.
        """
        check_schema(batch, self._documents)
        layout = self._windows.layout
        column = batch.column("input_ids")
        offsets, ids = column.offsets.to_numpy(), column.values.to_numpy()
        lengths = np.diff(offsets)
        texts, starts, stops = layout.windows(lengths)
        firsts = np.flatnonzero(np.diff(texts, prepend=-1))
        numbers = np.arange(texts.size) - np.repeat(firsts, np.diff(firsts, append=texts.size))
        documents = self.counts["n_documents"] + texts
        self._place(documents)
        self._count(lengths, texts, int((stops - starts).sum()), int((np.diff(firsts, append=texts.size) > 1).sum()))
        starts, stops = starts + offsets[texts], stops + offsets[texts]
        n_ids = stops - starts + layout.n_around
        n_ids = np.maximum(n_ids, layout.padding.target(0)) if layout.padding is not None else n_ids
        n_oov = _between(self._is_unknown(ids, offsets), starts, stops)
        n_spans = self._spans_before(ids, offsets)
        for first, last in stretches(n_ids, BATCH_IDS):
            rows = slice(first, last)
            own = pa.array(texts[rows])
            columns: dict[str, Any] = {
                "input_ids": layout.lay_out(ids, starts[rows], stops[rows]),
                "n_tokens": pa.array((stops[rows] - starts[rows] + layout.n_around).astype(np.int32)),
                "n_oov": pa.array(n_oov[rows].astype(np.int32)),
                "document": pa.array(documents[rows]),
                "window": pa.array(numbers[rows].astype(np.int32)),
            }
            if n_spans is not None:
                before = n_spans[starts[rows]]
                columns[schemas.SPAN_SOURCES.name] = _sources(
                    batch.column(schemas.SPAN_SOURCES.name),
                    texts[rows],
                    before - n_spans[offsets[texts[rows]]],
                    n_spans[stops[rows]] - before,
                )
            for name in self.schema.names:
                if name not in columns:
                    columns[name] = batch.column(name).take(own)
            yield pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields nothing: no window waits for another document."""
        yield from ()

    def take_placed(self) -> tuple[int, list[Segments]]:
        """Returns how many documents there were, and the rows of those since the last call."""
        placed, self._placed = self._placed, []
        return self.counts["n_documents"], placed

    def _place(self, documents: np.ndarray) -> None:
        rows = self.counts["n_windows"] + np.arange(documents.size)
        self._placed.append(Segments(documents, rows, np.full(documents.size, len(self._windows.marks.before))))

    def _count(self, lengths: np.ndarray, texts: np.ndarray, n_in_windows: int, n_split: int) -> None:
        n_tokens = int(lengths.sum())
        self.counts["n_documents"] += lengths.size
        self.counts["n_windows"] += texts.size
        self.counts["n_split_documents"] += n_split
        self.counts["n_tokens"] += n_tokens
        self.counts["n_repeated"] += n_in_windows - n_tokens
        self.counts["n_special"] += texts.size * self._windows.layout.n_around

    def _is_unknown(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Returns bool[n_ids]: which ids of a batch are unknown tokens of the text."""
        is_unknown = ids == self._windows.unk_id
        marks = self._windows.marks
        if self._windows.unk_id in (*marks.prepend, *marks.append):
            for i in range(len(marks.prepend)):
                is_unknown[offsets[:-1] + i] = False
            for i in range(len(marks.append)):
                is_unknown[offsets[1:] - 1 - i] = False
        return is_unknown

    def _spans_before(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
        """Returns int64[n_ids + 1]: how many spans come before each id of a batch; None where rows have no sources."""
        if schemas.SPAN_SOURCES.name not in self._documents.names:
            return None
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.isin(ids, self._windows.span_ids))])


def _between(flags: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    n_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags)])
    return n_before[stops] - n_before[starts]


def _sources(
    sources: pa.LargeListArray, texts: np.ndarray, firsts: np.ndarray, counts: np.ndarray
) -> pa.LargeListArray:
    """Returns the sources of windows.

    Args:
      sources: the sources of documents, one for each span, in order.
      texts: int64[n], the document of each window.
      firsts: int64[n], how many spans of the document come before the window.
      counts: int64[n], how many are in it.
    """
    begins = sources.offsets.to_numpy()[texts] + firsts
    ends = np.cumsum(counts)
    places = np.arange(int(counts.sum())) + np.repeat(begins - (ends - counts), counts)
    values = sources.values.take(pa.array(places))
    return pa.LargeListArray.from_arrays(pa.array(np.concatenate([[0], ends])), values, type=sources.type)
