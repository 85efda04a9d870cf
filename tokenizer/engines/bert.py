# SPDX-License-Identifier: Apache-2.0
"""BertNormalizer, BertPreTokenizer and WordPiece in one kernel."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.few import FewTexts
from tokenmill.tokenizer.engines.models import model_runner
from tokenmill.tokenizer.engines.steps import MISS, SPANS, steps_of
from tokenmill.tokenizer.engines.tables import TablePool, run_loop
from tokenmill.tokenizer.kernel_memory import new_scratch
from tokenmill.tokenizer.kernels import bert_wordpiece
from tokenmill.tokenizer.kernels.by_address import Bound
from tokenmill.tokenizer.kernels.encode_loop import APART
from tokenmill.tokenizer.models import WordPiece
from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.pre_tokenizers import BertPreTokenizer
from tokenmill.tokenizer.ragged import Ragged
from tokenmill.tokenizer.unicode import tables as unicode_tables

Int64s = npt.NDArray[np.int64]


class BertEngine:
    """Normalizes, splits and encodes in a single pass over the bytes."""

    def __init__(self, normalizer: BertNormalizer, pre_tokenizer: Any, model: WordPiece, pool: TablePool) -> None:
        """Prepares an engine; pre_tokenizer: a BertPreTokenizer, alone or with `Digits(individual_digits=True)`."""
        isolate_digits = not isinstance(pre_tokenizer, BertPreTokenizer)
        self._tables = unicode_tables.bert_tables(**normalizer.options(), isolate_digits=isolate_digits)
        self._steps = ["BertNormalizer"] if True in normalizer.options().values() else []
        self._steps += ["BertPreTokenizer", *(["Digits"] if isolate_digits else [])]
        self._runner = model_runner(model, reads_bytes=False)
        self.stages = pre_tokenizer, self._runner
        self._pool = pool
        self._locate = bert_wordpiece.locate.bound(self._tables, self._runner.tables)
        tables, runner, spans = self._tables, self._runner, Bound(bert_wordpiece.spans, SPANS, self._tables)
        # Without references to the engine: there would be a cycle, and its tables would outlive it.
        self._new_steps = functools.partial(steps_of, APART, spans)
        self._new_miss = lambda n_bytes: Bound(bert_wordpiece.miss, MISS, tables, runner.new_model(n_bytes))
        self.few = FewTexts(self._new_steps, self._new_miss, pool, self._tables.max_bytes_ratio)

    def new_tally(self) -> Tally:
        """Returns an empty tally."""
        return self._runner.new_tally()

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `tables.Engine`."""
        ratio = self._tables.max_bytes_ratio
        return run_loop(
            self._new_steps, self._new_miss, rows, added, self._pool, tally,
            # Every token takes at least one byte of a normalized word.
            n_ids=int(rows.n_values * ratio) + added.size, longest=int(rows.max_row * ratio) + 16,
        )  # fmt: skip

    def locate(self, rows: Ragged) -> tuple[tuple[Ragged, Int64s, Int64s, Int64s, Int64s], npt.NDArray[np.bool_]]:
        """Encodes raw rows and finds where each token came from.

        Returns:
          What `locating.Located` has; and bool[n_rows], the rows for which it is right. For others `align` is.
        """
        n = int(rows.n_values * self._tables.max_bytes_ratio) + 16
        scratch = new_scratch(int(rows.max_row * self._tables.max_bytes_ratio) + 16)
        ids, (starts, stops, words) = recycled.empty(n, np.int32), (recycled.empty(n, np.int64) for _ in range(3))
        offsets, n_words = np.empty(rows.n_rows + 1, np.int64), np.empty(rows.n_rows, np.int64)
        characters = np.empty(rows.max_row, np.int32)
        is_right = np.empty(rows.n_rows, np.bool_)
        self._locate(rows, scratch, characters, ids, offsets, starts, stops, words, n_words, is_right)
        n = int(offsets[-1])
        return (Ragged(ids[:n], offsets), starts[:n], stops[:n], words[:n], n_words), is_right

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        return "bert_wordpiece", [*self._steps, "WordPiece"], []
