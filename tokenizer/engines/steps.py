# SPDX-License-Identifier: Apache-2.0
"""The steps of the encode loop, made from kernels and the values of a tokenizer; see `kernels.by_address`."""

import functools
from typing import Any, NamedTuple

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
_BUFFERS = _BYTES, _IDS, _NUMBERS


def bind_model(function: Any, *own: Any) -> Bound:
    """Makes a model's step, see `kernels.word_models`, of its kernel, its tables and its scratch."""
    return Bound(function, (_BUFFERS, 0, False, 0), *own)


def bind_spans(function: Any, *own: Any) -> Bound:
    """Makes a step that finds spans; this one and those below are described in `kernels.encode_loop.Steps`."""
    return Bound(function, (_LOOP, 0, 0, 0, 0, 0), *own)


def bind_sink(function: Any, *own: Any) -> Bound:
    """Makes a step that handles spans."""
    return Bound(function, (_LOOP, 0, 0, 0), *own)


def bind_miss(function: Any, *own: Any) -> Bound:
    """Makes a step that handles a span which the table does not have."""
    return Bound(function, (_LOOP, np.uint64(0), 0), *own)


def bind_check(function: Any, *own: Any) -> Bound:
    """Makes a step that is asked for room, or called at the end of a row."""
    return Bound(function, (_LOOP, 0, 0), *own)


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
    return bind_sink(emit_all, 0)


@functools.cache
def _count() -> tuple[Bound, Bound]:
    return bind_sink(word_counting.count_all, 0), bind_miss(word_counting.miss_count, 0)


def counting(kind: int, spans: Bound) -> BoundSteps:
    """Returns the steps that count spans."""
    sink, miss = _count()
    return steps_of(kind, spans, miss, sink)
