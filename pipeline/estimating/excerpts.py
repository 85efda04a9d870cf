# SPDX-License-Identifier: Apache-2.0
"""Copies records from all over a compressed file, which can only be read from its beginning.

Decompressing costs far less than the work of a job, so a file is decompressed to its end, or as far as `REACH` allows,
and evenly spaced blocks of it are kept.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.estimating.places import Portion, Sample
from tokenmill.pipeline.input import archives
from tokenmill.pipeline.input.streams import Stream

REACH = 8
"""At most this many bytes are decompressed for each byte that is kept."""

MOST_KEPT = 32
"""Decompressing stops when this many bytes are kept per compressed byte of the quota: text expands to 2 to 10."""

_BLOCK_BYTES = 1 << 16


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
