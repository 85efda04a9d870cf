# SPDX-License-Identifier: Apache-2.0
"""Makes character maps for sentencepiece: lower-casing and accent stripping, one character at a time."""

import functools
import struct
from collections.abc import Mapping

import numpy as np

from tokenmill.tokenizer.unicode import data as unicode_data
from tokenmill.tokenizer.unicode import tables as unicode_tables

_BLOCK = 256
_HAS_RESULT = 1 << 8
_NOTHING = 1 << 31
"""A label that matches no byte."""


@functools.cache
def folding_charsmap(lowercase: bool, strip_accents: bool) -> bytes:
    """Returns a `precompiled_charsmap` that lower-cases, and strips accents of, every single character.

    With `strip_accents`, a character is decomposed canonically and loses its marks; Hangul syllables stay whole.
    """
    marks = unicode_data.members("normalization/combining_marks")
    candidates = set(unicode_tables.lowercase())
    if strip_accents:
        candidates |= {*unicode_tables.decompositions(), *np.flatnonzero(marks).tolist()}
    changes = {}
    for code_point in sorted(candidates):
        text = chr(code_point)
        if strip_accents:
            decomposed = unicode_tables.decompositions().get(code_point, text)
            text = "".join(character for character in decomposed if not marks[ord(character)])
        if lowercase:
            text = "".join(unicode_tables.lowercase().get(ord(character), character) for character in text)
        if text != chr(code_point):
            changes[chr(code_point).encode()] = text
    return write_charsmap(changes)


def write_charsmap(changes: Mapping[bytes, str]) -> bytes:
    """Returns the `precompiled_charsmap` that turns each key into its text, see `CharsMap`.

    It is meant for a few thousand keys.

    Raises:
      ValueError: if there are too many.
    """
    results, place_of = bytearray(), {}
    for text in changes.values():
        if text not in place_of:
            place_of[text] = len(results)
            results += text.encode() + b"\0"
    children: dict[bytes, list[int]] = {b"": []}
    for key in sorted(changes):
        for n in range(1, len(key) + 1):
            if key[:n] not in children:
                children[key[:n]] = []
                children[key[: n - 1]].append(key[n - 1])
    units = {0: 0}
    bases: set[int] = set()
    first_free, first_empty = 1, _BLOCK
    waiting = [(b"", 0)]
    for prefix, place in waiting:
        # The child for a zero byte says where the result is.
        labels = ([0] if prefix in changes else []) + children[prefix]
        if len(labels) > 1:
            # Does not search from the first place, where most are taken; the free ones there are for single children.
            base = max(1, first_empty - _BLOCK)
            while base in bases or any(base ^ label in units for label in labels):
                base += 1
            first_empty = max(first_empty, (base // _BLOCK + 1) * _BLOCK)
        else:
            base = first_free ^ labels[0]
            while base in bases or first_free in units:
                first_free += 1
                base = first_free ^ labels[0]
        bases.add(base)
        units[place] |= _offset(base ^ place) | (_HAS_RESULT if prefix in changes else 0)
        for label in labels:
            units[base ^ label] = label
            if label or prefix not in changes:
                waiting.append((prefix + bytes([label]), base ^ label))
            else:
                units[base] = 1 << 31 | place_of[changes[prefix]]
    n_units = -(-(max(units, default=0) + 1) // _BLOCK) * _BLOCK
    array = [units.get(i, _NOTHING) for i in range(n_units)]
    return struct.pack(f"<I{n_units}I", 4 * n_units, *array) + bytes(results)


def _offset(offset: int) -> int:
    if offset >= 1 << 21:
        raise ValueError("a character map of so many keys cannot be written")
    return offset << 10
