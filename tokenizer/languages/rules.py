# SPDX-License-Identifier: Apache-2.0
"""The built-in rules: text steps by language, for those who ask for them."""

from collections.abc import Mapping, Sequence
from typing import Any

DEFAULT = "default"
"""The name of the rule for languages without their own."""

RULES: Mapping[str, Sequence[str | Mapping[str, Any]]] = {
    DEFAULT: ["default"],
    # Full-width Latin letters, digits and punctuation become narrow; Chinese punctuation, like 。, stays.
    "zh": ["default", "full_width", {"segment": "han"}],
    # Half-width kana become kana, with their marks; that takes NFKC.
    "ja": ["nfkc", "default", {"segment": "japanese"}],
    # NFC joins letters to syllables. Korean writes spaces.
    "ko": ["default", "full_width"],
    # Presentation forms become letters, which takes NFKC; vowel signs stay.
    "ar": ["nfkc", "default", "tatweel", "ascii_digits"],
    # ё and й are letters: nothing is stripped. « » and dashes get one form.
    "ru": ["default", "punctuation"],
    # U+200B separates words in Thai. Not NFKC, which would decompose ำ.
    "th": [{"regex": {"pattern": "\u200b+", "replace": " "}}, "default", "ascii_digits", {"segment": "thai"}],
    # NFC writes nukta letters in one way. Joiners and marks are part of the spelling and stay.
    "hi": ["default", "ascii_digits"],
}
"""Steps by language; see `tokenmill.tokenizer.text.parse_steps`."""
