# SPDX-License-Identifier: Apache-2.0
"""Writes `tokenizer/unicode_data.py` by asking HF tokenizers about every code point.

Run by hand (`python tests/parity/make_unicode_data.py`) when the pinned version of HF tokenizers changes; the diff is
reviewed. `test_unicode_tables.py` proves the committed file right on every run.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import tokenizers as hf
from tokenizers import normalizers, pre_tokenizers

TARGET = Path(__file__).parents[2] / "tokenizer" / "unicode_data.py"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)
# One character of each canonical combining class that Unicode uses, in ascending order of class.
CLASS_SAMPLES = {
    1: 0x334, 7: 0x93C, 8: 0x3099, 9: 0x94D, 10: 0x5B0, 11: 0x5B1, 12: 0x5B2, 13: 0x5B3, 14: 0x5B4, 15: 0x5B5,
    16: 0x5B6, 17: 0x5B7, 18: 0x5B8, 19: 0x5B9, 20: 0x5BB, 21: 0x5BC, 22: 0x5BD, 23: 0x5BF, 24: 0x5C1, 25: 0x5C2,
    26: 0xFB1E, 27: 0x64B, 28: 0x64C, 29: 0x64D, 30: 0x64E, 31: 0x64F, 32: 0x650, 33: 0x651, 34: 0x652, 35: 0x670,
    36: 0x711, 84: 0xC55, 91: 0xC56, 103: 0xE38, 107: 0xE48, 118: 0xEB8, 122: 0xEC8, 129: 0xF71, 130: 0xF72,
    132: 0xF74, 202: 0x321, 214: 0x1DCE, 216: 0x31B, 218: 0x302A, 220: 0x316, 222: 0x59A, 224: 0x302E, 226: 0x1D16D,
    228: 0x5AE, 230: 0x301, 232: 0x315, 233: 0x35C, 234: 0x35D, 240: 0x345,
}  # fmt: skip


def bert(**options: bool) -> normalizers.BertNormalizer:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **options})


def ranges(code_points: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for c in sorted(code_points):
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in runs)


def mapping(pairs: dict[int, str]) -> str:
    return " ".join(f"{c:x}={'.'.join(f'{ord(x):x}' for x in text)}" for c, text in sorted(pairs.items()))


def combining_class(c: int, nfd: normalizers.NFD) -> int:
    """Finds the class of `c` by how NFD orders it against characters of known class."""
    if nfd.normalize_str(chr(CLASS_SAMPLES[240]) + chr(c)) == chr(CLASS_SAMPLES[240]) + chr(c):
        if nfd.normalize_str(chr(c) + chr(CLASS_SAMPLES[1])) == chr(c) + chr(CLASS_SAMPLES[1]):
            return 0 if c != CLASS_SAMPLES[1] else 1
        return 240
    above = [
        k for k, sample in CLASS_SAMPLES.items() if nfd.normalize_str(chr(sample) + chr(c)) != chr(sample) + chr(c)
    ]
    below = [k for k in CLASS_SAMPLES if k < min(above)]
    return max(below)


def word_characters() -> list[int]:
    """Finds what stops an added token from being a single word: `\\w` of the Rust regex crate."""
    tokenizer = hf.Tokenizer(hf.models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([hf.AddedToken("\u2295", single_word=True, normalized=False)])
    return [c for c in CODE_POINTS if tokenizer.encode(f"{chr(c)}\u2295").ids == [0]]


def literal(name: str, text: str, doc: str) -> str:
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) + 1 > 112:
            lines.append(line)
            line = ""
        line += word + " "
    body = "\n".join(f'    "{x}"' for x in [*lines, line.rstrip()])
    return f'{name} = (\n{body}\n)\n"""{doc}"""\n'


def main() -> None:
    cleaner, cjk, strip = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
    lower, nfd, splitter = bert(lowercase=True), normalizers.NFD(), pre_tokenizers.BertPreTokenizer()
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
    classes = {c: combining_class(c, nfd) for c in CODE_POINTS if nfd.normalize_str(chr(c)) == chr(c)}
    by_class: dict[int, list[int]] = {}
    for c, k in classes.items():
        if k:
            by_class.setdefault(k, []).append(c)
    parts = [
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""Character properties as HF tokenizers knows them; generated, do not edit.\n\n'
        f"Made by tests/parity/make_unicode_data.py from tokenizers {hf.__version__}, by asking it "
        "about every code point. Its general\n"
        "categories are those of Unicode 8.0, its canonical decompositions and combining classes of Unicode 9.0, its\n"
        "lower-case mappings of Unicode 17.0. All numbers are hexadecimal.\n"
        '"""\n',
        'UNICODE_VERSIONS = {"categories": "8.0.0", "decompositions": "9.0.0", "lowercase": "17.0.0"}\n'
        '"""Part of every result, and so of every manifest."""\n',
        literal("DROPPED", ranges(dropped), "Clean-up removes these: NUL, U+FFFD, Cc, Cf, Co except tab, line ends."),
        literal("SPACES", ranges(spaces), "White space; separates words."),
        literal("PUNCTUATION", ranges(punctuation), "BERT's punctuation: P*, and every other printable ASCII symbol."),
        literal("CJK", ranges(isolated), "Ideographs, each a word of its own when CJK isolation is on."),
        literal("NONSPACING_MARKS", ranges(marks), "Mn without a canonical decomposition; stripped as accents."),
        literal("DECOMPOSITIONS", mapping(decomposed), "Full canonical decompositions, Hangul syllables left out."),
        literal("WORD_CHARACTERS", ranges(word_characters()), "Part of a word, for single_word added tokens."),
        literal(
            "COMBINING_CLASSES",
            " ".join(f"{run}={k:x}" for k, v in sorted(by_class.items()) for run in ranges(v).split(" ")),
            "Characters, then their canonical combining class; class 0 left out.",
        ),
        literal("LOWERCASE", mapping(lowered), "Full lower-case mappings; context is ignored, final sigma too."),
    ]  # fmt: skip
    TARGET.write_text("\n".join(parts), encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
