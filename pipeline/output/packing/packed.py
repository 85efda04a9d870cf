# SPDX-License-Identifier: Apache-2.0
"""Reads packed sequences back and counts the documents in them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.shard_entry import Written
from tokenmill.pipeline.books.sums_kernels import add_values
from tokenmill.pipeline.output.packing.marks import Marks
from tokenmill.pipeline.output.writers.base import ragged
from tokenmill.pipeline.statistics.tally import Statistics


def count(
    batches: Iterable[pa.RecordBatch],
    name: str,
    entry: Written,
    found: Mapping[str, Any],
    counted: Statistics,
    problems: list[str],
    hashes: np.ndarray | None = None,
) -> np.ndarray | None:
    """Counts a packed shard.

    Memory: 8 bytes per document of the shard, 16 with `hashes`.

    Args:
      batches: the rows of the shard, as `formats.read_rows` yields them.
      name: the name of the file, for messages.
      entry: the entry of the shard.
      found: the manifest.
      counted: empty statistics; filled with sequences as rows, tokens without separators, and, if the shard has
        boundaries, the lengths of documents.
      problems: lines about what is wrong are added to it.
      hashes: uint64[n_documents], zeros; filled with a hash of each document's tokens (`kernels.add_values` of
        `shuffling`), if the shard has boundaries.

    Returns:
      int64[n_documents], the tokens of each document; None if the shard has no boundaries.

    Raises:
      ValueError: if a sequence is not as the config says.
    """
    separator_id, pad_id = found["packing"]["separator_id"], found["packing"]["pad_id"]
    size = found["config"]["output"]["packing"]["length"]
    lengths = np.zeros(entry.n_documents, np.int64)
    has_documents = False
    for batch in batches:
        first = counted["n_documents"]
        where = f"{name}, sequence {first} and on"
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
            raise ValueError(f"{where}: a segment belongs to none of the {lengths.size} documents in the shard")
        for column in schemas.BOUNDARIES:
            if column in batch.schema.names:
                sizes = segment_sizes(batch, column)
                if sizes.size != numbers.size or sizes.sum() != n_tokens.sum():
                    raise ValueError(f"{where}: {column} are not {numbers.size} segments of {n_tokens.sum()} tokens")
        if hashes is not None:
            is_token = position < np.repeat(n_tokens, np.diff(offsets))
            _hash_segments(ids[is_token], numbers, sizes, lengths, hashes)
        np.add.at(lengths, numbers, sizes)
    if not counted["n_documents"]:
        has_documents = True  # no sequence: every document has the length 0
    n_separators = (entry.packing or {})["n_separators"]
    if separator_id is not None:
        if counted.token_counts[separator_id] < n_separators:
            problems.append(f"{name}: fewer than {n_separators} separators {separator_id}")
        counted.token_counts[separator_id] -= n_separators
        counted.add({"n_oov_tokens": -n_separators if separator_id == counted.unk_id else 0})
        lengths -= 1
        if hashes is not None and has_documents:
            hashes -= _hash_separators(separator_id, lengths)
    counted.add({"n_oov_tokens": -entry.n_documents * Marks.from_record(found["marks"]).count(counted.unk_id)})
    if has_documents:
        if lengths.size and lengths.min() < 0:
            raise ValueError(f"{name}: document {int(lengths.argmin())} is in no sequence")
        counted.set_lengths(lengths)
    return lengths if has_documents else None


def _hash_segments(
    ids: np.ndarray, numbers: np.ndarray, sizes: np.ndarray, lengths: np.ndarray, hashes: np.ndarray
) -> None:
    """Adds the hashes of segments to the hashes of their documents; `ids`, int32, has the segments one after another.

    The segments of a document come in order, so each begins after the tokens that `lengths` has counted so far.
    """
    ends = np.cumsum(sizes)
    order = np.argsort(numbers, kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    is_first = np.diff(numbers[order], prepend=-1) != 0
    firsts = np.empty(numbers.size, np.int64)
    firsts[order] = before - np.repeat(before[is_first], np.diff(np.append(np.flatnonzero(is_first), numbers.size)))
    found = np.zeros(numbers.size, np.uint64)
    add_values(ids, ends - sizes, ends, firsts + lengths[numbers], found)
    np.add.at(hashes, numbers, found)


def _hash_separators(separator_id: int, places: np.ndarray) -> np.ndarray:
    """Returns uint64[n], the hashes that separators add to documents; `places` are the lengths of the documents."""
    found, rows = np.zeros(places.size, np.uint64), np.arange(places.size)
    add_values(np.full(places.size, separator_id, np.int32), rows, rows + 1, places, found)
    return found


def segment_sizes(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """Returns int64[n_segments]: the number of tokens of each segment of a batch, computed from a boundary column.

    Raises:
      ValueError: if the column does not cut the tokens of each sequence into segments of at least one token.
    """
    values, offsets = ragged(batch.column(column))
    n_tokens = batch.column("n_tokens").to_numpy()
    n_values = np.diff(offsets)
    if (n_values < (2 if column == "cu_seqlens" else n_tokens)).any():
        raise ValueError(f"{column} of sequence {int(np.argmin(n_values))} of these has too few numbers")
    if column == "cu_seqlens":
        is_whole = (values[offsets[:-1]] == 0) & (values[offsets[1:] - 1] == n_tokens)
        if not is_whole.all():
            raise ValueError(f"{column} of sequence {int(np.argmin(is_whole))} of these are not bounds of its tokens")
        steps = np.diff(values.astype(np.int64))
        keep = np.ones(steps.size, bool)
        keep[offsets[1:-1] - 1] = False
        if (steps[keep] < 1).any():
            raise ValueError(f"{column} do not ascend")
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
