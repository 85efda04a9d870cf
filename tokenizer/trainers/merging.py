# SPDX-License-Identifier: Apache-2.0
"""Runs the merging kernels of a trainer, and provides the room that they ask for.

`merge_pairs` is a whole training; `Pairs` leaves it to its caller which of the most frequent pairs are merged.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.trainers.base import Tell
from tokenmill.tokenizer.trainers.kernels.merge_by_frequency import merge_most_frequent
from tokenmill.tokenizer.trainers.kernels.merge_by_likelihood import Rows, merge_most_likely, rank_rows
from tokenmill.tokenizer.trainers.kernels.pair_merging import (
    BYTES_WANTED,
    COUNT,
    FIRST,
    KEY,
    N_MERGES,
    N_PAIRS,
    N_STEPS,
    N_TOKENS,
    N_TOKENS_AFTER,
    N_TOUCHED,
    QUEUED,
    RIGHT_BITS,
    ROWS_WANTED,
    WORD,
    Merging,
    add_all,
    fill_slots,
    fill_token_slots,
    find_pair,
    lay_out_words,
    list_occurrences,
    merge_occurrences,
)
from tokenmill.tokenizer.trainers.word_counts import MAX_CHARACTERS, CountedWords

Rule = Literal["frequency", "likelihood"]
"""How the next pair to merge is chosen."""

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def _power_of_two(at_least: int) -> int:
    return 1 << max(1, int(at_least) - 1).bit_length()


def _longer(array: npt.NDArray[Any], n_rows: int) -> npt.NDArray[Any]:
    longer = np.empty((n_rows, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def _with_room(tables: Merging, at_least: int) -> Merging:
    """Returns tables with room for so many pairs."""
    pairs = _longer(tables.pairs, _power_of_two(at_least))
    slots, touched = np.full(2 * len(pairs), -1, np.int32), _longer(tables.touched, len(pairs))
    longer = tables._replace(pairs=pairs, slots=slots, touched=touched)
    fill_slots(longer)
    return longer


def _tables(positions: Int32s, counts: Int64s) -> Merging:
    """Returns the tables of words that are laid out, without pairs and tokens."""
    nothing = np.empty(0, np.int32)
    return Merging(
        positions=positions, counts=counts, pairs=np.empty((0, 5), np.int64), slots=nothing, touched=nothing,
        merges=np.empty((0, 4), np.int32), state=np.zeros(8, np.int64), occurrences=np.empty(len(positions), np.int32),
        pool=np.empty(0, np.uint8), token_offsets=np.zeros(1, np.int64), token_slots=nothing,
        prefix=np.empty(0, np.uint8),
    )  # fmt: skip


def _with_all_pairs(tables: Merging) -> Merging:
    """Returns tables with the pairs of all words, none of them touched."""
    tables.state[N_STEPS] = -1  # what `_add_occurrence` writes into STEP: nothing counts as touched
    n_added = 0
    while n_added < len(tables.positions):
        tables = _with_room(tables, 2 * len(tables.pairs) or 1024)
        n_added = add_all(tables, n_added)
    tables.state[N_STEPS] = 0
    return tables


Ties = Callable[[int, int], Any]


def _by_key(left: int, right: int) -> int:
    return left << 32 | right


class Pairs:
    """The pairs of neighbouring symbols of words, the most frequent first; iterate over it, and `merge` what is wanted.

    A pair that was not merged when it came does not come again.
    """

    def __init__(self, words: CountedWords, ids: Int32s, min_count: int, ties: Ties = _by_key) -> None:
        """Lays out words.

        Args:
          words: their characters or symbols.
          ids: int32[4, n_distinct], the symbol of each by its place in the word, -1 to leave it out.
          min_count: pairs that occur less often do not come; at least 1.
          ties: of pairs that are equally frequent the one comes first of which this is smallest.
        """
        positions = np.full((words.values.size, 7), -1, np.int32)
        positions = positions[: lay_out_words(words.values, words.offsets, ids, positions)]
        self._tables, self._min_count, self._ties = _tables(positions, words.counts), min_count, ties
        self._heap: list[tuple[int, Any, int, int]] = []
        self.n_symbols = int(words.counts[positions[:, WORD]].sum())
        """Symbols of all words, each as often as its word."""
        if len(positions) > 1:
            self._tables = _with_all_pairs(self._tables)
            self._queue(np.arange(self._tables.state[N_PAIRS]))

    def _queue(self, touched: npt.NDArray[Any]) -> None:
        """Queues the pairs whose entry would otherwise be too low; see `merge_by_frequency`."""
        rows = self._tables.pairs[touched]
        rises = (rows[:, COUNT] >= self._min_count) & (rows[:, COUNT] > rows[:, QUEUED])
        self._tables.pairs[touched[rises], QUEUED] = rows[rises, COUNT]
        counts, keys = rows[rises, COUNT].tolist(), rows[rises, KEY].tolist()
        for count, key, pair in zip(counts, keys, touched[rises].tolist(), strict=True):
            heapq.heappush(self._heap, (-count, self._ties(key >> 32, key & RIGHT_BITS), key, pair))

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yields what `best` returns, as long as there is any."""
        return iter(self.best, None)

    def best(self) -> tuple[int, int, int] | None:
        """Returns count, left and right of the most frequent pair."""
        while self._heap:
            negative, tie, key, pair = heapq.heappop(self._heap)
            count, queued = self._tables.pairs[pair, [COUNT, QUEUED]].tolist()
            if -negative != queued:
                continue  # a higher entry has come in the meantime
            if count == queued:
                self._tables.pairs[pair, QUEUED] = np.iinfo(np.int64).max  # it does not come again
                return count, key >> 32, key & RIGHT_BITS
            self._tables.pairs[pair, QUEUED] = count if count >= self._min_count else 0
            if count >= self._min_count:
                heapq.heappush(self._heap, (-count, tie, key, pair))
        return None

    def merge(self, left: int, right: int, product: int) -> None:
        """Replaces a pair by one symbol, left to right in each word."""
        pair = find_pair(self._tables, left << 32 | right) if self._tables.slots.size else -1
        if pair < 0:
            return
        self._tables.pairs[pair, QUEUED] = 0  # should it occur again, it comes again
        n = list_occurrences(self._tables, int(self._tables.pairs[pair, FIRST]))
        wanted = int(self._tables.state[N_PAIRS]) + 2 * n
        if wanted > len(self._tables.pairs):
            self._tables = _with_room(self._tables, wanted)
        self.n_symbols -= merge_occurrences(self._tables, n, left, right, product)
        self._queue(self._tables.touched[: self._tables.state[N_TOUCHED]].copy())


class Merged(NamedTuple):
    """The result of merging."""

    tokens: list[bytes]
    """The first tokens, then those that merges added, in order."""
    merges: Int32s
    """int32[n_merges, 4]: left, right, product, and the number of tokens after the merge."""

    def n_merges_for(self, n_tokens: int, n_first: int) -> int:
        """Returns how many of the merges a training to `n_tokens` makes that begins with `n_first` tokens."""
        n_before = np.append(n_first, self.merges[:-1, N_TOKENS_AFTER])
        return int(np.searchsorted(n_before[: len(self.merges)], n_tokens))


def merge_pairs(
    rule: Rule,
    words: CountedWords,
    ids: Int32s,
    tokens: Sequence[str],
    *,
    prefix: str = "",
    n_tokens: int,
    min_count: int,
    max_length: int = MAX_CHARACTERS,
    reserved: range = range(0),
    tell: Tell | None = None,
) -> Merged:
    """Merges one pair after the other until there are `n_tokens` tokens or no pair is left.

    Args:
      rule: the pair that goes first is the one of the highest count (`frequency`) or of the highest count(ab) /
        (count(a) * count(b)) (`likelihood`); ties go to the smaller left id, then to the smaller right id.
      words: as `tokenmill.tokenizer.trainers.word_counts` makes them.
      ids: int32[4, n_distinct], the symbol of each character by its place in the word, -1 to leave it out.
      tokens: distinct; a symbol is a position in them.
      prefix: taken off the right token when two are joined.
      n_tokens: the number of tokens to stop at, at least `len(tokens)`.
      min_count: pairs that occur less often are not merged; at least 1.
      max_length: the most characters of words that a token may have, at least 2; `frequency` only.
      reserved: tokens that no merge may make; `frequency` only.
      tell: called to report the progress of merges that add a token.
    """
    positions = np.full((words.values.size, 7), -1, np.int32)
    positions = positions[: lay_out_words(words.values, words.offsets, ids, positions)]
    encoded = [token.encode() for token in tokens]
    if len(positions) < 2:  # no pairs, so nothing that waits for the kernels below to be compiled
        return Merged(encoded, np.empty((0, 4), np.int32))
    n_tokens = min(n_tokens, len(tokens) + len(positions))  # a merge removes a symbol and adds at most one token
    pool = np.frombuffer(bytearray().join(encoded), np.uint8)
    token_offsets = np.zeros(n_tokens + 1, np.int64)
    token_offsets[1 : len(tokens) + 1] = np.cumsum([len(token) for token in encoded])

    tables = _tables(positions, words.counts)._replace(
        merges=np.empty((n_tokens - len(tokens) + 1, 4), np.int32),
        pool=pool,
        token_offsets=token_offsets,
        token_slots=np.full(_power_of_two(2 * n_tokens), -1, np.int32),
        prefix=np.frombuffer(prefix.encode(), np.uint8),
    )
    state = tables.state
    state[N_TOKENS] = len(tokens)
    fill_token_slots(tables)
    tables = _with_all_pairs(tables)
    if rule == "frequency":
        tables.touched[: state[N_PAIRS]] = np.arange(state[N_PAIRS])
        state[N_TOUCHED] = state[N_PAIRS]
        heap, lengths = np.empty((len(tables.pairs), 2), np.int64), np.zeros(n_tokens, np.int32)
        lengths[ids[ids >= 0]] = 1
    else:
        n_leaves = _power_of_two(n_tokens)
        rows = Rows(
            links=np.empty((len(tables.pairs), 4), np.int32),
            heads=np.full((2, n_tokens), -1, np.int32),
            best=np.full((n_leaves, 3), -1, np.int64),
            tree=np.empty(2 * n_leaves, np.int32),
            symbol_counts=np.zeros(n_leaves, np.int64),
        )
        rank_rows(tables, min_count, rows)
    if tell is not None:
        tell("merges", n_tokens - len(tokens), lambda: int(state[N_TOKENS]) - len(tokens))
    while True:
        if rule == "frequency":
            limits = max_length, reserved.start, reserved.stop
            is_done = merge_most_frequent(tables, min_count, heap, lengths, *limits)
        else:
            is_done = merge_most_likely(tables, min_count, rows)
        if is_done:
            break
        if state[N_MERGES] == len(tables.merges):
            tables = tables._replace(merges=_longer(tables.merges, 2 * len(tables.merges)))
        if state[BYTES_WANTED] > len(tables.pool):
            tables = tables._replace(pool=_longer(tables.pool, 2 * int(state[BYTES_WANTED])))
        if state[ROWS_WANTED] > len(tables.pairs):
            tables = _with_room(tables, state[ROWS_WANTED])
            if rule == "frequency":
                heap = _longer(heap, len(tables.pairs))
            else:
                rows = rows._replace(links=_longer(rows.links, len(tables.pairs)))
    ends = token_offsets[: state[N_TOKENS] + 1].tolist()
    made = [tables.pool[start:stop].tobytes() for start, stop in itertools.pairwise(ends)]
    return Merged(made, tables.merges[: state[N_MERGES]])
