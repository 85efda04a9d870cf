# SPDX-License-Identifier: Apache-2.0
"""Functions called by address: their values and results, how often they are compiled, and how long they live."""

import gc
import pickle
import weakref
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tests.tokenizer.kernels.test_encode_loop import TOKENIZERS
from tokenmill.tokenizer import WordCounter
from tokenmill.tokenizer.compiling.kernel import kernel, kernel_part
from tokenmill.tokenizer.compiling.references import refer
from tokenmill.tokenizer.kernels import by_address, encode_loop
from tokenmill.tokenizer.kernels.by_address import NO_STEP, Bound, call_number, fields_of


@kernel_part
def _weigh(own, data, k):
    weights, factor, is_negative, inner = fields_of(own)
    (values,) = fields_of(data)
    more = np.int64(0)
    if inner.code != 0:
        more = call_number(inner, (data, k + 1))
    value = np.int64(values[k] * weights.table[k, 1] * factor)
    return (-value if is_negative else value) + more


@kernel
def _run(step, values):
    """Calls a step. step: Step; values: int32[n]."""
    return call_number(step, (refer((values,)), np.int64(0)))


_VALUES = np.array([3, 5], np.int32)


class Weights(NamedTuple):
    """A tuple within the values of a step."""

    name: int
    table: Any


def _bound(*own: Any) -> Bound:
    return Bound(_weigh, ((_VALUES,), 0), *own)


def test_a_step_has_values_of_its_own_of_every_kind() -> None:
    table = np.arange(6, dtype=np.int64).reshape(2, 3)
    last = _bound(Weights(7, table), 0.5, True, NO_STEP)
    first = _bound(Weights(8, table), 10.0, False, last)
    del last  # which the first one keeps
    gc.collect()
    assert _run(first.step, _VALUES) == 3 * 1 * 10 - int(5 * 4 * 0.5)
    table[0, 1] = 2  # the values are referred to, not copied
    assert _run(first.step, _VALUES) == 3 * 2 * 10 - int(5 * 4 * 0.5)


def test_values_are_not_written_beyond_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_address, "_n_words", lambda values: 1)
    with pytest.raises(MemoryError, match="take more than 8 bytes"):
        _bound(Weights(8, np.ones((2, 2), np.int64)), 10.0, False, NO_STEP)


def test_addresses_do_not_leave_their_process() -> None:
    with pytest.raises(TypeError, match="mean nothing in another process"):
        pickle.dumps(_bound(Weights(8, np.ones((2, 2), np.int64)), 10.0, False, NO_STEP))


def test_the_loop_is_compiled_once_for_all_tokenizers() -> None:
    for make in TOKENIZERS.values():
        tok = make()
        tok.encode_arrow(pa.array(["one text", None, "and 中 another"]))
        tok.encode_arrow(pa.array(["one text"]), tally=tok.new_tally())
        tok.encode("one text")
        WordCounter(tok.normalizer, tok.pre_tokenizer).update(["one text"])
    assert len(encode_loop.run._compiled) == 1


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tables_go_with_their_tokenizer(name: str) -> None:
    """A cycle of references would keep them, 32 MiB each, until the garbage collector comes."""
    tok = TOKENIZERS[name]()
    tok.encode("one text")
    tok.encode_arrow(pa.array(["one text"]))
    engine = weakref.ref(tok._plan._engine)
    gc.disable()
    try:
        del tok
        assert engine() is None
    finally:
        gc.enable()
