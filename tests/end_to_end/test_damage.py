# SPDX-License-Identifier: Apache-2.0
"""A file that is damaged, or loses too much, fails the job or is named in a warning: no source vanishes silently."""

import bz2
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

LINES = [b'{"id": "%d", "text": "the mill grinds %d"}\n' % (i, i * i) for i in range(2000)]
DATA = b"".join(LINES)


def half(data):
    return data[: len(data) // 2]


def zeros_inside(data):
    at = len(data) // 2
    return data[:at] + bytes(40) + data[at + 40 :]


def wrong_checksum(data):
    return data[:-8] + bytes(4) + data[-4:]


def parquet(damage):
    sink = pa.BufferOutputStream()
    table = pa.table({"text": [f"the mill {i}" for i in range(1500)]})
    pq.write_table(table, sink, row_group_size=500, use_dictionary=False, compression="zstd")
    data = bytearray(sink.getvalue().to_pybytes())
    if damage:
        column = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.row_group(1).column(0)
        data[column.data_page_offset : column.data_page_offset + 40] = bytes(40)
    return bytes(data)


DAMAGED = {
    "cut.jsonl.gz": (half(gzip.compress(DATA, mtime=0)), "truncated_stream 1"),
    "cut.jsonl.zst": (half(zstandard.compress(DATA)), "truncated_stream 1"),
    "cut.jsonl.bz2": (half(bz2.compress(DATA)), "truncated_stream 1"),
    "inside.jsonl.gz": (zeros_inside(gzip.compress(DATA, mtime=0)), "corrupt_stream 1"),
    "checksum.jsonl.gz": (wrong_checksum(gzip.compress(DATA, mtime=0)), "corrupt_stream 1"),
    "end.jsonl.gz": (gzip.compress(DATA, mtime=0)[:-3], "truncated_stream 1"),
    "group.parquet": (parquet(damage=True), "corrupt_stream 500"),
    "fields.jsonl": (b"".join(LINES).replace(b'"text"', b'"body"'), "missing_field 2,000"),
    "long.jsonl": (DATA + b'{"text": "' + b"mill " * 1_000_000 + b'"}\n', "too_large 1"),
    "text.jsonl": ("\n".join("no JSON at all" for _ in range(200)).encode(), "not_json 200"),
}


def write_corpus(folder, *names):
    """Writes two good files, an empty one, and the damaged ones that are named."""
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(DATA)
    (folder / "z.jsonl").write_bytes(DATA + b"not json\n" * 100)  # 4.8 % of its records
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "empty.jsonl.gz").write_bytes(b"")
    for name in names:
        (folder / name).write_bytes(DAMAGED[name][0])
    return str(folder / "*")


def tokenize_sections(paths, vocab, **given):
    return {
        "input": {"paths": [paths], "max_document_bytes": 1 << 20, "split_bytes": 100_000, **given},
        "tokenizer": {"file": str(vocab)},
    }


@pytest.mark.parametrize("name", DAMAGED)
def test_one_damaged_file_fails_the_job_or_is_warned_of(make_job, tiny_vocab_file, tmp_path, capsys, name):
    paths = write_corpus(tmp_path / "in", name)
    job = make_job("job", **tokenize_sections(paths, tiny_vocab_file))
    assert job.run("tokenize", "--workers", "2", "--quiet") == 1
    said = capsys.readouterr().err
    assert "failed: 1 file is damaged or lost more than 5 % of the records or bytes" in said
    assert f"{name!r} " in said
    assert DAMAGED[name][1] in said
    assert "input.on_damage: warn, and go on with --resume" in said
    assert not any(f"{good!r} " in said for good in ("a.jsonl", "z.jsonl", "empty.jsonl", "empty.jsonl.gz"))
    assert not (job.output / "manifest.json").exists()

    entries = {path: path.stat().st_mtime_ns for path in job.output.glob("_ledger/*.json")}
    settings = ("--set", "input.on_damage=warn")
    assert job.run("tokenize", "--workers", "2", "--quiet", "--resume", *settings) == 0
    said = capsys.readouterr().err
    assert f"tokenmill: warning: input file {name!r} " in said
    assert DAMAGED[name][1] in said
    assert all(path.stat().st_mtime_ns == at for path, at in entries.items() if path.name != "job.json")
    for command in ("verify", "plan", "report"):
        assert job.run(command, *settings) == 0, command
    assert job.run("verify", "--deep", *settings) == 0


@pytest.mark.parametrize("command", ["count", "train", "run"])
def test_counting_and_training_fail_or_warn_alike(make_job, tmp_path, capsys, command):
    paths = write_corpus(tmp_path / "in", "cut.jsonl.gz", "fields.jsonl")
    train = {"tokenizer": {"train": {"vocab_size": 100, "min_frequency": 1}}} if command != "count" else {}
    job = make_job("job", input={"paths": [paths], "split_bytes": 20_000}, **train)
    assert job.run(command, "--workers", "2", "--quiet") == 1
    said = capsys.readouterr().err
    assert "failed: 2 files are damaged or lost more than" in said
    assert "'cut.jsonl.gz' is damaged, and what cannot be read of it is lost" in said
    n_bytes = len(DAMAGED["fields.jsonl"][0])
    lost = f"'fields.jsonl' lost 2,000 of 2,000 records and {n_bytes:,} of {n_bytes:,} bytes (missing_field 2,000)"
    assert lost in said
    assert job.run(command, "--workers", "2", "--resume", "--quiet", "--set", "input.on_damage=warn") == 0
    assert f"warning: input file {lost}" in capsys.readouterr().err
    assert job.run("verify", "--set", "input.on_damage=warn") == 0


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
