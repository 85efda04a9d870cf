# SPDX-License-Identifier: Apache-2.0
"""Merges sorted runs into one sequence, by ranges of keys, in bounded memory.

First only the keys and sizes of rows are read and sorted; the rows themselves are read when it is known which come
next. So only the next piece of rows is held, however many runs there are, and however long their rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.columns import stretches
from tokenmill.pipeline.shuffling.runs import RunReader, arrange

N_KEYS = 1 << 64

BUCKET_ROWS = 1 << 18
"""About how many rows have their keys sorted together, 40 bytes each; hashes make the number vary a little."""

MAX_PIECE_ROWS = 1 << 16
"""The most rows that are yielded together, however short they are."""


def shard_range(index: int, n_shards: int) -> tuple[int, int]:
    """Returns the keys of a shard, from the first to below the second: an even share of all keys."""
    low, high = ((i * N_KEYS + n_shards - 1) // n_shards for i in (index, index + 1))
    return low, high


def merge_range(
    runs: Sequence[RunReader],
    low: int,
    high: int,
    *,
    piece_bytes: int,
    bucket_rows: int = BUCKET_ROWS,
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Yields the keys, uint64[n], and the rows of all runs with keys from `low` to below `high`, ordered by key.

    Rows with the same key keep the order of the runs and, inside of a run, their order there. `bucket_rows` and
    `piece_bytes` decide only where batches end.

    Args:
      runs: each ordered by key.
      low: the first key, from 0.
      high: at most 2**64.
      piece_bytes: bytes of a batch, unless one row has more; twice as many are held.
      bucket_rows: about how many rows have their keys sorted at once.
    """
    starts, ends = _find(runs, low), _find(runs, high)
    n_buckets = max(1, -(-int((ends - starts).sum()) // bucket_rows))
    for bucket in range(1, n_buckets + 1):
        stops = ends
        if bucket < n_buckets:
            stops = _find(runs, low + (high - low) * bucket // n_buckets)
        yield from _merge_bucket(runs, starts, stops, piece_bytes)
        starts = stops


def _find(runs: Sequence[RunReader], key: int) -> np.ndarray:
    return np.array(runs[0].files.each(lambda run: run.find(key), runs) if runs else [], np.int64)


def _merge_bucket(
    runs: Sequence[RunReader], starts: np.ndarray, stops: np.ndarray, piece_bytes: int
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    used = np.flatnonzero(stops > starts)
    if not used.size:
        return
    spans = [(runs[i], int(starts[i]), int(stops[i])) for i in used.tolist()]
    each = runs[0].files.each
    keys = np.concatenate(each(lambda span: span[0].keys(*span[1:]), spans))
    sizes = np.concatenate(each(lambda span: span[0].sizes(*span[1:]), spans))
    counts = (stops - starts)[used]
    run_of = np.repeat(np.arange(used.size), counts)
    order = np.argsort(keys, kind="stable")
    at = np.array([start for _, start, _ in spans])
    # Where the rows of each run begin in the bucket, not counting those that were yielded already.
    before = np.cumsum(counts) - counts
    for first, last in stretches(sizes[order], piece_bytes, MAX_PIECE_ROWS):
        chosen = order[first:last]
        n_of = np.bincount(run_of[chosen], minlength=used.size)
        needed = [(spans[i][0], int(at[i]), int(at[i] + n_of[i])) for i in np.flatnonzero(n_of)]
        parts = each(lambda span: span[0].rows(*span[1:]), needed)
        # Rows keep the order of their run, so those of this piece are neighbours in it.
        shifts = np.cumsum(n_of) - n_of - before
        yield keys[chosen], _take(parts, chosen + shifts[run_of[chosen]])
        at += n_of
        before += n_of


def _take(parts: Sequence[pa.RecordBatch], rows: np.ndarray) -> pa.RecordBatch:
    """Returns all rows of the parts, which follow one another, in the order that `rows` gives."""
    places = np.empty_like(rows)
    places[rows] = np.arange(rows.size)
    schema = parts[0].schema
    columns = [arrange([part.column(i) for part in parts], places, field) for i, field in enumerate(schema)]
    return pa.record_batch(columns, schema=schema)
