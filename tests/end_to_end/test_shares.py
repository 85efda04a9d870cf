# SPDX-License-Identifier: Apache-2.0
"""`output.parts.shares`: the folder of all parts, documents of one site in one part, names that are taken."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import cli, filenames
from tokenmill.pipeline.config.output import TAKEN_NAMES
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.tokenizing.pages import part_of

SPLITS = {"train": 0.7, "validation": 0.1, "test": 0.2}
N_FILES, N = 4, 150


@pytest.fixture
def corpus(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number in range(N_FILES):
        write(corpus / f"{number}.jsonl", range(number * N, (number + 1) * N))
    return corpus


def write(path, numbers):
    records = [
        {"id": f"d{i}", "text": f"the mill {i} grinds text", "site": None if i % 50 == 7 else f"s{i % 40}", "n": i % 40}
        for i in numbers
    ]
    path.write_text("\n".join([*map(json.dumps, records), "{broken", ""]), encoding="utf-8")


@pytest.fixture
def make_split(make_job, corpus, tiny_vocab_file):
    """Returns a function that makes a job with shares."""

    def make(name, output=None, parts=None, **sections):
        job = make_job(name)
        config = {
            "input": {"paths": [str(corpus / "*.jsonl")], "split_bytes": 5000, "on_damage": "warn"},
            "tokenizer": {"file": str(tiny_vocab_file)},
            **sections,
            "output": {"path": str(job.output), "parts": {"shares": SPLITS, **(parts or {})}, **(output or {})},
        }
        config["input"] |= sections.get("input", {}) and {"paths": [str(corpus / "*.jsonl")], "on_damage": "warn"}
        job.config.write_text(json.dumps(config))
        return job

    return make


def ids_of(job):
    """The ids of the documents of each part, as its tables of documents list them."""
    found = {}
    for name in sorted(SPLITS):
        paths = sorted((job.output / name / "documents").glob("*.parquet"))
        found[name] = [doc for path in paths for doc in pq.read_table(path, columns=["doc_id"])["doc_id"].to_pylist()]
    return found


def expected(values):
    parts = part_of(pa.array(values), SPLITS)
    return {name: {v for v, p in zip(values, parts, strict=True) if p == i} for i, name in enumerate(sorted(SPLITS))}


def test_commands_take_the_folder_of_all_parts(make_split, capsys):
    jobs = [make_split(name, tokenizer={"train": {"vocab_size": 200, "min_frequency": 1}}) for name in ("one", "other")]

    def printed(*arguments):
        capsys.readouterr()
        assert cli.main([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    for job in jobs:
        assert job.run("run", "--mode", "inline") == 0
    output = jobs[0].output
    assert f"the vocabulary in {output}/test/vocab" in printed("run", jobs[0].config, "--overwrite")
    rows = [*map(json.loads, printed("inspect", output, "--json", "--rows", 1000).splitlines())]
    assert [row["doc_id"] for row in rows] == [doc for ids in ids_of(jobs[0]).values() for doc in ids]
    for number in (0, 70, 599):
        traced = json.loads(printed("trace", "--json", output, number))
        assert traced["documents"][0]["doc_id"] == rows[number]["doc_id"]
        assert f"{traced['folder']}/{traced['shard']}" == rows[number]["shard"]
    assert printed("viz", "the mill", "--tokenizer", output) == printed(
        "viz", "the mill", "--tokenizer", output / "test"
    ).replace("/train/", "/test/")
    assert "the outputs are equal" in printed("diff", output, jobs[1].output)
    assert list(json.loads(printed("report", output, "--json"))) == [str(output / name) for name in sorted(SPLITS)]
    printed("report", output)
    assert "<h1>out/test</h1>" in (output / "test" / "report.html").read_text()
    assert cli.main(["trace", str(output), "600"]) == 2
    assert "its shards have 600 rows" in capsys.readouterr().err


@pytest.mark.parametrize("keep", [["site"], {"n": "int32"}])
def test_documents_of_one_site_are_in_one_part(make_split, keep):
    field = next(iter(keep))
    job = make_split("job", input={"keep_fields": keep}, parts={"by": field}, output={"format": ["parquet", "memmap"]})
    assert job.run("tokenize", "--mode", "inline") == 0
    assert job.run("verify", "--deep") == 0
    numbers = range(N_FILES * N)
    is_null = [field == "site" and i % 50 == 7 for i in numbers]  # these go by their ids
    value = [f"d{i}" if is_null[i] else f"s{i % 40}" if field == "site" else f"{i % 40}" for i in numbers]
    wanted = expected(value)
    found = ids_of(job)
    assert {name: {value[int(each[1:])] for each in ids} for name, ids in found.items()} == wanted
    assert sum(map(len, found.values())) == N_FILES * N


def test_names_of_folders_of_a_job_are_taken():
    own = {name.partition("/")[0] for name in (*folders.FOLDERS, filenames.REPLAY) if name and not name.startswith("_")}
    assert {*TAKEN_NAMES} - {"all"} == own
    for name in own:
        with pytest.raises(ValueError, match="is no name of a folder"):
            filenames.check_part(name)
    assert filenames.check_part("counts_2") == "counts_2"
