# SPDX-License-Identifier: Apache-2.0
"""Reads numbers in a `tokenizer.json` as HF tokenizers does, whose result is not always the nearest float64.

Scores that differ in the last digit can decide between two ways to cut a text that are otherwise equal, such as a long
line of `*`: to give HF's ids, a Unigram model needs HF's scores.
"""

import math

from tokenmill.tokenizer.formats.json_vocabulary_kernels import POWERS_OF_TEN

_POWERS = POWERS_OF_TEN.tolist()
_MOST = (1 << 64) - 1
_LARGEST_POWER = len(_POWERS) - 1


def read_float(text: str) -> float:
    """Returns a JSON number that has a point or an exponent.

    Its digits, as many as fit into 64 bits, are rounded to float64, then multiplied or divided by a power of ten.

    Raises:
      ValueError: if it is too large for float64.

    Source: `f64_from_parts` of serde_json 1.0 without its feature `float_roundtrip`, as HF tokenizers uses it.
    """
    mantissa, _, power = text.lower().partition("e")
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = int(whole + fraction)
    exponent = int(power or 0) - len(fraction)
    if digits > _MOST:
        digits, exponent = _cut(whole, fraction, int(power or 0))
    value = float(digits)
    if exponent < -_LARGEST_POWER:
        value /= _POWERS[_LARGEST_POWER]
        exponent = max(exponent + _LARGEST_POWER, -_LARGEST_POWER)
    if exponent <= 0:
        value /= _POWERS[-exponent]
    elif value:
        value *= _POWERS[min(exponent, _LARGEST_POWER)]
        if exponent > _LARGEST_POWER or not math.isfinite(value):
            raise ValueError(f"{text[:80]} is too large for a number of 64 bits")
    return -value if text[0] == "-" else value


def _cut(whole: str, fraction: str, power: int) -> tuple[int, int]:
    """Returns the digits that fit, and their power of ten; the whole part and the fraction are cut separately."""
    digits, n_whole = _append(0, whole)
    digits, n_fraction = _append(digits, fraction)
    return digits, power + len(whole) - n_whole - n_fraction


def _append(digits: int, more: str) -> tuple[int, int]:
    """Returns a number with as many of `more` digits appended as it has room for, and how many that are."""
    for n_used, digit in enumerate(more):
        longer = digits * 10 + int(digit)
        if longer > _MOST:
            return digits, n_used
        digits = longer
    return digits, len(more)


def float_text(value: float) -> str:
    """Returns a JSON number that `read_float` reads as `value`, which is finite: the shortest one, if it does.

    About one value in a thousand is not the result of any text; for these it returns the shortest text of the value,
    which is read as a neighbour.
    """
    shortest = repr(value)
    if read_float(shortest) == value:
        return shortest
    for power in range(1, _LARGEST_POWER):
        scaled = abs(value) * _POWERS[power]
        if scaled > _MOST:
            break
        if scaled > 1 << 52:
            for digits in (scaled, math.nextafter(scaled, 0.0), math.nextafter(scaled, math.inf)):
                padded = str(int(digits)).rjust(power + 1, "0")
                text = f"{'-' if value < 0 else ''}{padded[:-power]}.{padded[-power:]}"
                if read_float(text) == value:
                    return text
    return shortest


def written(value: float) -> float:
    """Returns the number that `read_float` reads after `float_text` has written a value: almost always that value."""
    return read_float(float_text(value))
