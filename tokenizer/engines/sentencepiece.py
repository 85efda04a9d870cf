# SPDX-License-Identifier: Apache-2.0
"""Unigram as sentencepiece does it: a normalized row is one chain of words, and sums are in single precision."""

import numpy as np
import numpy.typing as npt

from tokenizer.aligned import AlignedText
from tokenizer.counting import Tally
from tokenizer.engines.base import AlignedToken, WordCachePool
from tokenizer.kernels import sentencepiece_unigram as kernels
from tokenizer.kernels import word_cache
from tokenizer.kernels.sentencepiece_unigram import LONGEST_CACHED
from tokenizer.models import Unigram
from tokenizer.models.unigram import SPACE, new_unigram_scratch
from tokenizer.ragged import Ragged
from tokenizer.words import Words

_SPACE_BYTES = SPACE.encode()


class SentencePieceEngine:
    """Encodes rows that `SentencePieceNormalizer` has made. A tally counts words, but not what is unknown in them."""

    def __init__(self, model: Unigram, pool: WordCachePool) -> None:
        self._model = model
        self._pool = pool

    @property
    def unk_id(self) -> int:
        """The unknown token, -1 where there is none."""
        return int(self._model.tables.unk_id)

    def new_tally(self) -> Tally:
        """Returns an empty tally."""
        return Tally(_nothing_swallowed)

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `base.Engine`."""
        if added.size and (added >= 0).any():
            raise ValueError("added tokens cannot be cut out of texts for a sentencepiece model; it knows its own")
        n = rows.max_row + 1
        # A token takes at least one byte; a row may end in one more.
        out = np.empty(rows.n_values + rows.n_rows + 2, np.int32)
        offsets = np.zeros(rows.n_rows + 1, np.int64)
        with self._pool.borrow(rows.n_values) as cache:
            kernels.encode_rows(
                rows.values, rows.offsets, self._model.splits_at_spaces, self._model.tables, new_unigram_scratch(n),
                np.empty(LONGEST_CACHED + 1), cache, np.empty(n, np.int64), out, offsets,
            )  # fmt: skip
        ids = out[: offsets[-1]]
        if ids.size and ids.min() < 0:
            raise ValueError("a text holds a character that no piece covers, and the model has no unknown piece")
        if tally is not None:
            text = rows.values[rows.offsets[0] : rows.offsets[-1]]
            begins = (text[:-2] == _SPACE_BYTES[0]) & (text[1:-1] == _SPACE_BYTES[1]) & (text[2:] == _SPACE_BYTES[2])
            tally.counter.state[word_cache.COUNTER_TOTAL] += int(begins.sum()) if text.size > 2 else 0
        return Ragged(ids, offsets)

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one row with where each token came from; see `base.Engine`."""
        tokens = []
        begin = 0
        for token_id, end in self._model.tokenize(text.text):
            part = text[begin:end]
            tokens.append(AlignedToken(token_id, part.span() if part.text else (0, 0), first_word))
            begin = max(begin, end)
        return tokens, first_word + 1

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns kernel, fused components, stages beside it."""
        return "sentencepiece_unigram.encode_rows", ["Unigram"], []


def _nothing_swallowed(words: Words, counts: npt.NDArray[np.int64], characters: npt.NDArray[np.int64]) -> None:
    """Stands where a model says what its unknown token swallows; here no word is ever counted as unknown."""
