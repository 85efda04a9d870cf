# SPDX-License-Identifier: Apache-2.0
"""Makes `normalization/`: the normal forms and graphemes of HF tokenizers."""

import struct

from tokenizers import normalizers

from tools.unicode import packing
from tools.unicode.packing import CODE_POINTS, HANGUL, Arrays


def _one_for_each_grapheme() -> normalizers.Precompiled:
    """Returns a character map by which every grapheme of less than six bytes, and every other character, becomes `x`.

    Its trie has all bytes except NUL as keys, so that a grapheme and each of its characters has a prefix in it.
    """
    units = [0] * 1024
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 + byte] = ((256 + byte) ^ 512) << 10 | 1 << 8 | byte
    units[512] = 1 << 31
    return normalizers.Precompiled(struct.pack("<I1024I", 4096, *units) + b"x\0")


def _compositions() -> dict[tuple[str, str], str]:
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    pairs = {}
    for c in CODE_POINTS:
        full = nfd.normalize_str(chr(c))
        if full != chr(c) and c not in HANGUL and nfc.normalize_str(chr(c)) == chr(c):
            first = nfc.normalize_str(full[:-1])
            if len(first) != 1 or nfc.normalize_str(first + full[-1]) != chr(c):
                raise ValueError(f"U+{c:04X} is not made of two characters: {full!r}")
            pairs[first, full[-1]] = chr(c)
    return pairs


def _grapheme_classes() -> dict[str, list[int]]:
    """Finds the grapheme category of each character, as far as it matters for graphemes of less than six bytes."""
    ask = _one_for_each_grapheme().normalize_str

    def joined(text: str) -> bool:
        """Whether the text has exactly one grapheme of two characters with less than six bytes, and no longer one."""
        return len(ask(text)) == len(text) - 1

    found: dict[str, list[int]] = {}

    def add(name: str, c: int) -> None:
        found.setdefault(name, []).append(c)

    accent = "\u0301"  # two bytes, Extend: with a character of three bytes it makes a grapheme that can be seen
    long = "\u20d0\u20d0"  # Extend, too: makes what is before it a grapheme too long to be seen
    pictograph, consonant, virama = "\u263a", "\u0915", "\u094d"
    for c in CODE_POINTS:
        x = chr(c)
        if x in "\r\n":
            continue
        if joined("a" + x):
            if not joined(f"{pictograph}{long}{x}{pictograph}{accent}"):
                add("ZWJ", c)
            elif not joined(f"{pictograph}{long}{x}\u200d{pictograph}{accent}"):
                add("EXTEND", c)
            else:
                add("SPACING_MARK", c)
            if not joined(f"{consonant}{long}{x}{consonant}{accent}"):
                add("LINKER", c)
            elif not joined(f"{consonant}{long}{virama}{x}{consonant}{accent}"):
                add("CONJUNCT_EXTEND", c)
        elif joined(x + "a"):
            add("PREPEND", c)
        elif joined(x + accent + accent):
            add("CONTROL", c)
        elif not joined(f"{x}{long}\u200d{pictograph}{accent}"):
            add("PICTOGRAPH", c)
        elif not joined(f"{x}{long}{virama}{consonant}{accent}"):
            add("CONSONANT", c)
        elif not joined(f"{x}\uac00{accent}"):
            add("HANGUL_L", c)
        elif not joined(f"{x}\u1161{accent}"):
            # A character of four bytes can only be recognized by the characters that may follow it.
            after_vowel = len(x.encode()) > 3 or not joined(f"\u1161{x}{accent}")
            add("HANGUL_V" if after_vowel else "HANGUL_LV", c)
        elif not joined(f"{x}\u11a8{accent}"):
            after_trail = not joined(f"\u11a8{x}{accent}")
            add("HANGUL_T" if after_trail else "HANGUL_LVT", c)
    return found


_GRAPHEME_NAMES = (
    "CONTROL", "EXTEND", "ZWJ", "SPACING_MARK", "PREPEND", "PICTOGRAPH", "CONSONANT", "LINKER", "CONJUNCT_EXTEND",
    "HANGUL_L", "HANGUL_V", "HANGUL_T", "HANGUL_LV", "HANGUL_LVT",
)  # fmt: skip


def arrays() -> Arrays:
    """Asks HF tokenizers about every code point."""
    nfd, nfkd, strip = normalizers.NFD(), normalizers.NFKD(), normalizers.StripAccents()
    compatible = {c: nfkd.normalize_str(chr(c)) for c in CODE_POINTS}
    graphemes = _grapheme_classes()
    return {
        "normalization/compatibility": packing.texts(
            {c: to for c, to in compatible.items() if to != nfd.normalize_str(chr(c))}
        ),
        "normalization/compositions": packing.pairs(_compositions()),
        "normalization/combining_marks": packing.runs(c for c in CODE_POINTS if strip.normalize_str(chr(c)) == ""),
        "normalization/graphemes": packing.numbered_runs(
            {number: graphemes[name] for number, name in enumerate(_GRAPHEME_NAMES)}
        ),
        "normalization/grapheme_names": packing.names(_GRAPHEME_NAMES),
    }
