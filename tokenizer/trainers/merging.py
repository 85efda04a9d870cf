# SPDX-License-Identifier: Apache-2.0
"""Runs the merging kernels of a trainer and gives them the room they ask for."""

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tokenizer.kernels.merge_by_frequency import merge_most_frequent
from tokenizer.kernels.merge_by_likelihood import merge_most_likely, rank_rows
from tokenizer.kernels.pair_merging import (
    BYTES_WANTED,
    N_PAIRS,
    N_STEPS,
    N_TOKENS,
    N_TOUCHED,
    ROWS_WANTED,
    add_all,
    fill_slots,
    fill_token_slots,
)

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


def _room_for_pairs(at_least: int, pairs: Int64s, n_pairs: int) -> tuple[Int64s, Int32s, Int32s]:
    """Returns `pairs` with more room, `slots` for them and an empty `touched`."""
    longer = _longer(pairs, _power_of_two(at_least))
    slots = np.full(2 * len(longer), -1, np.int32)
    fill_slots(slots, longer, n_pairs)
    return longer, slots, np.empty(len(longer), np.int32)


def merge_pairs(
    rule: Rule,
    positions: Int32s,
    counts: Int64s,
    tokens: Sequence[bytes],
    prefix: bytes,
    *,
    n_tokens: int,
    min_count: int,
) -> list[bytes]:
    """Returns the tokens with those that merging one pair after the other adds to them.

    Args:
      rule: the pair that goes first is the one of the highest count (`frequency`) or of the highest count(ab) /
        (count(a) * count(b)) (`likelihood`); ties go to the smaller left id, then to the smaller right id.
      positions: int32[n_characters, 7], of `lay_out_words`; used up.
      counts: int64[n_words], all positive, adding up to less than 2**63 over all characters.
      tokens: no two alike; a symbol is a position in them.
      prefix: taken off the right token when two are joined.
      n_tokens: stop at so many tokens, at least those there are.
      min_count: pairs below it are not merged; at least 1.
    """
    n_tokens = min(n_tokens, len(tokens) + len(positions))  # a merge takes one symbol away and adds one token at most
    pool = np.frombuffer(bytearray().join(tokens), np.uint8)
    token_offsets = np.zeros(n_tokens + 1, np.int64)
    token_offsets[1 : len(tokens) + 1] = np.cumsum([len(token) for token in tokens])
    token_slots = np.full(_power_of_two(2 * n_tokens), -1, np.int32)
    fill_token_slots(token_slots, pool, token_offsets, len(tokens))

    state = np.zeros(7, np.int64)
    state[N_TOKENS] = len(tokens)
    pairs, slots, touched = _room_for_pairs(1024, np.empty((0, 5), np.int64), 0)
    state[N_STEPS] = -1  # what `_add_occurrence` writes into STEP: nothing counts as touched
    n_added = 0
    while (n_added := add_all(positions, counts, pairs, slots, touched, state, n_added)) < len(positions):
        pairs, slots, touched = _room_for_pairs(2 * len(pairs), pairs, state[N_PAIRS])
    state[N_STEPS] = 0

    occurrences = np.empty(len(positions), np.int32)
    prefix_bytes = np.frombuffer(prefix, np.uint8)
    by_pair: npt.NDArray[Any]
    if rule == "frequency":
        by_pair = np.empty((len(pairs), 2), np.int64)
        touched[: state[N_PAIRS]] = np.arange(state[N_PAIRS])
        state[N_TOUCHED] = state[N_PAIRS]
    else:
        by_pair = np.empty((len(pairs), 4), np.int32)
        n_leaves = _power_of_two(n_tokens)
        by_symbol = (
            np.full((2, n_tokens), -1, np.int32),
            np.full((n_leaves, 3), -1, np.int64),
            np.empty(2 * n_leaves, np.int32),
            np.zeros(n_leaves, np.int64),
        )
        rank_rows(positions, counts, pairs, state, min_count, by_pair, *by_symbol)
    while True:
        arguments = (
            *(positions, counts, pairs, slots, touched, state, occurrences),
            *(pool, token_offsets, token_slots, prefix_bytes, min_count, by_pair),
        )
        is_done = merge_most_frequent(*arguments) if rule == "frequency" else merge_most_likely(*arguments, *by_symbol)
        if is_done:
            break
        if state[BYTES_WANTED] > len(pool):
            pool = _longer(pool, 2 * int(state[BYTES_WANTED]))
        if state[ROWS_WANTED] > len(pairs):
            pairs, slots, more = _room_for_pairs(state[ROWS_WANTED], pairs, state[N_PAIRS])
            more[: len(touched)] = touched
            touched, by_pair = more, _longer(by_pair, len(pairs))
    ends = token_offsets[: state[N_TOKENS] + 1].tolist()
    return [pool[start:stop].tobytes() for start, stop in itertools.pairwise(ends)]
