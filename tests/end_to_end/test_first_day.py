# SPDX-License-Identifier: Apache-2.0
"""A messy crawl, as somebody finds it on their first day: nothing of it is lost without a word.

The day goes as it does for a person: the first run is refused with a line for each thing that is wrong, each is
corrected as its message says, and the last run finishes. At every step the exit code tells a scheduler what happened.
"""

import gzip
import json
import os
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import cli

WORDS = "the mill grinds text into tokens and shards of tokens feed the mill that trains".split()


def _sentence(i: int) -> str:
    return " ".join(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(8 + i % 20))


def _records(folder: str, n: int) -> list[dict[str, object]]:
    return [
        {
            "url": f"https://{folder}.example/{i}",
            "text": f"{_sentence(i)} {folder}",
            "meta": {"lang": folder, "score": i},
        }
        for i in range(n)
    ]


def _json_lines(records: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def _cut_short(data: bytes) -> bytes:
    whole = gzip.compress(data, mtime=0)
    return whole[: len(whole) // 2]


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """Two crawls with equal file names, other encodings, a truncated download."""
    root = tmp_path / "crawl"
    for folder in ("news", "wiki"):
        (root / folder).mkdir(parents=True)
        (root / folder / "part-0.jsonl.gz").write_bytes(gzip.compress(_json_lines(_records(folder, 300)), mtime=0))
        rows = [{"text": f"{_sentence(i)} in {folder}", "number": i} for i in range(200)]
        pq.write_table(pa.Table.from_pylist(rows), root / folder / "part-1.parquet", row_group_size=50)
    (root / "news" / "part-2.jsonl.gz").write_bytes(_cut_short(_json_lines(_records("cut", 4000))))
    (root / "wiki" / "utf16.txt").write_text("\n".join(map(_sentence, range(50))), encoding="utf-16")
    latin = "\n".join(f"{_sentence(i)} café déjà vu" for i in range(50))
    (root / "wiki" / "latin.txt").write_text(latin, encoding="latin-1")
    return root


@pytest.fixture
def bracketed(tmp_path: Path) -> Path:
    """A vocabulary with entries that look like markup."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[/INST]", "[url]", "[bold]", *WORDS]
    tokens = dict.fromkeys([*tokens, *letters, *(f"##{letter}" for letter in letters)])
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return path


def test_a_messy_crawl_on_the_first_day(crawl, bracketed, make_job, monkeypatch, capfd):
    private = crawl / "private"
    private.mkdir()
    list_folder = os.scandir

    def refuse(path="."):
        if str(path) == str(private):
            raise PermissionError(13, "Permission denied", str(path))
        return list_folder(path)

    sections = {"input": {"paths": [str(crawl / "**")]}, "tokenizer": {"file": str(bracketed), "oov": "contain"}}
    job = make_job("job", **sections)

    # As a new user writes it: refused before any work, with a line for the folder and one for the encoding.
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        assert job.run("run", "--quiet") == 2
    refused = capfd.readouterr().err
    assert f"{str(private)!r} cannot be listed: Permission denied" in refused
    assert "utf16.txt' looks like utf-16-le, but would be read as utf-8; set input.encoding to" in refused
    assert not job.output.exists()

    # Both corrected: the files that lost records are named, with numbers and reasons, although it is quiet.
    private.rmdir()
    auto = "--set=input.encoding=auto"
    assert job.run("run", "--quiet", auto) == 1
    failed = capfd.readouterr().err
    cut = zlib.decompressobj(31).decompress((crawl / "news" / "part-2.jsonl.gz").read_bytes())
    n_whole = cut.count(b"\n")
    damage = "'news/part-2.jsonl.gz' is damaged, and what cannot be read of it is lost; "
    damage += f"of the rest it lost 1 of {n_whole + 1:,} records"
    assert damage in failed
    assert "'wiki/latin.txt' lost 50 of 50 records" in failed
    assert "input.on_damage: warn" in failed
    assert not (job.output / "manifest.json").exists()

    # The loss accepted: only what is missing is done, and a warning for each file stays.
    assert job.run("run", "--quiet", auto, "--set=input.on_damage=warn", "--resume") == 0
    warned = capfd.readouterr().err
    assert warned.count("warning: input file") == 2
    assert "'news/part-2.jsonl.gz'" in warned
    assert "'wiki/latin.txt'" in warned
    assert job.run("verify", "--deep", auto) == 0

    # Every record is a row or a reject.
    rows, rejects = job.rows(), job.rejects()
    assert len(rows) == 2 * 300 + 2 * 200 + 50 + n_whole
    assert len({row["doc_id"] for row in rows}) == len(rows)
    assert {row["doc_id"].rpartition(":")[0] for row in rows} == {
        *(f"{folder}/part-{i}" for folder in ("news", "wiki") for i in ("0.jsonl.gz", "1.parquet")),
        *("news/part-2.jsonl.gz", "wiki/utf16.txt"),
    }
    assert [row["reason"] for row in rejects] == ["truncated_stream", *["invalid_utf8"] * 50]
    assert "the file looks like cp1252 or latin-1: set input.encoding" in rejects[-1]["detail"]
    capfd.readouterr()
    assert job.run("inspect", auto) == 0
    assert cli.main(["trace", str(job.output), "0"]) == 0
    assert rows[0]["doc_id"] in capfd.readouterr().out

    # What another encoding has is tokenized by a job of its own.
    latin = {"paths": [str(crawl / "wiki" / "latin.txt")], "encoding": "cp1252"}
    other = make_job("latin", **sections | {"input": latin})
    assert other.run("run", "--quiet") == 0
    assert (len(other.rows()), other.rejects()) == (50, [])
