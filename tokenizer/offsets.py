# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of a batch are in their texts, for byte-level models whose tokens are the bytes of the text.

Such tokens lie side by side, so their lengths tell, also of a text that is in the normal form which its tokenizer makes
of it. In a row whose tokens have not as many bytes as its text, because something was dropped or an added token took
white space along, `plan.EncodePlan.locate` finds them, as it does those of other models.

Its reference implementation is `plan.EncodePlan.align`; `tests/tokenizer/test_offsets.py` compares them.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import row_kernels
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.post_processors import n_trimmed
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.sequence import adds_prefix_space
from tokenmill.tokenizer.ragged import Ragged, read_only

Int32s = npt.NDArray[np.int32]


class WhiteSpace:
    """The white space at the ends of tokens, which a post-processor may trim; see `post_processors.trim_offsets`."""

    def __init__(self, tokenizer: Any, texts: Mapping[int, str]) -> None:
        """Takes a `Tokenizer`, and its tokens by id, as they are spelled."""
        self.n_leading, self.n_trailing = np.zeros((2, tokenizer.n_ids), np.int32)
        for i, text in texts.items():
            self.n_leading[i], self.n_trailing[i] = n_trimmed(text)
        self.by_match = [token.id for token in tokenizer.added_tokens]
        if isinstance(tokenizer.model, Unigram) and tokenizer.model.unk_id is not None:
            self.by_match.append(tokenizer.model.unk_id)
        """Ids of tokens that are trimmed by the text that they matched, and not as they are spelled."""

    def trim(self, ids: Ragged, trims: Sequence[bool], starts: Int32s, stops: Int32s) -> npt.NDArray[np.bool_]:
        """Trims offsets, in characters, in place; returns the rows in which that is right, bool[n_rows]."""
        row_kernels.trim_spans(
            read_only(ids.values), ids.offsets, self.n_leading, self.n_trailing, _flags(tuple(trims)), starts, stops
        )
        found = np.append(0, np.cumsum(np.isin(ids.values, self.by_match)))
        return np.diff(found[ids.offsets]) == 0


class TokenLengths:
    """How long tokens are in the text."""

    def __init__(self, n_bytes: Int32s, spaces: WhiteSpace) -> None:
        """Takes int32[n_ids], -1 for tokens that say nothing of the text: the unknown token, and gaps between ids."""
        self.n_bytes = n_bytes
        self.find = row_kernels.find_spans.bound(*map(read_only, (n_bytes, spaces.n_leading, spaces.n_trailing)))

    @classmethod
    def of(cls, tokenizer: Any, texts: Mapping[int, str], spaces: WhiteSpace) -> "TokenLengths":
        """Returns those of a tokenizer whose tokens are the bytes of the text; texts: as for `WhiteSpace`."""
        added = {token.id: token for token in tokenizer.added_tokens}
        n_bytes = np.full(tokenizer.n_ids, -1, np.int32)
        for i, text in texts.items():
            n_bytes[i] = len(added[i].content.encode()) if i in added else len(text)
            if i in added and (added[i].rstrip or (not text.isascii() and n_trimmed(text) != (0, 0))):
                n_bytes[i] = -1  # white space that another token may be, too, or of several bytes
        if tokenizer.model.unk_token in tokenizer.model.vocab:
            n_bytes[tokenizer.model.vocab[tokenizer.model.unk_token]] = -1
        return cls(n_bytes, spaces)

    @functools.cached_property
    def _listed(self) -> list[int]:
        return [n if n > 0 else 1 << 40 for n in self.n_bytes.tolist()]

    def of_few(self, texts: Sequence[str], ids: list[list[int]]) -> list[tuple[int, int]] | None:
        """Finds the tokens of texts in ASCII as `find_spans`, untrimmed, without arrays; None if it cannot."""
        found: list[tuple[int, int]] = []
        for text, row in zip(texts, ids, strict=True):
            ends = list(itertools.accumulate(map(self._listed.__getitem__, row), initial=0))
            if ends[-1] != len(text) or not text.isascii():
                return None
            found += itertools.pairwise(ends)
        return found


def are_bytes(tokenizer: Any) -> bool:
    """Whether the tokens of a tokenizer are the bytes of texts, but for those that are not in a normal form."""
    model, before = tokenizer.model, tokenizer.pre_tokenizer
    if not isinstance(tokenizer.normalizer, NormalForm | None):
        return False
    # Tokens with markers are longer than their bytes: as long, by chance, as a text of which something was dropped.
    if not isinstance(model, BPE) or model.byte_fallback or model.prefix or model.suffix:
        return False
    return is_byte_level(before) and not adds_prefix_space(before) and before.keeps_text


def in_utf8(rows: Ragged, id_offsets: npt.NDArray[np.int64], places: Int32s) -> Int32s:
    """Turns places of tokens in their rows, in characters, into bytes, int32[n_tokens]."""
    first, last = rows.offsets[[0, -1]]
    begins = np.append(np.flatnonzero(rows.values[first:last] & 0xC0 != 0x80), last - first)
    row_of = np.repeat(np.arange(rows.n_rows), np.diff(id_offsets))
    at = begins[np.searchsorted(begins, rows.offsets[:-1] - first)[row_of] + places]
    return (at - (rows.offsets[:-1] - first)[row_of]).astype(np.int32)


def find_spans(
    rows: Ragged, ids: Ragged, lengths: TokenLengths, trims: Sequence[bool], *, in_bytes: bool
) -> tuple[Int32s, Int32s, npt.NDArray[np.bool_]]:
    """Finds where tokens begin and end in their texts.

    Args:
      rows: the texts, uint8[n_bytes], valid UTF-8.
      ids: int32, the tokens of each, without special tokens; offsets from 0 to their number.
      lengths: how long tokens are.
      trims: as for `assembling.assemble`.
      in_bytes: whether to count bytes; else characters.

    Returns:
      int32[n_tokens] each: starts and stops, counted from the beginning of the text; and bool[n_rows], the rows for
      which these are right: tokens of the others are not the bytes of the text.
    """
    n = ids.values.size
    starts, stops, is_right = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(rows.n_rows, np.bool_)
    lengths.find(*rows, read_only(ids.values), ids.offsets, _flags(tuple(trims)), in_bytes, starts, stops, is_right)
    return starts, stops, is_right


@functools.cache
def _flags(trims: tuple[bool, ...]) -> npt.NDArray[np.bool_]:
    return np.array(trims, np.bool_)
