# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of texts came from: `Locator` takes columns through the steps of a tokenizer, and traces them.

Raw text is cut at added tokens, normalized, cut again, and split into words; each of these returns rows whose
characters know their place in the original text. The model says where its tokens end in their words.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.added_tokens import AddedTokenMatcher
from tokenmill.tokenizer.kernels.bpe_symbols import CONTINUES, ENDS
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.normalizing import keeps_start
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import LETTER_WIDTHS
from tokenmill.tokenizer.ragged import Int64s, Ragged, characters_before, read_only
from tokenmill.tokenizer.traced import Traced
from tokenmill.tokenizer.words import Words, whole_rows


class Located(NamedTuple):
    """The tokens of texts, and where in these they are."""

    ids: Ragged
    """int32."""
    starts: Int64s
    stops: Int64s
    """int64[n_tokens], in characters of the original text."""
    words: Int64s
    """int64[n_tokens]: the number of each token's word in its text."""
    find_matched: Callable[[], dict[int, str]]
    """Returns number of a token -> the text that it matched. For an added token found in the text this is all that it
    took, with the white space around it that it strips; for an unknown piece of Unigram, which is not sentencepiece's,
    the piece, normalized, and spelled behind a `ByteLevel`. Other tokens match what they are spelled as."""


class Parts(NamedTuple):
    """Texts that are cut into parts, some of which are tokens."""

    text: Traced
    """The parts; empty where they are tokens."""
    tokens: npt.NDArray[np.int32]
    """int32[n_parts]: the id of those that are tokens, -1 for text."""
    places: Int64s
    """int64[n_parts, 5], of tokens: start and stop in the original text; and the text that it matched: the number of a
    cut, -1 for none, and the start and stop in the bytes that were cut."""
    row_parts: Int64s
    """int64[n_texts + 1]: the parts of each text."""
    is_first: npt.NDArray[np.bool_]
    """bool[n_parts]: those at the start of their text."""

    @classmethod
    def of(
        cls, text: Traced, tokens: npt.NDArray[np.int32], spans: Sequence[tuple[int, int]], row_parts: Int64s
    ) -> Self:
        """Takes parts, and the places of all of them; those of tokens are empty texts."""
        places = np.full((tokens.size, 5), -1, np.int64)
        places[:, :2] = np.reshape(spans, (-1, 2))
        is_first = np.zeros(tokens.size, np.bool_)
        is_first[row_parts[:-1][np.diff(row_parts) > 0]] = True
        return cls(text, tokens, places, row_parts, is_first)

    @classmethod
    def whole(cls, rows: Ragged) -> Self:
        """Takes texts that nobody has cut."""
        n = rows.n_rows
        none = np.zeros((n, 2), np.int64)
        return cls.of(Traced.original(rows), np.full(n, -1, np.int32), none, np.arange(n + 1))  # type: ignore[arg-type]

    def cut(self, matcher: AddedTokenMatcher | None, number: int) -> "Parts":
        """Cuts the parts that are text at added tokens; `number` is that of the cut."""
        found = None if matcher is None else matcher.find(self.text.rows, tokens=self.tokens)
        if found is None:
            return self
        begins, ends, tokens, cut = found
        part_of = np.repeat(np.arange(self.tokens.size), np.diff(cut))
        new = np.flatnonzero((tokens >= 0) & (self.tokens[part_of] < 0))
        firsts, lasts = (self.text.characters_at(at[new]) for at in (begins, ends))
        places = self.places[part_of]
        places[new] = np.column_stack(
            (self.text.starts[firsts], self.text.stops[lasts - 1], np.full(new.size, number), begins[new], ends[new])
        )
        is_first = np.zeros(tokens.size, np.bool_)
        is_first[cut[:-1]] = self.is_first
        text = self.text.cut(begins, np.where(tokens < 0, ends, begins))
        return Parts(text, tokens, places, cut[self.row_parts], is_first)


class _Tokens(NamedTuple):
    """The tokens of normalized parts."""

    ids: npt.NDArray[np.int32]
    offsets: Int64s
    """int64[n_parts + 1]: the tokens of each part."""
    firsts: Int64s
    lasts: Int64s
    """int64[n_tokens]: the first and the last character of each, counted in all parts."""
    words: Int64s
    """int64[n_tokens]: the number of each token's word in its part."""
    n_words: Int64s
    """int64[n_parts]: how many words each part has."""
    find_unknown: Callable[[], dict[int, str]]
    """Returns number of an unknown piece -> its text; see `Located.find_matched`."""


@dataclasses.dataclass(frozen=True)
class Locator:
    """The steps of a tokenizer, lowered so that they can be traced."""

    raw: AddedTokenMatcher | None
    normalizer: Any
    normalized: AddedTokenMatcher | None
    """The added tokens that are looked for in raw and in normalized text."""
    stages: tuple[Any, Any]
    """See `engines.tables.Engine`."""
    model: Any

    def locate(self, parts: Parts, known: tuple[npt.NDArray[np.int32], Int64s] | None = None) -> Located:
        """Finds the tokens of texts.

        known: all tokens and int64[n_tokens], how many bytes each has, if these are all the bytes of the texts.

        Raises:
          UnknownCharacterError: if the model has no token for a character. TimeoutError: if a pattern does not finish.
        """
        cuts = [parts.text.rows.values]
        parts = parts.cut(self.raw, 0)
        if self.normalizer is not None:
            # Each as a text of its own, with places from 0 on: what is put in front has its start.
            begins = np.append(parts.text.starts, 0)[parts.text.bounds[:-1]]
            text = self.normalizer.trace(parts.text.moved(-begins)).moved(begins)
            parts = parts._replace(text=text, is_first=parts.is_first & keeps_start(parts.text, text))
        cuts.append(parts.text.rows.values)
        parts = parts.cut(self.normalized, 1)
        return _joined(parts, self._tokens(parts, known), cuts)

    def _tokens(self, parts: Parts, known: tuple[npt.NDArray[np.int32], Int64s] | None) -> _Tokens:
        """Finds the tokens of the parts that are text."""
        rows, (pre_tokenizer, runner) = parts.text.rows, self.stages
        by_rules = pre_tokenizer is None and isinstance(self.model, Unigram) and self.model.piece_types is not None
        if pre_tokenizer is None:
            pieces = Pieces(whole_rows(rows), np.empty(0, np.bool_))
        else:
            pieces = pre_tokenizer.trace_rows(rows, read_only(parts.is_first))
        words = pieces.words
        if known is not None:
            ids, ends, numbers = _by_lengths(parts, words, *known)
        else:
            ids, ends, numbers = _by_rules(self.model, words) if by_rules else runner.align(words)
        # A token has the characters that it covers, whole or in part; an empty token has the place of the one before.
        is_new = np.append(True, numbers[1:] != numbers[:-1])[: numbers.size]
        begins = np.where(is_new, 0, np.append(0, ends[:-1])[: ends.size])
        lengths = (words.stops - words.starts)[numbers]
        firsts, lasts = (
            characters_before(words.values, words.starts[numbers] + np.minimum(at, lengths - 1) + 1) - 1
            for at in (begins, np.maximum(begins, ends - 1))
        )
        of_part = np.repeat(np.arange(rows.n_rows), np.diff(words.row_offsets))[numbers]
        offsets = np.searchsorted(of_part, np.arange(rows.n_rows + 1))
        is_own = (ends > begins) | (np.arange(ids.size) == offsets[of_part])
        if is_byte_level(pre_tokenizer):
            is_last = np.append(is_new[1:], True)[: ends.size]
            for word in numbers[is_last & (ends < lengths)].tolist():  # bytes of it were dropped
                of_word = slice(*np.searchsorted(numbers, (word, word + 1)).tolist())
                is_own[of_word] = True
                places = (each[of_word] for each in (ids, ends, firsts, lasts))
                self._place_among_letters(words, word, *places)
        own = np.maximum.accumulate(np.where(is_own, np.arange(ids.size), 0))
        firsts, lasts = firsts[own], lasts[own]
        if pieces.origins is not None:
            firsts, lasts = pieces.origins[firsts], pieces.origins[lasts]

        def find_unknown() -> dict[int, str]:
            if by_rules or runner.model_name != "unigram":
                return {}
            unknown = np.flatnonzero(ids == runner.unk_id).tolist()
            return {i: self._text(words.word(numbers[i]), int(begins[i]), int(ends[i])) for i in unknown}

        number = numbers - words.row_offsets[of_part]
        return _Tokens(ids, offsets, firsts, lasts, number, np.diff(words.row_offsets), find_unknown)

    def _text(self, word: bytes, begin: int, end: int) -> str:
        """Returns the text that a token of a word covers, spelled behind a `ByteLevel`."""
        if is_byte_level(self.stages[0]):
            return "".join(BYTE_ALPHABET[byte] for byte in word[begin:end])
        while begin > 0 and word[begin] & 0xC0 == 0x80:
            begin -= 1
        while end < len(word) and word[end] & 0xC0 == 0x80:
            end += 1
        return word[begin:end].decode()

    def _place_among_letters(self, words: Words, word: int, ids: Any, ends: Any, firsts: Int64s, lasts: Int64s) -> None:
        """Places the tokens of one of the words, of which the model drops some bytes.

        HF adds up the letters that spell bytes, in UTF-8, as if those dropped were not there, and then asks which
        letters of the whole word are at these places.

        ids, ends: of its tokens; ends in the bytes that are kept. firsts, lasts: int64[n_tokens], filled.
        """
        data = words.word(word)
        widths = LETTER_WIDTHS[np.frombuffer(data, np.uint8)]
        begins = characters_before(words.values, words.starts[word : word + 1])[0] - 1
        character = begins + np.cumsum(np.frombuffer(data, np.uint8) & 0xC0 != 0x80)
        character_at = np.repeat(character, widths)
        kept = np.append(0, np.cumsum(widths[_kept(self.model, data)])).tolist()
        begin, n = 0, 0
        for i, (token_id, end) in enumerate(zip(ids.tolist(), ends.tolist(), strict=True)):
            is_byte_token = end - begin < 2 and token_id in self.model.byte_ids  # one for each byte of a letter
            n_after = n + (1 if is_byte_token else kept[end] - kept[begin])
            last = min(n_after, character_at.size) - 1
            firsts[i], lasts[i] = character_at[min(n, last)], character_at[last]
            begin, n = end, n_after


def _joined(parts: Parts, found: _Tokens, cuts: list[npt.NDArray[np.uint8]]) -> Located:
    """Puts the parts that are tokens among the tokens of the others; cuts: the bytes that were cut, see `Parts`."""
    added = np.flatnonzero(parts.tokens >= 0)
    places = parts.places[added]
    at = found.offsets[added]
    ids, starts, stops, words = (
        cast(Any, np.insert(of_texts, at, of_added) if added.size else of_texts)
        for of_texts, of_added in (
            (found.ids, parts.tokens[added]),
            (parts.text.starts[found.firsts], places[:, 0]),
            (parts.text.stops[found.lasts], places[:, 1]),
            (found.words, np.zeros(added.size, np.int64)),
        )
    )
    n_tokens, n_words = np.diff(found.offsets), found.n_words.copy()
    n_tokens[added] = n_words[added] = 1
    ends, word_ends = (np.append(0, np.cumsum(n)) for n in (n_tokens, n_words))
    first_words = word_ends[:-1] - np.repeat(word_ends[parts.row_parts[:-1]], np.diff(parts.row_parts))
    words += np.repeat(first_words, n_tokens)

    def find_matched() -> dict[int, str]:
        n_before = np.cumsum(parts.tokens >= 0)
        part_of = np.repeat(np.arange(parts.tokens.size), np.diff(found.offsets))
        matched = {i + int(n_before[part_of[i]]): text for i, text in found.find_unknown().items()}
        for i, (_, _, number, begin, end) in zip(ends[added].tolist(), places.tolist(), strict=True):
            if number >= 0:
                matched[i] = cuts[number][begin:end].tobytes().decode()
        return matched

    return Located(Ragged(ids, ends[parts.row_parts]), starts, stops, words, find_matched)


def _by_lengths(parts: Parts, words: Words, ids: Any, n_bytes: Int64s) -> tuple[npt.NDArray[Any], ...]:
    """Does what `engines.models.ModelRunner.align` does with tokens that are known; see `Locator.locate`."""
    sizes = np.where(parts.tokens >= 0, parts.places[:, 4] - parts.places[:, 3], np.diff(parts.text.rows.offsets))
    begins, ends = np.cumsum(sizes) - sizes, np.cumsum(n_bytes)
    part_of = np.searchsorted(begins, ends - n_bytes, "right") - 1
    is_text = parts.tokens[part_of] < 0
    word_begins = words.starts + np.repeat(begins - parts.text.rows.offsets[:-1], np.diff(words.row_offsets))
    numbers = np.searchsorted(word_begins, (ends - n_bytes)[is_text], "right") - 1
    return ids[is_text], ends[is_text] - word_begins[numbers], numbers


def _by_rules(model: Unigram, words: Words) -> tuple[npt.NDArray[Any], ...]:
    """Does what `engines.models.ModelRunner.align` does by the rules of sentencepiece, in plain Python."""
    ids: list[int] = []
    ends: list[int] = []
    numbers: list[int] = []
    for word in range(words.n_words):
        text = words.word(word).decode()
        at = [0, *itertools.accumulate(len(character.encode()) for character in text)]
        for token_id, end in model.tokenize(text):
            ids.append(token_id)
            ends.append(max(at[end], ends[-1] if numbers and numbers[-1] == word else 0))
            numbers.append(word)
    return np.array(ids, np.int32), np.array(ends, np.int64), np.array(numbers, np.int64)


def _kept(model: BPE, word: bytes) -> list[bool]:
    """Returns which bytes of a word become tokens in a byte-level model without an unknown token."""
    rows = [(CONTINUES if i else 0) | (ENDS if i == len(word) - 1 else 0) for i in range(len(word))]
    spelled = (model.spelled(BYTE_ALPHABET[byte], row) for row, byte in zip(rows, word, strict=True))
    by_bytes = model.byte_fallback
    return [x in model.vocab or (by_bytes and all(model.byte_ids[b] >= 0 for b in x.encode())) for x in spelled]
