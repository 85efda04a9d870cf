# SPDX-License-Identifier: Apache-2.0
"""`Encoding`: the tokens of one text or pair, with HF's attributes, and how it is put together."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tokenizer.post_processors import TemplateProcessing, Truncation, n_added, trim_offsets

_SEQUENCES = "AB"


@dataclasses.dataclass(frozen=True)
class Encoding:
    """What `Tokenizer.encode` returns; all lists among the fields have one entry per token.

    Source: HF tokenizers `Encoding`, same names and meaning.
    """

    ids: list[int]
    tokens: list[str]
    type_ids: list[int]
    attention_mask: list[int]
    """0 for padding, 1 for the rest."""
    special_tokens_mask: list[int]
    """1 for tokens that the post-processor or padding added."""
    offsets: list[tuple[int, int]]
    """First character of the token in its text and the one after its last; (0, 0) for added tokens."""
    word_ids: list[int | None]
    """Number of the pre-token in its text; None for added tokens."""
    sequence_ids: list[int | None]
    """0 for the text, 1 for its pair; None for added tokens."""
    sequence_ranges: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Which tokens are those of the text, key 0, and of its pair, key 1."""
    overflow: Callable[[], list["Encoding"]] = dataclasses.field(default=list, repr=False, compare=False)
    """Makes `overflowing`: of two long texts there may be very many parts, and few ask for them."""

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoding({len(self.ids)} tokens)"

    @functools.cached_property
    def overflowing(self) -> list["Encoding"]:
        """What truncation cut off, in parts that are laid out like the rest; of a pair, each with each of the other."""
        return self.overflow()

    @property
    def n_sequences(self) -> int:
        """2 for a pair, else 1."""
        return len(self.sequence_ranges) or 1

    def _range(self, sequence_index: int) -> range:
        """Returns the tokens of a sequence; as in HF all, if there is none of that number."""
        return range(*self.sequence_ranges.get(sequence_index, (0, len(self.ids))))

    def token_to_sequence(self, token_index: int) -> int | None:
        """Returns the number of the sequence that a token belongs to, None for none."""
        found = (i for i, (first, last) in self.sequence_ranges.items() if first <= token_index < last)
        return next(found, None)

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        """Returns which characters of its text a token stands for, None for an added token."""
        return None if self.token_to_sequence(token_index) is None else self.offsets[token_index]

    def token_to_word(self, token_index: int) -> int | None:
        """Returns the number of the word that a token is part of, None for an added token."""
        return None if self.token_to_sequence(token_index) is None else self.word_ids[token_index]

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Returns the first token of a word and the one after its last, None where no token is part of it."""
        found: list[int] = []
        for i in self._range(sequence_index):
            word = self.word_ids[i]
            if word is not None and word > word_index:
                break
            if word == word_index:
                found.append(i)
        return (found[0], found[-1] + 1) if found else None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Returns which characters of its text a word stands for, None where no token is part of it."""
        tokens = self.word_to_tokens(word_index, sequence_index)
        return (self.offsets[tokens[0]][0], self.offsets[tokens[1] - 1][1]) if tokens else None

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """Returns the first token that stands for a character of a text, None for none."""
        for i in self._range(sequence_index):
            if self.offsets[i][0] <= char_pos < self.offsets[i][1]:
                return i
        return None

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """Returns the number of the word that a character of a text belongs to, None for none."""
        token_index = self.char_to_token(char_pos, sequence_index)
        return None if token_index is None else self.token_to_word(token_index)


class EncodedToken(NamedTuple):
    """One token of a text."""

    id: int
    text: str
    offsets: tuple[int, int]
    word: int


class EncodingBuilder:
    """Collects tokens from left to right."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.tokens: list[str] = []
        self.type_ids: list[int] = []
        self.special_tokens_mask: list[int] = []
        self.offsets: list[tuple[int, int]] = []
        self.word_ids: list[int | None] = []
        self.sequence_ids: list[int | None] = []
        self.sequence_ranges: dict[int, tuple[int, int]] = {}
        self.overflowing: list[EncodingBuilder] = []
        self.pieces: list[EncodingBuilder] = []
        """What this was joined from, where `overflowing` is yet to be made of what overflows there."""

    def begin(self, sequence: int) -> None:
        """Says that a sequence begins here: one without tokens has its place too."""
        self.sequence_ranges[sequence] = (len(self.ids), len(self.ids))

    def add(
        self, token_id: int, token: str, type_id: int, offsets: tuple[int, int], word: int | None, sequence: int | None
    ) -> None:
        """Appends a token; one without a sequence is an added one."""
        if sequence is not None:
            first, _ = self.sequence_ranges.get(sequence, (len(self.ids), 0))
            self.sequence_ranges[sequence] = (first, len(self.ids) + 1)
        self.ids.append(token_id)
        self.tokens.append(token)
        self.type_ids.append(type_id)
        self.special_tokens_mask.append(int(sequence is None))
        self.offsets.append(offsets)
        self.word_ids.append(word)
        self.sequence_ids.append(sequence)

    def append(self, other: "EncodingBuilder") -> None:
        """Appends what another collected. The parts that overflow are combined, each of one with each of the other.

        Source: HF tokenizers `Encoding::merge_with`, in whose order the parts are and in which they have parts in turn.
        """
        overflowing = [part._joined(end) for part in self.overflowing for end in (other, *other.overflowing)]
        overflowing += [self._joined(end) for end in other.overflowing]
        self._extend(other)
        self.overflowing = overflowing

    def _extend(self, other: "EncodingBuilder") -> None:
        n = len(self.ids)
        self.sequence_ranges = self.sequence_ranges | {
            sequence: (first + n, last + n) for sequence, (first, last) in other.sequence_ranges.items()
        }
        self.ids = self.ids + other.ids
        self.tokens = self.tokens + other.tokens
        self.type_ids = self.type_ids + other.type_ids
        self.special_tokens_mask = self.special_tokens_mask + other.special_tokens_mask
        self.offsets = self.offsets + other.offsets
        self.word_ids = self.word_ids + other.word_ids
        self.sequence_ids = self.sequence_ids + other.sequence_ids

    @classmethod
    def join(cls, pieces: list["EncodingBuilder"]) -> "EncodingBuilder":
        """Returns what `append` of each piece makes, with `overflowing` left for when it is asked for."""
        joined = cls()
        for piece in pieces:
            joined._extend(piece)
        joined.pieces = pieces
        return joined

    def _overflow(self, length: int, pad: tuple[int, str, int], pad_left: bool) -> list[Encoding]:
        whole = self
        if self.pieces:
            whole = EncodingBuilder()
            for piece in self.pieces:
                whole.append(piece)
        return [part.build_padded(length, pad, pad_left) for part in whole.overflowing]

    def _joined(self, end: "EncodingBuilder") -> "EncodingBuilder":
        joined = copy.copy(self)  # appending replaces lists and never changes them
        joined.append(end)
        return joined

    def build(self) -> Encoding:
        """Returns the encoding as it is."""
        return self.build_padded(0, (0, "", 0), False)

    def build_padded(self, length: int, pad: tuple[int, str, int], pad_left: bool) -> Encoding:
        """Returns the encoding, it and what overflows filled up to `length` with `pad` (id, token, type id)."""
        pad_id, pad_token, pad_type_id = pad
        n_padding = max(0, length - len(self.ids))
        shift = n_padding if pad_left else 0

        def padded(values: list[Any], filler: Any) -> list[Any]:
            filling = [filler] * n_padding
            return filling + values if pad_left else values + filling

        return Encoding(
            ids=padded(self.ids, pad_id),
            tokens=padded(self.tokens, pad_token),
            type_ids=padded(self.type_ids, pad_type_id),
            attention_mask=padded([1] * len(self.ids), 0),
            special_tokens_mask=padded(self.special_tokens_mask, 1),
            offsets=padded(self.offsets, (0, 0)),
            word_ids=padded(self.word_ids, None),
            sequence_ids=padded(self.sequence_ids, None),
            sequence_ranges={i: (first + shift, last + shift) for i, (first, last) in self.sequence_ranges.items()},
            overflow=functools.partial(self._overflow, length, pad, pad_left),
        )


def assemble(
    template: TemplateProcessing,
    sequences: Sequence[Sequence[EncodedToken]],
    truncation: Truncation | None = None,
    trims: tuple[bool, ...] = (),
) -> EncodingBuilder:
    """Truncates a text or a pair, trims the offsets, and puts special tokens around it.

    Args:
      template: the layout; one without special tokens where none are wanted.
      sequences: the tokens of the text, and of its pair if there is one.
      truncation: what is too long goes to `overflowing`.
      trims: `add_prefix_space` for each time that `trim_offsets` is to run.

    Raises:
      ValueError: if the text cannot be truncated that way.
    """
    pieces = template.single if len(sequences) == 1 else template.pair
    parts = [[(0, len(tokens))] for tokens in sequences]
    if truncation:
        n_second = len(sequences[1]) if len(sequences) > 1 else None
        kept = truncation.lengths(len(sequences[0]), n_second, n_added(pieces, template.special_tokens))
        parts = [truncation.parts(len(tokens), n) for tokens, n in zip(sequences, kept, strict=False)]
    joined: list[EncodingBuilder] = []
    for piece in pieces:
        if piece.is_sequence:
            i = _SEQUENCES.index(piece.name)
            cut = [_part(sequences[i][first:last], i, piece.type_id, trims) for first, last in parts[i]]
            cut[0].overflowing = cut[1:]
            joined.append(cut[0])
        else:
            special = EncodingBuilder()
            for token_id, token in zip(*template.special_tokens[piece.name], strict=True):
                special.add(token_id, token, piece.type_id, (0, 0), None, None)
            joined.append(special)
    return EncodingBuilder.join(joined)


def _part(tokens: Sequence[EncodedToken], sequence: int, type_id: int, trims: tuple[bool, ...]) -> EncodingBuilder:
    offsets = [token.offsets for token in tokens]
    for add_prefix_space in trims:
        offsets = trim_offsets([token.text for token in tokens], offsets, add_prefix_space)
    builder = EncodingBuilder()
    builder.begin(sequence)
    for token, span in zip(tokens, offsets, strict=True):
        builder.add(token.id, token.text, type_id, span, token.word, sequence)
    return builder
