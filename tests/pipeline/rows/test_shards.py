# SPDX-License-Identifier: Apache-2.0
"""`WriteShards`: rows of ids as files, whatever their order; what they cannot hold is refused."""

import json
import typing
from hashlib import sha256
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing import test_stream as streams
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from tests.rows import TEXTS, as_row, run_inline
from tokenmill import Tokenize, VocabularyStatistics, WriteShards
from tokenmill.pipeline.rows import shards
from tokenmill.pipeline.rows.elements import Field
from tokenmill.pipeline.rows.errors import RowsError


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


def test_what_shards_cannot_hold_is_refused(inline, tokenizer, tmp_path):
    rows = inline | beam.Create([TimestampedValue(as_row(0, "a"), 0)]) | beam.WindowInto(FixedWindows(5))
    stream = beam.Pipeline() | streams.TestStream().advance_watermark_to_infinity()
    with pytest.raises(ValueError, match="one result for all rows, and these are a stream, which has no end"):
        stream | WriteShards(str(tmp_path), tokenizer)
    windows = r"FixedWindows\(offset=Duration\(0\), size=Duration\(5\)\) with the trigger DefaultTrigger\(\)"
    with pytest.raises(ValueError, match=rf"in windows, {windows}, but it has one result for all; put beam.WindowInto"):
        _ = rows | Tokenize(tokenizer) | WriteShards(str(tmp_path), tokenizer)
    with pytest.raises(ValueError, match="it has one result for all"):
        _ = rows | "Again" >> Tokenize(tokenizer) | VocabularyStatistics(tokenizer)

    def padded(pipeline):
        rows = pipeline | beam.Create([as_row(0, "a")]) | Tokenize(tokenizer, pad_to=3)
        _ = rows | WriteShards(str(tmp_path / "padded"), tokenizer)

    with pytest.raises(Exception, match="a row has 3 ids and 1 tokens: it is padded; say padding_side"):
        run_inline(padded)
    assert not list(tmp_path.glob("padded/*"))


def test_the_field_doc_id_is_the_id_if_no_other_is_named(tokenizer, tmp_path):
    rows = [{"doc_id": "a", "input_ids": [1]}, {"input_ids": [6]}]
    rows += [{"doc_id": other, "input_ids": [6, 1]} for other in (None, 7, 1.5)]
    for name, elements in (("rows", rows), ("batches", [pa.RecordBatch.from_pylist([row]) for row in rows])):
        step = WriteShards(str(tmp_path / name), tokenizer)
        run_inline(lambda pipeline, made=elements, to=step: pipeline | beam.Create(made) | to)
        (table,) = (pq.ParquetFile(path).read() for path in (tmp_path / name).glob("tokens-*"))
        assert sorted((row["doc_id"], row["input_ids"]) for row in table.to_pylist()) == [
            ("", [6]),
            *[("", [6, 1])] * 3,
            ("a", [1]),
        ]


def test_ids_must_be_in_the_vocabulary(tokenizer, tmp_path):
    for wrong in (-1, tokenizer.n_ids):
        rows = [{"input_ids": [1, wrong]}]
        with pytest.raises(Exception, match=f"id {wrong} is not in the vocabulary"):
            run_inline(lambda pipeline, rows=rows: pipeline | beam.Create(rows) | WriteShards(str(tmp_path), tokenizer))
        with pytest.raises(Exception, match=f"id {wrong} is not in the vocabulary"):
            run_inline(lambda pipeline, rows=rows: pipeline | beam.Create(rows) | VocabularyStatistics(tokenizer))


def test_shards_of_an_earlier_run_are_never_among_those_of_this_one(tokenizer, tmp_path):
    """What fails before all files are written leaves the shards as they were; what it has half written goes later."""

    def write(rows, then=lambda row: row):
        step = WriteShards(str(tmp_path), tokenizer, n_shards=4)
        run_inline(lambda pipeline: pipeline | beam.Create(rows).with_output_types(typing.Any) | step | beam.Map(then))

    def shards_now():
        return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".tmp"}

    def fail(row):
        raise ValueError("a later step fails")

    with pytest.raises(Exception, match="it is padded; say padding_side"):
        write([{"input_ids": [i, 0], "n_tokens": 2 if i < 5 else 1} for i in range(6)])
    assert shards_now() == {}
    with pytest.raises(Exception, match="a later step fails"):
        write([{"input_ids": [i]} for i in range(9)], fail)
    earlier = shards_now()
    assert len(earlier) == 4
    for wrong in ({"input_ids": None}, {"input_ids": [5, 0], "n_tokens": 1}):
        with pytest.raises(Exception, match=r"the field 'input_ids' is null|it is padded; say padding_side"):
            write([*({"input_ids": [i]} for i in range(6)), wrong])
        assert shards_now() == earlier
    half = tmp_path / f"tokens-00001-of-00007.parquet.{'0' * 32}.tmp"
    half.write_bytes(b"half")
    write([{"input_ids": [i]} for i in range(8)])
    assert {path.name for path in tmp_path.iterdir()} == {*earlier}
    assert shards_now() != earlier
    half.with_name("tokens-00001-of-00007.parquet").write_bytes(b"whole")
    with pytest.raises(ValueError, match=r"has other shards already, such as 'tokens-00001-of-00007\.parquet'"):
        write([{"input_ids": [1]}])


def test_the_last_step_may_be_repeated_wherever_it_was_interrupted(tokenizer, tmp_path, monkeypatch):
    output = WriteShards(str(tmp_path), tokenizer, n_shards=3)._output
    names = [f"tokens-{i:05d}-of-00003.parquet" for i in range(3)]

    def stage():
        for path in tmp_path.iterdir():
            path.unlink()
        files = []
        for name in names:
            (tmp_path / name).write_text("earlier")
            staged = tmp_path / f"{name}.{'a' * 32}.tmp"
            staged.write_text(name)
            files.append((str(staged), beam.Row(file=str(tmp_path / name), sha256=sha256(name.encode()).hexdigest())))
        return files

    def content():
        return {path.name: path.read_text() for path in tmp_path.iterdir()}

    rename = shards.storage.rename
    for n_renamed in range(4):
        files, left = stage(), [*range(n_renamed)]

        def interrupted(source, destination, left=left):
            if not left:
                raise OSError("interrupted")
            left.pop()
            rename(source, destination)

        monkeypatch.setattr(shards, "_RENAMES", 1)
        monkeypatch.setattr(shards.storage, "rename", interrupted)
        if n_renamed < 3:
            with pytest.raises(OSError, match="interrupted"):
                shards._publish(files, output, 3)
            assert "earlier" not in content().values()
        monkeypatch.setattr(shards.storage, "rename", rename)
        for _ in range(2):
            assert [row.file for row in shards._publish(files, output, 3)] == [row.file for _, row in files]
            assert content() == {name: name for name in names}
    files = stage()
    for path in (files[1][0], files[1][1].file):
        shards.storage.delete(path)
    with pytest.raises(FileNotFoundError, match=r"00001-of-00003\.parquet' was removed or replaced meanwhile"):
        shards._publish(files, output, 3)
    assert content()[names[0]] == "earlier"


def test_two_steps_never_write_to_one_folder(tokenizer, tmp_path):
    """Each removes what the other has written; rows of the second named files of the first, with other checksums."""
    rows = beam.Pipeline() | beam.Create([{"input_ids": [1]}])
    for path in ("a", "b"):
        rows | path >> WriteShards(str(tmp_path / path), tokenizer)
    with pytest.raises(ValueError, match=r"another step of this pipeline writes to '.*/b'; choose another folder"):
        rows | "again" >> WriteShards(f"{tmp_path}/a/../b", tokenizer)
    of_another = str(tmp_path / "tokens-00000-of-00001.parquet")
    (tmp_path / "tokens-00000-of-00001.parquet").write_text("of another pipeline")
    files = [(f"{of_another}.tmp", beam.Row(file=of_another, sha256=sha256(b"mine").hexdigest()))]
    with pytest.raises(FileNotFoundError, match="was removed or replaced meanwhile; run it again alone"):
        shards._publish(files, WriteShards(str(tmp_path), tokenizer)._output, 1)


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
        shards._doc_ids(["a", "b\ud800", 7], Field("id", None))
    assert [*caught.value.failed] == [1]
