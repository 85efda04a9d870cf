# SPDX-License-Identifier: Apache-2.0
"""Encoding in plain Python, by reference implementations: what `verify --deep` compares columns with.

It takes a text through the parts of a tokenizer one after the other: no plan, no engine, no word cache, no batch.
"""

import dataclasses
from collections.abc import Callable

from tokenmill.tokenizer.added_tokens import Contents, segments_of
from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.models import BPE, WordPiece
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
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
    raw = Contents.of((token.content, token) for token in tokenizer.added_tokens if not token.normalized)
    late = Contents.of((_normalized(normalizer, t.content), t) for t in tokenizer.added_tokens if t.normalized)
    ids: list[int] = []
    for i, (segment, token_id) in enumerate(segments_of(AlignedText.original(text), raw, tokenizer.special)):
        if token_id >= 0:
            ids.append(token_id)
            continue
        starts_text = i == 0
        if normalizer is not None and segment.text:
            begin = segment.starts[0]
            segment = normalizer.normalize_aligned(segment)
            # A text whose first characters were removed starts later; see `NormalizingStage`.
            starts_text = starts_text and (not segment.text or segment.starts[0] == begin)
        for j, (part, part_id) in enumerate(segments_of(segment, late, tokenizer.special)):
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
    model, pre_tokenizer = tokenizer.model, tokenizer.pre_tokenizer
    is_spelled = pre_tokenizer is not None and pre_tokenizer.spells_bytes
    if isinstance(model, BPE) and is_byte_level(pre_tokenizer):
        by_bytes = dataclasses.replace(model, byte_level=True)
        to_bytes = unspell if is_spelled else str.encode
        return lambda word: [token for token, _ in by_bytes.tokenize_bytes(to_bytes(word))]

    def read(word: str) -> str:
        spells = is_byte_level(pre_tokenizer) and not is_spelled
        return "".join(BYTE_ALPHABET[byte] for byte in word.encode()) if spells else word

    if isinstance(model, WordPiece):
        return lambda word: [model.vocab[token] for token, _ in wordpiece(read(word), model)]
    return lambda word: [token for token, _ in model.tokenize(read(word))]


def wordpiece(word: str, model: WordPiece) -> list[tuple[str, str]]:
    """Tokenizes one word into pairs of token and the characters it covers; see `models.WordPiece` for the policies.

    Of the byte tokens of one character, the first covers it, the others cover nothing.
    """
    vocab, unk, prefix = model.vocab, model.unk_token, model.continuing_subword_prefix
    policy = model.oov_policy

    def longest(start: int, continuing: bool, n_chars: int) -> tuple[str, str] | None:
        """Returns the longest entry at `start`, of at most `n_chars` characters, and the characters it covers."""
        for stop in range(min(len(word), start + n_chars), start, -1):
            covered = word[start:stop]
            piece = prefix + covered if continuing else covered
            # An entry with the prefix continues a word, or begins a word that itself begins with the prefix.
            begins = start == 0 or not prefix or not piece.startswith(prefix) or piece == prefix
            if piece in vocab and (continuing or begins):
                return piece, covered
        return None

    pieces: list[tuple[str, str]] = []
    start = 0
    if policy == "word":
        if len(word) > model.max_input_chars_per_word:
            return [(unk, word)]
        while start < len(word):
            found = longest(start, start > 0, len(word))
            if found is None:
                return [(unk, word)]
            pieces.append(found)
            start += len(found[1])
        return pieces

    whole = longest(0, False, len(word))
    if policy == "char" and whole and whole[1] == word:
        return [whole]
    reach = 1 if policy == "char" else len(word)
    while start < len(word):
        in_place = start > 0 and policy != "char"
        found = longest(start, in_place, reach) or longest(start, not in_place, reach)
        if found:
            pieces.append(found)
            start += len(found[1])
            continue
        char = word[start]
        byte_tokens = [f"<0x{b:02X}>" for b in char.encode()]
        if policy == "byte" and all(t in vocab for t in byte_tokens):
            pieces += [(t, "" if i else char) for i, t in enumerate(byte_tokens)]
        elif policy != "char" and pieces and pieces[-1][0] == unk:
            pieces[-1] = (unk, pieces[-1][1] + char)
        else:
            pieces.append((unk, char))
        start += 1
    return pieces
