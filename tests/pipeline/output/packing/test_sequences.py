# SPDX-License-Identifier: Apache-2.0
"""Packing: every token once, in order, in sequences of one length; the plans of the reference implementations."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import packing as reference
from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.output import PackingConfig
from tokenmill.pipeline.output.packing import sequences
from tokenmill.pipeline.output.packing.sequences import Packer, PackingTokens

SEPARATOR, PAD = 7, 9
STRATEGIES = ["concatenate", "best_fit", "no_split"]
lengths_of_documents = st.lists(st.integers(0, 25), max_size=40)


def documents(lengths, first=100):
    """Returns documents of ids that tell where they come from."""
    return [[first + 100 * i + j for j in range(n)] for i, n in enumerate(lengths)]


def token_rows(rows):
    columns = [
        pa.array([f"d{i}" for i in range(len(rows))], pa.string()),
        pa.array(rows, schemas.TOKENS.field(1).type),
        pa.array([len(row) for row in rows], pa.int32()),
        pa.array([0] * len(rows), pa.int32()),
    ]
    return pa.record_batch(columns, schema=schemas.TOKENS)


def pack(rows, cuts=(), window=1000, tokens=None, **section):
    """Returns (sequences, counts)."""
    config = PackingConfig.model_validate({"boundaries": list(schemas.BOUNDARIES), **section})
    tokens = tokens or PackingTokens(SEPARATOR, PAD if config.incomplete == "pad" else None)
    packer = Packer(config, tokens, window)
    batch = token_rows(rows)
    edges = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    found = []
    for start, stop in itertools.pairwise(edges):
        found += list(packer.add(batch.slice(start, stop - start)))
    found += list(packer.rest())
    return [row for part in found for row in part.to_pylist()], packer.counts


def segments(row):
    cu = row["cu_seqlens"]
    return [row["input_ids"][a:b] for a, b in itertools.pairwise(cu)]


@given(lengths_of_documents, st.integers(1, 12), st.sampled_from(STRATEGIES), st.booleans(), st.integers(1, 60))
def test_every_token_is_in_one_sequence_in_the_order_of_its_document(lengths, size, strategy, has_separator, window):
    rows = documents(lengths)
    tokens = PackingTokens(SEPARATOR if has_separator else None, PAD)
    found, counts = pack(rows, length=size, strategy=strategy, tokens=tokens, window=window)
    back = [[] for _ in rows]
    for row in found:
        assert len(row["input_ids"]) == size
        for number, segment in zip(row["documents"], segments(row), strict=True):
            assert segment
            back[number] += segment
    assert back == [row + [SEPARATOR] * has_separator for row in rows]
    assert counts["n_sequences"] == len(found)
    assert counts["n_documents"] == len(rows)
    assert counts["n_tokens"] == sum(lengths)
    assert counts["n_separators"] == len(rows) * has_separator
    assert counts["n_padding"] == sum(size - row["n_tokens"] for row in found)
    assert counts["n_tokens"] + counts["n_separators"] + counts["n_padding"] == size * len(found)
    pieces = [number for row in found for number in row["documents"]]
    assert counts["n_segments"] == len(pieces)
    assert counts["n_empty_documents"] == len(rows) - len(set(pieces))
    assert counts["n_split_documents"] == sum(pieces.count(number) > 1 for number in set(pieces))


@given(lengths_of_documents, st.integers(1, 12), st.sampled_from(STRATEGIES))
def test_the_columns_of_boundaries_agree(lengths, size, strategy):
    found, _ = pack(documents(lengths), length=size, strategy=strategy)
    for row in found:
        n = row["n_tokens"]
        expected_ids, expected_positions = [], []
        for i, segment in enumerate(segments(row)):
            expected_ids += [i + 1] * len(segment)
            expected_positions += range(len(segment))
        assert row["segment_ids"] == expected_ids + [0] * (size - n)
        assert row["positions"] == expected_positions + [0] * (size - n)
        assert row["cu_seqlens"][0] == 0
        assert row["cu_seqlens"][-1] == n == len(expected_ids)
        assert row["input_ids"][n:] == [PAD] * (size - n)


@given(lengths_of_documents, st.lists(st.integers(0, 40), max_size=4), st.sampled_from(STRATEGIES))
def test_sequences_do_not_depend_on_batches(lengths, cuts, strategy):
    rows = documents(lengths)
    whole = pack(rows, length=8, strategy=strategy, window=30)
    assert pack(rows, cuts, length=8, strategy=strategy, window=30) == whole


@given(lengths_of_documents, st.integers(1, 60), st.sampled_from(["concatenate", "no_split"]))
def test_strategies_that_keep_the_order_do_not_depend_on_the_window(lengths, window, strategy):
    rows = documents(lengths)
    assert pack(rows, length=8, strategy=strategy, window=window) == pack(rows, length=8, strategy=strategy)


@given(lengths_of_documents, st.integers(1, 12))
def test_concatenated_sequences_are_the_stream_cut_at_multiples(lengths, size):
    rows = documents(lengths)
    stream = [token for row in rows for token in [*row, SEPARATOR]]
    found, counts = pack(rows, length=size)
    assert [token for row in found for token in row["input_ids"][: row["n_tokens"]]] == stream
    assert all(row["n_tokens"] == size for row in found[:-1])
    assert counts["n_padding"] < size


@given(lengths_of_documents, st.integers(1, 12), st.sampled_from(["best_fit", "no_split"]))
def test_a_document_that_fits_is_not_split(lengths, size, strategy):
    found, _ = pack(documents(lengths), length=size, strategy=strategy)
    pieces = [number for row in found for number in row["documents"]]
    for number, length in enumerate(lengths):
        assert pieces.count(number) == -(-(length + 1) // size)


@pytest.mark.parametrize("splits", [True, False])
@given(lengths=lengths_of_documents, size=st.integers(1, 12))
def test_plans_in_order_agree_with_the_reference_implementation(splits, lengths, size):
    plan = sequences._plan_in_order(np.array(lengths, np.int64), size, splits)
    expected = reference.plan_in_order(lengths, size, splits)
    assert [tuple(piece) for piece in zip(*(column.tolist() for column in plan), strict=True)] == [
        (*piece, row) for row, pieces in enumerate(expected) for piece in pieces
    ]


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(1, n), max_size=60))))
def test_best_fit_agrees_with_the_reference_implementation(case):
    size, pieces = case
    bins = np.empty(len(pieces), np.int64)
    tree = np.zeros(2 << size.bit_length(), np.int64)
    head = np.full(size + 1, -1, np.int64)
    n = sequences.kernels.fit_best(np.array(pieces, np.int64), size, bins, head, np.empty(len(pieces), np.int64), tree)
    assert bins.tolist() == reference.fit_best(pieces, size)
    assert n == len(set(bins.tolist()))


@given(lengths_of_documents, st.integers(1, 12), st.booleans())
def test_sequences_are_filled_as_the_reference_implementation_does(lengths, size, splits):
    rows = documents(lengths)
    plan = reference.plan_in_order(lengths, size, splits)
    starts = (np.cumsum(lengths) - lengths).tolist() if lengths else []
    ids = [token for row in rows for token in row]
    strategy = "concatenate" if splits else "no_split"
    found, _ = pack(rows, length=size, strategy=strategy, tokens=PackingTokens(None, None), incomplete="short")
    assert [row["input_ids"] for row in found] == reference.fill_sequences(ids, starts, plan)


def test_best_fit_wastes_less_than_keeping_the_order():
    rng = np.random.default_rng(3)
    rows = documents(rng.integers(0, 60, 400).tolist())
    waste = {name: pack(rows, length=64, strategy=name, window=10**6)[1]["n_padding"] for name in STRATEGIES}
    assert waste["concatenate"] < 64
    assert waste["best_fit"] < waste["no_split"] / 5


def test_incomplete_sequences_may_stay_short():
    found, counts = pack(documents([3, 4]), length=5, incomplete="short", strategy="no_split")
    assert [len(row["input_ids"]) for row in found] == [4, 5]
    assert counts["n_padding"] == 0


def test_documents_beyond_one_window_are_packed():
    found, _ = pack(documents([50, 1, 0, 7]), length=4, window=4)
    assert sum(row["n_tokens"] for row in found) == 58 + 4
