# SPDX-License-Identifier: Apache-2.0
"""`tokenmill inspect`, `viz` and `diff`: which rows they choose, in every format, and what they refuse."""

import json
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import cli
from pipeline.reporting import inspect

WORDS = ["the", "mill", "grinds", "text", "玫瑰花", "a", "ɸ", "tokens"]
N_DOCUMENTS = 60


@pytest.fixture
def texts():
    rng = random.Random(3)
    found = [" ".join(rng.choices(WORDS, k=rng.randrange(30))) for _ in range(N_DOCUMENTS)]
    found[17] = "the mill grinds a text into tokens , unaffable !"
    return found


@pytest.fixture
def make(tmp_path, tiny_vocab_file, texts):
    """Runs jobs over 60 documents in several splits."""

    def run(name="out", texts=texts, tokenizer=None, **output):
        folder = tmp_path / f"{name}-corpus"
        folder.mkdir()
        lines = [json.dumps({"id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts) if text is not None]
        (folder / "a.jsonl").write_text("".join(lines), encoding="utf-8")
        config = {
            "input": {"paths": [str(folder / "*.jsonl")], "split_bytes": 1500},
            "tokenizer": {"file": str(tiny_vocab_file), **(tokenizer or {})},
            "output": {"path": str(tmp_path / name), "report": False, **output},
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(config))
        assert cli.main(["tokenize", str(tmp_path / f"{name}.yaml"), "--workers", "1", "--mode", "inline"]) == 0
        return tmp_path / name

    return run


@pytest.fixture
def look(capsys):
    """Runs `inspect --json` and returns the rows."""

    def run(*words):
        capsys.readouterr()
        assert cli.main(["inspect", "--json", "--tokens", "1000", *map(str, words)]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def refused(capsys):
    """Runs a command that is refused, and returns its message."""

    def run(*words):
        capsys.readouterr()
        assert cli.main(list(map(str, words))) == 2
        out, err = capsys.readouterr()
        assert out == ""
        (line,) = err.splitlines()
        return line

    return run


def all_rows(folder, suffix="parquet"):
    shards = sorted(folder.glob(f"tokens-*.{suffix}"))
    assert len(shards) > 2
    return [row for shard in shards for row in inspect.rows(str(shard), 0, 1000)]


FORMATS = ["parquet", "arrow", "mds", "tfrecord", "megatron", "memmap"]
SUFFIXES = {"megatron": "bin", "memmap": "ids.bin"}


def test_rows_are_chosen_from_all_shards_of_a_folder(make, look):
    out = make()
    rows = all_rows(out)
    lengths = sorted((row.n_tokens for row in rows), reverse=True)
    assert [row["n_tokens"] for row in look(out, "--longest", "--rows", 7)] == lengths[:7]
    unknown = sorted((row.n_oov for row in rows), reverse=True)
    assert [row["n_oov"] for row in look(out, "--most-unknown", "--rows", 9)] == unknown[:9]
    assert [row["doc_id"] for row in look(out, "--start", 30, "--rows", 20)] == [f"d{i}" for i in range(30, 50)]
    assert [row["doc_id"] for row in look(out, "--start", 58)] == ["d58", "d59"]
    assert look(out, "--start", 60) == []
    drawn = [[row["doc_id"] for row in look(out, "--random", "--seed", s, "--rows", 60)] for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0]) == sorted(drawn[2]) == sorted(f"d{i}" for i in range(60))
    (row,) = look(out, "--grep", "unaff(able)?!$")
    assert row["doc_id"] == "d17"
    assert "".join(token["text"] for token in row["tokens"]).startswith("the mill grinds a text")
    (row,) = look(out, "--doc-id", "d17", "--longest")
    assert row["doc_id"] == "d17"
    assert look(out, "--doc-id", "d16", "--grep", "unaff") == []


def test_of_equal_rows_the_first_are_taken(make, look):
    out = make(texts=["a mill"] * 20)
    assert [row["doc_id"] for row in look(out, "--longest", "--rows", 3)] == ["d0", "d1", "d2"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_finds_documents_text_and_unknown_tokens(name, make, look):
    out = make(format=[name])
    for target in (out, *out.glob(f"tokens-00001-*.{SUFFIXES.get(name, name)}")):
        rows = look(target, "--most-unknown", "--rows", 2)
        assert rows[0]["n_oov"] >= rows[1]["n_oov"] > 0
    (row,) = look(out, "--grep", "unaffable")
    assert row["doc_id"] == "d17"
    assert [row["doc_id"] for row in look(out, "--doc-id", "d42")] == ["d42"]


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "tfrecord"])
@pytest.mark.parametrize("strategy", ["concatenate", "best_fit"])
def test_packed_rows_say_where_documents_begin(name, strategy, make, look, texts, tiny_vocab):
    out = make(format=[name], packing={"length": 24, "separator": "[SEP]", "strategy": strategy})
    found = look(out, "--rows", 1000)
    ids = {}
    for row in found:
        starts = [segment["first_token"] for segment in row["segments"]]
        assert starts[0] == 0
        tokens = [token["id"] for token in row["tokens"]]
        for segment, stop in zip(row["segments"], [*starts[1:], None], strict=True):
            ids.setdefault(segment["document"], []).extend(tokens[segment["first_token"] : stop])
        assert row["padding"] == "right"
    tokenizer = inspect.find_tokenizer(str(out / "x"))
    assert ids == {f"d{i}": [*tokenizer.encode(text, add_special_tokens=False).ids, 3] for i, text in enumerate(texts)}
    mine = look(out, "--doc-id", "d42")
    assert mine == [row for row in found if "d42" in [segment["document"] for segment in row["segments"]]]


def test_a_packed_shard_alone_has_its_boundaries(make, look, tmp_path, capsys, refused):
    out = make(packing={"length": 24, "separator": "[SEP]"})
    shard = shutil.copy(next(iter(sorted(out.glob("tokens-*.parquet")))), tmp_path / "alone.parquet")
    vocabulary = out / "vocab" / "tokenizer.json"
    row = look(shard, "--rows", 1, "--tokenizer", vocabulary)[0]
    assert [segment["document"] for segment in row["segments"]][:2] == ["#0", "#1"]
    assert "no file" not in refused("inspect", shard, "--doc-id", "d1", "--tokenizer", vocabulary)
    capsys.readouterr()
    assert cli.main(["inspect", str(shard), "--rows", "1", "--tokenizer", str(vocabulary), "--ids"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("#0: ")


def test_windows_of_a_document_are_found(make, look):
    shape = {"truncation": {"max_length": 8, "stride": 2, "overflow": "rows"}}
    out = make(tokenizer=shape, format=["parquet", "megatron"])
    found = look(out, "--doc-id", "d17", "--rows", 50)
    assert len(found) > 1
    assert [row["window"] for row in found] == list(range(len(found)))
    (shard,) = {row["shard"] for row in found}
    again = look(shard.removesuffix(".parquet") + ".bin", "--doc-id", "d17", "--rows", 50)
    assert [row["tokens"] for row in again] == [row["tokens"] for row in found]


def test_what_cannot_be_looked_at_is_one_message(make, refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "holds no manifest.json" in refused("inspect", tmp_path / "empty")
    assert "'(' is not a regular expression of RE2" in refused("inspect", tmp_path / "empty", "--grep", "(")
    out = make(format=["parquet", "arrow", "mds", "tfrecord", "megatron", "memmap"])
    rng = np.random.default_rng(0)
    for suffix in ("parquet", "arrow", "mds", "tfrecord", "bin", "ids.bin"):
        shard = sorted(out.glob(f"tokens-*1-*.{suffix}"))[0]
        data = shard.read_bytes()
        for damaged in (data[: len(data) // 2], b"", rng.bytes(300)):
            shard.write_bytes(damaged)
            assert shard.name in refused("inspect", shard, "--longest")
            if suffix == "parquet":
                assert shard.name in refused("inspect", out, "--longest")
        shard.write_bytes(data)
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))
    assert "has format 99, but this TokenMill reads" in refused("inspect", out)
    (out / "manifest.json").write_text("{")
    assert "is not a manifest" in refused("inspect", out)


def test_ids_of_another_tokenizer_are_shown_and_cannot_be_searched(make, look, refused, tmp_path):
    out = make()
    other = tmp_path / "other.txt"
    other.write_text("[UNK]\nthe\n")
    row = look(out, "--rows", 1, "--tokenizer", other)[0]
    assert {token["kind"] for token in row["tokens"]} >= {"missing"}
    line = refused("inspect", out, "--tokenizer", other, "--grep", "the")
    assert "tokens-00000-of" in line
    assert "belongs to no token" in line


def test_few_rows_are_held_whatever_is_read(make, monkeypatch):
    from pipeline.reporting import selecting

    out = make()
    table = pq.read_table(sorted(out.glob("tokens-*.parquet"))[0])
    pq.write_table(pa.concat_tables([table] * 500), out / "many.parquet", row_group_size=500)
    made = []
    original = inspect.row_of
    monkeypatch.setattr(inspect, "row_of", lambda *args: (made.append(1), original(*args))[1])
    tokenizer = inspect.find_tokenizer(str(out / "x"))
    (shard,) = selecting.find_shards(str(out / "many.parquet"))
    assert len(list(selecting.select([shard], tokenizer, selecting.Selection(3, order="longest")))) == 3
    assert len(made) < 20
