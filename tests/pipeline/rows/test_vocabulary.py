# SPDX-License-Identifier: Apache-2.0
"""Words, vocabularies and statistics in pipelines of a user's own; the laws of the `CombineFn` that adds up counts."""

import copy
import pickle
from collections import Counter

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.row_type import RowTypeConstraint
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import TEXTS, as_row, ids_are, run_inline
from tokenmill import CountWords, Detokenize, Tokenize, TrainVocabulary, VocabularyStatistics
from tokenmill.pipeline import schemas
from tokenmill.pipeline.rows import vocabulary
from tokenmill.pipeline.rows.vocabulary import AddUp
from tokenmill.tokenizer import Tokenizer


def test_words_of_small_windows_are_merged_together(inline, tokenizer):
    """A window costs what its parts cost, so that one with few words has one part, unless more are asked for."""
    batch = pa.record_batch({"text": TEXTS})
    batches = inline | beam.Create([batch]).with_output_types(pa.RecordBatch)
    windowed = (
        batches | beam.Map(lambda each: each).with_output_types(pa.RecordBatch) | beam.WindowInto(FixedWindows(10))
    )
    for of, options, is_one in ((windowed, {}, True), (windowed, {"n_partitions": 16}, False), (batches, {}, False)):
        label = f"{is_one} {options}"
        counts = of | label >> CountWords(tokenizer, **options)
        n = counts | f"N {label}" >> beam.combiners.Count.Globally().without_defaults()
        assert_that(n | f"One {label}" >> beam.Map(lambda n: n == 1), equal_to([is_one]), label=f"Check {label}")


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


def test_statistics_are_those_of_the_ids(inline, tokenizer):
    def check(found):
        (told,) = found
        ids = [i for text in TEXTS for i in tokenizer.encode(text, add_special_tokens=False).ids]
        assert (told["documents"], told["tokens"]) == (len(TEXTS), len(ids))
        assert told["used"] == len(set(ids))

    tokens = inline | beam.Create([as_row(i, text) for i, text in enumerate(TEXTS)]) | Tokenize(tokenizer)
    assert_that(tokens | VocabularyStatistics(tokenizer), check)


def test_training_on_nothing_is_an_error():
    for texts in ([], [beam.Row(text="")]):
        with pytest.raises(Exception, match="there are no words to train on: the input holds no text"):
            run_inline(
                lambda p, t=texts: (
                    p
                    | beam.Create(t).with_output_types(RowTypeConstraint.from_fields([("text", str)]))
                    | CountWords()
                    | TrainVocabulary(vocab_size=40)
                )
            )


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


def test_a_shuffle_takes_little(tokenizer):
    """Neither what a table was cut from, nor a number for each id that did not occur."""
    words = [{"word": str(i).encode(), "count": 1} for i in range(10_000)]
    batch = pa.RecordBatch.from_pylist(words, schema=schemas.WORD_COUNTS)
    _, _, fn = KINDS["words"]
    assert len(pickle.dumps(fn.compact(fn.add_input(fn.create_accumulator(), batch.slice(7, 3))))) < 2000
    large = Tokenizer.for_bert(["[UNK]", *(f"w{i}" for i in range(100_000))])
    counted = VocabularyStatistics(large)._work.prepare(None)(pa.array([[99_999, 5, 5]], pa.large_list(pa.int32())))
    assert counted.to_pylist() == [{"id": -1, "count": 1}, {"id": 5, "count": 2}, {"id": 99_999, "count": 1}]


@pytest.mark.parametrize("few", [0, 256])
def test_more_than_can_be_counted_is_an_error(few, monkeypatch):
    monkeypatch.setattr(vocabulary, "_FEW_WORDS", few)
    batch = pa.record_batch([[b"a", b"b"], [1 << 62, 1 << 62]], schema=schemas.WORD_COUNTS)
    _, _, fn = KINDS["words"]
    with pytest.raises(OverflowError):
        fn.extract_output(fn.add_input(fn.create_accumulator(), batch))
