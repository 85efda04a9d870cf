# SPDX-License-Identifier: Apache-2.0
"""Sums over documents that do not depend on their order, and the description of sorted runs.

The sum over the splits must equal the sum over the shards. It is not a cryptographic checksum (the files have one), but
a bug is unlikely to leave it unchanged: a document's hash covers its key, and a token's hash its position.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.columns import children
from tokenmill.pipeline.hashing import mix

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Sums:
    """Sums over documents, in any order; sums of parts add up to those of the whole."""

    n_documents: int = 0
    n_tokens: int = 0
    """Tokens, without padding."""
    n_oov_tokens: int = 0
    tokens: int = 0
    """The sum over documents, modulo 2**64, of a hash of the key and the tokens."""
    doc_ids: int = 0
    """The same, of a hash of the key and the document's id."""

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.n_documents + other.n_documents,
            self.n_tokens + other.n_tokens,
            self.n_oov_tokens + other.n_oov_tokens,
            (self.tokens + other.tokens) & _MASK,
            (self.doc_ids + other.doc_ids) & _MASK,
        )

    def to_record(self) -> dict[str, Any]:
        """Returns plain JSON; hashes as 16 hexadecimal digits."""
        return {**vars(self), "tokens": f"{self.tokens:016x}", "doc_ids": f"{self.doc_ids:016x}"}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Returns the value that `to_record` turned into `record`."""
        return cls(**{**record, "tokens": int(record["tokens"], 16), "doc_ids": int(record["doc_ids"], 16)})


@dataclass(frozen=True)
class Run:
    """One sorted run of a file."""

    n_rows: int
    n_bytes: int
    """How many bytes its rows took in memory."""
    first_piece: int
    """The number of the record batch that is its first piece; the next ones follow."""
    n_pieces: int
    """Into how many even ranges of keys it is cut, from `first` to `last`."""
    first: int = 0
    last: int = _MASK
    """The first and the last key, or bounds of them."""

    def bound(self, piece: int) -> int:
        """Returns the first key that may be in a piece."""
        return self.first + -(-(self.last - self.first + 1) * piece // self.n_pieces)

    def piece_of(self, key: int) -> int:
        """Returns the first piece that may hold a key, or keys above it."""
        return max(0, min(key - self.first, self.last - self.first)) * self.n_pieces // (self.last - self.first + 1)

    def share(self, low: int, high: int) -> int:
        """Returns about how many bytes have keys from `low` to below `high`."""
        n_keys = min(high, self.last + 1) - max(low, self.first)
        return self.n_bytes * max(0, n_keys) // (self.last - self.first + 1)


@dataclass(frozen=True)
class SplitRuns:
    """A file of sorted runs. It goes through Beam; that of a split is part of the split's entry."""

    split_id: str
    """The id of the split; of a merged file, another one of the same kind."""
    index: int
    """Position of the split in the plan; of a merged file, the number of its group."""
    sha256: str
    """SHA-256 of the file, in hex."""
    runs: tuple[Run, ...]
    sums: Sums
    """Sums of a split; zeros for a merged file."""
    fields: str = ""
    """`Split.fields`."""
    part: tuple[int, int] = (0, 1)
    """The range of keys in the file, as `spill.shard_range` takes it: its number, and how many there are."""
    folder: int = 0
    """The number of the folder among those of the job."""

    def to_record(self) -> dict[str, Any]:
        """Returns plain JSON."""
        bounds = [[run.first, run.last] for run in self.runs]
        return {**vars(self), **describe_runs(self.runs, self.sums), "bounds": bounds}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Returns the value that `to_record` turned into `record`; without bounds, runs may hold any key."""
        fields = {"part": (0, 1), **record}
        bounds = fields.pop("bounds", None) or [()] * len(fields["runs"])
        pairs = zip(fields["runs"], bounds, strict=True)
        if any(len(numbers) != 4 or numbers[3] < 1 for numbers in fields["runs"]):
            split_id = record["split_id"]
            raise ValueError(f"split {split_id} was sorted by another version of TokenMill; start the job anew")
        runs = tuple(Run(*numbers, *each) for numbers, each in pairs)
        sums = Sums.from_record(fields["sums"])
        return cls(**{**fields, "runs": runs, "sums": sums, "part": tuple(fields["part"])})

    def to_json(self) -> str:
        """Returns `to_record` as JSON."""
        return json.dumps(self.to_record())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the value that `to_json` turned into `text`."""
        return cls.from_record(json.loads(text))


def describe_runs(runs: Iterable[Run], sums: Sums) -> dict[str, Any]:
    """Returns the part of a split's entry about its runs, plain JSON."""
    return {
        "runs": [[run.n_rows, run.n_bytes, run.first_piece, run.n_pieces] for run in runs],
        "sums": sums.to_record(),
    }


def sum_rows(keys: np.ndarray, batch: pa.RecordBatch, padding_side: str | None) -> Sums:
    """Returns the sums of documents.

    Args:
      keys: uint64[n].
      batch: `schemas.TOKENS`, perhaps with more columns.
      padding_side: where rows are padded, "right" or "left"; None where they are not.
    """
    rows, n_tokens = batch.column("input_ids"), batch.column("n_tokens").to_numpy().astype(np.int64)
    offsets = rows.offsets.to_numpy()
    starts = offsets[1:] - n_tokens if padding_side == "left" else offsets[:-1]
    n_oov = batch.column("n_oov").to_numpy().sum(dtype=np.int64)
    return Sums(
        batch.num_rows,
        int(n_tokens.sum()),
        int(n_oov),
        sum_values(keys, rows.values.to_numpy(), starts, starts + n_tokens),
        sum_doc_ids(keys, batch.column("doc_id")),
    )


def sum_values(keys: np.ndarray, values: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> int:
    """Returns the sum over rows, modulo 2**64, of a hash of the key and of the values from `starts` to `stops`.

    Args:
      keys: uint64[n].
      values: int32 or uint8.
      starts: int64[n].
      stops: int64[n].
    """
    hashes = np.zeros(keys.size, np.uint64)
    sums_kernels.add_values(values, starts, stops, np.zeros(keys.size, np.int64), hashes)
    return int(sums_kernels.fingerprint(keys, hashes, stops - starts))


def sum_doc_ids(keys: np.ndarray, doc_ids: pa.Array) -> int:
    """Returns the sum over rows, modulo 2**64, of a hash of the key and of the UTF-8 bytes of the document's id."""
    offsets, values = children(doc_ids)
    return sum_values(keys, values.to_numpy(), offsets[:-1], offsets[1:])


def hash_texts(texts: pa.Array) -> np.ndarray:
    """Returns uint64[n], a hash of the UTF-8 bytes of each text, string[n] without nulls, and of nothing else."""
    offsets, values = children(texts)
    hashes, firsts = np.zeros(len(texts), np.uint64), np.zeros(len(texts), np.int64)
    sums_kernels.add_values(values.to_numpy(), offsets[:-1], offsets[1:], firsts, hashes)
    return mix(hashes + np.diff(offsets).astype(np.uint64))
