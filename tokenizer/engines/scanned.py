# SPDX-License-Identifier: Apache-2.0
"""A scanner and a model in one kernel: GPT-2 and its heirs, CLIP, other models behind `Whitespace`."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenizer.counting import Tally
from tokenizer.engines.base import WordCachePool
from tokenizer.engines.models import ModelRunner
from tokenizer.engines.prefixes import begin_with_space
from tokenizer.engines.staged import StagedEngine
from tokenizer.kernels import (
    scanned_bpe,
    scanned_unigram,
    scanned_wordlevel,
    scanned_wordpiece,
    words_bpe,
    words_unigram,
    words_wordlevel,
    words_wordpiece,
)
from tokenizer.models.bpe_tables import without_suffix
from tokenizer.pre_tokenizers.scanner_patterns import Scanner
from tokenizer.ragged import Ragged

_MODELS = {
    words_bpe: (scanned_bpe, "BPE"),
    words_wordlevel: (scanned_wordlevel, "WordLevel"),
    words_wordpiece: (scanned_wordpiece, "WordPiece"),
    words_unigram: (scanned_unigram, "Unigram"),
}
"""The kernels that find words themselves, by those of the same model that do not."""


class ScannedEngine(StagedEngine):
    """Finds words with a hand-written scanner or with automata and encodes them in the same pass."""

    def __init__(
        self, scanner: Scanner, pre_tokenizer: Any, runner: ModelRunner, pool: WordCachePool, *, prefix_space: bool
    ) -> None:
        """Prepares an engine.

        prefix_space: whether rows that do not begin with a space get one, which the scanner then sees.
        """
        super().__init__(pre_tokenizer, runner, pool)
        self._prefix_space = prefix_space
        self._scanner = scanner
        kernels, self._model_name = _MODELS[runner.kernels]
        self._kernel = getattr(kernels, scanner.name)
        self._inner: tuple[Any, ...] = ()
        if kernels is scanned_bpe:
            # Words are not cut where the inner model has a suffix.
            knows_suffix = scanner.name in scanned_bpe.OF_SUFFIXES
            self._inner = (without_suffix(runner.tables) if knows_suffix else runner.tables,)

    @staticmethod
    def has_kernel(scanner: Scanner, runner: ModelRunner) -> bool:
        """Whether there is a kernel for a scanner and a model."""
        return runner.kernels in _MODELS and hasattr(_MODELS[runner.kernels][0], scanner.name)

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `base.Engine`."""
        runner = self._runner
        if self._prefix_space:
            rows = begin_with_space(rows, b" ")
        classes = self._scanner.classes
        # Nothing is to be counted of rows of which one is given up.
        counted = self.new_tally() if tally is not None and self._scanner.patterns else tally
        ids = runner.run(
            self._kernel, (classes, rows, added, *self._inner), self._pool, counted,
            n_rows=rows.n_rows, n_bytes=rows.n_values, longest=rows.max_row,
        )  # fmt: skip
        self._scanner.check_finished(classes)
        if tally is not None and counted is not None and counted is not tally:
            tally.add(counted)
        return ids

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns kernel, fused components, stages beside it."""
        module = self._kernel.__module__.rpartition(".")[2]
        return f"{module}.{self._scanner.name}", [type(self._pre_tokenizer).__name__, self._model_name], []
