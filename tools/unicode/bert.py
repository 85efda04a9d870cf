# SPDX-License-Identifier: Apache-2.0
"""Makes `bert/`: the character data of HF tokenizers' BERT normalizer and pre-tokenizer."""

import tokenizers as hf
from tokenizers import normalizers, pre_tokenizers

from tools.unicode import packing
from tools.unicode.packing import CODE_POINTS, HANGUL, Arrays

# One character of each canonical combining class that Unicode uses, in ascending order of class.
CLASS_SAMPLES = {
    1: 0x334, 7: 0x93C, 8: 0x3099, 9: 0x94D, 10: 0x5B0, 11: 0x5B1, 12: 0x5B2, 13: 0x5B3, 14: 0x5B4, 15: 0x5B5,
    16: 0x5B6, 17: 0x5B7, 18: 0x5B8, 19: 0x5B9, 20: 0x5BB, 21: 0x5BC, 22: 0x5BD, 23: 0x5BF, 24: 0x5C1, 25: 0x5C2,
    26: 0xFB1E, 27: 0x64B, 28: 0x64C, 29: 0x64D, 30: 0x64E, 31: 0x64F, 32: 0x650, 33: 0x651, 34: 0x652, 35: 0x670,
    36: 0x711, 84: 0xC55, 91: 0xC56, 103: 0xE38, 107: 0xE48, 118: 0xEB8, 122: 0xEC8, 129: 0xF71, 130: 0xF72,
    132: 0xF74, 202: 0x321, 214: 0x1DCE, 216: 0x31B, 218: 0x302A, 220: 0x316, 222: 0x59A, 224: 0x302E, 226: 0x1D16D,
    228: 0x5AE, 230: 0x301, 232: 0x315, 233: 0x35C, 234: 0x35D, 240: 0x345,
}  # fmt: skip


def _bert(**options: bool) -> normalizers.BertNormalizer:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **options})


def _combining_class(c: int, nfd: normalizers.NFD) -> int:
    """Finds the class of `c` from the order in which NFD puts it and characters of known class."""
    if nfd.normalize_str(chr(CLASS_SAMPLES[240]) + chr(c)) == chr(CLASS_SAMPLES[240]) + chr(c):
        if nfd.normalize_str(chr(c) + chr(CLASS_SAMPLES[1])) == chr(c) + chr(CLASS_SAMPLES[1]):
            return 0 if c != CLASS_SAMPLES[1] else 1
        return 240
    above = [
        k for k, sample in CLASS_SAMPLES.items() if nfd.normalize_str(chr(sample) + chr(c)) != chr(sample) + chr(c)
    ]
    below = [k for k in CLASS_SAMPLES if k < min(above)]
    return max(below)


def _word_characters() -> list[int]:
    r"""Finds the characters that are part of a word next to an added token: `\w` of the Rust regex crate."""
    tokenizer = hf.Tokenizer(hf.models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([hf.AddedToken("\u2295", single_word=True, normalized=False)])
    return [c for c in CODE_POINTS if tokenizer.encode(f"{chr(c)}\u2295").ids == [0]]


def arrays() -> Arrays:
    """Asks HF tokenizers about every code point."""
    cleaner, cjk, strip = _bert(clean_text=True), _bert(handle_chinese_chars=True), _bert(strip_accents=True)
    lower, nfd, splitter = _bert(lowercase=True), normalizers.NFD(), pre_tokenizers.BertPreTokenizer()
    dropped, isolated, marks, spaces, punctuation = [], [], [], [], []
    decomposed: dict[int, str] = {}
    lowered: dict[int, str] = {}
    for c in CODE_POINTS:
        x = chr(c)
        if cleaner.normalize_str(f"a{x}b") == "ab":
            dropped.append(c)
        if cjk.normalize_str(x) != x:
            isolated.append(c)
        full = nfd.normalize_str(x)
        if full != x and c not in HANGUL:
            decomposed[c] = full
        if full == x and strip.normalize_str(x) == "":
            marks.append(c)
        if lower.normalize_str(x) != x:
            lowered[c] = lower.normalize_str(x)
        pieces = splitter.pre_tokenize_str(f"a{x}b")
        if len(pieces) == 2:
            spaces.append(c)
        elif len(pieces) == 3:
            punctuation.append(c)
    by_class: dict[int, list[int]] = {}
    for c in CODE_POINTS:
        if nfd.normalize_str(chr(c)) == chr(c) and (number := _combining_class(c, nfd)):
            by_class.setdefault(number, []).append(c)
    return {
        "bert/dropped": packing.runs(dropped),
        "bert/spaces": packing.runs(spaces),
        "bert/punctuation": packing.runs(punctuation),
        "bert/cjk": packing.runs(isolated),
        "bert/nonspacing_marks": packing.runs(marks),
        "bert/decompositions": packing.texts(decomposed),
        "bert/word_characters": packing.runs(_word_characters()),
        "bert/combining_classes": packing.numbered_runs(dict(sorted(by_class.items()))),
        "bert/lowercase": packing.texts(lowered),
    }
