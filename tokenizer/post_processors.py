# SPDX-License-Identifier: Apache-2.0
"""Post-processors: what stands around the tokens of a text, how long a row may be, how short."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Direction = Literal["right", "left"]
TruncationStrategy = Literal["longest_first", "only_first", "only_second"]


class TemplatePiece(NamedTuple):
    """One place in a template: a sequence, or a special token."""

    name: str
    """"A" or "B" for a sequence, else a key of the template's special tokens."""
    type_id: int
    is_sequence: bool


class SpecialToken(NamedTuple):
    """What a special token of a template stands for: usually one id."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TemplateProcessing:
    """Lays out a single text, or a pair, among special tokens.

    Raises:
      ValueError: if the single template does not hold A exactly once, the pair template not A and B exactly once each, or a
        special token is not declared.

    Source: HF tokenizers `processors/template.rs`.
    """

    single: tuple[TemplatePiece, ...]
    pair: tuple[TemplatePiece, ...]
    special_tokens: Mapping[str, SpecialToken]

    def __post_init__(self) -> None:
        for label, pieces, wanted in (("single", self.single, ["A"]), ("pair", self.pair, ["A", "B"])):
            sequences = sorted(p.name for p in pieces if p.is_sequence)
            if sequences != wanted:
                raise ValueError(f"{label} template must hold {' and '.join(wanted)} exactly once, got {sequences}")
            for piece in pieces:
                if not piece.is_sequence and piece.name not in self.special_tokens:
                    raise ValueError(f"{label} template uses {piece.name!r}, which special_tokens does not declare")

    def __hash__(self) -> int:
        return hash((self.single, self.pair))


@dataclasses.dataclass(frozen=True)
class BertProcessing:
    """[CLS] A [SEP], and [CLS] A [SEP] B [SEP] with type id 1 for the second text.

    Source: HF tokenizers `processors/bert.rs`.
    """

    sep: tuple[str, int]
    cls: tuple[str, int]

    def template(self) -> TemplateProcessing:
        """Returns the same layout as a template."""
        cls, sep = TemplatePiece("cls", 0, False), TemplatePiece("sep", 0, False)
        first, second = TemplatePiece("A", 0, True), TemplatePiece("B", 1, True)
        return TemplateProcessing(
            single=(cls, first, sep),
            pair=(cls, first, sep, second, TemplatePiece("sep", 1, False)),
            special_tokens={
                "cls": SpecialToken((self.cls[1],), (self.cls[0],)),
                "sep": SpecialToken((self.sep[1],), (self.sep[0],)),
            },
        )


PLAIN_LAYOUT = TemplateProcessing(
    single=(TemplatePiece("A", 0, True),),
    pair=(TemplatePiece("A", 0, True), TemplatePiece("B", 1, True)),
    special_tokens={},
)
"""The layout without a post-processor, or without special tokens."""


def n_added(pieces: Iterable[TemplatePiece], special_tokens: Mapping[str, SpecialToken]) -> int:
    """Returns how many special tokens a template adds."""
    return sum(len(special_tokens[p.name].ids) for p in pieces if not p.is_sequence)


@dataclasses.dataclass(frozen=True)
class Truncation:
    """Longest row, in tokens, special tokens included.

    Source: HF tokenizers `utils/truncation.rs`, without overflowing parts.
    """

    max_length: int
    strategy: TruncationStrategy = "longest_first"
    direction: Direction = "right"
    """Which end is cut off."""

    def __post_init__(self) -> None:
        if self.max_length < 0:
            raise ValueError(f"max_length must not be negative, got {self.max_length!r}")
        if self.strategy not in ("longest_first", "only_first", "only_second"):
            raise ValueError(
                f"strategy must be 'longest_first', 'only_first' or 'only_second', got {self.strategy!r}"
            )
        _check_direction(self.direction)

    def lengths(self, n_first: int, n_second: int | None, n_special: int) -> tuple[int, int]:
        """Returns how many tokens of the text and of its pair stay.

        Raises:
          ValueError: if the special tokens alone are too many, or the text that may be cut is not long enough.
        """
        room = self.max_length - n_special
        if room < 0:
            raise ValueError(
                f"max_length {self.max_length} leaves no room for the {n_special} special tokens; raise it, "
                "or encode without special tokens"
            )
        second = n_second or 0
        excess = n_first + second - room
        if excess <= 0:
            return n_first, second
        if room == 0:
            return 0, 0
        if self.strategy == "longest_first":
            return (room, 0) if n_second is None else _cut_longest(n_first, second, room)
        if self.strategy == "only_second" and n_second is None:
            raise ValueError("truncation 'only_second' needs a pair, but only one text was given")
        which, n = ("text", n_first) if self.strategy == "only_first" else ("pair", second)
        if n <= excess:
            raise ValueError(
                f"truncation {self.strategy!r} to {self.max_length} must remove {excess} tokens, but the {which} has {n}; "
                "use 'longest_first'"
            )
        return (n_first - excess, second) if self.strategy == "only_first" else (n_first, second - excess)


def _cut_longest(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """Cuts the longer text down to what the shorter leaves, and where that is not enough both to half the room."""
    short, long = min(n_first, n_second), room - min(n_first, n_second)
    if short > long:
        # The odd token goes to the longer text; of two equally long ones, to the second.
        short, long = room // 2, room - room // 2
    return (long, short) if n_first > n_second else (short, long)


@dataclasses.dataclass(frozen=True)
class Padding:
    """Shortest row, in tokens.

    Source: HF tokenizers `utils/padding.rs`.
    """

    length: int | None = None
    """None: as long as the longest row of the batch."""
    direction: Direction = "right"
    pad_to_multiple_of: int | None = None
    pad_id: int = 0
    pad_type_id: int = 0
    pad_token: str = "[PAD]"

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 0:
            raise ValueError(f"length must not be negative, got {self.length!r}")
        if self.pad_to_multiple_of is not None and self.pad_to_multiple_of < 1:
            raise ValueError(f"pad_to_multiple_of must be positive, got {self.pad_to_multiple_of!r}")
        _check_direction(self.direction)

    def target(self, longest: int) -> int:
        """Returns the length to pad to in a batch whose longest row has `longest` tokens."""
        length = longest if self.length is None else self.length
        if self.pad_to_multiple_of:
            length += -length % self.pad_to_multiple_of
        return length


def _check_direction(direction: str) -> None:
    if direction not in ("right", "left"):
        raise ValueError(f"direction must be 'right' or 'left', got {direction!r}")
