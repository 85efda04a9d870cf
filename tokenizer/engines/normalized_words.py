# SPDX-License-Identifier: Apache-2.0
"""White space, a normalizer and a model of pieces by HF's rules in one kernel: `tokenizer.json` of T5, XLM-R, NLLB."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer import recycled
from tokenizer.aligned import AlignedText
from tokenizer.counting import Tally
from tokenizer.engines.base import AlignedToken, WordCachePool
from tokenizer.engines.character_folds import NONE, character_folds, split_steps
from tokenizer.engines.models import ModelRunner
from tokenizer.engines.normalized_words_models import WordModel, word_model
from tokenizer.engines.normalized_words_tables import WordTables, WordWork, word_tables
from tokenizer.engines.staged import StagedEngine
from tokenizer.kernels import caches, normalized_words, normalized_words_runs, text_edits
from tokenizer.kernels.normalized_words_parts import PART_PADDING
from tokenizer.kernels.rows import insert_rows
from tokenizer.kernels.word_cache import IN_ROW
from tokenizer.models.unigram import SPACE
from tokenizer.normalizers import NFC, NFD, NFKC, NFKD, Precompiled, Replace, Sequence, Strip
from tokenizer.normalizers.tables import PieceScratch
from tokenizer.pre_tokenizers import Metaspace, WhitespaceSplit
from tokenizer.pre_tokenizers import Sequence as PreTokenizers
from tokenizer.ragged import Ragged, read_only

_PADDING = 64
_WORD_BYTES = 1 << 14
"""Of words that there is room for to begin with."""
_METASPACE = Metaspace(SPACE, prepend_scheme="always", split=True)
_STRIPS = (Strip(left=False, right=True), Strip(left=True, right=True))


class NormalizedWordsEngine(StagedEngine):
    """Finds words, normalizes and encodes them in one pass; rows that the kernel leaves go through all steps."""

    def __init__(
        self, parts: tuple[Any, Any], before: list[Any], tables: WordTables, model: WordModel, runner: ModelRunner,
        pool: WordCachePool,
    ) -> None:  # fmt: skip
        self._normalizer, pre_tokenizer = parts
        # The steps know words as they are normalized, the kernel knows them raw.
        super().__init__(pre_tokenizer, runner, pool.another())
        self._raw_pool = pool
        self._before = before
        self._tables = tables
        self._model = model

    @classmethod
    def of(
        cls, normalizer: Any, pre_tokenizer: Any, model: Any, runner: ModelRunner, pool: WordCachePool
    ) -> "NormalizedWordsEngine | None":
        """Returns the engine for parts of a tokenizer, None where the kernel does not do what they do.

        What comes before a character map or a normal form may be anything; what does not look at characters one by one
        is a step of its own.
        """
        steps = list(normalizer.normalizers) if isinstance(normalizer, Sequence) else [normalizer]
        steps = [step for step in steps if step is not None]
        splits = pre_tokenizer == PreTokenizers((WhitespaceSplit(), _METASPACE))
        one_space = bool(steps) and _makes_one_space(steps[-1], " " if splits else f" {SPACE}")
        steps = steps[:-1] if one_space else steps
        strips = bool(steps) and steps[-1] in _STRIPS
        steps = steps[:-1] if strips else steps
        last = steps[-1] if steps and isinstance(steps[-1], (Precompiled, NFC, NFD, NFKC, NFKD)) else None
        before, folded = split_steps(steps if last is None else steps[:-1])
        # Without a step that makes one space of several each is a word, but those that are stripped.
        counts_spaces = not splits and not one_space
        if not splits and pre_tokenizer != _METASPACE:
            return None
        if counts_spaces and (strips or isinstance(last, Precompiled)):
            return None  # a map makes one space of "\r\n"
        lowered = word_model(model, runner)
        if lowered is None:
            return None
        for whole, folds in ((before, character_folds(folded)), (before + folded, NONE)):
            if folds is not None:
                tables = word_tables(
                    lowered, folds, last, splits_at_white_space=splits, ends_in_space=not splits and not strips,
                    counts_spaces=counts_spaces,
                )  # fmt: skip
                if tables is not None:
                    return cls((normalizer, pre_tokenizer), whole, tables, lowered, runner, pool)
        return None

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes raw rows; see `base.Engine`."""
        prepared = rows
        for normalizer in self._before:
            prepared = normalizer.normalize_rows(prepared)
        out, offsets, irregular = self._encode_regular(prepared, added, tally)
        which = np.flatnonzero(irregular)
        if not which.size:
            return Ragged(out[: offsets[-1]], offsets)
        others = _taken(rows, which)
        if self._normalizer is not None:
            others = self._normalizer.normalize_rows(others)
        more = super().encode(others, read_only(np.empty(0, np.int32)), read_only(is_first[which]), tally)
        n_ids = int(offsets[-1]) + more.values.size
        if n_ids > out.size:
            out = np.concatenate([out, recycled.empty(n_ids - out.size, np.int32)])
        insert_rows(out, offsets, which, more.values, more.offsets)
        return Ragged(out[:n_ids], offsets)

    def _encode_regular(
        self, rows: Ragged, added: npt.NDArray[np.int32], tally: Tally | None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Returns ids and room behind them, the offsets of rows, and which of these are irregular: without ids."""
        longest = rows.max_row
        # For text as it mostly is, which has fewer ids than bytes, and words as they mostly are: the kernel may ask for
        # more. What the longest row could want would be memory that no call before has touched.
        n_ids = rows.n_values + 4 * rows.n_rows + self._tables.spare_ids
        word_bytes = min(longest, _WORD_BYTES)
        with self._raw_pool.borrow(rows.n_values, tally) as lent:
            work = WordWork(
                cache=lent.cache,
                tally=lent.counter,
                position=np.zeros(6, np.int64),
                span=np.empty(2, np.int64),
                text_span=np.empty(2, np.int64),
                notes=np.empty(normalized_words_runs.N_NOTES, np.int64),
                noted=recycled.empty(0 if tally is None else 2 * (longest + 1), np.int64),
                **self._room_for_words(word_bytes),
                irregular=np.zeros(rows.n_rows, np.bool_),
                out=recycled.empty(n_ids, np.int32),
                out_offsets=np.zeros(rows.n_rows + 1, np.int64),
            )
            model = self._model
            scratch = model.new_scratch(self._normalized_bytes(word_bytes))
            encode = model.kernels.encode
            while not encode(rows, added, self._tables, model.tables, scratch, work, tally is not None):
                needed, needed_bytes = work.position[normalized_words.NEEDED :].tolist()
                work.position[normalized_words.NEEDED :] = 0
                if needed > work.out.size:
                    longer = recycled.empty(2 * needed, np.int32)
                    longer[: work.out.size] = work.out
                    work = work._replace(out=longer)
                if needed_bytes > word_bytes:
                    word_bytes = max(needed_bytes, min(2 * word_bytes, longest))
                    work = work._replace(**self._room_for_words(word_bytes))
                    scratch = model.new_scratch(self._normalized_bytes(word_bytes))
                if needed or needed_bytes:
                    continue
                if work.position[IN_ROW] == 0:
                    lent.cache = caches.grown(lent.cache)
                    work = work._replace(cache=lent.cache)
                else:
                    assert tally is not None
                    tally.make_room(self._normalized_bytes(longest))
                    work = work._replace(tally=tally.counter)
        return work.out, work.out_offsets, work.irregular

    def _normalized_bytes(self, n_bytes: int) -> int:
        """Returns room for what a word of so many bytes becomes."""
        return int(n_bytes * self._tables.growth) + _PADDING

    def _room_for_words(self, n_bytes: int) -> dict[str, Any]:
        """Returns what of `WordWork` depends on the longest word that there is room for."""
        n_normalized = self._normalized_bytes(n_bytes)
        return {
            "text": recycled.empty(n_normalized, np.uint8),
            "folded": recycled.empty(n_normalized, np.uint8),
            "pieces": _new_pieces(n_normalized if self._tables.has_form else 0),
            "part": recycled.empty(n_bytes + PART_PADDING, np.uint8),
        }

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one raw row with where each token came from; see `base.Engine`."""
        if self._normalizer is not None:
            text = self._normalizer.normalize_aligned(text)
        return super().align(text, is_first, first_word)

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns kernel, fused components, stages beside it."""
        parts = [*([self._normalizer] if self._normalizer is not None else []), self._pre_tokenizer]
        kernel = self._model.kernels.__name__.rpartition(".")[2]
        return f"{kernel}.encode", [*(type(part).__name__ for part in parts), self._model.name], []


def _new_pieces(n_characters: int) -> PieceScratch:
    return PieceScratch(
        np.empty(n_characters, np.int32), np.empty(n_characters, np.uint8), np.empty(n_characters, np.int32),
        np.empty(256, np.int64),
    )  # fmt: skip


def _makes_one_space(step: Any, contents: str) -> bool:
    """Whether a normalizer puts one of some characters in place of several spaces."""
    is_run = isinstance(step, Replace) and step.is_regex and step.pattern == " {2,}"
    return is_run and len(step.content) == 1 and step.content in contents


def _taken(rows: Ragged, which: npt.NDArray[np.int64]) -> Ragged:
    """Copies some rows of text one after the other."""
    starts, stops = rows.offsets[which], rows.offsets[which + 1]
    out, offsets = recycled.empty(int((stops - starts).sum()), np.uint8), np.empty(which.size + 1, np.int64)
    text_edits.gather(rows.values, starts, stops, out, offsets)
    return Ragged(read_only(out), offsets)
