# SPDX-License-Identifier: Apache-2.0
"""`input.keep_fields` through the command line: every format, packed and shuffled, proven."""

import datetime
import decimal
import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline.looking import inspect

ALL = ["parquet", "arrow", "mds", "tfrecord", "megatron", "memmap"]
ROOM = ["parquet", "arrow", "mds"]
FIELDS = {"url": None, "meta.lang": "string", "score": "double", "meta": {"n": ["int64"]}, "any": None}


def record(i):
    meta = {"lang": "en", "n": [i, None], "other": {"lang": "no"}}
    return {
        "id": f"d{i}",
        "text": "the mill grinds " * (i % 5),
        "url": None if i % 3 == 0 else f'http://é.x/"{i}"\n',
        "any": [1, "a", {"x": i}, True, 2.50, None][i % 6],
        **({"meta": meta} if i % 4 else {}),
        **({"score": i * 1.5 if i % 2 else i} if i % 5 else {}),
    }


def expected(i):
    """What becomes of a record, written down by hand."""
    of = record(i)
    meta = of.get("meta")
    value = of["any"]
    return {
        "url": of["url"],
        "meta.lang": meta and meta["lang"],
        "score": None if of.get("score") is None else float(of["score"]),
        "meta": meta and {"n": meta["n"]},
        "any": value if value is None or isinstance(value, str) else json.dumps(value),
    }


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [json.dumps(record(i), ensure_ascii=i % 2 == 0) + "\n" for i in range(60)]
    (folder / "a.jsonl").write_text("".join(lines[:40]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[40:]).encode()))
    return folder


@pytest.fixture
def make_keeping(make_job, corpus, tiny_vocab_file, tmp_path):
    def make(name, output, **given):
        paths = {"paths": [str(corpus / "*")], "split_bytes": 2000, "keep_fields": FIELDS}
        return make_job(
            name,
            input={**paths, **given},
            tokenizer={"file": str(tiny_vocab_file)},
            output={"path": str(tmp_path / name / "out"), **output},
        )

    return make


def kept(path):
    return [row.fields for row in inspect.rows(str(path), 0, 10**6)]


def tables(job):
    paths = sorted(job.output.glob("documents/*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_fields_are_columns_where_there_is_room_and_listed_where_not(make_keeping):
    job = make_keeping("job", {"format": ALL})
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.run("verify", "--deep") == 0
    for suffix in ROOM:
        rows = [row for path in sorted(job.output.glob(f"tokens-*.{suffix}")) for row in kept(path)]
        assert rows == [expected(i) for i in range(60)], suffix
    listed = tables(job)
    assert [{name: row[name] for name in FIELDS} for row in listed] == [expected(i) for i in range(60)]
    assert [row["doc_id"] for row in listed] == [f"d{i}" for i in range(60)]
    fields = job.manifest()["fields"]
    assert fields["score"] == "double"
    assert fields["url"] == fields["any"] == "string"
    with_room = make_keeping("room", {"format": ROOM})
    assert with_room.run("tokenize", "--workers", "1") == 0
    assert with_room.run("verify") == 0
    assert not set(FIELDS) & set(tables(with_room)[0])
    for name, data in with_room.files().items():
        if name.startswith("tokens-"):
            assert job.files()[name] == data


def test_a_field_that_no_document_has_is_warned_of(make_keeping, capsys):
    job = make_keeping("job", {}, keep_fields=["url", "ulr", "meta.lang"])
    assert job.run("tokenize", "--workers", "1") == 0
    assert "warning: input.keep_fields: no document has 'ulr'" in capsys.readouterr().err
    assert job.manifest()["totals"]["has_field"] == {"meta.lang": 45, "ulr": 0, "url": 40}
    assert job.run("verify", "--deep") == 0
    assert job.run("tokenize", "--workers", "1", "--overwrite", "--set", "input.keep_fields=[url]") == 0
    assert "no document has" not in capsys.readouterr().err


def test_documents_without_the_field_of_ids_are_counted(make_keeping, capsys):
    for name, n_without in (("meta.lang", 15), ("ulr", 60)):
        job = make_keeping(name, {}, id_field=name)
        assert job.run("tokenize", "--workers", "1") == 0
        said = f"warning: input.id_field: {n_without} of 60 documents have no {name!r}; their ids are made of the name"
        assert said in capsys.readouterr().err
        ids = [row["doc_id"] for row in tables(job)]
        assert sum(re.search(r"\.\w+:\d+$", each) is not None for each in ids) == n_without
        assert job.run("verify", "--deep") == 0


def test_what_is_no_declared_type_is_rejected_with_its_reason(make_keeping, corpus):
    lines = [
        {"text": "a", "score": "high"}, {"text": "a", "score": 5}, {"text": "a", "score": 1.5},
        {"text": "a", "score": None}, {"text": "a", "score": 10**30}, {"text": "a", "url": "\ud800"},
        {"text": "a", "tags": ["x", 3]}, {"text": "a", "tags": ["x", "y"]}, {"text": "a", "at": "yesterday"},
        {"text": "a", "at": "2026-01-02T03:04:05Z"},
    ]  # fmt: skip
    for path in corpus.iterdir():
        path.unlink()
    (corpus / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    declared = {"score": "int64", "url": None, "tags": ["string"], "at": "timestamp[us]"}
    job = make_keeping("job", {}, keep_fields=declared, on_damage="warn")
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.run("verify", "--deep") == 0
    rejects = job.rejects()
    assert [reject["reason"] for reject in rejects] == ["bad_field"] * 3 + ["lone_surrogate"] + ["bad_field"] * 2
    assert rejects[0]["detail"] == "field 'score' is a string, not int64"
    assert [json.loads(reject["sample"]) for reject in rejects] == [lines[i] for i in (0, 2, 4, 5, 6, 8)]
    rows = job.rows()
    assert [row["score"] for row in rows] == [5, None, None, None]
    assert [row["tags"] for row in rows] == [None, None, ["x", "y"], None]
    assert rows[3]["at"] == datetime.datetime(2026, 1, 2, 3, 4, 5)
    # Without a type nothing is lost.
    job = make_keeping("text", {}, keep_fields=["score", "tags"])
    assert job.run("tokenize", "--workers", "1") == 0
    assert [row["score"] for row in job.rows()][:5] == ["high", "5", "1.5", None, str(10**30)]


def parquet_table():
    n = 30
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    return pa.table(
        {
            "text": ["the mill " * (i % 4) for i in range(n)],
            "url": pa.array([None if i % 7 == 0 else f"http://{i % 3}" for i in range(n)]).dictionary_encode(),
            "large": pa.array([f"x{i}" for i in range(n)], pa.large_string()),
            "at": pa.array([moment + datetime.timedelta(days=i) for i in range(n)], pa.timestamp("us", "UTC")),
            "price": pa.array([decimal.Decimal(i) / 4 for i in range(n)], pa.decimal128(9, 2)),
            "raw": pa.array([None if i % 5 == 0 else bytes([i]) for i in range(n)]),
            "small": pa.array([i % 2 == 0 for i in range(n)]),
            "half": pa.array([i / 2 for i in range(n)], pa.float32()),
            "day": pa.array([datetime.date(2026, 1, 1 + i) for i in range(n)]),
            "tags": pa.array([[f"t{j}" for j in range(i % 3)] if i % 4 else None for i in range(n)]),
            "pairs": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int64())),
            "meta": pa.array([{"url": f"m{i}", "deep": {"n": i}} if i % 6 else None for i in range(n)]),
        }
    )


def test_numbers_that_a_type_cannot_hold_are_rejected_and_the_last_of_equal_names_counts(make_keeping, corpus):
    for path in corpus.iterdir():
        path.unlink()
    lines = [
        '{"text": "a", "score": 3.5e39}',
        '{"text": "a", "score": -1e400}',
        '{"text": "a", "score": 3.4e38, "more": {"a": 1, "b": [{"c": "x", "c": "y"}], "a": 2.50}}',
        '{"text": "a", "more": {"a": 1, "list": [1, 3.5e39]}}',
        '{"text": "a", "more": {"a": "x", "a": 4, "list": [1, 2]}}',
        '{"text": "a", "more": {"a": 4, "a": "x"}}',
    ]
    (corpus / "a.jsonl").write_text("\n".join(lines))
    declared = {"score": "float", "more": {"a": "double", "b": [{"c": "string"}], "list": ["float"]}}
    job = make_keeping("job", {}, keep_fields=declared, on_damage="warn")
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.run("verify", "--deep") == 0
    assert [(row["reason"], row["sample"].decode()) for row in job.rejects()] == [
        ("bad_field", lines[i]) for i in (0, 1, 3, 5)
    ]
    assert job.rejects()[0]["detail"] == "field 'score' is not float: a number is too large"
    first, second = job.rows()
    assert first["score"] == pytest.approx(3.4e38)
    assert first["more"] == {"a": 2.5, "b": [{"c": "y"}], "list": None}
    assert second["more"] == {"a": 4.0, "b": None, "list": [1.0, 2.0]}


def test_columns_of_parquet_of_any_type(make_keeping, corpus):
    table = parquet_table()
    for path in corpus.iterdir():
        path.unlink()
    pq.write_table(table.slice(0, 20), corpus / "a.parquet", row_group_size=7)
    pq.write_table(table.slice(20), corpus / "b.parquet")
    names = [name for name in table.schema.names if name not in ("text", "meta")]
    wanted = table.select(names).to_pylist()
    for row, meta in zip(wanted, table["meta"].to_pylist(), strict=True):
        row["pairs"] = [{"key": key, "value": value} for key, value in row["pairs"]]
        row["meta.deep.n"] = meta and meta["deep"]["n"]
        row["meta"] = meta
    fields = [*names, "meta.deep.n", "meta"]
    for name, output in (("plain", {"format": ["parquet", "arrow", "mds"]}), ("shuffled", {"shuffle": {"shards": 2}})):
        job = make_keeping(name, output, keep_fields=fields, split_bytes=100)
        assert job.run("tokenize", "--workers", "1") == 0
        assert job.run("verify", "--deep") == 0
        paths = sorted(job.output.glob("tokens-*.parquet"))
        found = pa.concat_tables([pq.read_table(path) for path in paths])
        rows = {row["doc_id"]: {field: row[field] for field in fields} for row in found.to_pylist()}
        ids = [f"a.parquet:{i}" for i in range(20)] + [f"b.parquet:{i}" for i in range(10)]
        assert [rows[doc_id] for doc_id in ids] == wanted
        assert found.schema.field("at").type == pa.timestamp("us", "UTC")
        assert found.schema.field("price").type == pa.decimal128(9, 2)
        if name == "plain":
            arrow = [row for path in sorted(job.output.glob("*.arrow")) for row in kept(path)]
            assert arrow == wanted
            mds = [row for path in sorted(job.output.glob("*.mds")) for row in kept(path)]
            assert [row["tags"] for row in mds] == [row["tags"] for row in wanted]
            assert [row["price"] for row in mds] == [str(row["price"]) for row in wanted]


def test_files_that_do_not_agree_are_refused_by_name_before_work(make_keeping, corpus, capsys):
    for path in corpus.iterdir():
        path.unlink()
    pq.write_table(pa.table({"text": ["a"], "url": ["x"]}), corpus / "a.parquet")
    pq.write_table(pa.table({"text": ["a"], "url": [1]}), corpus / "b.parquet")
    job = make_keeping("job", {}, keep_fields=["url"])
    assert job.run("tokenize", "--workers", "1") == 2
    assert (
        f"'{corpus}/b.parquet' has 'url' as int64, but '{corpus}/a.parquet' has it as string" in capsys.readouterr().err
    )
    assert not job.output.exists()
    (corpus / "b.parquet").unlink()
    assert make_keeping("typo", {}, keep_fields=["ulr"]).run("tokenize", "--workers", "1") == 2
    assert "'ulr' of input.keep_fields is in none of the files" in capsys.readouterr().err
    assert make_keeping("other", {}, keep_fields={"url": "int64"}).run("tokenize", "--workers", "1") == 2
    assert "has 'url' as string, but input.keep_fields says int64" in capsys.readouterr().err


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [2]], pa.list_view(pa.int64())),
        pa.array([{"a": [1]}, None], pa.struct([("a", pa.large_list_view(pa.int64()))])),
        pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"]),
        pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    ],
    ids=["view", "nested-view", "runs", "interval"],
)
def test_values_that_no_shard_can_hold_are_refused_before_work(make_keeping, corpus, capsys, column):
    table = pa.table({"text": ["a", "b"], "k": column})
    with pa.ipc.new_file(str(corpus / "a.arrow"), table.schema) as file:
        file.write_table(table)
    job = make_keeping("job", {}, paths=[str(corpus / "a.arrow")], keep_fields=["k"])
    assert job.run("tokenize", "--mode", "inline") == 2
    assert "a.arrow' has 'k' as " in capsys.readouterr().err
