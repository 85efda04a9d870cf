# SPDX-License-Identifier: Apache-2.0
"""Packing as an index: sequences of one length, made of documents when they are read; no token is copied before.

    sizes of documents --pack, by the placement of jobs--> OUT/pieces.bin, OUT/rows.bin --Packed--> rows

The rows are those of a job with the same `output.packing`, whatever the settings: shard by shard, in the same order.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.columns import as_lists
from tokenmill.pipeline.data import index
from tokenmill.pipeline.data.dataset import Dataset
from tokenmill.pipeline.data.order import Int64s
from tokenmill.pipeline.data.rows import Rows
from tokenmill.pipeline.output.placement import (
    Measures,
    Placement,
    RowForm,
    before,
    gather_ids,
    gather_trained,
    measure,
    placed_columns,
)

if TYPE_CHECKING:
    from tokenmill.tokenizer import Tokenizer

_SOURCE = "documents"


def pack(
    rows: Rows | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    seed: int | None = None,
    tokenizer: str | None = None,
    **settings: Any,
) -> "Packed":
    """Writes an index of packed sequences into a new folder, or over another packing, and returns its rows.

    Memory: 12 bytes for each document, and 40 for each part of one in a sequence.

    Args:
      rows: documents, or the folder of an output; with `loss_mask` or `labels` sequences have them, too.
      folder: of the index.
      seed: pack documents in the order of this seed, all together. None: in the order in which they are stored, each
        shard of an output by itself, as its job would.
      tokenizer: a `tokenizer.json`, which knows the tokens of the settings; None for that of the output.
      settings: those of `output.packing` of a config: `length`, `strategy`, `separator`, `boundaries`, `incomplete`,
        `pad_token`.

    Raises:
      ValueError: if there is no such setting, the tokenizer lacks a token, or rows are packed or padded already.
      OSError: if the rows cannot be read or the index not be written.
    """
    from tokenmill.pipeline.config.output import PackingConfig
    from tokenmill.pipeline.output.arranging import packing_ids

    rows = rows if isinstance(rows, Rows) else index.open_rows(rows)
    config = PackingConfig(**settings)
    separator_id, pad_id = packing_ids(config, _tokenizer_of(rows, tokenizer))
    form = RowForm.packed(config.strategy, config.length, separator_id, pad_id)
    sizes = np.concatenate([np.zeros(0, np.int32), *(part.astype(np.int32) for part in rows.sizes())])
    numbers = np.arange(sizes.size) if seed is None else rows.order(seed)(np.arange(sizes.size))
    starts = rows.starts if seed is None and isinstance(rows, Dataset) else np.array([0, sizes.size])
    pieces, bounds = _place(form.totals(sizes[numbers].astype(np.int64)), starts, form)
    pieces["document"] = numbers[pieces["document"]]
    names = rows.with_columns(None).schema.names
    n_tokens, n_separators = int(sizes.sum()), sizes.size * form.n_separators
    record = {
        "packing": {**config.model_dump(mode="json"), "separator_id": separator_id, "pad_id": pad_id},
        "seed": seed,
        "mask": next((name for name in ("labels", "loss_mask") if name in names), None),
        "counts": {
            "n_sequences": bounds.size - 1,
            "n_documents": sizes.size,
            "n_split_documents": int(np.count_nonzero(np.bincount(pieces["document"], minlength=1) > 1)),
            "n_segments": pieces.size,
            "n_tokens": n_tokens,
            "n_separators": n_separators,
            "n_free": config.length * (bounds.size - 1) - n_tokens - n_separators,
        },
    }
    arrays = {"rows.bin": bounds, "pieces.bin": pieces}
    index.write(os.fspath(folder), Packed.kind, record, {_SOURCE: rows}, arrays)
    return Packed(os.fspath(folder), {_SOURCE: rows})


def _tokenizer_of(rows: Rows, path: str | None) -> "Tokenizer":
    """Returns the tokenizer of a file, or that of the job that made rows; ValueError if they cannot be packed."""
    from tokenmill.tokenizer import Tokenizer

    for dataset in index.origins(rows):
        made = dataset.manifest["config"]
        if dataset.manifest["packing"] is not None or made["tokenizer"]["padding"] is not None:
            raise ValueError(f"{dataset.name!r} is packed or padded: pack the output of a job that does neither")
        path = path or storage.join(dataset.name, filenames.TOKENIZER)
    if path is None:
        raise ValueError(f"{rows.name} is no output of a job: name its tokenizer.json")
    return Tokenizer.from_str(storage.read_text(path))


_PIECE = np.dtype([("document", "<i8"), ("first", "<i4"), ("size", "<i4")])


def _place(totals: Int64s, starts: Int64s, form: RowForm) -> tuple[np.ndarray, Int64s]:
    """Returns the pieces of all rows, and int64[n_rows + 1], where the pieces of each row begin."""
    from tokenmill.pipeline.output.arranging import place

    pieces, counts = [np.zeros(0, _PIECE)], [np.zeros(1, np.int64)]
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        for start, stop in _windows(totals[first:last], form):
            placement = place(totals[first + start : first + stop], form)
            part = np.zeros(placement.rows.size, _PIECE)
            part["document"] = placement.documents + first + start
            part["first"], part["size"] = placement.firsts, placement.sizes
            pieces.append(part)
            counts.append(np.bincount(placement.rows))
    return np.concatenate(pieces), np.cumsum(np.concatenate(counts)).astype("<i8")


def _windows(totals: Int64s, form: RowForm) -> Iterator[tuple[int, int]]:
    """Yields the documents that are placed together; only `best_fit` depends on it, see `output.arranging`."""
    from tokenmill.pipeline.output.arranging import WINDOW_TOKENS

    ends, start = np.cumsum(totals), 0
    while start < ends.size:
        stop = int(ends.size)
        if form.strategy == "best_fit":
            had = int(ends[start - 1]) if start else 0
            stop = min(stop, int(ends.searchsorted(had + max(WINDOW_TOKENS, form.length))) + 1)
        yield start, stop
        start = stop


class Packed(index.Indexed):
    """Sequences of documents; `documents` of a sequence are the numbers of its documents among the packed rows."""

    kind = "packing"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """See `index.Indexed`."""
        super().__init__(*arguments, **options)
        self._bounds, self._pieces = self.array("rows.bin", np.dtype("<i8")), self.array("pieces.bin", _PIECE)
        packing = self.record["packing"]
        ids = packing["separator_id"], packing["pad_id"]
        self._form = RowForm.packed(packing["strategy"], packing["length"], *ids)
        needed = [name for name in ("input_ids", self.record["mask"]) if name in self.schema.names]
        self._documents = self.sources[_SOURCE].with_columns(needed) if needed else None

    def _schema(self, columns: Sequence[str] | None) -> pa.Schema:
        mask = [self.record["mask"]] if self.record["mask"] else []
        whole = schemas.packed([*self.record["packing"]["boundaries"], *mask])
        if missing := [name for name in columns or () if name not in whole.names]:
            raise ValueError(f"{self.name!r} has no column {missing[0]!r}, only {', '.join(whole.names)}")
        return pa.schema([whole.field(name) for name in columns or whole.names])

    def __len__(self) -> int:
        """Returns the number of sequences."""
        return int(self.record["counts"]["n_sequences"])

    def __repr__(self) -> str:
        """Returns what is packed, and what of the room is free."""
        counts, packing = self.record["counts"], self.record["packing"]
        free = counts["n_free"] / max(1, packing["length"] * len(self))
        return (
            f"<Packed {self.name}: {counts['n_documents']:,} documents, {counts['n_split_documents']:,} of them cut, "
            f"in {len(self):,} sequences of {packing['length']:,} by {packing['strategy']}, {free:.2%} free; "
            f"digest {self.digest[:12]}>"
        )

    def pieces(self, row: int) -> np.ndarray:
        """Returns the parts of a sequence: `document`, `first` of its tokens, `size`; a separator counts."""
        (row,) = self.checked([row]).tolist()
        return self._pieces[self._bounds[row] : self._bounds[row + 1]]

    def problems(self) -> Iterator[str]:
        """Yields what is wrong: documents that are not in sequences with each token once, sequences that are too long.

        Memory: 24 bytes for each document, and 56 for each part of one in a sequence.
        """
        ordered = np.sort(self._pieces, order=["document", "first"])
        documents, firsts, sizes = (ordered[name].astype(np.int64) for name in ("document", "first", "size"))
        totals = self._form.totals(np.concatenate([np.zeros(0, np.int64), *self.sources[_SOURCE].sizes()]))
        if documents.size and not (documents[0] >= 0 and documents[-1] < totals.size):
            yield f"{self.name}: has document {documents[-1]}, but there are {totals.size}"
            return
        n_listed = np.zeros(totals.size, np.int64)
        np.add.at(n_listed, documents, sizes)
        gaps = documents[(firsts != before(sizes, documents)) | (sizes < 1)]
        for document in np.unique(np.concatenate([gaps, np.flatnonzero(n_listed != totals)]))[:10].tolist():
            n = totals[document]
            yield f"{self.name}: document {document} is not in sequences with each of its {n} tokens once"
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._pieces["size"], dtype=np.int64)])
        for row in np.flatnonzero(np.diff(ends[self._bounds]) > self._form.length)[:10].tolist():
            yield f"{self.name}: sequence {row} has more than {self._form.length} tokens"

    def take(self, rows: npt.ArrayLike) -> pa.RecordBatch:
        """Returns sequences by number; see `Rows.take`."""
        numbers = self.checked(rows)
        begins, counts = self._bounds[numbers], self._bounds[numbers + 1] - self._bounds[numbers]
        rows = np.repeat(np.arange(numbers.size), counts)
        pieces = self._pieces[np.arange(rows.size) + np.repeat(begins - (np.cumsum(counts) - counts), counts)]
        documents, firsts, sizes = (pieces[name].astype(np.int64) for name in ("document", "first", "size"))
        placement = Placement(documents, firsts, sizes, rows, before(sizes, rows))
        at = measure(placement, self._form)
        columns = placed_columns(self.schema.names, placement, at, self._form) | self._read(placement, at)
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)

    def _read(self, placement: Placement, at: Measures) -> dict[str, pa.Array]:
        """Returns the columns that documents have."""
        if self._documents is None:
            return {}
        documents, numbers = np.unique(placement.documents, return_inverse=True)
        placement, columns = replace(placement, documents=numbers), {}
        batch = self._documents.take(documents)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values, offsets = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy()
            missing = placement.firsts + placement.sizes - np.diff(offsets)[numbers]
            if missing.max(initial=0) > self._form.n_separators:
                raise ValueError(f"{self._documents.name}: {name} of a document is shorter than its n_tokens says")
            if name == "input_ids":
                made = gather_ids(values, offsets, placement, at, self._form)
            else:
                fill = schemas.IGNORED if name == "labels" else 0
                made, _ = gather_trained(values, offsets, placement, at, fill)
            columns[name] = as_lists(made, at.offsets)
        return columns
