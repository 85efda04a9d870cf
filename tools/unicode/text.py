# SPDX-License-Identifier: Apache-2.0
"""Makes `text/`: the character data of text steps that HF tokenizers lacks, by `unicodedata2` and `regex`."""

import unicodedata

import regex
import unicodedata2

from tokenmill.tokenizer.unicode.data import TEXT_VERSION, texts_of
from tools.unicode import packing
from tools.unicode.packing import CODE_POINTS, HANGUL, Arrays


def _compositions() -> dict[tuple[str, str], str]:
    pairs = {}
    for c in CODE_POINTS:
        full = unicodedata2.normalize("NFD", chr(c))
        if full != chr(c) and c not in HANGUL and unicodedata2.normalize("NFC", chr(c)) == chr(c):
            first = unicodedata2.normalize("NFC", full[:-1])
            if len(first) != 1 or unicodedata2.normalize("NFC", first + full[-1]) != chr(c):
                raise ValueError(f"U+{c:04X} is not made of two characters: {full!r}")
            pairs[first, full[-1]] = chr(c)
    return pairs


def _decompositions(form: str) -> dict[int, str]:
    changed = ((c, unicodedata2.normalize(form, chr(c))) for c in CODE_POINTS if c not in HANGUL)
    return {c: text for c, text in changed if text != chr(c)}


def _combining() -> dict[int, int]:
    return {c: unicodedata2.combining(chr(c)) for c in CODE_POINTS if unicodedata2.combining(chr(c))}


def _case_folds() -> dict[int, str]:
    folds = {}
    for c in CODE_POINTS:
        folded = regex._regex.fold_case(regex.FULLCASE | regex.IGNORECASE | regex.UNICODE, chr(c))
        # `regex` also applies the Turkish foldings, which are not in the standard's default folding.
        folded = {"I": "i", "İ": "i̇", "ı": "ı"}.get(chr(c), folded)
        if unicodedata.category(chr(c)) != "Cn" and folded != chr(c).casefold():
            raise ValueError(f"U+{c:04X} folds to {folded!r}, to Python {chr(c).casefold()!r}")
        if folded != chr(c):
            folds[c] = folded
    return folds


def _members(expression: str) -> list[int]:
    found = regex.compile(expression)
    return [c for c in CODE_POINTS if found.match(chr(c))]


def _of_category(*categories: str) -> list[int]:
    return [c for c in CODE_POINTS if unicodedata2.category(chr(c)).startswith(categories)]


def _full_width() -> dict[int, str]:
    wide = [c for c in CODE_POINTS if unicodedata2.decomposition(chr(c)).startswith("<wide>")]
    return {c: unicodedata2.normalize("NFKC", chr(c)) for c in wide}


def _zeros() -> list[int]:
    found = [c for c in CODE_POINTS if unicodedata2.category(chr(c)) == "Nd" and unicodedata2.digit(chr(c)) == 0]
    for c in found:
        if [unicodedata2.digit(chr(c + i), -1) for i in range(10)] != list(range(10)):
            raise ValueError(f"the digits from U+{c:04X} on are not ten in a row")
    return found


def _emoji() -> dict[int, str]:
    emoji = _members(r"[\p{Extended_Pictographic}\p{Emoji_Presentation}\p{Emoji_Modifier}]")
    return {c: unicodedata2.name(chr(c)) for c in emoji if unicodedata2.name(chr(c), "")}


def _new_in(found: dict, known: dict) -> dict:
    """Returns the entries of `found` that `known` lacks. Unicode never changes existing ones."""
    if wrong := [key for key, value in known.items() if found.get(key) != value]:
        raise ValueError(f"Unicode has changed {wrong!r}")
    return {key: value for key, value in found.items() if key not in known}


def arrays(known: Arrays) -> Arrays:
    """Asks about every code point; leaves out data that the arrays from HF tokenizers have already.

    Raises:
      ValueError: if the libraries are of another version of Unicode.
    """
    if unicodedata2.unidata_version != TEXT_VERSION:
        raise ValueError(f"unicodedata2 is of Unicode {unicodedata2.unidata_version}, TEXT_VERSION is {TEXT_VERSION}")
    canonical, compatible = _decompositions("NFD"), _decompositions("NFKD")
    known_pairs = {(chr(a), chr(b)): chr(both) for a, b, both in known["normalization/compositions"].tolist()}
    known_classes = {c: k for k, a, b in known["bert/combining_classes"].tolist() for c in range(a, b + 1)}
    known_canonical, known_lower = texts_of(known["bert/decompositions"]), texts_of(known["bert/lowercase"])
    known_compatible = known_canonical | texts_of(known["normalization/compatibility"])
    classes: dict[int, list[int]] = {}
    for c, number in _new_in(_combining(), known_classes).items():
        classes.setdefault(number, []).append(c)
    folds, emoji = _case_folds(), _emoji()
    return {
        "text/canonical": packing.texts(_new_in(canonical, known_canonical)),
        "text/compatibility": packing.texts(
            {c: text for c, text in compatible.items() if known_compatible.get(c, canonical.get(c)) != text}
        ),
        "text/compositions": packing.pairs(_new_in(_compositions(), known_pairs)),
        "text/combining_classes": packing.numbered_runs(dict(sorted(classes.items()))),
        "text/case_folds": packing.texts(
            {c: folds.get(c, chr(c)) for c in {*folds, *known_lower} if folds.get(c) != known_lower.get(c)}
        ),
        "text/full_width": packing.texts(_full_width()),
        "text/nonspacing_marks": packing.runs(_of_category("Mn")),
        "text/punctuation": packing.runs(_of_category("P")),
        "text/latin": packing.runs(_members(r"\p{Script=Latin}")),
        "text/extended_pictographic": packing.runs(_members(r"\p{Extended_Pictographic}")),
        "text/emoji_presentation": packing.runs(_members(r"\p{Emoji_Presentation}")),
        "text/grapheme_extend": packing.runs(_members(r"\p{GCB=Extend}")),
        "text/zeros": packing.runs(_zeros()),
        "text/emoji": packing.numbers(emoji),
        "text/emoji_names": packing.names(emoji.values()),
    }
