# SPDX-License-Identifier: Apache-2.0
"""Reference implementations of the kernels that count words, in plain Python."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.reference.tracing import original, traced, traced_words
from tokenmill.tokenizer.models import WordPiece
from tokenmill.tokenizer.normalizers import Normalizer
from tokenmill.tokenizer.pre_tokenizers import PreTokenizer
from tokenmill.tokenizer.reference_encoding import wordpiece


def count_pre_tokens(
    texts: Iterable[str], normalizer: Normalizer | None, pre_tokenizer: PreTokenizer | None
) -> Counter[str]:
    """Counts the normalized pre-tokens of texts, one text after the other, as `Tokenizer.encode` finds them."""
    counts: Counter[str] = Counter()
    for text in texts:
        placed = original(text)
        if normalizer is not None:
            placed = traced(normalizer, text)
        if not placed.text:
            continue
        keeps_start = placed.starts[0] == 0
        if pre_tokenizer is None:
            counts[placed.text] += 1
        else:
            counts.update(word for word, _ in traced_words(pre_tokenizer, placed.text, is_first=keeps_start))
    return counts


def sentencepiece_words(text: str, at_end: bool) -> list[str]:
    """Cuts a text from `SentencePieceNormalizer` before every "▁", or, if white space is a suffix, after it."""
    words = [""]
    for char in text:
        if at_end:
            words[-1] += char
        if char == "\u2581":
            words.append("")
        if not at_end:
            words[-1] += char
    return [word for word in words if word]


def swallowed_characters(words: Mapping[str, int], model: WordPiece) -> Counter[str]:
    """Counts the characters that the unknown token covers; words: word -> how often it occurred."""
    swallowed: Counter[str] = Counter()
    for word, count in words.items():
        for token, covered in wordpiece(word, model):
            if token == model.unk_token:
                for char in covered:
                    swallowed[char] += count
    return swallowed
