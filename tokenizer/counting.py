# SPDX-License-Identifier: Apache-2.0
"""Tables of word counts, and `Tally`: what an encoding met."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer import kernel_memory
from tokenizer.kernels import word_counters, word_counting, word_table
from tokenizer.kernels.classes import N_CODE_POINTS
from tokenizer.ragged import byte_rows, read_only
from tokenizer.words import Words

CountSwallowed = Callable[[Words, npt.NDArray[np.int64], npt.NDArray[np.int64]], None]
"""Adds to the second array, int64[0x110000], the characters swallowed in words that occur as the first says."""

WORD_COUNTS = pa.schema(
    [pa.field("word", pa.large_binary(), nullable=False), pa.field("count", pa.int64(), nullable=False)]
)
"""Distinct words, as UTF-8 bytes, with how often each occurred; ordered by word bytes where nothing else is said."""

MAX_COUNT = (1 << 63) - 1
"""What counts may add up to."""

_TALLY_SLOTS = 1 << 16
_TALLY_POOL_BYTES = 1 << 20
MAX_TALLY_WORDS = 1 << 16
"""Distinct unknown words a tally keeps; beyond that the rarest are dropped, and counted as untracked."""


def export(
    counter: kernel_memory.CounterArrays,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Copies a counter's words, in no order: their bytes, uint8, offsets, int64[n + 1], and counts, int64[n]."""
    n_words = int(counter.state[word_counters.COUNTER_WORDS])
    lengths = counter.slots[:, word_table.LENGTH] & word_table.LENGTH_MASK
    offsets = np.zeros(n_words + 1, np.int64)
    n_bytes = int(lengths.sum())
    values = np.empty(n_bytes + word_table.SHORT_WORD_BYTES, np.uint8)
    counts = np.empty(n_words, np.int64)
    word_table.export(counter.slots, counter.words, offsets, values, counts)
    return values[:n_bytes], offsets, counts


def word_count_table(counter: kernel_memory.CounterArrays, *, ordered: bool = True) -> pa.Table:
    """Copies a counter's words into a table of `WORD_COUNTS`; without `ordered` in any order."""
    values, offsets, counts = export(counter)
    words = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), counts.size, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    )
    if ordered:
        return _in_order(words, np.arange(counts.size), counts)
    return pa.Table.from_arrays([words, pa.array(counts)], schema=WORD_COUNTS)


def _in_order(words: pa.LargeBinaryArray, rows: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> pa.Table:
    """Returns some words, all different, with their counts, ordered; rows: which of `words`."""
    import pyarrow.compute as pc  # takes long to import, and encoding does without

    firsts = np.empty(rows.size, np.uint64)
    word_counting.first_eight(*byte_rows(words), rows, firsts)
    order = np.argsort(firsts)
    # What begins with the same eight bytes stands together, and has to be compared.
    firsts = firsts[order]
    same = firsts[1:] == firsts[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if order.size else order
    among = order[tied]
    order[tied] = among[pc.sort_indices(words.take(pa.array(rows[among]))).to_numpy()]
    return pa.Table.from_arrays([words.take(pa.array(rows[order])), pa.array(counts[order])], schema=WORD_COUNTS)


def add_word_counts(tables: Sequence[pa.Table]) -> pa.Table:
    """Adds up tables of `WORD_COUNTS`, word by word; these need not be ordered.

    Raises:
      OverflowError: if the counts do not add up within 63 bits.
    """
    merged = pa.concat_tables([WORD_COUNTS.empty_table(), *tables])
    words, counts = merged["word"].combine_chunks(), merged["count"].combine_chunks().to_numpy()
    # The float is exact to many digits, so only sums close to the limit need Python's integers.
    if counts.sum(dtype=np.float64) > MAX_COUNT / 2 and (total := sum(counts.tolist())) > MAX_COUNT:
        raise OverflowError(f"the counts of {counts.size} words add up to {total}, more than 2**63 - 1")
    rows, sums = np.empty(counts.size, np.int64), np.empty(counts.size, np.int64)
    table = np.zeros(4 * kernel_memory.power_of_two(counts.size + 1), np.uint64)
    n = word_counting.add_up(*byte_rows(words), read_only(counts), table, rows, sums)
    return _in_order(words, rows[:n], sums[:n])


def count_characters(word_counts: pa.Table, characters: npt.NDArray[np.int64]) -> None:
    """Adds to `characters`, int64[0x110000], how often each code point occurs in a table of `WORD_COUNTS`.

    Raises:
      ValueError: if a word is not UTF-8.
    """
    try:
        word_counts["word"].cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise ValueError(f"words to count the characters of must be UTF-8: {error}") from error
    rows = byte_rows(word_counts["word"])
    counts = word_counts["count"].combine_chunks().to_numpy()
    word_counting.count_characters(rows.values, rows.offsets, read_only(counts), characters)


class Tally:
    """What encodings met: words, and what the unknown token swallowed. Not for use by several threads at once.

    Characters are exact whatever the text. Words are exact up to `MAX_TALLY_WORDS` distinct ones; then the rarest
    (ties: greatest bytes first) are dropped, and their occurrences counted in `n_oov_words_untracked`. Memory
    is bounded by the two.
    """

    def __init__(self, count_swallowed: CountSwallowed) -> None:
        """Starts to count; count_swallowed: what the model loses of words."""
        self._count_swallowed = count_swallowed
        self._kept = WORD_COUNTS.empty_table()
        self._characters = np.zeros(N_CODE_POINTS, np.int64)
        self.n_oov_words_untracked = 0
        self.added_token_hits: Counter[str] = Counter()
        """How often the text of each added token occurred, whether it became the token or stayed text."""
        self.counter = self._new_counter()

    def _new_counter(self) -> kernel_memory.CounterArrays:
        return kernel_memory.new_counter(_TALLY_SLOTS, _TALLY_POOL_BYTES)

    @property
    def n_words(self) -> int:
        """Pre-tokens met, every occurrence."""
        return int(self.counter.state[word_counters.COUNTER_TOTAL])

    @property
    def n_oov_characters(self) -> int:
        """Characters of normalized words that the unknown token swallowed."""
        self._drain()
        return int(self._characters.sum())

    def oov_words(self) -> pa.Table:
        """Returns the words that contain an unknown token, a table of `WORD_COUNTS`."""
        self._drain()
        return self._kept

    def oov_characters(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Returns the swallowed characters: code points int32[k], ascending, and how often int64[k]."""
        self._drain()
        code_points = np.flatnonzero(self._characters)
        return code_points.astype(np.int32), self._characters[code_points]

    def add(self, other: "Tally") -> None:
        """Adds what another tally of the same engine has counted, which is not used after that."""
        self._drain()
        self._keep(other.oov_words())
        self._characters += other._characters
        self.n_oov_words_untracked += other.n_oov_words_untracked
        self.counter.state[word_counters.COUNTER_TOTAL] += other.n_words

    def make_room(self, word_bytes: int) -> None:
        """Empties the kernel's table into the kept words; the next word of up to `word_bytes` bytes then fits."""
        self._drain()
        if word_bytes > self.counter.words.size:
            longer = np.zeros(word_bytes, np.uint8)
            self.counter = self.counter._replace(words=longer)

    def add_oov_words(self, fresh: pa.Table) -> None:
        """Adds words that contain an unknown token, a table of `WORD_COUNTS`."""
        rows = byte_rows(fresh["word"])
        one_row = np.array([0, rows.n_rows], np.int64)
        words = Words(rows.values, rows.offsets[:-1].copy(), rows.offsets[1:].copy(), one_row)
        self._count_swallowed(words, fresh["count"].to_numpy(), self._characters)
        self._keep(fresh)

    def _drain(self) -> None:
        if not self.counter.state[word_counters.COUNTER_WORDS]:
            return
        self.add_oov_words(word_count_table(self.counter))
        total = self.counter.state[word_counters.COUNTER_TOTAL]
        self.counter = self._new_counter()
        self.counter.state[word_counters.COUNTER_TOTAL] = total

    def _keep(self, fresh: pa.Table) -> None:
        kept = add_word_counts([self._kept, fresh])
        if len(kept) > MAX_TALLY_WORDS:
            before = int(kept["count"].to_numpy().sum())
            ordered = kept.sort_by([("count", "descending"), ("word", "ascending")])
            kept = ordered.slice(0, MAX_TALLY_WORDS // 2).sort_by("word")
            self.n_oov_words_untracked += before - int(kept["count"].to_numpy().sum())
        self._kept = kept
