# SPDX-License-Identifier: Apache-2.0
"""Makes `patterns/`: the character data of patterns, and of the pre-tokenizers of HF tokenizers."""

import regex
import tokenizers as hf
import unicodedata2
from tokenizers import pre_tokenizers

from tokenmill.tokenizer.unicode.data import SINCE_18
from tools.unicode import packing
from tools.unicode.packing import CODE_POINTS, Arrays

_EVERYTHING = "".join(map(chr, CODE_POINTS))
_CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def _matched(pattern: str) -> list[int]:
    """Returns the code points that a pattern of one character matches in HF's Oniguruma."""
    splitter = pre_tokenizers.Split(hf.Regex(pattern), "removed", invert=True)
    return [ord(x) for x, _ in splitter.pre_tokenize_str(_EVERYTHING)]


def _unicode_scripts() -> list[list[int]]:
    """Finds the code points that `UnicodeScripts` treats as one script, without those that it never splits."""
    splitter = pre_tokenizers.UnicodeScripts()

    def is_one(text: str) -> bool:
        return len(splitter.pre_tokenize_str(text)) == 1

    groups: list[list[int]] = []
    last: list[int] = []
    for c in CODE_POINTS:
        x = chr(c)
        if is_one(f"A{x}A") and is_one(f"α{x}α"):
            continue
        if not (last and is_one(chr(last[0]) + x)):
            last = next((group for group in groups if is_one(chr(group[0]) + x)), [])
            if not last:
                groups.append(last)
        last.append(c)
    return groups


def _pattern_scripts() -> dict[str, list[int]]:
    """Returns the scripts in patterns, under every name that both `regex` and HF know."""
    by_members: dict[tuple[int, ...], list[str]] = {}
    for name in regex._regex_core.PROPERTIES["SCRIPT"][1]:
        try:
            members = tuple(_matched(rf"\p{{{name}}}"))
        except Exception:  # HF raises no more specific type
            continue
        by_members.setdefault(members, []).append(name.capitalize())
    found = {" ".join([known[0], *sorted(known[1:])]): list(members) for members, known in by_members.items()}
    return dict(sorted(found.items()))


def newer_categories(older: Arrays) -> Arrays:
    """Returns the categories of Unicode 17.0 that are not those of `patterns/categories`, among `older`."""
    before = {c: int(n) for n, first, last in older["patterns/categories"] for c in range(first, last + 1)}
    since = {c for first, last in SINCE_18 for c in range(first, last + 1)}
    found: dict[int, list[int]] = {}
    for c in CODE_POINTS:
        name = unicodedata2.category(chr(c))
        if name != "Cn" and c not in since and before.get(c) != (number := _CATEGORIES.index(name)):
            found.setdefault(number, []).append(c)
    return {"patterns/categories_17": packing.numbered_runs(dict(sorted(found.items())))}


def arrays() -> Arrays:
    """Asks HF tokenizers about every code point."""
    whitespace, digits = pre_tokenizers.Whitespace(), pre_tokenizers.Digits()
    words = [c for c in CODE_POINTS if whitespace.pre_tokenize_str(f"a{chr(c)}a") == [(f"a{chr(c)}a", (0, 3))]]
    numeric = [c for c in CODE_POINTS if len(digits.pre_tokenize_str(f"a{chr(c)}")) == 2]
    alone, in_classes = _matched(r"\w"), _matched(r"[\w]")
    scripts = _pattern_scripts()
    categories = {number: _matched(rf"\p{{{name}}}") for number, name in enumerate(_CATEGORIES)}
    older = {"patterns/categories": packing.numbered_runs(categories)}
    return {
        **older,
        **newer_categories(older),
        "patterns/category_names": packing.names(_CATEGORIES),
        "patterns/words": packing.runs(in_classes),
        "patterns/words_alone": packing.runs({*alone} - {*in_classes}),
        "patterns/scripts": packing.numbered_runs(dict(enumerate(scripts.values()))),
        "patterns/script_names": packing.names(scripts),
        "patterns/whitespace_words": packing.runs(words),
        "patterns/numeric": packing.runs(numeric),
        "patterns/unicode_scripts": packing.numbered_runs(dict(enumerate(_unicode_scripts(), 1))),
    }
