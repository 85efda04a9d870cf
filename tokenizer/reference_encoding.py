# SPDX-License-Identifier: Apache-2.0
"""Encoding in plain Python, by reference implementations: what `verify --deep` compares columns with.

It takes a text through the parts of a tokenizer one after the other: no plan, no engine, no word cache, no batch.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer.added_tokens import AddedToken, Segments, SpecialPolicy
from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.models import BPE, WordPiece
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers import Normalizer, SentencePieceNormalizer
from tokenmill.tokenizer.normalizing import keeps_start
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.ragged import Ragged, text_rows
from tokenmill.tokenizer.traced import Traced
from tokenmill.tokenizer.unicode import tables as unicode_tables

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
        ids: list[int] = []
        for start, stop, token_id in segments_of(text, self._raw, self._special):
            if token_id >= 0:
                ids.append(token_id)
                continue
            part, starts_text = text[start:stop], begins and start == 0
            if self._normalizer is not None and part:
                raw = Traced.original(text_rows([part]))
                traced = self._normalizer.trace(raw)
                part = next(traced.texts()).text
                # A text whose first characters were removed starts later; see `NormalizingStage`.
                starts_text = starts_text and bool(keeps_start(raw, traced)[0])
            for first, last, late_id in segments_of(part, self._late, self._special):
                ids += [late_id] if late_id >= 0 else self._ids_of(part[first:last], starts_text and first == 0)
        return ids

    def _ids_of(self, text: str, is_first: bool) -> list[int]:
        if self._pre_tokenizer is None:
            return self._words_of(text.encode()) if text else []
        words = self._pre_tokenizer.split_rows(text_rows([text]), np.array([is_first]))
        return [token for i in range(words.n_words) for token in self._words_of(words.word(i))]


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of one text; see `Reference.encode`."""
    return Reference(tokenizer).encode(text)


def _normalized(normalizer: Normalizer | None, content: str) -> str:
    if normalizer is None or isinstance(normalizer, SentencePieceNormalizer):
        return content  # see `added_tokens.normalized_content`
    return next(normalizer.trace(Traced.original(text_rows([content]))).texts()).text


def _model(tokenizer: Tokenizer) -> Callable[[bytes], list[int]]:
    """Returns the model as a function from a word, as bytes of the text, to its ids."""
    model, is_spelled = tokenizer.model, is_byte_level(tokenizer.pre_tokenizer)
    if isinstance(model, BPE) and is_spelled:
        by_bytes = dataclasses.replace(model, byte_level=True)
        return lambda word: [token for token, _ in by_bytes.tokenize_bytes(word)]

    def read(word: bytes) -> str:
        return "".join(BYTE_ALPHABET[byte] for byte in word) if is_spelled else word.decode()

    if isinstance(model, WordPiece):
        return lambda word: [_id_of(token, model) for token, _ in wordpiece(read(word), model)]
    return lambda word: [token for token, _ in model.tokenize(read(word))]


def _id_of(token: str, model: WordPiece) -> int:
    if token not in model.vocab:
        raise UnknownCharacterError
    return model.vocab[token]


class Contents(NamedTuple):
    """What added tokens look like in a text, for `segments_of`."""

    tokens: dict[str, AddedToken]
    lengths: dict[str, list[int]]
    """The lengths of those that begin with a character, the longest first."""

    @classmethod
    def of(cls, tokens: Iterable[tuple[str, AddedToken]]) -> Self:
        """Takes what each token looks like, and the token; of equal ones the last counts."""
        by_text = {content: token for content, token in tokens if content}
        lengths: dict[str, set[int]] = {}
        for content in by_text:
            lengths.setdefault(content[0], set()).add(len(content))
        return cls(by_text, {first: sorted(found, reverse=True) for first, found in lengths.items()})


def segments_of(data: str, contents: Contents, special: SpecialPolicy) -> Iterator[tuple[int, int, int]]:
    """Yields where parts of a text start and stop, and the id of each that is an added token, -1 for text.

    See `AddedTokenMatcher.find`, which does the same. contents: what the tokens look like; special: what becomes of
    those.
    """
    by_text, lengths = contents
    if not by_text:
        yield 0, len(data), -1
        return
    spaces, word_characters = map(unicode_tables.property_table, ("spaces", "word_characters"))
    at, i = 0, 0
    while i < len(data):
        n = next((n for n in lengths.get(data[i], ()) if i + n <= len(data) and data[i : i + n] in by_text), 0)
        if not n:
            i += 1
            continue
        token, start, stop = by_text[data[i : i + n]], i, i + n
        i = stop
        if token.special and special != "split":
            continue
        if token.single_word and any(
            word_characters[ord(c)] for c in data[max(start - 1, 0) : start] + data[stop : stop + 1]
        ):
            continue
        while token.lstrip and start > at and spaces[ord(data[start - 1])]:
            start -= 1
        while token.rstrip and stop < len(data) and spaces[ord(data[stop])]:
            stop += 1
        start = max(start, at) if token.lstrip else start
        if stop <= start:
            continue
        if at < start:
            yield at, start, -1
        yield start, stop, token.id
        at = stop
    if at < len(data) or not data:
        yield at, len(data), -1


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
