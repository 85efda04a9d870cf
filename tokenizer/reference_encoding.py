# SPDX-License-Identifier: Apache-2.0
"""Encoding in plain Python, by reference implementations: what `verify --deep` compares columns with.

It takes a text through the parts of a tokenizer one after the other: no plan, no engine, no word cache, no batch.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from tokenmill.tokenizer import reference
from tokenmill.tokenizer.added_tokens import AddedToken, SpecialPolicy
from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.models import BPE, WordPiece
from tokenmill.tokenizer.normalizers import Normalizer, SentencePieceNormalizer
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import unspell


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of one text as `Tokenizer.encode_bare` gives them, slowly: BPE takes a word's length squared.

    Raises:
      UnknownCharacterError: as `encode_bare`.
    """
    normalizer, pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    words_of = _model(tokenizer)
    raw = [(token.content, token) for token in tokenizer.added_tokens if not token.normalized]
    late = [(_normalized(normalizer, t.content), t) for t in tokenizer.added_tokens if t.normalized]
    ids: list[int] = []
    for i, (segment, token_id) in enumerate(_segments(AlignedText.original(text), raw, tokenizer.special)):
        if token_id >= 0:
            ids.append(token_id)
            continue
        starts_text = i == 0
        if normalizer is not None and segment.text:
            begin = segment.starts[0]
            segment = normalizer.normalize_aligned(segment)
            # A text whose first characters were removed starts later; see `NormalizingStage`.
            starts_text = starts_text and (not segment.text or segment.starts[0] == begin)
        for j, (part, part_id) in enumerate(_segments(segment, late, tokenizer.special)):
            if part_id >= 0:
                ids.append(part_id)
            elif pre_tokenizer is None:
                ids += words_of(part.text) if part.text else []
            else:
                for word in pre_tokenizer.split_aligned(part, starts_text and j == 0):
                    ids += words_of(word.text)
    return ids


def _normalized(normalizer: Normalizer | None, content: str) -> str:
    if normalizer is None or isinstance(normalizer, SentencePieceNormalizer):
        return content  # see `added_tokens.normalized_content`
    return normalizer.normalize_aligned(AlignedText.original(content)).text


def _model(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Returns the model as a function from a word to its ids."""
    model = tokenizer.model
    if isinstance(model, WordPiece):
        return lambda word: [model.vocab[token] for token, _ in reference.wordpiece(word, model)]
    if isinstance(model, BPE) and is_byte_level(tokenizer.pre_tokenizer):
        by_bytes = dataclasses.replace(model, byte_level=True)
        pre_tokenizer = tokenizer.pre_tokenizer
        to_bytes = unspell if pre_tokenizer is not None and pre_tokenizer.spells_bytes else str.encode
        return lambda word: [token for token, _ in by_bytes.tokenize_bytes(to_bytes(word))]
    return lambda word: [token for token, _ in model.tokenize(word)]


def _segments(
    text: AlignedText, tokens: Sequence[tuple[str, AddedToken]], special: SpecialPolicy
) -> Iterator[tuple[AlignedText, int]]:
    """Yields the parts of a text with the id of each that is an added token, -1 for text; leftmost, longest first."""
    by_text = dict(tokens)
    by_text.pop("", None)
    if not by_text or not text.text:
        yield text, -1
        return
    lengths: dict[str, list[int]] = {}
    for content in sorted(by_text, key=len, reverse=True):
        lengths.setdefault(content[0], []).append(len(content))
    data, at, i = text.text, 0, 0
    while i < len(data):
        n = next((n for n in lengths.get(data[i], ()) if data[i : i + n] in by_text), 0)
        if not n:
            i += 1
            continue
        token, start, stop = by_text[data[i : i + n]], i, i + n
        i = stop
        if token.special and special != "split":
            continue
        if token.single_word and (_is_word(data[start - 1 : start]) or _is_word(data[stop : stop + 1])):
            continue
        while token.lstrip and start > at and reference.is_in(data[start - 1], "spaces"):
            start -= 1
        while token.rstrip and stop < len(data) and reference.is_in(data[stop], "spaces"):
            stop += 1
        start = max(start, at)
        if stop <= start:  # the token before has taken all of its text
            if token.lstrip:
                continue
            stop = start
        if at < start:
            yield text[at:start], -1
        yield text[start:stop], token.id
        at = stop
    if at < len(data):
        yield text[at:], -1


def _is_word(character: str) -> bool:
    return character != "" and reference.is_in(character, "word_characters")
