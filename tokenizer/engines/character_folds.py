# SPDX-License-Identifier: Apache-2.0
"""Normalizers that look at one character at a time, one after the other, as one table for kernels of words."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.kernels import character_maps
from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.normalizers import NFC, NFD, NFKC, NFKD, Lowercase, Nmt, Replace, StripAccents
from tokenizer.normalizers.base import Normalizer
from tokenizer.ragged import Ragged, read_only


class CharacterFolds(NamedTuple):
    """What each character becomes."""

    places: npt.NDArray[np.int32]
    """int32[0x110000]: 0 where the character stays, else `offset << 8 | n_bytes` into `texts`."""
    texts: npt.NDArray[np.uint8]


NONE = CharacterFolds(read_only(np.zeros(N_CODE_POINTS, np.int32)), read_only(np.zeros(1, np.uint8)))
"""Every character stays."""


def split_steps(steps: Sequence[Normalizer]) -> tuple[list[Normalizer], list[Normalizer]]:
    """Cuts normalizers into those that must see whole texts, and the last ones, which see characters alone.

    Decomposition orders marks, but when they are all removed after it, that does not matter.
    """
    n = len(steps)
    removes_marks = False
    while n:
        step = steps[n - 1]
        if isinstance(step, StripAccents):
            removes_marks = True
        elif _is_of_one_character(step):
            removes_marks = False  # of marks it may make letters, which stay in the order they are in
        elif not (isinstance(step, (Lowercase, Nmt)) or (removes_marks and isinstance(step, (NFD, NFKD)))):
            break
        n -= 1
    return list(steps[:n]), list(steps[n:])


def character_folds(steps: Sequence[Normalizer]) -> CharacterFolds | None:
    """Lowers the second part of `split_steps`; None where a character becomes more than 255 bytes."""
    if not steps:
        return NONE
    points = np.flatnonzero(np.logical_or.reduce([_changed_characters(step) for step in steps]))
    characters = _rows_of_one(points)
    rows = characters
    for step in steps:
        rows = step.normalize_rows(rows)
    if rows.max_row > 0xFF:
        return None
    changed = np.zeros(points.size, np.int32)
    texts = np.empty(rows.n_values + 1, np.uint8)  # a place is never 0
    n_bytes = character_maps.changed_rows(*characters, *rows, changed, texts)
    places = np.zeros(N_CODE_POINTS, np.int32)
    places[points] = changed
    return CharacterFolds(read_only(places), read_only(texts[:n_bytes].copy()))


def texts_of_changed(step: NFC | NFD | NFKC | NFKD) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Returns what each character becomes by itself, as the `places` and `pool` of normalizers.tables.CharsMap."""
    points = np.flatnonzero(step.changed_characters())
    values, offsets = step.normalize_rows(_rows_of_one(points))
    lengths, texts = np.diff(offsets), np.arange(points.size)
    places, pool = np.zeros(N_CODE_POINTS, np.int32), np.zeros(values.size + points.size, np.uint8)
    places[points] = offsets[:-1] + texts + 1
    pool[np.arange(values.size) + np.repeat(texts, lengths)] = values
    return read_only(places), read_only(pool)


def _is_of_one_character(step: Normalizer) -> bool:
    return isinstance(step, Replace) and not step.is_regex and len(step.pattern) == 1


def _changed_characters(step: Normalizer) -> npt.NDArray[np.bool_]:
    """Returns which characters a normalizer changes, bool[0x110000]."""
    if isinstance(step, (NFD, NFKD, Lowercase, Nmt, StripAccents)):
        return step.changed_characters()
    assert isinstance(step, Replace)
    changed = np.zeros(N_CODE_POINTS, np.bool_)
    changed[ord(step.pattern)] = True
    return changed


def _rows_of_one(points: npt.NDArray[np.int64]) -> Ragged:
    """Returns a row for each of some characters."""
    widths = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    values = np.frombuffer(points.astype("<u4").tobytes().decode("utf-32-le").encode(), np.uint8)
    return Ragged(values, read_only(np.concatenate([[0], np.cumsum(widths)])))
