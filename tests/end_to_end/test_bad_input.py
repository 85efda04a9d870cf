# SPDX-License-Identifier: Apache-2.0
"""Input as it is in the world: the job goes on, what cannot be used is in `rejected/`, and the books balance."""

import gzip
import json

import pyarrow.parquet as pq
import pytest

# (the record, the reason it is rejected for or None where it is tokenized)
JSON_LINES = [
    (b'{"id": "good", "text": "the mill"}', None),
    (b"not json", "not_json"),
    (b'{"id": "x", "text": "the mill"', "not_json"),
    (b'["text"]', "not_object"),
    (b'{"id": "x"}', "missing_field"),
    (b'{"id": "x", "text": null}', "null_text"),
    (b'{"id": "x", "text": 17}', "not_string"),
    (b'{"id": "x", "text": ["the"]}', "not_string"),
    (b'{"id": true, "text": "the"}', "bad_id"),
    (b'{"id": 7, "text": "the"}', None),
    (b'{"id": "x", "text": "\xff\xfe"}', "invalid_utf8"),
    (b'{"id": "x", "text": "\\ud800"}', "lone_surrogate"),
    (b'{"id": "nul", "text": "a\\u0000 mill"}', None),
    (b'{"id": "x", "text": "a' + b" mill" * 40_000 + b'"}', "too_large"),
    (b'{"id": "empty", "text": ""}', None),
    (b'{"id": "\\ud83c\\udf89", "text": "\\u73ab"}', None),
    ("{'id': 'x'}".encode("utf-16"), "not_json"),
    (b"[" * 5000, "too_deep"),
    (b'{"text": "no id"}\r', None),
    (b'{"id": "unfinished", "text": "the mill"}', None),
]
EXPECTED_IDS = ["good", "7", "nul", "empty", "🎉", None, "unfinished"]


def tokenizer(tiny_vocab_file):
    return {"file": str(tiny_vocab_file), "oov": "contain"}


@pytest.mark.parametrize("split_bytes", [9_000, 1 << 25])
def test_hostile_json_lines(make_job, tiny_vocab_file, tmp_path, split_bytes):
    data = b"\n".join(line for line, _ in JSON_LINES)  # the last one without a line end
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + data)
    job = make_job(
        "job",
        input={"paths": [str(path)], "split_bytes": split_bytes, "max_document_bytes": 100_000, "on_damage": "warn"},
        tokenizer=tokenizer(tiny_vocab_file),
    )
    assert job.run("tokenize", "--workers", "2") == 0
    assert job.run("verify") == 0

    # What was used, and where it came from.
    rows = job.rows()
    offsets, position = [], 3
    for line, _ in JSON_LINES:
        offsets.append(position)
        position += len(line) + 1
    ids = [doc_id or f"hostile.jsonl:{offsets[-2]}" for doc_id in EXPECTED_IDS]
    assert [row["doc_id"] for row in rows] == ids
    assert rows[0]["input_ids"] == [5, 7]
    assert rows[2]["input_ids"] == [6, 7]  # NUL is dropped, as BERT does

    # What was not, why, and exactly where: the sample is the record.
    rejects = job.rejects()
    expected = [(offsets[i], reason) for i, (_, reason) in enumerate(JSON_LINES) if reason]
    found = [(row["offset"], row["reason"]) for row in rejects]
    # UTF-16 has line ends of its own, which cut it into more records.
    utf16 = next(i for i, (line, _) in enumerate(JSON_LINES) if line.startswith(b"\xff\xfe"))
    assert [pair for pair in found if pair[0] != offsets[utf16]] == [
        pair for pair in expected if pair[0] != offsets[utf16]
    ]
    whole = path.read_bytes()
    for row in rejects:
        assert row["source"] == "hostile.jsonl"
        record = whole[row["offset"] : row["offset"] + row["n_bytes"]]
        assert row["sample"] == record.removesuffix(b"\n")[:1024]
        assert row["detail"]

    totals = job.manifest()["totals"]
    assert totals["n_records"] == len(rows) + len(rejects) == totals["n_documents"] + sum(totals["rejected"].values())
    assert totals["n_bytes"] == path.stat().st_size
    assert totals["n_skipped_bytes"] == 3
    assert totals["n_tokens"] == sum(row["n_tokens"] for row in rows)


def test_the_same_rejects_when_words_are_counted(make_job, tiny_vocab_file, tmp_path):
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(b"\n".join(line for line, _ in JSON_LINES))
    sections = {"input": {"paths": [str(path)], "max_document_bytes": 100_000, "on_damage": "warn"}}
    tokenized = make_job("tokenized", tokenizer=tokenizer(tiny_vocab_file), **sections)
    counted = make_job("counted", **sections)
    assert tokenized.run("tokenize", "--workers", "1") == 0
    assert counted.run("count", "--workers", "1") == 0
    totals = json.loads((counted.output / "counts/counts.json").read_text())["totals"]
    assert totals["rejected"] == tokenized.manifest()["totals"]["rejected"]
    for name in ("n_records", "n_documents", "n_bytes", "n_rejected_bytes", "n_words", "n_chars"):
        assert totals[name] == tokenized.manifest()["totals"][name], name


@pytest.mark.parametrize("limit", ["max_rejected=5", "max_rejected_fraction=0.4"])
@pytest.mark.parametrize("command", ["tokenize", "count"])
def test_too_many_rejects_stop_the_job_and_a_higher_limit_resumes_it(
    make_job, tiny_vocab_file, tmp_path, capsys, limit, command
):
    lines = [b'{"text": "the mill"}\n', b"not json\n"] * 6
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "the mill"}\n')
    sections = {"input": {"paths": [str(tmp_path / "?.jsonl")], "split_bytes": 40, "on_damage": "warn"}}
    if command == "tokenize":
        sections["tokenizer"] = tokenizer(tiny_vocab_file)
    job = make_job("job", **sections)
    assert job.run(command, "--workers", "1", "--set", f"input.{limit}") == 1
    error = capsys.readouterr().err
    assert "records read were rejected, more than input.max_rejected" in error
    assert "raise the limit and go on with --resume" in error
    assert not (job.output / "manifest.json").exists()
    name = limit.partition("=")[0]
    assert (
        job.run(command, "--workers", "1", "--resume", "--set", f"input.{name}={6 if name == 'max_rejected' else 0.6}")
        == 0
    )
    unlimited = make_job("unlimited", **sections)
    assert unlimited.run(command, "--workers", "1") == 0
    assert {n: d for n, d in job.files().items() if n != "manifest.json"} == {
        n: d for n, d in unlimited.files().items() if n != "manifest.json"
    }
    assert job.manifest() == unlimited.manifest()


def test_empty_files_blank_lines_and_no_text_at_all(make_job, tiny_vocab_file, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"")
    (folder / "b.jsonl").write_bytes(b"\n\r\n   \n")
    (folder / "c.txt").write_bytes(b"\xff\xfe broken\nthe mill\n")
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(b""))
    job = make_job(
        "job", input={"paths": [str(folder / "*")], "on_damage": "warn"}, tokenizer=tokenizer(tiny_vocab_file)
    )
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.run("verify") == 0
    assert [row["input_ids"] for row in job.rows()] == [[5, 7]]
    assert [row["reason"] for row in job.rejects()] == ["invalid_utf8"]


def test_a_text_that_the_tokenizer_makes_too_long_is_rejected(make_job, tmp_path):
    wide = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 9}
    vocab = {"[UNK]": 0, "mill": 1}
    parts = {
        "normalizer": {"type": "Sequence", "normalizers": [wide, wide]},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    texts = ["mill", "a" * 500, "mill mill", "a " * 3 + "mill"]  # the last one may grow by 1,024 bytes
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    job = make_job(
        "job",
        input={"paths": [str(tmp_path / "a.jsonl")], "on_damage": "warn"},
        tokenizer={"file": str(tmp_path / "tokenizer.json")},
    )
    assert job.run("tokenize", "--workers", "1") == 0
    assert [row["input_ids"] for row in job.rows()] == [[1], [1, 1], [0, 0, 0, 1]]
    (reject,) = (row for path in job.output.glob("rejected/*") for row in pq.read_table(path).to_pylist())
    assert reject["reason"] == "out_of_memory"
    assert reject["offset"] == len(json.dumps({"text": "mill"})) + 1
    assert "a step of the tokenizer makes it too long" in reject["detail"]
    assert job.run("verify", "--deep") == 0
