# SPDX-License-Identifier: Apache-2.0
"""What happens to text by its language: the rules that are there without a config."""

from collections.abc import Mapping, Sequence
from typing import Any

DEFAULT = "default"
"""The rule of languages that have none of their own."""

RULES: Mapping[str, Sequence[str | Mapping[str, Any]]] = {
    DEFAULT: ["default"],
    # Full-width Latin letters, digits and punctuation in their narrow forms; what is Chinese only, as 。, stays.
    "zh": ["default", "full_width", {"segment": "han"}],
    # Half-width kana become kana, with their marks; that takes NFKC.
    "ja": ["nfkc", "default", {"segment": "japanese"}],
    # NFC joins letters to syllables. Korean writes spaces.
    "ko": ["default", "full_width"],
    # Presentation forms become letters, which takes NFKC; vowel signs stay.
    "ar": ["nfkc", "default", "tatweel", "ascii_digits"],
    # ё and й are letters: nothing is stripped. « » and dashes get one form.
    "ru": ["default", "punctuation"],
    # U+200B stands between words in Thai. Not NFKC: it would take ำ apart.
    "th": [{"regex": {"pattern": "\u200b+", "replace": " "}}, "default", "ascii_digits", {"segment": "thai"}],
    # NFC writes nukta letters in one way. Joiners and marks are part of the spelling and stay.
    "hi": ["default", "ascii_digits"],
}
"""Steps by language; see `tokenizer.text.parse_steps`."""
