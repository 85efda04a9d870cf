# SPDX-License-Identifier: Apache-2.0
"""The laws of a `CombineFn`: however inputs are split and accumulators merged, the result is that of a plain loop."""

import copy
import pickle
from collections import Counter

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that
from hypothesis import given
from hypothesis import strategies as st

from tokenmill import VocabularyStatistics
from tokenmill.pipeline import schemas
from tokenmill.pipeline.rows import combining
from tokenmill.pipeline.rows.combining import AddWordCounts, CountIds
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.tokenizer import Tokenizer


def any_way(data, fn, inputs):
    """Returns what a runner may get: inputs split anyhow, accumulators compacted, sent and merged in any order."""
    accumulators = [fn.create_accumulator() for _ in range(data.draw(st.integers(1, 4)))]
    for each in inputs:
        i = data.draw(st.integers(0, len(accumulators) - 1))
        accumulators[i] = fn.add_input(accumulators[i], each)
        if data.draw(st.booleans()):
            accumulators[i] = fn.compact(accumulators[i])
    while len(accumulators) > 1:
        parts = data.draw(st.permutations(accumulators))
        n = data.draw(st.integers(2, len(parts)))
        sent = [pickle.loads(pickle.dumps(fn.compact(each))) if data.draw(st.booleans()) else each for each in parts]
        accumulators = [fn.merge_accumulators(iter(sent[:n])), *sent[n:]]
    (last,) = accumulators
    compacted = fn.compact(copy.deepcopy(last))
    again = fn.compact(fn.compact(copy.deepcopy(last)))
    assert pickle.dumps(compacted) == pickle.dumps(again)
    return last, compacted


IDS = st.lists(st.lists(st.sampled_from([0, 1, 2, 3, 7, 100, 5000]), max_size=9), max_size=6)


@given(st.data(), st.lists(IDS, max_size=8))
def test_ids_are_counted_as_by_a_loop(data, columns):
    fn = CountIds()
    inputs = [pa.array([[0], *each], pa.large_list(pa.int32())).slice(1) for each in columns]
    for accumulator in (*any_way(data, fn, inputs), fn.add_inputs(fn.create_accumulator(), inputs)):
        n_documents, counts = fn.extract_output(accumulator)
        assert n_documents == sum(map(len, columns))
        loop = Counter(i for column in columns for row in column for i in row)
        assert {i: n for i, n in enumerate(counts.tolist()) if n} == loop
        assert counts.size == max(loop, default=-1) + 1
        assert counts.dtype == np.int64


WORDS = st.lists(st.tuples(st.sampled_from([b"", b"a", b"mill", b"\xe7\x8e\xab", b"w" * 40]), st.integers(0, 9)))


@given(st.data(), st.lists(WORDS, max_size=8), st.sampled_from([(1, 0), (100_000, 0), (1, 256), (100_000, 9)]))
def test_words_are_added_up_as_by_a_loop(data, batches, limits):
    """By the kernels, and by a dict where there are few."""
    fn = AddWordCounts()
    before = combining._MERGED_ROWS, combining._FEW_WORDS
    combining._MERGED_ROWS, combining._FEW_WORDS = limits
    try:
        inputs = [
            pa.RecordBatch.from_pylist(
                [{"word": b"other", "count": 1}, *({"word": word, "count": n} for word, n in each)],
                schema=schemas.WORD_COUNTS,
            ).slice(1)
            for each in batches
        ]
        accumulators = (*any_way(data, fn, inputs), fn.add_inputs(fn.create_accumulator(), inputs))
        found = [fn.extract_output(each) for each in accumulators]
    finally:
        combining._MERGED_ROWS, combining._FEW_WORDS = before
    loop = Counter()
    for word, n in (pair for each in batches for pair in each):
        loop[word] += n
    for batch in found:
        assert batch.schema.equals(schemas.WORD_COUNTS)
        rows = [(row["word"], row["count"]) for row in batch.to_pylist()]
        assert rows == sorted(loop.items())


@pytest.mark.parametrize("few", [0, 256])
@pytest.mark.parametrize(
    ("rows", "error", "type_"),
    [
        ([(b"a", 1 << 62), (b"b", 1 << 62)], OverflowError, pa.large_binary()),
        ([(b"a", None)], ValueError, pa.large_binary()),
        ([("a", 1)], TypeError, pa.string()),
    ],
)
def test_what_cannot_be_added_up_is_told_of_few_words_too(few, rows, error, type_, monkeypatch):
    monkeypatch.setattr(combining, "_FEW_WORDS", few)
    words, counts = (list(each) for each in zip(*rows, strict=True))
    batch = pa.record_batch({"word": pa.array(words, type_), "count": pa.array(counts, pa.int64())})
    fn = AddWordCounts()
    with pytest.raises(error):
        fn.extract_output(fn.add_input(fn.create_accumulator(), batch))


def test_accumulators_are_sparse_only_where_that_is_smaller():
    fn = CountIds()
    few = fn.add_input(fn.create_accumulator(), pa.array([[100_000, 5]], pa.large_list(pa.int32())))
    many = fn.add_input(fn.create_accumulator(), pa.array([range(1000)], pa.large_list(pa.int32())))
    assert len(pickle.dumps(few)) > 800_000
    assert len(pickle.dumps(fn.compact(few))) < 1000
    assert fn.compact(many) is many


def test_counts_of_a_slice_do_not_send_what_it_was_cut_from():
    words = [{"word": str(i).encode(), "count": 1} for i in range(10_000)]
    batch = pa.RecordBatch.from_pylist(words, schema=schemas.WORD_COUNTS)
    fn = AddWordCounts()
    assert len(pickle.dumps(fn.add_input(fn.create_accumulator(), batch.slice(7, 3)))) < 2000


@pytest.mark.parametrize("mode", ["inline", "threads"])
def test_counts_are_added_up_before_the_shuffle(mode, tiny_vocab, monkeypatch):
    """However many batches a bundle has, it sends one accumulator, as small as its ids are few."""
    sent = []
    reduce = combining.IdCounts.compacted

    def compacted(self):
        sent.append(reduce(self))
        return sent[-1]

    monkeypatch.setattr(combining.IdCounts, "compacted", compacted)
    words = [f"w{i}" for i in range(5000)]
    tokenizer = Tokenizer.for_bert([*tiny_vocab, *words])
    batch = pa.record_batch({"input_ids": pa.array([[6, 5000]] * 20, pa.list_(pa.int32()))})
    with open_runner(choose_runner((), mode=mode, workers=1 if mode == "inline" else 2)) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        batches = pipeline | beam.Create([batch.slice(i, 1) for i in range(20)]).with_output_types(pa.RecordBatch)
        assert_that(batches | VocabularyStatistics(tokenizer), _check)
        pipeline.run()
    full = [each for each in sent if each.n_documents]
    assert sum(each.n_documents for each in full[: 1 if mode == "inline" else 2]) <= 20
    assert len(full) <= 8
    assert all(each.counts.size == 2 for each in full)


def _check(told):
    assert [(each["documents"], each["tokens"], each["used"]) for each in told] == [(20, 40, 2)]
