# SPDX-License-Identifier: Apache-2.0
"""Scripts of characters and of documents, in one version of Unicode."""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.languages import kernels
from tokenmill.tokenizer.ragged import Ragged, read_only, text_rows
from tokenmill.tokenizer.unicode import data

UNICODE_VERSION = data.TEXT_VERSION

_KANA = ("HIRAGANA", "KATAKANA")
_FIRST = ("LATIN", "HAN", "HIRAGANA", "HANGUL")
_NAMES = data.names("scripts/script_names")

SCRIPTS = (
    "",
    *(name.capitalize() for name in _FIRST),
    *(n.capitalize() for n in _NAMES if n not in (*_FIRST, *_KANA)),
)
"""Names of scripts by their numbers, as Unicode writes them, in one word. `Hiragana` includes katakana."""


@functools.cache
def script_table() -> npt.NDArray[np.uint8]:
    """Returns the script of each code point, uint8[0x110000], as numbers in `SCRIPTS`; 0 for none."""
    table = np.zeros(0x110000, np.uint8)
    numbers = [kernels.KANA if name in _KANA else SCRIPTS.index(name.capitalize()) for name in _NAMES]
    for number, first, last in data.array("scripts/scripts").tolist():
        table[first : last + 1] = numbers[number]
    return read_only(table)


def script_name(code_point: int) -> str:
    """Returns the script of a character, `Common` if it has none; kana are `Hiragana`."""
    return SCRIPTS[script_table()[code_point]] or "Common"


class ScriptCounts(NamedTuple):
    """The scripts of documents; each field is int64[n_rows]. Here Han and kana are one script."""

    total: npt.NDArray[np.int64]
    """Characters that have a script."""
    first: npt.NDArray[np.int64]
    """The script with the most characters, a number in `SCRIPTS`; 0 if there is none."""
    n_first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    n_second: npt.NDArray[np.int64]
    n_kana: npt.NDArray[np.int64]


def count_scripts(rows: Ragged) -> ScriptCounts:
    """Counts the scripts of rows of valid UTF-8."""
    found = np.empty((rows.n_rows, kernels.N_COLUMNS), np.int64)
    kernels.count_scripts(rows.values, rows.offsets, script_table(), np.zeros(len(SCRIPTS), np.int64), found)
    return ScriptCounts(*(np.ascontiguousarray(found[:, i]) for i in range(kernels.N_COLUMNS)))


def main_scripts(texts: Any) -> pa.DictionaryArray:
    """Returns the script of the most characters of each row, dictionary<int32, string>[n].

    It is `Common` if no character has a script. Kana count as Han: Japanese is `Han`.

    Args:
      texts: a text column; null is a row without characters.

    Raises:
      TypeError: if `texts` is not a text column.
    """
    names = pa.array([name or "Common" for name in SCRIPTS], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(count_scripts(text_rows(texts)).first.astype(np.int32)), names)
