# SPDX-License-Identifier: Apache-2.0
"""What every shard writer is, and what it is told about the tokenizer."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pyarrow as pa

from pipeline import schemas

FORMAT_VERSION = 1
"""Version of what shards look like; written into every Parquet shard and into the manifest."""


@dataclass(frozen=True)
class TokenizerInfo:
    """What a shard says about the tokenizer that made it."""

    digest: str
    """sha256, in hex, of its tokenizer.json."""
    vocab_size: int
    """Every id is below this."""
    special_ids: Mapping[str, int] = field(default_factory=dict)
    """Special tokens and their ids."""
    padding_side: Literal["right", "left"] | None = None
    """Where rows are padded; None when they are not."""


class ShardWriter(Protocol):
    """Writes rows of `schemas.TOKENS` to one shard, in the order given.

    The bytes of a shard depend on its sequence of rows alone, not on how the rows were cut into batches.
    """

    n_rows: int
    """Rows written so far."""
    n_tokens: int
    """Tokens written so far, padding not included."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends the rows of `batch`."""

    def close(self) -> None:
        """Writes what is still in memory and the end of the file; leaves the handle open."""


def check_schema(batch: pa.RecordBatch, extra: pa.Field | None = None) -> None:
    """Raises TypeError unless `batch` has the schema `schemas.TOKENS`, or that and `extra`."""
    expected = schemas.TOKENS if extra is None else schemas.TOKENS.append(extra)
    if not batch.schema.equals(expected):
        raise TypeError(f"a shard takes rows of {expected.names}, got {batch.schema.to_string()!r}")


def skip_rows(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """Yields `batches` without their first `n_rows` rows."""
    for batch in batches:
        if n_rows < batch.num_rows:
            yield batch.slice(n_rows)
        n_rows = max(0, n_rows - batch.num_rows)
