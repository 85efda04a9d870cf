# SPDX-License-Identifier: Apache-2.0
"""`tokenmill trace`: from tokens of every format back to documents and their bytes, packed, padded and shuffled."""

import bz2
import gzip
import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import cli
from tokenmill.pipeline.looking import inspect
from tokenmill.tokenizer import Tokenizer

FORMATS = ["parquet", "arrow", "mds", "megatron", "memmap"]
PACKED = {"length": 16, "boundaries": ["segment_ids", "positions"]}
LAYOUTS = {
    "documents": {"format": [*FORMATS, "tfrecord"]},
    "shuffled": {"format": [*FORMATS, "tfrecord"], "shuffle": {"shards": 3}},
    "concatenated": {"format": FORMATS, "packing": {**PACKED, "separator": "[SEP]"}},
    "without separators": {"format": FORMATS, "packing": {**PACKED, "pad_token": "[PAD]"}},
    "fitted": {"format": FORMATS, "packing": {**PACKED, "strategy": "best_fit", "separator": "[SEP]"}},
    "not split": {"format": FORMATS, "packing": {**PACKED, "strategy": "no_split", "incomplete": "short"}},
    "shuffled and fitted": {
        "format": FORMATS,
        "shuffle": {"shards": 2},
        "packing": {**PACKED, "strategy": "best_fit", "separator": "[SEP]"},
    },
}


ENDS = ["[MASK]", "[UNK]"]


@pytest.fixture
def trace(capsys):
    """Runs the command and returns what it prints as JSON."""

    def run(*words):
        capsys.readouterr()
        assert cli.main(["trace", "--json", *map(str, words)]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def make_traced(make_job, corpus, tiny_vocab_file, tmp_path):
    def make(output, name="job", **sections):
        return make_job(
            name,
            input={"paths": [str(corpus / "*")], "split_bytes": 6000},
            tokenizer={"file": str(tiny_vocab_file), "max_unknown_fraction": 1.0, **sections.pop("tokenizer", {})},
            output={"path": str(tmp_path / name / "out"), **output},
            **sections,
        )

    return make


def text_at(source: dict) -> str:
    """Reads a document's text from its file, with nothing of ours."""
    path, at, n = source["path"], source["offset"], source["n_bytes"]
    if source["format"] == "parquet":
        return pq.read_table(path)["text"][at].as_py()
    opened = {".gz": gzip.open, ".bz2": bz2.open}.get(Path(path).suffix, open)
    with opened(path, "rb") as file:
        record = file.read()[at : at + n].decode()
    return record.rstrip("\n") if source["format"] == "text" else json.loads(record)["text"]


def rows_of(shard: Path) -> list[inspect.Row]:
    return list(inspect.rows(str(shard), 0, 10**6))


def check(trace, job, rng, tokenizer, n_ends=0):
    """Traces random tokens of all formats; returns how many of them were of a text."""
    n_found = 0
    for suffix in sorted({path.name.partition(".")[2] for path in job.output.glob("tokens-*")}):
        if suffix in ("idx", "offsets.npy"):
            continue
        shards = sorted(job.output.glob(f"tokens-*.{suffix}"))
        for _ in range(6):
            shard = rng.choice(shards)
            rows = rows_of(shard)
            row = rng.choice([each for each in rows if each.ids] or rows[:1])
            if not row.ids:
                continue
            token = rng.randrange(len(row.ids))
            traced = trace(shard, row.number, token)
            assert traced["token_id"] == row.ids[token]
            if not traced["documents"]:
                assert tokenizer.id_to_token(row.ids[token]) in ("[PAD]", *(["[CLS]", "[SEP]"] if n_ends else []))
                continue
            (document,) = traced["documents"]
            text = text_at(document["source"])
            assert text == document["text"]
            at = document["at"]
            if at["token"] is None:
                assert tokenizer.id_to_token(row.ids[token]) == "[SEP]"
                continue
            if at["characters"] is None:
                assert tokenizer.id_to_token(row.ids[token]) in ENDS
                continue
            encoding = tokenizer.encode(text, add_special_tokens=False)
            assert len(encoding.ids) + n_ends == document["n_tokens"]
            assert encoding.ids[at["token"] - n_ends // 2] == row.ids[token]
            assert tuple(at["characters"]) == encoding.offsets[at["token"] - n_ends // 2]
            start, stop = at["bytes"]
            assert text.encode()[start:stop].decode() == text[slice(*at["characters"])]
            if "source_bytes" in at:
                data = Path(document["source"]["path"]).read_bytes()
                assert data[slice(*at["source_bytes"])] == text.encode()[start:stop]
            n_found += 1
    return n_found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_token_leads_back_to_its_bytes(layout, make_traced, trace, tiny_vocab_file):
    job = make_traced(LAYOUTS[layout])
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.run("verify", "--deep") == 0
    tokenizer = Tokenizer.from_file(str(tiny_vocab_file))
    assert check(trace, job, random.Random(layout), tokenizer) > 10


@pytest.mark.parametrize("shuffle", [None, {"shards": 2}])
def test_tokens_of_windows_with_ends_lead_back_too(shuffle, make_traced, trace, tiny_vocab_file):
    truncation = {"max_length": 12, "stride": 4, "overflow": "rows"}
    shape = {"truncation": truncation, "padding": {"length": 12, "side": "left"}, "add_special_tokens": True}
    output = {"format": [*FORMATS, "tfrecord"], "shuffle": shuffle, "prepend": ENDS[0], "append": ENDS[1]}
    job = make_traced(output, tokenizer=shape)
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.run("verify", "--deep") == 0
    tokenizer = Tokenizer.from_file(str(tiny_vocab_file))
    assert check(trace, job, random.Random(2), tokenizer, n_ends=2) > 10


def test_steps_and_spans_are_seen_through(make_traced, trace, tmp_path):
    (tmp_path / "s.jsonl").write_text(json.dumps({"text": "ＴＨＥ mill https://a.b/c grinds"}) + "\n")
    job = make_traced({}, normalize=["nfkc"], spans=[{"token": "[URL]", "find": "url"}])
    assert job.run("tokenize", "--workers", "1", "--set", f'input.paths=["{tmp_path}/s.jsonl"]') == 0
    shard = job.output / "tokens-00000-of-00001.parquet"
    text = "ＴＨＥ mill https://a.b/c grinds"
    found = [trace(shard, 0, token)["documents"][0]["at"]["characters"] for token in range(4)]
    assert [text[start:stop] for start, stop in found] == ["ＴＨＥ", "mill", "https://a.b/c", "grinds"]


def test_rows_are_found_by_their_number_in_all_shards(make_traced, trace, capsys):
    job = make_traced({"format": ["parquet", "megatron"]})
    assert job.run("tokenize", "--workers", "1") == 0
    n_before = 0
    for shard in sorted(job.output.glob("tokens-*.parquet")):
        n_rows = pq.read_metadata(shard).num_rows
        traced = trace(job.output, n_before + n_rows - 1)
        assert (traced["shard"], traced["row"]) == (shard.name, n_rows - 1)
        assert traced == trace(job.output, shard.name, n_rows - 1) == trace(shard, n_rows - 1)
        n_before += n_rows
    assert cli.main(["trace", str(job.output), str(n_before)]) == 2
    assert f"there is no row {n_before}" in capsys.readouterr().err
    assert cli.main(["trace", str(job.output), "tokens-00000-of-00010.parquet", "0", "100000"]) == 2
    assert "has no token 100000" in capsys.readouterr().err
    assert cli.main(["trace", str(job.output), "tokens-00000-of-00099.parquet", "0"]) == 2
    assert "lists no shard" in capsys.readouterr().err
    assert cli.main(["trace", str(job.output), "here"]) == 2
    assert "'here' is not a number" in capsys.readouterr().err


def test_a_source_that_is_gone_or_another_is_said_to_be(make_traced, trace, corpus, capsys):
    job = make_traced({})
    assert job.run("tokenize", "--workers", "1") == 0
    (corpus / "a.jsonl").unlink()
    (document,) = trace(job.output, 1, 0)["documents"]
    assert "is not there any more" in document["why_no_text"]
    assert document["doc_id"] == "doc-1"
    assert document["source"]["path"] == str(corpus / "a.jsonl")
    assert cli.main(["trace", str(job.output), "1", "0"]) == 0
    printed = capsys.readouterr().out
    assert "not read again" in printed
    assert f"\nfile      {corpus / 'a.jsonl'}, " in printed
    (corpus / "a.jsonl").write_text("{}\n")
    assert "has changed since" in trace(job.output, 1, 0)["documents"][0]["why_no_text"]
