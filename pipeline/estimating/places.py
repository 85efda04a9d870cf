# SPDX-License-Identifier: Apache-2.0
"""Chooses which bytes of a corpus to read: as many from each of evenly spaced places, in the order of the plan.

The planned bytes of all pieces, one behind the other, form a line. It is cut into `N_RANGES` equal steps, and the
middle of each is read. So a file is read in proportion to its size, and the choice depends on nothing but the plan.

- A file of lines that is not compressed: the records that begin in the range.
- A file that can only be read whole and is smaller than a range: all of it, if it begins in the range.
- A larger compressed file: as many bytes as fall into ranges, taken from all of it (`take`). Decompressing costs far
  less than the work of a job, so a file is decompressed to its end, or as far as `REACH` allows, and evenly spaced
  blocks of it are kept.
- A larger run of row groups, and a file of records that are only found from its beginning on: its beginning, as many
  bytes as fall into ranges.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import archives
from tokenmill.pipeline.input.readers import is_cut_by_bytes, row_reader
from tokenmill.pipeline.input.splitting import MAX_PIECES
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.splits import EXPANSION, Piece, Split, Splits

N_RANGES = 256

REACH = 8
"""At most this many bytes are decompressed for each byte that is kept."""

MOST_KEPT = 32
"""Decompressing stops when this many bytes are kept per compressed byte of the quota: text expands to 2 to 10."""

_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class Portion:
    """A piece to read, and how much of it."""

    piece: Piece
    n_meant: float
    """Planned bytes that are to be read for it."""
    quota: int | None = None
    """Planned bytes of a run of row groups, or of a compressed file, after which to stop; None: read everything."""
    ratio: float | None = None
    """Planned bytes for each byte read; None: everything planned for the piece is read, or its quota."""
    source: Piece | None = None
    """The compressed file of which the piece is an excerpt; None if it is not one."""
    n_decompressed: int = 0
    """Bytes of `source` that were decompressed."""
    seconds: float = 0.0
    """How long decompressing took."""

    @property
    def is_range(self) -> bool:
        """Whether it is a stretch of a file: as many records reach into it as reach out."""
        return self.quota is None and self.source is None

    def planned(self, n_bytes: int, n_records: int) -> float:
        """Returns the planned bytes that correspond to this many bytes and records read."""
        if self.ratio is not None:
            return n_bytes * self.ratio
        if self.quota is None:
            return self.piece.n_planned
        with contextlib.closing(archives.open_piece(self.piece)) as handle:
            n_rows = sum(row_reader(self.piece.format).count_rows(handle)[self.piece.start : self.piece.stop])
        return self.piece.n_planned * n_records / max(1, n_rows)


@dataclass(frozen=True)
class Sample:
    """What to read as if it were a split."""

    split: Split
    portions: tuple[Portion, ...]
    """One for each piece of the split."""


def whole(splits: Sequence[Split]) -> list[Sample]:
    """Returns everything as it is planned."""
    return [Sample(split, tuple(Portion(piece, piece.n_planned) for piece in split.pieces)) for split in splits]


def choose(
    splits: Splits, config: InputConfig, n_bytes: int, shard_bytes: int, n_ranges: int = N_RANGES
) -> list[Sample]:
    """Returns about `n_bytes` of text, in samples of about `shard_bytes`.

    Args:
      splits: the splits of the plan; they must hold more text than `n_bytes`.
      shard_bytes: the size of the job's shards; the sample is written in shards of the same size.
      n_ranges: from how many places.
    """
    groups: list[list[Portion]] = []
    size = shard_bytes
    for portion in _portions(splits, config, n_bytes / splits.n_work, n_ranges):
        source = portion.piece.source
        if size >= shard_bytes or len(groups[-1]) == MAX_PIECES or groups[-1][0].piece.source != source:
            groups.append([])
            size = 0
        groups[-1].append(portion)
        size += _expanded(portion.piece, int(portion.n_meant))
    fields = splits[0].fields
    return [
        Sample(Split(index, f"{index:016x}", tuple(portion.piece for portion in group), fields), tuple(group))
        for index, group in enumerate(groups)
    ]


def _portions(splits: Sequence[Split], config: InputConfig, share: float, n_ranges: int) -> Iterator[Portion]:
    """Yields the pieces, and parts of pieces, that are in the ranges, each once."""
    pieces = [piece for split in splits for piece in split.pieces if piece.n_planned]
    starts = np.concatenate([[0], np.cumsum([piece.n_planned for piece in pieces])])
    step = starts[-1] / n_ranges
    length = max(1.0, step * share)
    quotas: dict[int, int] = {}
    found: list[tuple[int, Portion | None]] = []
    for low in (np.arange(n_ranges) * step + (step - length) / 2).tolist():
        number = int(np.searchsorted(starts, low, side="right")) - 1
        while number < len(pieces) and starts[number] < low + length:
            piece, start = pieces[number], int(starts[number])
            first, last = max(0, int(low) - start), min(piece.n_planned, int(low + length) - start)
            if is_cut_by_bytes(piece, config.of(piece.source).document):
                if last > first:
                    cut = replace(piece, start=piece.start + first, stop=piece.start + last)
                    found.append((number, Portion(cut, last - first, ratio=1.0)))
            elif piece.n_planned <= length or not _has_parts(piece, config.of(piece.source)):
                if low <= start < low + length:
                    found.append((number, Portion(piece, piece.n_planned)))
            else:
                if number not in quotas:
                    found.append((number, None))
                quotas[number] = quotas.get(number, 0) + last - first
            number += 1
    for number, portion in found:
        if portion is not None:
            yield portion
        elif quotas[number]:
            quota = min(quotas[number], pieces[number].n_planned)
            yield Portion(pieces[number], quota, quota)


def _has_parts(piece: Piece, config: InputConfig) -> bool:
    """Returns whether a piece holds records that can be read without the rest."""
    if piece.problem:
        return False
    return "document" not in FORMATS[piece.format].keys or FORMATS[piece.format].separator(config.document) is not None


def _expanded(piece: Piece, n_planned: int) -> int:
    return n_planned * (1 if piece.compression in ("none", "archive") else EXPANSION)


def take(samples: Sequence[Sample], config: InputConfig, folder: str) -> list[Sample]:
    """Returns the samples with a file of records in `folder` in place of each compressed file that has a quota."""
    taken = []
    for sample in samples:
        portions = [
            _take(portion, config, storage.join(folder, f"{sample.split.index}-{i}"))
            if portion.quota is not None and not FORMATS[portion.piece.format].has_rows
            else portion
            for i, portion in enumerate(sample.portions)
        ]
        pieces = tuple(portion.piece for portion in portions)
        taken.append(Sample(replace(sample.split, pieces=pieces), tuple(portions)))
    return taken


def _take(portion: Portion, config: InputConfig, path: str) -> Portion:
    piece = portion.piece
    assert portion.quota is not None
    reach = min(piece.n_bytes, portion.quota * REACH)
    separator = FORMATS[piece.format].separator(config.of(piece.source).document)
    if separator is None:
        return _beginning(portion)
    n_read, n_kept, n_consumed = 0, 0, piece.n_bytes
    started = time.perf_counter()
    with contextlib.closing(archives.open_piece(piece)) as handle, contextlib.closing(storage.create(path)) as copy:
        blocks = _Blocks(portion.quota / reach, separator)
        for chunk in Stream(handle, piece).chunks():  # what follows damage is lost to the job, too
            n_read += len(chunk)
            for kept in blocks.keep(chunk):
                copy.write(kept)
                n_kept += len(kept)
            if (reach < piece.n_bytes and handle.tell() >= reach) or n_kept > MOST_KEPT * portion.quota:
                n_consumed = handle.tell()
                break
    seconds = time.perf_counter() - started
    copied = replace(
        piece, path=path, n_bytes=n_kept, version="", compression="none", start=0, stop=n_kept, encoding="utf-8"
    )
    ratio = n_consumed / n_read if n_read else 0.0
    return Portion(copied, portion.n_meant, None, ratio, piece, n_consumed, seconds)


def _beginning(portion: Portion) -> Portion:
    """Returns a portion of a file that is read from its beginning, with the quota in decompressed bytes."""
    assert portion.quota is not None
    n_read = n_consumed = 0
    with contextlib.closing(archives.open_piece(portion.piece)) as handle:
        for chunk in Stream(handle, portion.piece).chunks():
            n_read, n_consumed = n_read + len(chunk), handle.tell()
            if n_consumed >= portion.quota:
                break
    quota = min(n_read, portion.quota * n_read // max(1, n_consumed))
    return replace(portion, quota=quota, ratio=n_consumed / max(1, n_read))


class _Blocks:
    """Keeps the records that begin in evenly spaced blocks of a stream."""

    def __init__(self, share: float, separator: bytes) -> None:
        """Keeps about `share` of a stream of records that end with `separator`."""
        self._share, self._separator = share, separator
        self._position = 0
        self._is_keeping = self._is_wanted(0)

    def _is_wanted(self, position: int) -> bool:
        block = position // _BLOCK_BYTES + 0.5
        return int((block + 1) * self._share) > int(block * self._share)

    def keep(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the parts of the next chunk that are kept."""
        start, end = 0, len(chunk)
        while start < end:
            position = self._position + start
            stop = min(end, start + _BLOCK_BYTES - position % _BLOCK_BYTES)
            is_wanted = self._is_wanted(position)
            if is_wanted != self._is_keeping:  # from the next record on
                found = chunk.find(self._separator, start)
                stop = end if found < 0 else found + len(self._separator)
            if self._is_keeping:
                yield chunk[start:stop]
            if is_wanted != self._is_keeping and found >= 0:
                self._is_keeping = is_wanted
            start = stop
        self._position += end
