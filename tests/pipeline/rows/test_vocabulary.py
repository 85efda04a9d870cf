# SPDX-License-Identifier: Apache-2.0
"""Words, vocabularies and statistics in pipelines of a user's own; the laws of the `CombineFn` that adds up counts."""

import copy
import pickle
from collections import Counter

import apache_beam as beam
import pyarrow as pa
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import as_row, ids_are
from tokenmill import CountWords, Detokenize, Tokenize, TrainVocabulary
from tokenmill.pipeline import schemas
from tokenmill.pipeline.rows import vocabulary
from tokenmill.pipeline.rows.vocabulary import AddUp
from tokenmill.tokenizer import Tokenizer


def test_a_vocabulary_that_changes_from_window_to_window(inline, tiny_vocab):
    old, new = Tokenizer.for_bert(tiny_vocab), Tokenizer.for_bert([*tiny_vocab[:5], "mill", "a"])
    vocabularies = [TimestampedValue(old.to_str(), 0), TimestampedValue(new.to_str(), 10)]
    side = inline | "Vocabularies" >> beam.Create(vocabularies) | "Every 10 s" >> beam.WindowInto(FixedWindows(10))
    rows = [TimestampedValue(as_row(i, "a mill"), 5 * i) for i in range(4)]
    windowed = inline | "Rows" >> beam.Create(rows) | beam.WindowInto(FixedWindows(10))
    assert_that(windowed | Tokenize(side), ids_are({0: [6, 7], 1: [6, 7], 2: [6, 5], 3: [6, 5]}))


def test_train_and_apply_in_one_pipeline(run, tmp_path):
    texts = [f"the mill grinds {word}" for word in ("text", "tokens", "texts", "the token")] * 5
    with run() as pipeline:
        rows = pipeline | beam.Create([as_row(i, text) for i, text in enumerate(texts)])
        counts = rows | CountWords()
        trained = counts | TrainVocabulary(vocab_size=40, min_frequency=1)
        tokens = rows | Tokenize(trained)
        back = tokens | Detokenize(trained, output="again")
        assert_that(back | beam.Map(lambda row: row.again == row.text), equal_to([True] * len(texts)), label="Back")
        words = counts | beam.Map(lambda row: (row.word.decode(), row.count))
        expected = [("the", 25), ("mill", 20), ("grinds", 20), ("text", 5), ("tokens", 5), ("texts", 5), ("token", 5)]
        assert_that(words, equal_to(expected), label="Words")


WORDS = st.lists(st.tuples(st.sampled_from([b"", b"a", b"mill", b"\xe7\x8e\xab", b"w" * 40]), st.integers(0, 9)))
IDS = st.lists(st.tuples(st.sampled_from([-1, 0, 7, 5000]), st.integers(0, 9)))
KINDS = {
    "words": (WORDS, (b"other", 1), AddUp(schemas.WORD_COUNTS, vocabulary._add_words)),
    "ids": (IDS, (3, 1), AddUp(vocabulary._ID_COUNTS, vocabulary._add_ids)),
}


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
    compacted = fn.compact(copy.copy(last))
    assert pickle.dumps(compacted) == pickle.dumps(fn.compact(fn.compact(copy.copy(last))))
    return last, compacted


@given(st.data(), st.sampled_from([*KINDS]), st.sampled_from([(1, 0), (100_000, 0), (1, 256), (100_000, 9)]))
def test_counts_are_added_up_as_by_a_loop(data, kind, limits):
    """Words by the kernels, and by a dict where there are few; however inputs are split and accumulators merged."""
    pairs, other, fn = KINDS[kind]
    batches = data.draw(st.lists(pairs, max_size=8))
    before = vocabulary._MERGED_ROWS, vocabulary._FEW_WORDS
    vocabulary._MERGED_ROWS, vocabulary._FEW_WORDS = limits
    try:
        inputs = [
            pa.RecordBatch.from_pylist(
                [dict(zip(fn._schema.names, row, strict=True)) for row in [other, *each]], fn._schema
            )
            for each in batches
        ]
        accumulators = any_way(data, fn, [each.slice(1) for each in inputs])
        found = [fn.extract_output(each) for each in accumulators]
    finally:
        vocabulary._MERGED_ROWS, vocabulary._FEW_WORDS = before
    loop = Counter()
    for key, n in (pair for each in batches for pair in each):
        loop[key] += n
    for batch in found:
        assert batch.schema.equals(fn._schema)
        assert [tuple(row.values()) for row in batch.to_pylist()] == sorted(loop.items())
