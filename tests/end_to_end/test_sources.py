# SPDX-License-Identifier: Apache-2.0
"""`input.sources`: files with fields, formats, encodings and limits of their own, in one job."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

WORDS = "the mill grinds text into tokens and shards feed it".split()


def _text(i: int) -> str:
    return " ".join(WORDS[(i * 3 + j) % len(WORDS)] for j in range(3 + i % 9))


@pytest.fixture
def make(make_job, tmp_path, tiny_vocab_file):
    """Makes a job of Parquet, JSON lines, CSV in Latin-1 and text, all with other fields."""
    root = tmp_path / "crawl"
    root.mkdir()
    rows = [{"id": f"w{i}", "content": {"text": _text(i)}, "url": f"u{i}"} for i in range(150)]
    pq.write_table(pa.Table.from_pylist(rows), root / "wiki.parquet", row_group_size=40)
    lines = [{"key": i, "title": _text(i), "body": _text(i + 1), "url": "n"} for i in range(120)]
    lines[7]["body"] = 5
    (root / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "b.csv").write_bytes(b"text;url\n" + "".join(f"café {_text(i)};c\n" for i in range(50)).encode("latin-1"))
    (root / "a.txt").write_text("\n\n".join(map(_text, range(30))))
    (root / "empty.txt").write_text("")
    sources = {
        "wiki": {"paths": [str(root / "*.parquet")], "text_field": "content.text"},
        "news": {"paths": [str(root / "*.jsonl")], "text_fields": ["title", "body"], "id_field": "key", "join": "\n"},
        "shop": {"paths": [str(root / "*.csv")], "encoding": "latin-1", "delimiter": ";", "id_field": None},
        "books": {"paths": [str(root / "*.txt")], "document": "blank_line"},
    }

    def build(name: str = "job", output=None, tokenizer=None, more=None, **options):
        given = {
            "sources": {**sources, **(more or {})},
            "keep_fields": {"url": "string"},
            "split_bytes": 1000,
            **options,
        }
        path = str(tmp_path / name / "out")
        return make_job(
            name,
            input=given,
            tokenizer=tokenizer or {"file": str(tiny_vocab_file)},
            output={"path": path, **(output or {})},
        )

    return build


def test_a_job_from_plan_to_proof(make, capsys):
    job = make()
    assert job.run("plan") == 0
    assert job.run("run", "--workers", "1") == 0
    printed, told = capsys.readouterr()
    assert "wiki" in printed
    assert "tokenmill: tokenize: " in told
    assert "tokenize: done" in printed  # one name from beginning to end
    manifest = job.manifest()
    read = manifest["by_source"]
    assert {name: each["n_documents"] for name, each in read.items()} == {
        "books": 30,
        "news": 119,
        "shop": 50,
        "wiki": 150,
    }
    assert read["news"]["rejected"] == {"not_string": 1}
    assert sum(each["n_tokens"] for each in read.values()) == manifest["totals"]["n_tokens"]
    stats = json.loads((job.output / "stats.json").read_text())["sources"]
    assert stats["shop"]["documents"] == 50
    rows = job.rows()
    assert {row["source"] for row in rows} == {"wiki", "news", "shop", "books"}
    by_id = {row["doc_id"]: row for row in rows}
    assert (by_id["w3"]["source"], by_id["w3"]["url"]) == ("wiki", "u3")
    assert (by_id["5"]["source"], by_id["5"]["url"]) == ("news", "n")
    assert (by_id["books/a.txt:0"]["source"], by_id["books/a.txt:0"]["url"]) == ("books", None)
    assert job.run("replay", "--set", "input.sources.news.text_fields=[title]") == 0
    replayed = json.loads((job.output / "replay/manifest.json").read_text())
    assert replayed["by_source"] == {"news": {**replayed["by_source"]["news"], "n_documents": 1, "n_files": 1}}
    assert job.run("verify", "--deep") == 0


def test_limits_are_those_of_each_source(make, capsys):
    job = make()
    assert job.run("run", "--workers", "1", "--set", "input.sources.news.max_rejected=0") == 1
    assert "input.sources.news.max_rejected 0" in capsys.readouterr().err
    assert job.run("run", "--workers", "1", "--resume", "--set", "input.sources.wiki.max_rejected=0") == 0
    wrong = make("wrong")
    assert wrong.run("run", "--workers", "1", "--set", "input.sources.news.text_fields=[nothing]") == 1
    error = capsys.readouterr().err
    assert "none of the 120 records of the source 'news' read can be used: 120 rejected as missing_field" in error
    assert "input.sources.news.text_fields" in error


def test_files_that_cannot_be_read_are_told_with_the_key_of_their_source(make, capsys):
    assert make().run("run", "--set", "input.sources.wiki.text_field=nothing") == 2
    assert "has no column 'nothing' for input.sources.wiki.text_field; it has" in capsys.readouterr().err


def test_a_file_is_in_one_source(make, capsys, tmp_path):
    job = make(more={"again": {"paths": [str(tmp_path / "crawl" / "**")]}})
    assert job.run("run") == 2
    error = capsys.readouterr().err
    assert f"{str(tmp_path / 'crawl' / 'a.jsonl')!r} is in the sources 'again' and 'news'; name it in one" in error


def test_keys_beside_sources_are_defaults_where_they_apply(make):
    given = {"text_field": "nothing", "delimiter": ",", "document": "file", "on_damage": "warn", "id_field": "id"}
    job = make(**given)
    plain = make("plain")
    assert job.run("run", "--workers", "1", "--set", "input.sources.shop.text_field=text") == 0
    assert plain.run("run", "--workers", "1") == 0
    assert job.rows() == plain.rows()
