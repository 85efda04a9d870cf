# SPDX-License-Identifier: Apache-2.0
"""Code point tables of the pre-tokenizers: the classes of characters that scanners use."""

import functools
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.kernels.ascii_blocks import DIGITS, LETTERS, SIGNS, SPACES, UNDERSCORES, UPPERS
from tokenmill.tokenizer.kernels.ideographs import IDEOGRAPHS
from tokenmill.tokenizer.kernels.scanners_parts import LETTER, LOWER, MARK, NUMBER, SIGN, SPACE, UPPER, WHITE_LEADS
from tokenmill.tokenizer.pre_tokenizers.code_point_sets import CodePoints
from tokenmill.tokenizer.ragged import read_only
from tokenmill.tokenizer.unicode import data
from tokenmill.tokenizer.unicode.tables import HF_1, check_ascii, punctuation

Classes = npt.NDArray[np.uint8]
"""uint8[0x110000], bits of `kernels.scanners_parts`."""

_N_CODE_POINTS = 0x110000
_LETTERS = ("Lu", "Ll", "Lt", "Lm", "Lo")
_MARKS = ("Mn", "Mc", "Me")
_NUMBERS = ("Nd", "Nl", "No")
_SIGNS = ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So")


def _set(table: Classes, runs: Iterable[tuple[int, int]], bits: int) -> None:
    for first, last in runs:
        table[first : last + 1] |= np.uint8(bits)


def checked(table: Classes) -> Classes:
    """Returns a table, read-only, that agrees with what scanners know without it.

    Raises:
      ValueError: if white space begins with a byte that `skip_spaces` does not know, or ideographs differ.
    """
    leads = {chr(c).encode()[0] for c in np.flatnonzero(table & SPACE).tolist()}
    unknown = sorted(lead for lead in leads if not WHITE_LEADS[lead])
    if unknown:
        raise ValueError(f"white space begins with byte {unknown[0]:#04x}; add it to WHITE_LEADS of scanners_parts.py")
    if np.ptp(table[IDEOGRAPHS]) > 0:
        raise ValueError("characters of IDEOGRAPHS are of several classes; change their range in kernels/ideographs.py")
    return read_only(table)


def _single_bit(runs: Iterable[tuple[int, int]], bit: int, *masks: int) -> Classes:
    """Returns a table of one bit; with masks, also SPACE, and the bit must be that of the ASCII in these masks."""
    table = np.zeros(_N_CODE_POINTS, np.uint8)
    _set(table, runs, bit)
    if masks:
        _set(table, data.runs("bert/spaces"), SPACE)
        check_ascii(table, {SPACES: SPACE} | dict.fromkeys(masks, bit), 0)
    return checked(table)


@functools.cache
def pattern_classes(unicode: str = "8") -> Classes:
    r"""Returns the bits for `\p{L}`, `\p{N}`, `\s` and so on, which are the same in HF's Oniguruma and in tiktoken.

    unicode: see `unicode.tables.BERT_UNICODE`.
    """
    groups = ((_LETTERS, LETTER), (_NUMBERS, NUMBER), (_SIGNS, SIGN), (_MARKS, MARK | UPPER | LOWER))
    bits = {name: group for names, group in groups for name in names}
    bits |= {"Lu": LETTER | UPPER, "Lt": LETTER | UPPER, "Ll": LETTER | LOWER}
    bits |= dict.fromkeys(("Lm", "Lo"), LETTER | UPPER | LOWER)
    table = _of_categories(bits, unicode)
    _set(table, data.runs("bert/spaces"), SPACE)
    of_ascii = {LETTERS: LETTER | LOWER, UPPERS: LETTER | UPPER, DIGITS: NUMBER, SPACES: SPACE}
    check_ascii(table & np.uint8(255 - SIGN), of_ascii, 0)
    return checked(table)


def _of_categories(bits: dict[str, int], unicode: str) -> Classes:
    """Returns the bits of the category of each code point; no code point has two, so the runs do not overlap."""
    of_category = np.array([bits.get(name, 0) for name in data.names("patterns/category_names")], np.uint8)
    if unicode == HF_1:
        table = _of_categories(bits, "8")
        for number, first, last in data.array("patterns/categories_17").tolist():
            table[first : last + 1] = of_category[number]
        return table
    runs = data.array("patterns/categories")
    runs = runs[of_category[runs[:, 0]] > 0]
    runs = runs[np.argsort(runs[:, 1])]
    of_runs, firsts, stops = of_category[runs[:, 0]], runs[:, 1], runs[:, 2] + 1
    lengths, values = np.empty(2 * len(runs) + 1, np.int64), np.zeros(2 * len(runs) + 1, np.uint8)
    lengths[1::2], values[1::2] = stops - firsts, of_runs
    lengths[::2] = np.append(firsts, _N_CODE_POINTS) - np.append(0, stops)
    return np.repeat(values, lengths)


@functools.cache
def word_classes() -> Classes:
    """Returns LETTER for the word characters of `Whitespace`, and SPACE."""
    return _single_bit(data.runs("patterns/whitespace_words"), LETTER, LETTERS, DIGITS, UNDERSCORES)


@functools.cache
def bert_classes(unicode: str = "8") -> Classes:
    """Returns SIGN for BERT's punctuation, and SPACE; see `unicode.tables.BERT_UNICODE`."""
    return _single_bit([(c, c) for c in np.flatnonzero(punctuation(unicode)).tolist()], SIGN, SIGNS)


@functools.cache
def script_numbers() -> Classes:
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
