# SPDX-License-Identifier: Apache-2.0
"""Edits of text steps and spans, which kernels find, against their reference in plain Python."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import text_steps as reference
from tests.strategies import FEWER, texts
from tokenmill.tokenizer.normalizers import tables
from tokenmill.tokenizer.normalizers.base import replaced
from tokenmill.tokenizer.normalizers.tables import UNICODE_VERSION as NEWEST
from tokenmill.tokenizer.text import SpanRule, TextChain, parse_steps
from tokenmill.tokenizer.text.spans import SpanFinder
from tokenmill.tokenizer.unicode import data

CONFIGS = [
    {"strip_accents": "none"}, {"strip_accents": "latin-only"}, {"strip_accents": "all"}, "whitespace",
    {"whitespace": {"newlines": "space"}}, {"whitespace": {"newlines": "paragraphs"}}, {"whitespace": {"strip": False}},
    {"whitespace": {"collapse": False}}, {"whitespace": {"python": True}}, "repeated_punctuation",
    {"repeated_punctuation": 1}, "isolate_digits", {"isolate_digits": {"runs": True}}, {"segment": "han"},
    {"segment": "japanese"}, {"segment": "thai"}, {"segment": "all"}, {"emoji": "isolate"}, {"emoji": "describe"},
    {"emoji": "drop"}, {"emoji": "keep"},
]  # fmt: skip
RULES = [
    SpanRule("[URL]", find="url"), SpanRule("[MAIL]", find="email"), SpanRule("[EMOJI]", find="emoji"),
    SpanRule("[NUM]", find="number"), SpanRule("[REP]", find="repeated"), SpanRule("[TWICE]", find="repeated", least=2),
    SpanRule("[SPACE]", find="whitespace"), SpanRule("[ONE]", find="whitespace", least=1),
    SpanRule("[BR]", literal="<br>"), SpanRule("[AA]", literal="aa"), SpanRule("[ORDER]", regex=r"(?i)ord-\d+|é+"),
]  # fmt: skip
_PIECES = [
    "  ", "\n\n", "\r\n", " \n ", "\t", "\x1c", "!!!!", "?!?!", "......", "…………", "12", "٣٤", "1٣", "a1b", "é",
    "e\u0301", "Ă️", "👨\u200d👩\u200d👧", "🇩🇪🇫", "1️⃣", "#⃣", "👋🏽", "☺️", "☺︎", "©", "漢字", "かな", "カー",
    "漢か", "ーa", "\u0e40ด็ก", "ไทย1", "น้ำa", "ๆ", "漢\u0301", "वि", "שָ", "http://a.b/c?d=e", "HTTPS://x.",
    "www.", "(http://a.b).", "a@b.co", "a@b@c.de", "1,234.5", "1.", "<br", "<<br>>", "aaaa", "ééééé",
    " \u3000 ", "ORD-7",
]  # fmt: skip


def hostile() -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.sampled_from(_PIECES), texts(5)), max_size=12).map("".join)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@FEWER
@given(text=hostile(), begins=st.booleans(), ends=st.booleans())
def test_edits_are_those_of_the_reference(config: object, text: str, begins: bool, ends: bool) -> None:
    (step,) = parse_steps([config])  # type: ignore[list-item]
    assert step.edits(text, begins, ends) == reference.edits(step, text, begins, ends)


@given(text=hostile(), rules=st.lists(st.sampled_from(RULES), min_size=1, max_size=4, unique=True))
def test_spans_are_those_of_the_reference(text: str, rules: list[SpanRule]) -> None:
    assert SpanFinder(rules).find_text(text) == reference.find_spans(tuple(rules), text)


@pytest.mark.parametrize("form", ["nfc", "nfd", "nfkc", "nfkd"])
def test_one_text_has_the_normal_form_of_the_column_if_python_does_not_know_its_characters(form: str) -> None:
    newer = [
        *data.texts("text/canonical"),
        *data.texts("text/compatibility"),
        *np.flatnonzero(tables.combining(NEWEST)),
    ]
    newer = [chr(c) for c in newer if unicodedata.category(chr(c)) == "Cn"]
    assert newer
    (step,) = parse_steps([form])
    column = TextChain([step]).apply([f"e\u0301{c}\u0323" for c in newer])[0].to_pylist()
    assert column == [replaced(text, step.edits(text)) for text in (f"e\u0301{c}\u0323" for c in newer)]
