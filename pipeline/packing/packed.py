# SPDX-License-Identifier: Apache-2.0
"""Packed sequences read back and counted as the documents that they were made of."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline import schemas
from pipeline.ledger import LedgerEntry
from pipeline.statistics import Statistics, count_rows
from pipeline.writers.base import ragged


def count(
    batches: Iterable[pa.RecordBatch],
    name: str,
    entry: LedgerEntry,
    found: Mapping[str, Any],
    counted: Statistics,
    problems: list[str],
) -> None:
    """Counts a packed shard.

    Memory: 8 bytes per document of the shard.

    Args:
      batches: of the shard, as `writers.read_rows` yields them.
      name: of the file, for messages.
      entry: of the split.
      found: the manifest.
      counted: empty; filled with sequences as rows, with tokens without separators, and with the lengths of documents
        where the shard has boundaries.
      problems: added to.

    Raises:
      ValueError: if a sequence is not as the config says.
    """
    separator_id, pad_id = found["packing"]["separator_id"], found["packing"]["pad_id"]
    size = found["config"]["output"]["packing"]["length"]
    lengths = np.zeros(entry.n_documents, np.int64)
    has_documents = False
    for batch in batches:
        where = f"{name}, sequence {counted.n_documents} and on"
        ids, offsets = ragged(batch.column("input_ids"))
        n_tokens = batch.column("n_tokens").to_numpy().astype(np.int64)
        starts, stops = offsets[:-1], offsets[:-1] + n_tokens
        if (n_tokens < 1).any() or (stops > offsets[1:]).any() or (np.diff(offsets) > size).any():
            raise ValueError(f"{where}: not sequences of 1 to {size} tokens")
        position = np.arange(ids.size) - np.repeat(starts, np.diff(offsets))
        if (ids[position >= np.repeat(n_tokens, np.diff(offsets))] != pad_id).any():
            raise ValueError(f"{where}: what follows the tokens of a sequence must be the padding token {pad_id}")
        text = pa.array(np.full(batch.num_rows, ""), pa.string())
        counted.update(text, ids, starts, stops)
        if "documents" not in batch.schema.names:
            continue
        has_documents = True
        if pad_id is not None and (np.diff(offsets) != size).any():
            raise ValueError(f"{where}: sequences must have {size} ids, padding included")
        numbers, _ = ragged(batch.column("documents"))
        if numbers.size and (numbers.min() < 0 or numbers.max() >= lengths.size):
            raise ValueError(f"{where}: a segment is of no document of the {lengths.size} in the shard")
        for column in schemas.BOUNDARIES:
            if column in batch.schema.names:
                sizes = segment_sizes(batch, column)
                if sizes.size != numbers.size or sizes.sum() != n_tokens.sum():
                    raise ValueError(f"{where}: {column} are not {numbers.size} segments of {n_tokens.sum()} tokens")
        np.add.at(lengths, numbers, sizes)
    n_separators = (entry.packing or {})["n_separators"]
    if separator_id is not None:
        if counted.token_counts[separator_id] < n_separators:
            problems.append(f"{name}: fewer than {n_separators} separators {separator_id}")
        counted.token_counts[separator_id] -= n_separators
        counted.n_oov_tokens -= n_separators if separator_id == counted.unk_id else 0
        lengths -= 1
    if has_documents:
        if lengths.size and lengths.min() < 0:
            raise ValueError(f"{name}: document {int(lengths.argmin())} is in no sequence")
        counted.length_counts[:] = 0
        ends = np.cumsum(lengths)
        nothing = np.zeros(int(lengths.sum()), np.int32)
        scratch = np.zeros(1, np.int64)
        count_rows(nothing, ends - lengths, ends, -1, scratch, counted.length_counts, np.empty(lengths.size, np.int32))


def segment_sizes(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """Returns the tokens of all segments of a batch, int64, as one of the columns of boundaries tells them."""
    values, offsets = ragged(batch.column(column))
    n_tokens = batch.column("n_tokens").to_numpy()
    if column == "cu_seqlens":
        steps = np.diff(values.astype(np.int64))
        keep = np.ones(steps.size, bool)
        keep[offsets[1:-1] - 1] = False
        return steps[keep]
    is_token = np.arange(values.size) - np.repeat(offsets[:-1], np.diff(offsets)) < np.repeat(
        n_tokens, np.diff(offsets)
    )
    tokens = values[is_token]
    if column == "positions":
        begins = np.flatnonzero(tokens == 0)
    else:
        changes = np.diff(tokens, prepend=-1) != 0
        changes[(np.cumsum(n_tokens.astype(np.int64)) - n_tokens)[n_tokens > 0]] = True
        begins = np.flatnonzero(changes)
    return np.diff(begins, append=tokens.size)
