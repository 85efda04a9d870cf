# SPDX-License-Identifier: Apache-2.0
"""Subword regularization: a text becomes tokens in one of many ways, drawn at random, reproducibly by a seed."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import kernel_memory, sampling_kernels
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.bpe import new_bpe_scratch
from tokenmill.tokenizer.models.unigram import new_unigram_scratch
from tokenmill.tokenizer.models.vocabulary import NO_ENTRY
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.words import Words


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How to draw tokens.

    The tokens of a row depend on `seed`, its text, and its number in the corpus; not on batches, threads or the rows
    before it.

    Args:
      seed: 0..2^64-1.
      alpha: for Unigram: the probability of a way to cut a text is proportional to exp(alpha * its score); 0 makes all
        ways equally likely.
      nbest_size: for Unigram: how many of the best ways to draw from; negative for all, 0 and 1 for the best alone.
        Above 1 it is slow: plain Python, and time and memory grow with this number times the length of the text.
      dropout: for BPE: the probability with which a possible merge is skipped, 0..1; None takes the model's.

    Raises:
      ValueError: if a value is out of its range.

    Source: sentencepiece `SampleEncode` for Unigram, HF `BPE.dropout`; the random numbers are our own.
    """

    seed: int = 0
    alpha: float = 0.1
    nbest_size: int = -1
    dropout: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed must be in 0..2^64-1, got {self.seed!r}")
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise ValueError(f"alpha must be a number of at least 0, got {self.alpha!r}")
        if self.dropout is not None and not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout must be in 0..1, got {self.dropout!r}")

    def draws(self, model: BPE | Unigram) -> bool:
        """Whether the tokens of a model are drawn; else they are those of `encode`, as in the original libraries."""
        return bool(self._rate(model)) if isinstance(model, BPE) else self.nbest_size not in (0, 1)

    def _rate(self, model: BPE) -> float | None:
        return model.dropout if self.dropout is None else self.dropout

    def keys(self, rows: npt.NDArray[np.int64], parts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Returns the seeds, uint64[n], of the draws for parts of rows; rows, parts: int64[n], numbers of both."""
        seed = np.full(rows.size, self.seed, np.uint64)
        return _mixed(_mixed(seed + _ODD * rows.astype(np.uint64)) + _ODD * parts.astype(np.uint64))


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mixed(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Applies SplitMix64's final mixing, a bijection that leaves no pattern."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def encode_sampled(
    model: BPE | Unigram, words: Words, added: npt.NDArray[np.int32], keys: npt.NDArray[np.uint64], sampling: Sampling
) -> Ragged:
    """Tokenizes the words of rows at random.

    Args:
      model: what to tokenize with.
      words: the words of the rows; for Unigram under sentencepiece's rules, each row as one word.
      added: int32[n_rows], the id of rows that are an added token, -1 for the others.
      keys: uint64[n_rows], see `Sampling.keys`.
      sampling: how.

    Raises:
      UnknownCharacterError: if a character is not in the vocabulary and the model has no unknown token.
    """
    n_bytes = int((words.stops - words.starts).sum())
    word_bytes = words.max_word + 16
    offsets = np.zeros(added.size + 1, np.int64)
    if isinstance(model, BPE):
        # As in models.bpe: HF compares a float32 with multiples of 2**-24.
        threshold = int(np.ceil(np.float32(sampling._rate(model) or 0) * np.float32(1 << 24)))
        tables = model.dropout_tables._replace(dropout_threshold=threshold)
        out = np.empty(n_bytes * model.max_ids_per_byte + added.size, np.int32)
        scratch = kernel_memory.new_scratch(word_bytes, tables.max_ids_per_byte)
        sampling_kernels.drop(words, added, keys, tables, new_bpe_scratch(word_bytes, tables), scratch, out, offsets)
        if tables.unk_id == NO_ENTRY and (out[: offsets[-1]] == NO_ENTRY).any():
            raise UnknownCharacterError
        return Ragged(out[: offsets[-1]], offsets)
    if sampling.nbest_size >= 0:
        return _from_best(model, words, added, keys, sampling)
    out = np.empty(n_bytes + added.size, np.int32)
    alpha, scratch = float(sampling.alpha), kernel_memory.new_scratch(word_bytes)
    if not sampling_kernels.sample(
        words, added, keys, model.tables, alpha, new_unigram_scratch(word_bytes), scratch, out, offsets
    ):
        raise UnknownCharacterError
    return Ragged(out[: offsets[-1]], offsets)


def _from_best(
    model: Unigram, words: Words, added: npt.NDArray[np.int32], keys: npt.NDArray[np.uint64], sampling: Sampling
) -> Ragged:
    rows: list[list[int]] = []
    for row, token in enumerate(added.tolist()):
        ids = [token] if token >= 0 else []
        first, last = (int(words.row_offsets[row + i]) for i in (0, 1)) if token < 0 else (0, 0)
        for k in range(first, last):
            # Every word has its own seed, as in the kernels.
            seed = int(sampling.keys(keys[row : row + 1].view(np.int64), np.array([k - first]))[0])
            found = model.sample(words.word(k).decode(), sampling.alpha, seed, sampling.nbest_size)
            ids += [token_id for token_id, _ in found]
        rows.append(ids)
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(ids) for ids in rows], out=offsets[1:])
    return Ragged(np.array([i for ids in rows for i in ids], np.int32), offsets)
