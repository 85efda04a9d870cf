# SPDX-License-Identifier: Apache-2.0
"""Where documents stand in rows, in plain Python: what `tokenmill.pipeline.output.placement` does."""

from collections.abc import Sequence

Piece = tuple[int, int, int]
"""A stretch of a document: its number, the first token, how many tokens."""


def plan_in_order(lengths: Sequence[int], size: int, splits: bool) -> list[list[Piece]]:
    """Returns the pieces of every sequence, documents in their order; see the kernel."""
    rows: list[list[Piece]] = []
    room = 0
    for doc, length in enumerate(lengths):
        start = 0
        while start < length:
            must_begin = room == 0 or (not splits and start == 0 and length > room)
            if must_begin and room < size:
                rows.append([])
                room = size
            taken = min(length - start, room)
            rows[-1].append((doc, start, taken))
            start += taken
            room -= taken
    return rows


def fit_best(sizes: Sequence[int], size: int) -> list[int]:
    """Returns the sequence of each piece; see the kernel."""
    rooms: list[int] = []
    ages: list[int] = []
    bins = []
    for age, need in enumerate(sizes):
        fitting = [i for i, room in enumerate(rooms) if room >= need]
        if fitting:
            chosen = min(fitting, key=lambda i: (rooms[i], -ages[i]))
        else:
            chosen = len(rooms)
            rooms.append(size)
            ages.append(age)
        rooms[chosen] -= need
        ages[chosen] = age
        bins.append(chosen)
    return bins


def pack_best(lengths: Sequence[int], size: int) -> list[list[Piece]]:
    """Returns the pieces of every sequence of `best_fit`: full sequences of long documents come first."""
    full = [[(doc, size * i, size)] for doc, length in enumerate(lengths) for i in range(length // size)]
    rests = [(doc, length % size) for doc, length in enumerate(lengths) if length % size]
    rests.sort(key=lambda pair: (-pair[1], pair[0]))
    packed: dict[int, list[Piece]] = {}
    for (doc, rest), row in zip(rests, fit_best([rest for _, rest in rests], size), strict=True):
        packed.setdefault(row, []).append((doc, lengths[doc] - rest, rest))
    return full + sorted(map(sorted, packed.values()))


def windows(lengths: Sequence[int], size: int, stride: int) -> list[list[Piece]]:
    """Returns the piece of every window."""
    rows: list[list[Piece]] = []
    for doc, length in enumerate(lengths):
        start = 0
        rows.append([(doc, 0, min(size, length))])
        while start + size < length:
            start += size - stride
            rows.append([(doc, start, min(size, length - start))])
    return rows


def fill(
    documents: Sequence[Sequence[int]],
    rows: Sequence[Sequence[Piece]],
    around: tuple[Sequence[int], Sequence[int]] = ((), ()),
    padded: int = 0,
    pad: int = 0,
    is_left: bool = False,
) -> list[list[int]]:
    """Returns the ids of rows, from the tokens of documents, which end with their separators."""
    filled = []
    for row in rows:
        tokens = [token for doc, first, n in row for token in documents[doc][first : first + n]]
        tokens = [*around[0], *tokens, *around[1]]
        padding = [pad] * max(0, padded - len(tokens))
        filled.append([*padding, *tokens] if is_left else [*tokens, *padding])
    return filled
