# SPDX-License-Identifier: Apache-2.0
"""Packs the arrays of `tokenizer/unicode/data.npz`; its reader, `data.py`, explains the kinds of arrays."""

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)

Numbers = npt.NDArray[np.int32]
Arrays = dict[str, npt.NDArray[Any]]

_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date in a zip file, used for all entries, so that the same data gives the same file."""


def runs(code_points: Iterable[int]) -> Numbers:
    """Returns the first and the last code point of each run."""
    points = np.array(sorted(code_points), np.int64)
    ends = np.flatnonzero(np.diff(points) != 1)
    return np.stack([points[np.append(0, ends + 1)], points[np.append(ends, -1)]], axis=1).astype(np.int32)


def numbered_runs(groups: Mapping[int, Iterable[int]]) -> Numbers:
    """Returns the runs of code points of each number, with the number in front."""
    parts = [(number, runs(points)) for number, points in groups.items()]
    return np.concatenate([np.insert(part, 0, number, axis=1) for number, part in parts]).astype(np.int32)


def texts(mapping: Mapping[int, str]) -> Numbers:
    """Returns each character, followed by the length of its text and that text."""
    return np.array([n for c, text in sorted(mapping.items()) for n in (c, len(text), *map(ord, text))], np.int32)


def pairs(compositions: Mapping[tuple[str, str], str]) -> Numbers:
    """Returns pairs of characters, each with the one that they compose into."""
    rows = [(ord(first), ord(second), ord(both)) for (first, second), both in sorted(compositions.items())]
    return np.array(rows, np.int32)


def numbers(code_points: Iterable[int]) -> Numbers:
    """Returns code points as they are."""
    return np.array([*code_points], np.int32)


def names(lines: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Returns names, one on a line."""
    return np.frombuffer("\n".join(lines).encode(), np.uint8)


def packed(arrays: Arrays) -> bytes:
    """Returns the file. Nothing in it is compressed, because libraries compress differently."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in sorted(arrays.items()):
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", _DATE)
            entry.create_system = 3  # the same on every system
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, member.getvalue())
    return file.getvalue()


def write(path: Path, arrays: Arrays) -> None:
    """Writes the file."""
    path.write_bytes(packed(arrays))
