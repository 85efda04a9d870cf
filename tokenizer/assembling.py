# SPDX-License-Identifier: Apache-2.0
"""How an `Encoding` is assembled: the tokens of a text or a pair are truncated, then special tokens put around them."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.post_processors import TemplateProcessing, Truncation, n_added, trim_offsets
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
