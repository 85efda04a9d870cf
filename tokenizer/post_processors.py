# SPDX-License-Identifier: Apache-2.0
"""Post-processors: special tokens around the tokens of a text, trimmed offsets; and truncation and padding of rows."""

import collections.abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.unicode import data as unicode_data

Direction = Literal["right", "left"]
TruncationStrategy = Literal["longest_first", "only_first", "only_second"]


MAX_AROUND = 1024
"""The most tokens around a text; a small file could otherwise make any row as long as memory is large."""


class TemplatePiece(NamedTuple):
    """One place in a template: a sequence, or a special token."""

    name: str
    """"A" or "B" for a sequence, else a key of the template's special tokens."""
    type_id: int
    is_sequence: bool


class SpecialToken(NamedTuple):
    """The ids and tokens that a special token of a template stands for, usually one."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]


def n_added(pieces: Iterable[TemplatePiece], special_tokens: Mapping[str, SpecialToken]) -> int:
    """Returns how many special tokens a template adds."""
    return sum(len(special_tokens[p.name].ids) for p in pieces if not p.is_sequence)


@dataclasses.dataclass(frozen=True)
class TemplateProcessing:
    """Lays out a single text, or a pair, among special tokens.

    Raises:
      ValueError: if the single template does not hold A exactly once, the pair template does not hold A and B exactly
        once each, or a special token is not declared.

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
            if (n := n_added(pieces, self.special_tokens)) > MAX_AROUND:
                raise ValueError(f"{label} template adds {n} tokens to every text, allowed are {MAX_AROUND}")

    def __hash__(self) -> int:
        return hash((self.single, self.pair))

    trims: ClassVar[tuple[bool, ...]] = ()
    """Offsets stay as they are; see `trim_offsets`."""

    @functools.cached_property
    def around(self) -> tuple[list[int], list[int]]:
        """The ids before and after a single text."""
        at = [piece.is_sequence for piece in self.single].index(True)
        before, after = (
            [i for piece in pieces for i in self.special_tokens[piece.name].ids]
            for pieces in (self.single[:at], self.single[at + 1 :])
        )
        return before, after

    def template(self, add_special_tokens: bool = True) -> "TemplateProcessing":
        """Returns this template, or the same without special tokens; type ids and the order of a pair stay."""
        if add_special_tokens:
            return self
        single, pair = (tuple(p for p in pieces if p.is_sequence) for pieces in (self.single, self.pair))
        return TemplateProcessing(single, pair, {})


def template_of(layout: tuple[str, str], find: Callable[[str], tuple[int, str]]) -> TemplateProcessing:
    """Makes a template of two strings, such as "cls A sep" and "cls A sep B:1 sep:1".

    Args:
      layout: that of a single text, and of a pair; `:1` is the type id.
      find: returns the id and the text of the token that a word other than A and B stands for.
    """
    special: dict[str, SpecialToken] = {}

    def piece(word: str) -> TemplatePiece:
        name, _, type_id = word.partition(":")
        if name not in "AB":
            token_id, name = find(name)
            special[name] = SpecialToken((token_id,), (name,))
            return TemplatePiece(name, int(type_id or 0), False)
        return TemplatePiece(name, int(type_id or 0), True)

    single, pair = (tuple(map(piece, text.split())) for text in layout)
    return TemplateProcessing(single, pair, special)


@dataclasses.dataclass(frozen=True)
class BertProcessing:
    """[CLS] A [SEP], and [CLS] A [SEP] B [SEP] with type id 1 for the second text.

    Source: HF tokenizers `processors/bert.rs`.
    """

    sep: tuple[str, int]
    cls: tuple[str, int]

    trims: ClassVar[tuple[bool, ...]] = ()
    """Offsets stay as they are; see `trim_offsets`."""

    def template(self, add_special_tokens: bool = True) -> TemplateProcessing:
        """Returns the same layout as a template."""
        if not add_special_tokens:
            return PLAIN_LAYOUT
        return _framed(self, TemplatePiece("B", 1, True), TemplatePiece("sep", 1, False))


PLAIN_LAYOUT = TemplateProcessing(
    single=(TemplatePiece("A", 0, True),),
    pair=(TemplatePiece("A", 0, True), TemplatePiece("B", 1, True)),
    special_tokens={},
)
"""The template used without a post-processor, or without special tokens."""


class _Trimming:
    """A post-processor that may trim offsets."""

    trim_offsets: bool
    add_prefix_space: bool

    @property
    def trims(self) -> tuple[bool, ...]:
        """`add_prefix_space` for each time that `trim_offsets` is to run."""
        return (self.add_prefix_space,) if self.trim_offsets else ()


@dataclasses.dataclass(frozen=True)
class RobertaProcessing(_Trimming):
    """<s> A </s>, and <s> A </s></s> B </s>, all of type id 0, with offsets trimmed as by `ByteLevel`.

    Source: HF tokenizers `processors/roberta.rs`.
    """

    sep: tuple[str, int]
    cls: tuple[str, int]
    trim_offsets: bool = True
    add_prefix_space: bool = True

    def template(self, add_special_tokens: bool = True) -> TemplateProcessing:
        """Returns the same layout as a template."""
        sep = TemplatePiece("sep", 0, False)
        return _framed(self, sep, TemplatePiece("B", 0, True), sep).template(add_special_tokens)


def _framed(processor: BertProcessing | RobertaProcessing, *second: TemplatePiece) -> TemplateProcessing:
    """Returns [CLS] A [SEP]; `second` follows it in a pair."""
    single = TemplatePiece("cls", 0, False), TemplatePiece("A", 0, True), TemplatePiece("sep", 0, False)
    special = {
        name: SpecialToken((token_id,), (token,))
        for name, (token, token_id) in (("cls", processor.cls), ("sep", processor.sep))
    }
    return TemplateProcessing(single, (*single, *second), special)


@dataclasses.dataclass(frozen=True)
class ByteLevel(_Trimming):
    """Adds no tokens, but excludes white space at both ends of a token from its offsets; see `trim_offsets`.

    Source: HF tokenizers `pre_tokenizers/byte_level.rs`.
    """

    add_prefix_space: bool = True
    trim_offsets: bool = True
    use_regex: bool = True
    """Without effect: HF reads it in pre-tokenizing only."""

    def template(self, add_special_tokens: bool = True) -> TemplateProcessing:
        """Returns the layout without special tokens."""
        return PLAIN_LAYOUT


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Post-processors in sequence: at most one that adds special tokens, and any number that only trim offsets.

    Raises:
      ValueError: if several add special tokens, or offsets are trimmed after BertProcessing or RobertaProcessing, where
        HF treats the special tokens as part of the text.

    Source: HF tokenizers `processors/sequence.rs`.
    """

    processors: tuple["PostProcessor", ...]

    def __post_init__(self) -> None:
        self._layout()

    def _flat(self) -> list["PostProcessor"]:
        return [part for p in self.processors for part in (p._flat() if isinstance(p, Sequence) else [p])]

    def _layout(self) -> "PostProcessor | None":
        layout: PostProcessor | None = None
        for processor in self._flat():
            if not isinstance(processor, ByteLevel):
                if layout is not None:
                    raise ValueError(
                        f"a sequence of post-processors may hold one layout, got {type(layout).__name__} and "
                        f"{type(processor).__name__}; leave one out"
                    )
                layout = processor
            elif processor.trim_offsets and isinstance(layout, BertProcessing | RobertaProcessing):
                raise ValueError(
                    f"ByteLevel with trim_offsets follows {type(layout).__name__} in a sequence of post-processors; "
                    "put it before"
                )
        return layout

    @property
    def trims(self) -> tuple[bool, ...]:
        """`add_prefix_space` for each time that `trim_offsets` is to run."""
        return tuple(trim for processor in self._flat() for trim in processor.trims)

    def template(self, add_special_tokens: bool = True) -> TemplateProcessing:
        """Returns the layout as a template."""
        layout = self._layout()
        return layout.template(add_special_tokens) if layout else PLAIN_LAYOUT


PostProcessor = TemplateProcessing | BertProcessing | RobertaProcessing | ByteLevel | Sequence


def renumbered(processor: PostProcessor, id_of: Callable[[str], int]) -> PostProcessor:
    """Returns a post-processor for another vocabulary: the same tokens, each with the id that `id_of` returns."""
    if isinstance(processor, Sequence):
        return Sequence(tuple(renumbered(part, id_of) for part in processor.processors))
    if isinstance(processor, BertProcessing | RobertaProcessing):
        sep, cls = ((token, id_of(token)) for token, _ in (processor.sep, processor.cls))
        return dataclasses.replace(processor, sep=sep, cls=cls)
    if isinstance(processor, TemplateProcessing):
        special = {
            name: SpecialToken(tuple(map(id_of, token.tokens)), token.tokens)
            for name, token in processor.special_tokens.items()
        }
        return dataclasses.replace(processor, special_tokens=special)
    return processor


@functools.cache
def _trimmed_characters() -> str:
    spaces = "".join(chr(c) for first, last in unicode_data.runs("bert/spaces") for c in range(first, last + 1))
    return spaces + BYTE_ALPHABET[ord(" ")]


def n_trimmed(token: str) -> tuple[int, int]:
    """Returns how many characters of white space a token, spelled as in the vocabulary, begins and ends with."""
    characters = _trimmed_characters()
    return len(token) - len(token.lstrip(characters)), len(token) - len(token.rstrip(characters))


def trim_offsets(
    tokens: Iterable[str], offsets: Iterable[tuple[int, int]], add_prefix_space: bool
) -> list[tuple[int, int]]:
    """Returns the offsets of tokens without the white space at both ends of each.

    Args:
      tokens: the tokens of one text, after truncation, spelled as in the vocabulary; added tokens include the white
        space that they took.
      offsets: their offsets, in characters.
      add_prefix_space: whether the pre-tokenizer may have added the space that the first token begins with; it then
        has no character in the text to exclude.

    Source: HF tokenizers `pre_tokenizers/byte_level.rs`, `process_offsets`.
    """
    trimmed = []
    for i, (token, (start, stop)) in enumerate(zip(tokens, offsets, strict=True)):
        n_leading, n_trailing = n_trimmed(token)
        if n_leading > 0:
            if n_leading == 1 and add_prefix_space and (i == 0 or start == 0):
                n_leading = 0
            start = min(start + n_leading, stop)
        if 0 < n_trailing <= stop:
            stop = max(stop - n_trailing, start)
        trimmed.append((start, stop))
    return trimmed


@dataclasses.dataclass(frozen=True)
class Truncation:
    """The length to cut rows to, in tokens, special tokens included.

    Source: HF tokenizers `utils/truncation.rs`.
    """

    max_length: int
    strategy: TruncationStrategy = "longest_first"
    direction: Direction = "right"
    """The end that is cut off."""
    stride: int = 0
    """How many tokens each overflowing part repeats from the one before."""

    def __post_init__(self) -> None:
        if self.max_length < 0:
            raise ValueError(f"max_length must not be negative, got {self.max_length!r}")
        if self.stride < 0 or 0 < self.max_length <= self.stride:
            raise ValueError(
                f"stride must be in 0..max_length - 1, with max_length {self.max_length}, got {self.stride!r}"
            )
        if self.strategy not in ("longest_first", "only_first", "only_second"):
            raise ValueError(f"strategy must be 'longest_first', 'only_first' or 'only_second', got {self.strategy!r}")
        _check_direction(self.direction)

    def lengths(self, n_first: int, n_second: int | None, n_special: int) -> tuple[int, int]:
        """Returns how many tokens of the text and of its pair are kept.

        Raises:
          ValueError: if the special tokens alone are too many, or the text to cut is missing or too short.
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
                f"truncation {self.strategy!r} to {self.max_length} takes {excess} tokens, but the {which} has {n}; "
                "use 'longest_first'"
            )
        return (n_first - excess, second) if self.strategy == "only_first" else (n_first, second - excess)

    def parts(self, n: int, kept: int) -> collections.abc.Sequence[tuple[int, int]]:
        """Returns the parts that a text of `n` tokens is cut into, as ranges: first what is kept, then what overflows.

        Every part has `kept` tokens, see `lengths`, the last one perhaps fewer. If none are kept, one part has all.

        Raises:
          ValueError: if `stride` is not less than the length of a part.
        """
        if kept >= n:
            return [(0, n)]
        if kept == 0:
            return [(0, 0), (0, n)]
        step = kept - self.stride
        if step <= 0:
            raise ValueError(
                f"stride {self.stride} must be less than the {kept} tokens that max_length {self.max_length} leaves "
                "this text; lower it, or raise max_length"
            )
        return _Windows(n, kept, step, self.direction == "left")


@dataclasses.dataclass(frozen=True)
class _Windows(collections.abc.Sequence[tuple[int, int]]):
    """Ranges of `kept` of `n` tokens, one every `step`, made when asked for: each part of a text asks for its own."""

    n: int
    kept: int
    step: int
    is_from_end: bool

    def __len__(self) -> int:
        return 1 - (self.kept - self.n) // self.step  # rounded up

    def __getitem__(self, number: Any) -> Any:
        first = range(len(self))[number] * self.step
        last = min(first + self.kept, self.n)
        return (self.n - last, self.n - first) if self.is_from_end else (first, last)


def _cut_longest(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """Cuts the longer text to the room that the shorter leaves; if that is not enough, cuts both to half the room."""
    short, long = min(n_first, n_second), room - min(n_first, n_second)
    if short > long:
        # The odd token goes to the longer text; of two equally long ones, to the second.
        short, long = room // 2, room - room // 2
    return (long, short) if n_first > n_second else (short, long)


MAX_PADDED = 1 << 24
"""The most tokens to pad to: a file that asks for more would take all memory."""


@dataclasses.dataclass(frozen=True)
class Padding:
    """The length to pad rows to, in tokens.

    Source: HF tokenizers `utils/padding.rs`.
    """

    length: int | None = None
    """None pads to the longest row of the batch."""
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
        if max(self.length or 0, self.pad_to_multiple_of or 0) > MAX_PADDED:
            raise ValueError(f"rows are padded to at most {MAX_PADDED} tokens, got {self!r}")
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
