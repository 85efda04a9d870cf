# SPDX-License-Identifier: Apache-2.0
"""Steps from texts to ids: equal to the tokenizer's, whatever the batches; mistakes, errors, streams, counters."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import test_stream as streams
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, Sessions, TimestampedValue

from tests.rows import TEXTS, Doc, as_dict, as_row
from tokenmill import (
    ComputeAndApplyTokenizer,
    CountWords,
    Detokenize,
    IdentifyLanguage,
    Normalize,
    ReadCorpus,
    Tokenize,
    TrainVocabulary,
    VocabularyStatistics,
    WriteShards,
)
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.tokenizer import Tokenizer


def test_long_texts_become_several_rows(inline, tokenizer):
    def check(found):
        by_text = {}
        for row in found:
            by_text.setdefault(row.id, []).append((row.window, row.input_ids))
        for i, text in enumerate(TEXTS):
            whole = tokenizer.encode(text, add_special_tokens=False).ids
            assert [window for window, _ in by_text[i]] == list(range(len(by_text[i])))
            joined = by_text[i][0][1] + [each for _, ids in by_text[i][1:] for each in ids[1:]]
            assert joined == whole
            assert all(len(ids) <= 3 for _, ids in by_text[i])

    rows = inline | beam.Create([as_row(i, text) for i, text in enumerate(TEXTS)])
    assert_that(rows | Tokenize(tokenizer, max_length=3, overflow="rows", stride=1), check)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: beam.Pipeline() | beam.Create([Doc(1, "a")]) | Tokenize(t, column="txt"), "did you mean 'text'"),
        (
            lambda t: beam.Pipeline() | beam.Create(["a"]) | Tokenize(t).with_exception_handling() | Detokenize(t),
            "Detokenize: it takes one PCollection, got several; take one of them",
        ),
        (
            lambda _: beam.Pipeline() | beam.Create(["a"]) | TrainVocabulary(),
            "TrainVocabulary: the field 'count' must be a number, but it is declared as str",
        ),
        (lambda t: Tokenize(t, size=3), r"Tokenize.__init__\(\) got an unexpected keyword argument 'size'"),
        (lambda t: Tokenize(t, stride=3), "overflow, stride and truncation_side are for rows that max_length limits"),
        (lambda t: Tokenize(t, padding_side="left"), "padding_side is for rows that are padded"),
        (lambda t: Tokenize(t, output="n_tokens"), "output 'n_tokens' is the name of another field"),
        (lambda _: Tokenize(Tokenizer.untrained("none", "none"), oov="word"), "is a choice of WordPiece"),
        (lambda _: Tokenize("no/where"), "no/where"),
        (lambda _: ReadCorpus("*.jsonl", max_rejected=3), "ReadCorpus: max_rejected: for jobs only"),
        (lambda _: CountWords(n_partitions=0), "n_partitions must be a number from 1, got 0"),
        (lambda t: WriteShards("out", t, n_shards="3"), "n_shards must be a number from 1, got '3'"),
        (lambda t: WriteShards("out", t, padding_side="up"), "WriteShards: padding_side: 'up': allowed: right, left"),
        (
            lambda t: WriteShards("out", t, format="mds"),
            "WriteShards: format: 'mds': allowed: parquet, tfrecord, arrow",
        ),
        (lambda t: Tokenize(t, add_special_tokens="yes"), "Tokenize: add_special_tokens: 'yes': must be true or false"),
        (lambda t: Detokenize(t, output=[]), r"Detokenize: output: \[\]: must be text"),
        (lambda _: Normalize("nfc"), r"Normalize: steps: 'nfc': must be a list; write \['nfc'\]"),
        (lambda t: Tokenize(t, chat="x"), "Tokenize: chat: 'x': must be a section"),
        (
            lambda _: ComputeAndApplyTokenizer(["text"], max_length=0),
            r"^ComputeAndApplyTokenizer: tokenizer\.truncation\.max_length: 0: must be at least 1$",
        ),
        (lambda t: Tokenize(t, max_length=0), r"^Tokenize: tokenizer\.truncation\.max_length: 0: must be at least 1$"),
        (lambda t: Tokenize(t, oov="x"), r"^Tokenize: oov: 'x': allowed: word, contain, char, byte$"),
        (lambda t: Tokenize(t, column=None), "Tokenize: column: null: must be text"),
        (lambda t: Tokenize(t, output=""), "Tokenize: the name of a field must not be empty"),
        (lambda _: TrainVocabulary(vocab_sise=5), r"^TrainVocabulary: tokenizer\.train\.vocab_sise: unknown key; did"),
        (
            lambda _: TrainVocabulary("bpe"),
            r"^TrainVocabulary: tokenizer\.train: 'bpe': must be a section with the keys",
        ),
        (lambda _: CountWords(train={"rule": 1}), r"^CountWords: tokenizer\.train\.rule: 1: allowed: frequency, "),
        (lambda _: ReadCorpus([], sources={"web": {"paths": ["a"]}}), "^ReadCorpus: sources: for jobs only"),
        (lambda _: ReadCorpus(5), r"^ReadCorpus: input\.paths\.0: 5: must be text"),
        (lambda t: WriteShards("", t), r"^WriteShards: output\.path: '': must not be empty$"),
        (lambda t: WriteShards("out", t, id_column=""), "WriteShards: the name of a field must not be empty"),
        (lambda _: IdentifyLanguage(threshold="x"), r"IdentifyLanguage: threshold must be in 0\.\.1, got 'x'"),
        (
            lambda t: Tokenize(t).with_exception_handling(exc_class=5),
            "exc_class must be an exception or a tuple, got 5",
        ),
        (lambda t: Tokenize(t).with_exception_handling(threshold="a"), r"threshold must be in 0\.\.1, got 'a'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(make, message, tokenizer):
    with pytest.raises((ValueError, TypeError, OSError), match=message):
        make(tokenizer)


def test_paths_may_be_objects_and_sections_mappings(tokenizer, tmp_path):
    """As the tokenizer may be given by a `Path`, and as a mapping is all that YAML can give."""
    (tmp_path / "a.txt").write_text("a mill")
    assert ReadCorpus(tmp_path / "a.txt").display_data() == ReadCorpus([str(tmp_path / "a.txt")]).display_data()
    assert WriteShards(tmp_path, tokenizer).display_data()["path"] == str(tmp_path)
    train = {"vocab_size": 70, "min_frequency": 1}
    assert TrainVocabulary(train).display_data() == TrainVocabulary(**train).display_data()
    assert (
        CountWords(train=train).display_data()
        == CountWords(train=TrainVocabulary(**train)._config.train).display_data()
    )


def test_windows_that_merge_are_refused_where_results_would_depend_on_them(tokenizer):
    """Each partition of words has sessions of its own: a word was counted in another session than its neighbour."""
    texts = beam.Pipeline() | beam.Create(["a mill", "the mill"]) | beam.WindowInto(Sessions(10))
    with pytest.raises(ValueError, match="CountWords: Sessions are windows that merge: n_partitions must be 1"):
        texts | CountWords(tokenizer, n_partitions=8)
    assert texts | "One" >> CountWords(tokenizer)
    with pytest.raises(ValueError, match="Tokenize: Sessions are windows that merge: threshold needs others"):
        texts | Tokenize(tokenizer).with_exception_handling(threshold=0.5)


def test_fields_of_the_wrong_type_are_told_before_anything_runs(tokenizer, tmp_path):
    rows = beam.Pipeline() | beam.Create([beam.Row(id=1, text="a", input_ids=[1])])
    steps = [Tokenize(tokenizer, column="id", output="ids"), CountWords(tokenizer, column="id")]
    for step in (*steps, Normalize(["nfc"], column="id")):
        with pytest.raises(TypeError, match="the field 'id' must be a string, but it is declared as int"):
            rows | step
    steps = [VocabularyStatistics(tokenizer, column="text"), WriteShards(str(tmp_path), tokenizer, column="text")]
    for step in (*steps, Detokenize(tokenizer, column="text", output="again")):
        with pytest.raises(TypeError, match="the field 'text' must be a list of numbers, but it is declared as str"):
            rows | step
    with pytest.raises(ValueError, match="TrainVocabulary: the rows have no field 'word'"):
        rows | TrainVocabulary(vocab_size=80)
    assert rows | "Letters" >> Tokenize(tokenizer, column="id", output="ids").with_exception_handling()
    strings = beam.Pipeline() | beam.Create([beam.Row(text=np.str_("a"))])
    for step in (Tokenize(tokenizer), CountWords(tokenizer, n_partitions=np.int64(3))):
        assert strings | step
    for options in ({"output": "loss_mask"}, {"output": "window"}, {"output": "n_tokens", "with_counts": False}):
        assert Tokenize(tokenizer, **options)


def test_a_stream_in_windows(run_stream, tokenizer):
    stream = streams.TestStream(coder=beam.coders.registry.get_coder(str))
    for second, text in enumerate(["a mill", "the mill", "text", "a text"]):
        stream = stream.advance_watermark_to(second * 10).add_elements([TimestampedValue(text, second * 10)])
    with run_stream() as pipeline:
        texts = pipeline | stream.advance_watermark_to_infinity() | beam.WindowInto(FixedWindows(20))
        counts = texts | Tokenize(tokenizer) | beam.Map(lambda row: row.n_tokens)
        assert_that(counts | beam.CombineGlobally(sum).without_defaults(), equal_to([4, 3]))


def test_normalize_and_languages(inline, tokenizer):
    rows = inline | beam.Create([as_row(0, "Ｎａïve  Bär")])
    assert_that(rows | Normalize(["nfkc"]) | beam.Map(lambda row: row.text), equal_to(["Naïve  Bär"]), label="Steps")
    normalized = rows | "Own" >> Normalize(tokenizer=tokenizer, output="normal")
    expected = ["ｎａive  bar"]
    assert_that(normalized | beam.Map(lambda row: row.normal), equal_to(expected), label="Tokenizer's")
    text = "Der schnelle braune Fuchs springt über den faulen Hund, und das schon seit vielen Jahren."
    told = inline | "German" >> beam.Create([text]) | IdentifyLanguage()
    assert_that(told | "Code" >> beam.Map(lambda row: row.lang), equal_to(["de"]), label="Languages")


def test_counters_and_display_data(tokenizer):
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        step = Tokenize(tokenizer).with_exception_handling()
        _ = pipeline | beam.Create([as_dict(0, "a"), as_dict(1, None)]) | step
        counters = pipeline.run().metrics().query()["counters"]
    found = {each.key.metric.name: each.committed for each in counters}
    assert (found["elements-in"], found["elements-failed"]) == (2, 1)
    assert (found["tokens-out"], found["tokens-unknown"]) == (1, 0)
    told = {"column": "text", "fields": "input_ids, n_tokens, n_oov", "tokenizer": tokenizer.digest}
    assert step.display_data() == {**told, "add_special_tokens": False, "as_numpy": False}
    options = Tokenize(tokenizer, max_length=7, pad_to=9).display_data()["tokenizer_options"]
    assert '"max_length":7' in options
    assert '"length":9' in options
    words, shards = CountWords(tokenizer).display_data(), WriteShards("out", tokenizer, n_shards=3).display_data()
    assert (words["tokenizer"], shards["tokenizer"], shards["n_shards"]) == (tokenizer.digest, tokenizer.digest, 3)
    assert '"vocab_size":70' in TrainVocabulary(vocab_size=70).display_data()["train"]
    assert Normalize(["nfc"]).display_data()["steps"] == '["nfc"]'
