# SPDX-License-Identifier: Apache-2.0
"""`Engine`, the interface of all engines; the tables of the encode loop, which calls borrow; and calls of the loop."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import recycled
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines.steps import BoundSteps
from tokenmill.tokenizer.kernel_memory import HUGE_PAGE_BYTES, CounterArrays, new_counter, power_of_two
from tokenmill.tokenizer.kernels import encode_loop
from tokenmill.tokenizer.kernels.encode_loop import AT_ID, N_COLUMNS, NEEDED, ROOM, Work
from tokenmill.tokenizer.kernels.span_table import BYTES_USED, EVICTIONS, IDS_USED, MISSES, Table
from tokenmill.tokenizer.kernels.table_growth import move_spans
from tokenmill.tokenizer.kernels.word_table import COUNTER_TOTAL
from tokenmill.tokenizer.ragged import Ragged, read_only

_LINE_BYTES = 64
_LEAST_LINES, _LINES_OF_A_MEGABYTE = 1 << 12, 1 << 16
_MOST_EVICTIONS = 16
"""With more, a table that may grow does."""
_PADDING = 32
"""Bytes beyond a word that models and copies may touch."""
_LEAST_SCRATCH, _MOST_SCRATCH = 1 << 10, 1 << 18
"""Scratch is made for spans of at least the first number of bytes, and kept if it is for at most the second."""
NewModel = Callable[[int], Any]
"""Makes what an engine keeps with a table: a model with scratch for spans of up to the given number of bytes."""


class Engine(Protocol):
    """Turns rows of text into ids. Rows may be segments of documents, cut at added tokens."""

    few: Any
    """A `few.FewTexts`, for texts without added tokens; None if there is none."""
    stages: Any
    """The pre-tokenizer and the `models.ModelRunner`, which do the same in two steps with normalized text."""

    def encode(
        self, rows: Ragged, added: npt.NDArray[np.int32], is_first: npt.NDArray[np.bool_], tally: Tally | None
    ) -> Ragged:
        """Encodes rows.

        Args:
          rows: valid UTF-8, raw or normalized, as `choose` said when it returned the engine.
          added: int32[n_rows], the id of rows that are an added token, -1 for text; or int32[0] if none is.
          is_first: bool[n_rows], whether the row is at the start of its document.
          tally: counts words, and those with an unknown token.
        """

    def new_tally(self) -> Tally:
        """Returns an empty tally."""

    def describe(self) -> tuple[str, list[str], list[str]]:
        """Returns the name of the kernel, the components fused into it, and the stages that run before it."""


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """The size of a tokenizer's word caches, and their hits and misses since it was made.

    Hits are the words met, less the misses. Words of scripts without spaces are cut: such a word is met once, but each
    of its parts may miss.
    """

    words: int
    """The words, and parts of words, that are cached."""
    bytes: int
    """The bytes that they take, in slots and in pools."""
    bound: int
    """The bytes that all tables may grow to, one for each thread that encoded at the same time."""
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """Share of lookups that were hits, 0 if there were none."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


@dataclasses.dataclass
class Lent:
    """A table that a call borrows, with the scratch of earlier calls."""

    table: Table
    batch: npt.NDArray[np.uint64]
    uncounted: CounterArrays
    """Counts words for calls without a tally, without storing them."""
    longest: int = -1
    """The longest span, in bytes, that the scratch has room for."""
    word: Any = None
    ends: Any = None
    model: Any = None
    """What the `NewModel` of the engine has made."""
    few: Any = None
    """What `few.FewTexts` has prepared with the scratch."""
    fit: Any = None
    """The state of the table when `TablePool.take` last looked whether it is fit."""

    def make_lines(self, n: int) -> None:
        """Moves the spans to a table of n lines, unless theirs has as many. Ids do not depend on how many it has."""
        if self.table.slots.size < n * _LINE_BYTES // 8:
            slots = _lines(n)
            move_spans(self.table.slots, slots)
            self.table.state[EVICTIONS] = 0
            self.table, self.few = self.table._replace(slots=slots), None

    def make_room(self, longest: int, max_ids_per_byte: int, new_model: NewModel) -> None:
        """Makes scratch for spans of up to `longest` bytes, and the model with it, unless there is enough."""
        if self.longest < longest:
            n = max(longest, _LEAST_SCRATCH) + _PADDING
            self.longest = n - _PADDING
            self.word, self.ends = recycled.empty(n, np.uint8), recycled.empty(n * max_ids_per_byte, np.int64)
            self.model = new_model(n)
            self.few = None

    def work(self, tally: Tally | None, *, first: int, n_rows: int, n_ids: int) -> Work:
        """Makes the `Work` of an encode loop; arguments as for `run_loop`."""
        return Work(
            table=self.table, tally=self.uncounted if tally is None else tally.counter, tallying=tally is not None,
            batch=self.batch, limit=encode_loop.BATCH, word=self.word, ends=self.ends,
            out=recycled.empty(n_ids + 16, np.int32), out_offsets=np.zeros(n_rows + 1, np.int64),
            position=np.array([0, first, 0, 0, 0], np.int64),
        )  # fmt: skip

    def give_up(self) -> None:
        """Forgets scratch that is too large to be kept."""
        if self.longest > _MOST_SCRATCH:
            self.longest, self.word, self.ends, self.model, self.few = -1, *4 * (None,)


class TablePool:
    """Tables that grow to a fixed size. A call borrows one, so there are as many as threads that encode at once."""

    def __init__(self, n_bytes: int) -> None:
        if n_bytes < 1 << 16:
            raise ValueError(f"cache_bytes must be at least {1 << 16}, got {n_bytes!r}")
        self._n_bytes = n_bytes
        self._lock = threading.Lock()
        self._free: list[Lent] = []
        self._others: list[TablePool] = []
        self._n_counted = 0

    def another(self) -> "TablePool":
        """Returns a pool of tables of the same size, for other keys."""
        other = TablePool(self._n_bytes)
        self._others.append(other)
        return other

    @contextlib.contextmanager
    def borrow(self, tally: Tally | None, n_bytes: int = 0) -> Iterator[Lent]:
        """Lends a table to a call that encodes `n_bytes` bytes and counts into `tally`, or nowhere if that is None."""
        lent = self.take(n_bytes)
        before = 0 if tally is None else int(tally.counter.state[COUNTER_TOTAL])
        yield lent
        # After an exception this is not reached: the table may be half written, and is dropped.
        if tally is not None:
            with self._lock:
                self._n_counted += int(tally.counter.state[COUNTER_TOTAL]) - before
        lent.give_up()
        self.give(lent)

    def take(self, n_bytes: int) -> Lent:
        """Lends a table, fit for about `n_bytes` bytes of text, until `give` gets it back."""
        try:
            lent = self._free.pop()  # atomic, so it needs no lock
        except IndexError:
            table = new_table(n_lines(n_bytes, 0, self._n_bytes), self._n_bytes // 4)
            lent = Lent(table, np.empty(ROOM * N_COLUMNS, np.uint64), new_counter(1, 0))
        state = lent.table.state.tolist()
        if state == lent.fit and n_bytes <= 8 * _LEAST_LINES:
            return lent
        # Words that evict each other are new in each call, for which some engines take half as long again.
        needs_more = lent.table.slots.size * 2 // _LINE_BYTES if state[EVICTIONS] >= _MOST_EVICTIONS else 0
        lent.make_lines(n_lines(n_bytes, max(state[MISSES], needs_more), self._n_bytes))
        if _is_worn(lent.table):
            empty(lent.table)
        lent.fit = lent.table.state.tolist()
        return lent

    def give(self, lent: Lent) -> None:
        """Takes a table back."""
        self._free.append(lent)

    def info(self) -> CacheInfo:
        """Returns the state of the idle tables, including those for other keys."""
        idle = tuple(self._free)
        held = [lent.table for lent in idle]
        misses = sum(int(table.state[MISSES]) for table in held)
        met = self._n_counted + sum(int(lent.uncounted.state[COUNTER_TOTAL]) for lent in idle)
        n_words = sum(int(np.count_nonzero(table.slots[1::4])) for table in held)
        n_pooled = sum(int(4 * table.state[IDS_USED] + table.state[BYTES_USED]) for table in held)
        infos = [other.info() for other in self._others]
        return CacheInfo(
            words=n_words + sum(info.words for info in infos),
            bytes=n_words * _LINE_BYTES // 2 + n_pooled + sum(info.bytes for info in infos),
            bound=len(held) * self._n_bytes + sum(info.bound for info in infos),
            hits=max(met - misses, 0) + sum(info.hits for info in infos),
            misses=misses + sum(info.misses for info in infos),
        )


def n_lines(n_bytes: int, n_words: int, bound: int) -> int:
    """Returns how many lines a table is to have, a power of two: no more than it needs, because the system clears them.

    A megabyte of English has 15,000 words, 12 MB have 59,000. Two to four lines for each are as fast as twice as many.
    With a table of full size the first 20 kB of a text take 2.7 ms instead of 1.8, the first 200 kB 6.2 instead of 5.4.

    Args:
      n_bytes: how much text will be encoded.
      n_words: how many words were new to the table so far.
      bound: the most bytes of the table; half of them are for lines.
    """
    wanted = max(_LEAST_LINES, min(n_bytes // 8, _LINES_OF_A_MEGABYTE), n_bytes // 16, 4 * n_words)
    return power_of_two(min(wanted, bound // 2 // _LINE_BYTES))


def new_table(n: int, n_pool_bytes: int) -> Table:
    """Makes an empty table of n lines, a power of two, with pools of `n_pool_bytes` bytes each."""
    return Table(
        slots=_lines(n), direct=np.zeros(0x10000, np.uint64), ids=np.empty(n_pool_bytes // 4, np.int32),
        words=np.empty(n_pool_bytes, np.uint8), state=np.zeros(4, np.int64),
    )  # fmt: skip


def _lines(n: int) -> npt.NDArray[np.uint64]:
    """Makes n lines of zeros, aligned with cache lines, and in huge pages if the system has them.

    Their memory is recycled: in a virtual machine whose host takes back what is free, the first touch of 16 MB takes 15
    to 30 ms, as long as 30,000 new words; clearing it takes one. New memory is not touched before it is needed.
    """
    n_bytes = n * _LINE_BYTES
    alignment = HUGE_PAGE_BYTES if n_bytes >= HUGE_PAGE_BYTES else _LINE_BYTES
    memory = recycled.zeros(n_bytes + alignment, np.uint8, n_bytes + alignment)
    first = -memory.ctypes.data % alignment
    return memory[first : first + n_bytes].view(np.uint64)


def _is_worn(table: Table) -> bool:
    """Whether a table should be emptied: a pool is nearly full, or as many spans were evicted as the table holds."""
    state = table.state.tolist()
    is_full = state[IDS_USED] * 8 > table.ids.size * 7 or state[BYTES_USED] * 8 > table.words.size * 7
    return bool(is_full or state[EVICTIONS] * 4 > table.slots.size)


def empty(table: Table) -> None:
    """Forgets all spans."""
    table.slots.fill(0)
    table.direct.fill(0)
    table.state[[IDS_USED, BYTES_USED, EVICTIONS]] = 0


def run_loop(
    new_steps: Callable[[Any], BoundSteps], new_model: NewModel, rows: Ragged, added: npt.NDArray[np.int32],
    pool: TablePool, tally: Tally | None, *, n_ids: int, longest: int, max_ids_per_byte: int = 1,
    finish: Callable[[Table, Ragged], Ragged] | None = None,
) -> Ragged:  # fmt: skip
    """Runs the encode loop until all rows are done, and makes room in the tally whenever the loop asks for it.

    Args:
      new_steps: makes the steps of the loop, given the model that `new_model` has made.
      new_model: see `NewModel`.
      rows, added: see `kernels.encode_loop.run`.
      pool: the pool to borrow a table from; always the same for a model, which is kept there.
      tally: counts words, and those with an unknown token; may be None.
      n_ids: the most ids that can come out.
      longest: the most bytes of a span.
      max_ids_per_byte: the most ids that a byte of a span can become.
      finish: called with the table, while it is still lent, and the ids; returns what `run_loop` returns.
    """
    with pool.borrow(tally, n_ids) as lent:
        lent.make_room(longest, max_ids_per_byte, new_model)
        work = lent.work(tally, first=int(rows.offsets[0]), n_rows=rows.n_rows, n_ids=n_ids)
        bound = new_steps(lent.model)
        while not call_loop(bound, rows, added, work):
            assert tally is not None
            tally.make_room(int(work.position[NEEDED]))
            work = work._replace(tally=tally.counter)
        ids = Ragged(work.out[: work.position[AT_ID]], work.out_offsets)
        return ids if finish is None else finish(lent.table, ids)


def call_loop(bound: BoundSteps, rows: Ragged, added: npt.NDArray[np.int32], work: Work) -> bool:
    """Calls `kernels.encode_loop.run`, always with the same types, for which it is compiled once."""
    done: bool = encode_loop.run(
        bound.steps, Ragged(read_only(rows.values), read_only(rows.offsets)), read_only(added), work
    )
    return done
