# SPDX-License-Identifier: Apache-2.0
"""Encoding in plain Python, by reference implementations: what `verify --deep` compares columns with.

It takes a text through the parts of a tokenizer one after the other: no plan, no engine, no word cache, no batch.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer.added_tokens import Contents, Segments, segments_of
from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.models import BPE, WordPiece
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers import Normalizer, SentencePieceNormalizer
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import unspell
from tokenmill.tokenizer.ragged import Ragged, text_rows

_CACHED_WORDS = 1 << 16


class TextByText:
    """Encodes columns as a `Tokenizer` does, but by any function, which gets one text at a time."""

    def __init__(self, encode: Callable[[str, bool], list[int]]) -> None:
        """Takes the function: from a text, and whether it begins a row, to its ids."""
        self._encode = encode

    def encode_bare(self, texts: Any, tally: Tally | None = None) -> pa.LargeListArray:
        """Does what `Tokenizer.encode_bare` does, and counts nothing."""
        return self.encode_segments(text_rows(texts))

    def encode_segments(self, text: Ragged | Segments) -> pa.LargeListArray:
        """Does what `Tokenizer.encode_segments` does."""
        if not isinstance(text, Segments):
            text = Segments(text, np.full(text.n_rows, -1, np.int32), np.arange(text.n_rows + 1))
        values, bounds = text.rows.values, text.rows.offsets.tolist()
        ids = [
            [
                token
                for i in range(first, last)
                for token in (
                    [int(text.tokens[i])]
                    if text.tokens[i] >= 0
                    else self._encode(values[bounds[i] : bounds[i + 1]].tobytes().decode(), i == first)
                )
            ]
            for first, last in itertools.pairwise(text.row_segments.tolist())
        ]
        return pa.array(ids, pa.large_list(pa.int32()))


class Reference:
    """Encodes texts, slowly, but in time linear in their length; takes about 300 bytes of memory for a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes the parts of a tokenizer as they are now; its truncation and padding do not count."""
        self._special, added = tokenizer.special, tokenizer.added_tokens
        self._normalizer, self._pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
        self._raw = Contents.of((token.content, token) for token in added if not token.normalized)
        self._late = Contents.of((_normalized(self._normalizer, t.content), t) for t in added if t.normalized)
        # A word has the same ids wherever it stands.
        self._words_of = functools.lru_cache(_CACHED_WORDS)(_model(tokenizer))

    def encode(self, text: str, begins: bool = True) -> list[int]:
        """Returns the ids of one text as `Tokenizer.encode_bare` gives them.

        Args:
          text: the text.
          begins: whether it begins a row; False if it follows a token.

        Raises:
          UnknownCharacterError: as `encode_bare`.
        """
        normalizer, pre_tokenizer = self._normalizer, self._pre_tokenizer
        ids: list[int] = []
        for i, (segment, token_id) in enumerate(segments_of(AlignedText.original(text), self._raw, self._special)):
            if token_id >= 0:
                ids.append(token_id)
                continue
            starts_text = begins and i == 0
            if normalizer is not None and segment.text:
                begin = segment.starts[0]
                segment = normalizer.normalize_aligned(segment)
                # A text whose first characters were removed starts later; see `NormalizingStage`.
                starts_text = starts_text and (not segment.text or segment.starts[0] == begin)
            for j, (part, part_id) in enumerate(segments_of(segment, self._late, self._special)):
                if part_id >= 0:
                    ids.append(part_id)
                elif pre_tokenizer is None:
                    ids += self._words_of(part.text) if part.text else []
                else:
                    for word in pre_tokenizer.split_aligned(part, starts_text and j == 0):
                        ids += self._words_of(word.text)
        return ids


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of one text; see `Reference.encode`."""
    return Reference(tokenizer).encode(text)


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


@functools.lru_cache(maxsize=16)
def _longest_entry(model: WordPiece) -> int:
    return max(map(len, model.vocab), default=0)


def wordpiece(word: str, model: WordPiece) -> list[tuple[str, str]]:
    """Tokenizes one word into pairs of token and the characters it covers; see `models.WordPiece` for the policies.

    Of the byte tokens of one character, the first covers it, the others cover nothing.
    """
    vocab, unk, prefix = model.vocab, model.unk_token, model.continuing_subword_prefix
    policy = model.oov_policy
    most = _longest_entry(model)

    def longest(start: int, continuing: bool, n_chars: int) -> tuple[str, str] | None:
        """Returns the longest entry at `start`, of at most `n_chars` characters, and the characters it covers."""
        for stop in range(min(len(word), start + n_chars, start + most), start, -1):
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
