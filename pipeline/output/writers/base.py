# SPDX-License-Identifier: Apache-2.0
"""`ShardWriter`, the interface of all shard writers, and `TokenizerInfo`, what a shard says about its tokenizer."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas


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


class ShardWriter(Protocol):
    """Writes rows of one schema, of documents or of packed sequences, to one shard, in the order given.

    The bytes of a shard depend on its sequence of rows alone, not on how the rows were cut into batches.
    """

    @property
    def n_rows(self) -> int:
        """Rows written so far."""

    @property
    def n_tokens(self) -> int:
        """Tokens written so far, padding not included."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends the rows of `batch`."""

    def close(self) -> None:
        """Writes what is still in memory, then the end of the file; leaves the handle open."""


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
    n_rows = offsets.size - 1
    lists = pa.LargeListArray.from_arrays(
        pa.array(offsets, pa.int64()), pa.array(ids.astype(np.int32)), type=schemas.TOKENS.field("input_ids").type
    )
    columns = [pa.array([""], pa.string()).take(pa.array(np.zeros(n_rows, np.int64))), lists, np.diff(offsets)]
    fields = [schemas.TOKENS.field(name) for name in ("doc_id", "input_ids", "n_tokens")]
    return pa.record_batch([*columns[:2], pa.array(columns[2].astype(np.int32))], schema=pa.schema(fields))


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
