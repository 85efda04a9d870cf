# SPDX-License-Identifier: Apache-2.0
"""Steps in pipelines of a user's own: every kind of element, errors, windows, streams; ids equal to the tokenizer's."""

import dataclasses
import json
import typing
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream as streams
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.row_type import RowTypeConstraint
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import FEWER
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
from tokenmill.pipeline.rows import batching, shards
from tokenmill.pipeline.rows import elements as elements_of
from tokenmill.pipeline.rows.errors import RowsError
from tokenmill.pipeline.rows.shards import _check_doc_ids
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.tokenizer import Tokenizer

TEXTS = ["The mill grinds text.", "Tokens, tokens!", "", "unaffable", "玫瑰花3Ⰻ7朵", "a mill", "Text into tokens."] * 3


class Doc(typing.NamedTuple):
    id: int
    text: str


@dataclasses.dataclass
class Page:
    id: int
    text: str


def as_row(i, text):
    return beam.Row(id=i, text=text)


def as_dict(i, text):
    return {"id": i, "text": text}


KINDS = {"Row": as_row, "NamedTuple": Doc, "dataclass": Page, "dict": as_dict}


@pytest.fixture
def tokenizer(tiny_vocab):
    return Tokenizer.for_bert(tiny_vocab, oov="contain")


@pytest.fixture
def inline():
    """A pipeline of this thread; it runs when the block ends."""
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        yield pipeline
        pipeline.result = pipeline.run()


def run_inline(build):
    """Runs the pipeline that `build` makes."""
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        build(pipeline)
        pipeline.run()


def fields(element):
    return element if isinstance(element, dict) else element._asdict()


def ids_are(expected):
    """Checks elements by their ids, whatever their order."""

    def check(found):
        rows = {fields(each)["id"]: list(fields(each)["input_ids"]) for each in found}
        assert len(rows) == len(found)
        assert rows == expected

    return check


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_tokenizer(kind, run, tokenizer):
    expected = {i: tokenizer.encode(text, add_special_tokens=False).ids for i, text in enumerate(TEXTS)}
    with run() as pipeline:
        rows = pipeline | beam.Create([KINDS[kind](i, text) for i, text in enumerate(TEXTS)])
        tokens = rows | Tokenize(tokenizer)
        assert_that(tokens, ids_are(expected))
        # A shuffle makes rows cross the runner.
        assert_that(tokens | beam.Reshuffle(), ids_are(expected), label="Shuffled")


def test_strings_become_rows_with_a_text(inline, tokenizer):
    tokens = inline | beam.Create(["a mill"]) | Tokenize(tokenizer)
    assert_that(tokens, equal_to([beam.Row(text="a mill", input_ids=[6, 7], n_tokens=2, n_oov=0)]))


def test_batches_stay_batches(inline, tokenizer):
    def check(found):
        (batch,) = found
        assert batch.schema.names == ["id", "text", "input_ids", "n_tokens", "n_oov"]
        assert batch.column("input_ids").to_pylist() == tokenizer.encode_arrow(pa.array(TEXTS)).to_pylist()
        assert batch.column("n_oov").to_pylist() == [1 if "Ⰻ" in text else 0 for text in TEXTS]

    batch = pa.record_batch({"id": list(range(len(TEXTS))), "text": TEXTS})
    batches = inline | beam.Create([batch]).with_output_types(pa.RecordBatch) | beam.Reshuffle()
    assert_that(batches | Tokenize(tokenizer), check)


def test_rows_are_cut_framed_and_padded_as_encode_does(inline, tokenizer):
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=6)
    expected = {i: tokenizer.encode(text).ids for i, text in enumerate(TEXTS)}
    tokenizer.no_truncation()
    rows = inline | beam.Create([as_row(i, text) for i, text in enumerate(TEXTS)])
    step = Tokenize(tokenizer, add_special_tokens=True, max_length=5, pad_to=6)
    assert_that(rows | step, ids_are(expected))


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


def test_the_oov_policy_is_an_argument(inline, tokenizer):
    rows = inline | beam.Create([as_row(0, "millⰋ")])
    whole = rows | "word" >> Tokenize(tokenizer, oov="word")
    contained = rows | "contain" >> Tokenize(tokenizer, oov="contain")
    assert_that(whole, ids_are({0: [1]}), label="Word")
    assert_that(contained, ids_are({0: [7, 1]}), label="Contain")


def test_numpy_ids(inline, tokenizer):
    def check(found):
        assert all(isinstance(row.input_ids, np.ndarray) and row.input_ids.dtype == np.int32 for row in found)
        assert [row.input_ids.tolist() for row in found] == [[6, 7]]

    assert_that(inline | beam.Create([as_row(0, "a mill")]) | Tokenize(tokenizer, as_numpy=True), check)


@FEWER  # each of them is a pipeline
@given(st.lists(st.text(max_size=40), max_size=30), st.integers(1, 50))
def test_any_texts_in_any_batches(texts, n_characters):
    tokenizer = Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##a", "##b", "字"], oov="contain")
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    limit, batching.BATCH_CHARACTERS = batching.BATCH_CHARACTERS, n_characters
    try:
        with open_runner(choose_runner((), mode="inline")) as (runner, options):
            pipeline = beam.Pipeline(runner=runner, options=options)
            rows = pipeline | beam.Create([as_row(i, text) for i, text in enumerate(texts)])
            expected = {i: tokenizer.encode(text, add_special_tokens=False).ids for i, text in enumerate(texts)}
            assert_that(rows | Tokenize(tokenizer), ids_are(expected))
            pipeline.run()
    finally:
        batching.BATCH_CHARACTERS = limit


def test_what_cannot_be_used_goes_to_its_own_output(run, tokenizer):
    elements = [
        as_dict(0, "a mill"),
        as_dict(1, None),
        {"id": 2},
        as_dict(3, 7),
        as_dict(4, "a"),
    ]
    with run() as pipeline:
        good, bad = pipeline | beam.Create(elements) | Tokenize(tokenizer).with_exception_handling()
        assert_that(good, ids_are({0: [6, 7], 4: [6]}), label="Good")
        shown = bad | beam.Map(lambda row: (row.element["id"], row.msg.partition(":")[0], bool(row.stack)))
        expected = [(1, "ValueError"), (2, "KeyError"), (3, "TypeError")]
        assert_that(shown, equal_to([(*each, True) for each in expected]), label="Bad")


def test_an_error_shows_the_element(tokenizer):
    elements = [as_dict(0, "a"), as_dict(1, None)]
    with pytest.raises(Exception, match=r"Tokenize: ValueError: the field 'text' is null; the element is .*'id': 1"):
        run_inline(lambda pipeline: pipeline | beam.Create(elements) | Tokenize(tokenizer))


def test_mistakes_are_told_before_anything_runs(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="no field 'txt', only id, text; did you mean 'text'"):
        (
            beam.Pipeline(runner="DirectRunner", options=PipelineOptions([]))
            | beam.Create([Doc(1, "a")])
            | Tokenize(tokenizer, column="txt")
        )
    with pytest.raises(ValueError, match="overflow, stride and truncation_side are for rows that max_length limits"):
        Tokenize(tokenizer, stride=3)
    with pytest.raises(ValueError, match="padding_side is for rows that are padded"):
        Tokenize(tokenizer, padding_side="left")
    with pytest.raises(ValueError, match="ReadCorpus: max_rejected: for jobs only"):
        ReadCorpus("*.jsonl", max_rejected=3)
    with pytest.raises(ValueError, match="is a choice of WordPiece"):
        Tokenize(Tokenizer.untrained("none", "none"), oov="word")
    with pytest.raises(OSError, match="nowhere"):
        Tokenize(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="output 'n_tokens' is the name of another field"):
        Tokenize(tokenizer, output="n_tokens")
    with pytest.raises(ValueError, match="n_partitions must be a number from 1, got 0"):
        CountWords(n_partitions=0)
    with pytest.raises(ValueError, match="n_shards must be a number from 1, got '3'"):
        WriteShards(str(tmp_path), tokenizer, n_shards="3")
    with pytest.raises(ValueError, match="padding_side must be right, left or None, got 'up'"):
        WriteShards(str(tmp_path), tokenizer, padding_side="up")
    with pytest.raises(ValueError, match="max_length"):
        ComputeAndApplyTokenizer(["text"], max_length=0)


def test_paths_without_a_file_are_told_before_anything_runs(tmp_path):
    """As `ReadFromText` tells, which has `validate`, too."""
    (tmp_path / "here.jsonl").write_text("{}")
    here, nowhere = str(tmp_path / "*.jsonl"), str(tmp_path / "*.txt")
    for path in (here, str(tmp_path)):
        ReadCorpus(path)
    with pytest.raises(OSError, match=r"\*.txt' matches no file; give validate=False"):
        ReadCorpus([here, nowhere])
    with pytest.raises(OSError, match="matches no file, or only files that exclude leaves out"):
        ReadCorpus(here, exclude=["*"])
    with pytest.raises(ValueError, match="filesystem"):
        ReadCorpus("nostore://bucket/*")
    assert beam.Pipeline() | ReadCorpus(nowhere, validate=False)


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


def test_rows_become_parquet(inline, tokenizer, tmp_path):
    """Beam 2.77 drops what a step yields when a bundle ends if the next takes its batches, as this one does."""
    rows = inline | beam.Create([as_row(i, text) for i, text in enumerate(TEXTS)])
    _ = rows | Tokenize(tokenizer) | beam.io.WriteToParquet(str(tmp_path / "rows"))
    inline.run()
    found = [row for path in tmp_path.glob("rows*") for row in pq.ParquetFile(path).read().to_pylist()]
    ids_are({i: tokenizer.encode(text, add_special_tokens=False).ids for i, text in enumerate(TEXTS)})(found)


@pytest.mark.parametrize("format", ["parquet", "tfrecord", "arrow"])
def test_shards_do_not_depend_on_the_order_of_rows(format, tokenizer, tmp_path):
    found = {}
    for name, order in (("forth", 1), ("back", -1), ("batch", 1)):
        docs = [(f"d{i}", text) for i, text in enumerate(TEXTS)][::order]
        batch = pa.record_batch({"id": [i for i, _ in docs], "text": [text for _, text in docs]})
        elements = [batch] if name == "batch" else [as_row(i, text) for i, text in docs]
        kind = name == "batch"
        written = tmp_path / f"{name}.json"

        def build(pipeline, elements=elements, kind=kind, written=written, name=name):
            create = beam.Create(elements)
            rows = pipeline | (create.with_output_types(pa.RecordBatch) if kind else create)
            step = WriteShards(str(tmp_path / name), tokenizer, n_shards=3, format=format, id_column="id")
            files = (
                rows | Tokenize(tokenizer) | step | beam.Map(lambda row: (Path(row.file).name, row.rows, row.sha256))
            )
            assert_that(files, lambda got: written.write_text(json.dumps(sorted(got))))

        run_inline(build)
        found[name] = json.loads(written.read_text())
    assert found["forth"] == found["back"] == found["batch"]
    assert sum(rows for _, rows, _ in found["forth"]) == len(TEXTS)
    assert [file for file, _, _ in found["forth"]] == sorted(
        path.name for path in (tmp_path / "forth").glob("tokens-*")
    )


def test_shards_hold_the_rows(inline, tokenizer, tmp_path):
    rows = inline | beam.Create([as_dict(i, text) for i, text in enumerate(TEXTS)]) | Tokenize(tokenizer)
    _ = rows | WriteShards(str(tmp_path), tokenizer, n_shards=40, id_column="id")
    inline.run()
    found = [row for path in tmp_path.glob("tokens-*") for row in pq.ParquetFile(path).read().to_pylist()]
    expected = {str(i): tokenizer.encode(text, add_special_tokens=False).ids for i, text in enumerate(TEXTS)}
    assert {row["doc_id"]: row["input_ids"] for row in found} == expected
    assert sum(row["n_oov"] for row in found) == sum(text.count("Ⰻ") for text in TEXTS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"tokens-{i:05d}-of-00040.parquet" for i in range(40)]


def test_what_shards_cannot_hold_is_refused(inline, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="allowed are parquet, tfrecord, arrow"):
        WriteShards(str(tmp_path), tokenizer, format="mds")
    rows = inline | beam.Create([TimestampedValue(as_row(0, "a"), 0)]) | beam.WindowInto(FixedWindows(5))
    with pytest.raises(ValueError, match="it has one result for all"):
        _ = rows | Tokenize(tokenizer) | WriteShards(str(tmp_path), tokenizer)
    with pytest.raises(ValueError, match="it has one result for all"):
        _ = rows | "Again" >> Tokenize(tokenizer) | VocabularyStatistics(tokenizer)

    def padded(pipeline):
        rows = pipeline | beam.Create([as_row(0, "a")]) | Tokenize(tokenizer, pad_to=3)
        _ = rows | WriteShards(str(tmp_path / "padded"), tokenizer)

    with pytest.raises(Exception, match="a row has 3 ids and 1 tokens: it is padded; say padding_side"):
        run_inline(padded)
    assert list((tmp_path / "padded").iterdir()) == []


def test_timestamps_and_windows_are_kept(inline, tokenizer):
    rows = [TimestampedValue(as_row(i, "a mill"), 10 * i) for i in range(7)]
    tokens = inline | beam.Create(rows) | beam.WindowInto(FixedWindows(30)) | Tokenize(tokenizer)
    placed = tokens | beam.Map(
        lambda row, t=beam.DoFn.TimestampParam, w=beam.DoFn.WindowParam: (row.id, int(t), int(w.start))
    )
    assert_that(placed, equal_to([(i, 10 * i, 10 * i // 30 * 30) for i in range(7)]))


def test_a_stream_in_windows(run_stream, tokenizer):
    stream = streams.TestStream(coder=beam.coders.registry.get_coder(str))
    for second, text in enumerate(["a mill", "the mill", "text", "a text"]):
        stream = stream.advance_watermark_to(second * 10).add_elements([TimestampedValue(text, second * 10)])
    with run_stream() as pipeline:
        texts = pipeline | stream.advance_watermark_to_infinity() | beam.WindowInto(FixedWindows(20))
        counts = texts | Tokenize(tokenizer) | beam.Map(lambda row: row.n_tokens)
        assert_that(counts | beam.CombineGlobally(sum).without_defaults(), equal_to([4, 3]))


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


def test_the_vocabulary_does_not_depend_on_bundles(inline):
    def check(found):
        assert len(set(found)) == 1

    texts = [f"w{i % 17} w{i % 5} wordings" for i in range(200)]
    batch = pa.record_batch({"text": texts})
    train = {"vocab_size": 50, "min_frequency": 1}
    rows = inline | "Rows" >> beam.Create(texts) | CountWords() | TrainVocabulary(**train)
    batches = inline | "Batches" >> beam.Create([batch.slice(i, 50) for i in range(0, 200, 50)]).with_output_types(
        pa.RecordBatch
    )
    counted = batches | "Count" >> CountWords() | "Train" >> TrainVocabulary(**train)
    assert_that((rows, counted) | beam.Flatten(), check)


def test_statistics_are_those_of_the_ids(inline, tokenizer):
    def check(found):
        (told,) = found
        ids = [i for text in TEXTS for i in tokenizer.encode(text, add_special_tokens=False).ids]
        assert (told["documents"], told["tokens"]) == (len(TEXTS), len(ids))
        assert told["used"] == len(set(ids))

    tokens = inline | beam.Create([as_row(i, text) for i, text in enumerate(TEXTS)]) | Tokenize(tokenizer)
    assert_that(tokens | VocabularyStatistics(tokenizer), check)


def test_normalize_and_languages(inline, tokenizer):
    rows = inline | beam.Create([as_row(0, "Ｎａïve  Bär")])
    assert_that(rows | Normalize(["nfkc"]) | beam.Map(lambda row: row.text), equal_to(["Naïve  Bär"]), label="Steps")
    normalized = rows | "Own" >> Normalize(tokenizer=tokenizer, output="normal")
    expected = ["ｎａive  bar"]
    assert_that(normalized | beam.Map(lambda row: row.normal), equal_to(expected), label="Tokenizer's")
    text = "Der schnelle braune Fuchs springt über den faulen Hund, und das schon seit vielen Jahren."
    told = inline | "German" >> beam.Create([text]) | IdentifyLanguage()
    assert_that(told | "Code" >> beam.Map(lambda row: row.lang), equal_to(["de"]), label="Languages")


def test_read_corpus(inline, tiny_corpus, tokenizer):
    with (tiny_corpus / "b.jsonl").open("a") as file:
        file.write("not json\n")
    good, bad = inline | ReadCorpus(str(tiny_corpus / "*.jsonl"), split_bytes=100).with_exception_handling()
    assert_that(good | beam.Map(lambda row: row.doc_id), equal_to([f"doc-{i}" for i in range(7)]), label="Good")
    found = bad | beam.Map(lambda row: (row.msg.partition(":")[0], row.element.partition("b.jsonl")[1]))
    assert_that(found, equal_to([("not_json", "b.jsonl")]), label="Bad")
    batches = inline | "Whole" >> ReadCorpus(str(tiny_corpus / "a.jsonl"), as_batches=True)
    tokens = batches | Tokenize(tokenizer) | "Ids" >> beam.FlatMap(lambda batch: batch.column("input_ids").to_pylist())
    expected = [[5, 7, 8, 9, 18], [11, 13, 17, 11, 13, 19], [], [12, 15, 16]]
    assert_that(tokens, equal_to(expected), label="Ids")


def test_a_record_that_cannot_be_read_is_an_error_unless_it_has_an_output(tiny_corpus):
    (tiny_corpus / "b.jsonl").write_text("not json\n")
    paths = str(tiny_corpus / "*.jsonl")
    with pytest.raises(Exception, match=r"ReadCorpus: .*b\.jsonl, offset 0: not_json"):
        run_inline(lambda pipeline: pipeline | ReadCorpus(paths))
    with pytest.raises(Exception, match=r"1 of 5 elements fail, more than the threshold of 0\.1 allows"):
        run_inline(lambda pipeline: pipeline | ReadCorpus(paths).with_exception_handling(threshold=0.1))


def test_counters_and_display_data(tokenizer):
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        step = Tokenize(tokenizer).with_exception_handling()
        _ = pipeline | beam.Create([as_dict(0, "a"), as_dict(1, None)]) | step
        counters = pipeline.run().metrics().query()["counters"]
    found = {each.key.metric.name: each.committed for each in counters}
    assert (found["elements-in"], found["elements-failed"]) == (2, 1)
    told = {"column": "text", "fields": "input_ids, n_tokens, n_oov", "tokenizer": tokenizer.digest}
    assert step.display_data() == {**told, "add_special_tokens": False, "as_numpy": False}
    options = Tokenize(tokenizer, max_length=7, pad_to=9).display_data()["tokenizer_options"]
    assert '"max_length":7' in options
    assert '"length":9' in options
    words, shards = CountWords(tokenizer).display_data(), WriteShards("out", tokenizer, n_shards=3).display_data()
    assert (words["tokenizer"], shards["tokenizer"], shards["n_shards"]) == (tokenizer.digest, tokenizer.digest, 3)
    assert '"vocab_size":70' in TrainVocabulary(vocab_size=70).display_data()["train"]
    assert Normalize(["nfc"]).display_data()["steps"] == '["nfc"]'


@pytest.mark.parametrize("check", ["--runtime_type_check", "--performance_runtime_type_check"])
def test_types_are_what_they_say(check, tokenizer):
    """Beam checks every element against the type that the step before has told."""
    with open_runner(choose_runner((check,), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        rows = pipeline | beam.Create([as_row(i, text) for i, text in enumerate(TEXTS)])
        tokens = rows | IdentifyLanguage() | Tokenize(tokenizer, max_length=3, overflow="rows")
        _ = tokens | Detokenize(tokenizer, output="again")
        _ = rows | CountWords() | TrainVocabulary(vocab_size=80, min_frequency=1)
        pipeline.run()


def test_json_of_rows(inline, tokenizer):
    """Lists of ids are Python's numbers, so that any sink takes them."""
    rows = inline | beam.Create([as_dict(0, "a mill")]) | Tokenize(tokenizer)
    expected = ['{"id": 0, "text": "a mill", "input_ids": [6, 7], "n_tokens": 2, "n_oov": 0}']
    assert_that(rows | beam.Map(json.dumps), equal_to(expected))


class Shard(typing.NamedTuple):
    id: typing.Any
    input_ids: list[int]
    n_tokens: int


@pytest.mark.parametrize("kind", ["NamedTuple", "dict"])
@pytest.mark.parametrize("wrong", [None, b"k1", 1.5, True])
def test_ids_of_documents_are_strings_or_integers(kind, wrong, tokenizer, tmp_path):
    element = Shard(wrong, [1], 1)
    element = element._asdict() if kind == "dict" else element

    def build(pipeline):
        step = WriteShards(str(tmp_path), tokenizer, id_column="id")
        return pipeline | beam.Create([element]).with_output_types(typing.Any) | step

    with pytest.raises(Exception, match=f"the field 'id' must be a string or an integer, got {wrong!r}"):
        run_inline(build)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "ids",
    [pa.array([None], pa.string()), pa.array([None, "a"]).take(pa.array([0])).dictionary_encode(), pa.array([b"k"])],
)
def test_ids_of_documents_in_batches_are_strings_or_integers(ids, tokenizer, tmp_path):
    batch = pa.record_batch({"id": ids, "input_ids": [[1]]})

    def build(pipeline):
        batches = pipeline | beam.Create([batch]).with_output_types(pa.RecordBatch)
        return batches | WriteShards(str(tmp_path), tokenizer, id_column="id")

    with pytest.raises(Exception, match=r"the field 'id' (must be a string or an integer, got|is null in 1 of 1 rows)"):
        run_inline(build)


def test_counts_are_made_where_rows_have_none(inline, tokenizer, tmp_path):
    """Whatever rows they are in a bundle with: some have counts, some do not."""
    rows = [
        {"id": np.int64(1), "input_ids": [6, 1], "n_tokens": 2, "n_oov": 0},
        {"id": "2", "input_ids": [6, 1], "n_tokens": None},
        pa.record_batch({"id": [3], "input_ids": pa.array([[1]], pa.list_view(pa.int64())), "n_oov": pa.nulls(1)}),
    ]
    step = WriteShards(str(tmp_path), tokenizer, id_column="id")
    _ = inline | beam.Create(rows).with_output_types(typing.Any) | step
    inline.run()
    (table,) = (pq.ParquetFile(path).read() for path in tmp_path.glob("tokens-*"))
    found = sorted((row["doc_id"], row["input_ids"], row["n_tokens"], row["n_oov"]) for row in table.to_pylist())
    assert found == [("1", [6, 1], 2, 0), ("2", [6, 1], 2, 1), ("3", [1], 1, 1)]


def test_the_field_doc_id_is_the_id_if_no_other_is_named(tokenizer, tmp_path):
    rows = [{"doc_id": "a", "input_ids": [1]}, {"input_ids": [6]}]
    for name, elements in (("rows", rows), ("batches", [pa.RecordBatch.from_pylist([row]) for row in rows])):
        step = WriteShards(str(tmp_path / name), tokenizer)
        run_inline(lambda pipeline, made=elements, to=step: pipeline | beam.Create(made) | to)
        (table,) = (pq.ParquetFile(path).read() for path in (tmp_path / name).glob("tokens-*"))
        assert sorted((row["doc_id"], row["input_ids"]) for row in table.to_pylist()) == [("", [6]), ("a", [1])]


def test_a_misspelt_field_is_an_error(tokenizer, tmp_path):
    def build(elements, kind):
        return lambda pipeline: (
            pipeline
            | beam.Create(elements).with_output_types(kind)
            | WriteShards(str(tmp_path), tokenizer, id_column="idd")
        )

    row = {"id": "a", "input_ids": [1]}
    with pytest.raises(Exception, match="no field 'idd', only 'id', 'input_ids'"):
        run_inline(build([row], typing.Any))
    with pytest.raises(Exception, match="no field 'idd', only 'id', 'input_ids'"):
        run_inline(build([pa.RecordBatch.from_pylist([row])], pa.RecordBatch))
    with pytest.raises(ValueError, match="the rows have no field 'idd', only id, input_ids; did you mean 'id'"):
        run_inline(build([beam.Row(**row)], RowTypeConstraint.from_fields([("id", str), ("input_ids", list)])))


def test_ids_must_be_in_the_vocabulary(tokenizer, tmp_path):
    for wrong in (-1, tokenizer.n_ids):
        rows = [{"input_ids": [1, wrong]}]
        with pytest.raises(Exception, match=f"id {wrong} is not in the vocabulary"):
            run_inline(lambda pipeline, rows=rows: pipeline | beam.Create(rows) | WriteShards(str(tmp_path), tokenizer))
        with pytest.raises(Exception, match=f"id {wrong} is not in the vocabulary"):
            run_inline(lambda pipeline, rows=rows: pipeline | beam.Create(rows) | VocabularyStatistics(tokenizer))


def test_shards_of_another_number_are_not_left_beside_these(tokenizer, tmp_path):
    def write(n_shards, **options):
        rows = [{"input_ids": [i]} for i in range(4)]
        run_inline(
            lambda pipeline: (
                pipeline | beam.Create(rows) | WriteShards(str(tmp_path), tokenizer, n_shards=n_shards, **options)
            )
        )

    write(2)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write(2)  # replaces its own
    for n_shards, options in ((3, {}), (1, {}), (2, {"format": "arrow"})):
        with pytest.raises(ValueError, match=r"has other shards already, such as 'tokens-00000-of-00002\.parquet'"):
            write(n_shards, **options)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == written


def test_shards_of_an_earlier_run_are_never_among_those_of_this_one(tokenizer, tmp_path):
    """What fails before all rows are there leaves the folder as it was; what fails later leaves no old shard."""

    def write(rows):
        step = WriteShards(str(tmp_path), tokenizer, n_shards=4)
        run_inline(lambda pipeline: pipeline | beam.Create(rows).with_output_types(typing.Any) | step)

    write([{"input_ids": [i]} for i in range(9)])
    earlier = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(Exception, match="the field 'input_ids' is null"):
        write([{"input_ids": [1]}, {"input_ids": None}])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == earlier
    half = tmp_path / f"tokens-00001-of-00004.parquet.{'0' * 32}.tmp"
    half.write_bytes(b"half")
    with pytest.raises(Exception, match="it is padded; say padding_side"):
        write([{"input_ids": [i, 0], "n_tokens": 2 if i < 5 else 1} for i in range(6)])
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert not half.exists()
    assert all(left[name] != data for name, data in earlier.items() if name in left)
    write([{"input_ids": [i]} for i in range(9)])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == earlier
    # A runner may remove them again when shards of this run are there.
    step = WriteShards(str(tmp_path), tokenizer, n_shards=4)
    found = shards._find_earlier(9, step._output, 4)
    write([{"input_ids": [i]} for i in range(9)])
    assert shards._remove_earlier(found, step._output)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == earlier
    half.with_name(half.name.replace("of-00004", "of-00007")).write_bytes(b"half")
    with pytest.raises(ValueError, match=r"has other shards already, such as 'tokens-00001-of-00007\.parquet'"):
        write([{"input_ids": [1]}])


@pytest.mark.parametrize("kind", ["rows", "batches"])
def test_ids_of_documents_that_cannot_be_used_have_an_output(kind, tokenizer, tmp_path):
    ids = ["a", None, 7, True, 1.5] if kind == "rows" else ["a", None, "7"]
    elements = [{"id": each, "input_ids": [6]} for each in ids]
    if kind == "batches":
        texts = pa.array([b"a", None, b"7", b"caf\xe9"]).view(pa.string())
        elements = [pa.record_batch({"id": texts, "input_ids": [[6]] * 4})]

    def build(pipeline):
        rows = pipeline | beam.Create(elements).with_output_types(pa.RecordBatch if kind == "batches" else typing.Any)
        step = WriteShards(str(tmp_path), tokenizer, id_column="id")
        written, bad = rows | step.with_exception_handling()
        assert_that(written | "N" >> beam.Map(lambda row: row.rows), equal_to([2]), label="Written")
        expected = [None, True, 1.5] if kind == "rows" else [None, b"caf\xe9"]
        assert_that(bad | "Ids" >> beam.Map(lambda row: row.element["id"]), equal_to(expected), label="Bad")
        others = bad | beam.Map(lambda row: "'id'" in row.msg)
        assert_that(others, equal_to([True] * len(expected)), label="Named")

    run_inline(build)
    (table,) = (pq.ParquetFile(path).read() for path in tmp_path.glob("tokens-*"))
    assert sorted(table["doc_id"].to_pylist()) == ["7", "a"]
    with pytest.raises(RowsError) as caught:
        _check_doc_ids("id", None, ["a", "b\ud800", 7])
    assert [*caught.value.failed] == [1]


def test_a_type_may_be_declared_for_a_step(tokenizer, tmp_path):
    def build(pipeline):
        batches = pipeline | beam.Create([3]) | beam.Map(lambda n: pa.record_batch({"text": ["a mill"] * n}))
        tokens = batches | Tokenize(tokenizer).with_input_types(pa.RecordBatch)
        assert tokens.element_type is pa.RecordBatch
        ids = tokens | beam.FlatMap(lambda batch: batch.column("input_ids").to_pylist())
        assert_that(ids, equal_to([[6, 7]] * 3))
        counts = batches | CountWords(tokenizer).with_input_types(pa.RecordBatch)
        assert_that(counts | "N" >> beam.Map(lambda batch: batch.num_rows), equal_to([1, 1]), label="Words")

    run_inline(build)
    with pytest.raises(Exception, match=r"(?i)type hint violation"):
        beam.Pipeline() | beam.Create(["a"]) | Tokenize(tokenizer).with_input_types(Doc)


class Tokens(typing.NamedTuple):
    id: int
    text: str
    input_ids: typing.Sequence[np.int32]
    n_tokens: np.int32
    n_oov: np.int32


@dataclasses.dataclass
class Word:
    word: bytes
    count: int


def test_results_have_the_type_that_is_declared(inline, tokenizer):
    """So that dicts and untyped elements have a schema for SQL and data frames behind a step."""
    made = Tokens(1, "a mill", [6, 7], 2, 0)
    docs = [{"id": 1, "text": "a mill"}, {"id": 2, "text": None}, {"text": "no id"}]
    as_tokens = Tokenize(tokenizer).with_output_types(Tokens)
    rows = inline | beam.Create(docs)
    good, bad = rows | "Handled" >> as_tokens.with_exception_handling()
    assert_that(good, equal_to([made]), label="Good")
    assert_that(bad | beam.Map(lambda row: row.element["text"]), equal_to([None, "no id"]), label="Bad")
    why = bad | "Why" >> beam.Map(lambda row: "no Tokens has the fields text, input_ids, n_tokens, n_oov" in row.msg)
    assert_that(why, equal_to([False, True]), label="Why again")
    tokens = inline | "Dicts" >> beam.Create(docs[:1]) | as_tokens
    assert (tokens.element_type, good.element_type) == (Tokens, Tokens)
    assert_that(tokens, equal_to([made]), label="Dicts again")
    assert_that(tokens | beam.Map(type).with_input_types(Tokens), equal_to([Tokens]), label="Types")
    n_tokens = to_pcollection(to_dataframe(tokens).groupby("id").n_tokens.sum())
    assert_that(n_tokens, equal_to([2]), label="Sum")
    row = RowTypeConstraint.from_user_type(Tokens)
    row = RowTypeConstraint.from_fields(list(row._fields))
    rows = inline | "Again" >> beam.Create(docs[:1]) | "AsRows" >> Tokenize(tokenizer).with_output_types(row)
    assert_that(rows, equal_to([beam.Row(**made._asdict())]), label="Rows")
    words = tokens | CountWords(tokenizer).with_output_types(Word)
    assert_that(words, equal_to([Word(b"a", 1), Word(b"mill", 1)]), label="Words")
    with pytest.raises(ValueError, match="Tokenize: with_output_types has the fields id, text, but the rows have id, "):
        beam.Pipeline() | beam.Create([Doc(1, "a")]) | Tokenize(tokenizer).with_output_types(Doc)
    with pytest.raises(Exception, match=r"(?i)type hint violation|requires"):
        words | TrainVocabulary(vocab_size=80).with_output_types(Tokens)
    batches = (
        inline | "Untyped" >> beam.Create([3]) | "Make" >> beam.Map(lambda n: pa.record_batch({"text": ["a"] * n}))
    )
    batches |= "Batches" >> Tokenize(tokenizer).with_output_types(Tokens)
    assert_that(batches | "Count" >> beam.Map(len), equal_to([3]), label="Batches again")


def test_rows_longer_than_pad_to_are_not_let_through(tokenizer):
    texts = [beam.Row(text="日 " * 18), beam.Row(text="日")]

    def build(pipeline):
        return pipeline | beam.Create(texts) | Tokenize(tokenizer, pad_to=4)

    with pytest.raises(Exception, match="a row has 18 tokens, more than pad_to 4; raise it, or give max_length"):
        run_inline(build)

    def build_with_outputs(pipeline):
        good, bad = pipeline | beam.Create(texts) | Tokenize(tokenizer, pad_to=4).with_exception_handling()
        assert_that(good | "Lengths" >> beam.Map(lambda row: len(row.input_ids)), equal_to([4]), label="Good")
        assert_that(bad | "Texts" >> beam.Map(lambda row: row.element.text), equal_to(["日 " * 18]), label="Bad")

    run_inline(build_with_outputs)


def test_fields_that_are_there_are_not_overwritten(tokenizer):
    message = "the rows have a field 'input_ids' already, which would be overwritten"
    row = {"text": "日", "input_ids": "mine"}
    for element, kind in (
        (beam.Row(**row), typing.Any),
        (row, typing.Any),
        (pa.RecordBatch.from_pylist([row]), pa.RecordBatch),
    ):
        with pytest.raises(Exception, match=message):
            run_inline(lambda p, e=element, k=kind: p | beam.Create([e]).with_output_types(k) | Tokenize(tokenizer))
    with pytest.raises(ValueError, match=f"Tokenize: {message}"):
        beam.Pipeline() | beam.Create([beam.Row(**row)]) | Tokenize(tokenizer)
    # The field that is read may be replaced.
    beam.Pipeline() | beam.Create([beam.Row(text="a")]) | Normalize(["nfc"]) | Tokenize(tokenizer, output="text")


def test_a_key_that_is_no_string_is_named(tokenizer):
    with pytest.raises(Exception, match="the keys of a dict must be strings, got 7"):
        run_inline(
            lambda p: p | beam.Create([{"text": "日", 7: "x"}]).with_output_types(typing.Any) | Tokenize(tokenizer)
        )


@pytest.mark.parametrize("wrong", [b"text", 5])
def test_only_strings_are_text(wrong, tokenizer):
    for element, kind in (
        ({"text": wrong}, typing.Any),
        (pa.RecordBatch.from_pylist([{"text": wrong}]), pa.RecordBatch),
    ):
        for step in (Tokenize(tokenizer), Normalize(["nfc"]), IdentifyLanguage(), CountWords()):
            with pytest.raises(Exception, match=r"must be a string, got|Expected bytes"):
                run_inline(lambda p, e=element, k=kind, s=step: p | beam.Create([e]).with_output_types(k) | s)


def test_a_row_that_is_not_utf8_goes_to_its_own_output(tokenizer):
    texts = pa.array([b"text", b"latin caf\xe9"]).view(pa.string())
    batch = pa.record_batch({"id": [1, 2], "text": texts})

    def build(pipeline):
        batches = pipeline | beam.Create([batch]).with_output_types(pa.RecordBatch)
        good, bad = batches | Tokenize(tokenizer).with_exception_handling()
        assert_that(
            good | "Ids" >> beam.Map(lambda batch: batch.column("id").to_pylist()), equal_to([[1]]), label="Good"
        )
        shown = bad | "Shown" >> beam.Map(lambda row: (row.element, row.msg.partition(";")[0]))
        msg = "ValueError: the field 'text' is not UTF-8: unexpected end of data 0xe9 at byte 9 of it"
        assert_that(shown, equal_to([({"id": 2, "text": b"latin caf\xe9"}, msg)]), label="Bad")

    run_inline(build)


def test_a_batch_that_is_not_valid_is_an_error():
    numbers = pa.py_buffer(np.array([0, 1_000_000, 5], np.int32))
    damaged = pa.Array.from_buffers(pa.string(), 2, [None, numbers, pa.py_buffer(b"hello")])
    for batch in (pa.record_batch({"text": damaged}), pa.record_batch({"other": damaged, "text": ["a", "b"]})):
        with pytest.raises(ValueError, match=r"column '(text|other)': not a valid Arrow array"):
            elements_of.check_batch(batch)


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


def test_columns_of_text_are_a_list():
    with pytest.raises(TypeError, match="columns must be a list, got one str, 'text'"):
        ComputeAndApplyTokenizer("text", vocab_size=40)
