# SPDX-License-Identifier: Apache-2.0
"""`tokenmill fidelity` on a corpus small enough to count by hand."""

import json
from pathlib import Path

import pytest

from tokenmill.pipeline.cli import main


@pytest.mark.parametrize("languages", ["", "languages: {}\n"])
def test_the_report_counts_by_language_source_and_policy(
    tmp_path: Path, tiny_corpus: Path, tiny_vocab_file: Path, capsys: pytest.CaptureFixture[str], languages: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"input: {{paths: ['{tiny_corpus}/*.jsonl']}}\ntokenizer: {{file: '{tiny_vocab_file}'}}\n"
        f"output: {{path: '{tmp_path}/out'}}\nnormalize: [lowercase]\n{languages}"
    )
    assert main(["fidelity", str(config), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["documents"] == 7
    assert {name: trip["n_documents"] for name, trip in report["round_trip"]["by_source"].items()} == {
        "a.jsonl": 4,
        "b.jsonl": 3,
    }
    assert sum(trip["n_documents"] for trip in report["round_trip"]["by_language"].values()) == 7
    contain = report["oov"]["contain"]
    assert contain["unknown"]["Glagolitic"] == contain["swallowed"]["Glagolitic"] == 1
    assert contain["known_but_swallowed"] == {}
    lowered = [step for step in report["steps"] if step["step"].endswith("lowercase")]
    assert sum(step["n_changed"] for step in lowered) == len("TTTⰋ")
    assert main(["fidelity", str(config), "--documents", "2"]) == 0
    assert "2 documents" in capsys.readouterr().out


def test_an_empty_corpus_is_a_mistake(
    tmp_path: Path, tiny_vocab_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"input: {{paths: ['{tmp_path}/a.jsonl']}}\ntokenizer: {{file: '{tiny_vocab_file}'}}\n"
        f"output: {{path: '{tmp_path}/out'}}\n"
    )
    assert main(["fidelity", str(config)]) == 2
    assert "no document to look at" in capsys.readouterr().err
