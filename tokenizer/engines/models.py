# SPDX-License-Identifier: Apache-2.0
"""A model, with the kernels that run it on words that a pre-tokenizer has found."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.steps import MISS, MODEL, SPANS, BoundSteps, steps_of
from tokenmill.tokenizer.engines.tables import TablePool, run_loop
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.kernels import word_models
from tokenmill.tokenizer.kernels.bpe_crossings import WordCuts
from tokenmill.tokenizer.kernels.by_address import Bound
from tokenmill.tokenizer.kernels.encode_loop import APART, FLAGGED
from tokenmill.tokenizer.kernels.spans import found_spans
from tokenmill.tokenizer.kernels.spelled_bytes import Reading
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.models.bpe import new_bpe_scratch
from tokenmill.tokenizer.models.bpe_tables import NO_CUTS, cuts_of, parts_lack_suffix
from tokenmill.tokenizer.models.byte_alphabet import LETTERS
from tokenmill.tokenizer.models.unigram import new_unigram_scratch
from tokenmill.tokenizer.models.vocabulary import NO_ENTRY
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.words import Words

_NO_SCRATCH = np.int64(0)
_PADDING = 32
"""Bytes beyond a word that models may touch."""
_NO_LETTERS = read_only(LETTERS[:0])


@dataclasses.dataclass(frozen=True)
class ModelRunner:
    """The tables of a model, and what its kernels need."""

    tables: Any
    unk_id: int
    model_name: str
    """One of `word_models.MODELS`."""
    new_scratch: Callable[[int], Any]
    """Makes the model's scratch for words of up to the given number of bytes."""
    max_ids_per_byte: int = 1
    knows_all: bool = True
    """Whether every text can be encoded: if not, a character may be unknown and there is no unknown token; `unk_id` is
    then what the kernels give for it."""

    def encode(self, words: Words, added: npt.NDArray[np.int32], pool: TablePool, tally: Tally | None) -> Ragged:
        """Encodes the words of rows; rows that are an added token become its id."""
        spans = Bound(found_spans, SPANS, Words(*map(read_only, words)), self.cuts)
        kind = FLAGGED if self.flags_parts else APART
        return self.run(
            lambda miss: steps_of(kind, spans, miss), Ragged(words.values, words.row_offsets), added, pool, tally,
            n_bytes=int((words.stops - words.starts).sum()), longest=words.max_word,
        )  # fmt: skip

    def run(
        self, new_steps: Callable[[Bound], BoundSteps], rows: Ragged, added: npt.NDArray[np.int32], pool: TablePool,
        tally: Tally | None, *, n_bytes: int, longest: int,
    ) -> Ragged:  # fmt: skip
        """Runs the encode loop with steps that are made from `new_miss`; see `tables.run_loop`.

        Raises:
          UnknownCharacterError: if a character is unknown and there is no unknown token; nothing is counted then.
        """
        counted = tally if self.knows_all or tally is None else self.new_tally()
        ids = run_loop(
            new_steps, self.new_miss, rows, added, pool, counted,
            # No byte becomes more than `max_ids_per_byte` ids, and every added token takes one row.
            n_ids=n_bytes * self.max_ids_per_byte + rows.n_rows, longest=longest,
            max_ids_per_byte=self.max_ids_per_byte,
        )  # fmt: skip
        if not self.knows_all:
            self._check(ids.values)
            if tally is not None and counted is not None:
                tally.add(counted)
        return ids

    def _check(self, ids: npt.NDArray[np.int32]) -> None:
        """Raises UnknownCharacterError if a character is unknown and there is no unknown token."""
        if not self.knows_all and bool((ids == self.unk_id).any()):
            raise UnknownCharacterError

    def new_model(self, n_bytes: int) -> Bound:
        """Returns the model as a step, with scratch for words of up to `n_bytes` bytes."""
        return Bound(word_models.MODELS[self.model_name], MODEL, self.tables, self.new_scratch(n_bytes))

    def new_miss(self, n_bytes: int) -> Bound:
        """Returns the step that encodes words of up to `n_bytes` bytes and puts them into the loop's table."""
        return Bound(word_models.miss, MISS, self.new_model(n_bytes))

    @functools.cached_property
    def flags_parts(self) -> bool:
        """Whether a part of a word before its last has other ids than the same bytes as a word: it lacks the suffix."""
        return self.model_name == "bpe" and parts_lack_suffix(self.tables)

    def name_after(self, spans: str) -> str:
        """Returns what the loop of this model is called, after that of its spans."""
        return f"{spans}_{self.model_name}{'_flagged' * self.flags_parts}"

    @functools.cached_property
    def cuts(self) -> WordCuts:
        """Where words may be cut into parts."""
        return cuts_of(self.tables) if self.model_name == "bpe" else NO_CUTS

    def align(self, words: Words) -> tuple[npt.NDArray[Any], ...]:
        """Returns for each token its id, int32[n]; its end in the bytes of its word, int64[n]; its word, int32[n].

        Raises:
          UnknownCharacterError: as `run`.
        """
        n = int((words.stops - words.starts).sum()) * self.max_ids_per_byte + 16
        out, ends, numbers = (recycled.empty(n, kind) for kind in (np.int32, np.int64, np.int32))
        word, token_ends, _ = self._buffers(words.max_word)
        model = self.new_model(word.size)
        k = word_models.align(words, model.step, word, token_ends, out, ends, numbers)
        self._check(out[:k])
        return out[:k], ends[:k], numbers[:k]

    def _buffers(self, n_bytes: int) -> tuple[npt.NDArray[Any], ...]:
        """Returns room for a word of up to `n_bytes` bytes, uint8, and for its tokens' ends, int64, and ids, int32."""
        n = n_bytes + _PADDING
        n_tokens = n * self.max_ids_per_byte
        return recycled.empty(n, np.uint8), recycled.empty(n_tokens, np.int64), recycled.empty(n_tokens, np.int32)

    def new_tally(self) -> Tally:
        """Returns an empty tally that can tell what this model's unknown token swallows."""
        return Tally(self.count_swallowed)

    def count_swallowed(self, words: Words, counts: npt.NDArray[np.int64], characters: npt.NDArray[np.int64]) -> None:
        """Adds the characters that the unknown token swallows in words that occurred `counts` times to `characters`."""
        buffers = self._buffers(words.max_word)
        model = self.new_model(buffers[0].size)
        word_models.count_swallowed(words, read_only(counts), model.step, *buffers, self.unk_id, characters)


def model_runner(model: Any, *, reads_bytes: bool) -> ModelRunner:
    """Lowers a model to its tables and kernels.

    reads_bytes: whether a `ByteLevel` comes before it. BPE is then byte-level; other models read bytes as letters.
    """
    tables = model.tables
    knows_all = tables.unk_id != NO_ENTRY
    if isinstance(model, BPE):
        n_ids = tables.max_ids_per_byte
        return ModelRunner(tables, tables.unk_id, "bpe", lambda n: new_bpe_scratch(n, tables), n_ids, knows_all)
    if isinstance(model, WordPiece | WordLevel):
        name = "wordpiece" if isinstance(model, WordPiece) else "wordlevel"
        new_scratch = _reading(lambda n: _NO_SCRATCH, reads_bytes)
        return ModelRunner(tables, tables.unk_id, name, new_scratch, 1 + reads_bytes, knows_all)
    if isinstance(model, Unigram):
        new_scratch, knows_all = _reading(new_unigram_scratch, reads_bytes), model.unk_id is not None
        return ModelRunner(tables, tables.unk_id, "unigram", new_scratch, 1 + reads_bytes, knows_all)
    raise TypeError(f"model must be a WordPiece, BPE, Unigram or WordLevel, got {type(model).__name__}")


def _reading(new_scratch: Callable[[int], Any], reads_bytes: bool) -> Callable[[int], Reading]:
    """Returns the function that makes a model's scratch for text, or for bytes spelled as letters, twice as long."""
    if not reads_bytes:
        return lambda n: Reading(_NO_LETTERS, np.empty(0, np.uint8), new_scratch(n))
    return lambda n: Reading(LETTERS, np.empty(2 * n + 16, np.uint8), new_scratch(2 * n))
