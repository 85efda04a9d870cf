# SPDX-License-Identifier: Apache-2.0
"""Long documents as rows of windows: as HF makes them, in every format, shuffled, in books that `verify` proves."""

import json

import pytest

from tests.plain_job import PlainJob
from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.proving.verify import verify

TEXTS = ["the mill grinds text into tokens, 玫瑰花 un affable " * (i * i % 7) + "a mill" * (i % 2) for i in range(20)]
FORMATS = ["parquet", "arrow", "tfrecord", "mds", "megatron", "memmap"]
SUFFIXES = {".parquet": True, ".arrow": True, ".tfrecord": True, ".mds": True, ".bin": False, ".ids.bin": False}


@pytest.fixture
def make(tmp_path, tiny_vocab_file):
    return lambda name="out", **sections: PlainJob(tmp_path, TEXTS, tiny_vocab_file, name, **sections)


def truncation(max_length, stride):
    return {"max_length": max_length, "stride": stride, "overflow": "rows"}


def problems(job):
    return [*verify(str(job.output)).problems, *verify_deep(str(job.output), 1).problems]


def hf_windows(job, special):
    """Returns (document, window, ids) of all texts, as HF's tokenizers overflow."""
    hf = pytest.importorskip("tokenizers")
    tokenizer = hf.Tokenizer.from_str(job.tokenizer.to_str())
    tokenizer.no_padding()
    found = []
    for i, text in enumerate(TEXTS):
        encoding = tokenizer.encode(text, add_special_tokens=special)
        found += [(i, n, part.ids) for n, part in enumerate((encoding, *encoding.overflowing))]
    return found


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("max_length, stride, padding", [(8, 3, None), (5, 0, 6), (16, 13, None), (512, 9, None)])
def test_windows_are_those_of_hf_in_every_format(make, special, max_length, stride, padding):
    tokenizer = {"truncation": truncation(max_length, stride), "add_special_tokens": special}
    if padding:
        tokenizer["padding"] = {"length": padding, "side": "left"}
    job = make(tokenizer=tokenizer, output={"format": FORMATS}).run()
    expected = hf_windows(job, special)
    before = 0
    shards = []  # rows of shards, documents counted anew in each
    for record in job.json("manifest.json")["documents"]:
        shards += [(i - before, n, ids) for i, n, ids in expected if before <= i < before + record["rows"]]
        before += record["rows"]
    assert before == len(TEXTS)
    for suffix, has_columns in SUFFIXES.items():
        rows = job.rows(suffix)
        filling = [0] * (padding or 0) if has_columns else []
        assert [row["input_ids"] for row in rows] == [
            [*filling[: max(0, len(filling) - len(ids))], *ids] for _, _, ids in expected
        ]
        assert [row["n_tokens"] for row in rows] == [len(ids) for _, _, ids in expected]
        if has_columns:
            assert [(row["document"], row["window"]) for row in rows] == [(i, n) for i, n, _ in shards]
            assert [row["doc_id"] for row in rows] == [f"d{i}" for i, _, _ in expected]
    unknown = job.tokenizer.unk_token_id
    assert [row["n_oov"] for row in job.rows()] == [ids.count(unknown) for _, _, ids in expected]
    assert problems(job) == []


def test_windows_keep_the_sources_of_the_spans_in_them_and_languages(make):
    texts = [f"the mill http://a.b/{i} grinds text into http://c.d/{i} tokens " * (i % 3) for i in range(6)]
    spans = [{"token": "<url>", "find": "url", "keep_source": True}]
    job = PlainJob(
        make().output.parent,
        texts + TEXTS,
        make().output.parent / "vocab.txt",
        "spans",
        tokenizer={"truncation": truncation(7, 2)},
        output={"format": ["parquet", "arrow"], "append": "[SEP]"},
        spans=spans,
        languages={},
    ).run()
    url = job.tokenizer.token_to_id("<url>")
    rows = job.rows()
    assert all(row["input_ids"].count(url) == len(row["span_sources"]) for row in rows)
    assert {"lang", "lang_confidence", "lang_mixed"} <= rows[0].keys()
    assert rows == job.rows(".arrow")
    for i, text in enumerate(texts):
        found = [s for row in rows if row["doc_id"] == f"d{i}" for s in row["span_sources"]]
        assert list(dict.fromkeys(found)) == list(dict.fromkeys(w for w in text.split() if w.startswith("http")))
    assert problems(job) == []


@pytest.mark.parametrize("shuffle", [None, {"shards": 1}])
def test_verify_finds_a_window_that_is_another(make, shuffle):
    job = make(tokenizer={"truncation": truncation(8, 3)}, output={"shuffle": shuffle, "format": "memmap"}).run()
    for path in job.output.glob("tokens-*.ids.bin"):
        data = bytearray(path.read_bytes())
        if len(data) < 40:
            continue
        data[18] ^= 3  # in the part of the first window that the second one repeats, or in it
        path.write_bytes(bytes(data))
        found = verify(str(job.output)).problems
        assert any("sha256" in problem for problem in found)
        forge(job, path)
        found = verify(str(job.output)).problems
        assert found
        assert not any("sha256" in problem for problem in found)
        return
    pytest.fail("no shard is long enough")


def forge(job, path):
    """Writes the size and the checksum of a file, as it is now, wherever they are recorded."""
    import hashlib

    name, sha256 = path.name, hashlib.sha256(path.read_bytes()).hexdigest()
    for book in (job.output / "manifest.json", *(job.output / "_ledger").glob("*.json")):
        record = json.loads(book.read_text())
        stack = [record]
        while stack:
            node = stack.pop()
            if isinstance(node, dict) and node.get("file") == name:
                node["sha256"] = sha256
            stack += node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        book.write_text(json.dumps(record))
    assert manifest.read(str(job.output))
