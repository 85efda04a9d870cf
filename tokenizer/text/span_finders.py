# SPDX-License-Identifier: Apache-2.0
"""The kernels of spans that rules give by name; `tests/reference/text_steps.py` has their definitions."""

import functools
import string
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.normalizers.edit_lists import found_edits
from tokenmill.tokenizer.normalizers.kernels import matches
from tokenmill.tokenizer.normalizers.tables import Runs
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.emoji import find_emoji
from tokenmill.tokenizer.text.kernels import spans
from tokenmill.tokenizer.text.neighbours import digits, not_digits

LEAST = {"repeated": 4, "whitespace": 2}
"""Named pattern -> the least number of characters in a row, unless a rule says otherwise."""

_URL_BYTES = string.ascii_letters + string.digits + "-._~:/?#[]@!$&'()*+,;=%"
_URL_ENDS = string.ascii_letters + string.digits + "-_~/#@$&*+=%"
_LOCAL_BYTES = string.ascii_letters + string.digits + "._%+-"
_DOMAIN_BYTES = string.ascii_letters + string.digits + "-"


@functools.cache
def _bytes_are() -> npt.NDArray[np.uint8]:
    table = np.zeros(256, np.uint8)
    for characters, bit in (
        (_LOCAL_BYTES, spans.LOCAL),
        (_DOMAIN_BYTES, spans.DOMAIN),
        (string.ascii_letters, spans.LETTER),
        (_URL_BYTES, spans.URL),
        (_URL_ENDS, spans.URL_END),
    ):
        table[[ord(c) for c in characters]] |= bit
    return read_only(table)


@functools.lru_cache(maxsize=64)
def _white_space(least: int) -> Runs:
    return Runs.of(tables.table_of(tables.SPACES), " ", least)


@functools.cache
def _not_white_space() -> npt.NDArray[np.bool_]:
    return read_only(~tables.table_of(tables.SPACES))


NAMED: dict[str, Callable[[Ragged, int], npt.NDArray[np.int64]]] = {
    "number": lambda rows, _: found_edits(spans.find_numbers, rows, digits(), not_digits()),
    "url": lambda rows, _: found_edits(spans.find_urls, rows, _bytes_are()),
    "email": lambda rows, _: found_edits(spans.find_emails, rows, _bytes_are()),
    "emoji": lambda rows, _: find_emoji(rows),
    "repeated": lambda rows, least: found_edits(matches.find_repeated, rows, _not_white_space(), least - 1, True),
    "whitespace": lambda rows, least: found_edits(matches.find_runs, rows, _white_space(least)),
}
"""Name -> function of rows and the least number of characters; it returns int64[n, 3], start and stop in bytes.

`number`: decimal digits of any script, with `.` or `,` between some. `url`: http, https, ftp or `www.`, then characters
of RFC 3986, not ending in punctuation. `email`: name, `@`, labels and a domain of letters. `emoji`: see `Emoji`.
`repeated`: the same character in a row, except white space. `whitespace`: white space in a row.
"""


def find_literal(rows: Ragged, literal: str) -> npt.NDArray[np.int64]:
    """Returns the occurrences of a text, int64[n, 3]: start and stop in bytes."""
    return found_edits(matches.find_literal, rows, read_only(np.frombuffer(bytearray(literal.encode()), np.uint8)))
