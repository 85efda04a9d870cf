# SPDX-License-Identifier: Apache-2.0
"""Every kind of element: its fields, its type, its windows, and those of the results."""

import dataclasses
import typing

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from tests.rows import TEXTS, Doc, as_row, fields, run_inline
from tokenmill import (
    CountWords,
    Detokenize,
    IdentifyLanguage,
    Normalize,
    Tokenize,
    TrainVocabulary,
    VocabularyStatistics,
    WriteShards,
)
from tokenmill.pipeline import schemas
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.tokenizer import Tokenizer


def test_batches_stay_batches(inline, tokenizer):
    def check(found):
        (batch,) = found
        assert batch.schema.names == ["id", "text", "input_ids", "n_tokens", "n_oov"]
        assert batch.column("input_ids").to_pylist() == tokenizer.encode_arrow(pa.array(TEXTS)).to_pylist()
        assert batch.column("n_oov").to_pylist() == [1 if "Ⰻ" in text else 0 for text in TEXTS]

    batch = pa.record_batch({"id": list(range(len(TEXTS))), "text": TEXTS})
    batches = inline | beam.Create([batch]).with_output_types(pa.RecordBatch) | beam.Reshuffle()
    assert_that(batches | Tokenize(tokenizer), check)


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


def test_every_step_has_a_type_as_beam_can_require(tokenizer, tmp_path):
    """But for steps with one of Beam's combines, which have none."""
    with open_runner(choose_runner(("--type_check_strictness=ALL_REQUIRED",), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        rows = pipeline | beam.Create([as_row(0, "a")]).with_output_types(
            RowTypeConstraint.from_fields([("text", str)])
        )
        tokens, _ = rows | Tokenize(tokenizer).with_exception_handling()
        _ = tokens | WriteShards(str(tmp_path), tokenizer).with_exception_handling()


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


@pytest.mark.parametrize("kind", [pa.Table, typing.Any])
def test_tables_go_where_batches_go(kind, inline, tokenizer, tmp_path):
    """`ReadFromParquetBatched` gives tables, whose columns may be in chunks, and declares no type."""
    names = ["id", "text"]
    parts = [pa.table([[f"d{i}"], [text]], names) for i, text in enumerate(TEXTS)]
    tables = [pa.concat_tables(parts[:5]), pa.concat_tables(parts[5:]), parts[0].slice(0, 0)]
    ids = {f"d{i}": tokenizer.encode(text, add_special_tokens=False).ids for i, text in enumerate(TEXTS)}
    texts = inline | beam.Create(tables).with_output_types(kind)
    tokens = texts | Tokenize(tokenizer)
    assert tokens.element_type is (pa.RecordBatch if kind is pa.Table else typehints.Any)
    rows = tokens | "Rows" >> beam.FlatMap(lambda batch: batch.select([0, 2]).to_pylist())
    assert_that(rows, equal_to([{"id": i, "input_ids": each} for i, each in ids.items()]), label="Ids")
    again = tokens | "AsTables" >> beam.Map(lambda batch: pa.Table.from_batches([batch])).with_output_types(kind)
    back = again | Detokenize(tokenizer, output="again") | "N" >> beam.Map(lambda batch: batch.num_rows)
    assert_that(back | beam.CombineGlobally(sum), equal_to([len(TEXTS)]), label="Back")
    counts = texts | CountWords(tokenizer, n_partitions=1)
    made = counts | "Tables" >> beam.combiners.ToList() | beam.Map(_as_counts).with_output_types(kind)
    trained = made | TrainVocabulary(vocab_size=80, min_frequency=1)
    assert_that(trained | beam.Map(lambda text: Tokenizer.from_str(text).n_ids), equal_to([80]), label="Trained")
    told = again | VocabularyStatistics(tokenizer) | "Told" >> beam.Map(lambda told: told["documents"])
    assert_that(told, equal_to([len(TEXTS)]), label="Statistics")
    good, bad = again | WriteShards(str(tmp_path), tokenizer, id_column="id").with_exception_handling(threshold=0.5)
    assert_that(good | "Written" >> beam.Map(lambda row: row.rows), equal_to([len(TEXTS)]), label="Shards")
    assert_that(bad, equal_to([]), label="Bad")
    inline.run()
    (table,) = (pq.ParquetFile(path).read() for path in tmp_path.glob("tokens-*"))
    assert {row["doc_id"]: row["input_ids"] for row in table.to_pylist()} == ids


def _as_counts(elements):
    """Returns word counts, batches or rows of them, as one table."""
    tables = [pa.Table.from_batches([each]) for each in elements if isinstance(each, pa.RecordBatch)]
    rows = [fields(each) for each in elements if not isinstance(each, pa.RecordBatch)]
    return pa.concat_tables([*tables, pa.Table.from_pylist(rows, schemas.WORD_COUNTS)])


def test_parquet_in_tables_from_beam_and_to_beam(inline, tokenizer, tmp_path):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "in.parquet", row_group_size=5)
    tables = inline | beam.io.ReadFromParquetBatched(str(tmp_path / "in.parquet"))
    tables |= Tokenize(tokenizer, with_counts=False).with_output_types(pa.Table)
    assert tables.element_type is pa.Table
    schema = pa.schema([("text", pa.string()), ("input_ids", tokenizer.encode_arrow(pa.array(["a"])).type)])
    _ = tables | beam.io.WriteToParquetBatched(str(tmp_path / "out"), schema)
    inline.run()
    found = pa.concat_tables(pq.read_table(path) for path in tmp_path.glob("out*"))
    expected = dict(zip(TEXTS, tokenizer.encode_arrow(pa.array(TEXTS)).to_pylist(), strict=True))
    assert sorted(found["text"].to_pylist()) == sorted(TEXTS)
    assert {row["text"]: row["input_ids"] for row in found.to_pylist()} == expected


@pytest.mark.parametrize(
    ("element", "declared", "message"),
    [
        ({"text": "a"}, pa.Table, r"with_output_types\(pa.Table\) is for Arrow batches, got dict"),
        ({"text": "a", 7: "x"}, None, "the keys of a dict must be strings, got 7"),
    ],
)
def test_what_a_dict_cannot_be_is_named(element, declared, message, tokenizer):
    step = Tokenize(tokenizer) if declared is None else Tokenize(tokenizer).with_output_types(declared)
    with pytest.raises(Exception, match=message):
        run_inline(lambda p: p | beam.Create([element]).with_output_types(typing.Any) | step)
