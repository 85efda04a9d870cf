# SPDX-License-Identifier: Apache-2.0
"""Where characters come from, one text after the other in plain Python; and what columns say of single texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenmill.tokenizer import normalizers
from tokenmill.tokenizer.assembling import EncodedTexts, RowLayout
from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers.base import edits_of_characters, placed
from tokenmill.tokenizer.offsets import EncodedToken
from tokenmill.tokenizer.post_processors import TemplateProcessing, Truncation
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, PreTokenizer
from tokenmill.tokenizer.pre_tokenizers.sequence import flat
from tokenmill.tokenizer.ragged import characters_before, text_rows
from tokenmill.tokenizer.traced import PlacedText, Traced


def original(text: str, first: int = 0) -> PlacedText:
    """Returns an unchanged text; its first character is number `first` of the original."""
    return PlacedText(text, range(first, first + len(text)), range(first + 1, first + len(text) + 1))


def normalized(normalizer: Any, text: PlacedText) -> PlacedText:
    """Returns a normalized text by the edits of each step."""
    if isinstance(normalizer, normalizers.Sequence | normalizers.BertNormalizer):
        is_sequence = isinstance(normalizer, normalizers.Sequence)
        for step in normalizer.flat() if is_sequence else normalizer.steps():
            text = normalized(step, text)
        return text
    if isinstance(normalizer, normalizers.ByteLevel):
        spell = edits_of_characters(text.text, lambda c: "".join(BYTE_ALPHABET[b] for b in c.encode()))
        return placed(text, spell)
    return placed(text, normalizer.edits(text.text)) if text.text else text


def traced(normalizer: Any, text: str, first: int = 0) -> PlacedText:
    """Returns a text that was normalized as a column of one row."""
    return next(normalizer.trace(Traced.of_texts([original(text, first)])).texts())


def traced_words(
    pre_tokenizer: PreTokenizer, text: str, *, is_first: bool = True, first: int = 0
) -> list[tuple[str, tuple[int, int]]]:
    """Returns the pre-tokens of a text, spelled if steps follow a `ByteLevel`, and where they are."""
    pieces = pre_tokenizer.trace_rows(text_rows([text]), np.array([is_first]))
    assert pieces.origins is not None
    words, steps = pieces.words, [isinstance(step, ByteLevel) for step in flat(pre_tokenizer)]
    ends = np.stack((words.starts + 1, words.stops), 1).ravel()
    places = pieces.origins[characters_before(words.values, ends) - 1].reshape(-1, 2).tolist()
    found = []
    for i, (start, last) in enumerate(places):
        word = words.word(i)
        is_spelled = any(steps[:-1])
        spelled = "".join(BYTE_ALPHABET[b] for b in word) if is_spelled else word.decode()
        found.append((spelled, (first + start, first + last + 1)))
    return found


def assemble(
    template: TemplateProcessing, sequences: Sequence[list[EncodedToken]], truncation: Truncation | None = None,
    trims: tuple[bool, ...] = (),
) -> Encoding:  # fmt: skip
    """Lays out a text or a pair of which everything is known."""
    return EncodedTexts.given(sequences, RowLayout.of(template), truncation, trims).encodings()[0]
