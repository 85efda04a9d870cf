# SPDX-License-Identifier: Apache-2.0
"""Writes `tokenizer/unicode_script_data.py` from `regex`: which script each character belongs to.

Run by hand (`python tests/parity/make_script_data.py`) when the pinned versions change; the diff is reviewed.
"""

from pathlib import Path

import regex
import unicodedata2
from make_unicode_data import CODE_POINTS, literal, ranges

TARGET = Path(__file__).parents[2] / "tokenizer" / "unicode_script_data.py"

NO_SCRIPTS = {"COMMON", "INHERITED", "UNKNOWN", "KATAKANAORHIRAGANA"}


def names() -> list[str]:
    """The names of the scripts, as Unicode writes them but for the underscores."""
    by_number: dict[int, str] = {}
    for name, number in regex._regex_core.PROPERTIES["SCRIPT"][1].items():
        # Beside the name there are codes of four letters.
        if number not in by_number or len(by_number[number]) == 4:
            by_number[number] = name if len(name) != 4 or number not in by_number else by_number[number]
    return sorted(set(by_number.values()) - NO_SCRIPTS)


def main() -> None:
    every = "".join(map(chr, CODE_POINTS))
    found = {name: list(map(ord, regex.findall(rf"\p{{Script={name}}}", every))) for name in names()}
    parts = [
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""The script of every character that has one; generated, do not edit.\n\n'
        "Made by tests/parity/make_script_data.py from regex, of the Unicode version below. All numbers are\n"
        "hexadecimal.\n"
        '"""\n',
        f'UNICODE_VERSION = "{unicodedata2.unidata_version}"\n',
        *(literal(name, ranges(points), f"Script {name.capitalize()}.") for name, points in found.items() if points),
    ]
    TARGET.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
