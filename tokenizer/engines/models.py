# SPDX-License-Identifier: Apache-2.0
"""A model, with the kernels that run it on words that a pre-tokenizer has found."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.compiling.kernel import BoundKernel
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.tables import TablePool, run_loop
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.kernel_memory import new_scratch
from tokenmill.tokenizer.kernels import scanning
from tokenmill.tokenizer.kernels.spelled_bytes import Reading
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.models.bpe import new_bpe_scratch
from tokenmill.tokenizer.models.bpe_tables import without_suffix
from tokenmill.tokenizer.models.byte_alphabet import LETTERS
from tokenmill.tokenizer.models.unigram import new_unigram_scratch
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.words import Words

_NO_SCRATCH = np.int64(0)
_NO_LETTERS = read_only(LETTERS[:0])


@dataclasses.dataclass(frozen=True)
class ModelRunner:
    """The tables of a model, and what its kernels need."""

    tables: Any
    unk_id: int
    model_name: str
    """One of `scanning.MODELS`."""
    new_scratch: Callable[[int], Any]
    """Makes the model's scratch for words of up to the given number of bytes."""
    max_ids_per_byte: int = 1
    knows_all: bool = True
    """Whether every text can be encoded: if not, a character may be unknown and there is no unknown token."""

    def encode(self, words: Words, added: npt.NDArray[np.int32], pool: TablePool, tally: Tally | None) -> Ragged:
        """Encodes the words of rows; rows that are an added token become its id."""
        n_rows, n_bytes = words.row_offsets.size - 1, int((words.stops - words.starts).sum())
        return self.run(
            self._encode_found, (words, added), pool, tally, first=0, n_rows=n_rows, n_bytes=n_bytes,
            longest=words.max_word,
        )  # fmt: skip

    def run(
        self, kernel: BoundKernel, arguments: tuple[Any, ...], pool: TablePool, tally: Tally | None,
        *, first: int, n_rows: int, n_bytes: int, longest: int,
    ) -> Ragged:  # fmt: skip
        """Calls a kernel that is bound to `spans_model`; see `tables.run_loop`.

        Raises:
          UnknownCharacterError: if a character is unknown and there is no unknown token; nothing is counted then.
        """
        counted = tally if self.knows_all or tally is None else self.new_tally()
        ids = run_loop(
            kernel, arguments, pool, counted, new_scratch=self.new_scratch, first=first, n_rows=n_rows,
            # No byte becomes more than `max_ids_per_byte` ids, and every added token takes one row.
            n_ids=n_bytes * self.max_ids_per_byte + n_rows, longest=longest, max_ids_per_byte=self.max_ids_per_byte,
        )  # fmt: skip
        if not self.knows_all:
            if ids.values.min(initial=0) < 0:
                raise UnknownCharacterError
            if tally is not None and counted is not None:
                tally.add(counted)
        return ids

    @functools.cached_property
    def _encode_found(self) -> BoundKernel:
        bound: BoundKernel = self.found_kernel.bound(self.spans_model)
        return bound

    @property
    def found_kernel(self) -> Any:
        """The kernel that encodes words that have been found already."""
        return scanning.encode_found_kernel(self.model_name, flagged=self.flags_parts)

    @property
    def flags_parts(self) -> bool:
        """Whether a part of a word before its last has other ids than the same bytes as a word: it lacks the suffix."""
        return self.model_name == "bpe" and self.spans_model[0] is not self.spans_model[1]

    @functools.cached_property
    def spans_model(self) -> Any:
        """The model as the encode loop takes it: BPE twice, first without its suffix for parts before a word's last."""
        return (without_suffix(self.tables), self.tables) if self.model_name == "bpe" else self.tables

    def align(self, words: Words) -> tuple[npt.NDArray[Any], ...]:
        """Returns for each token its id, int32[n]; its end in the bytes of its word, int64[n]; its word, int32[n].

        Raises:
          UnknownCharacterError: as `run`.
        """
        n = int((words.stops - words.starts).sum()) * self.max_ids_per_byte + 16
        out, ends, numbers = (recycled.empty(n, kind) for kind in (np.int32, np.int64, np.int32))
        word_bytes = words.max_word + 16
        k = scanning.align_kernel(self.model_name)(
            words, self.spans_model, self.new_scratch(word_bytes), new_scratch(word_bytes, self.max_ids_per_byte),
            out, ends, numbers,
        )  # fmt: skip
        if not self.knows_all and out[:k].min(initial=0) < 0:
            raise UnknownCharacterError
        return out[:k], ends[:k], numbers[:k]

    def new_tally(self) -> Tally:
        """Returns an empty tally that can tell what this model's unknown token swallows."""
        return Tally(self.count_swallowed)

    def count_swallowed(self, words: Words, counts: npt.NDArray[np.int64], characters: npt.NDArray[np.int64]) -> None:
        """Adds the characters that the unknown token swallows in words that occurred `counts` times to `characters`."""
        n = words.max_word * self.max_ids_per_byte + 16
        scanning.swallowed_kernel(self.model_name)(
            words, read_only(counts), self.spans_model, self.new_scratch(n), new_scratch(n), np.empty(n, np.int32),
            self.unk_id, characters,
        )  # fmt: skip


def model_runner(model: Any, *, reads_bytes: bool) -> ModelRunner:
    """Lowers a model to its tables and kernels.

    reads_bytes: whether a `ByteLevel` comes before it. BPE is then byte-level; other models read bytes as letters.
    """
    tables = model.tables
    if isinstance(model, BPE):
        return ModelRunner(tables, tables.unk_id, "bpe", lambda n: new_bpe_scratch(n, tables), tables.max_ids_per_byte)
    if isinstance(model, WordPiece | WordLevel):
        name = "wordpiece" if isinstance(model, WordPiece) else "wordlevel"
        new_scratch = _reading(lambda n: _NO_SCRATCH, reads_bytes)
        return ModelRunner(tables, tables.unk_id, name, new_scratch, 1 + reads_bytes)
    if isinstance(model, Unigram):
        new_scratch = _reading(new_unigram_scratch, reads_bytes)
        knows_all = model.unk_id is not None
        return ModelRunner(tables, tables.unk_id, "unigram", new_scratch, 1 + reads_bytes, knows_all)
    raise TypeError(f"model must be a WordPiece, BPE, Unigram or WordLevel, got {type(model).__name__}")


def _reading(new_scratch: Callable[[int], Any], reads_bytes: bool) -> Callable[[int], Reading]:
    """Returns the function that makes a model's scratch for text, or for bytes spelled as letters, twice as long."""
    if not reads_bytes:
        return lambda n: Reading(_NO_LETTERS, np.empty(0, np.uint8), new_scratch(n))
    return lambda n: Reading(LETTERS, np.empty(2 * n + 16, np.uint8), new_scratch(2 * n))
