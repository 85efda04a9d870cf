# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of a batch are in their texts, found when somebody asks for it.

`locating.Locator` finds them, whatever the tokenizer is. Two kinds of tokenizers have a shorter way for most rows: the
tokens of a byte-level model are the bytes of the text, so that their lengths tell; and BERT's kernel traces words while
it cuts them. `tests/tokenizer/test_offsets.py` compares them.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import row_kernels
from tokenmill.tokenizer.engines.few import MOST_TEXTS
from tokenmill.tokenizer.locating import Located, Parts
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.normalizers.base import same_rows
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.post_processors import n_trimmed, trim_offsets
from tokenmill.tokenizer.pre_tokenizers.sequence import keeps_bytes
from tokenmill.tokenizer.ragged import Int64s, Ragged, read_only, text_rows

Int32s = npt.NDArray[np.int32]
MOST_LISTED = 1 << 20
"""The most ids that become lists at once; those of more are lists when they are asked for, one text at a time."""


class TokenLengths:
    """How long tokens are in the text, for a tokenizer whose tokens are the bytes of the text.

    So they are for a text that is in the normal form which its tokenizer makes of it, too. They are not where something
    was dropped, or an added token took white space along: a row's tokens have not as many bytes as it then.
    """

    def __init__(self, tokenizer: Any, texts: Mapping[int, str]) -> None:
        """Takes a `Tokenizer`, and its tokens by id, as they are spelled."""
        added = {token.id: token for token in tokenizer.added_tokens}
        n_bytes = np.full(tokenizer.n_ids, -1, np.int32)
        for i, text in texts.items():
            n_bytes[i] = len(added[i].content.encode()) if i in added else len(text)
            if i in added and (added[i].rstrip or (not text.isascii() and n_trimmed(text) != (0, 0))):
                n_bytes[i] = -1  # white space that another token may be, too, or of several bytes
        if tokenizer.model.unk_token in tokenizer.model.vocab:
            n_bytes[tokenizer.model.vocab[tokenizer.model.unk_token]] = -1
        self._n_bytes, self._normalizer = n_bytes, tokenizer.normalizer
        """int32[n_ids], -1 for tokens that say nothing of the text: the unknown token, and gaps between ids."""
        self._find = row_kernels.find_spans.bound(read_only(n_bytes))

    @staticmethod
    def say(tokenizer: Any) -> bool:
        """Whether the tokens of a tokenizer are the bytes of texts, but for those that are not in a normal form."""
        model = tokenizer.model
        if not isinstance(tokenizer.normalizer, NormalForm | None):
            return False
        # Tokens with markers are longer than their bytes: as long, by chance, as a text of which something was dropped.
        if not isinstance(model, BPE) or model.byte_fallback or model.prefix or model.suffix:
            return False
        return keeps_bytes(tokenizer.pre_tokenizer)

    @functools.cached_property
    def _listed(self) -> list[int]:
        return [n if n > 0 else 1 << 40 for n in self._n_bytes.tolist()]

    def of_few(self, texts: Sequence[str], ids: list[list[int]]) -> list[tuple[int, int]] | None:
        """Finds the tokens of texts in ASCII as `find`, without arrays; None if it cannot."""
        found: list[tuple[int, int]] = []
        for text, row in zip(texts, ids, strict=True):
            ends = list(itertools.accumulate(map(self._listed.__getitem__, row), initial=0))
            if ends[-1] != len(text) or not text.isascii():
                return None
            found += itertools.pairwise(ends)
        return found

    def of_tokens(self, ids: Int32s) -> tuple[Int32s, Int64s]:
        """Returns tokens of rows for which `find` is right, and their lengths, as `Locator.locate` takes them."""
        return ids, self._n_bytes[ids].astype(np.int64)

    def find(self, rows: Ragged, ids: Ragged, *, in_bytes: bool) -> tuple[Int32s, Int32s, npt.NDArray[np.bool_]]:
        """Finds where tokens begin and end in their texts.

        Args:
          rows: the texts, uint8[n_bytes], valid UTF-8; ids: int32, the tokens of each; offsets from 0 to their number.
          in_bytes: whether to count bytes; else characters.

        Returns:
          int32[n_tokens] each: starts and stops, counted from the beginning of the text; and bool[n_rows], the rows for
          which these are right: tokens of the others are not the bytes of the text.
        """
        n = ids.values.size
        starts, stops, is_right = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(rows.n_rows, np.bool_)
        self._find(*rows, read_only(ids.values), ids.offsets, in_bytes, starts, stops, is_right)
        if self._normalizer is not None:
            is_right &= same_rows(rows, self._normalizer.normalize_rows(rows))
        return starts, stops, is_right


class WhiteSpace:
    """The white space at the ends of tokens, which a post-processor may trim; see `post_processors.trim_offsets`."""

    def __init__(self, tokenizer: Any, texts: Mapping[int, str]) -> None:
        """Takes a `Tokenizer`, and its tokens by id, as they are spelled."""
        self._n_trimmed = np.zeros((2, tokenizer.n_ids), np.int32)
        for i, text in texts.items():
            self._n_trimmed[:, i] = n_trimmed(text)

    def trim(
        self, ids: Int32s, matched: Mapping[int, str], is_first: npt.NDArray[np.bool_], trims: Sequence[bool],
        starts: npt.NDArray[Any], stops: npt.NDArray[Any],
    ) -> None:  # fmt: skip
        """Trims offsets, int[n_tokens], in place.

        Args:
          ids: int32[n_tokens]; matched: the text that tokens matched, by their number, if not what they are spelled as.
          is_first: bool[n_tokens], the first tokens of their rows, after truncation.
          trims: `post_processors.trim_offsets` runs once for each entry, with the entry as its `add_prefix_space`.
        """
        n_leading, n_trailing = self._n_trimmed.take(ids, axis=1, mode="clip")
        for i, text in matched.items():
            n_leading[i], n_trailing[i] = n_trimmed(text)
        for add_prefix_space in trims:
            stays = (n_leading == 1) & (is_first | (starts == 0)) & add_prefix_space
            starts[:] = np.where(stays, starts, np.minimum(starts + n_leading, np.maximum(stops, starts)))
            trimmed = (n_trailing > 0) & (n_trailing <= stops)
            stops[:] = np.where(trimmed, np.maximum(stops - n_trailing, starts), stops)


class Spans(NamedTuple):
    """Where tokens begin and stop in their texts, in characters or bytes, and the numbers of their words."""

    starts: Int32s
    stops: Int32s
    words: Int32s | None
    """int32[n_tokens] each; `words` None if they were not needed to find the others."""


def find_spans(
    tokenizer: Any, rows: Ragged, ids: Ragged, is_first: npt.NDArray[np.bool_], trims: Sequence[bool], *,
    in_bytes: bool = False,
) -> Spans:  # fmt: skip
    """Finds the tokens of rows that a `Tokenizer` encoded.

    rows: uint8, valid UTF-8. ids: int32, the tokens of each, without special tokens; offsets from 0 to their number.
    is_first, trims: see `WhiteSpace.trim`; in_bytes: whether to count bytes; else characters.

    Raises:
      ValueError: if a row has not as many tokens as its text.
    """
    starts, stops, words, is_right = _quick_spans(tokenizer, rows, ids, in_bytes=in_bytes)
    if trims:
        if tokenizer._lengths is None:  # it leaves rows to others in which the matched text would matter
            is_right &= ~_with_matched(tokenizer, ids)
        tokenizer._white_space.trim(ids.values, {}, is_first, trims, starts, stops)
    slow = np.flatnonzero(~is_right)
    if slow.size:
        of_slow = np.repeat(~is_right, np.diff(ids.offsets))
        some, found = _located(tokenizer, rows, ids, slow)
        spans: list[npt.NDArray[Any]] = [found.starts, found.stops]
        if trims:
            matched = found.find_matched()
            tokenizer._white_space.trim(found.ids.values, matched, is_first[of_slow], trims, *spans)
        if in_bytes:
            spans = [in_utf8(some, found.ids.offsets, each) for each in spans]
        starts[of_slow], stops[of_slow] = spans
        if words is not None:
            words[of_slow] = found.words
    return Spans(starts, stops, words)


def _located(tokenizer: Any, rows: Ragged, ids: Ragged, numbers: Int64s, known: Any = None) -> tuple[Ragged, Located]:
    """Finds the tokens of some rows, and returns these; known: see `Locator.locate`."""
    some = rows if numbers.size == rows.n_rows else rows.take(numbers)
    found = tokenizer._plan.locator.locate(Parts.whole(some), known)
    differs = np.flatnonzero(np.diff(found.ids.offsets) != np.diff(ids.offsets)[numbers])
    if differs.size:
        (n_found, n_ids), row = (np.diff(each.offsets) for each in (found.ids, ids)), int(numbers[differs[0]])
        raise ValueError(f"ids must be those of the texts: row {row} has {n_ids[row]}, of {n_found[differs[0]]}")
    return some, found


def _quick_spans(
    tokenizer: Any, rows: Ragged, ids: Ragged, *, in_bytes: bool
) -> tuple[Int32s, Int32s, Int32s | None, npt.NDArray[np.bool_]]:
    """Returns starts, stops and perhaps words, untrimmed, and the rows for which these are right, bool[n_rows]."""
    if tokenizer._lengths is not None:
        starts, stops, is_right = tokenizer._lengths.find(rows, ids, in_bytes=in_bytes)
        return starts, stops, None, is_right
    quick = tokenizer._plan.locate_raw(rows)
    if quick is not None:
        (found, starts, stops, words, _), is_right = quick
        if np.array_equal(found.offsets, ids.offsets) and np.array_equal(found.values, ids.values):
            if in_bytes:
                starts, stops = (in_utf8(rows, ids.offsets, each) for each in (starts, stops))
            return starts.astype(np.int32), stops.astype(np.int32), words.astype(np.int32), is_right
    starts, stops, words = np.zeros((3, ids.n_values), np.int32)
    return starts, stops, words, np.zeros(rows.n_rows, np.bool_)


def _with_matched(tokenizer: Any, ids: Ragged) -> npt.NDArray[np.bool_]:
    """Returns the rows with tokens that may be trimmed and named by the text that they matched, bool[n_rows]."""
    may_match = [token.id for token in tokenizer.added_tokens]
    if isinstance(tokenizer.model, Unigram) and tokenizer.model.unk_id is not None:
        may_match.append(tokenizer.model.unk_id)
    n_before = np.append(0, np.cumsum(np.isin(ids.values, may_match)))
    return np.diff(n_before[ids.offsets]) > 0


def in_utf8(rows: Ragged, id_offsets: Int64s, places: npt.NDArray[Any]) -> Int32s:
    """Turns places of tokens in their rows, in characters, into bytes, int32[n_tokens]."""
    first, last = rows.offsets[[0, -1]]
    begins = np.append(np.flatnonzero(rows.values[first:last] & 0xC0 != 0x80), last - first)
    row_of = np.repeat(np.arange(rows.n_rows), np.diff(id_offsets))
    at = begins[np.searchsorted(begins, rows.offsets[:-1] - first)[row_of] + places]
    return (at - (rows.offsets[:-1] - first)[row_of]).astype(np.int32)


def first_tokens(offsets: Int64s) -> npt.NDArray[np.bool_]:
    """Returns which tokens are the first of their rows, bool[n_tokens]; offsets: int64[n_rows + 1], from 0."""
    is_first = np.zeros(offsets[-1], np.bool_)
    is_first[offsets[:-1][np.diff(offsets) > 0]] = True
    return is_first


class EncodedToken(NamedTuple):
    """One token of a text, of which everything is known."""

    id: int
    text: str
    offsets: tuple[int, int]
    """Untrimmed."""
    word: int | None
    matched: str = ""
    """The text that it matched, if that is not what it is spelled as; see `locating.Located`."""


class GivenPlaces(NamedTuple):
    """`Places` of tokens of which everything is known."""

    tokens: list[EncodedToken]
    """Those of all texts."""
    trims: tuple[bool, ...]
    read: Any = None

    def offsets(self, begin: int, end: int, *, is_cut: bool = False) -> list[tuple[int, int]]:
        """See `Places`; the first of the tokens is always the first of a part."""
        tokens = self.tokens[begin:end]
        spans = [token.offsets for token in tokens]
        for add_prefix_space in self.trims:
            spans = trim_offsets([token.matched or token.text for token in tokens], spans, add_prefix_space)
        return spans

    def words(self, begin: int, end: int) -> list[int | None]:
        """See `Places`."""
        return [token.word for token in self.tokens[begin:end]]

    def names(self, begin: int, ids: list[int]) -> list[str]:
        """See `Places`."""
        return [token.text for token in self.tokens_from(begin, ids)]

    def tokens_from(self, begin: int, ids: list[int]) -> list[EncodedToken]:
        """See `Places`."""
        return self.tokens[begin : begin + len(ids)]


class Places:
    """The tokens of a batch: their names, where they are, and their words; each is found when it is asked for."""

    def __init__(
        self,
        tokenizer: Any,
        texts: Sequence[Any],
        ids: "Ragged | list[list[int]]",
        words_of: Callable[[Any], list[str]],
    ) -> None:
        """Takes texts that were encoded.

        Args:
          tokenizer: the `Tokenizer`, which nobody changes any more.
          texts: the texts; ids: the tokens of each.
          words_of: returns what of a text was encoded by itself: the words of one that is pre-tokenized, or all of it.
        """
        self._tokenizer, self._texts, self._ids, self._words_of = tokenizer, texts, ids, words_of
        self._are_many = isinstance(ids, Ragged) and ids.n_values > MOST_LISTED
        self._is_pretokenized = bool(texts) and not isinstance(texts[0], str)
        self.trims: tuple[bool, ...] = tokenizer._trims

    @functools.cached_property
    def read(self) -> Any:
        """See `Encoding.read`."""
        return getattr(self._tokenizer, "token_runs", None)  # from `Decoder`, if this is a whole `Tokenizer`

    @functools.cached_property
    def _column(self) -> tuple[Ragged, Ragged, Int64s]:
        """What was encoded by itself, its tokens, and int64[n_texts + 1], the tokens before each text."""
        ids = self._ids
        if isinstance(ids, list):
            ends = np.cumsum([0, *map(len, ids)])
            ids = Ragged(np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(ends[-1])), ends)
        words = [*map(self._words_of, self._texts)]
        rows = text_rows(list(itertools.chain.from_iterable(words)))
        return rows, self._tokenizer._plan.encode(rows) if self._is_pretokenized else ids, ids.offsets

    def _spans(self, trims: tuple[bool, ...]) -> Spans:
        if trims not in self._found:
            rows, ids, offsets = self._column
            self._found[trims] = find_spans(self._tokenizer, rows, ids, first_tokens(offsets), trims)
        return self._found[trims]

    @functools.cached_property
    def _found(self) -> dict[tuple[bool, ...], Spans]:
        return {}

    @functools.cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        """The offsets of all tokens."""
        pairs = None if self.trims or self._is_pretokenized else self._few_pairs()
        if pairs is not None:
            return pairs
        starts, stops, _ = self._spans(self.trims)
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def _few_pairs(self) -> list[tuple[int, int]] | None:
        """Returns the offsets of all tokens of a few texts in less time; None if it cannot."""
        ids, tokenizer = self._ids, self._tokenizer
        if isinstance(ids, Ragged) or len(ids) > MOST_TEXTS:
            return None
        if tokenizer._lengths is not None:
            return cast("list[tuple[int, int]] | None", tokenizer._lengths.of_few(self._texts, ids))
        few = tokenizer._plan.locate_few(self._texts)
        if few is None or few[0] != (ids[0] if len(ids) == 1 else [*itertools.chain.from_iterable(ids)]):
            return None
        return cast("list[tuple[int, int]]", few[1])

    def offsets(self, begin: int, end: int, *, is_cut: bool = False) -> list[tuple[int, int]]:
        """Returns the offsets of the tokens from `begin` to `end`.

        is_cut: whether the first begins a part of its text that is not its start, and is trimmed as a first token.
        """
        if self._are_many:
            starts, stops, _ = self._spans(self.trims)
            pairs = list(zip(starts[begin:end].tolist(), stops[begin:end].tolist(), strict=True))
        else:
            pairs = self._pairs[begin:end]
        if is_cut and pairs and self.trims:
            starts, stops, _ = self._spans(())
            (token_id,) = self._column[1].values[begin : begin + 1].tolist()
            text = self._matched.get(begin) or self._tokenizer._token_of[token_id]
            span = int(starts[begin]), int(stops[begin])
            for add_prefix_space in self.trims:
                (span,) = trim_offsets([text], [span], add_prefix_space)
            pairs[0] = span
        return pairs

    @functools.cached_property
    def _words(self) -> Int32s:
        """int32[n_tokens]: the number of each token's word in its text."""
        rows, ids, _ = self._column
        if self._is_pretokenized:
            n_words = np.array([len(self._words_of(text)) for text in self._texts], np.int64)
            numbers = np.arange(rows.n_rows) - np.repeat(np.cumsum(n_words) - n_words, n_words)
            return np.repeat(numbers, np.diff(ids.offsets)).astype(np.int32)
        words = self._spans(()).words
        if words is not None:
            return words
        words, lengths = np.empty(ids.n_values, np.int32), self._tokenizer._lengths
        _, _, is_right = lengths.find(rows, ids, in_bytes=True)
        for some in (is_right, ~is_right):
            if some.any():
                of_some = np.repeat(some, np.diff(ids.offsets))
                known = lengths.of_tokens(ids.values[of_some]) if some is is_right else None
                words[of_some] = _located(self._tokenizer, rows, ids, np.flatnonzero(some), known)[1].words
        return words

    def words(self, begin: int, end: int) -> list[int]:
        """Returns the numbers of the words of the tokens from `begin` to `end`, in their texts."""
        words: list[int] = self._words[begin:end].tolist()
        return words

    @functools.cached_property
    def _matched(self) -> dict[int, str]:
        """The number of a token, and the text that it matched, if it is not what it is spelled as."""
        rows, ids, _ = self._column
        some = np.flatnonzero(_with_matched(self._tokenizer, ids))
        if not some.size:
            return {}
        numbers = np.flatnonzero(np.repeat(_with_matched(self._tokenizer, ids), np.diff(ids.offsets))).tolist()
        matched = _located(self._tokenizer, rows, ids, some)[1].find_matched()
        return {numbers[i]: text for i, text in matched.items()}

    def names(self, begin: int, ids: list[int]) -> list[str]:
        """Returns the tokens from `begin` on; ids: which these are."""
        names = list(map(self._tokenizer._token_of.__getitem__, ids))
        if self._tokenizer._names_matched:
            for i in self._matched.keys() & range(begin, begin + len(ids)):
                names[i - begin] = self._matched[i] or names[i - begin]
        return names

    def tokens_from(self, begin: int, ids: list[int]) -> list[EncodedToken]:
        """Returns all that is known of the tokens from `begin` on; ids: which these are."""
        end = begin + len(ids)
        starts, stops = (each[begin:end].tolist() for each in self._spans(())[:2])
        matched = [self._matched.get(i, "") for i in range(begin, end)]
        columns = ids, self.names(begin, ids), zip(starts, stops, strict=True), self.words(begin, end), matched
        return [EncodedToken(*token) for token in zip(*columns, strict=True)]
