# SPDX-License-Identifier: Apache-2.0
"""Packs documents into sequences of a fixed length, and drops nothing: every token is in exactly one sequence.

Each shard is packed by itself, in the order of its documents. So a sequence depends only on the documents of its shard,
not on workers or batches; but another `input.split_bytes` gives other sequences.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.output import PackingConfig
from tokenmill.pipeline.output.packing import kernels
from tokenmill.pipeline.output.writers.base import check_schema, ragged
from tokenmill.tokenizer import Tokenizer

_TRAINED_BIT = 30
"""Above all ids."""

WINDOW_TOKENS = 4 << 20
"""A packer packs documents with this many tokens at a time, and holds them; `best_fit` looks no farther."""

COUNTS = (
    "n_sequences",
    "n_documents",
    "n_empty_documents",
    "n_split_documents",
    "n_segments",
    "n_tokens",
    "n_separators",
    "n_padding",
)
"""Counts of packing; those of several shards can be added up. If rows are conversations, there is `n_first_tokens`,
too: tokens to train on that are the first behind a cut."""


@dataclass(frozen=True)
class PackingTokens:
    """The ids that packing adds."""

    separator_id: int | None
    """The token after every document; None for none."""
    pad_id: int | None
    """The token that fills sequences up; None if they are kept short."""


def packing_tokens(config: PackingConfig, tokenizer: Tokenizer) -> PackingTokens:
    """Returns the ids of the tokens that a config names, and of the padding token if it names none.

    Raises:
      ValueError: if the tokenizer lacks one of them, or there is no token to pad with.
    """
    ids: dict[str, int | None] = {}
    for name in ("separator", "pad_token"):
        token = getattr(config, name)
        ids[name] = tokenizer.token_to_id(token) if token is not None else None
        if token is not None and ids[name] is None:
            raise ValueError(f"output.packing.{name}: {token!r}: the tokenizer has no such token")
    separator_id, pad_id = ids["separator"], ids["pad_token"]
    if config.incomplete == "short":
        return PackingTokens(separator_id, None)
    for candidate in (tokenizer.pad_token_id, separator_id):
        pad_id = candidate if pad_id is None else pad_id
    if pad_id is None:
        raise ValueError(
            "output.packing.pad_token: the tokenizer names no padding token, and there is no separator; name a token, "
            "or set output.packing.incomplete to short"
        )
    return PackingTokens(separator_id, pad_id)


def packing_summary(counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns the part of stats.json about packing: `COUNTS`, and ratios of waste, which are null without sequences."""
    n_ids = counts["n_tokens"] + counts["n_separators"] + counts["n_padding"]
    n_documents = counts["n_documents"]
    return {
        **{name.removeprefix("n_"): counts[name] for name in COUNTS},
        "share_of_padding": counts["n_padding"] / n_ids if n_ids else None,
        "share_of_documents_split": counts["n_split_documents"] / n_documents if n_documents else None,
        "segments_per_sequence": counts["n_segments"] / counts["n_sequences"] if counts["n_sequences"] else None,
    }


@dataclass(frozen=True)
class Segments:
    """The places of segments, int64[n] each; those of a document are in order."""

    numbers: np.ndarray
    """Number of each segment's document in the shard."""
    rows: np.ndarray
    """Number of its sequence."""
    starts: np.ndarray
    """Position of its first token in the sequence, from 0."""


class Packer:
    """Packs the documents of one shard; holds one window of them, or one document if that is longer."""

    def __init__(
        self,
        config: PackingConfig,
        tokens: PackingTokens,
        window_tokens: int = WINDOW_TOKENS,
        *,
        has_mask: bool = False,
    ) -> None:
        """Starts a shard.

        Args:
          config: length, strategy and columns.
          tokens: the separator and the padding token.
          window_tokens: how many tokens of documents to pack at a time; the result of `best_fit` depends on it.
          has_mask: whether documents have `schemas.LOSS_MASK`; separators and the first token of each segment are then
            not trained.
        """
        mask = [schemas.LOSS_MASK.name] if has_mask else []
        self.schema = schemas.packed([*config.boundaries, *mask])
        self._documents = schemas.rows(mask)
        self.counts = dict.fromkeys((*COUNTS, *(["n_first_tokens"] if has_mask else [])), 0)
        self._config = config
        self._tokens = tokens
        self._window_tokens = max(window_tokens, config.length)
        self._pending: list[_Documents] = []
        self._n_pending = 0
        self._placed: list[Segments] = []
        # The document of the last piece, and the last document known to be in two sequences.
        self._last_number = self._last_split = -1

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields the sequences that the documents of a batch complete.

        Args:
          batch: `schemas.TOKENS`, and `schemas.LOSS_MASK` if there is one; not padded.
        """
        check_schema(batch, self._documents)
        ids, offsets = ragged(batch.column("input_ids"))
        if schemas.LOSS_MASK.name in batch.schema.names:
            # A trained id has a bit more on its way through the packer, since both are moved alike.
            trained, _ = ragged(batch.column(schemas.LOSS_MASK.name).cast(pa.large_list(pa.int8())))
            ids = ids | (trained.astype(np.int32) << _TRAINED_BIT)
        lengths = np.diff(offsets)
        first = self.counts["n_documents"]
        self.counts["n_documents"] += lengths.size
        self.counts["n_tokens"] += int(lengths.sum())
        if self._tokens.separator_id is not None:
            self.counts["n_separators"] += lengths.size
            ids, lengths = _with_separators(ids, lengths, self._tokens.separator_id)
        self.counts["n_empty_documents"] += int((lengths == 0).sum())
        if self._config.strategy != "concatenate":
            self.counts["n_split_documents"] += int((lengths > self._config.length).sum())
        numbers = first + np.arange(lengths.size)
        yield from self._add(_Documents(ids, lengths, numbers))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields the last sequences."""
        yield from self._pack(is_last=True)

    def take_placed(self) -> "tuple[int, list[Segments]]":
        """Returns how many documents are completely in yielded sequences, and the segments since the last call.

        Call it when the iterator of `add` or `rest` is exhausted.
        """
        placed, self._placed = self._placed, []
        waiting = [part.numbers[0] for part in self._pending if part.numbers.size]
        return int(waiting[0]) if waiting else self.counts["n_documents"], placed

    def _add(self, documents: "_Documents") -> Iterator[pa.RecordBatch]:
        ends = np.cumsum(documents.lengths)
        start = 0
        while start < ends.size:
            before = int(ends[start - 1]) if start else 0
            # Up to the document that fills the window, which is included.
            stop = int(np.searchsorted(ends, before + self._window_tokens - self._n_pending)) + 1
            stop = min(stop, ends.size)
            self._pending.append(documents.part(start, stop, before, int(ends[stop - 1])))
            self._n_pending += int(ends[stop - 1]) - before
            start = stop
            if self._n_pending >= self._window_tokens:
                yield from self._pack(is_last=False)

    def _pack(self, is_last: bool) -> Iterator[pa.RecordBatch]:
        documents = _Documents.joined(self._pending)
        size = self._config.length
        if self._config.strategy == "best_fit":
            docs, starts, sizes, rows = _plan_best_fit(documents.lengths, size)
        else:
            docs, starts, sizes, rows = _plan_in_order(documents.lengths, size, self._config.strategy == "concatenate")
        self._pending, self._n_pending = [], 0
        offsets = np.cumsum(documents.lengths) - documents.lengths
        if not is_last and self._config.strategy != "best_fit" and rows.size:
            # The last sequence is continued in the next window, unless it is full.
            stop = int(np.searchsorted(rows, rows[-1]))
            stop = rows.size if int(sizes[stop:].sum()) == size else stop
        else:
            stop = rows.size
        if stop < rows.size:
            rest = _Documents(
                documents.ids[int(offsets[docs[stop]] + starts[stop]) :], sizes[stop:], documents.numbers[docs[stop:]]
            )
            self._pending, self._n_pending = [rest], rest.ids.size
            docs, starts, sizes, rows = docs[:stop], starts[:stop], sizes[:stop], rows[:stop]
        if rows.size:
            yield from self._sequences(documents, offsets[docs] + starts, docs, sizes, rows)

    def _sequences(
        self, documents: "_Documents", starts: np.ndarray, docs: np.ndarray, sizes: np.ndarray, rows: np.ndarray
    ) -> Iterator[pa.RecordBatch]:
        size = self._config.length
        n_rows = int(rows[-1]) + 1
        row_ends = np.searchsorted(rows, np.arange(n_rows), side="right")
        n_segments = np.diff(row_ends, prepend=0)
        ends = np.cumsum(sizes)
        n_tokens = np.diff(ends[row_ends - 1], prepend=0)
        lengths = n_tokens if self._tokens.pad_id is None else np.full(n_rows, size)
        row_starts = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        ids = np.full(total, self._tokens.pad_id or 0, np.int32)
        segment_ids, positions = np.zeros(total, np.int32), np.zeros(total, np.int32)
        kernels.fill_sequences(documents.ids, starts, sizes, rows, row_starts, ids, segment_ids, positions)
        numbers = documents.numbers[docs]
        begins = ends - sizes - np.repeat(ends[row_ends - 1] - n_tokens, n_segments)
        self._placed.append(Segments(numbers, rows + self.counts["n_sequences"], begins))
        self._count(numbers, n_rows, int(n_tokens.sum()), total)
        # What is in front of the rest of a document that was cut is another document, or nothing.
        if "n_first_tokens" in self.counts:
            self.counts["n_first_tokens"] += int((ids[row_starts[rows] + begins] >> _TRAINED_BIT).sum())
        ids[row_starts[rows] + begins] &= ~(1 << _TRAINED_BIT)
        cu_seqlens = np.zeros(rows.size + n_rows, np.int32)
        cu_seqlens[np.arange(rows.size) + rows + 1] = begins + sizes
        columns: Mapping[str, Any] = {
            "input_ids": (ids & ~(1 << _TRAINED_BIT), lengths),
            "loss_mask": (ids >> _TRAINED_BIT != 0, lengths),
            "documents": (numbers, n_segments),
            "segment_ids": (segment_ids, lengths),
            "positions": (positions, lengths),
            "cu_seqlens": (cu_seqlens, n_segments + 1),
        }
        arrays = []
        for field in self.schema:
            if field.name == "n_tokens":
                arrays.append(pa.array(n_tokens.astype(np.int32)))
                continue
            values, counts = columns[field.name]
            list_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
            arrays.append(pa.LargeListArray.from_arrays(pa.array(list_offsets), pa.array(values), type=field.type))
        yield pa.record_batch(arrays, schema=self.schema)

    def _count(self, numbers: np.ndarray, n_rows: int, n_tokens: int, n_ids: int) -> None:
        self.counts["n_sequences"] += n_rows
        self.counts["n_segments"] += numbers.size
        self.counts["n_padding"] += n_ids - n_tokens
        if self._config.strategy == "concatenate":
            # Pieces of one document follow one another, in this batch or from the one before.
            before = np.concatenate([[self._last_number], numbers[:-1]])
            again = np.unique(numbers[numbers == before])
            self.counts["n_split_documents"] += again.size - int(again.size > 0 and again[0] == self._last_split)
            self._last_split = int(again[-1]) if again.size else self._last_split
            self._last_number = int(numbers[-1])


@dataclass(frozen=True)
class _Documents:
    """Documents, or the parts of them that are not packed yet."""

    ids: np.ndarray
    lengths: np.ndarray
    numbers: np.ndarray

    def part(self, start: int, stop: int, first_id: int, last_id: int) -> "_Documents":
        return _Documents(self.ids[first_id:last_id], self.lengths[start:stop], self.numbers[start:stop])

    @staticmethod
    def joined(parts: "list[_Documents]") -> "_Documents":
        return _Documents(
            np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(part.numbers for part in parts)]),
        )


_Plan = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _plan_in_order(lengths: np.ndarray, size: int, splits: bool) -> _Plan:
    n_most = lengths.size + int(np.sum(lengths // size)) + 1
    if splits:
        n_most += int(lengths.sum()) // size
    pieces = tuple(np.empty(n_most, np.int64) for _ in range(4))
    n = kernels.plan_in_order(lengths, size, splits, *pieces)
    docs, starts, sizes, rows = (column[:n] for column in pieces)
    return docs, starts, sizes, rows


def _plan_best_fit(lengths: np.ndarray, size: int) -> _Plan:
    """Plans full sequences of long documents, then all remainders and other documents, the longest first."""
    n_full = lengths // size
    full_docs = np.repeat(np.arange(lengths.size), n_full)
    nth = np.arange(full_docs.size) - np.repeat(np.cumsum(n_full) - n_full, n_full)
    rest = lengths - n_full * size
    docs = np.flatnonzero(rest)
    order = np.argsort(-rest[docs], kind="stable")
    bins, head = np.empty(docs.size, np.int64), np.full(size + 1, -1, np.int64)
    tree = np.zeros(2 << size.bit_length(), np.int64)
    kernels.fit_best(rest[docs[order]], size, bins, head, np.empty(docs.size, np.int64), tree)
    # Sequences in the order of their first documents, documents in their order: close to the order of the file.
    in_order = np.lexsort((docs[order], bins))
    docs, bins = docs[order][in_order], bins[in_order]
    is_first = np.diff(bins, prepend=-1) > 0
    rank = np.empty(int(is_first.sum()), np.int64)
    rank[np.argsort(docs[is_first])] = np.arange(rank.size)
    final = np.lexsort((docs, rank[bins]))
    return (
        np.concatenate([full_docs, docs[final]]),
        np.concatenate([nth * size, (n_full * size)[docs[final]]]),
        np.concatenate([np.full(full_docs.size, size), rest[docs[final]]]),
        np.concatenate([np.arange(full_docs.size), full_docs.size + rank[bins][final]]),
    )


def _with_separators(ids: np.ndarray, lengths: np.ndarray, separator_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (ids, lengths) of documents with the separator after each."""
    out = np.full(ids.size + lengths.size, separator_id, np.int32)
    out[np.arange(ids.size) + np.repeat(np.arange(lengths.size), lengths)] = ids
    return out, lengths + 1
