# SPDX-License-Identifier: Apache-2.0
"""Vocabularies as columns: a quarter of a million tokens that become Python objects only when they are accessed."""

import abc
import functools
import itertools
import operator
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.kernels.whole_words import COLLIDING, build_words
from tokenmill.tokenizer.models.kernels.vocabulary import decode_texts, find_texts, take_texts
from tokenmill.tokenizer.ragged import read_only

MAX_ID = (1 << 24) - 1
"""The largest id: tables are as long as it, and a file should not be able to make them arbitrarily long."""
NO_ENTRY = MAX_ID
"""In tables the id of an unknown token that is no entry: a text for which it comes out cannot be encoded."""
WORD_PADDING = 16
"""Bytes that kernels may read beyond the start of a word."""

Words = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int32]]
"""Entries of a word table: padded bytes, offsets and ids, uint8[n_bytes + 16], int64[n + 1] and int32[n]."""


class Characters(NamedTuple):
    """The characters of tokens."""

    points: npt.NDArray[np.int32]
    """int32[n_characters]."""
    offsets: npt.NDArray[np.int64]
    """int64[n + 1]."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """int64[n]: the number of characters of each token."""
        return np.diff(self.offsets)

    def take(self, kept: npt.NDArray[np.bool_]) -> "Characters":
        """Returns the characters of some tokens; kept: bool[n]."""
        lengths = self.lengths
        return Characters(self.points[np.repeat(kept, lengths)], offsets_of(lengths[kept]))

    def has_inside(self, character: str) -> bool:
        """Whether some token has a character after its first one."""
        found = np.flatnonzero(self.points == ord(character))
        is_first = np.zeros(self.points.size + 1, np.bool_)
        is_first[self.offsets[:-1]] = True
        return not is_first[found].all()


T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence in arrays, whose Python objects are made, all together, when one is used as such; not pickled."""

    @functools.cached_property
    def listed(self) -> list[T]:
        """All of them."""
        return self._make()

    @abc.abstractmethod
    def _make(self) -> list[T]:
        """Returns all of them."""

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in _MADE_AGAIN}

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self.listed[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.listed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.listed == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)})"


_MADE_AGAIN = frozenset({"listed", "characters", "numbered"})
"""What columns do not take along into another process."""


class Tokens(Lazy[str]):
    """A column of tokens."""

    def __init__(self, values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        """Takes UTF-8, which is not checked.

        Args:
          values: uint8[n_bytes + WORD_PADDING]; offsets: int64[n + 1], from 0 to n_bytes.
        """
        self.values, self.offsets = read_only(values), read_only(offsets)

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Tokens":
        """Makes a column of strings.

        Raises:
          ValueError: if one is no text, because it holds half of a surrogate pair.
        """
        if isinstance(texts, Tokens):
            return texts
        try:
            data = "".join(texts).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{next(filter(_is_broken, texts))!r} is no text, it holds a surrogate") from error
        values = np.frombuffer(data + bytes(WORD_PADDING), np.uint8)
        begins = np.append(np.flatnonzero((values[: len(data)] & 0xC0) != 0x80), len(data))
        return cls(values, begins[offsets_of(np.fromiter(map(len, texts), np.int64, len(texts)))])

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """int64[n]: the number of bytes of each token."""
        return np.diff(self.offsets)

    @property
    def n_bytes(self) -> int:
        """All of them."""
        return int(self.offsets[-1])

    def _column(self) -> pa.LargeStringArray:
        return pa.LargeStringArray.from_buffers(
            len(self), pa.py_buffer(self.offsets), pa.py_buffer(self.values[: self.n_bytes])
        )

    def first_broken(self) -> int:
        """Returns the number of the first token that is not UTF-8, -1 for none."""
        try:
            self._column().validate(full=True)
        except pa.ArrowInvalid:
            for i, token in enumerate(self._tokens()):
                try:
                    token.decode()
                except UnicodeDecodeError:
                    return i
        return -1

    def _tokens(self) -> list[bytes]:
        data = self.values.tobytes()
        return [data[start:stop] for start, stop in itertools.pairwise(self.offsets.tolist())]

    def _make(self) -> list[str]:
        texts: list[str] = self._column().to_pylist()
        return texts

    @functools.cached_property
    def characters(self) -> Characters:
        """The characters of the tokens."""
        points, offsets = np.empty(self.n_bytes, np.int32), np.empty(len(self) + 1, np.int64)
        decode_texts(self.values, self.offsets, points, offsets)
        return Characters(points[: offsets[-1]], offsets)

    @classmethod
    def joined(cls, parts: Sequence["Tokens"]) -> "Tokens":
        """Concatenates several columns."""
        values = [part.values[: part.n_bytes] for part in parts]
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([*values, np.zeros(WORD_PADDING, np.uint8)]), offsets_of(lengths))

    @functools.cached_property
    def numbered(self) -> "Vocabulary | None":
        """Token -> its number; None if a token is empty or occurs twice.

        Raises:
          ValueError: if the tokens seem to be chosen to collide in the table.
        """
        try:
            return Vocabulary(self, np.arange(len(self), dtype=np.int32))
        except NotDistinctError:
            return None

    def take(self, order: npt.NDArray[np.int64]) -> "Tokens":
        """Returns some of the tokens, given their numbers, in that order."""
        offsets = np.empty(order.size + 1, np.int64)
        values = np.zeros(int(self.lengths[order].sum()) + WORD_PADDING, np.uint8)
        take_texts(self.values, self.offsets, order, values, offsets)
        return Tokens(values, offsets)

    def sorted_order(self) -> npt.NDArray[np.int64]:
        """Returns the numbers of the tokens in the order of their bytes, which is that of code points, int64[n].

        The tokens must be distinct.
        """
        tokens = self._tokens()  # Arrow sorts faster, but takes as long to import what sorts
        return np.array(sorted(range(len(tokens)), key=tokens.__getitem__), np.int64)

    def __len__(self) -> int:
        return self.offsets.size - 1


class ScoredTokens(Lazy[tuple[str, float]]):
    """A column of tokens, each with a score, float64[n]."""

    def __init__(self, tokens: Tokens, scores: npt.NDArray[np.float64]) -> None:
        self.tokens, self.scores = tokens, read_only(scores)

    @classmethod
    def of(cls, entries: Sequence[tuple[str, float]]) -> "ScoredTokens":
        """Makes columns of pairs.

        Raises:
          ValueError: if a token is no text.
        """
        if isinstance(entries, ScoredTokens):
            return entries
        tokens = Tokens.of(list(map(operator.itemgetter(0), entries)))
        return cls(tokens, np.fromiter(map(operator.itemgetter(1), entries), np.float64, len(entries)))

    def __len__(self) -> int:
        return len(self.tokens)

    def _make(self) -> list[tuple[str, float]]:
        return list(zip(self.tokens, self.scores.tolist(), strict=True))


class NotDistinctError(ValueError):
    """A token is empty, or occurs twice."""


class Vocabulary(Mapping[str, int]):
    """Token -> id, in the order of a file: columns, of which a dict is made if it is used as one; see `find`."""

    def __init__(self, tokens: Tokens, ids: npt.NDArray[np.int32], *, are_distinct: bool = False) -> None:
        """Takes tokens and their ids.

        are_distinct: whether it is known already that no token is empty or occurs twice.

        Raises:
          NotDistinctError: if a token is empty or occurs twice. ValueError: if the tokens seem to be chosen to collide
            in the table.
        """
        self.tokens, self.ids = tokens, read_only(ids)
        if are_distinct:
            return
        if not tokens.lengths.all():
            raise NotDistinctError(f"token {int(np.argmin(tokens.lengths))} is empty")
        slots, pool, n_different = word_table(tokens.values, tokens.offsets, self.ids)
        if n_different < len(tokens):
            raise NotDistinctError("a token stands twice")
        self.table = slots, pool

    @classmethod
    def of(cls, vocab: Mapping[str, int]) -> "Vocabulary":
        """Makes columns of a dict whose ids are checked.

        Raises:
          ValueError: if a token is no text.
        """
        if isinstance(vocab, Vocabulary):
            return vocab
        found = cls(Tokens.of(list(vocab)), np.fromiter(vocab.values(), np.int32, len(vocab)), are_distinct=True)
        found._dict = dict(vocab)
        return found

    def __getstate__(self) -> dict[str, object]:
        """What is pickled: the columns, and the table if it was needed."""
        return {name: value for name, value in self.__dict__.items() if name != "_dict"}

    @functools.cached_property
    def table(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """The slots and pool of a word table, see kernels.word_table; its values are the ids."""
        return word_table(*self.words)[:2]

    @property
    def words(self) -> Words:
        """The entries as `word_table` takes them, without an empty one."""
        tokens, kept = self.tokens, self.tokens.lengths > 0
        if kept.all():
            return tokens.values, tokens.offsets, self.ids
        return tokens.values, offsets_of(tokens.lengths[kept]), self.ids[kept]

    def take(self, order: npt.NDArray[np.int64]) -> "Vocabulary":
        """Returns some of the entries, given their numbers, in that order."""
        return Vocabulary(self.tokens.take(order), self.ids[order], are_distinct=True)

    def find(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Returns int64[n], the ids of texts, -1 for those that are no tokens."""
        asked = Tokens.of(texts)
        found = np.empty(len(asked), np.int64)
        try:
            table = self.table
        except ValueError:  # tokens like `token1`, `token2` may look made to collide: a dict takes them
            return np.array([self._dict.get(text, -1) for text in texts], np.int64)
        find_texts(asked.values, asked.offsets, *table, found)
        return found

    @functools.cached_property
    def _dict(self) -> dict[str, int]:
        return dict(zip(self.tokens, self.ids.tolist(), strict=True))

    def find_one(self, text: str) -> int:
        """Returns the id of a text, -1 if it is no token, without making the dict."""
        return -1 if _is_broken(text) else int(self.find([text])[0])

    def unknown_id(self, unk_token: str) -> int:
        """Returns the id of a model's unknown token for its tables, `NO_ENTRY` if it is no entry.

        Raises:
          ValueError: if it is no entry, and another token has this id.
        """
        found = self.find_one(unk_token)
        if found < 0 and self.ids.max(initial=0) == NO_ENTRY:
            raise ValueError(f"the vocabulary has no unknown token {unk_token!r}, and another has the id {NO_ENTRY}")
        return found if found >= 0 else NO_ENTRY

    def __getitem__(self, token: str) -> int:
        return self._dict[token]

    def __contains__(self, token: object) -> bool:
        return token in self._dict

    def __iter__(self) -> Iterator[str]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self.tokens)

    def keys(self) -> KeysView[str]:
        """As of a dict."""
        return self._dict.keys()

    def values(self) -> ValuesView[int]:
        """As of a dict."""
        return self._dict.values()

    def items(self) -> ItemsView[str, int]:
        """As of a dict."""
        return self._dict.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._dict == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} tokens)"


def check_ids(vocab: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Returns the ids of a vocabulary, in its order.

    Raises:
      ValueError: if an id is no integer in 0..2^24-1, or belongs to two tokens.
    """
    if isinstance(vocab, Vocabulary):
        return check_all_ids(vocab.ids, vocab.tokens)
    return check_all_ids(list(vocab.values()), vocab)


def check_all_ids(token_ids: Sequence[int] | npt.NDArray[np.integer], tokens: Iterable[str]) -> npt.NDArray[np.int64]:
    """Does `check_ids` for a sequence of ids; `tokens`, in the same order, are for messages."""
    try:
        ids = np.array(token_ids if len(token_ids) else np.zeros(0, np.int64))
    except OverflowError:  # beyond 64 bits
        ids = np.array(["?"])
    if ids.dtype.kind != "i" or ids.min(initial=0) < 0 or ids.max(initial=0) > MAX_ID:
        given = token_ids.tolist() if isinstance(token_ids, np.ndarray) else token_ids
        for token, token_id in zip(tokens, given, strict=True):
            if not isinstance(token_id, int) or not 0 <= token_id <= MAX_ID:
                raise ValueError(f"id of token {token!r} must be in 0..{MAX_ID}, got {token_id!r}")
    ids = ids.astype(np.int64)
    if int(np.bincount(ids).max(initial=0)) > 1:
        owners: dict[int, str] = {}
        for token, token_id in zip(tokens, ids.tolist(), strict=True):
            if owners.setdefault(token_id, token) != token:
                raise ValueError(f"id {token_id} belongs to two tokens, {owners[token_id]!r} and {token!r}")
    return ids


def offsets_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the offsets of n entries, int64[n + 1], given their lengths."""
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def padded_bytes(tokens: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns the bytes of all tokens, with the padding that kernels need, and their offsets."""
    values = np.frombuffer(bytearray().join([*tokens, bytes(WORD_PADDING)]), np.uint8)
    return values, offsets_of(np.fromiter(map(len, tokens), np.int64, len(tokens)))


def word_table(
    values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], ids: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], int]:
    """Builds a word table, see kernels.word_table; returns slots, pool, and the number of distinct words.

    Column VALUE holds the id. values, offsets, ids: see `Words`; none is empty, and of equal ones the first counts.

    Raises:
      ValueError: if the words seem to be chosen to collide, so that time would grow with the square of their number.
    """
    lengths = np.diff(offsets)
    values, offsets, ids = read_only(values), read_only(offsets), read_only(ids)
    slots = np.zeros((1 << (2 * ids.size).bit_length(), 4), np.int64)
    pool = np.zeros(int(lengths[lengths > 16].sum()), np.uint8)
    n_different = build_words(values, offsets, ids, slots, pool)
    if n_different == COLLIDING:
        raise ValueError("the tokens do not fit into a hash table: they look made to collide")
    return slots, pool, n_different


def _is_broken(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)
