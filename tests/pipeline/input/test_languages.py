# SPDX-License-Identifier: Apache-2.0
"""Languages in jobs: filtered with balanced books, and what their steps add and remove."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tokenmill.pipeline.books.job_books import PlannedSplits, identities
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs import finish
from tokenmill.pipeline.jobs.planning import plan_job, prepare
from tokenmill.pipeline.proving.verify import verify
from tokenmill.pipeline.reporting.summary import summarize
from tokenmill.pipeline.tokenizing import tokenize
from tokenmill.tokenizer import Tokenizer

DOCUMENTS = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "zh": "人人生而自由，在尊严和权利上一律平等。",
    "th": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน",
    "und": "123",
    "mixed": "Все люди рождаются свободными и равными. All human beings are born.",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": name, "text": text}) for name, text in DOCUMENTS.items()]
    path.write_text("\n".join([*lines[:3], "{broken", "", *lines[3:]]) + "\n", encoding="utf-8")
    return path


def run(config: Config) -> dict[str, Any]:
    plan = plan_job("tokenize", config)
    prepare(plan, "new")
    assert plan.tokenizer is not None
    tokenizer = Tokenizer.from_str(plan.tokenizer.to_str())
    for split in plan.splits:
        tokenize.tokenize_split(split, config, tokenizer, len(plan.splits))
    found = finish.finish_output(finish.Folder(config, plan.job, PlannedSplits(plan.splits), tokenizer))
    return dict(found)


def config_of(corpus: Path, vocab: Path, folder: Path, languages: dict[str, Any], **sections: Any) -> Config:
    return Config.model_validate(
        {
            "input": {"paths": [str(corpus)], "on_damage": "warn"},
            "tokenizer": {"file": str(vocab), "oov": "contain", "max_unknown_fraction": 1.0},
            "output": {"path": str(folder)},
            "languages": languages,
            **sections,
        }
    )


@pytest.mark.parametrize(
    "languages, kept, filtered",
    [
        ({"keep": ["en", "ru"]}, ["en", "mixed"], {"language": 4}),
        ({"drop": ["und", "zh"]}, ["en", "de", "th", "mixed"], {"language": 2}),
        ({"drop_mixed": True}, ["en", "de", "zh", "th", "und"], {"mixed_languages": 1}),
        ({"keep": ["en", "ru"], "drop_mixed": True}, ["en"], {"language": 4, "mixed_languages": 1}),
        ({"keep": ["el"]}, [], {"language": 6}),
    ],
)
def test_documents_that_are_left_out_are_in_the_books(
    corpus: Path, tiny_vocab_file: Path, tmp_path: Path, languages: dict[str, Any], kept: list[str], filtered: Any
) -> None:
    output = tmp_path / "out"
    totals = run(config_of(corpus, tiny_vocab_file, output, languages))["totals"]
    assert pq.ParquetFile(next(output.glob("tokens-*.parquet"))).read()["doc_id"].to_pylist() == kept
    assert totals["filtered"] == filtered
    assert sum(totals["rejected"].values()) == 1
    assert totals["n_records"] == len(kept) + sum(filtered.values()) + 1
    assert verify(str(output)).problems == []
    stats = json.loads((output / "stats.json").read_text())["languages"]["by_code"]
    assert sum(counts["filtered"] for counts in stats.values()) == sum(filtered.values())
    identities(totals)


def test_the_summary_names_what_steps_add_and_remove(
    corpus: Path, tiny_vocab_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    normalize = [{"regex": {"pattern": "human", "replace": ""}}]
    for name, languages in {"one": {"rules": "builtin"}, "none": None, "two": {"keep": ["zh", "en"]}}.items():
        run(config_of(corpus, tiny_vocab_file, tmp_path / name, languages, normalize=normalize))  # type: ignore[arg-type]
        Console(width=200).print(summarize(str(tmp_path / name), 1.0))
        out = capsys.readouterr().out
        n_en, n_zh, n_all = len(DOCUMENTS["en"]), len(DOCUMENTS["zh"]), sum(map(len, DOCUMENTS.values()))
        if name == "one":
            assert f"characters of zh: {n_zh} became {2 * n_zh - 1}, +{(n_zh - 1) / n_zh:.1%}" in out
        if name == "none":
            assert f"characters: {n_all} became {n_all - 10}, {-10 / n_all:.1%}" in out
        else:
            assert f"characters of en: {n_en} became {n_en - 5}, {-5 / n_en:.1%}" in out
