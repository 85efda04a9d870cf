# SPDX-License-Identifier: Apache-2.0
"""How an `Encoding` is assembled: the tokens of a text or a pair are truncated, then special tokens put around them."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.post_processors import TemplateProcessing, Truncation, n_added, trim_offsets
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.token_runs import TokenRun

_SEQUENCES = "AB"


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


class EncodedTexts:
    """Texts and pairs that were encoded together, to ids; what else an `Encoding` holds is found when asked for."""

    def __init__(
        self, texts: Sequence[Any], firsts: Sequence[int], ids: Ragged, template: TemplateProcessing,
        truncation: Truncation | None, align: Callable[[Any, list[int]], list[EncodedToken]],
        finish: Callable[[list[list[EncodedToken]]], Encoding], spans: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        """Takes encoded texts.

        Args:
          texts: all texts, those of a pair one after the other.
          firsts: int[n + 1], the first text of each of the n encodings.
          ids: a row of int32 ids for each text.
          template, truncation: as `assemble`.
          align: finds the tokens of a text; takes it and its ids.
          finish: `assemble` with the template, the truncation and whatever else it needs.
          spans: `offsets.find_spans` of the texts and their tokens, if these are the bytes of the texts.
        """
        self._find_spans = spans
        self._texts, self._firsts, self._align, self._finish = texts, firsts, align, finish
        self._template, self._truncation = template, truncation
        self._values, self._offsets = ids.values, ids.offsets.tolist()
        self._around = None if truncation or len(firsts) != len(texts) + 1 else _around(template)

    def encodings(self) -> list[Encoding]:
        """Returns one for each text or pair."""
        return [Encoding.of_row(self, row) for row in range(len(self._firsts) - 1)]

    def _sequences(self, row: int) -> list[list[int]]:
        bounds = self._offsets[self._firsts[row] : self._firsts[row + 1] + 1]
        return [self._values[a:b].tolist() for a, b in itertools.pairwise(bounds)]

    def n_sequences(self, row: int) -> int:
        """Returns how many texts a row has: 2 for a pair."""
        return self._firsts[row + 1] - self._firsts[row]

    def known(self, row: int) -> tuple[list[int], list[int], list[int], list[int]]:
        """Returns the ids, type ids, attention mask and special tokens mask of an encoding."""
        if self._around is not None:  # one text, nothing cut: what small calls ask for
            (ids, types, special), (more, more_types, more_special), type_id = self._around
            found = self._values[self._offsets[row] : self._offsets[row + 1]].tolist()
            n = len(found)
            type_ids = types + [type_id] * n + more_types
            return ids + found + more, type_ids, [1] * len(type_ids), special + [0] * n + more_special
        sequences, template, truncation = self._sequences(row), self._template, self._truncation
        pieces = template.single if len(sequences) == 1 else template.pair
        if truncation:
            n_second = len(sequences[1]) if len(sequences) > 1 else None
            kept = truncation.lengths(len(sequences[0]), n_second, n_added(pieces, template.special_tokens))
            parts = [truncation.parts(len(ids), n)[0] for ids, n in zip(sequences, kept, strict=False)]
            sequences = [ids[start:stop] for ids, (start, stop) in zip(sequences, parts, strict=True)]
        ids, type_ids, special = [], [], []
        for piece in pieces:
            is_text = piece.is_sequence
            added = sequences[_SEQUENCES.index(piece.name)] if is_text else template.special_tokens[piece.name].ids
            ids += added
            type_ids += [piece.type_id] * len(added)
            special += [int(not is_text)] * len(added)
        return ids, type_ids, [1] * len(ids), special

    @functools.cached_property
    def _spans(self) -> Any:
        return None if self._find_spans is None else self._find_spans()

    def offsets(self, row: int) -> list[tuple[int, int]] | None:
        """Returns the offsets of an encoding if they can be found for the whole batch, else None."""
        if self._around is None or self._spans is None or not self._spans[2][row]:
            return None
        (before, *_), (after, *_), _ = self._around
        starts, stops = (each[self._offsets[row] : self._offsets[row + 1]].tolist() for each in self._spans[:2])
        return [(0, 0)] * len(before) + list(zip(starts, stops, strict=True)) + [(0, 0)] * len(after)

    def whole(self, row: int) -> Encoding:
        """Returns an encoding with all fields."""
        texts = self._texts[self._firsts[row] : self._firsts[row + 1]]
        return self._finish([self._align(*each) for each in zip(texts, self._sequences(row), strict=True)])


def _around(template: TemplateProcessing) -> tuple[Any, Any, int]:
    """Returns the ids, type ids and special tokens mask before a single text, and after it, and the text's type id."""
    at = [piece.is_sequence for piece in template.single].index(True)
    sides = []
    for pieces in (template.single[:at], template.single[at + 1 :]):
        ids = [(i, piece.type_id) for piece in pieces for i in template.special_tokens[piece.name].ids]
        sides.append(([i for i, _ in ids], [type_id for _, type_id in ids], [1] * len(ids)))
    return sides[0], sides[1], template.single[at].type_id


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
