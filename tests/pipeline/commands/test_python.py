# SPDX-License-Identifier: Apache-2.0
"""`tokenmill.run`, `plan` and `verify` from Python: the results, files and messages of the commands."""

import json
import sys
import types

import apache_beam as beam
import pytest
import yaml

import tokenmill
from tokenmill.pipeline import cli


@pytest.fixture
def config(tmp_path, tiny_vocab):
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "a mill"}\n{"id": "b", "text": "the text"}\n{"id": "c"}\n')
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tiny_vocab))
    return {
        "input": {"paths": [str(tmp_path / "a.jsonl")], "on_damage": "warn"},
        "tokenizer": {"file": str(tmp_path / "vocab.txt")},
        "output": {"path": str(tmp_path / "out")},
    }


def test_a_job_from_a_dict_writes_what_the_command_writes(config, tmp_path, capsys):
    result = tokenmill.run(config, workers=9)
    assert (result.output, result.totals["n_documents"], result.totals["reject_rows"]) == (str(tmp_path / "out"), 2, 1)
    assert len(repr(result)) < 1000  # in a notebook
    assert any("missing_field" in warning or "rejected" in warning for warning in result.warnings)
    assert "1 worker" not in capsys.readouterr().err  # no progress unless asked for
    proof = tokenmill.verify(result.output, deep=True, share=1)
    assert (proof.is_proven, proof.n_rows) == (True, 2)
    assert tokenmill.verify(config).is_proven
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(config))
    assert tokenmill.plan(path)["job"] == "tokenize"
    first = {each.name: each.read_bytes() for each in (tmp_path / "out").glob("tokens-*")}
    assert cli.main(["run", str(path), "--overwrite", "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["totals"] == result.totals
    assert first == {each.name: each.read_bytes() for each in (tmp_path / "out").glob("tokens-*")} != {}


def test_a_job_in_a_notebook_needs_no_pandas(config, monkeypatch):
    """Beam sees the notebook, and would take up its interactive mode."""
    for name in [name for name in sys.modules if name.startswith("apache_beam.runners.interactive.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("apache_beam.runners.interactive.interactive_environment", raising=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    shell = types.SimpleNamespace(config={"IPKernelApp": {}}, execution_count=1)
    notebook = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    with pytest.raises(ImportError, match="pandas"), beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([1])
    assert tokenmill.run(config).totals["n_documents"] == 2
    assert beam.pipeline.is_in_ipython()  # for other pipelines of the notebook


def test_mistakes_are_the_messages_of_the_command(config, tmp_path):
    with pytest.raises(ValueError, match=r"input\.pathz: unknown key; did you mean 'paths'"):
        tokenmill.run(config | {"input": {"pathz": ["a"]}})
    with pytest.raises((ValueError, OSError), match=r"nowhere.*matches no file"):
        tokenmill.run(config | {"input": {"paths": [str(tmp_path / "nowhere*.jsonl")]}})
    for output in (".", "sub/.."):
        with pytest.raises(
            ValueError, match=r"output\.path: .* holds the input, .*a\.jsonl'; choose a folder without inputs"
        ):
            tokenmill.run(config | {"output": {"path": str(tmp_path / output)}}, overwrite=True)
    (tmp_path / "file").touch()
    for output in ("file", "file/sub"):
        with pytest.raises(OSError, match=r"output folder '.*' cannot be written to: '.*file' is a file"):
            tokenmill.run(config | {"output": {"path": str(tmp_path / output)}})
    with pytest.raises((ValueError, OSError), match=r"tokenizer\.file: .*'openai-community/gpt2' in .*; if it"):
        tokenmill.run(config | {"tokenizer": {"file": "openai-community/gpt2"}})
    with pytest.raises((ValueError, OSError), match=r"tokenizer\.file: .*/t\.json'; get what is at this"):
        tokenmill.run(config | {"tokenizer": {"file": "https://example.org/t.json"}})
    with pytest.raises(ValueError, match="resume goes on with a job, overwrite removes it; give one"):
        tokenmill.run(config, resume=True, overwrite=True)
    sources = {"input": {"sources": {"a": config["input"]}}, "output": {"path": str(tmp_path)}}
    with pytest.raises(ValueError, match=r"output\.path: .* holds the input"):
        tokenmill.run(config | sources, overwrite=True)
    for path in (str(tmp_path), f"{tmp_path}/**", f"{tmp_path}/**/*.jsonl"):
        with pytest.raises(ValueError, match=r"output\.path: .*/new' is below .* of the input"):
            tokenmill.run(config | {"input": {"paths": [path]}, "output": {"path": str(tmp_path / "new")}})
    with pytest.raises(ValueError, match="--workers must be at least 1, got 0"):
        tokenmill.plan(config, workers=0)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        tokenmill.verify(tmp_path / "no output")
    with pytest.raises(ValueError, match="share says how much deep tokenizes again"):
        tokenmill.verify(config, share=0.5)


@pytest.mark.parametrize("given", [{}, {"document": "line"}])
def test_files_of_text_that_become_very_many_documents_are_warned_of(config, tmp_path, given):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("a mill\n" * 1000)
    paths = [str(tmp_path / "[ab].txt")]
    result = tokenmill.run(config | {"input": {"paths": paths, "delimiter": ";", **given}})
    assert result.warnings[0].startswith("input.delimiter has no effect: it is for csv, tsv, and no file is")
    expected = ["input.document: 2 text files became 2,000 documents, one per line"] if not given else []
    assert [warning.partition(";")[0] for warning in result.warnings[1:]] == expected


def test_warnings_are_in_the_result_and_errors_are_not_logged_as_well(config, tmp_path, caplog):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a mill"}\n')
    (tmp_path / "in" / "a.xyz").touch()
    result = tokenmill.run(config | {"input": {"paths": [str(tmp_path / "in")]}})
    assert any("left out: 1, such as" in warning for warning in result.warnings)
    caplog.clear()
    with pytest.raises(tokenmill.JobError, match="none of the 1 records"):
        tokenmill.run(config | {"input": {"paths": [str(tmp_path / "in")], "text_field": "body"}}, overwrite=True)
    assert not caplog.records
