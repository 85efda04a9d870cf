# SPDX-License-Identifier: Apache-2.0
"""The reference implementations of `tokenmill.pipeline.output.packing.kernels`, in plain Python."""

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


def fill_sequences(ids: Sequence[int], starts: Sequence[int], rows: Sequence[Sequence[Piece]]) -> list[list[int]]:
    """Returns the tokens of every sequence.

    Args:
      ids: the ids of all documents.
      starts: where in `ids` each document begins.
      rows: the pieces of every sequence.
    """
    return [
        [token for doc, start, n in row for token in ids[starts[doc] + start : starts[doc] + start + n]] for row in rows
    ]
