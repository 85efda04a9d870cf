# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of rows are, if a pre-tokenizer puts at most a character in front of its pieces.

The reference implementation of `located` is `align`; `tests/tokenizer/test_offsets.py` compares them.
"""

import dataclasses
import itertools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.kernels.bpe_symbols import CONTINUES, ENDS
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers.traced import characters_before
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces
from tokenmill.tokenizer.pre_tokenizers.sequence import flat, n_byte_levels
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import LETTER_WIDTHS, unspell
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.words import Words

Int64s = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class AlignedToken:
    """One token of one text, and where it came from."""

    id: int
    span: tuple[int, int]
    """Range of characters of the original text."""
    word: int
    """Number of its pre-token in the text."""
    matched: str = ""
    """For an added token found in the text: the text that it took, with the white space around it that it strips. For
    an unknown piece of Unigram: the piece, normalized, and spelled behind a `ByteLevel`. Else empty."""


class Located(NamedTuple):
    """The tokens of rows, and where in their rows they are."""

    ids: Ragged
    """int32."""
    starts: Int64s
    stops: Int64s
    """int64[n_tokens], in characters of the row."""
    words: Int64s
    """int64[n_tokens]: the number of each token's word in its row."""
    n_words: Int64s
    """int64[n_rows]: the words of each row."""
    is_sure: npt.NDArray[np.bool_]
    """bool[n_rows]: the rows for which these are right."""


def _takes_whole_rows(pre_tokenizer: Any, model: Any) -> bool:
    """Whether a model takes a whole row for a word, by rules that its runner does not know: those of sentencepiece."""
    return pre_tokenizer is None and isinstance(model, Unigram) and model.piece_types is not None


def located(stages: Any, model: Any, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> Located | None:
    """Finds the tokens of normalized rows, as `align`; None if the pre-tokenizer changes texts in another way.

    Args:
      stages, model: as for `align`; rows: uint8[n_bytes]; is_first: bool[n_rows].
    """
    pre_tokenizer, runner = stages
    if _takes_whole_rows(pre_tokenizer, model):
        return None
    steps = [] if pre_tokenizer is None else flat(pre_tokenizer)
    changing = [i for i, step in enumerate(steps) if not step.keeps_text]
    if len(changing) > 1 or (steps and (n_byte_levels(pre_tokenizer) > 1 or (changing and pre_tokenizer.spells_bytes))):
        return None
    pieces = before = Pieces.of_rows(rows, is_first)
    prefixed = np.zeros(0, np.bool_)
    for i, step in enumerate(steps if changing else [pre_tokenizer] * bool(steps)):
        if changing == [i]:
            before, prefixed = pieces, step.prefixed(pieces)
        pieces = step.split_pieces(pieces)
    words = pieces.words
    ids, ends, numbers = runner.align(words)
    # A token has the characters that it covers, whole or in part; an empty token has the place of the one before.
    is_new = np.append(True, numbers[1:] != numbers[:-1])[: numbers.size]
    begins = np.where(is_new, 0, np.append(0, ends[:-1])[: ends.size])
    lengths = (words.stops - words.starts)[numbers]
    begin_at, last_at = (
        words.starts[numbers] + np.minimum(place, lengths - 1) for place in (begins, np.maximum(begins, ends - 1))
    )
    of_row = np.repeat(np.arange(rows.n_rows), np.diff(words.row_offsets))[numbers]
    offsets = np.searchsorted(of_row, np.arange(rows.n_rows + 1))
    places = [characters_before(words.values, at + 1) - 1 for at in (begin_at, last_at)]
    in_rows = characters_before(rows.values, rows.offsets)
    if not np.may_share_memory(words.values, rows.values):
        if not changing:  # the pieces were spelled
            return None
        places = [_unprefixed(each, rows, before, prefixed) for each in places]
    starts, stops = (each - in_rows[of_row] for each in places)
    is_own = (ends > begins) | (np.arange(ids.size) == offsets[of_row])
    own = np.maximum.accumulate(np.where(is_own, np.arange(ids.size), 0))
    first_word = words.row_offsets[of_row]
    is_sure = np.ones(rows.n_rows, np.bool_)
    if is_byte_level(pre_tokenizer):  # tokens that end before their word does: bytes of it were dropped
        is_sure[of_row[np.append(is_new[1:], True)[: ends.size] & (ends < lengths)]] = False
    located_ids, n_words = Ragged(ids, offsets), np.diff(words.row_offsets)
    return Located(located_ids, starts[own], stops[own] + 1, numbers - first_word, n_words, is_sure)


def _unprefixed(places: Int64s, rows: Ragged, before: Pieces, prefixed: npt.NDArray[np.bool_]) -> Int64s:
    """Turns places, in characters, in pieces that were copied one after the other, into places in `rows.values`.

    prefixed: bool[n_pieces], which have got a character in front; that has the place of the first one.
    """
    words = before.words
    starts = characters_before(rows.values, words.starts)
    n_characters = characters_before(rows.values, words.stops) - starts
    begins = np.append(0, np.cumsum(n_characters + prefixed))
    piece = np.searchsorted(begins, places, "right") - 1
    return starts[piece] + np.maximum(places - begins[piece] - prefixed[piece], 0)


def align(
    stages: Any, model: Any, text: AlignedText, is_first: bool, first_word: int
) -> tuple[list[AlignedToken], int]:
    """Finds the tokens of one normalized text, in plain Python; also returns the number of the next word.

    Args:
      stages: see `engines.tables.Engine`; model: the model.
      text: the text; is_first: whether it begins its document; first_word: the number of its first word there.
    """
    pre_tokenizer, runner = stages
    if _takes_whole_rows(pre_tokenizer, model):
        return _align_whole(model, text, first_word)
    if pre_tokenizer is None:
        pieces = [text] if text.text else []
    else:
        pieces = pre_tokenizer.split_aligned(text, is_first)
    spelled = pre_tokenizer is not None and pre_tokenizer.spells_bytes
    encoded = [unspell(piece.text) if spelled else piece.text.encode() for piece in pieces]
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(e) for e in encoded], out=offsets[1:])
    values = read_only(np.frombuffer(bytearray().join(encoded), np.uint8))
    words = Words(values, offsets[:-1].copy(), offsets[1:].copy(), np.array([0, len(pieces)], np.int64))
    characters = np.cumsum((values & 0xC0) != 0x80)
    tokens: list[AlignedToken] = []
    found_tokens = zip(*(each.tolist() for each in runner.align(words)), strict=True)
    for word, group in itertools.groupby(found_tokens, operator.itemgetter(2)):
        piece, data, begin = pieces[word], encoded[word], 0
        of_word = [(token_id, end) for token_id, end, _ in group]
        lacks_bytes = is_byte_level(pre_tokenizer) and of_word[-1][1] < len(data)
        places = _among_letters(model, data, of_word) if lacks_bytes else []
        for i, (token_id, end) in enumerate(of_word):
            # A token's span has the characters that it covers, whole or in part; an empty token has the span of the
            # one before.
            first, last = places[i] if lacks_bytes else (min(k, len(data) - 1) for k in (begin, max(begin, end - 1)))
            if not spelled:
                start = offsets[word]
                first, last = (int(characters[start + k] - characters[start]) for k in (first, last))
            if end == begin and tokens and not lacks_bytes:
                span = tokens[-1].span
            else:
                span = (piece.starts[first], piece.stops[last])
            is_unknown = token_id == runner.unk_id and runner.model_name == "unigram"
            found = piece.text[first : last + 1] if is_unknown else ""
            if is_unknown and is_byte_level(pre_tokenizer) and not spelled:
                found = "".join(BYTE_ALPHABET[byte] for byte in data[begin:end])
            tokens.append(AlignedToken(token_id, span, first_word + word, found))
            begin = end
    return tokens, first_word + len(pieces)


def _among_letters(model: BPE, word: bytes, tokens: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the first and last byte that each token is taken for in a word of which the model drops some bytes.

    HF adds up the letters that spell bytes, in UTF-8, as if those dropped were not there, and then asks which letters
    of the whole word are at these places.

    Args:
      tokens: the id of each token, and its end in the bytes that are kept.
    """
    widths = LETTER_WIDTHS[np.frombuffer(word, np.uint8)]
    byte_at = np.repeat(np.arange(len(word)), widths).tolist()
    kept = np.append(0, np.cumsum(widths[_kept(model, word)])).tolist()
    found, begin, n = [], 0, 0
    for token_id, end in tokens:
        is_byte_token = end - begin < 2 and token_id in model.byte_ids  # one for each byte of a letter
        n_after = n + (1 if is_byte_token else kept[end] - kept[begin])
        last = min(n_after, len(byte_at)) - 1
        found.append((byte_at[min(n, last)], byte_at[last]))
        begin, n = end, n_after
    return found


def _kept(model: BPE, word: bytes) -> list[bool]:
    """Returns which bytes of a word become tokens in a byte-level model without an unknown token."""
    rows = [(CONTINUES if i else 0) | (ENDS if i == len(word) - 1 else 0) for i in range(len(word))]
    spelled = (model.spelled(BYTE_ALPHABET[byte], row) for row, byte in zip(rows, word, strict=True))
    by_bytes = model.byte_fallback
    return [x in model.vocab or (by_bytes and all(model.byte_ids[b] >= 0 for b in x.encode())) for x in spelled]


def _align_whole(model: Unigram, text: AlignedText, word: int) -> tuple[list[AlignedToken], int]:
    tokens: list[AlignedToken] = []
    begin = 0
    for token_id, end in model.tokenize(text.text):
        part = text[begin:end]
        # The first of a character's byte tokens has the span of the character; the others repeat it.
        tokens.append(AlignedToken(token_id, part.span() if part.text or not tokens else tokens[-1].span, word))
        begin = max(begin, end)
    return tokens, word + 1
