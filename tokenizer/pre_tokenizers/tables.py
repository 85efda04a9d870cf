# SPDX-License-Identifier: Apache-2.0
"""Code point tables of the pre-tokenizers: scripts and categories."""

import functools

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.pre_tokenizers.code_point_sets import CodePoints
from tokenmill.tokenizer.ragged import read_only
from tokenmill.tokenizer.unicode import data
from tokenmill.tokenizer.unicode.tables import HF_1


@functools.cache
def script_numbers() -> npt.NDArray[np.uint8]:
    """Returns the number of each code point's script in `UnicodeScripts`, 0 for any."""
    return read_only(data.numbers("patterns/unicode_scripts"))


@functools.cache
def _numbers_of_scripts() -> dict[str, int]:
    lines = data.names("patterns/script_names")
    return {name: number for number, line in enumerate(lines) for name in line.split()}


def script_runs(name: str) -> list[tuple[int, int]]:
    """Returns the runs of a script in patterns, by any of its names; empty if it is no script."""
    return data.runs_of_number("patterns/scripts", _numbers_of_scripts().get(name, -1))


def category_runs(name: str, unicode: str = "8") -> list[tuple[int, int]]:
    """Returns the runs of a general category in patterns; empty if it is no category."""
    names = data.names("patterns/category_names")
    found = data.runs_of_number("patterns/categories", names.index(name)) if name in names else []
    if unicode != HF_1 or not found:
        return found
    moved = CodePoints.of((first, last) for _, first, last in data.array("patterns/categories_17").tolist())
    newer = data.runs_of_number("patterns/categories_17", names.index(name))
    return ((CodePoints.of(found) & ~moved) | CodePoints.of(newer)).runs
