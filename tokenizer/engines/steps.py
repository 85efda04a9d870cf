# SPDX-License-Identifier: Apache-2.0
"""The steps of the encode loop, made from kernels and the values of a tokenizer; see `kernels.by_address`."""

import functools
from typing import NamedTuple

import numpy as np

from tokenmill.tokenizer.kernel_memory import new_counter
from tokenmill.tokenizer.kernels import word_counting
from tokenmill.tokenizer.kernels.by_address import NO_STEP, Bound
from tokenmill.tokenizer.kernels.encode_loop import Loop, Steps, Work, emit_all
from tokenmill.tokenizer.kernels.span_table import Table
from tokenmill.tokenizer.ragged import read_only

_BYTES, _IDS = np.empty(0, np.uint8), np.empty(0, np.int32)
_NUMBERS, _WORDS = np.empty(0, np.int64), np.empty(0, np.uint64)
_LOOP = Loop(
    data=read_only(_BYTES), offsets=read_only(_NUMBERS), steps=Steps(0, NO_STEP, NO_STEP, NO_STEP),
    work=Work(
        table=Table(_WORDS, _WORDS, _IDS, _BYTES, _NUMBERS), tally=new_counter(1, 0), tallying=False, batch=_WORDS,
        limit=0, word=_BYTES, ends=_NUMBERS, out=_IDS, out_offsets=_NUMBERS, position=_NUMBERS,
    ),
)  # fmt: skip
"""A loop with arrays of the types that those of all loops have."""
MODEL = (_BYTES, _IDS, _NUMBERS), 0, False, 0
"""What a model is called with, see `kernels.word_models`."""
SPANS, SINK, MISS, CHECK = (_LOOP, 0, 0, 0, 0, 0), (_LOOP, 0, 0, 0), (_LOOP, np.uint64(0), 0), (_LOOP, 0, 0)
"""What steps of the loop are called with, see `kernels.encode_loop.Steps`; `has_room` and `end_row` each CHECK."""


class BoundSteps(NamedTuple):
    """The steps of a loop, with what must stay alive while it runs."""

    steps: Steps
    kept: tuple[Bound, ...]


def steps_of(
    kind: int, spans: Bound, miss: Bound, sink: Bound | None = None, has_room: Bound | None = None,
    end_row: Bound | None = None,
) -> BoundSteps:  # fmt: skip
    """Puts steps together; without a sink, the ids of spans are emitted. kind: see `kernels.encode_loop.Steps`."""
    bound = spans, sink or _emit(), miss, has_room, end_row
    kept = tuple(each for each in bound if each is not None)
    return BoundSteps(Steps(kind, *(NO_STEP if each is None else each.step for each in bound)), kept)


@functools.cache
def _emit() -> Bound:
    return Bound(emit_all, SINK, 0)


@functools.cache
def _count() -> tuple[Bound, Bound]:
    return Bound(word_counting.count_all, SINK, 0), Bound(word_counting.miss_count, MISS, 0)


def counting(kind: int, spans: Bound) -> BoundSteps:
    """Returns the steps that count spans."""
    sink, miss = _count()
    return steps_of(kind, spans, miss, sink)
