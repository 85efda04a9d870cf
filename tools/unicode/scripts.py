# SPDX-License-Identifier: Apache-2.0
"""Makes `scripts/`: the script of each character, by `regex`."""

import regex

from tools.unicode import packing
from tools.unicode.packing import CODE_POINTS, Arrays

_NO_SCRIPTS = {"COMMON", "INHERITED", "UNKNOWN", "KATAKANAORHIRAGANA"}


def _names() -> list[str]:
    """Returns the names of the scripts, as Unicode writes them, without underscores."""
    by_number: dict[int, str] = {}
    for name, number in regex._regex_core.PROPERTIES["SCRIPT"][1].items():
        # Besides its name, a script has a code of four letters.
        if number not in by_number or len(by_number[number]) == 4:
            by_number[number] = name if len(name) != 4 or number not in by_number else by_number[number]
    return sorted(set(by_number.values()) - _NO_SCRIPTS)


def arrays() -> Arrays:
    """Asks `regex` about every code point."""
    every = "".join(map(chr, CODE_POINTS))
    found = {name: list(map(ord, regex.findall(rf"\p{{Script={name}}}", every))) for name in _names()}
    found = {name: points for name, points in found.items() if points}
    return {
        "scripts/scripts": packing.numbered_runs(dict(enumerate(found.values()))),
        "scripts/script_names": packing.names(found),
    }
