# SPDX-License-Identifier: Apache-2.0
"""The named patterns of spans: a kernel for each, and a regular expression that defines it."""

import functools
import string
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import regex

from tokenizer.normalizers.tables import first_byte_steps
from tokenizer.ragged import Ragged, read_only
from tokenizer.text import tables
from tokenizer.text.edits import found_edits
from tokenizer.text.emoji import emoji_pattern, find_emoji
from tokenizer.text.kernels import runs as run_kernels
from tokenizer.text.kernels import spans as span_kernels
from tokenizer.text.runs import digit_steps, digits

LEAST = {"repeated": 4, "whitespace": 2}
"""Named pattern -> the least number of characters in a row, unless a rule says otherwise."""

_URL_BYTES = string.ascii_letters + string.digits + "-._~:/?#[]@!$&'()*+,;=%"
_URL_ENDS = string.ascii_letters + string.digits + "-_~/#@$&*+=%"
_LOCAL_BYTES = string.ascii_letters + string.digits + "._%+-"
_DOMAIN_BYTES = string.ascii_letters + string.digits + "-"


def _class(characters: str) -> str:
    return f"[{''.join(map(regex.escape, characters))}]"


@functools.lru_cache(maxsize=64)
def definition(name: str, least: int) -> "regex.Pattern[str]":
    r"""Returns the definition of a named pattern, as a regular expression.

    Args:
      name: `number`: decimal digits of any script, with `.` or `,` between some. `url`: http, https, ftp or `www.`,
        then characters of RFC 3986, not ending in punctuation. `email`: name, `@`, labels and a domain of letters.
        `emoji`: see `emoji_pattern`. `repeated`: the same character in a row, except white space. `whitespace`: white
        space in a row.
      least: the least number of characters in a row, for the last two.
    """
    if name == "emoji":
        return emoji_pattern()
    spaces = _class("".join(sorted(tables.SPACES)))
    local = _class(_LOCAL_BYTES)
    digit = _class("".join(map(chr, np.flatnonzero(digits()).tolist())))
    return regex.compile(
        {
            "number": rf"{digit}+(?:[.,]{digit}+)*",
            "url": rf"(?i:(?:https?|ftp)://|www\.){_class(_URL_BYTES)}*{_class(_URL_ENDS)}",
            # A name begins as early as it can: trying every place in it would take the square of its length.
            "email": rf"(?:\G|(?<!{local})){local}+@(?:{_class(_DOMAIN_BYTES)}+\.)+[A-Za-z]{{2,}}",
            "repeated": rf"(?s:(?!{spaces})(.)\1{{{least - 1},}})",
            "whitespace": rf"{spaces}{{{least},}}",
        }[name],
        regex.V1 | regex.ASCII,
    )


@functools.cache
def _bytes_are() -> npt.NDArray[np.uint8]:
    table = np.zeros(256, np.uint8)
    for characters, bit in (
        (_LOCAL_BYTES, span_kernels.LOCAL),
        (_DOMAIN_BYTES, span_kernels.DOMAIN),
        (string.ascii_letters, span_kernels.LETTER),
        (_URL_BYTES, span_kernels.URL),
        (_URL_ENDS, span_kernels.URL_END),
    ):
        table[[ord(c) for c in characters]] |= bit
    return read_only(table)


@functools.cache
def _spaces() -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
    """Returns white space, bool[0x110000]; its complement; and the bytes of characters whose first byte begins none."""
    table = tables.table_of(tables.SPACES)
    return table, read_only(~table), first_byte_steps(~table, with_ascii=True)


NAMED: dict[str, Callable[[Ragged, int], npt.NDArray[np.int64]]] = {
    "number": lambda rows, _: found_edits(
        lambda found: span_kernels.find_numbers(rows.values, rows.offsets, digits(), digit_steps(), found)
    ),
    "url": lambda rows, _: found_edits(
        lambda found: span_kernels.find_urls(rows.values, rows.offsets, _bytes_are(), found)
    ),
    "email": lambda rows, _: found_edits(
        lambda found: span_kernels.find_emails(rows.values, rows.offsets, _bytes_are(), found)
    ),
    "emoji": lambda rows, _: find_emoji(rows),
    "repeated": lambda rows, least: found_edits(
        lambda found: run_kernels.find_repeated(rows.values, rows.offsets, _spaces()[1], least - 1, True, found)
    ),
    "whitespace": lambda rows, least: found_edits(
        lambda found: span_kernels.find_runs(rows.values, rows.offsets, _spaces()[0], _spaces()[2], least, found)
    ),
}
"""Name -> function of rows and the least number of characters; it returns int64[n, 3], start and stop in bytes."""


def find_literal(rows: Ragged, literal: str) -> npt.NDArray[np.int64]:
    """Returns the occurrences of a text, int64[n, 3]: start and stop in bytes."""
    data = read_only(np.frombuffer(bytearray(literal.encode()), np.uint8))
    return found_edits(lambda found: span_kernels.find_literal(rows.values, rows.offsets, data, found))
