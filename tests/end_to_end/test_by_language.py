# SPDX-License-Identifier: Apache-2.0
"""A mixed corpus in parts by language, of one tokenizer and of three: who reads it, books, proof, refusals."""

import json

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import cli
from tokenmill.tokenizer.languages import language_codes

TEXTS = {
    "en": ["All human beings are born free and equal in dignity and rights.", "They are endowed with reason."],
    "zh": ["人人生而自由，在尊严和权利上一律平等。", "他们赋有理性和良心，并应以兄弟关系的精神相对待。"],
    "de": ["Alle Menschen sind frei und gleich an Würde und Rechten geboren."],
    "und": ["123"],
}
COLUMNS = ["doc_id", "input_ids", "lang"]
LANGUAGES = ["lang=de", "lang=und", "lang=zh"]
PARTED = {"languages": {"keep": ["zh", "de"]}, "tokenizer": {"train": {"vocab_size": 120, "min_frequency": 1}}}
FOLDERS = ("tokenizer=default", "tokenizer=en", "tokenizer=zh")


@pytest.fixture
def sections(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    texts = [text for i in range(40) for code in TEXTS for text in TEXTS[code][: 1 + i % 2]]
    for number in range(4):
        lines = [json.dumps({"id": f"{number}-{i}", "text": text}) for i, text in enumerate(texts[number::4])]
        (corpus / f"{number}.jsonl").write_text("\n".join([*lines, "{broken", ""]) + "\n", encoding="utf-8")
    files = {}
    for number, (name, of) in enumerate({"en": "en", "zh": "zh", "default": "de"}.items()):
        characters = sorted(set("".join(TEXTS[of]).lower()) - {" "})
        tokens = ["[PAD]", "[UNK]", *[f"[unused{i}]" for i in range(number)], *characters]
        tokens += [f"##{character}" for character in characters]
        (tmp_path / f"{name}.txt").write_text("\n".join(tokens), encoding="utf-8")
        files[name] = str(tmp_path / f"{name}.txt")
    return {
        "input": {"paths": [str(corpus / "*.jsonl")], "split_bytes": 4000, "on_damage": "warn"},
        "output": {"parts": {"by": "lang", "tokenizers": files}},
        "languages": {},
    }


def told(job):
    return json.loads((job.output / "parts.json").read_text())


def final(job):
    return {name: data for name, data in job.files().items() if "/_" not in name and not name.endswith("report.html")}


def test_commands_for_one_tokenizer_name_the_folders(make_job, sections, capsys, tmp_path):
    job = make_job("job", **sections)
    assert job.run("tokenize", "--mode", "inline") == 0
    capsys.readouterr()
    assert cli.main(["viz", "a mill", "--tokenizer", str(job.output)]) == 2
    assert f"has several vocabularies; name one of them: {job.output}/tokenizer=" in capsys.readouterr().err
    assert cli.main(["diff", str(job.output), str(tmp_path)]) == 2
    assert "holds several folders with results; name one of them" in capsys.readouterr().err
    assert cli.main(["inspect", str(job.output), "--json", "--rows", "1000", "--longest"]) == 0
    rows = [*map(json.loads, capsys.readouterr().out.splitlines())]
    for folder in job.output.glob("tokenizer=*"):
        assert cli.main(["inspect", str(folder), "--json", "--rows", "1000", "--longest"]) == 0
        alone = [*map(json.loads, capsys.readouterr().out.splitlines())]
        assert [each for each in rows if each["shard"].startswith(f"{folder}/")] == alone


def trained_sections(sections, **train):
    """Returns the sections of a job that trains its tokenizers."""
    options = {"model": "wordpiece", "vocab_size": 120, "limit_alphabet": 60, "min_frequency": 1, **train}
    return sections | {
        "counts": {"by": ["lang"], "languages": ["zh", "en"], "min_count": 2},
        "tokenizer": {"train": options},
        "output": {"parts": {"by": "lang", "train": True}},
    }


def test_vocabularies_are_those_of_each_language_alone(make_job, sections, capsys):
    job = make_job("job", **trained_sections(sections))
    assert job.run("run", "--mode", "inline") == 0
    assert sorted(path.name for path in job.output.glob("tokenizer=*")) == sorted(FOLDERS)
    for name in ("zh", "default"):
        only = {"output": {"parts": {"by": "lang", "train": True, "only": name}}}
        alone = make_job(name, **trained_sections(sections) | only)
        assert alone.run("run", "--mode", "inline") == 0
        ours = {key: data for key, data in final(job).items() if key.startswith(f"tokenizer={name}/")}
        ours = {key.partition("/")[2]: data for key, data in ours.items()}
        theirs = {key: data for key, data in alone.files().items() if not key.startswith("counts/")}
        for files in (ours, theirs):
            del files["manifest.json"]  # it names the counts, which are beside the folders
        assert ours == theirs
    assert {file["file"] for file in told(job)["files"]} >= {"counts/counts.json", "counts/alphabet.parquet"}
    totals = told(job)["totals"]
    assert totals["n_records"] == totals["n_documents"] + 4
    capsys.readouterr()
    assert cli.main(["verify", str(job.output), "--deep"]) == 0
    assert job.run("verify") == 0
    counts = job.output / "counts/counts.json"
    counts.write_bytes(counts.read_bytes() + b" ")
    assert cli.main(["verify", str(job.output)]) == 1
    assert "counts/counts.json: " in capsys.readouterr().out


def test_a_language_that_the_input_lacks_fails_the_job_before_training(make_job, sections, capsys):
    sections = trained_sections(sections)
    sections["counts"]["languages"] += ["th", "ja"]
    job = make_job("job", **sections)
    assert job.run("run", "--mode", "inline") == 1
    assert "failed: there is no text for ja, th to train on: counts.languages must name" in capsys.readouterr().err
    assert job.run("tokenize") == 2
    assert "tokenizer.file: required by the job tokenize; to train and tokenize" in capsys.readouterr().err


def rows(tables):
    return sorted((row["doc_id"], row["input_ids"], row["lang"]) for table in tables for row in table.to_pylist())


def test_readers_of_hive_find_the_rows_of_the_same_job_in_one_folder(make_job, sections, capsys):
    plain = make_job("plain", **PARTED | {"input": sections["input"]})
    assert plain.run("run", "--mode", "inline") == 0
    expected = rows(pq.ParquetFile(path).read(COLUMNS) for path in plain.output.glob("tokens-*.parquet"))
    job = make_job("job", **PARTED, input=sections["input"], output={"parts": {"by": "lang"}})
    capsys.readouterr()
    assert job.run("run", "--mode", "inline") == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert all("tokenizer.train.vocab_size is 120, but vocab has" in line for line in warnings)
    assert sorted(path.name for path in job.output.glob("*=*")) == LANGUAGES
    for folder in LANGUAGES:
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


def test_too_many_folders_are_refused(make_job, sections, capsys):
    keep = {"languages": {"keep": list(language_codes()[:33])}}
    job = make_job("job", **PARTED | keep, input=sections["input"], output={"parts": {"by": "lang"}})
    assert job.run("run") == 2
    assert "languages.keep: 33: at most 32 languages have a folder of their own" in capsys.readouterr().err
