# SPDX-License-Identifier: Apache-2.0
"""A model with the kernels that run it on words somebody else has found."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer.counting import Tally
from tokenizer.engines.base import WordCachePool, run
from tokenizer.kernels import caches, words_bpe, words_tied_bpe, words_unigram, words_wordlevel, words_wordpiece
from tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenizer.models.bpe import new_bpe_scratch
from tokenizer.models.unigram import new_unigram_scratch
from tokenizer.ragged import Ragged, read_only
from tokenizer.words import Words

_NO_SCRATCH = np.int64(0)


@dataclasses.dataclass(frozen=True)
class ModelRunner:
    """The tables of a model and its compiled loops, see `kernels.word_encoding`."""

    tables: Any
    unk_id: int
    kernels: Any
    """Module with `encode`, `align` and `count_swallowed`."""
    new_scratch: Callable[[int], Any]
    """Makes the model's scratch for words of up to so many bytes."""
    max_ids_per_byte: int = 1

    def encode(self, words: Words, added: npt.NDArray[np.int32], pool: WordCachePool, tally: Tally | None) -> Ragged:
        """Encodes the words of rows; rows that are an added token become its id."""
        n_bytes = int((words.stops - words.starts).sum())
        word_bytes = words.max_word + 16
        return run(
            self.kernels.encode, (words, added), (self.tables, self.new_scratch(word_bytes)), pool, tally,
            n_rows=words.row_offsets.size - 1, n_bytes=n_bytes,
            # Every token takes its share of the bytes of its word, and every added token one row.
            n_ids=n_bytes * self.max_ids_per_byte + added.size, word_bytes=word_bytes,
            max_ids_per_byte=self.max_ids_per_byte,
        )  # fmt: skip

    def align(self, words: Words) -> tuple[list[int], list[int], list[int]]:
        """Returns, for every token: its id, where it ends in the bytes of its word, the number of its word."""
        n = int((words.stops - words.starts).sum()) * self.max_ids_per_byte + 16
        out, ends, numbers = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int32)
        word_bytes = words.max_word + 16
        k = self.kernels.align(
            words, self.tables, self.new_scratch(word_bytes), caches.new_scratch(word_bytes, self.max_ids_per_byte),
            out, ends, numbers,
        )  # fmt: skip
        return out[:k].tolist(), ends[:k].tolist(), numbers[:k].tolist()

    def new_tally(self) -> Tally:
        """Returns an empty tally that knows what this model swallows."""
        return Tally(self.count_swallowed)

    def count_swallowed(self, words: Words, counts: npt.NDArray[np.int64], characters: npt.NDArray[np.int64]) -> None:
        """Adds to `characters` what the unknown token swallows of words that occurred `counts` times."""
        n = words.max_word * self.max_ids_per_byte + 16
        self.kernels.count_swallowed(
            words, read_only(counts), self.tables, self.new_scratch(n), caches.new_scratch(n), np.empty(n, np.int32),
            self.unk_id, characters,
        )  # fmt: skip


def model_runner(model: Any) -> ModelRunner:
    """Lowers a model to its tables and kernels."""
    tables = model.tables
    if isinstance(model, WordPiece):
        return ModelRunner(tables, tables.unk_id, words_wordpiece, lambda n: _NO_SCRATCH)
    if isinstance(model, WordLevel):
        return ModelRunner(tables, tables.unk_id, words_wordlevel, lambda n: _NO_SCRATCH)
    if isinstance(model, BPE):
        if model.tied_tables is not None and not model.drops:
            return ModelRunner(
                model.tied_tables, tables.unk_id, words_tied_bpe, lambda n: new_bpe_scratch(n, tables),
                tables.max_ids_per_byte,
            )  # fmt: skip
        return ModelRunner(
            tables, tables.unk_id, words_bpe, lambda n: new_bpe_scratch(n, tables), tables.max_ids_per_byte
        )
    if isinstance(model, Unigram):
        return ModelRunner(tables, tables.unk_id, words_unigram, new_unigram_scratch)
    raise TypeError(f"model must be a WordPiece, BPE, Unigram or WordLevel, got {type(model).__name__}")
