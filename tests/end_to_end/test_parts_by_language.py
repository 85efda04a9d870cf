# SPDX-License-Identifier: Apache-2.0
"""One tokenizer and a folder for each language: who reads it, books, proof, resume, refusals."""

import json

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import cli

TEXTS = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "zh": "人人生而自由，在尊严和权利上一律平等。",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "und": "123",
}
FOLDERS = ["lang=de", "lang=und", "lang=zh"]
COLUMNS = ["doc_id", "input_ids", "lang"]


@pytest.fixture
def sections(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number in range(3):
        lines = [
            json.dumps({"id": f"{number}-{i}-{code}", "text": TEXTS[code]})
            for i in range(20)
            for code in TEXTS
            if i % 3 or code != "zh"
        ]
        (corpus / f"{number}.jsonl").write_text("\n".join([*lines, "{broken", ""]), encoding="utf-8")
    return {
        "input": {"paths": [str(corpus / "*.jsonl")], "split_bytes": 5000, "on_damage": "warn"},
        "languages": {"keep": ["zh", "de"]},
        "tokenizer": {"train": {"vocab_size": 120, "min_frequency": 1}},
    }


@pytest.fixture
def make_parted(make_job, sections):
    """Returns a function that makes a job with a part for each language."""

    def make(name, **more):
        return make_job(name, **{**sections, **more, "output": {"parts": {"by": "lang"}, **more.get("output", {})}})

    return make


def rows(tables):
    return sorted((row["doc_id"], row["input_ids"], row["lang"]) for table in tables for row in table.to_pylist())


def test_readers_of_hive_find_the_rows_of_the_same_job_in_one_folder(make_job, make_parted, sections, capsys):
    plain = make_job("plain", **sections)
    assert plain.run("run", "--mode", "inline") == 0
    expected = rows(pq.ParquetFile(path).read(COLUMNS) for path in plain.output.glob("tokens-*.parquet"))
    job = make_parted("job")
    capsys.readouterr()
    assert job.run("run", "--mode", "inline") == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert all("tokenizer.train.vocab_size is 120, but vocab has" in line for line in warnings)
    assert sorted(path.name for path in job.output.glob("*=*")) == FOLDERS
    for folder in FOLDERS:
        shards = sorted((job.output / folder).glob("tokens-*.parquet"))
        codes = {code for path in shards for code in pq.ParquetFile(path).read(["lang"])["lang"].to_pylist()}
        assert codes == ({folder.partition("=")[2]} if folder != "lang=und" else set())
        assert (job.output / folder / "vocab/tokenizer.json").read_bytes() == (
            plain.output / "vocab/tokenizer.json"
        ).read_bytes()
    paths = sorted(str(path) for path in job.output.glob("lang=*/tokens-*.parquet"))
    found = ds.dataset(paths, partitioning="hive", partition_base_dir=str(job.output))
    assert rows([found.to_table(COLUMNS)]) == expected
    only = found.to_table(COLUMNS, filter=ds.field("lang") == "zh")
    assert rows([only]) == [row for row in expected if row[2] == "zh"] != []
    query = "SELECT doc_id, input_ids, lang FROM read_parquet($paths, hive_partitioning = true)"
    assert rows([duckdb.sql(query, params={"paths": paths}).to_arrow_table()]) == expected
    totals = json.loads((job.output / "parts.json").read_text())["totals"]
    books = json.loads((plain.output / "manifest.json").read_text())["totals"]
    for name in ("n_records", "n_documents", "rejected", "filtered", "n_tokens", "n_bytes", "n_filtered_bytes"):
        assert totals[name] == books[name]
    assert cli.main(["verify", str(job.output), "--deep"]) == 0
    assert job.run("verify") == 0


def test_too_many_folders_are_refused(make_parted, capsys):
    from tokenmill.tokenizer.languages import language_codes

    job = make_parted("job", languages={"keep": list(language_codes()[:33])})
    assert job.run("run") == 2
    assert "languages.keep: 33: at most 32 languages have a folder of their own" in capsys.readouterr().err
