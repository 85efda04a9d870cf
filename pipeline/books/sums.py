# SPDX-License-Identifier: Apache-2.0
"""Sums over documents that do not depend on their order, and where sorted runs are in a file.

The sum over the splits must equal the sum over the shards. It is not a cryptographic checksum (the files have one), but
a bug is unlikely to leave it unchanged: a document's hash covers its key, and a token's hash its position.
"""

import json
import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field

from tokenmill.pipeline.books import sums_kernels
from tokenmill.pipeline.books.json_files import Count
from tokenmill.pipeline.columns import children
from tokenmill.pipeline.hashing import mix

_MASK = (1 << 64) - 1


def _from_hex(value: object) -> object:
    """Returns the number that manifests, and entries of earlier versions, have as 16 hexadecimal digits."""
    return int(value, 16) if isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value) else value


_Hash = Annotated[int, Field(strict=True, ge=0, le=_MASK), BeforeValidator(_from_hex)]


@dataclass(frozen=True)
class Sums:
    """Sums over documents, in any order; sums of parts add up to those of the whole."""

    n_documents: Count = 0
    n_tokens: Count = 0
    """Tokens, without padding."""
    n_oov_tokens: Count = 0
    tokens: _Hash = 0
    """The sum over documents, modulo 2**64, of a hash of the key and the tokens."""
    doc_ids: _Hash = 0
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
        """Returns plain JSON, as the manifest has it; hashes as 16 hexadecimal digits."""
        return {**vars(self), "tokens": f"{self.tokens:016x}", "doc_ids": f"{self.doc_ids:016x}"}


class Run(NamedTuple):
    """One sorted run of a file; a list of numbers in JSON."""

    n_rows: Count
    n_bytes: Count
    """How many bytes its rows took in memory."""
    first_piece: Count
    """The number of the record batch that is its first piece; the next ones follow."""
    n_pieces: Annotated[int, Field(strict=True, ge=1)]
    """Into how many even ranges of keys it is cut, from `first` to `last`."""
    first: _Hash = 0
    last: _Hash = _MASK
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
class SortedRuns:
    """What a ledger entry has of a split whose documents, or word counts, were sorted."""

    runs: tuple[Run, ...]
    sums: Sums = Sums()
    groups: tuple[tuple[str, ...], ...] = ()
    """The labels of the words of each run, where runs are word counts."""


@dataclass(frozen=True)
class SplitRuns:
    """A file of sorted runs. It goes through Beam."""

    split_id: str
    """The id of the split; of a merged file, another one of the same kind."""
    index: int
    """Position of the split in the plan; of a merged file, the number of its group."""
    sha256: str
    """SHA-256 of the file, in hex."""
    runs: tuple[Run, ...]
    fields: str = ""
    """`Split.fields`."""
    key_range: tuple[int, int] = (0, 1)
    """The range of keys in the file, as `spill.shard_range` takes it: its number, and how many there are."""
    folder: int = 0
    """The number of the folder among those of the job."""
    groups: tuple[tuple[str, ...], ...] = ()
    """As in `SortedRuns`."""

    def to_json(self) -> str:
        """Returns one line that `from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Returns the value that `to_json` turned into `line`."""
        fields = json.loads(line)
        runs = tuple(Run(*numbers) for numbers in fields["runs"])
        groups = tuple(map(tuple, fields["groups"]))
        return cls(**{**fields, "runs": runs, "key_range": tuple(fields["key_range"]), "groups": groups})


def imbalance_of_sums(before: Sums, after: Sums) -> list[str]:
    """Returns what differs between the documents of all splits and those of all shards, whatever their order."""
    ours, theirs = before.to_record(), after.to_record()
    return [
        f"{name} of all splits {n} != of all shards {theirs[name]}" for name, n in ours.items() if n != theirs[name]
    ]


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
