# SPDX-License-Identifier: Apache-2.0
"""Tables of word counts, and `Tally`: the words and unknown characters that encoding met."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer import kernel_memory
from tokenmill.tokenizer.kernels import word_counting, word_table
from tokenmill.tokenizer.kernels.classes import N_CODE_POINTS
from tokenmill.tokenizer.ragged import byte_rows, check_array, check_utf8, mended, read_only
from tokenmill.tokenizer.words import Words

CountSwallowed = Callable[[Words, npt.NDArray[np.int64], npt.NDArray[np.int64]], None]
"""Counts the characters that the unknown token swallows in words. Called with the words, how often each occurs,
int64[n_words], and the counts by code point to add to, int64[0x110000]."""

WORD_COUNTS = pa.schema(
    [pa.field("word", pa.large_binary(), nullable=False), pa.field("count", pa.int64(), nullable=False)]
)
"""Distinct words, as UTF-8 bytes, and how often each occurred; ordered by word bytes unless stated otherwise."""

MAX_COUNT = (1 << 63) - 1
"""The largest sum of counts."""

_TALLY_SLOTS = 1 << 16
_TALLY_POOL_BYTES = 1 << 20
_THREE_BYTES_END = 1 << 16
"""Code points of three bytes are below."""
MAX_TALLY_WORDS = 1 << 16
"""The number of distinct words with an unknown token that a tally keeps; the rarest others count as untracked."""


def export(
    counter: kernel_memory.CounterArrays,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Copies a counter's words, in no particular order: bytes uint8, offsets int64[n + 1], counts int64[n]."""
    n_words = int(counter.state[word_table.COUNTER_WORDS])
    lengths = counter.slots[:, word_table.LENGTH] & word_table.LENGTH_MASK
    offsets = np.zeros(n_words + 1, np.int64)
    n_bytes = int(lengths.sum())
    values = np.empty(n_bytes + word_table.SHORT_WORD_BYTES, np.uint8)
    counts = np.empty(n_words, np.int64)
    word_table.export(counter.slots, counter.words, offsets, values, counts)
    return values[:n_bytes], offsets, counts


def word_count_table(counter: kernel_memory.CounterArrays, *, ordered: bool = True) -> pa.Table:
    """Copies a counter's words into a table of `WORD_COUNTS`; unless `ordered`, in no particular order."""
    values, offsets, counts = export(counter)
    words = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), counts.size, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    )
    if ordered:
        return _in_order(words, np.arange(counts.size), counts)
    return pa.Table.from_arrays([words, pa.array(counts)], schema=WORD_COUNTS)


def _in_order(words: pa.LargeBinaryArray, rows: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> pa.Table:
    """Returns the words at `rows` of `words`, all different, and their counts, ordered by their bytes."""
    import pyarrow.compute as pc  # takes long to import, and encoding does without

    firsts = np.empty(rows.size, np.uint64)
    word_counting.first_eight(*byte_rows(words), rows, firsts)
    order = np.argsort(firsts)
    # Words with the same first eight bytes are neighbours now; only they have to be compared in full.
    firsts = firsts[order]
    same = firsts[1:] == firsts[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if order.size else order
    among = order[tied]
    order[tied] = among[pc.sort_indices(words.take(pa.array(rows[among]))).to_numpy()]
    return pa.Table.from_arrays([words.take(pa.array(rows[order])), pa.array(counts[order])], schema=WORD_COUNTS)


def checked_word_counts(table: Any) -> pa.Table:
    """Checks a table of word counts from outside; returns its two columns, with the schema `WORD_COUNTS`.

    Raises:
      TypeError: if it is no table, or a column is missing or of another type.
      ValueError: if a value is null, or an offset, a length or a number of nulls does not fit its buffers.
    """
    if not isinstance(table, pa.Table):
        raise TypeError(f"word_counts must be a pa.Table, got {type(table).__name__}")
    for field in WORD_COUNTS:
        n_found = table.schema.names.count(field.name)
        found = table.schema.field(field.name).type if n_found == 1 else f"there {n_found} times"
        if found != field.type:
            raise TypeError(
                f"word_counts must have columns word: large_binary and count: int64, but {field.name} is {found}"
            )
        for chunk in table[field.name].chunks:
            check_array(chunk)
        if nulls := table[field.name].null_count:
            raise ValueError(f"word_counts must not hold nulls, got {nulls} in column {field.name!r}")
    return table.select(WORD_COUNTS.names).cast(WORD_COUNTS)


def add_word_counts(tables: Iterable[pa.Table]) -> pa.Table:
    """Adds up tables of `WORD_COUNTS`, word by word; the tables need not be ordered.

    Raises:
      TypeError, ValueError: as `checked_word_counts`.
      OverflowError: if the sum of all counts does not fit into 63 bits.
    """
    if isinstance(tables, pa.Table):
        raise TypeError("expected a list of tables of word counts, got one pa.Table; put it into a list")
    merged = pa.concat_tables([WORD_COUNTS.empty_table(), *map(checked_word_counts, tables)])
    words, counts = merged["word"].combine_chunks(), merged["count"].combine_chunks().to_numpy()
    # The sum of floats is exact to many digits, so only those near the limit need Python's integers.
    if counts.sum(dtype=np.float64) > MAX_COUNT / 2 and (total := sum(counts.tolist())) > MAX_COUNT:
        raise OverflowError(f"the counts of {counts.size} words add up to {total}, more than 2**63 - 1")
    rows, sums = np.empty(counts.size, np.int64), np.empty(counts.size, np.int64)
    table = np.zeros(4 * kernel_memory.power_of_two(counts.size + 1), np.uint64)
    n = word_counting.add_up(*byte_rows(words), read_only(counts), table, rows, sums)
    return _in_order(words, rows[:n], sums[:n])


def count_characters(word_counts: pa.Table, characters: npt.NDArray[np.int64]) -> None:
    """Adds how often each code point occurs in a table of `WORD_COUNTS` to `characters`, int64[0x110000].

    Raises:
      TypeError, ValueError: as `checked_word_counts`, or if `characters` is another array.
      ValueError: if a word is not UTF-8.
    """
    word_counts = checked_word_counts(word_counts)
    if characters.dtype != np.int64 or characters.shape != (N_CODE_POINTS,):
        raise ValueError(f"characters must be int64[{N_CODE_POINTS}], got {characters.dtype}{list(characters.shape)}")
    rows = byte_rows(word_counts["word"])
    check_utf8(rows, "word")
    counts = word_counts["count"].combine_chunks().to_numpy()
    word_counting.count_characters(rows.values, rows.offsets, read_only(counts), characters)


class Tally:
    """Counts words, and what the unknown token swallowed, while texts are encoded. Not for several threads at once.

    Swallowed characters are exact for any text. Words with an unknown token are exact up to `MAX_TALLY_WORDS` distinct
    ones; beyond that the rarest (ties: greatest bytes first) are dropped, and their occurrences counted in
    `n_oov_words_untracked`. So memory is bounded.
    """

    def __init__(self, count_swallowed: CountSwallowed) -> None:
        """Starts to count; count_swallowed: finds the characters that the model's unknown token swallows in words."""
        self._count_swallowed = count_swallowed
        self._kept = WORD_COUNTS.empty_table()
        self._characters = np.zeros(N_CODE_POINTS, np.int64)
        self.n_oov_words_untracked = 0
        self.added_token_hits: Counter[str] = Counter()
        """Text of an added token -> how often it occurred, whether it became the token or stayed text."""
        self.counter = self._new_counter()

    def _new_counter(self) -> kernel_memory.CounterArrays:
        return kernel_memory.new_counter(_TALLY_SLOTS, _TALLY_POOL_BYTES, _THREE_BYTES_END)

    @property
    def n_words(self) -> int:
        """The number of pre-tokens met, counting every occurrence."""
        return int(self.counter.state[word_table.COUNTER_TOTAL])

    @property
    def n_oov_characters(self) -> int:
        """The number of characters of normalized words that the unknown token swallowed."""
        self._drain()
        return int(self._characters.sum())

    def oov_words(self) -> pa.Table:
        """Returns the words with an unknown token, as a table of `WORD_COUNTS`."""
        self._drain()
        return self._kept

    def oov_characters(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Returns the swallowed characters: code points int32[k], ascending, and how often int64[k]."""
        self._drain()
        code_points = np.flatnonzero(self._characters)
        return code_points.astype(np.int32), self._characters[code_points]

    def add(self, other: "Tally") -> None:
        """Adds the counts of another tally of the same engine, which must not be used afterwards."""
        self._drain()
        self._keep(other.oov_words())
        self._characters += other._characters
        self.n_oov_words_untracked += other.n_oov_words_untracked
        self.counter.state[word_table.COUNTER_TOTAL] += other.n_words

    def make_room(self, word_bytes: int) -> None:
        """Moves the kernel's table into the kept words, so that the next word, of up to `word_bytes` bytes, fits."""
        self._drain()
        if word_bytes > self.counter.words.size:
            longer = np.zeros(word_bytes, np.uint8)
            self.counter = self.counter._replace(words=longer)

    def add_oov_words(self, fresh: pa.Table) -> None:
        """Adds words with an unknown token, given as a table of `WORD_COUNTS`.

        A pattern after ByteLevel may cut words inside a character; a part of a character does not count as one.

        Raises:
          TypeError, ValueError: as `checked_word_counts`.
        """
        fresh = checked_word_counts(fresh).combine_chunks()
        rows = mended(byte_rows(fresh["word"]), "ignore")
        one_row = np.array([0, rows.n_rows], np.int64)
        words = Words(rows.values, rows.offsets[:-1].copy(), rows.offsets[1:].copy(), one_row)
        self._count_swallowed(words, read_only(fresh["count"].to_numpy()), self._characters)
        self._keep(fresh)

    def _drain(self) -> None:
        self.counter.characters[0] = 0
        alone = np.flatnonzero(self.counter.characters)
        if not alone.size and not self.counter.state[word_table.COUNTER_WORDS]:
            return
        values = alone.astype("<u4").tobytes().decode("utf-32-le").encode()
        buffers = [None, pa.py_buffer(np.arange(0, len(values) + 1, 3)), pa.py_buffer(values)]
        characters = pa.LargeBinaryArray.from_buffers(pa.large_binary(), alone.size, buffers)
        by_character = pa.Table.from_arrays([characters, self.counter.characters[alone]], schema=WORD_COUNTS)
        self.add_oov_words(add_word_counts([word_count_table(self.counter, ordered=False), by_character]))
        total = self.counter.state[word_table.COUNTER_TOTAL]
        self.counter = self._new_counter()
        self.counter.state[word_table.COUNTER_TOTAL] = total

    def _keep(self, fresh: pa.Table) -> None:
        kept = add_word_counts([self._kept, fresh])
        if len(kept) > MAX_TALLY_WORDS:
            before = int(kept["count"].to_numpy().sum())
            ordered = kept.sort_by([("count", "descending"), ("word", "ascending")])
            kept = ordered.slice(0, MAX_TALLY_WORDS // 2).sort_by("word")
            self.n_oov_words_untracked += before - int(kept["count"].to_numpy().sum())
        self._kept = kept
