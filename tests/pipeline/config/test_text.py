# SPDX-License-Identifier: Apache-2.0
"""`normalize` and `spans` of a config: in every job, in the books, in the statistics."""

import dataclasses
import json
from pathlib import Path

import apache_beam as beam
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.config.job import Config, json_schema
from tokenmill.pipeline.jobs.planning import plan_job, prepare
from tokenmill.pipeline.proving.verify import verify
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.pipeline.transforms import jobs
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.text import PRESETS, STEPS, SpanRule, TextTokenizer

TEXTS = [
    "The  mill grinds 12 texts &amp; tokens.",
    "rÉsumé résume resume RESUME http://a.mill/x",
    "",
    "un affable ❤️ mill 1,000.5!!!!!!",
    "the mill" * 3,
]
NORMALIZE = ["default", "html_entities", {"strip_accents": "all"}, {"whitespace": {"newlines": "space"}}]
SPANS = [{"token": "[URL]", "find": "url"}, {"token": "[NUM]", "find": "number"}, {"token": "[LOVE]", "find": "emoji"}]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, texts in (("a", TEXTS[:3]), ("b", TEXTS[3:])):
        lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def make(corpus: Path, tiny_vocab_file: Path, tmp_path: Path):
    def build(
        output: str = "out",
        *,
        split_bytes: int = 100,
        train: bool = False,
        format: object = "parquet",
        **sections: object,
    ) -> Config:
        vocabulary = {"train": {"vocab_size": 80, "min_frequency": 1}} if train else {"file": str(tiny_vocab_file)}
        return Config.model_validate(
            {
                "input": {"paths": [str(corpus / "*.jsonl")], "split_bytes": split_bytes, "on_damage": "warn"},
                "tokenizer": {**vocabulary, "oov": "contain"},
                "output": {"path": str(tmp_path / output), "format": format},
                "normalize": NORMALIZE,
                "spans": SPANS,
                **sections,
            }
        )

    return build


def execute(name: str, config: Config, mode: str = "new") -> dict:
    plan = plan_job(name, config)
    prepare(plan, mode)
    with open_runner(choose_runner([], mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        jobs.build(pipeline, plan)
        pipeline.run()
    assert verify(config.output.path).problems == []
    return manifest.read(config.output.path)


def rows(config: Config) -> list[list[int]]:
    return [
        ids
        for path in sorted(Path(config.output.path).glob("tokens-*.parquet"))
        for ids in pq.read_table(path)["input_ids"].to_pylist()
    ]


def stats(config: Config) -> dict:
    return json.loads((Path(config.output.path) / "stats.json").read_text(encoding="utf-8"))


def test_shards_hold_what_the_library_makes_of_the_text(make, tiny_vocab_file: Path) -> None:
    config = make()
    found = execute("tokenize", config)
    tokenizer = Tokenizer.from_file(tiny_vocab_file, oov="contain")
    library = TextTokenizer(tokenizer, normalize=NORMALIZE, spans=SPANS)
    assert rows(config) == library.encode_arrow(TEXTS).ids.to_pylist()
    assert [found["tokenizer"]["special_ids"][span["token"]] for span in SPANS] == [28, 29, 30]
    restored = Tokenizer.from_file(Path(config.output.path) / "vocab")
    assert restored.token_to_id("[NUM]") == 29
    assert found["text"]["normalize"] == NORMALIZE
    assert set(found["text"]["versions"]) == {"ftfy", "regex", "unicode", "unicodedata"}


def test_statistics_report_every_step_and_span(make) -> None:
    config = make()
    execute("tokenize", config)
    text = stats(config)["text"]
    assert text["spans"] == {"[URL]": 1, "[NUM]": 2, "[LOVE]": 1}
    steps = {step["step"]: step for step in text["steps"]}
    names = ["nfc", "control_characters", "zero_width", "bidi", "html_entities", "strip_accents", "whitespace"]
    assert [step["step"] for step in text["steps"]] == names
    assert {step["documents"] for step in text["steps"]} == {5}
    assert (steps["html_entities"]["documents_changed"], steps["html_entities"]["characters_changed"]) == (1, 5)
    assert steps["strip_accents"]["documents_changed"] == 1
    assert steps["whitespace"]["documents_changed"] == 1
    assert "text" not in stats_without(make)


def stats_without(make) -> dict:
    config = make("plain", normalize=[], spans=[])
    assert "text" not in execute("tokenize", config)
    return stats(config)


def test_a_document_on_which_an_expression_takes_too_long_is_in_the_rejects(make, corpus: Path) -> None:
    (corpus / "c.jsonl").write_text(json.dumps({"text": "x" * 60}) + "\n" + json.dumps({"text": "mill"}) + "\n")
    slow = {"regex": {"pattern": "(?:(?:x|xx)+)+[yz]", "seconds": 0.05}}
    config = make(normalize=[slow], spans=[])
    found = execute("tokenize", config)
    assert found["totals"]["rejected"] == {"text_timeout": 1}
    assert found["totals"]["n_documents"] == 6
    (path,) = (Path(config.output.path) / "rejected").iterdir()
    (reject,) = pq.read_table(path).to_pylist()
    assert (reject["source"], reject["offset"], reject["sample"]) == ("c.jsonl", 0, b"x" * 60)
    assert stats(config)["text"]["steps"][0]["documents_rejected"] == 1
    counted = make(
        "counted", normalize=[], spans=[{"token": "[X]", **{"regex": slow["regex"]["pattern"]}, "seconds": 0.05}]
    )
    execute("count", counted)
    totals = json.loads((Path(counted.output.path) / "counts/counts.json").read_text())["totals"]
    assert (totals["n_documents"], totals["rejected"]) == (6, {"text_timeout": 1})


def test_a_span_token_that_the_tokenizer_uses_is_refused_before_work_begins(make, tmp_path: Path) -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", "!", "mill"])
    tokenizer.enable_padding(pad_token="!")
    with pytest.raises(ValueError, match=r"span token '!' is the padding token"):
        make(spans=[{"token": "!", "find": "number"}]).text.wrap(tokenizer)


def test_editors_learn_the_names_of_steps_and_spans() -> None:
    schema = json_schema()["properties"]
    names, options = schema["normalize"]["items"]["anyOf"]
    assert names["enum"] == sorted([*PRESETS, *STEPS])
    assert options["propertyNames"]["enum"] == sorted(STEPS)
    properties = schema["spans"]["items"]["properties"]
    assert set(properties) == {field.name for field in dataclasses.fields(SpanRule)}
    assert SpanRule("[X]", find=properties["find"]["enum"][0]).find == "number"
