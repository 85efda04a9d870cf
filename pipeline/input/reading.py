# SPDX-License-Identifier: Apache-2.0
"""Readers: the bytes of a split become batches of documents, and rejects with a reason. No Beam here."""

import contextlib
import dataclasses
import hashlib
import io
import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.counts import PieceCounts, count_part
from tokenmill.pipeline.books.quantities import SAMPLE
from tokenmill.pipeline.config.formats import FORMATS, check_pointer
from tokenmill.pipeline.config.input import SOURCE, InputConfig
from tokenmill.pipeline.config.kept_fields import decode_fields, folder_values, without_marks
from tokenmill.pipeline.hashing import SAMPLING, document_keys
from tokenmill.pipeline.input import archives
from tokenmill.pipeline.input.batches import Batcher, Part, ReadBatch, Source, concatenate, count_records, rejected
from tokenmill.pipeline.input.cutting import Records
from tokenmill.pipeline.input.decompressing import SAMPLE_BYTES, detect_compression, read_exactly
from tokenmill.pipeline.input.readers import ROW_READERS, STREAM_READERS
from tokenmill.pipeline.input.streams import BYTE_ORDER_MARK, Stream
from tokenmill.pipeline.input.transcoding import InvalidText, settle_encoding
from tokenmill.pipeline.splits import Piece, Split

BATCH_BYTES = 4 << 20
_JOINED_BYTES = 1 << 18
"""Small files are read together up to this size: what is done for each takes longer than reading its documents."""


@dataclass(frozen=True)
class Wanted:
    """The wanted records of a split, for a replay of rejects, from files that can only be read as a whole."""

    rule: str
    """The rule that filters the others."""
    offsets: Mapping[int, np.ndarray]
    """int64[n] by the index of a piece: offsets of the wanted records; of other pieces every record is wanted."""

    def choose(self, part: Part, counts: PieceCounts) -> tuple[Part, PieceCounts]:
        """Returns a part with only the wanted records, and its counts; the others count as filtered.

        A record that is not wanted may be a document or, under a changed config, a reject.
        """
        at = self.offsets.get(part.piece)
        if at is None:
            return part, counts
        documents, rejects = (
            batch if batch is None else batch.filter(pa.array(np.isin(batch.column("offset").to_numpy(), at)))
            for batch in (part.documents, part.rejects)
        )
        left = count_part(documents, rejects, part.n_bytes, part.n_skipped_bytes, part.sha256)
        counts = dataclasses.replace(
            left,
            n_records=counts.n_records,
            filtered={self.rule: counts.n_records - left.n_records} if counts.n_records > left.n_records else None,
            n_filtered_bytes=part.n_bytes - part.n_skipped_bytes - left.n_document_bytes - left.n_rejected_bytes,
        )
        return dataclasses.replace(part, documents=documents, rejects=rejects), counts


def read_split(
    split: Split,
    input: InputConfig,
    batch_bytes: int = BATCH_BYTES,
    wanted: Wanted | None = None,
) -> Iterator[ReadBatch]:
    """Yields the documents and rejects of a split, in the order of its pieces and of the records in each.

    Small files share batches. The same split gives the same rows whatever `batch_bytes` is; only the ends of batches
    differ. The `n_bytes` of a batch is the sum of the bytes of its documents, its rejects, its filtered documents and
    its skipped bytes.

    Args:
      split: what to read, as planned, and which fields to keep.
      input: how to find documents in it; of several sources, as that of the split says.
      batch_bytes: size of a batch, all columns counted; a larger document comes alone.
      wanted: the records to yield, before a sample is taken of them; None: all.

    Raises:
      OSError: when a file cannot be read or is shorter than it was when the split was planned.

    Memory: some blocks of `batch_bytes`, and a record of `input.max_document_bytes` where there is one.
    """
    if batch_bytes < 1:
        raise ValueError(f"batch_bytes must be positive, got {batch_bytes!r}")
    names = [piece.name for piece in split.pieces]
    input = input.of(split.source)
    for batch in _read_pieces(split, input, batch_bytes, wanted):
        yield batch if input.sample is None else _sample_batch(batch, input.sample, input.sample_seed, names)


def _read_pieces(split: Split, config: InputConfig, batch_bytes: int, wanted: Wanted | None) -> Iterator[ReadBatch]:
    fields = decode_fields(split.fields)
    batcher = Batcher(batch_bytes, schemas.with_fields(schemas.DOCUMENTS, fields))
    most_bytes = min(_JOINED_BYTES, batch_bytes) if wanted is None else -1
    left, kept = [*_runs(split.pieces, most_bytes, by_folder=bool(split.fields))][::-1], dict[int, bytes]()
    while left:
        run = left.pop()
        if len(run) > 1:
            read = _read_joined(run, split.pieces, config, fields, kept)
            if isinstance(read, tuple):
                yield from batcher.add(*read)
                kept.clear()
            else:
                ends = sorted({run.start, run.stop, *read, *(index + 1 for index in read)})
                left += [range(*each) for each in itertools.pairwise(ends)][::-1]
            continue
        index = run.start
        kept.pop(index, None)
        piece, n_read = split.pieces[index], 0
        with contextlib.closing(_read_piece(index, piece, config, batch_bytes, fields)) as parts:
            for part in parts:
                part = dataclasses.replace(part, piece=index)
                counts = count_records(part)
                if wanted is not None:
                    part, counts = wanted.choose(part, counts)
                yield from batcher.add(part, {index: counts})
                n_read += part.n_bytes
                if 0 < piece.limit <= n_read:
                    break
    yield from batcher.flush()


def _runs(pieces: Sequence[Piece], most_bytes: int, *, by_folder: bool) -> Iterator[range]:
    """Yields the indices of pieces, in order: of neighbouring small files of lines together, or of one.

    by_folder: whether files in different folders are read one by one, whose names may give them different fields.
    """
    start = n_bytes = 0
    for index, piece in enumerate(pieces):
        size, first = piece.n_bytes, pieces[start]
        is_small = size <= most_bytes and piece.is_read_as_stored and piece.stop - piece.start == size
        is_small &= not by_folder or folder_values(piece.path) == folder_values(first.path)
        if index > start and not (is_small and n_bytes + size <= most_bytes and piece.format == first.format):
            yield range(start, index)
            start, n_bytes = index, 0
        n_bytes += size if is_small and FORMATS[piece.format].separator("line") else most_bytes + 1
    if pieces:
        yield range(start, len(pieces))


def _read_joined(
    run: range, pieces: Sequence[Piece], config: InputConfig, fields: pa.Schema, kept: dict[int, bytes]
) -> tuple[Part, dict[int, PieceCounts]] | set[int]:
    """Returns documents and counts of small files, read as if they were one.

    Or the indices of files that `_read_piece` must read: with a reject or a byte order mark, or not as planned. The
    bytes of the others are in `kept`, for the next call: a store is not asked again.
    """
    first = pieces[run.start]
    separator = FORMATS[first.format].separator(config.document)
    files, joined, alone = [], [], set[int]()
    for index in run:
        if index not in kept:
            with contextlib.closing(archives.open_piece(pieces[index])) as handle:
                kept[index] = read_exactly(handle, pieces[index].n_bytes)
        files.append(data := kept[index])
        is_planned = len(data) == pieces[index].n_bytes and not _other_kind(io.BytesIO(data), pieces[index], config)
        is_empty = separator is None and not data  # two documents in one place could not be told apart
        if not is_planned or is_empty or data.startswith(BYTE_ORDER_MARK) or data.endswith(b"\r"):
            alone.add(index)
        if separator is not None:  # a file ends a line, and a blank one between them a paragraph
            data += (b"" if not data or data.endswith(b"\n") else b"\n") + separator[1:]
        joined.append(data)
    if alone:
        return alone
    sizes, whole = np.array([*map(len, files)]), b"".join(joined)
    starts = np.cumsum([0, *map(len, joined[:-1])])
    stops = starts + sizes
    source = Source(run.start, "", "", (pa.array([pieces[index].name for index in run]), starts, stops))
    if separator is None:  # each file is a document
        reader = STREAM_READERS[first.format](config, fields, source, InvalidText("utf-8", lambda: whole))
        parts = [reader.parse(Records(0, whole, starts, stops, stops, np.zeros_like(starts)))]
    else:
        as_one = dataclasses.replace(first, n_bytes=len(whole), stop=len(whole))
        parts = [*_read_open(io.BytesIO(whole), source, as_one, config, len(whole), fields, None)]
    for batch in (part.rejects for part in parts if part.rejects is not None):
        alone |= {*(run.start + np.searchsorted(starts, batch.column("offset").to_numpy(), "right") - 1).tolist()}
    if alone:
        return alone
    documents = concatenate([part.documents for part in parts]) or pa.RecordBatch.from_pylist([], schemas.DOCUMENTS)
    of, each = documents.column("piece").to_numpy() - run.start, documents.column("n_bytes").to_numpy()
    n_documents, n_used = np.bincount(of, None, len(run)), np.bincount(of, each, len(run)).astype(np.int64)
    n_skipped = sum(part.n_skipped_bytes for part in parts) - len(run) * len((separator or b"")[1:])
    if n_used.sum() + n_skipped != sizes.sum():
        return {*run}
    counts = {}
    for index, data, n, used in zip(run, files, n_documents.tolist(), n_used.tolist(), strict=True):
        checksum = hashlib.sha256(data).hexdigest()
        counts[index] = PieceCounts(n, n, None, None, len(data), used, 0, 0, len(data) - used, sha256=checksum)
    return _complete(Part(documents, None, int(sizes.sum()), n_skipped), fields, first.source, first.path), counts


def _read_piece(
    index: int, piece: Piece, config: InputConfig, batch_bytes: int, fields: pa.Schema
) -> Generator[Part, None, None]:
    source = Source(index, piece.name, piece.path)
    digest = hashlib.sha256()
    if piece.problem:
        archives.check_unchanged(piece)
        yield _unreadable(source, piece, piece.problem)
        return
    with contextlib.closing(archives.open_piece(piece)) as handle:
        if problem := _other_kind(handle, piece, config):
            if config.on_damage == "fail":
                raise ValueError(f"{piece.path!r} {problem}, or set {config.where}.on_damage: warn")
            yield _unreadable(source, piece, problem)
            return
        for part in _read_open(handle, source, piece, config, batch_bytes, fields, digest):
            yield _complete(part, fields, piece.source, piece.path)
    yield Part(None, None, 0, 0, sha256=digest.hexdigest())


def _unreadable(source: Source, piece: Piece, problem: str) -> Part:
    return rejected(source, 0, piece.stop - piece.start, "unreadable_file", problem, b"")


def _complete(part: Part, fields: pa.Schema, source: str, path: str) -> Part:
    """Returns a part with all kept fields: the source, those in the names of its folders, and nulls for others."""
    if part.documents is None or not len(fields):
        return part
    n, columns = part.documents.num_rows, part.documents.columns[: len(schemas.DOCUMENTS)]
    found: dict[str, pa.Array] = {}
    if schemas.FIELDS in part.documents.schema.names:
        kept = part.documents.column(schemas.FIELDS)
        found = {field.name: kept.field(i) for i, field in enumerate(kept.type)}
    in_folders = {name: value for name, value in folder_values(path).items() if value and name in fields.names}
    if len(found) == len(fields) and not in_folders:
        return part
    for name, value in in_folders.items():
        folder = pa.scalar(value, pa.string()).cast(fields.field(name).type)
        found[name] = pc.fill_null(found[name], folder) if name in found else pa.repeat(folder, n)
    if source:
        found.setdefault(SOURCE, pa.repeat(source, n))
    values = [found[field.name] if field.name in found else pa.nulls(n, field.type) for field in fields]
    kept = pa.StructArray.from_arrays(values, fields=without_marks(fields))
    schema = schemas.with_fields(schemas.DOCUMENTS, fields)
    return dataclasses.replace(part, documents=pa.record_batch([*columns, kept], schema=schema))


def _read_open(
    handle: BinaryIO,
    source: Source,
    piece: Piece,
    config: InputConfig,
    batch_bytes: int,
    fields: pa.Schema,
    digest: Any,
) -> Iterator[Part]:
    made = {*schemas.MADE.names, *([SOURCE] if piece.source else [])}
    fields = pa.schema([field for field in fields if field.name not in made])
    if piece.format in ROW_READERS:
        rows = ROW_READERS[piece.format](config, fields, source, batch_bytes, digest)
        return rows.read(handle, range(piece.start, piece.stop))
    by_paragraph = FORMATS[piece.format].separator(config.document) == b"\n\n"
    stream = Stream(handle, piece, by_paragraph, digest)
    return STREAM_READERS[piece.format](config, fields, source, stream.invalid).read(stream, batch_bytes)


def _other_kind(handle: BinaryIO, piece: Piece, config: InputConfig) -> str:
    """Returns how a file is of another kind than its name says, by which it may have been planned; "" if it is not.

    Within a file the bytes can be told from UTF-16 alone, by their NULs; compressed ones are no text, line by line.
    """
    is_stream = not FORMATS[piece.format].has_rows and piece.compression == "none"
    if not is_stream or config.compression != "auto" or (piece.start and piece.encoding != "utf-8"):
        return ""
    handle.seek(piece.start)
    head = read_exactly(handle, SAMPLE_BYTES)
    handle.seek(0)
    if not piece.start and (compression := detect_compression(head)) != "none":
        return (
            f"is compressed with {compression}, which its name does not say; of many files only some are opened when a "
            "job is planned. Rename it, or set input.compression if all are; then go on with --resume"
        )
    try:
        if not piece.start:
            check_pointer(head)
        settle_encoding(head, piece.encoding)
    except ValueError as error:
        return str(error)
    return ""


def _sample_batch(batch: ReadBatch, fraction: float, seed: int, names: Sequence[str]) -> ReadBatch:
    """Returns a batch without the documents that a sample leaves out; these count as filtered by `SAMPLE`.

    A document is kept if its key is below `fraction` of the range of keys. So with one seed a smaller sample is part of
    a larger one. Rejected records are not sampled: all of them are reported.

    Args:
      batch: as read.
      fraction: the share of documents to keep, in (0, 1]; the number kept is binomial, not exact.
      seed: another seed chooses another sample.
      names: the names of the pieces of the split.
    """
    limit = int(Fraction(fraction) * (1 << 64))
    if limit >= 1 << 64 or batch.documents.num_rows == 0:
        return batch
    return batch.leave_out({SAMPLE: document_keys(SAMPLING, seed, names, batch.documents) >= np.uint64(limit)})
