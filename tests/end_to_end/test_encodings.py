# SPDX-License-Identifier: Apache-2.0
"""A corpus in other encodings than UTF-8: tokenized, proven, planned, traced and replayed."""

import gzip
import json

import pytest

from tokenmill.pipeline import cli

LONG = "the mill " * 40


def lines(*texts):
    return "".join(f"{text}\n" for text in texts)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(lines("the mill", LONG, "mill").encode("utf-16"))
    (folder / "b.txt.gz").write_bytes(gzip.compress(lines("mill", LONG, "the").encode("utf-16"), mtime=0))
    (folder / "c.jsonl").write_bytes(lines(json.dumps({"id": "c", "text": "a mill"}), "no json").encode("utf-32"))
    (folder / "d.txt").write_bytes(
        b"\xef\xbb\xbf" + lines("a mill", LONG).encode() + b"\xef\xbb\xbfthe mill\n\xffmill\n"
    )
    return folder


@pytest.mark.parametrize("output", [{}, {"shuffle": {"shards": 2}}])
def test_a_job_reads_what_byte_order_marks_say(make_job, tiny_vocab_file, tmp_path, folder, capsys, output):
    job = make_job(
        "job",
        input={
            "paths": [f"{folder}/*"],
            "max_document_bytes": 100,
            "encoding": "auto",
            "split_bytes": 150,
            "on_damage": "warn",
        },
        tokenizer={"file": str(tiny_vocab_file)},
        output={"path": str(tmp_path / "job" / "out"), **output},
    )
    assert job.run("plan") == 0
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.manifest()["totals"]["rejected"] == {"invalid_utf8": 1, "not_json": 1, "too_large": 3}
    ids = ["a.txt:3", "a.txt:373", "b.txt.gz:3", "b.txt.gz:369", "c", "d.txt:3", "d.txt:371"]
    assert sorted(row["doc_id"] for row in job.rows()) == ids
    assert job.run("verify", "--deep", "--share", "1") == 0
    assert job.run("replay", "--set", "input.max_document_bytes=1000") == 0
    assert "5 rejected records read again: 3 documents in replay/, 2 rejected again" in capsys.readouterr().out
    assert job.run("verify") == 0
    texts = set()
    for row in range(7):
        capsys.readouterr()
        assert cli.main(["trace", "--json", str(job.output), str(row), "0"]) == 0
        (document,) = json.loads(capsys.readouterr().out)["documents"]
        texts.add((document["doc_id"], document["text"]))
        assert ("source_bytes" in document["at"]) == document["doc_id"].startswith("d.txt")
    expected = ["the mill", "mill", "mill", "the", "a mill", "a mill", "the mill"]
    assert texts == set(zip(ids, expected, strict=True))


def test_a_file_in_another_encoding_is_refused_before_any_work(make_job, tiny_vocab_file, folder, capsys):
    job = make_job("job", input={"paths": [f"{folder}/*"]}, tokenizer={"file": str(tiny_vocab_file)})
    assert job.run("tokenize", "--workers", "1") == 2
    error = capsys.readouterr().err
    assert "input.paths: 3 problems" in error
    for name, found in (("a.txt", "utf-16-le"), ("b.txt.gz", "utf-16-le"), ("c.jsonl", "utf-32-le")):
        advice = f"set input.encoding to '{found}', or to 'auto' where files differ"
        assert f"{name}' looks like {found}, but would be read as utf-8; {advice}" in error
    assert not job.output.exists()
