# SPDX-License-Identifier: Apache-2.0
"""BertNormalizer, BertPreTokenizer and WordPiece in one kernel."""

import array
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.compiling.kernel import BoundKernel
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.few import MOST_BYTES, MOST_TEXTS, FewTexts
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
from tokenmill.tokenizer.ragged import Ragged, read_only
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
        self._few_places: list[_FewPlaces] = []

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
          Ids, starts, stops and words of tokens as `locating.Located` has them, and int64[n_rows], the words of each
          row; and bool[n_rows], the rows for which these are right.
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

    def locate_few(self, texts: Sequence[bytes]) -> tuple[list[int], list[tuple[int, int]]] | None:
        """Returns the ids and the offsets of all tokens of a few raw texts, in less time than `locate`.

        None if texts are too many or too long, or if `locate` may not be right for one.
        """
        data = texts[0] if len(texts) == 1 else b"".join(texts)
        if len(texts) > MOST_TEXTS or len(data) > MOST_BYTES:
            return None
        try:
            places = self._few_places.pop()  # calls at the same time never share one
        except IndexError:
            places = _FewPlaces(self._locate, self._tables.max_bytes_ratio)
        found = places.run(data, texts)
        self._few_places.append(places)
        return found

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        return "bert_wordpiece", [*self._steps, "WordPiece"], []


class _FewPlaces:
    """The arrays of a call of `bert_wordpiece.locate`, and calls for each number of texts; see `engines.few`."""

    def __init__(self, kernel: BoundKernel, ratio: float) -> None:
        n = int(MOST_BYTES * ratio) + 16
        text, offsets = np.zeros(MOST_BYTES, np.uint8), np.zeros(MOST_TEXTS + 1, np.int64)
        ids, characters = np.empty(n, np.int32), np.empty(MOST_BYTES, np.int32)
        out_offsets, n_words = np.empty(MOST_TEXTS + 1, np.int64), np.empty(MOST_TEXTS, np.int64)
        (starts, stops, words), is_right = np.empty((3, n), np.int64), np.empty(MOST_TEXTS, np.bool_)
        self._kernel = kernel
        self._rows = read_only(text), offsets
        self._arrays = new_scratch(n), characters, ids, out_offsets, starts, stops, words, n_words, is_right
        # Views of plain memory: their elements are Python's numbers, and ten times as fast as NumPy's.
        views: list[Any] = [text, ids, is_right, offsets, out_offsets, starts, stops]
        self._text, self._ids, self._is_right, *numbers = [memoryview(view) for view in views]
        self._begins, self._ends, self._starts, self._stops = (view.cast("B").cast("q") for view in numbers)
        self._calls: dict[int, Callable[[], Any]] = {}

    def _call(self, n: int) -> Callable[[], Any]:
        rows = Ragged(self._rows[0], self._rows[1][: n + 1])
        self._calls[n] = self._kernel.prepared(rows, *self._arrays)
        return self._calls[n]

    def run(self, data: bytes, texts: Sequence[bytes]) -> tuple[list[int], list[tuple[int, int]]] | None:
        """Returns what `BertEngine.locate_few` does; data: all texts joined."""
        n = len(texts)
        self._text[: len(data)] = data
        self._begins[1 : n + 1] = array.array("q", itertools.accumulate(map(len, texts)))
        (self._calls.get(n) or self._call(n))()
        if not all(self._is_right[:n]):
            return None
        end = self._ends[n]
        pairs = zip(self._starts[:end].tolist(), self._stops[:end].tolist(), strict=True)
        return self._ids[:end].tolist(), list(pairs)
