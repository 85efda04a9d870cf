# SPDX-License-Identifier: Apache-2.0
"""`normalize` and `spans` of a config: in every job, in the books, in the statistics."""

import dataclasses
import json

import pyarrow.parquet as pq
import pytest

import tokenmill
from tests.plain_job import PlainJob
from tokenmill.pipeline.config.job import json_schema
from tokenmill.pipeline.proving.verify import verify
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
def make(tmp_path, tiny_vocab_file):
    def job(name="out", texts=TEXTS, **sections):
        return PlainJob(tmp_path, texts, tiny_vocab_file, name, tokenizer={"oov": "contain"}, **sections)

    return job


def test_shards_hold_what_the_library_makes_of_the_text(make, tiny_vocab_file):
    job = make(normalize=NORMALIZE, spans=SPANS).run()
    assert verify(str(job.output)).problems == []
    library = TextTokenizer(Tokenizer.from_file(tiny_vocab_file, oov="contain"), normalize=NORMALIZE, spans=SPANS)
    assert [row["input_ids"] for row in job.rows()] == library.encode_arrow(TEXTS).ids.to_pylist()
    record = job.json("manifest.json")
    assert [record["tokenizer"]["special_ids"][span["token"]] for span in SPANS] == [28, 29, 30]
    assert Tokenizer.from_file(job.output / "vocab").token_to_id("[NUM]") == 29
    assert record["text"]["normalize"] == NORMALIZE
    assert set(record["text"]["versions"]) == {"ftfy", "regex", "unicode", "unicodedata"}
    text = job.json("stats.json")["text"]
    assert text["spans"] == {"[URL]": 1, "[NUM]": 2, "[LOVE]": 1}
    steps = {step["step"]: step for step in text["steps"]}
    names = ["nfc", "control_characters", "zero_width", "bidi", "html_entities", "strip_accents", "whitespace"]
    assert [*steps] == names
    assert {step["documents"] for step in text["steps"]} == {5}
    assert (steps["html_entities"]["documents_changed"], steps["html_entities"]["characters_changed"]) == (1, 5)
    assert steps["strip_accents"]["documents_changed"] == steps["whitespace"]["documents_changed"] == 1
    plain = make("plain").run()
    assert "text" not in plain.json("manifest.json")
    assert "text" not in plain.json("stats.json")


def test_a_document_on_which_an_expression_takes_too_long_is_in_the_rejects(make, tmp_path):
    slow = {"pattern": "(?:(?:x|xx)+)+[yz]", "seconds": 0.05}
    job = make(texts=["x" * 60, "mill"], normalize=[{"regex": slow}]).run()
    totals = job.json("manifest.json")["totals"]
    assert (totals["n_documents"], totals["rejected"]) == (1, {"text_timeout": 1})
    (path,) = (job.output / "rejected").iterdir()
    (reject,) = pq.read_table(path).to_pylist()
    assert (reject["source"], reject["offset"], reject["sample"]) == ("00000.jsonl", 0, b"x" * 60)
    assert job.json("stats.json")["text"]["steps"][0]["documents_rejected"] == 1
    spans = [{"token": "[X]", "regex": slow["pattern"], "seconds": 0.05}]
    config = job.config.given() | {"normalize": [], "spans": spans, "output": {"path": str(tmp_path / "counted")}}
    tokenmill.run(config, job="count", mode="inline")
    totals = json.loads((tmp_path / "counted/counts/counts.json").read_text())["totals"]
    assert (totals["n_documents"], totals["rejected"]) == (1, {"text_timeout": 1})


def test_a_span_token_that_the_tokenizer_uses_is_refused_before_work_begins(make):
    tokenizer = Tokenizer.for_bert(["[UNK]", "!", "mill"])
    tokenizer.enable_padding(pad_token="!")
    with pytest.raises(ValueError, match=r"span token '!' is the padding token"):
        make(spans=[{"token": "!", "find": "number"}]).config.text.wrap(tokenizer)


def test_editors_learn_the_names_of_steps_and_spans() -> None:
    schema = json_schema()["properties"]
    names, options = schema["normalize"]["items"]["anyOf"]
    assert names["enum"] == sorted([*PRESETS, *STEPS])
    assert options["propertyNames"]["enum"] == sorted(STEPS)
    properties = schema["spans"]["items"]["properties"]
    assert set(properties) == {field.name for field in dataclasses.fields(SpanRule)}
    assert SpanRule("[X]", find=properties["find"]["enum"][0]).find == "number"
