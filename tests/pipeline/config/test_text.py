# SPDX-License-Identifier: Apache-2.0
"""`normalize` and `spans` of a config: in every job, in the books, in the statistics."""

import pytest

from tests.plain_job import PlainJob
from tokenmill.pipeline.proving.verify import verify
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.text import TextTokenizer

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


def test_a_span_token_that_the_tokenizer_uses_is_refused_before_work_begins(make):
    tokenizer = Tokenizer.for_bert(["[UNK]", "!", "mill"])
    tokenizer.enable_padding(pad_token="!")
    with pytest.raises(ValueError, match=r"span token '!' is the padding token"):
        make(spans=[{"token": "!", "find": "number"}]).config.text.wrap(tokenizer)
