# SPDX-License-Identifier: Apache-2.0
"""The reference implementations of this package, in plain Python."""

from collections.abc import Iterable, Sequence

_MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """Returns a bijection of the integers below 2**64; see the kernel."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def fingerprint(rows: Iterable[tuple[int, Sequence[int]]]) -> int:
    """Returns the sum over rows, each a key and its values; see `kernels.add_values` and `kernels.fingerprint`."""
    total = 0
    for key, values in rows:
        of_values = sum(mix((place << 32) + value) for place, value in enumerate(values)) & _MASK
        total += mix(key ^ mix((of_values + len(values)) & _MASK))
    return total & _MASK


def hash_text(text: str) -> int:
    """Returns the hash of a text; see `books.sums.hash_texts`."""
    data = text.encode()
    return mix((sum(mix((place << 32) + value) for place, value in enumerate(data)) + len(data)) & _MASK)


def arrange(rows: Sequence[object], places: Sequence[int]) -> list[object]:
    """Returns rows, each at its place; see `runs.arrange`."""
    arranged: list[object] = [None] * len(rows)
    for row, place in zip(rows, places, strict=True):
        arranged[place] = row
    return arranged


def merge(runs: Iterable[Sequence[tuple[int, object]]], low: int, high: int) -> list[tuple[int, object]]:
    """Returns the rows, pairs of a key and a value, with keys from `low` to below `high`, ordered by key.

    Rows with the same key keep the order of the runs and, inside of a run, their order; see `merging.merge_range`.
    """
    return sorted((row for run in runs for row in run if low <= row[0] < high), key=lambda row: row[0])
