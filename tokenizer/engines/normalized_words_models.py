# SPDX-License-Identifier: Apache-2.0
"""The models that can tokenize the words of `engines.normalized_words`, and what their kernels want to know."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenizer.engines.models import ModelRunner
from tokenizer.engines.sentencepiece_tables import MAX_STATES, new_merging_scratch, new_scored_scratch
from tokenizer.kernels import normalized_words_bpe, normalized_words_unigram, unigram_automaton
from tokenizer.kernels.normalized_words_parts import MIN_GAP
from tokenizer.models import BPE, Unigram
from tokenizer.models.bpe_tables import take_part
from tokenizer.models.unigram import SPACE, UnigramTables
from tokenizer.models.vocabulary import Characters, ids_of, tokens_of
from tokenizer.ragged import read_only
from tokenizer.words import Words

_LONGEST_PIECE = 255


class WordModel(NamedTuple):
    """A model of pieces by HF's rules."""

    name: str
    kernels: Any
    """Module with `encode`."""
    tables: Any
    new_scratch: Callable[[int], Any]
    """Makes scratch for words of up to so many bytes."""
    characters: Characters
    """Of all pieces. Words may be cut where no piece has the two beside each other."""
    ids: npt.NDArray[np.int32]
    """int32[n]: their ids."""
    longest_cut: int
    """Bytes of words up to which those that are cut come out the same."""
    space_ids: npt.NDArray[np.int32]
    """int32[n]: what "▁" becomes as a word of its own."""
    unk_id: int
    fuses_unknown: bool
    has_byte_ids: bool


class ExactUnigram(NamedTuple):
    """A Unigram vocabulary by HF's rules, whose sums are in double precision."""

    unigram: UnigramTables
    states: npt.NDArray[np.int64]
    """int64[2 * n]: the automaton of its trie, see kernels.unigram_automaton, with pieces in place of scores."""


def word_model(model: Any, runner: ModelRunner) -> WordModel | None:
    """Lowers a model; None for those that the kernels are not made for."""
    if isinstance(model, Unigram):
        return _unigram(model, runner)
    return _bpe(model, runner) if isinstance(model, BPE) else None


def merges_like_sentencepiece(model: Any) -> bool:
    """Whether merging by a list does what sentencepiece does, but that the list says which merge is better."""
    if not isinstance(model, BPE) or model.merge_ranks is not None or model.byte_level:
        return False
    if model.drops or model.ignore_merges or model.prefix or model.suffix:
        return False
    # What stands for unknown characters merges with nothing.
    unk_id = -1 if model.unk_token is None else model.vocab.get(model.unk_token, -1)
    return not take_part(np.array([*model.byte_ids, unk_id]), model.merge_ids)


def _bpe(model: BPE, runner: ModelRunner) -> WordModel | None:
    tables = model.tables
    has_bytes = model.byte_fallback and int(np.min(model.byte_ids)) >= 0
    # An unknown token of one character may be a known one.
    if not merges_like_sentencepiece(model) or tables.unk_id < 0 or len(model.unk_token or "") < 2:
        return None
    if (model.byte_fallback and not has_bytes) or tables.max_ids_per_byte != 1:
        return None
    return WordModel(
        "BPE", normalized_words_bpe, tables, lambda n: new_merging_scratch(n, tables),
        tokens_of(model.vocab).characters, ids_of(model.vocab), 1 << 30, _ids_of_space(runner), tables.unk_id,
        model.fuse_unk, has_bytes,
    )  # fmt: skip


def _unigram(model: Unigram, runner: ModelRunner) -> WordModel | None:
    tables = model.tables
    n = tables.units.size
    spells = model.byte_fallback and int(tables.byte_ids.min()) < 0
    if tables.single or tables.unk_id < 0 or tables.unk_score >= 0 or spells:
        return None
    if n >= MAX_STATES or tables.longest > _LONGEST_PIECE:
        return None
    states = np.empty(2 * n, np.int64)
    unigram_automaton.build_automaton(
        *model.trie, np.arange(len(model.vocab)), _LONGEST_PIECE, np.zeros(tables.longest + 2, np.int64),
        np.empty(n, np.int64), states, np.zeros(n, np.int32),
    )  # fmt: skip
    largest = max(float(np.abs(model.scores).max()), abs(tables.unk_score), 1.0)
    return WordModel(
        "Unigram", normalized_words_unigram, ExactUnigram(tables, read_only(states)), new_scored_scratch,
        model.matching.tokens.characters, model.matching.ids,
        # n sums of at most n scores each are off by n * n * largest * 2^-53; that is to be a quarter of the gap.
        int(min((MIN_GAP / 4 / largest * 2.0**53) ** 0.5, 1 << 30)),
        _ids_of_space(runner), tables.unk_id, True, model.byte_fallback,
    )  # fmt: skip


def _ids_of_space(runner: ModelRunner) -> npt.NDArray[np.int32]:
    text = SPACE.encode()
    word = Words(
        read_only(np.frombuffer(text + bytes(64), np.uint8)), read_only(np.zeros(1, np.int64)),
        read_only(np.array([len(text)])), read_only(np.array([0, 1])),
    )  # fmt: skip
    return read_only(np.array(runner.align(word)[0], np.int32))
