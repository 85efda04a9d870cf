# SPDX-License-Identifier: Apache-2.0
"""Any pre-tokenizer and any model, run one after the other over whole columns; the model runs in the encode loop."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.base import AlignedToken
from tokenmill.tokenizer.engines.models import ModelRunner
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import unspell
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.words import Words


class StagedEngine:
    """Runs the pre-tokenizer as a stage that finds words, then the model's kernel on them."""

    def __init__(self, pre_tokenizer: Any, runner: ModelRunner, pool: TablePool) -> None:
        self._pre_tokenizer = pre_tokenizer
        self._runner = runner
        self._pool = pool

    @property
    def unk_id(self) -> int:
        """Id of the unknown token, -1 if there is none."""
        return self._runner.unk_id

    def new_tally(self) -> Tally:
        """Returns an empty tally."""
        return self._runner.new_tally()

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `base.Engine`."""
        return self._runner.encode(self.words(rows, is_first), added, self._pool, tally)

    def words(self, rows: Ragged, is_first: npt.NDArray[np.bool_]) -> Words:
        """Finds the words of rows."""
        if self._pre_tokenizer is None:
            return whole_rows(rows)
        return self._pre_tokenizer.split_rows(rows, is_first)

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one row and finds where each token came from; see `base.Engine`."""
        if self._pre_tokenizer is None:
            pieces = [text] if text.text else []
        else:
            pieces = self._pre_tokenizer.split_aligned(text, is_first)
        spelled = self._pre_tokenizer is not None and self._pre_tokenizer.spells_bytes
        encoded = [unspell(piece.text) if spelled else piece.text.encode() for piece in pieces]
        offsets = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        values = read_only(np.frombuffer(bytearray().join(encoded), np.uint8))
        words = Words(values, offsets[:-1].copy(), offsets[1:].copy(), np.array([0, len(pieces)], np.int64))
        characters = np.cumsum((values & 0xC0) != 0x80)
        tokens: list[AlignedToken] = []
        at = (-1, 0)
        for token_id, end, number in zip(*self._runner.align(words), strict=True):
            word, begin = at if at[0] == number else (number, 0)
            piece, data = pieces[word], encoded[word]
            # A token's span has the characters that it covers, whole or in part; an empty token has the span of the
            # one before.
            first, last = (min(i, len(data) - 1) for i in (begin, max(begin, end - 1)))
            if not spelled:
                start = offsets[word]
                first, last = (int(characters[start + i] - characters[start]) for i in (first, last))
            if end == begin and tokens:
                span = tokens[-1].span
            else:
                span = (piece.starts[first], piece.stops[last])
            is_unknown = token_id == self.unk_id and self._runner.model_name == "unigram"
            found = piece.text[first : last + 1] if is_unknown else ""
            tokens.append(AlignedToken(token_id, span, first_word + word, found))
            at = (number, end)
        return tokens, first_word + len(pieces)

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        name = type(self._pre_tokenizer).__name__ if self._pre_tokenizer is not None else None
        return self._runner.found_kernel.__name__, [], [name] if name else []


def whole_rows(rows: Ragged) -> Words:
    """Makes every row that is not empty one word."""
    filled = np.diff(rows.offsets) > 0
    row_offsets = np.zeros(rows.n_rows + 1, np.int64)
    np.cumsum(filled, out=row_offsets[1:])
    return Words(rows.values, rows.offsets[:-1][filled], rows.offsets[1:][filled], row_offsets)
