# SPDX-License-Identifier: Apache-2.0
"""Writes `tokenizer/unicode_text_data.py` from `unicodedata2` and `regex`: what text steps know of characters.

Run by hand (`python tests/parity/make_text_data.py`) when their pinned versions change; the diff is reviewed.
`test_text_tables.py` compares the committed file with Python's own `unicodedata` on every run.
"""

import sys
import unicodedata
from pathlib import Path

import regex
import unicodedata2
from make_unicode_data import CODE_POINTS, HANGUL, literal, mapping, ranges

from tokenizer import unicode_tables
from tokenizer.normalizers import tables

TARGET = Path(__file__).parents[2] / "tokenizer" / "unicode_text_data.py"


def compositions() -> dict[tuple[str, str], str]:
    pairs = {}
    for c in CODE_POINTS:
        full = unicodedata2.normalize("NFD", chr(c))
        if full != chr(c) and c not in HANGUL and unicodedata2.normalize("NFC", chr(c)) == chr(c):
            first = unicodedata2.normalize("NFC", full[:-1])
            if len(first) != 1 or unicodedata2.normalize("NFC", first + full[-1]) != chr(c):
                raise ValueError(f"U+{c:04X} is not made of two characters: {full!r}")
            pairs[first, full[-1]] = chr(c)
    return pairs


def decompositions(form: str) -> dict[int, str]:
    changed = ((c, unicodedata2.normalize(form, chr(c))) for c in CODE_POINTS if c not in HANGUL)
    return {c: text for c, text in changed if text != chr(c)}


def combining() -> dict[int, int]:
    return {c: unicodedata2.combining(chr(c)) for c in CODE_POINTS if unicodedata2.combining(chr(c))}


def case_folds() -> dict[int, str]:
    folds = {}
    for c in CODE_POINTS:
        folded = regex._regex.fold_case(regex.FULLCASE | regex.IGNORECASE | regex.UNICODE, chr(c))
        # `regex` folds as Turkish does, too; the standard's default folding does not.
        folded = {"I": "i", "İ": "i̇", "ı": "ı"}.get(chr(c), folded)
        if unicodedata.category(chr(c)) != "Cn" and folded != chr(c).casefold():
            raise ValueError(f"U+{c:04X} folds to {folded!r}, to Python {chr(c).casefold()!r}")
        if folded != chr(c):
            folds[c] = folded
    return folds


def members(expression: str) -> list[int]:
    found = regex.compile(expression)
    return [c for c in CODE_POINTS if found.match(chr(c))]


def of_category(*categories: str) -> list[int]:
    return [c for c in CODE_POINTS if unicodedata2.category(chr(c)).startswith(categories)]


def full_width() -> dict[int, str]:
    wide = [c for c in CODE_POINTS if unicodedata2.decomposition(chr(c)).startswith("<wide>")]
    return {c: unicodedata2.normalize("NFKC", chr(c)) for c in wide}


def zeros() -> list[int]:
    found = [c for c in CODE_POINTS if unicodedata2.category(chr(c)) == "Nd" and unicodedata2.digit(chr(c)) == 0]
    for c in found:
        if [unicodedata2.digit(chr(c + i), -1) for i in range(10)] != list(range(10)):
            raise ValueError(f"the digits from U+{c:04X} on are not ten in a row")
    return found


def names() -> dict[int, str]:
    emoji = members(r"[\p{Extended_Pictographic}\p{Emoji_Presentation}\p{Emoji_Modifier}]")
    return {c: unicodedata2.name(chr(c)) for c in emoji if unicodedata2.name(chr(c), "")}


def new_in(found: dict, known: dict) -> dict:
    """Returns what is not known yet. What Unicode has once decided about these things it never changes."""
    if wrong := [key for key, value in known.items() if found.get(key) != value]:
        raise ValueError(f"Unicode has changed {wrong!r}")
    return {key: value for key, value in found.items() if key not in known}


def main() -> None:
    canonical, compatible = decompositions("NFD"), decompositions("NFKD")
    pairs = new_in(compositions(), tables.compositions())
    old_classes = {c: int(k) for c, k in enumerate(unicode_tables.combining_classes()) if k}
    classes: dict[int, list[int]] = {}
    for c, value in new_in(combining(), old_classes).items():
        classes.setdefault(value, []).append(c)
    runs = {
        "NONSPACING_MARKS": ("General category Mn.", of_category("Mn")),
        "PUNCTUATION": ("General categories P.", of_category("P")),
        "WORDS": ("Letters, marks and numbers.", of_category("L", "M", "N")),
        "LATIN": ("Script Latin.", members(r"\p{Script=Latin}")),
        "EXTENDED_PICTOGRAPHIC": ("May be emoji; some are reserved.", members(r"\p{Extended_Pictographic}")),
        "EMOJI_PRESENTATION": ("Emoji unless a variation selector follows.", members(r"\p{Emoji_Presentation}")),
        "GRAPHEME_EXTEND": ("Join the grapheme before them.", members(r"\p{GCB=Extend}")),
        "ZEROS": ("Zeros of decimal digits; one to nine follow each.", zeros()),
    }
    known = tables.compatibility()
    compatible = {c: text for c, text in compatible.items() if known.get(c, canonical.get(c)) != text}
    old_folds = unicode_tables.lowercase()
    folds = case_folds()
    parts = [
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""What text steps know of characters beyond what HF tokenizers does; generated, do not edit.\n\n'
        "Made by tests/parity/make_text_data.py from unicodedata2 and regex, both of the Unicode version below. What\n"
        "unicode_data.py and unicode_normalization_data.py say already is left out. All numbers are hexadecimal.\n"
        '"""\n',
        f'UNICODE_VERSION = "{unicodedata2.unidata_version}"\n',
        literal("CANONICAL", mapping(new_in(canonical, unicode_tables.decompositions())), "New decompositions."),
        literal("COMPATIBILITY", mapping(compatible), "New compatibility decompositions."),
        literal(
            "COMPOSITIONS",
            " ".join(f"{ord(a):x}.{ord(b):x}={ord(to):x}" for (a, b), to in sorted(pairs.items())),
            "New compositions.",
        ),
        literal(
            "COMBINING_CLASSES",
            " ".join(f"{run}={k:x}" for k, cs in sorted(classes.items()) for run in ranges(cs).split()),
            "New canonical combining classes.",
        ),
        literal(
            "CASE_FOLDS",
            mapping({c: folds.get(c, chr(c)) for c in {*folds, *old_folds} if folds.get(c) != old_folds.get(c)}),
            "Full default case folding, where it differs from lower-case.",
        ),
        literal("FULL_WIDTH", mapping(full_width()), "Full-width forms."),
        *(literal(name, ranges(found), doc) for name, (doc, found) in runs.items()),
        "EMOJI_NAMES = (\n" + "".join(f'    "{c:x}={name};"\n' for c, name in sorted(names().items())) + ")\n"
        '"""Names of pictographs and modifiers."""\n',
    ]
    TARGET.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
