# SPDX-License-Identifier: Apache-2.0
"""Chooses what a plan tries: finer splits of the corpus, those at evenly spaced places of its planned bytes.

The planned bytes of all splits, one behind the other, form a line with `N_PLACES` places on it. The split at each place
is cut again, into finer splits, and the one at the place is taken. So a file is read in proportion to its size, the
choice depends on nothing but the plan, and only splits that are hit are looked at, however many there are. Places are
evenly spaced, not drawn by a hash, since a corpus is often sorted: neighbours are alike, which makes bounds narrower.

A file that can only be read from its beginning, such as a compressed one, and a run of row groups may be larger than a
finer split. Then the beginning is read, as many bytes as the places that hit it would read together.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import archives
from tokenmill.pipeline.input.readers import ROW_READERS, is_cut_by_bytes
from tokenmill.pipeline.input.splitting import MAX_PIECES
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.splits import Piece, Split, Splits

N_PLACES = 64
_FEW_BYTES = 16 << 20
"""Half of the places are enough if beginnings of files were more than this, and twice what was asked for: then a place
is less than the block that a reader takes."""
_BLOCK_BYTES = 1 << 20
"""Readers of streams give so much text at once; a limit is noticed only after it."""
_HEAD_BYTES, _MOST_EXPANDED = 1 << 20, 32 << 20
"""Compressed bytes from which it is learned how much a file expands, and text that they may give. Positions are known
to 32 KiB, which are 3 % of that: compressed files are read in blocks of 64 KiB."""
_AHEAD_BYTES = 1 << 15
"""Compressed bytes that were read and not decompressed yet, on average."""


@dataclass(frozen=True)
class Excerpt:
    """A finer split."""

    pieces: tuple[Piece, ...]
    is_cut_by_bytes: bool
    """Whether its pieces are ranges of bytes: as many records reach into each as reach out."""
    n_places: int = 1
    """How many places hit it."""
    stands_for: float = 0.0
    """Planned bytes of the corpus that it stands for."""
    ratio: float = 1.0
    """Planned bytes for each byte read of a piece with a limit, if it has no rows."""

    @property
    def n_bytes(self) -> int:
        """Planned bytes of all of it."""
        return sum(piece.n_planned for piece in self.pieces)

    @property
    def read(self) -> tuple[Piece, ...]:
        """The pieces that are tried: the plan knows which files are unreadable, and the forecast adds all of those."""
        return tuple(piece for piece in self.pieces if not piece.problem)

    @property
    def n_text(self) -> int:
        """About how many bytes of text are read of it."""
        first = self.pieces[0]
        if not first.limit:
            return sum(piece.n_work for piece in self.pieces)
        return first.limit if first.has_rows else max(first.limit, _BLOCK_BYTES)

    def n_planned(self, n_bytes: int, n_records: int) -> float:
        """Returns the planned bytes of which so many bytes and records were read."""
        piece = self.pieces[0]
        if not piece.limit:
            return n_bytes if self.is_cut_by_bytes else self.n_bytes
        if not piece.has_rows:
            return n_bytes * self.ratio
        with contextlib.closing(archives.open_piece(piece)) as handle:
            n_rows = sum(ROW_READERS[piece.format].count_rows(handle)[piece.start : piece.stop])
        return piece.n_planned * n_records / max(1, n_rows)


def choose(splits: Splits, config: InputConfig, n_bytes: int, n_places: int = N_PLACES) -> list[Excerpt]:
    """Returns about `n_bytes` of decompressed text from places all over the corpus, which must have more, in order."""
    ends, unit = np.cumsum(splits.sizes), max(1, n_bytes // n_places)
    chosen: dict[tuple[int, int], Excerpt] = {}
    current, finer, starts = -1, list[Excerpt](), np.zeros(0)
    for place in ((np.arange(n_places) + 0.5) * (ends[-1] / n_places)).tolist():
        index = int(np.searchsorted(ends, place, "right"))
        if index != current:
            current, finer = index, [*_finer(splits[index], config, unit)]
            starts = ends[index] - splits.sizes[index] + np.cumsum([0, *(each.n_bytes for each in finer[:-1])])
        number = int(np.searchsorted(starts, place, "right")) - 1
        before = chosen.get((index, number))
        chosen[index, number] = finer[number] if before is None else replace(before, n_places=before.n_places + 1)
    excerpts = [_limited(excerpt, config, unit) for excerpt in chosen.values()]
    if sum(excerpt.n_text for excerpt in excerpts if excerpt.pieces[0].limit) > max(2 * n_bytes, _FEW_BYTES):
        return choose(splits, config, n_bytes, n_places // 2)
    return _weighed(excerpts, splits.n_bytes)


def _weighed(excerpts: Sequence[Excerpt], n_bytes: int) -> list[Excerpt]:
    """Returns excerpts with what each stands for of the corpus, which has `n_bytes`.

    One that is larger than the distance of two places is always hit, and stands for itself; the others share the rest.
    """
    step = n_bytes / max(1, sum(excerpt.n_places for excerpt in excerpts))
    others = [excerpt for excerpt in excerpts if excerpt.n_bytes < step]
    n_left = n_bytes - sum(excerpt.n_bytes for excerpt in excerpts if excerpt.n_bytes >= step)
    share = n_left / max(1, sum(excerpt.n_places for excerpt in others))
    return [
        replace(each, stands_for=each.n_bytes if each.n_bytes >= step else share * each.n_places) for each in excerpts
    ]


def _finer(split: Split, config: InputConfig, unit: int) -> Iterator[Excerpt]:
    """Yields a split again, in parts with about `unit` bytes of text; what can only be read whole may be larger."""
    document = config.of(split.source).document
    group: list[Piece] = []
    n_work, was_cut = 0, False
    for piece in split.pieces:
        is_cut = is_cut_by_bytes(piece, document)
        for start in range(piece.start, piece.stop, unit) if is_cut else (piece.start,):
            part = replace(piece, start=start, stop=min(start + unit, piece.stop)) if is_cut else piece
            if group and (n_work + part.n_work > unit or is_cut != was_cut):
                yield Excerpt(tuple(group), was_cut)
                group, n_work = [], 0
            group.append(part)
            n_work, was_cut = n_work + part.n_work, is_cut
    yield Excerpt(tuple(group), was_cut)


def _limited(excerpt: Excerpt, config: InputConfig, unit: int) -> Excerpt:
    """Returns the excerpt with a limit if it is a large file, or a large run of row groups."""
    piece, limit = excerpt.pieces[0], excerpt.n_places * unit
    is_one = "document" in FORMATS[piece.format].keys and config.of(piece.source).document == "file"
    if excerpt.is_cut_by_bytes or len(excerpt.pieces) > 1 or piece.n_work <= limit or piece.problem or is_one:
        return excerpt
    ratio = 1.0
    if not piece.has_rows:
        limit = max(1, limit - _BLOCK_BYTES // 2)  # so that as much is read on average
        if piece.compression != "none":
            is_longer, ratio = _expand(piece, limit)
            if not is_longer:
                return excerpt
    return replace(excerpt, pieces=(replace(piece, limit=limit),), ratio=ratio)


def _expand(piece: Piece, limit: int) -> tuple[bool, float]:
    """Returns whether a compressed file gives more than `limit` bytes, and the bytes that it has for each of them."""
    n_read = 0
    with contextlib.closing(archives.open_piece(piece)) as handle:
        for chunk in Stream(handle, piece).chunks():
            n_read += len(chunk)
            if n_read >= limit and (handle.tell() >= _HEAD_BYTES or n_read >= _MOST_EXPANDED):
                return True, max(1, handle.tell() - _AHEAD_BYTES) / n_read
    # All of it was decompressed, or what there is before damage; what follows damage is lost to the job, too.
    return n_read > limit, piece.n_bytes / max(1, n_read)


def together(excerpts: Sequence[Excerpt], n_bytes: int, fields: str) -> Splits:
    """Returns splits of excerpts, with about `n_bytes` of text in each as a shard of the job has; 0: each alone.

    Args:
      fields: `Split.fields`.
    """
    groups: list[list[Piece]] = []
    n_text = 0
    for excerpt in excerpts:
        if not (pieces := excerpt.read):
            continue
        n_text += excerpt.n_text
        is_other = not groups or groups[-1][0].source != pieces[0].source
        if is_other or n_text > n_bytes or len(groups[-1]) + len(pieces) > MAX_PIECES:
            groups.append([])
            n_text = excerpt.n_text
        groups[-1] += pieces
    return Splits(groups, "", fields)
