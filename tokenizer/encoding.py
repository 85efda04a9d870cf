# SPDX-License-Identifier: Apache-2.0
"""`Encoding`: the tokens of one text or pair, with HF's attributes and its lookups between tokens, words and text."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, cast

from tokenmill.tokenizer.post_processors import Direction, Padding, Truncation
from tokenmill.tokenizer.token_runs import TokenRun


@dataclasses.dataclass
class Encoding:
    """The result of `Tokenizer.encode`; all lists among the fields have one entry per token.

    `pad`, `truncate` and `set_sequence_id` change it in place.

    Where tokens come from in their text is found out when somebody asks: `of_ids` makes an encoding that knows how.

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
    """Start and end of the token in its text, in characters; (0, 0) for tokens that are in neither text."""
    word_ids: list[int | None]
    """Number of the pre-token in its text; None for tokens that are in neither text."""
    sequence_ranges: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """The range of tokens of the text, key 0, and of its pair, key 1; empty if no longer known."""
    overflow: Callable[[], list["Encoding"]] = dataclasses.field(
        default_factory=lambda: list, repr=False, compare=False
    )
    """Makes `overflowing` when asked for: two long texts may have very many parts, which are rarely needed."""
    read: Callable[[list[int]], list[TokenRun]] | None = dataclasses.field(
        default_factory=lambda: None, repr=False, compare=False
    )
    """Returns ids as runs of text; None if there is no decoder. Not pickled: it is a method of the tokenizer."""

    @classmethod
    def of_row(cls, batch: Any, row: int, choice: tuple[int, ...] = (0, 0), ids: list[int] | None = None) -> "Encoding":
        """Returns an encoding that asks an `assembling.EncodedTexts` for its fields when somebody asks for them.

        row: which of these it is; choice: the numbers of the parts of its texts that it has; ids: its ids, if known.
        """
        encoding: Any = cls.__new__(cls)
        if ids is not None:
            encoding.ids = ids
        encoding._batch, encoding._row, encoding._choice = batch, row, choice
        made: Encoding = encoding  # `cast` is a call, which this one has no time for
        return made

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        batch = fields.get("_batch")
        if name in fields:  # another thread was faster
            return fields[name]
        if batch is None or name not in _LATER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = None if "_runs" in fields else batch.plain(fields["_row"], name)
        if name == "read":
            return batch.read
        if name == "overflow":
            return functools.partial(batch.overflow, self._row, self._choice, fields.get("_paddings", ()))
        return fields.setdefault(name, batch.field(self._all_runs(), name) if value is None else value)

    def _all_runs(self) -> Any:
        """Returns the `assembling.Run`s of an encoding that has a batch."""
        fields = self.__dict__
        if "_runs" not in fields:
            fields["_runs"] = fields["_batch"].runs(fields["_row"], fields["_choice"])
        return fields["_runs"]

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *_LATER]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoding({len(self.ids)} tokens)"

    def __getstate__(self) -> dict[str, Any]:
        fields = self.__dict__
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {"read": None}
        if "overflow" in fields:
            return state
        if not fields["_batch"].overflows(fields["_row"], fields["_choice"]):  # as most parts do not, of one text
            state["overflow"] = list
        else:
            del state["overflow"]  # it has the tokenizer, which what makes the parts anew has not
            state |= {name: fields[name] for name in ("_row", "_choice", "_paddings") if name in fields}
            state |= {"_batch": fields["_batch"].alone(fields["_row"]), "_row": 0}
        return state

    def _copy(self) -> "Encoding":
        copy: Any = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return cast("Encoding", copy)

    def _repr_html_(self) -> str:
        """Shows the first tokens in a notebook, as `Tokenizer.token_runs` reads them."""
        from tokenmill.tokenizer.token_runs import html_of, printable

        ids, tokens = self.ids[:_SHOWN_TOKENS], self.tokens[:_SHOWN_TOKENS]
        runs = self.read(ids) if self.read else []
        runs = runs or [TokenRun(i, "ordinary", b"", printable(token)) for i, token in zip(ids, tokens, strict=True)]
        return html_of(runs, len(self.ids))

    @functools.cached_property
    def overflowing(self) -> list["Encoding"]:
        """What truncation cut off, in parts laid out like this one; of a pair, each part with each of the other's."""
        return self.overflow()

    @property
    def n_sequences(self) -> int:
        """2 for a pair, else 1."""
        fields = self.__dict__
        if "_batch" in fields and "sequence_ranges" not in fields:  # not worth looking for the tokens
            return fields["_batch"].n_sequences(fields["_row"])
        return len(self.sequence_ranges) or 1

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 for tokens of the text, 1 for those of its pair; None for tokens that are in neither."""
        ids: list[int | None] = [None] * len(self.ids)
        for sequence in range(self.n_sequences):
            places = self._range(sequence)
            ids[places.start : places.stop] = [sequence] * len(places)
        return ids

    @property
    def words(self) -> list[int | None]:
        """`word_ids` under its old name."""
        return self.word_ids

    def _range(self, sequence_index: int) -> range:
        """Returns the range of tokens of a sequence; as in HF, all tokens if no sequence has that number."""
        return range(*self.sequence_ranges.get(sequence_index, (0, len(self.ids))))

    def token_to_sequence(self, token_index: int) -> int | None:
        """Returns the number of the sequence that a token belongs to, None if there is none."""
        ranges = self.sequence_ranges or {0: (0, len(self.ids) + 1)}  # one too many, as in HF
        return next((i for i, (first, last) in ranges.items() if first <= token_index < last), None)

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        """Returns the range of characters in its text that a token covers, None if it belongs to no text."""
        return self.offsets[token_index] if self._is_of_a_text(token_index) else None

    def token_to_word(self, token_index: int) -> int | None:
        """Returns the number of the word that a token is part of, None if it belongs to no text."""
        return self.word_ids[token_index] if self._is_of_a_text(token_index) else None

    def _is_of_a_text(self, token_index: int) -> bool:
        return token_index < len(self.ids) and self.token_to_sequence(token_index) is not None

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Returns the range of tokens of a word, None if no token is part of it."""
        found: list[int] = []
        words = self.word_ids
        for i in self._range(sequence_index):
            word = words[i]
            if word is not None and word > word_index:
                break
            if word == word_index:
                found.append(i)
        return (found[0], found[-1] + 1) if found else None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Returns the range of characters in its text that a word covers, None if no token is part of it."""
        tokens = self.word_to_tokens(word_index, sequence_index)
        return (self.offsets[tokens[0]][0], self.offsets[tokens[1] - 1][1]) if tokens else None

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """Returns the first token that covers a character of a text, None if there is none."""
        places = self._range(sequence_index)
        spans = zip(places, itertools.islice(self.offsets, places.start, places.stop), strict=False)
        return next((i for i, (first, last) in spans if first <= char_pos < last), None)

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """Returns the number of the word that a character of a text belongs to, None if there is none."""
        token_index = self.char_to_token(char_pos, sequence_index)
        return None if token_index is None else self.token_to_word(token_index)

    # Changes. Lists are replaced, never changed in place: encodings share them.

    def pad(
        self,
        length: int,
        direction: Direction = "right",
        pad_id: int = 0,
        pad_type_id: int = 0,
        pad_token: str = "[PAD]",
    ) -> None:
        """Pads this encoding and what overflows to `length` tokens."""
        self.pad_by(Padding(length, direction, None, pad_id, pad_type_id, pad_token), length)

    def pad_by(self, padding: Padding, length: int) -> None:
        """Pads this encoding and what overflows to `length` tokens, otherwise as `padding` says."""
        padding = dataclasses.replace(padding, length=length, pad_to_multiple_of=None)
        n_padding, on_left = max(0, length - len(self.ids)), padding.direction == "left"
        fields = self.__dict__
        fields.pop("overflowing", None)
        if "_batch" in fields:
            runs, more = self._all_runs(), [fields["_batch"].padding(n_padding, padding)]
            fields["_runs"] = more + runs if on_left else runs + more
            fields["_paddings"] = (*fields.get("_paddings", ()), padding)
        if "_batch" not in fields or "overflow" in fields:
            self._set_overflow(functools.partial(_padded, self.overflow, (padding,)))
        fillers = (padding.pad_id, padding.pad_token, padding.pad_type_id, 0, 1, (0, 0), None)
        for name, filler in zip(_PER_TOKEN, fillers, strict=True):
            if name in fields:
                filling: list[Any] = [filler] * n_padding
                fields[name] = filling + fields[name] if on_left else fields[name] + filling
        if "sequence_ranges" in fields:
            self.sequence_ranges = _shifted(self.sequence_ranges, n_padding if on_left else 0)

    def truncate(self, max_length: int, stride: int = 0, direction: Direction = "right") -> None:
        """Cuts this encoding to `max_length` tokens; `overflowing` has the rest, in parts that share `stride` tokens.

        What overflowed before is lost, and so is the knowledge of which tokens belong to a pair.

        Raises:
          ValueError: if `stride` is not less than `max_length`.
        """
        truncation = Truncation(max_length, "longest_first", direction, stride)
        if max_length >= len(self.ids):
            return
        if max_length == 0:
            parts = [self._part(0, 0), self._copy()]
        else:
            parts = [self._part(*part) for part in truncation.parts(len(self.ids), max_length)]
        fields = {name: getattr(parts[0], name) for name in (*_PER_TOKEN, "sequence_ranges")}
        self.__dict__ = fields | {"read": self.read, "overflow": functools.partial(list, parts[1:])}

    @staticmethod
    def merge(encodings: Iterable["Encoding"], growing_offsets: bool = True) -> "Encoding":
        """Concatenates encodings, and combines what overflows: each part of one with each part of the next.

        If several hold the same sequence, the tokens of the last one count as that sequence.

        Args:
          encodings: what to concatenate.
          growing_offsets: whether the offsets of each go on where those of the one before end; else they stay.
        """
        merged = Encoding([], [], [], [], [], [], [])
        for encoding in encodings:
            merged = merged._followed_by(encoding, growing_offsets)
        return merged

    def set_sequence_id(self, sequence_id: int) -> None:
        """Makes all tokens belong to the sequence of that number."""
        self.sequence_ranges = self.sequence_ranges | {sequence_id: (0, len(self.ids))}

    def _set_overflow(self, overflow: Callable[[], list["Encoding"]]) -> None:
        vars(self).pop("overflowing", None)
        self.overflow = overflow

    def _part(self, first: int, last: int) -> "Encoding":
        part: dict[str, Any] = {name: getattr(self, name)[first:last] for name in _PER_TOKEN}
        return Encoding(**part, read=self.read)

    def _followed_by(self, other: "Encoding", growing_offsets: bool) -> "Encoding":
        joined = {name: getattr(self, name) + getattr(other, name) for name in _PER_TOKEN}
        if growing_offsets and self.offsets:
            shift = self.offsets[-1][1]
            joined["offsets"] = self.offsets + [(first + shift, last + shift) for first, last in other.offsets]
        ranges = self.sequence_ranges | _shifted(other.sequence_ranges, len(self.ids))
        copies = self._copy(), other._copy()
        overflow = functools.partial(_combine, *copies, growing_offsets)
        return Encoding(**joined, sequence_ranges=ranges, overflow=overflow, read=self.read or other.read)


_SHOWN_TOKENS = 1000
"""The most tokens that a notebook shows."""

_PER_TOKEN = ("ids", "tokens", "type_ids", "attention_mask", "special_tokens_mask", "offsets", "word_ids")
_LATER = frozenset({*_PER_TOKEN, "sequence_ranges", "overflow", "read"})


def _padded(overflow: Callable[[], list[Encoding]], paddings: Iterable[Padding]) -> list[Encoding]:
    parts = [part._copy() for part in overflow()]
    for part, padding in itertools.product(parts, paddings):
        part.pad_by(padding, padding.length or 0)
    return parts


def _combine(first: Encoding, second: Encoding, growing_offsets: bool) -> list[Encoding]:
    """Returns the overflowing parts of a merged encoding.

    Source: HF tokenizers `Encoding::merge_with`: in its order, and with parts of their own as there.
    """
    ends = second.overflowing
    parts = [part._followed_by(end, growing_offsets) for part in first.overflowing for end in (second, *ends)]
    return parts + [first._followed_by(end, growing_offsets) for end in ends]


def _shifted(ranges: dict[int, tuple[int, int]], n: int) -> dict[int, tuple[int, int]]:
    return {sequence: (first + n, last + n) for sequence, (first, last) in ranges.items()}
