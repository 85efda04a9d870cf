# SPDX-License-Identifier: Apache-2.0
"""Words, vocabularies and statistics in pipelines of a user's own."""

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.row_type import RowTypeConstraint

from tests.rows import TEXTS, as_row, ids_are, run_inline
from tokenmill import CountWords, Detokenize, Tokenize, TrainVocabulary, VocabularyStatistics
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
