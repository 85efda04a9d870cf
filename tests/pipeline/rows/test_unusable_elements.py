# SPDX-License-Identifier: Apache-2.0
"""Mixed and unusable elements in any batches: each gives what a loop of `Tokenizer.encode` gives, where it was."""

import dataclasses
import enum
import pickle
import typing

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import error_handling
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import fields, run_inline
from tests.strategies import FEWER
from tokenmill import CountWords, Detokenize, Normalize, Tokenize, TrainVocabulary, VocabularyStatistics, WriteShards
from tokenmill.pipeline.rows import batching
from tokenmill.pipeline.rows import elements as elements_of
from tokenmill.pipeline.rows.elements import Field
from tokenmill.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_vocab):
    return Tokenizer.for_bert(tiny_vocab, oov="contain")


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def gather_of(step, **options):
    fn = batching.GatherFn(step._work, type(step), step._errors, **options)
    fn.start_bundle()
    return fn


def note_sizes(step, calls):
    """Notes how many rows each call of the function of a step computes."""

    def prepare(given, prepare=step._work.prepare):
        function = prepare(given)
        return lambda *columns: calls.append(len(columns[0])) or function(*columns)

    step._work = dataclasses.replace(step._work, prepare=prepare)


def in_process(transform, elements):
    """Runs the DoFn of a step for rows by hand; returns (output or letter, timestamp, window, pane) of each."""
    fn = gather_of(transform)
    found = []
    for element, timestamp, window, pane in elements:
        found += fn.process(element, timestamp, window, pane) or ()
    found += fn.finish_bundle()
    return [(each.value, each.timestamp, each.windows[0], each.pane_info) for each in found]


class Named(enum.StrEnum):
    MILL = "a mill"

    def __str__(self):
        return "its name"


GOOD = {
    "str": lambda text: text,
    "enum": lambda text: Named.MILL if len(text) % 2 else text,
    "dict": lambda text: {"text": text},
    "Row": lambda text: beam.Row(id=1, text=text),
}
BAD = [None, b"a text", {"text": None}, {"text": b"a"}, {}, beam.Row(id=1), beam.Row(text=5), 7, {"text": "\ud800"},
       {"text": "a", "input_ids": 1}, {"text": "a", 7: 1}]  # fmt: skip


@FEWER
@given(st.data())
def test_any_mixture_in_any_batches_gives_what_a_loop_gives(data):
    tokenizer = Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##a", "##b", "字"], oov="contain")
    texts = st.text("ab 字é", max_size=12)
    good = st.tuples(st.sampled_from(sorted(GOOD)), texts).map(lambda pair: GOOD[pair[0]](pair[1]))
    placed = st.tuples(
        good | st.sampled_from(BAD),
        st.integers(0, 3),
        st.integers(0, 2),
        st.sampled_from([PaneInfoTiming.EARLY, PaneInfoTiming.LATE, PaneInfoTiming.ON_TIME]),
    )
    elements = [
        (
            element,
            beam.utils.timestamp.Timestamp(seconds),
            beam.transforms.window.IntervalWindow(10 * window, 10 * window + 10),
            PaneInfo(False, False, timing, 0, 0),
        )
        for element, seconds, window, timing in data.draw(st.lists(placed, max_size=30))
    ]
    limit, batching.BATCH_ELEMENTS = batching.BATCH_ELEMENTS, data.draw(st.integers(1, 12))
    try:
        found = in_process(Tokenize(tokenizer).with_exception_handling(), elements)
    finally:
        batching.BATCH_ELEMENTS = limit
    wanted, seen = [], []
    for element, *place in elements:
        is_bad = any(element is bad for bad in BAD)
        text = (
            element
            if isinstance(element, str)
            else element["text"]
            if isinstance(element, dict) and not is_bad
            else None
        )
        if isinstance(element, beam.Row) and not is_bad:
            text = element.text
        wanted.append((repr(element) if is_bad else ids_of(tokenizer, text), *place))
    for output, *place in found:
        failed = isinstance(output, batching.Failed)
        ids = None if failed else output["input_ids"] if isinstance(output, dict) else output.input_ids
        seen.append((repr(output.letter.element) if failed else ids, *place))
    assert sorted(map(repr, seen)) == sorted(map(repr, wanted))


class Inner(typing.NamedTuple):
    value: float | int | None


class Various(typing.NamedTuple):
    text: str | None
    either: float | int | None
    pair: tuple[float, int]
    inner: Inner | None
    named: dict[str, int | str | None]
    kind: typing.Literal["a", "b"] = "a"


def test_what_schemas_of_beam_misread_is_passed_on_as_it_is(tokenizer):
    """They take the first type of a union with None, and of a tuple: `2**60 + 1` became 1.152921504606847e+18."""
    good = Various("a", 2**60 + 1, (0.5, 2**60 + 1), Inner(2**60 + 1), {"url": "u", "n": None})
    docs = [good, good._replace(text=None)]

    def values_of(row):
        return [fields(row)[each] for each in good._fields]

    def build(pipeline):
        typed = pipeline | "Typed" >> beam.Create(docs)
        dicts = pipeline | "Dicts" >> beam.Create([each._asdict() for each in docs])
        for name, elements in (("OfTyped", typed), ("OfDicts", dicts)):
            fine, bad = elements | name >> Tokenize(tokenizer).with_exception_handling()
            rows = fine | f"{name}Sent" >> beam.Reshuffle() | f"{name}Get" >> beam.Map(values_of)
            assert_that(rows, equal_to([[*good]]), label=f"{name}Good")
            letters = bad | f"{name}Letters" >> beam.Reshuffle() | f"{name}Element" >> beam.Map(lambda row: row.element)
            expected = docs[1] if name == "OfTyped" else docs[1]._asdict()
            assert_that(letters, equal_to([expected]), label=f"{name}Bad")

    run_inline(build)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], r"the side input with the tokenizer holds no tokenizer\.json as text"),
        # Beam's words show both values whole.
        (["a" * 999] * 2, r"^the side input with the tokenizer holds several texts; it needs one in each window"),
    ],
)
def test_a_side_input_without_one_text_is_named(texts, words, tokenizer):
    def build(pipeline):
        side = pipeline | "Side" >> beam.Create(texts).with_output_types(str)
        return pipeline | beam.Create(["a"]) | Tokenize(side)

    with pytest.raises(Exception, match=words) as error:
        run_inline(build)
    assert len(str(error.value)) < 200
    several = beam.pvalue.AsList(beam.Pipeline() | beam.Create(["a"]))
    with pytest.raises(TypeError, match="a tokenizer is a path, a Tokenizer, a PCollection of one or AsSingleton"):
        Tokenize(several)


def test_batches_keep_their_schema(tokenizer):
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"unit": "one"}),
            pa.field("text", pa.string(), nullable=False, metadata={"lang": "en"}),
        ],
        {"origin": "here"},
    )
    batch = pa.record_batch([[1, 2], ["a mill", "text"]], schema=schema)
    for step in (Tokenize(tokenizer), Normalize(["nfc"])):
        fn = gather_of(step)
        (found,) = fn.process(batch)
        assert found.schema.metadata == schema.metadata
        assert found.schema.field("id").equals(schema.field("id"), check_metadata=True)
        assert (found.schema.field("text").nullable, found.schema.field("text").metadata) == (False, {b"lang": b"en"})


def views(texts):
    return texts.view(pa.binary()).cast(pa.binary_view()).view(pa.string_view())


def test_a_batch_that_is_not_valid_has_a_letter(tokenizer):
    numbers = pa.py_buffer(np.array([0, 1_000_000, 5], np.int32))
    damaged = pa.Array.from_buffers(pa.string(), 2, [None, numbers, pa.py_buffer(b"hello")])
    step = Tokenize(tokenizer).with_exception_handling()
    fn = gather_of(step)
    (failed,) = fn.process(pa.record_batch({"text": damaged}))
    assert failed.letter.element == "an Arrow batch of 2 rows"
    assert "column 'text': not a valid Arrow array" in failed.letter.msg


IDS = pa.large_list(pa.field("element", pa.int32(), nullable=False))
LISTS = st.lists(st.none() | st.lists(st.integers(0, 9), min_size=2, max_size=2), max_size=6)


@given(LISTS, st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda of: pa.list_(of, 2)]))
def test_lists_of_any_type_are_read_without_their_neighbours(rows, kind):
    """Arrow 25 casts views to lists of other rows, and a slice with the values around it."""
    column = pa.array([[1, 2**40], *rows, [2**40, 2]], kind(pa.int64())).slice(1, len(rows))
    found = elements_of.batch_column(pa.record_batch({"ids": column}), Field("ids", IDS, is_optional=True))
    assert found.to_pylist() == rows


@pytest.mark.parametrize("wrong", [[5.5], ["7"], [5, 6.5], np.array([5.5]), b"ab", "ab", [[5]], [2**40]])
def test_what_is_no_list_of_integers_is_no_list_of_ids(wrong):
    good = [[5], np.array([6], np.int32), (7,), np.array([]), np.array([8], np.uint64), [9.0], [True]]
    (column,), indices, failed = elements_of.usable([{"ids": each} for each in [*good, wrong]], [Field("ids", IDS)])
    assert column.to_pylist() == [[5], [6], [7], [], [8], [9], [1]]
    assert ([*indices], [*failed]) == ([0, 1, 2, 3, 4, 5, 6], [7])
    assert failed[7].__context__ is None  # which would take longer to format than a row to compute


@pytest.mark.parametrize("what", ["padding", "ids"])
def test_rows_that_fail_while_they_are_computed_are_found_by_looking(what, tokenizer, monkeypatch):
    """Of 300 rows 100 fail; batches are computed twice, not halved. The row of an error is the one that is wrong."""
    step, column, good, wrong = {
        "padding": (Tokenize(tokenizer, pad_to=2), "text", "a mill", "a mill a"),
        "ids": (Detokenize(tokenizer), "input_ids", [6, 7], [6, 999_999, 7]),
    }[what]
    step = step.with_exception_handling()
    elements = [{"id": i, column: good if i % 3 else wrong} for i in range(300)]
    calls = []
    note_sizes(step, calls)
    window = beam.transforms.window.GlobalWindow()
    found = in_process(step, [(each, window.max_timestamp(), window, None) for each in elements])
    failed = [each.letter.element["id"] for each, *_ in found if isinstance(each, batching.Failed)]
    assert (failed, len(found), calls) == ([*range(0, 300, 3)], 300, [300, 200])
    fn = gather_of(step)
    outputs = list(fn.process(pa.RecordBatch.from_pylist(elements)))
    letters = [each.letter for each in outputs if isinstance(each, batching.Failed)]
    assert [each.element["id"] for each in letters] == failed
    assert all(("999999" if what == "ids" else "more than pad_to 2") in each.msg for each in letters)
    assert calls[2:] == [300, 200]


def test_a_threshold_a_handler_and_a_callback(tokenizer, tmp_path):
    elements = ["a mill", None, "text", "a"]
    told = tmp_path / "told"

    def build(pipeline, threshold):
        texts = pipeline | beam.Create(elements).with_output_types(typehints.Any)
        handling = Tokenize(tokenizer).with_exception_handling(
            threshold=threshold,
            on_failure_callback=lambda error, element: told.write_text(f"{error}: {element!r}"),
            allow_unsafe_userstate_in_process=True,
            timeout=0,
        )
        good, _ = texts | handling
        assert_that(good | beam.Map(lambda row: row.n_tokens), equal_to([2, 1, 1]))

    run_inline(lambda pipeline: build(pipeline, 0.25))
    assert told.read_text().endswith(": None")
    told.unlink()
    told.mkdir()  # the callback raises, which Beam's own steps log
    run_inline(lambda pipeline: build(pipeline, 0.25))
    with pytest.raises(Exception, match=r"1 of 4 elements fail, more than the threshold of 0\.2 allows"):
        run_inline(lambda pipeline: build(pipeline, 0.2))

    def handled(pipeline):
        texts = pipeline | beam.Create(elements).with_output_types(typehints.Any)
        with error_handling.CollectingErrorHandler() as handler:
            good = texts | Tokenize(tokenizer).with_error_handler(handler)
        assert isinstance(good, beam.PCollection)
        assert_that(handler.output() | "Which" >> beam.Map(lambda row: row.element), equal_to([None]))

    run_inline(handled)
    step = Tokenize(tokenizer)
    assert step.with_error_handler(None) is step
    with pytest.raises(ValueError, match="use_subprocess and timeout are for steps that take one element"):
        Tokenize(tokenizer).with_exception_handling(timeout=3)
    with pytest.raises(ValueError, match=r"threshold must be in 0\.\.1, got 2"):
        Tokenize(tokenizer).with_exception_handling(threshold=2)


def test_steps_that_count_have_a_second_output_too(tokenizer, tmp_path):
    def build(pipeline):
        texts = pipeline | "Texts" >> beam.Create(["a mill", None, "a"]).with_output_types(typehints.Any)
        good, bad = texts | CountWords(tokenizer).with_exception_handling()
        words = good | "Words" >> beam.Map(lambda row: (row.word, row.count))
        assert_that(words, equal_to([(b"a", 2), (b"mill", 1)]), label="Counted")
        assert_that(bad | "No text" >> beam.Map(lambda row: row.element), equal_to([None]), label="Not counted")
        counts = [{"word": b"mill", "count": 2}, beam.Row(word=None, count=1), beam.Row(word=b"a", count=None)]
        counts = pipeline | "Counts" >> beam.Create(counts).with_output_types(typehints.Any)
        trained, bad = counts | TrainVocabulary(vocab_size=40, min_frequency=1).with_exception_handling()
        n_trained = trained | "Size" >> beam.Map(lambda text: Tokenizer.from_str(text).n_ids > 4)
        assert_that(n_trained, equal_to([True]), label="Trained")
        assert_that(bad | "No word" >> beam.Map(lambda row: row.element.count), equal_to([1, None]), label="No words")
        batch = pa.record_batch({"input_ids": pa.array([[6], None, [10**6], [7, 6]], pa.list_(pa.int32()))})
        ids = pipeline | "Ids" >> beam.Create([batch]).with_output_types(pa.RecordBatch)
        for name, step in (
            ("Statistics", VocabularyStatistics(tokenizer)),
            ("Shards", WriteShards(str(tmp_path), tokenizer)),
        ):
            good, bad = ids | name >> step.with_exception_handling()
            n = good | f"N{name}" >> beam.Map(lambda told: told["tokens"] if isinstance(told, dict) else told.tokens)
            assert_that(n, equal_to([3]), label=f"Good{name}")
            elements = bad | f"Bad{name}" >> beam.Map(lambda row: row.element["input_ids"])
            assert_that(elements, equal_to([None, [10**6]]), label=f"Letters{name}")

    run_inline(build)


@pytest.mark.parametrize("kind", [pa.array, pa.Array.dictionary_encode, views])
def test_bad_rows_of_a_batch_are_computed_once(kind, tokenizer, monkeypatch):
    texts = kind(pa.array([None, b"caf\xe9", b"a mill"] * 100).view(pa.string()))
    step = Tokenize(tokenizer).with_exception_handling()
    note_sizes(step, calls := [])
    fn = gather_of(step)
    far = pa.array([2**62] * len(texts), pa.timestamp("s"))
    found = list(fn.process(pa.record_batch([texts, far, far], names=["text", "time", "time"])))
    assert pickle.loads(pickle.dumps(found[0].letter)).element["time"].num_rows == 1
    assert [each.num_rows for each in found if isinstance(each, pa.RecordBatch)] == [100]
    assert (sum(isinstance(each, batching.Failed) for each in found), calls) == (200, [100])
