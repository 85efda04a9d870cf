# SPDX-License-Identifier: Apache-2.0
"""Reference implementation of BERT's kernels, in plain Python, short enough to be believed by reading.

It shares with the kernels the character data of `unicode.data` and nothing else: no tables, no caches, no tries.
"""

import functools
from collections import Counter
from collections.abc import Iterable

from tokenmill.tokenizer.models import WordPiece
from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.reference_encoding import wordpiece
from tokenmill.tokenizer.unicode import data as unicode_data


@functools.cache
def _members(name: str) -> frozenset[int]:
    return frozenset(c for first, last in unicode_data.runs(f"bert/{name}") for c in range(first, last + 1))


@functools.cache
def _mapping(name: str) -> dict[str, str]:
    return {chr(c): text for c, text in unicode_data.texts(name).items()}


@functools.cache
def _decompositions(unicode: str) -> dict[str, str]:
    return _mapping("bert/decompositions") | (_mapping("text/canonical") if unicode == "17" else {})


@functools.cache
def _combining(unicode: str) -> dict[str, int]:
    names = ["bert/combining_classes", *(["text/combining_classes"] if unicode == "17" else [])]
    runs = [run for name in names for run in unicode_data.array(name).tolist()]
    found = {chr(c): number for number, first, last in runs for c in range(first, last + 1)}
    return found if unicode == "8" else {c: number for c, number in found.items() if ord(c) not in _since_18()}


@functools.cache
def _punctuation(unicode: str) -> frozenset[int]:
    if unicode == "8":
        return _members("punctuation")
    newer = {c for first, last in unicode_data.runs("text/punctuation") for c in range(first, last + 1)}
    return frozenset(newer - _since_18() | {c for c in _members("punctuation") if c < 0x80})


@functools.cache
def _since_18() -> frozenset[int]:
    return frozenset(c for first, last in unicode_data.SINCE_18 for c in range(first, last + 1))


def is_in(char: str, name: str) -> bool:
    """Whether a character has a property that HF's BERT tests: `is_in("!", "punctuation")`."""
    return ord(char) in _members(name)


def nfd(text: str, unicode: str = "8") -> str:
    """Decomposes canonically, then sorts each run of combining characters by class, stably."""
    chars: list[str] = []
    for char in text:
        index = ord(char) - 0xAC00
        if 0 <= index < 11172:
            chars += chr(0x1100 + index // 588), chr(0x1161 + index % 588 // 28)
            if index % 28:
                chars.append(chr(0x11A7 + index % 28))
        else:
            chars += _decompositions(unicode).get(char, char)
    start = 0
    for i in range(len(chars) + 1):
        if i == len(chars) or _combining(unicode).get(chars[i], 0) == 0:
            chars[start:i] = sorted(chars[start:i], key=lambda c: _combining(unicode).get(c, 0))
            start = i + 1
    return "".join(chars)


def normalize(text: str, normalizer: BertNormalizer) -> str:
    """Does what `BertNormalizer` does, step by step."""
    if normalizer.clean_text:
        text = "".join(c for c in text if not is_in(c, "dropped"))
        text = "".join(" " if is_in(c, "spaces") else c for c in text)
    if normalizer.handle_chinese_chars:
        text = "".join(f" {c} " if is_in(c, "cjk") else c for c in text)
    if normalizer.options()["strip_accents"]:
        text = "".join(c for c in nfd(text, normalizer.unicode) if not is_in(c, "nonspacing_marks"))
    if normalizer.lowercase:
        text = "".join(_mapping("bert/lowercase").get(c, c) for c in text)
    return text


def pre_tokenize(text: str, unicode: str = "8") -> list[str]:
    """Does what `BertPreTokenizer` does to normalized text."""
    words = [""]
    for char in text:
        if is_in(char, "spaces"):
            words.append("")
        elif ord(char) in _punctuation(unicode):
            words += [char, ""]
        else:
            words[-1] += char
    return [word for word in words if word]


def encode(text: str, normalizer: BertNormalizer, model: WordPiece) -> list[int]:
    """Encodes one text like BERT, without special tokens."""
    words = pre_tokenize(normalize(text, normalizer), normalizer.unicode)
    return [model.vocab[token] for word in words for token, _ in wordpiece(word, model)]


def count_words(texts: Iterable[str], normalizer: BertNormalizer) -> Counter[str]:
    """Counts the normalized pre-tokens of texts."""
    return Counter(word for text in texts for word in pre_tokenize(normalize(text, normalizer), normalizer.unicode))
