# SPDX-License-Identifier: Apache-2.0
"""A scanner and a model in one kernel: GPT-2 and its successors, CLIP, other models after `Whitespace`."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.few import FewTexts
from tokenmill.tokenizer.engines.models import ModelRunner
from tokenmill.tokenizer.engines.staged import StagedEngine, begin_with_space
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.kernels import scanning
from tokenmill.tokenizer.pre_tokenizers.scanner_patterns import Scanner
from tokenmill.tokenizer.ragged import Ragged

_NAMES = {"bpe": "BPE", "wordlevel": "WordLevel", "wordpiece": "WordPiece", "unigram": "Unigram"}
"""The models that have kernels with scanners."""


class ScannedEngine(StagedEngine):
    """Finds words with a hand-written scanner or with automata and encodes them in the same pass."""

    def __init__(
        self, scanner: Scanner, pre_tokenizer: Any, runner: ModelRunner, pool: TablePool, *, prefix_space: bool
    ) -> None:
        """Prepares an engine.

        prefix_space: whether rows that do not begin with a space get one before they are scanned.
        """
        super().__init__(pre_tokenizer, runner, pool)
        self._prefix_space = prefix_space
        self._scanner = scanner
        self._kernel = scanning.encode_kernel(scanner.name, runner.model_name, flagged=runner.flags_parts)
        self._encode = self._kernel.bound(runner.spans_model)
        if runner.knows_all and not scanner.patterns:
            room = runner.max_ids_per_byte, runner.new_scratch, b" " * prefix_space
            self.few = FewTexts(self._encode, (scanner.classes,), pool, *room)

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `base.Engine`."""
        runner = self._runner
        if self._prefix_space:
            rows = begin_with_space(rows, b" ")
        classes = self._scanner.classes
        # If the automata give up on one row, none of the rows may be counted.
        counted = self.new_tally() if tally is not None and self._scanner.patterns else tally
        ids = runner.run(
            self._encode, (rows, added, classes), self._pool, counted,
            first=int(rows.offsets[0]), n_rows=rows.n_rows, n_bytes=rows.n_values, longest=rows.max_row,
        )  # fmt: skip
        self._scanner.check_finished(classes)
        if tally is not None and counted is not None and counted is not tally:
            tally.add(counted)
        return ids

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        fused = [type(self._pre_tokenizer).__name__, _NAMES[self._runner.model_name]]
        return self._kernel.__name__, fused, []
