# SPDX-License-Identifier: Apache-2.0
"""`Part`: the documents and rejects of one stretch of a file. `ReadBatch`: several parts, gathered to an even size."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.counts import PieceCounts, count_part, filtered, rejects_filtered
from tokenmill.pipeline.input.rejects import Positions, Rejects

NO_FIELDS = pa.schema([])


@dataclass(frozen=True, slots=True)
class Source:
    """The file that documents come from."""

    piece: int
    """Index of the file in its split."""
    name: str
    """`name:offset` is the id of a document without an id field."""
    path: str
    """The path as planned, which rejects name."""

    joined: tuple[pa.StringArray, Positions, Positions] | None = None
    """Where small files are read as one, without rejects: the name of each, and where it starts and stops in what is
    read, int64[n_files]. `piece` is the first of them."""


@dataclass(frozen=True)
class ReadBatch:
    """Documents and rejects of a split, in the order of its pieces and of the records in each."""

    documents: pa.RecordBatch
    """`schemas.DOCUMENTS`; may be empty."""
    rejects: pa.RecordBatch | None
    """`schemas.REJECTS`; None when there are none."""
    n_bytes: int
    """Bytes of the decompressed stream consumed; for Parquet, bytes of the text."""
    n_records: int
    """Documents, rejects and filtered documents."""
    n_skipped_bytes: int
    """Bytes that belong to no record: blank lines, byte order marks."""
    pieces: tuple[tuple[int, PieceCounts], ...] = ()
    """Pairs of the index of a piece and counts. A piece may have several: what the batch holds of it, and corrections
    for documents that were filtered or rejected later; only their sum is meaningful. The last one has the checksum."""

    @property
    def counts(self) -> PieceCounts:
        """The counts of all pieces together."""
        return sum((counts for _, counts in self.pieces), PieceCounts())

    @property
    def n_filtered(self) -> int:
        """Documents that rules left out."""
        return sum(sum(counts.filtered.values()) for _, counts in self.pieces if counts.filtered)

    def leave_out(self, gone: Mapping[str, np.ndarray]) -> "ReadBatch":
        """Returns the batch without the documents that rules leave out; they count as filtered.

        Args:
          gone: for each rule, by its name, bool[n]: the documents it leaves out; no two rules leave out the same one.
        """
        is_gone = np.logical_or.reduce([*gone.values()])
        if not is_gone.any():
            return self
        places = self.documents.select(["piece", "n_bytes"])  # without the texts, which would be copied
        moves = (move for rule, mask in gone.items() for move in filtered(places.filter(pa.array(mask)), rule))
        return dataclasses.replace(
            self, documents=self.documents.filter(pa.array(~is_gone)), pieces=(*self.pieces, *moves)
        )

    def leave_out_rejects(self, rule: str) -> "ReadBatch":
        """Returns the batch without its rejects; they count as filtered by `rule`."""
        if self.rejects is None:
            return self
        moves = ((piece, rejects_filtered(counts, rule)) for piece, counts in self.pieces if counts.rejected)
        return dataclasses.replace(self, rejects=None, pieces=(*self.pieces, *moves))


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of a file: its documents, its rejects, and how many bytes it covers."""

    documents: pa.RecordBatch | None
    rejects: pa.RecordBatch | None
    n_bytes: int
    n_skipped_bytes: int
    piece: int = 0
    """Index of the file in its split."""
    sha256: str = ""
    """Checksum of all bytes read of the piece; only in the last part of a piece, which has nothing else."""


def skipped(n_bytes: int) -> Iterator[Part]:
    """Yields bytes that belong to no record, if there are any."""
    if n_bytes:
        yield Part(None, None, n_bytes, n_bytes)


def rejected(source: Source, offset: int, n_bytes: int, reason: str, detail: str, sample: bytes) -> Part:
    """Returns a part of a file that is one reject."""
    rejects = Rejects(source.path)
    rejects.add(offset, n_bytes, reason, detail, sample)
    return Part(None, rejects.to_batch(), n_bytes, 0)


def make_documents(
    source: Source,
    texts: pa.Array,
    ids: pa.Array | None,
    offsets: Positions,
    n_bytes: Positions,
    fields: pa.StructArray | None = None,
) -> pa.RecordBatch:
    """Returns documents of one file.

    Args:
      source: the file.
      texts: string[n], valid, no nulls.
      ids: string[n], valid, null where a document has no id; None when none has.
      offsets: int64[n] as in `schemas.DOCUMENTS`.
      n_bytes: int64[n] as in `schemas.DOCUMENTS`.
      fields: the kept fields; None for none.
    """
    names, pieces = source.name, np.full(len(texts), source.piece)
    if source.joined is not None:
        all_names, starts, stops = source.joined
        files = np.searchsorted(starts, offsets, "right") - 1
        names, pieces = all_names.take(pa.array(files)), source.piece + files
        n_bytes = np.minimum(offsets + n_bytes, stops[files]) - offsets  # without what was put between files
        offsets = offsets - starts[files]
    positions = pa.array(offsets, pa.int64())
    if ids is None or ids.null_count:
        own = _placed(names, positions)
        ids = own if ids is None else pc.coalesce(ids, own)
    columns = [ids, texts, pa.array(pieces.astype(np.int32)), positions, pa.array(n_bytes, pa.int64())]
    if fields is None:
        return pa.RecordBatch.from_arrays(columns, schema=schemas.DOCUMENTS)
    return pa.RecordBatch.from_arrays([*columns, fields], schema=schemas.with_fields(schemas.DOCUMENTS, fields.type))


def n_named(documents: pa.RecordBatch, names: Sequence[str]) -> int:
    """Returns how many documents have an id from a field, not from the name of their piece and their place in it."""
    own = _placed(pa.array(names).take(documents.column("piece")), documents.column("offset"))
    return int(pc.sum(pc.not_equal(documents.column("doc_id"), own)).as_py() or 0)


def _placed(names: pa.StringArray, offsets: pa.Array) -> pa.StringArray:
    return pc.binary_join_element_wise(names, pc.cast(offsets, pa.string()), ":")


def join_texts(columns: Sequence[pa.Array], join: str) -> pa.Array:
    """Returns the joined texts of each row, leaving out nulls; null where all are null.

    Args:
      columns: the texts, all of one Arrow type.
      join: the separator.
    """
    is_there = columns[0].is_valid()
    for column in columns[1:]:
        is_there = pc.or_(is_there, column.is_valid())
    kind = columns[0].type
    # Arrow drops a row whose values are all skipped, so every row needs a text.
    first = pc.if_else(is_there, columns[0], pa.scalar("", kind))
    joined = pc.binary_join_element_wise(first, *columns[1:], pa.scalar(join, kind), null_handling="skip")
    return pc.if_else(is_there, joined, pa.scalar(None, kind))


class Batcher:
    """Gathers parts until a batch is full.

    `batch_bytes` decides where batches end; their concatenation does not depend on it.
    """

    def __init__(self, batch_bytes: int, schema: pa.Schema = schemas.DOCUMENTS) -> None:
        """Makes batches of at most `batch_bytes`, all columns counted; a part that is larger becomes one alone.

        Args:
          batch_bytes: the size of a batch.
          schema: the schema of its documents.
        """
        self._schema = schema
        self._batch_bytes = batch_bytes
        self._parts: list[Part] = []
        self._size = 0
        self._counts: dict[int, PieceCounts] = {}

    def add(self, part: Part, counts: Mapping[int, PieceCounts]) -> Iterator[ReadBatch]:
        """Takes the next part and its counts by piece; yields the batch before it if both together are too large."""
        # All columns count, so that a file of empty documents or of nothing but rejects fills batches, too.
        size = sum(batch.nbytes for batch in (part.documents, part.rejects) if batch is not None)
        if self._parts and size and self._size + size > self._batch_bytes:
            yield from self.flush()
        self._parts.append(part)
        self._size += size
        for piece, each in counts.items():
            before = self._counts.get(piece)
            self._counts[piece] = each if before is None else before + each

    def flush(self) -> Iterator[ReadBatch]:
        """Yields the last batch, if there is one."""
        if not self._parts:
            return
        documents = concatenate([part.documents for part in self._parts])
        rejects = concatenate([part.rejects for part in self._parts])
        if documents is None:
            documents = pa.RecordBatch.from_pylist([], schema=self._schema)
        yield ReadBatch(
            documents=documents,
            rejects=rejects,
            n_bytes=sum(part.n_bytes for part in self._parts),
            n_records=sum(counts.n_records for counts in self._counts.values()),
            n_skipped_bytes=sum(part.n_skipped_bytes for part in self._parts),
            pieces=tuple(self._counts.items()),
        )
        self._parts, self._size, self._counts = [], 0, {}


def concatenate(batches: list[pa.RecordBatch | None]) -> pa.RecordBatch | None:
    """Returns the rows of all batches; None if there are none."""
    present = [batch for batch in batches if batch is not None and batch.num_rows]
    if not present:
        return None
    return present[0] if len(present) == 1 else pa.concat_batches(present)


def count_records(part: Part) -> PieceCounts:
    """Returns the counts of a part.

    Raises:
      RuntimeError: when documents, rejects and skipped bytes do not add up to the bytes of the part.
    """
    counts = count_part(part.documents, part.rejects, part.n_bytes, part.n_skipped_bytes, part.sha256)
    if wrong := counts.imbalances():
        raise RuntimeError(f"{'; '.join(wrong)}; this is a bug in a reader")
    return counts
