# SPDX-License-Identifier: Apache-2.0
"""Long documents as rows of windows: as HF makes them, in every format, shuffled, in books that `verify` proves."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plain_job import PlainJob
from tokenmill.pipeline import schemas
from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.output import arranging
from tokenmill.pipeline.output.arranging import Arranger, windows_form
from tokenmill.pipeline.output.placement import Marks
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.proving.verify import verify
from tokenmill.tokenizer import Layout, Padding, Truncation

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


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=8),
    st.integers(4, 9),
    st.integers(0, 2),
    st.booleans(),
    st.integers(1, 40),
    st.integers(0, 8),
)
def test_windows_are_as_plain_python_makes_them(texts, max_length, stride, is_padded, batch_ids, cut):
    marks = Marks(before=(50,), prepend=(51,), append=(1,))
    padding = Padding(12, pad_id=77) if is_padded else None
    layout = Layout(np.array([50], np.int32), np.array([], np.int32), Truncation(max_length, stride=stride), padding)
    room, expected = max_length - 1, []
    for number, text in enumerate([[51, *text, 1] for text in texts]):
        start = window = 0
        while True:
            part = text[start : start + room]
            n_oov = part.count(1) - (start + room >= len(text))
            row = [50, *part]
            expected.append(
                {
                    "doc_id": f"d{number}", "input_ids": row + [77] * (12 - len(row) if is_padded else 0),
                    "n_tokens": len(row), "n_oov": n_oov, "document": number, "window": window,
                }
            )  # fmt: skip
            if start + room >= len(text):
                break
            start, window = start + room - stride, window + 1
    rows = pa.record_batch(
        [
            pa.array([f"d{i}" for i in range(len(texts))], pa.string()),
            pa.array([[51, *text, 1] for text in texts], schemas.TOKENS.field("input_ids").type),
            pa.array([len(text) + 2 for text in texts], pa.int32()),
            pa.array([text.count(1) for text in texts], pa.int32()),
        ],
        schema=schemas.TOKENS,
    )
    form = dataclasses.replace(windows_form(layout, marks), unk_id=1)
    windower = Arranger(form, schemas.TOKENS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arranging, "BATCH_IDS", batch_ids)
        made = [
            row
            for part in (rows.slice(0, cut), rows.slice(cut))
            for each in windower.add(part)
            for row in each.to_pylist()
        ]
    assert made == expected
    n_placed, placed = windower.take_placed()
    assert n_placed == len(texts)
    assert np.concatenate([[], *(each.documents for each in placed)]).tolist() == [row["document"] for row in expected]
    assert windower.counts["n_windows"] == len(expected)
    assert windower.counts["n_repeated"] == stride * (len(expected) - len(texts))
    n_ids = sum(row["n_tokens"] for row in expected)
    assert windower.counts["n_tokens"] + windower.counts["n_repeated"] + windower.counts["n_special"] == n_ids


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


def test_a_stride_that_special_tokens_leave_no_room_for_is_found_before_work(make):
    make(tokenizer={"truncation": truncation(8, 6)})
    with pytest.raises(ValueError, match="must be more than stride 6"):
        make(tokenizer={"truncation": truncation(8, 6), "add_special_tokens": True})
