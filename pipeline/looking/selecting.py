# SPDX-License-Identifier: Apache-2.0
"""Chooses rows to look at among those of a shard or of a whole output: by document, by text, the longest, at random.

A batch of a shard is in memory, the rows chosen so far, and, to find a document or to name those of packed sequences,
the table of a shard's documents.
"""

import dataclasses
import functools
import heapq
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import parts
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.filenames import MANIFEST
from tokenmill.pipeline.looking import inspect
from tokenmill.pipeline.output.placement import Placement, RowForm
from tokenmill.pipeline.output.tables import read_documents
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.statistics.words import unknown
from tokenmill.tokenizer import Tokenizer

Order = Literal["longest", "most_unknown", "random"]


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which rows to show."""

    count: int
    start: int = 0
    """The first row to look at, counted from 0 over all shards."""
    doc_id: str | None = None
    """Only rows with tokens of this document."""
    pattern: str | None = None
    """Only rows whose decoded text matches a regular expression, in RE2's dialect: it takes linear time."""
    order: Order | None = None
    """None takes the first rows, otherwise all are read. Of equal rows the first ones are taken."""
    seed: int = 0
    """Of `random`: the same rows for the same seed."""

    def __post_init__(self) -> None:
        if self.pattern is not None:
            try:
                pc.match_substring_regex(pa.array([""]), self.pattern)
            except pa.ArrowInvalid as error:
                raise ValueError(f"{self.pattern!r} is not a regular expression of RE2: {error}") from error


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file with rows, and what the manifest of its folder knows about it, if there is one."""

    folder: str
    name: str
    manifest: Mapping[str, Any] | None = None
    record: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        """Where it is."""
        return storage.join(self.folder, self.name)

    @functools.cached_property
    def documents(self) -> pa.Table | None:
        """The table of its documents, None where no manifest lists one."""
        if self.manifest is None or self.record is None:
            return None
        mine = self.record.get("entry") or self.record.get("split")
        for record in self.manifest["documents"]:
            if (record.get("entry") or record.get("split")) == mine:
                file = FileRecord(**{name: value for name, value in record.items() if name not in ("split", "entry")})
                is_cut = self.manifest["packing"] is not None or "windows" in self.manifest["totals"]
                try:
                    return pa.Table.from_batches(list(read_documents(self.folder, file, has_segments=is_cut)))
                except ValueError as error:
                    raise ValueError(f"{storage.join(self.folder, file.file)}: {error}") from error
        return None

    def rows_of(self, doc_id: str) -> np.ndarray:
        """Returns int64[n], the rows that hold tokens of a document, in order."""
        if self.documents is None:
            raise ValueError(f"{self.path}: a document is found by the manifest of its folder, which does not list it")
        numbers = np.flatnonzero(pc.equal(self.documents.column("doc_id"), doc_id).to_numpy())
        if "rows" not in self.documents.column_names:
            return numbers
        return np.unique(self.documents.column("rows").take(pa.array(numbers)).combine_chunks().flatten().to_numpy())

    def pieces(self, row: inspect.Row) -> list[tuple[int, int, int, int]]:
        """Returns what a row holds of each document, by the table of documents, which there must be.

        Returns:
          Tuples: the number of the document, its first token in the row, which token of the document that is, and how
          many of its tokens are there.

        Raises:
          ValueError: if the table has no such row.
        """
        form, placement = self._placed
        mine = placement.of_rows(row.number, row.number + 1)
        if not mine.rows.size:
            raise ValueError(f"{self.name}: row {row.number} holds no document of the table of its shard")
        is_left = form.pads_left and formats.keeps_padding(self.name)
        starts = mine.starts + (len(row.ids) - row.n_tokens if is_left else 0)
        columns = (mine.documents, starts, mine.firsts, mine.sizes)
        return list(zip(*(each.tolist() for each in columns), strict=True))

    def described(self, row: inspect.Row) -> inspect.Row:
        """Returns a row with the ids of its documents, and where each begins, as far as the table knows them."""
        table = self.documents if row.segments or not row.doc_id else None
        if table is None or self.manifest is None:
            return row
        held = self.pieces(row)
        names = [table.column("doc_id")[number].as_py() for number, *_ in held]
        starts = [start for _, start, *_ in held] if self.manifest["packing"] is not None else []
        return dataclasses.replace(row, doc_id=", ".join(names), segments=tuple(zip(names, starts, strict=False)))

    @functools.cached_property
    def _placed(self) -> tuple[RowForm, Placement]:
        assert self.manifest is not None
        assert self.documents is not None
        form = RowForm.recorded(self.manifest)
        return form, Placement.listed(self.documents, form)


def find_shards(target: str) -> list[Shard]:
    """Returns a shard, or the shards of an output folder in the first format; of one in parts those of all its folders.

    Raises:
      ValueError: if the folder is no finished output, or its job did not tokenize.
      OSError: if there is no such shard.
    """
    if not target.endswith(formats.ROWS):
        folders = {folder: read_manifest(folder) for folder in parts.folders_of(target)}
        shards = [
            Shard(folder, each["file"], manifest, each)
            for folder, manifest in folders.items()
            for each in manifest["shards"]
        ]
        if not shards:
            raise ValueError(f"{target!r} holds no shards: its job did not tokenize")
        return shards
    if not storage.exists(target):
        raise FileNotFoundError(f"{target}: there is no such shard")
    folder, name = inspect.split_path(target)
    if not storage.exists(storage.join(folder, MANIFEST)):
        return [Shard(folder, name)]
    return [shard_of(folder, name, read_manifest(folder))]


def shard_of(folder: str, name: str, manifest: Mapping[str, Any]) -> Shard:
    """Returns a file with rows of a folder with this manifest; `record` is None if that does not list it."""
    listed = itertools.chain(manifest["shards"], manifest["companions"])
    return Shard(
        folder, name, manifest, next((each for each in listed if each["file"] == name and "rows" in each), None)
    )


def select(
    shards: Sequence[Shard], tokenizers: Mapping[str, Tokenizer], selection: Selection
) -> Iterator[tuple[Shard, inspect.Row]]:
    """Yields the rows of a selection, each with its shard; in their order, or the best first.

    Args:
      shards: of one output, from `find_shards`.
      tokenizers: by the folders of the shards.
      selection: which rows.

    Raises:
      ValueError: if a shard is damaged, or cannot say which documents it holds; says which.
      OSError: if one cannot be read.
    """
    scored = _scored(shards, tokenizers, selection)
    best = [] if selection.order is None else heapq.nlargest(selection.count, scored, key=operator.itemgetter(0))
    # Of rows with equal scores `nlargest` takes the first.
    for _, shard, row, number in best or itertools.islice(scored, selection.count):
        yield shard, shard.described(inspect.row_of(shard.path, row, 0, number))


def _scored(
    shards: Sequence[Shard], tokenizers: Mapping[str, Tokenizer], selection: Selection
) -> Iterator[tuple[float, Shard, pa.RecordBatch, int]]:
    """Yields the best rows of each batch, with their scores and their numbers in the shard."""
    random = np.random.default_rng(selection.seed)
    for shard, batch, first, rows in _matching(shards, tokenizers, selection):
        if selection.order is None:
            scores = np.zeros(rows.size)
        elif selection.order == "random":
            scores = random.random(rows.size)
        elif selection.order == "longest":
            scores = batch.column("n_tokens").to_numpy()[rows]
        elif "n_oov" in batch.schema.names:
            scores = batch.column("n_oov").to_numpy()[rows]
        else:
            scores = unknown(tokenizers[shard.folder], batch.column("input_ids"))[rows]
        for at in np.argsort(-scores, kind="stable")[: selection.count].tolist():
            # A copy of a row, unlike a slice, does not keep its batch in memory.
            yield float(scores[at]), shard, batch.take(pa.array(rows[at : at + 1])), int(first + rows[at])


def _matching(
    shards: Sequence[Shard], tokenizers: Mapping[str, Tokenizer], selection: Selection
) -> Iterator[tuple[Shard, pa.RecordBatch, int, np.ndarray]]:
    """Yields the batches with rows that match: the shard, the batch, the number of its first row, which rows."""
    n_left = selection.start
    for shard in shards:
        n_rows = None if shard.record is None else shard.record.get("rows")
        if n_rows is not None and n_left >= n_rows:
            n_left -= n_rows
            continue
        first, n_left = n_left, 0
        wanted = None if selection.doc_id is None else shard.rows_of(selection.doc_id)
        if wanted is not None and not wanted.size:
            continue
        try:
            for batch in inspect.batches(shard.path, first):
                found = np.arange(batch.num_rows)
                if wanted is not None:
                    found = found[np.isin(first + found, wanted)]
                if selection.pattern is not None and found.size:
                    ids = batch.column("input_ids").take(pa.array(found))
                    texts = tokenizers[shard.folder].decode_arrow(ids, False)
                    found = found[pc.match_substring_regex(texts, selection.pattern).to_numpy(zero_copy_only=False)]
                if found.size:
                    yield shard, batch, first, found
                first += batch.num_rows
            if n_rows is not None and first != n_rows:
                raise ValueError(f"{first} rows, but the manifest says {n_rows}")
        except ValueError as error:
            raise ValueError(str(error) if shard.name in str(error) else f"{shard.path}: {error}") from error
