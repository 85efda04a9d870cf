# SPDX-License-Identifier: Apache-2.0
"""Normalizers of characters as one table: over every code point, and only where characters are all they look at."""

import numpy as np
import pyarrow as pa
import pytest

from tokenizer import unicode_tables
from tokenizer.engines.character_folds import NONE, CharacterFolds, character_folds, split_steps
from tokenizer.normalizers import NFC, NFD, NFKD, Lowercase, Nmt, Replace, Sequence, StripAccents
from tokenizer.normalizers.base import Normalizer
from tokenizer.unicode_tables import HANGUL_FIRST

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def folded(folds: CharacterFolds, text: str) -> str:
    places = folds.places.tolist()
    pool = folds.texts.tobytes()
    found = ((c, places[ord(c)]) for c in text)
    return "".join(pool[at >> 8 : (at >> 8) + (at & 0xFF)].decode() if at else c for c, at in found)


@pytest.mark.parametrize(
    "steps",
    [
        [NFKD(), StripAccents(), Lowercase()],
        [NFD(), StripAccents()],
        [NFD(), Lowercase(), StripAccents()],
        [Nmt(), Lowercase()],
        [Lowercase(), Replace("i", "ﬁ"), NFKD(), StripAccents()],
        [Replace("\u0301", ""), Replace("é", "eee")],
    ],
    ids=str,
)
def test_each_character_becomes_what_the_steps_make_of_it(steps: list[Normalizer]) -> None:
    before, last = split_steps(steps)
    assert (before, last) == ([], steps)
    folds = character_folds(steps)
    assert folds is not None
    expected = Sequence(tuple(steps)).normalize_arrow(pa.array(map(chr, POINTS), pa.large_string())).to_pylist()
    places = folds.places.tolist()
    pool = folds.texts.tobytes()
    for c, text in zip(POINTS, expected, strict=True):
        at = places[c]
        assert (pool[at >> 8 : (at >> 8) + (at & 0xFF)].decode() if at else chr(c)) == text


def test_marks_that_decomposition_puts_in_order_are_removed() -> None:
    ordered = "".join(map(chr, np.flatnonzero(unicode_tables.combining_classes()).tolist()))
    assert ordered
    assert StripAccents().normalize_str(ordered) == ""


@pytest.mark.parametrize(
    ("steps", "n_whole"),
    [
        ([], 0),
        ([NFKD()], 1),
        ([NFKD(), Lowercase()], 1),
        ([NFD(), Replace("\u0301", "x"), StripAccents()], 1),
        ([StripAccents(), NFKD()], 2),
        ([NFC(), StripAccents()], 1),
        ([Lowercase(), NFD(), StripAccents(), Lowercase()], 0),
        ([Replace("aa", "b"), Lowercase()], 1),
        ([Replace("a+", "b", is_regex=True), Replace("a", "b")], 1),
    ],
    ids=str,
)
def test_steps_that_look_at_more_than_a_character_are_kept_apart(steps: list[Normalizer], n_whole: int) -> None:
    assert split_steps(steps) == (steps[:n_whole], steps[n_whole:])


def test_folds_of_nothing_and_of_too_much() -> None:
    assert character_folds([]) is NONE
    assert character_folds([Replace("a", "b" * 256)]) is None
    longest = character_folds([Replace("a", "b" * 255)])
    assert longest is not None
    assert folded(longest, "xa가") == "x" + "b" * 255 + chr(HANGUL_FIRST)
