# SPDX-License-Identifier: Apache-2.0
"""How a row is laid out: the tokens of a text or a pair are truncated, then special tokens and padding put around them.

A row is a list of `Run`s; every field of an `Encoding` is read off them.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, cast

from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.offsets import MOST_LISTED, EncodedToken, GivenPlaces, Places
from tokenmill.tokenizer.post_processors import Padding, TemplateProcessing, Truncation, n_added
from tokenmill.tokenizer.ragged import Ragged

_SEQUENCES = "AB"


class Run(NamedTuple):
    """Tokens of a row that are side by side: of a text, special ones, or padding."""

    n: int
    type_id: int
    ids: Sequence[int] = ()
    tokens: Sequence[str] = ()
    """All of special tokens; of padding, one."""
    is_padding: bool = False
    text: int = -1
    """The number of the text in its batch, -1 for special tokens and padding."""
    start: int = 0
    """The number of the first token in its text."""
    sequence: int = 0
    """0 for the text of a row, 1 for its pair."""


class EncodedTexts:
    """Texts and pairs that were encoded together, to ids; what else an `Encoding` holds is found when asked for."""

    def __init__(
        self, places: Places | GivenPlaces | None, n_texts: int, firsts: Sequence[int] | None,
        ids: "Ragged | list[list[int]]", template: TemplateProcessing, truncation: Truncation | None,
    ) -> None:  # fmt: skip
        """Takes encoded texts.

        Args:
          places: finds where the tokens are; None if nobody shall know.
          n_texts: how many texts there are, those of a pair one after the other.
          firsts: int[n + 1], the first text of each of the n encodings; None if each has one text.
          ids: a row of int32 ids for each text.
          template: what goes around them.
          truncation: how long a row may be; what does not fit goes to `overflowing`. None cuts nothing.
        """
        self._places, self._n_texts, self._firsts, self._ids = places, n_texts, firsts, ids
        self._template, self._truncation = template, truncation
        self._is_plain = firsts is None and truncation is None
        if isinstance(ids, Ragged) and ids.n_values <= MOST_LISTED:
            values, ends = ids.values.tolist(), ids.offsets.tolist()
            self._ids = [values[begin:end] for begin, end in itertools.pairwise(ends)]

    @classmethod
    def given(
        cls, sequences: Sequence[list[EncodedToken]], template: TemplateProcessing,
        truncation: Truncation | None = None, trims: tuple[bool, ...] = (), read: Any = None,
    ) -> Self:  # fmt: skip
        """Takes the tokens of one text, or of a pair.

        trims: `trim_offsets` runs once for each entry, with the entry as its `add_prefix_space`; read: see `Encoding`.
        """
        places = GivenPlaces([token for tokens in sequences for token in tokens], trims, read)
        ids = [[token.id for token in tokens] for tokens in sequences]
        return cls(places, len(sequences), [0, len(sequences)], ids, template, truncation)

    def encodings(self) -> list[Encoding]:
        """Returns one for each text or pair.

        Raises:
          ValueError: if a text cannot be truncated.
        """
        if not self._is_plain or isinstance(self._ids, Ragged):
            n = self._n_texts if self._firsts is None else len(self._firsts) - 1
            encodings = [Encoding.of_row(self, row) for row in range(n)]
            if self._truncation is not None:
                for encoding in encodings:
                    _ = encoding.ids
            return encodings
        before, after = self._template.around
        if before or after:
            return [Encoding.of_row(self, row, ids=before + ids + after) for row, ids in enumerate(self._ids)]
        return [Encoding.of_row(self, row, ids=ids) for row, ids in enumerate(self._ids)]

    @property
    def read(self) -> Any:
        """See `Encoding`."""
        return None if self._places is None else self._places.read

    def _texts_of(self, row: int) -> range:
        """Returns the numbers of the texts of an encoding."""
        return range(row, row + 1) if self._firsts is None else range(self._firsts[row], self._firsts[row + 1])

    @functools.cached_property
    def _offsets(self) -> list[int]:
        if isinstance(self._ids, Ragged):
            return cast("list[int]", self._ids.offsets.tolist())
        return [0, *itertools.accumulate(map(len, self._ids))]

    def _ids_of(self, run: Run) -> list[int]:
        if isinstance(self._ids, Ragged):
            begin = self._offsets[run.text] + run.start
            return cast("list[int]", self._ids.values[begin : begin + run.n].tolist())
        return self._ids[run.text][run.start : run.start + run.n]

    def n_sequences(self, row: int) -> int:
        """Returns how many texts a row has: 2 for a pair."""
        return len(self._texts_of(row))

    def _parts(self, row: int) -> list[Sequence[tuple[int, int]]]:
        """Returns the parts of each text of an encoding, as ranges of tokens: first the one that is kept."""
        lengths = [self._offsets[text + 1] - self._offsets[text] for text in self._texts_of(row)]
        if self._truncation is None:
            return [[(0, n)] for n in lengths]
        n_special = n_added(self._pieces(row), self._template.special_tokens)
        kept = self._truncation.lengths(lengths[0], lengths[1] if len(lengths) > 1 else None, n_special)
        return [self._truncation.parts(n, some) for n, some in zip(lengths, kept, strict=False)]

    def _pieces(self, row: int) -> Any:
        return self._template.single if self.n_sequences(row) == 1 else self._template.pair

    def runs(self, row: int, choice: tuple[int, ...] = (0, 0)) -> list[Run]:
        """Returns the layout of an encoding; choice: the number of the part of each of its texts."""
        parts, first = self._parts(row), self._texts_of(row).start
        runs = []
        for piece in self._pieces(row):
            if piece.is_sequence:
                i = _SEQUENCES.index(piece.name)
                start, stop = parts[i][choice[i]]
                runs.append(Run(stop - start, piece.type_id, text=first + i, start=start, sequence=i))
            else:
                special = self._template.special_tokens[piece.name]
                runs.append(Run(len(special.ids), piece.type_id, special.ids, special.tokens))
        return runs

    @staticmethod
    def padding(n: int, padding: Padding) -> Run:
        """Returns `n` tokens of padding."""
        return Run(n, padding.pad_type_id, [padding.pad_id] * n, [padding.pad_token] * n, is_padding=True)

    def overflows(self, row: int, choice: tuple[int, ...]) -> bool:
        """Returns whether an encoding may have parts that overflow: the first part of a text may, no other one."""
        return any(not number and len(parts) > 1 for number, parts in zip(choice, self._parts(row), strict=False))

    def overflow(self, row: int, choice: tuple[int, ...], paddings: Sequence[Padding]) -> list[Encoding]:
        """Returns the parts of an encoding that overflow: each part of a text with each of the other's.

        paddings: what to pad them by.

        Source: HF tokenizers `Encoding::merge_with`: in its order, and with parts of their own as there.
        """
        if self._truncation is None:
            return []
        parts = self._parts(row)
        order = [_SEQUENCES.index(piece.name) for piece in self._pieces(row) if piece.is_sequence]
        others = [[k for k in range(1, len(parts[i])) if choice[i] == 0] for i in order]
        # Those with the first part of the text that comes first are the last.
        offered = [[choice[i], *more] for i, more in zip(order, others, strict=True)]
        choices = itertools.product([*others[0], choice[order[0]]], *offered[1:])
        found = []
        for each in choices:
            chosen = dict(zip(order, each, strict=True))
            if any(chosen[i] != choice[i] for i in order):
                part = Encoding.of_row(self, row, (chosen[0], chosen.get(1, 0)))
                for padding in paddings:
                    part.pad_by(padding, padding.length or 0)
                found.append(part)
        return found

    def plain(self, row: int, name: str) -> Any:
        """Returns a field of an encoding in less time than by its runs; None if it cannot."""
        if name != "offsets" or not self._is_plain or self._places is None:
            return None
        pairs = self._places.offsets(self._offsets[row], self._offsets[row + 1])
        before, after = self._template.around
        return [*[(0, 0)] * len(before), *pairs, *[(0, 0)] * len(after)] if before or after else pairs

    def field(self, runs: Sequence[Run], name: str) -> Any:
        """Returns a field of the encoding that has these runs."""
        if name == "sequence_ranges":
            ends = itertools.accumulate(run.n for run in runs)
            return {run.sequence: (end - run.n, end) for run, end in zip(runs, ends, strict=True) if run.text >= 0}
        values: list[Any] = []
        for run in runs:
            values += self._values(run, name)
        return values

    def _values(self, run: Run, name: str) -> list[Any]:
        if name == "type_ids":
            return [run.type_id] * run.n
        if name in ("attention_mask", "special_tokens_mask"):
            return [int(not run.is_padding if name == "attention_mask" else run.text < 0)] * run.n
        if run.text < 0 and name in ("ids", "tokens"):
            return [*getattr(run, name)]
        if name == "ids":
            return self._ids_of(run)
        if run.text < 0 or self._places is None:
            return [{"offsets": (0, 0), "word_ids": None, "tokens": ""}[name]] * run.n
        begin = self._offsets[run.text] + run.start
        if name == "tokens":
            return list(self._places.names(begin, self._ids_of(run)))
        if name == "word_ids":
            return list(self._places.words(begin, begin + run.n))
        return self._places.offsets(begin, begin + run.n, is_cut=run.start > 0)

    def alone(self, row: int) -> "EncodedTexts":
        """Returns a batch of one encoding that holds all that it needs, and nothing of the tokenizer."""
        sequences = []
        for text in self._texts_of(row):
            run = Run(self._offsets[text + 1] - self._offsets[text], 0, text=text)
            ids = self._ids_of(run)
            if self._places is None:
                sequences.append([EncodedToken(token_id, "", (0, 0), None) for token_id in ids])
            else:
                sequences.append(self._places.tokens_from(self._offsets[text], ids))
        trims = () if self._places is None else self._places.trims
        return EncodedTexts.given(sequences, self._template, self._truncation, trims)
