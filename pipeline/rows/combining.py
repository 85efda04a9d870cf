# SPDX-License-Identifier: Apache-2.0
"""`CombineFn`s: counts of ids and of words, which Beam adds up in each bundle before it shuffles them."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.typehints import Tuple, typehints

from tokenmill.pipeline import schemas
from tokenmill.pipeline.counting.arithmetic import MAX_COUNT
from tokenmill.pipeline.transforms.arrow_coder import decode_batch, encode_batch
from tokenmill.tokenizer import add_word_counts

FANOUT = 16
"""Where everything has one key, so many workers add up accumulators before one adds up theirs."""

_MERGED_ROWS = 100_000
"""So many words are added up at a time, or as many as are added up already, so that all take linear time."""

_FEW_WORDS = 256
"""So few are added up faster by a dict than by the kernels, whose start takes half a millisecond."""


@dataclass(slots=True)
class IdCounts:
    """How often each id occurred: dense while it is added to, sparse in the shuffle if that is smaller."""

    n_documents: int = 0
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """int64[n]: of each id from 0, or of each of `ids`."""
    ids: npt.NDArray[np.int32] | None = None
    """int32[n], ascending; None: dense."""

    @property
    def n_ids(self) -> int:
        """The largest id and one."""
        return self.counts.size if self.ids is None else int(self.ids[-1]) + 1 if self.ids.size else 0

    def add(self, other: "IdCounts") -> None:
        """Adds the counts of another one, which stays as it is."""
        self.n_documents += other.n_documents
        if self.ids is not None or self.counts.size < other.n_ids:
            counts = np.zeros(max(self.n_ids, other.n_ids), np.int64)
            counts[slice(self.counts.size) if self.ids is None else self.ids] = self.counts
            self.counts, self.ids = counts, None
        self.counts[slice(other.counts.size) if other.ids is None else other.ids] += other.counts

    def compacted(self) -> "IdCounts":
        """Returns the same counts in fewer bytes, where that is possible: 12 for each id that occurred."""
        if self.ids is not None:
            return self
        ids = np.flatnonzero(self.counts).astype(np.int32)
        if 12 * ids.size >= 8 * self.counts.size:
            return self
        return IdCounts(self.n_documents, self.counts[ids], ids)


@beam.typehints.with_input_types(typehints.Any)
@beam.typehints.with_output_types(Tuple[int, typehints.Any])
class CountIds(beam.CombineFn):
    """From columns of lists of ids, of which none is null or negative, to the number of lists and int64[n] of ids."""

    def create_accumulator(self) -> IdCounts:
        """Returns counts of nothing."""
        return IdCounts()

    def add_input(self, accumulator: IdCounts, column: pa.Array) -> IdCounts:
        """Counts the ids of a column."""
        accumulator.add(IdCounts(len(column), np.bincount(column.flatten().to_numpy()).astype(np.int64, copy=False)))
        return accumulator

    def add_inputs(self, accumulator: IdCounts, columns: Iterable[pa.Array]) -> IdCounts:
        """Counts the ids of several columns."""
        return functools.reduce(self.add_input, columns, accumulator)

    def merge_accumulators(self, accumulators: Iterable[IdCounts]) -> IdCounts:
        """Adds up counts."""
        total = IdCounts()
        for each in accumulators:
            total.add(each)
        return total

    def compact(self, accumulator: IdCounts) -> IdCounts:
        """Makes counts small before a shuffle."""
        return accumulator.compacted()

    def extract_output(self, accumulator: IdCounts) -> tuple[int, npt.NDArray[np.int64]]:
        """Returns the number of lists, and that of each id up to the largest that occurred."""
        total = self.merge_accumulators([accumulator])
        return total.n_documents, np.trim_zeros(total.counts, "b")


class WordCounts:
    """How often each word occurred: tables that are added up when there are many rows, and before a shuffle."""

    def __init__(self) -> None:
        """Makes counts of nothing."""
        self._merged = schemas.WORD_COUNTS.empty_table()
        self._pending: list[pa.Table] = []
        self._n_pending = 0

    def add(self, counts: pa.Table) -> None:
        """Adds a table of `schemas.WORD_COUNTS`, in any order."""
        self._pending.append(counts)
        self._n_pending += counts.num_rows
        if self._n_pending > max(_MERGED_ROWS, self._merged.num_rows):
            self.merged()

    def merged(self) -> pa.Table:
        """Returns all counts, each word once, ordered by word."""
        if self._pending:
            self._merged = _add_up([self._merged, *self._pending])
            self._pending, self._n_pending = [], 0
        return self._merged

    def to_batch(self) -> pa.RecordBatch:
        """Returns `merged` as one batch."""
        columns = [column.combine_chunks() for column in self.merged().columns]
        return pa.record_batch(columns, schema=schemas.WORD_COUNTS)

    def __reduce__(self) -> tuple[Callable[[bytes], "WordCounts"], tuple[bytes]]:
        return _decode_word_counts, (encode_batch(self.to_batch()),)


def _add_up(tables: Sequence[pa.Table]) -> pa.Table:
    """Returns what `add_word_counts` returns, and leaves to it what is many, or not as it should be."""
    is_simple = all(table.schema.equals(schemas.WORD_COUNTS) for table in tables)
    if is_simple and sum(table.num_rows for table in tables) <= _FEW_WORDS:
        found: dict[bytes, int] = {}
        for table in tables:
            table.validate(full=True)
            is_simple &= not any(column.null_count for column in table.columns)
            for word, n in zip(*(column.to_pylist() for column in table.columns if is_simple), strict=True):
                found[word] = found.get(word, 0) + n
        if is_simple and sum(found.values()) <= MAX_COUNT:
            words = sorted(found)
            return pa.table([words, [found[word] for word in words]], schema=schemas.WORD_COUNTS)
    return add_word_counts(tables)


def _decode_word_counts(data: bytes) -> WordCounts:
    counts = WordCounts()
    counts.add(pa.Table.from_batches([decode_batch(data)]))
    return counts


@beam.typehints.with_input_types(pa.RecordBatch)
@beam.typehints.with_output_types(pa.RecordBatch)
class AddWordCounts(beam.CombineFn):
    """From batches of `schemas.WORD_COUNTS` to one batch, each word once, ordered by word."""

    def create_accumulator(self) -> WordCounts:
        """Returns counts of nothing."""
        return WordCounts()

    def add_input(self, accumulator: WordCounts, batch: pa.RecordBatch) -> WordCounts:
        """Adds the counts of a batch."""
        accumulator.add(pa.Table.from_batches([batch]))
        return accumulator

    def add_inputs(self, accumulator: WordCounts, batches: Iterable[pa.RecordBatch]) -> WordCounts:
        """Adds the counts of several batches."""
        return functools.reduce(self.add_input, batches, accumulator)

    def merge_accumulators(self, accumulators: Iterable[WordCounts]) -> WordCounts:
        """Adds up counts."""
        total = WordCounts()
        for each in accumulators:
            total.add(each.merged())
        return total

    def compact(self, accumulator: WordCounts) -> WordCounts:
        """Adds up what came separately, so that a shuffle takes each word once."""
        accumulator.merged()
        return accumulator

    def extract_output(self, accumulator: WordCounts) -> pa.RecordBatch:
        """Returns all counts."""
        return accumulator.to_batch()
