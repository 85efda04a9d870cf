# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of a batch are in their texts, for byte-level models whose tokens are the bytes of the text.

Such tokens lie side by side, so their lengths tell, also of a text that is in the normal form which its tokenizer makes
of it. A row whose tokens have not as many bytes as its text, because
something was dropped or an added token took white space along, is found by the plain stages, one by one.

Its reference implementation is `plan.EncodePlan.align`; `tests/tokenizer/test_offsets.py` compares them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.normalizers import Normalizer
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.post_processors import n_trimmed
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.sequence import adds_prefix_space
from tokenmill.tokenizer.ragged import Ragged, read_only

Int32s = npt.NDArray[np.int32]


class TokenLengths(NamedTuple):
    """How long tokens are in the text."""

    n_bytes: Int32s
    """int32[n_ids]; -1 for tokens that say nothing of the text: the unknown token, and gaps between ids."""
    n_leading: Int32s
    """int32[n_ids]: the bytes of white space that a post-processor trims in front."""
    n_trailing: Int32s
    """int32[n_ids]: and behind."""

    @classmethod
    def of(cls, tokenizer: Any, texts: Mapping[int, str]) -> "TokenLengths | None":
        """Returns those of a tokenizer; None if its tokens are not the bytes of the text.

        Args:
          tokenizer: a `Tokenizer`.
          texts: its tokens by id, as they are spelled.
        """
        model, before = tokenizer.model, tokenizer.pre_tokenizer
        if not isinstance(tokenizer.normalizer, NormalForm | None):
            return None
        if not isinstance(model, BPE) or not is_byte_level(before):
            return None
        if adds_prefix_space(before) or not before.keeps_text:
            return None
        added = {token.id: token.content for token in tokenizer.added_tokens}
        n_bytes, n_leading, n_trailing = np.zeros((3, tokenizer.n_ids), np.int32)
        n_bytes[:] = -1
        for i, text in texts.items():
            n_bytes[i] = len(added[i].encode()) if i in added else len(text)
            n_leading[i], n_trailing[i] = n_trimmed(text)
            if i in added and not text.isascii() and n_trimmed(text) != (0, 0):
                n_bytes[i] = -1  # white space of several bytes
        if model.unk_token is not None:
            n_bytes[model.vocab[model.unk_token]] = -1
        return cls(read_only(n_bytes), read_only(n_leading), read_only(n_trailing))


def are_normal(normalizer: Normalizer | None, rows: Ragged) -> npt.NDArray[np.bool_]:
    """Returns bool[n_rows]: the rows that a normal form leaves as they are; so it does with each part of them."""
    made = rows if normalizer is None else normalizer.normalize_rows(rows)
    same = np.ones(rows.n_rows, np.bool_)
    if made is rows:
        return same
    for row in range(rows.n_rows):
        one, other = (each.values[each.offsets[row] : each.offsets[row + 1]] for each in (rows, made))
        same[row] = one.size == other.size and bool((one == other).all())
    return same


def find_spans(
    rows: Ragged, ids: Ragged, lengths: TokenLengths, trims: Sequence[bool], *, in_bytes: bool
) -> tuple[Int32s, Int32s, npt.NDArray[np.bool_]]:
    """Finds where tokens begin and end in their texts.

    Args:
      rows: the texts, uint8[n_bytes], valid UTF-8.
      ids: int32, the tokens of each, without special tokens.
      lengths: how long tokens are.
      trims: as for `assembling.assemble`.
      in_bytes: whether to count bytes; else characters.

    Returns:
      int32[n_tokens] each: starts and stops, counted from the beginning of the text; and bool[n_rows], the rows for
      which these are right: tokens of the others are not the bytes of the text.
    """
    values, first = ids.values[ids.offsets[0] : ids.offsets[-1]], ids.offsets - ids.offsets[0]
    sizes = lengths.n_bytes[values]
    ends = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    n_row_bytes = np.diff(rows.offsets)
    is_unknown = np.concatenate(([0], np.cumsum(sizes < 0)))
    is_right = (np.diff(ends[first]) == n_row_bytes) & (np.diff(is_unknown[first]) == 0)
    row_of = np.repeat(np.arange(first.size - 1), np.diff(first))
    base = ends[first[:-1]][row_of]
    starts, stops = ends[:-1] - base, ends[1:] - base
    if not in_bytes:
        # The places of wrong rows may be anywhere.
        at = rows.offsets[:-1][row_of]
        low, high = rows.offsets[0], rows.offsets[-1]
        leads = np.concatenate(([0], np.cumsum(rows.values[low:high] & 0xC0 != 0x80)))
        before = leads[np.clip(at - low, 0, high - low)]
        starts = leads[np.clip(at + starts + 1 - low, 0, high - low)] - 1 - before
        stops = leads[np.clip(at + stops - low, 0, high - low)] - before
    is_first = np.zeros(values.size, np.bool_)
    is_first[first[:-1][np.diff(first) > 0]] = True
    for add_prefix_space in trims:
        n_leading = np.where(
            (lengths.n_leading[values] == 1) & add_prefix_space & (is_first | (starts == 0)),
            0,
            lengths.n_leading[values],
        )
        starts = np.minimum(starts + n_leading, np.maximum(stops, starts))
        n_trailing = lengths.n_trailing[values]
        stops = np.where((n_trailing > 0) & (n_trailing <= stops), np.maximum(stops - n_trailing, starts), stops)
    return starts.astype(np.int32), stops.astype(np.int32), is_right
