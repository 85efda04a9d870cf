# SPDX-License-Identifier: Apache-2.0
"""What all formats of shards need: `ShardWriter`, row groups, what a shard says about its tokenizer, values as JSON.

Training loops read the index of a shard by it, so only NumPy and pyarrow are needed.
"""

import abc
import base64
import datetime
import decimal
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import as_lists, row_bytes

_NEEDS_ESCAPE = r'[\x00-\x1f"\\]'


@dataclass(frozen=True)
class TokenizerInfo:
    """What a shard says about the tokenizer that made it."""

    digest: str
    """SHA-256, in hex, of its tokenizer.json."""
    vocab_size: int
    """Every id is below this."""
    special_ids: Mapping[str, int] = field(default_factory=dict)
    """Special tokens and their ids."""
    padding_side: Literal["right", "left"] | None = None
    """The side on which rows are padded; None if they are not."""

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The type of ids, little-endian: uint16 for fewer than 65,500 ids, added tokens included, as in Megatron-LM.

        Source: Megatron-LM `core/datasets/indexed_dataset.py`, `DType.optimal_dtype`.
        """
        return np.dtype("<u2") if self.vocab_size < 65_500 else np.dtype("<i4")

    def to_json(self) -> str:
        """Returns this as JSON, for the metadata of a shard."""
        record = {
            "format_version": schemas.SHARD_FORMAT_VERSION,
            "padding_side": self.padding_side,
            "special_ids": dict(self.special_ids),
            "tokenizer": self.digest,
            "vocab_size": self.vocab_size,
        }
        return json.dumps(record, sort_keys=True, ensure_ascii=False)


class ShardWriter(abc.ABC):
    """Writes rows of one schema, of documents or of packed sequences, to one shard, in the order given.

    The bytes of a shard depend on its sequence of rows alone, not on how the rows were cut into batches. Files that a
    writer is given are open for writing, at their start, and stay open.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Takes the schema of the rows."""
        self.n_rows = self.n_tokens = 0
        """Rows and tokens written so far, padding not included."""
        self._schema = schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends the rows of `batch`.

        Raises:
          TypeError: if the batch has another schema.
          ValueError: if an id is not in the vocabulary, or a row or the shard is too large for the format.
        """
        check_schema(batch, self._schema)
        if batch.num_rows:
            self._write(batch)
            self.n_rows += batch.num_rows
            self.n_tokens += int(batch.column("n_tokens").to_numpy().sum(dtype=np.int64))

    @abc.abstractmethod
    def _write(self, batch: pa.RecordBatch) -> None: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Writes what is still in memory, then the end of the file."""


MAX_ROWS = 1 << 20
"""The most rows of a row group, however few tokens they have: empty documents take memory, too."""
MAX_DOC_ID_BYTES = 64 << 20
"""The most bytes of strings in a row group: document ids and sources of spans."""


class RowGroups:
    """Cuts a sequence of rows into groups by limits on sums, whatever batches the rows arrive in.

    A group is full when the next row would take one of its sums past the limit. A row that alone exceeds a limit is
    the only one of its group. Holds the rows of one unfinished group.
    """

    def __init__(self, limits: Sequence[int]) -> None:
        """Takes, for each weight of rows, the largest sum that a group may have."""
        self._limits = limits
        self._sums = [0] * len(limits)
        self._pending: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch, weights: Sequence[np.ndarray]) -> Iterator[pa.Table]:
        """Yields the groups that `batch` fills; weights: int64[n] for each limit, none negative."""
        cumulated = [np.concatenate(([0], np.cumsum(weight, dtype=np.int64))) for weight in weights]
        start = 0
        while start < batch.num_rows:
            stop = min(
                int(np.searchsorted(sums, sums[start] + limit - had, side="right")) - 1
                for sums, limit, had in zip(cumulated, self._limits, self._sums, strict=True)
            )
            if stop <= start:
                if self._pending:
                    yield self._take()
                    continue
                stop = start + 1
            self._pending.append(batch.slice(start, stop - start))
            self._sums = [had + int(sums[stop] - sums[start]) for had, sums in zip(self._sums, cumulated, strict=True)]
            start = stop

    def rest(self) -> Iterator[pa.Table]:
        """Yields the last group, unless there are no rows left."""
        if self._pending:
            yield self._take()

    def _take(self) -> pa.Table:
        # In one chunk: pages end where chunks end, so the bytes would otherwise depend on the batches.
        group = pa.Table.from_batches(self._pending).combine_chunks()
        self._pending, self._sums = [], [0] * len(self._limits)
        return group


def group_weights(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the weights of rows that limit row groups, int64[n] each: ids, rows (always 1), bytes of strings."""
    n_ids = np.diff(batch.column("input_ids").offsets.to_numpy())
    ones = np.ones(batch.num_rows, np.int64)
    n_bytes = np.zeros_like(ones)
    if "doc_id" in batch.schema.names:
        n_bytes += pc.binary_length(batch.column("doc_id")).to_numpy()
    if fields := [field.name for field in batch.schema if field.nullable]:
        n_bytes += row_bytes(batch.select(fields))
    if schemas.SPAN_SOURCES.name in batch.schema.names:  # eight bytes for each source, and those of its text
        sources = batch.column(schemas.SPAN_SOURCES.name)
        sizes = pc.fill_null(pc.binary_length(sources.values), 0).to_numpy().astype(np.int64) + 8
        n_bytes += np.diff(np.concatenate(([0], np.cumsum(sizes)))[sources.offsets.to_numpy()])
    return n_ids, ones, n_bytes


def check_schema(batch: pa.RecordBatch, schema: pa.Schema = schemas.TOKENS) -> None:
    """Raises TypeError unless `batch` has the schema `schema`."""
    if not batch.schema.equals(schema):
        raise TypeError(f"a shard takes rows of {schema.names}, got {batch.schema.to_string()!r}")


def narrow_ids(ids: np.ndarray, tokenizer: TokenizerInfo) -> np.ndarray:
    """Returns ids in `tokenizer.token_dtype`.

    Raises:
      ValueError: if one is not in the vocabulary; a cast would turn it into another id.
    """
    if ids.size and (ids.min() < 0 or ids.max() >= tokenizer.vocab_size):
        wrong = ids[(ids < 0) | (ids >= tokenizer.vocab_size)][0]
        raise ValueError(f"id {wrong} is not in the vocabulary of {tokenizer.vocab_size} tokens")
    return ids.astype(tokenizer.token_dtype)


def make_rows(ids: np.ndarray, offsets: np.ndarray) -> pa.RecordBatch:
    """Returns rows of doc_id, input_ids and n_tokens, for formats that keep nothing but ids.

    Args:
      ids: the ids of all rows, of any integer type below 2**31.
      offsets: int64[n + 1], where each row begins in `ids`; from 0.
    """
    n_tokens = np.diff(offsets).astype(np.int32)
    doc_ids = pa.array([""], pa.string()).take(pa.array(np.zeros(n_tokens.size, np.int64)))
    columns = [doc_ids, as_lists(ids.astype(np.int32), offsets), pa.array(n_tokens)]
    return pa.record_batch(columns, schema=pa.schema(list(schemas.TOKENS)[:3]))


def scatter(out: np.ndarray, at: np.ndarray, numbers: np.ndarray) -> None:
    """Writes the bytes of numbers at places of `out`, uint8; `at`: int64[n], where each of `numbers` begins."""
    digits = numbers.view(np.uint8).reshape(numbers.size, numbers.itemsize)
    for i in range(numbers.itemsize):
        out[at + i] = digits[:, i]


def skip_rows(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yields `batches` without their first `n_rows` rows."""
    for batch in batches:
        if n_rows < batch.num_rows:
            yield batch.slice(n_rows)
        n_rows = max(0, n_rows - batch.num_rows)


def json_texts(column: pa.Array) -> pa.LargeStringArray:
    """Returns large_string[n], the JSON of each value, `null` for a null.

    Times in ISO 8601, durations in seconds, decimals as digits and bytes in base64 all become strings; for times and
    durations in nanoseconds, see `spell_nanoseconds`.
    """
    null = pa.scalar("null", pa.large_string())
    if pa.types.is_integer(column.type):
        return pc.fill_null(column.cast(pa.large_string()), null)
    if pa.types.is_string(column.type) and not pc.any(pc.match_substring_regex(column, _NEEDS_ESCAPE)).as_py():
        quote = pa.scalar('"', pa.large_string())
        quoted = pc.binary_join_element_wise(
            quote, column.cast(pa.large_string()), quote, pa.scalar("", pa.large_string())
        )
        return pc.fill_null(quoted, null)
    texts = [json.dumps(value, ensure_ascii=False, default=to_plain) for value in _spelled(column).to_pylist()]
    return pa.array(texts, pa.large_string())


def spell_nanoseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns columns with strings in place of times and durations in nanoseconds, for which Python has no type.

    Arrow converts these to pandas objects, or fails without pandas. Here a time becomes
    `2026-11-24 18:05:00.000000001`, a duration its number of nanoseconds.
    """
    columns = [_spelled(column) for column in batch.columns]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.record_batch(columns, schema=pa.schema(fields))


def _spelled(column: pa.Array) -> pa.Array:
    type_ = _spelled_type(column.type)
    return column if type_ == column.type else column.cast(type_)


def _spelled_type(type_: pa.DataType) -> pa.DataType:
    """Returns a type with strings in place of times and durations in nanoseconds, at any depth."""
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_spelled_type(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_spelled_type(type_.key_type), type_.item_field.with_type(_spelled_type(type_.item_type)))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        field = type_.value_field.with_type(_spelled_type(type_.value_type))
        if pa.types.is_fixed_size_list(type_):
            return pa.list_(field, type_.list_size)
        return pa.list_(field) if pa.types.is_list(type_) else pa.large_list(field)
    return pa.string() if getattr(type_, "unit", None) == "ns" else type_


def to_plain(value: Any) -> str:
    """Returns a JSON value for a Python value that JSON has no type for; `json.dumps` takes it as `default`."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value.total_seconds())
    if isinstance(value, decimal.Decimal):
        return str(value)
    return base64.b64encode(value).decode()
