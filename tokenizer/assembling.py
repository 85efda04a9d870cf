# SPDX-License-Identifier: Apache-2.0
"""How an `Encoding` is assembled: the tokens of a text or a pair are truncated, then special tokens put around them."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.post_processors import TemplatePiece, TemplateProcessing, Truncation, n_added, trim_offsets
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.token_runs import TokenRun

_SEQUENCES = "AB"
MOST_LISTED = 1 << 20
"""The most ids that become lists at once; those of more are lists when they are asked for, one text at a time."""


class EncodedToken(NamedTuple):
    """One token of a text."""

    id: int
    text: str
    offsets: tuple[int, int]
    word: int | None
    matched: str = ""
    """See `AlignedToken`."""


def assemble(
    template: TemplateProcessing,
    sequences: Sequence[Sequence[EncodedToken]],
    truncation: Truncation | None = None,
    trims: tuple[bool, ...] = (),
    read: Callable[[list[int]], list[TokenRun]] | None = None,
) -> Encoding:
    """Truncates a text or a pair, trims the offsets, and puts special tokens around it.

    Args:
      template: the layout; for no special tokens, a template that has none.
      sequences: the tokens of the text, and of its pair if there is one.
      truncation: how long a row may be; what does not fit goes to `overflowing`. None cuts nothing.
      trims: `trim_offsets` runs once for each entry, with the entry as its `add_prefix_space`.
      read: see `Encoding`.

    Raises:
      ValueError: if the text cannot be truncated as `truncation` asks.
    """
    pieces = template.single if len(sequences) == 1 else template.pair
    parts = [[(0, len(tokens))] for tokens in sequences]
    if truncation:
        n_second = len(sequences[1]) if len(sequences) > 1 else None
        kept = truncation.lengths(len(sequences[0]), n_second, n_added(pieces, template.special_tokens))
        parts = [truncation.parts(len(tokens), n) for tokens, n in zip(sequences, kept, strict=False)]
    joined: list[Encoding] = []
    for piece in pieces:
        if piece.is_sequence:
            i = _SEQUENCES.index(piece.name)
            first, *others = [_part(sequences[i][start:stop], i, piece.type_id, trims) for start, stop in parts[i]]
            for part in (first, *others):
                part.read = read
            first.overflow = functools.partial(list, others)
            joined.append(first)
        else:
            special = zip(*template.special_tokens[piece.name], strict=True)
            tokens = [EncodedToken(token_id, token, (0, 0), None) for token_id, token in special]
            joined.append(_encoding(tokens, None, piece.type_id))
    return Encoding.merge(joined, growing_offsets=False)


class RowLayout(NamedTuple):
    """What goes around the tokens of texts."""

    template: TemplateProcessing
    trims: tuple[bool, ...]
    """See `assemble`."""
    before: list[int]
    after: list[int]
    """The ids before and after a single text."""


class Part(NamedTuple):
    """A part of an encoding that overflows, in the place of the number of a row."""

    row: int
    number: int
    """Its place among the parts that overflow."""
    kept: tuple[tuple[int, int], ...]
    """Which tokens of each text it has."""


class EncodedTexts:
    """Texts and pairs that were encoded together, to ids; what else an `Encoding` holds is found when asked for."""

    def __init__(
        self, finder: Any, texts: Sequence[Any], firsts: Sequence[int] | None, ids: "Ragged | list[list[int]]",
        layout: RowLayout, truncation: Truncation | None,
    ) -> None:  # fmt: skip
        """Takes encoded texts.

        Args:
          finder: an `encoder.Finder`, which finds where the tokens are; None if nobody shall know.
          texts: all texts, those of a pair one after the other.
          firsts: int[n + 1], the first text of each of the n encodings; None if each has one text.
          ids: a row of int32 ids for each text.
          layout: what goes around them; truncation: as `assemble`.
        """
        self._finder, self._texts, self._firsts, self._ids = finder, texts, firsts, ids
        self._layout, self._truncation = layout, truncation
        if isinstance(ids, Ragged) and ids.n_values <= MOST_LISTED:
            values, ends = ids.values.tolist(), ids.offsets.tolist()
            self._ids = [values[begin:end] for begin, end in itertools.pairwise(ends)]
        self._found: dict[bool, Any] = {}
        self._last: tuple[int | Part, list[tuple[TemplatePiece, int, int, int]]] = (-1, [])
        """The pieces of the encoding that was asked for last: its fields are often asked for one after the other."""
        self._last_whole: tuple[int, Encoding] | None = None
        """The encoding of which parts were asked for last: all of them are found together."""

    def encodings(self) -> list[Encoding]:
        """Returns one for each text or pair."""
        if self._firsts is not None or self._truncation is not None:
            return [Encoding.of_row(self, row) for row in range(len(self._firsts or self._texts) - bool(self._firsts))]
        if isinstance(self._ids, Ragged):
            return [Encoding.of_row(self, row) for row in range(len(self._texts))]
        before, after = self._layout.before, self._layout.after
        if before or after:
            return [Encoding.of_row(self, row, before + ids + after) for row, ids in enumerate(self._ids)]
        return [Encoding.of_row(self, row, ids) for row, ids in enumerate(self._ids)]

    @property
    def read(self) -> Callable[[list[int]], list[TokenRun]] | None:
        """See `Encoding`."""
        return None if self._finder is None else cast("Any", self._finder.read)

    def _texts_of(self, row: int | Part) -> range:
        """Returns the numbers of the texts of an encoding."""
        row = row.row if isinstance(row, Part) else row
        return range(row, row + 1) if self._firsts is None else range(self._firsts[row], self._firsts[row + 1])

    @functools.cached_property
    def _offsets(self) -> list[int]:
        if isinstance(self._ids, Ragged):
            return cast("list[int]", self._ids.offsets.tolist())
        return [0, *itertools.accumulate(map(len, self._ids))]

    def _ids_of(self, text: int, start: int = 0, stop: int | None = None) -> list[int]:
        if isinstance(self._ids, Ragged):
            begin, end = self._offsets[text], self._offsets[text + 1]
            stop = end - begin if stop is None else stop
            return cast("list[int]", self._ids.values[begin + start : begin + stop].tolist())
        return self._ids[text][start:stop]

    def n_sequences(self, row: int | Part) -> int:
        """Returns how many texts a row has: 2 for a pair."""
        return len(self._texts_of(row))

    def _stretches(self, row: int) -> list[list[tuple[int, int]]]:
        """Returns the parts of each text of an encoding, as ranges of tokens: first the one that is kept."""
        lengths = [self._offsets[text + 1] - self._offsets[text] for text in self._texts_of(row)]
        if self._truncation is None:
            return [[(0, n)] for n in lengths]
        template = self._layout.template
        pieces = template.single if len(lengths) == 1 else template.pair
        n_special = n_added(pieces, template.special_tokens)
        kept = self._truncation.lengths(lengths[0], lengths[1] if len(lengths) > 1 else None, n_special)
        return [self._truncation.parts(n, some) for n, some in zip(lengths, kept, strict=False)]

    def overflow(self, row: int | Part) -> Callable[[], list[Encoding]]:
        """Returns what makes the parts of an encoding that overflow."""
        if isinstance(row, Part):
            return self.whole(row).overflow
        return list if self._truncation is None else functools.partial(self._overflowing, row)

    def _overflowing(self, row: int) -> list[Encoding]:
        stretches, template = self._stretches(row), self._layout.template
        pieces = template.pair if len(stretches) > 1 else template.single
        order = [_SEQUENCES.index(piece.name) for piece in pieces if piece.is_sequence]
        choices = itertools.product(*(range(len(stretches[i])) for i in order))
        # As `encoding._combine` has them: those with the first part of the text that comes first are the last.
        chosen = (dict(zip(order, each, strict=True)) for each in sorted(choices, key=lambda each: not each[0]))
        kept = [tuple(each[choice[i]] for i, each in enumerate(stretches)) for choice in chosen if any(choice.values())]
        return [Encoding.of_row(self, Part(row, number, each)) for number, each in enumerate(kept)]

    def _pieces(self, row: int | Part) -> list[tuple[TemplatePiece, int, int, int]]:
        """Returns the pieces of an encoding, each with its text, -1 for none, and which of its tokens are kept."""
        known, laid_out = self._last
        if known == row:
            return laid_out
        texts, template = self._texts_of(row), self._layout.template
        kept = row.kept if isinstance(row, Part) else [each[0] for each in self._stretches(row)]
        laid_out = []
        for piece in template.single if len(texts) == 1 else template.pair:
            i = _SEQUENCES.index(piece.name) if piece.is_sequence else -1
            laid_out.append((piece, *((texts[i], *kept[i]) if i >= 0 else (-1, 0, 0))))
        self._last = row, laid_out
        return laid_out

    def _laid_out(
        self, row: int | Part, of_text: Callable[[int, int, int], list[Any]], special: str | Any
    ) -> list[Any]:
        """Returns a value for each token of an encoding.

        Args:
          row: the encoding.
          of_text: returns those of some tokens of a text.
          special: that of special tokens, or the field that has it.
        """
        found: list[Any] = []
        for piece, text, start, stop in self._pieces(row):
            if text >= 0:
                found += of_text(text, start, stop)
            else:
                token = self._layout.template.special_tokens[piece.name]
                found += getattr(token, special) if isinstance(special, str) else [special] * len(token.ids)
        return found

    def ids(self, row: int | Part) -> list[int]:
        """Returns the ids of an encoding."""
        if self._firsts is None and not isinstance(row, Part) and self._truncation is None:
            return self._layout.before + self._ids_of(row) + self._layout.after
        return self._laid_out(row, self._ids_of, "ids")

    def known(self, row: int | Part) -> tuple[list[int], list[int], list[int]]:
        """Returns the type ids, attention mask and special tokens mask of an encoding."""
        type_ids: list[int] = []
        special: list[int] = []
        for piece, text, start, stop in self._pieces(row):
            n = stop - start if text >= 0 else len(self._layout.template.special_tokens[piece.name].ids)
            type_ids += [piece.type_id] * n
            special += [int(text < 0)] * n
        return type_ids, [1] * len(special), special

    def places(self, trimmed: bool) -> Any:
        """Returns the `encoder.Places` of all tokens, with their offsets trimmed as the layout says or not at all."""
        if trimmed not in self._found:
            trims = self._layout.trims if trimmed else ()
            self._found[trimmed] = self._finder.places(self._texts, self._ids, trims)
        return self._found[trimmed]

    def _is_placed(self, row: int | Part, trimmed: bool) -> bool:
        is_right = self.places(trimmed and bool(self._layout.trims)).is_right
        return all(is_right[text] for text in self._texts_of(row))

    def found(self, row: int | Part, name: str) -> Any:
        """Returns a field of an encoding if it can be found for the whole batch at once, else None."""
        is_plain = self._finder is not None and self._firsts is None and self._truncation is None
        if name == "offsets" and is_plain and not isinstance(row, Part):  # what most calls with few texts want
            places = self.places(bool(self._layout.trims))
            if not places.is_right[row]:
                return None
            before, after = ([(0, 0)] * len(each) for each in (self._layout.before, self._layout.after))
            return [*before, *places.offsets(self._offsets[row], self._offsets[row + 1]), *after]
        if name == "sequence_ranges":
            at, ranges = 0, {}
            for piece, text, start, stop in self._pieces(row):
                n = stop - start if text >= 0 else len(self._layout.template.special_tokens[piece.name].ids)
                if text >= 0:
                    ranges[_SEQUENCES.index(piece.name)] = (at, at + n)
                at += n
            return ranges
        filler = {"offsets": (0, 0), "word_ids": None, "tokens": ""}[name]
        special = "tokens" if name == "tokens" else filler
        if self._finder is None:
            return self._laid_out(row, lambda text, start, stop: [filler] * (stop - start), special)
        if name == "tokens":
            kept = [(text, self._ids_of(text, start, stop)) for _, text, start, stop in self._pieces(row) if text >= 0]
            named = {text: self._finder.names(ids) for text, ids in kept}
            return None if None in named.values() else self._laid_out(row, lambda text, *_: named[text], special)
        trims = self._layout.trims if name == "offsets" else ()
        if not self._is_placed(row, bool(trims)):
            return None
        places = self.places(bool(trims))

        def of_text(text: int, start: int, stop: int) -> list[Any]:
            begin, end = self._offsets[text] + start, self._offsets[text] + stop
            found = places.offsets(begin, end) if name == "offsets" else places.words[begin:end].tolist()
            if start and found and trims:  # trimmed as the first token, which it is not in its text
                (token_id,) = self._ids_of(text, start, start + 1)
                found[0] = self._finder.trimmed(token_id, *self.places(False).offsets(begin, begin + 1), trims)
            return cast("list[Any]", found)

        return self._laid_out(row, of_text, special)

    def whole(self, row: int | Part) -> Encoding:
        """Returns an encoding with all fields, and what overflows."""
        if isinstance(row, Part):
            last = self._last_whole
            if last is None or last[0] != row.row:
                last = self._last_whole = row.row, self.whole(row.row)
            return last[1].overflowing[row.number]._copy()
        sequences = [self._tokens_of(text) for text in self._texts_of(row)]
        return assemble(self._layout.template, sequences, self._truncation, self._layout.trims, self.read)

    def _tokens_of(self, text: int) -> list[EncodedToken]:
        ids = self._ids_of(text)
        if self._finder is None:
            return [EncodedToken(i, "", (0, 0), None) for i in ids]
        trims = bool(self._layout.trims)
        names = self._finder.names(ids, trims) if self.places(False).is_right[text] else None
        if names is None:
            return cast("list[EncodedToken]", self._finder.align(self._texts[text]))
        places, begin, end = self.places(False), self._offsets[text], self._offsets[text + 1]
        found = zip(ids, names, places.offsets(begin, end), places.words[begin:end].tolist(), strict=True)
        return [EncodedToken(*token) for token in found]


def _part(tokens: Sequence[EncodedToken], sequence: int, type_id: int, trims: tuple[bool, ...]) -> Encoding:
    encoding = _encoding(tokens, sequence, type_id)
    for add_prefix_space in trims:
        texts = [token.matched or token.text for token in tokens]
        encoding.offsets = trim_offsets(texts, encoding.offsets, add_prefix_space)
    return encoding


def _encoding(tokens: Sequence[EncodedToken], sequence: int | None, type_id: int) -> Encoding:
    """Returns tokens of a text, or special tokens if they belong to no sequence."""
    n = len(tokens)
    return Encoding(
        ids=[token.id for token in tokens],
        tokens=[token.text for token in tokens],
        type_ids=[type_id] * n,
        attention_mask=[1] * n,
        special_tokens_mask=[int(sequence is None)] * n,
        offsets=[token.offsets for token in tokens],
        word_ids=[token.word for token in tokens],
        sequence_ranges={} if sequence is None else {sequence: (0, n)},
    )
