# SPDX-License-Identifier: Apache-2.0
"""BertNormalizer, BertPreTokenizer and WordPiece in one kernel."""

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.base import AlignedToken
from tokenmill.tokenizer.engines.models import model_runner
from tokenmill.tokenizer.engines.tables import TablePool, run_loop
from tokenmill.tokenizer.kernel_memory import new_scratch
from tokenmill.tokenizer.kernels import bert_wordpiece
from tokenmill.tokenizer.models import WordPiece
from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.unicode import tables as unicode_tables


class BertEngine:
    """Normalizes, splits and encodes in a single pass over the bytes."""

    def __init__(self, normalizer: BertNormalizer, model: WordPiece, pool: TablePool, *, isolate_digits: bool) -> None:
        """Prepares an engine.

        isolate_digits: whether each digit is a word of its own, as after `Digits(individual_digits=True)`.
        """
        self._tables = unicode_tables.bert_tables(**normalizer.options(), isolate_digits=isolate_digits)
        self._digits = ["Digits"] if isolate_digits else []
        self._runner = model_runner(model, reads_bytes=False)
        self._pool = pool
        self._encode = bert_wordpiece.encode.bound(self._tables, self._runner.tables)

    @property
    def unk_id(self) -> int:
        """Id of the unknown token."""
        return self._runner.unk_id

    def new_tally(self) -> Tally:
        """Returns an empty tally."""
        return self._runner.new_tally()

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows; see `base.Engine`."""
        ratio = self._tables.max_bytes_ratio
        return run_loop(
            self._encode, (rows, added), self._pool, tally,
            first=int(rows.offsets[0]), n_rows=rows.n_rows,
            # Every token takes at least one byte of a normalized word.
            n_ids=int(rows.n_values * ratio) + added.size, longest=int(rows.max_row * ratio) + 16,
        )  # fmt: skip

    def align(self, text: AlignedText, is_first: bool, first_word: int) -> tuple[list[AlignedToken], int]:
        """Encodes one row and finds where each token came from; see `base.Engine`."""
        data = read_only(np.frombuffer(bytearray(text.text.encode()), np.uint8))
        n = int(data.size * self._tables.max_bytes_ratio) + 16
        ids, starts, stops = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
        numbers = np.empty(n, np.int32)
        k = bert_wordpiece.align(
            data, 0, data.size, self._tables, self._runner.tables, new_scratch(n), ids, starts, stops, numbers
        )
        # The number of the character that each byte belongs to.
        character = np.cumsum((data & 0xC0) != 0x80) - 1
        found = zip(
            ids[:k].tolist(), character[starts[:k]].tolist(), character[stops[:k]].tolist(), numbers[:k].tolist(),
            strict=True,
        )  # fmt: skip
        tokens = [AlignedToken(i, (text.starts[a], text.stops[b]), first_word + word) for i, a, b, word in found]
        return tokens, tokens[-1].word + 1 if tokens else first_word

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the kernel, the components fused into it, and the stages before it."""
        return "bert_wordpiece", ["BertNormalizer", "BertPreTokenizer", *self._digits, "WordPiece"], []
