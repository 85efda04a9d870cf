# SPDX-License-Identifier: Apache-2.0
"""Text steps: each kernel against its reference implementation, and both against the libraries whose answers they must
give."""

import html
import itertools
import re
import unicodedata

import ftfy
import numpy as np
import pyarrow as pa
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from tests.reference import text_steps as reference
from tests.strategies import FEWER, texts
from tokenmill.tokenizer.normalizers.base import Edges, n_changed, replaced
from tokenmill.tokenizer.ragged import text_rows
from tokenmill.tokenizer.text import TextChain, TextStep, parse_steps, row_steps, tables
from tokenmill.tokenizer.text.emoji import describe
from tokenmill.tokenizer.text.row_steps import n_elements

ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
KNOWN = [c for c in ALL if unicodedata.category(c) != "Cn"]
"""Characters that this Python's Unicode knows."""

CONFIGS = [
    "nfc", "nfd", "nfkc", "nfkd", "lowercase", {"lowercase": {"final_sigma": True}},
    "casefold", "control_characters", {"control_characters":
    {"replacement": False}}, "zero_width", {"zero_width": {"joiners": True}}, "bidi", "punctuation",
    {"punctuation": {"quotes": False, "dashes": False}}, "full_width", "tatweel", "ascii_digits",
    {"strip_accents": "none"}, {"strip_accents": "latin-only"}, {"strip_accents": "all"},
    "whitespace", {"whitespace": {"newlines": "space"}}, {"whitespace": {"newlines": "paragraphs"}},
    {"whitespace": {"strip": False}}, {"whitespace": {"collapse": False}}, {"whitespace": {"python": True}},
    "repeated_punctuation", {"repeated_punctuation": 1}, "isolate_digits", {"isolate_digits": {"runs": True}},
    {"segment": "han"}, {"segment": "japanese"}, {"segment": "thai"}, {"segment": "all"},
    {"emoji": "isolate"}, {"emoji": "describe"}, {"emoji": "drop"}, {"emoji": "keep"},
    "html_entities", "ftfy", "mojibake", {"regex": {"pattern": r"(\w)\1+", "replace": r"<\1>"}},
]  # fmt: skip

_MORE = [
    "  ", "\n\n", "\r\n", " \n ", "\t", "!!!!", "?!?!", "......", "12", "٣٤", "a1b", "é", "e\u0301", "ñ\u0303",
    "Ă\ufe0f",     "👨\u200d👩\u200d👧", "🇩🇪🇫", "1\ufe0f\u20e3", "#\u20e3", "👋🏽", "☺\ufe0f", "☺\ufe0e", "©",
    "🏴\U000e0067\U000e0062\U000e007f",
    "&amp;", "&lt", "&notit;", "&#x41;", "&#xD800;", "&#128;", "&", "<b>", "schÃ¶n", "â€œ", "“”‘’", "ﬁ",
    "漢字", "かな", "カー", "漢か", "ーa", "เด็ก", "ไทย1", "น้ำa", "ๆ", "漢\u0301", "\x1b[0m", "Ą", "°",
        "वि", "ไทย",
    " \u3000 ", "\x1c", "1٣", "…………",
    "שָ", "Ａ！０", "…", "—", "aaaa", "ΑΣ", "ـــ", "\u202e", "\ufffd", "a" * 9, "x " * 5,
]  # fmt: skip


def hostile() -> st.SearchStrategy[str]:
    return st.one_of(texts(), st.lists(st.one_of(st.sampled_from(_MORE), texts(6)), max_size=12).map("".join))


def known_to_python(text: str) -> str:
    """Leaves out what Python's older Unicode knows nothing about; it is compared in a test of its own."""
    return "".join(c for c in text if unicodedata.category(c) != "Cn")


def one_step(config: object) -> TextStep:
    (step,) = parse_steps([config])  # type: ignore[list-item]
    return step


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@FEWER
@given(rows=st.lists(hostile(), max_size=5), begins=st.booleans(), ends=st.booleans(), skip=st.integers(0, 2))
def test_kernel_agrees_with_its_reference(config: object, rows: list[str], begins: bool, ends: bool, skip: int) -> None:
    rows = [known_to_python(row) for row in rows]
    step = one_step(config)
    ragged = text_rows(pa.array(rows, pa.large_string()).slice(min(skip, len(rows))))
    rows = rows[skip:]
    applied = step.apply_rows(ragged, Edges(np.full(len(rows), begins), np.full(len(rows), ends)))
    edits = [reference.edits(step, row, begins, ends) for row in rows]
    assert [step.edits(row, begins, ends) for row in rows] == edits
    found = [
        applied.rows.values[a:b].tobytes().decode()
        for a, b in zip(applied.rows.offsets[:-1], applied.rows.offsets[1:], strict=True)
    ]
    assert found == [replaced(row, e) for row, e in zip(rows, edits, strict=True)]
    assert applied.n_chars_changed == sum(map(n_changed, edits))
    if not any(edits):
        assert applied.rows is ragged


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_text_that_needs_nothing_is_returned_as_it_is(config: object) -> None:
    column = pa.array(["plain words, nothing more.", "", None, "two"], pa.large_string())
    if isinstance(config, dict) and "regex" in config:
        column = pa.array(["plain words"], pa.large_string())
    after, (report,) = TextChain.from_config([config]).apply(column)  # type: ignore[list-item]
    assert after is column
    assert (report.n_documents_changed, report.n_chars_changed) == (0, 0)
    assert report.n_chars == report.n_chars_after


@given(rows=st.lists(st.one_of(st.just("plain words"), hostile()), max_size=9), cuts=st.sets(st.integers(1, 8)))
def test_a_chain_is_its_steps_one_after_the_other_reports_and_all(rows: list[str], cuts: set[int]) -> None:
    """Steps that are about rare characters run on the rows that have some; nobody may notice."""
    config = ["nfc", "control_characters", "zero_width", "tatweel", "lowercase", "full_width", "punctuation", "nfkd"]
    ragged = text_rows(pa.array(rows, pa.large_string()))
    documents = np.array(sorted({0, len(rows)} | {cut for cut in cuts if cut < len(rows)}), np.int64)
    edges = Edges(np.isin(np.arange(len(rows)), documents[:-1]), np.isin(np.arange(len(rows)) + 1, documents[1:]))
    result = TextChain.from_config(config).apply_rows(ragged, edges, documents)
    part, reports = ragged, []
    for step in config:
        found = TextChain.from_config([step]).apply_rows(part, edges, documents)
        part = found.rows
        reports += found.reports
    assert [result.rows.values[a:b].tobytes() for a, b in itertools.pairwise(result.rows.offsets)] == [
        part.values[a:b].tobytes() for a, b in itertools.pairwise(part.offsets)
    ]
    assert result.reports == reports


# Normal forms, case: over all of Unicode.


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_normal_forms_are_those_of_unicodedata_on_every_code_point(form: str) -> None:
    after, _ = TextChain.from_config([form.lower()]).apply(pa.array(KNOWN))
    assert after.to_pylist() == [unicodedata.normalize(form, c) for c in KNOWN]


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_normal_forms_are_those_of_the_newest_unicode_too(form: str) -> None:
    newest = pytest.importorskip("unicodedata2")
    assert newest.unidata_version == tables.UNICODE_VERSION
    after, _ = TextChain.from_config([form.lower()]).apply(pa.array(ALL))
    assert after.to_pylist() == [newest.normalize(form, c) for c in ALL]


def test_case_folding_is_that_of_python_on_every_code_point() -> None:
    after, _ = TextChain.from_config(["casefold"]).apply(pa.array(KNOWN))
    assert after.to_pylist() == [c.casefold() for c in KNOWN]


# Accents.


def classical(text: str) -> str:
    # U+1171E was a nonspacing mark up to Unicode 15, which is what Python 3.11 and 3.12 know.
    parts = unicodedata.normalize("NFD", text)
    return "".join(c for c in parts if unicodedata.category(c) != "Mn" or c == "\U0001171e")


@given(text=hostile().map(known_to_python))
@example("\U0001171e\u0301")
def test_stripping_all_accents_is_the_classical_recipe_up_to_normalization(text: str) -> None:
    after = TextChain.from_config([{"strip_accents": "all"}, "nfc"]).apply(pa.array([text]))[0][0].as_py()
    assert after == unicodedata.normalize("NFC", classical(text))


# Clean-up, markup, mojibake.


@given(text=hostile())
def test_entities_are_those_of_html_unescape(text: str) -> None:
    assert TextChain.from_config(["html_entities"]).apply(pa.array([text]))[0].to_pylist() == [html.unescape(text)]


def test_every_named_entity_is_found_with_and_without_its_semicolon() -> None:
    sources = [f"a&{name}b{extra}" for name in html.entities.html5 for extra in ("", ";", "=")]
    after, _ = TextChain.from_config(["html_entities"]).apply(pa.array(sources))
    assert after.to_pylist() == [html.unescape(source) for source in sources]


def test_references_of_thousands_of_digits_are_read_as_all_others() -> None:
    # Beyond 4300 digits Python refuses to read a number, and html.unescape fails.
    for digits in ("65", "0065", "128", "0", "1114111", "1114112", "55296", "99999999", "0" * 300 + "65", "9" * 300):
        for text in (f"a&#{digits};b", f"a&#{digits}b"):
            assert TextChain.from_config(["html_entities"]).apply(pa.array([text]))[0].to_pylist() == [
                html.unescape(text)
            ]
    huge = [f"a&#{'1' * 5000};b", f"a&#{'0' * 5000}65;b", f"a&#x{'0' * 5000}41;b"]
    after, _ = TextChain.from_config(["html_entities"]).apply(pa.array(huge))
    assert after.to_pylist() == ["a\ufffdb", "aAb", "aAb"]


@given(text=st.one_of(hostile(), st.text(st.characters(codec="utf-8", max_codepoint=0x17F), max_size=30)))
def test_ftfy_is_ftfy(text: str) -> None:
    assert TextChain.from_config(["ftfy"]).apply(pa.array([text]))[0].to_pylist() == [ftfy.fix_text(text)]
    lines = [ftfy.fix_encoding(line) for line in text.splitlines(keepends=True)]
    assert TextChain.from_config(["mojibake"]).apply(pa.array([text]))[0].to_pylist() == ["".join(lines)]


def test_ftfy_takes_long_lines_in_parts() -> None:
    # A million characters at once; only what comes after a `<` is taken for HTML.
    text = "&amp;“" + "a" * 1_100_000 + "<&amp;”\n&amp;”"
    assert TextChain.from_config(["ftfy"]).apply(pa.array([text]))[0].to_pylist() == [ftfy.fix_text(text)]


@pytest.mark.parametrize(
    "marks",
    [
        "\u0300\u0316",
        "\u0f73",  # of class 0, but its decomposition is \u0f71\u0f72
        "\u0300\u0316".encode().decode("cp1252"),
        "&#768;&#790;",
    ],
    ids=ascii,
)
def test_a_document_of_combining_marks_on_which_ftfy_would_take_minutes_is_rejected(marks: str) -> None:
    texts = ["a" + marks * 200_000, "“", "“\n" * 2000 + "a" + marks * 400, "“" + "x" * 20_000 + marks * 400]
    after, (report,) = TextChain.from_config(["ftfy"]).apply(pa.array(texts))
    assert after.to_pylist() == [None, *map(ftfy.fix_text, texts[1:])]
    assert report.n_documents_rejected == 1


def test_lines_that_ftfy_is_not_asked_about_are_lines_it_leaves_alone() -> None:
    quiet = "".join(map(chr, range(0x20, 0x7F))).replace("&", "") + "\t"
    assert all(row_steps._is_active(c) for c in map(chr, range(0x110000)) if c not in quiet + "\n")
    lines = [quiet, *(f"{a}{b}{b}x {a}" for a in quiet for b in quiet), "&".join(quiet).replace("&", "a; ")]
    assert not any(map(row_steps._is_active, lines))
    assert [line for line in lines if ftfy.fix_text(line) != line or ftfy.fix_encoding(line) != line] == []
    rows = text_rows(pa.array(["a\n\tb", "a&", "é", "a\x1b", "a\x7f", "a\r\n", "~ !", ""]))
    assert list(one_step("ftfy").candidates(rows)) == [1, 2, 3, 4, 5]


def openai_clean(text: str) -> str:
    """What OpenAI's CLIP does to a text before it is split: basic_clean, whitespace_clean, lower-case."""
    text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    return re.sub(r"\s+", " ", text).strip().lower()


@given(text=hostile())
def test_clip_cleans_as_openai_does(text: str) -> None:
    chain = TextChain.from_config(["basic_clean", "whitespace_clean"])
    cleaned = chain.apply(pa.array([text]))[0][0].as_py()
    assert cleaned.lower() == openai_clean(text)


# Emoji.


@given(text=hostile())
def test_an_emoji_is_never_cut_where_its_grapheme_goes_on(text: str) -> None:
    ends = {0}
    for cluster in regex.findall(r"\X", text):
        ends.add(max(ends) + len(cluster))
    for unit in reference.emoji_pattern().finditer(text):
        assert unit.end() in ends


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        ("😀", ":grinning_face:"),
        ("👨\u200d👩\u200d👧", ":man_woman_girl:"),
        ("🇩🇪", ":flag_de:"),
        ("1\ufe0f\u20e3", ":keycap_1:"),
        ("👋🏽", ":waving_hand_sign_emoji_modifier_fitzpatrick_type-4:"),
        ("☺\ufe0f", ":white_smiling_face:"),
        ("🏴\U000e0067\U000e0062\U000e007f", ":waving_black_flag_gb:"),
    ],
)
def test_emoji_are_units_and_have_names(unit: str, name: str) -> None:
    def run(mode: str, text: str) -> str:
        return TextChain.from_config([{"emoji": mode}]).apply(pa.array([text]))[0][0].as_py()

    assert describe(unit) == name
    assert run("isolate", f"a{unit}{unit}b") == f"a {unit} {unit} b"
    assert run("isolate", run("isolate", f"a{unit}b")) == f"a {unit} b"
    assert run("describe", f"a{unit}b") == f"a{name}b"
    assert run("drop", f"a{unit}b") == "ab"
    assert run("keep", f"a{unit}b") == f"a{unit}b"


# Regular expressions, chains, configs.


def test_a_document_on_which_an_expression_takes_too_long_is_rejected_and_counted() -> None:
    chain = TextChain.from_config(
        ["lowercase", {"regex": {"pattern": "(?:(?:x|xx)+)+[yz]", "seconds": 0.05}}, "lowercase"]
    )
    after, reports = chain.apply(pa.array(["Fine xxy", "x" * 60, None]))
    assert after.to_pylist() == ["fine ", None, None]
    assert [r.n_documents_rejected for r in reports] == [0, 1, 0]
    assert reports[1].n_documents_changed == 1


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("abc", 3),
        (r"\(a\{3}", 5),
        ("a{3}b{2,5}c*d{,4}", 12),
        ("[a{9}(]{4}", 4),
        ("[[a-z]--[aeiou]]{2}", 2),
        ("(?:ab){3}", 15),  # counted too high: `?` and `:` are no elements, a group is one more
        ("(a{2}){3}", 9),
        ("a){3}", 4),
    ],
)
def test_repetitions_of_a_pattern_are_counted_as_they_are_compiled(pattern: str, expected: int) -> None:
    assert n_elements(pattern) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("nfx", r"normalize\[0\]: unknown step 'nfx'; did you mean 'nf.*'\?; allowed: "),
        ("xyz", "unknown step 'xyz'; allowed: ascii_digits, "),
        ({"lowercase": True}, "lowercase: options must be a mapping of final_sigma, got True"),
        ({"bidi": "all"}, "bidi has no options, got 'all'"),
        ({"nfc": {}}, "nfc has no options"),
        (
            {"whitespace": {"newline": "keep"}},
            "whitespace: unknown option 'newline'; allowed: collapse, strip, newlines",
        ),
        ({"whitespace": {"collapse": 1}}, "whitespace.collapse: must be bool, got 1"),
        ({"whitespace": {"newlines": "drop"}}, "newlines must be space, keep or paragraphs, got 'drop'"),
        ({"strip_accents": "latin"}, "mode must be none, latin-only or all, got 'latin'"),
        ({"regex": {"replace": "x"}}, "regex: pattern is required"),
        ({"regex": "("}, "is no regular expression"),
        ({"regex": {"pattern": "a", "replace": r"\1"}}, "is no group of pattern"),
        ({"regex": {"pattern": "a", "seconds": 0.0}}, "seconds must be more than 0"),
        ({"regex": "(" * 4000 + "a" + ")" * 4000}, "nests too deeply"),
        ({"regex": "(?:(?:a{1000}){1000}){1000}"}, r"repeats its parts to 1003003000 elements, allowed are 100000"),
        ({"regex": {"pattern": "a", "replace": "\ud800"}}, r"replace of pattern 'a' must be text, .*'\\ud800'"),
        ({"emoji": "smile"}, "mode must be isolate, describe, drop or keep"),
        ({"repeated_punctuation": 0}, "most must be from 1 to 1000, got 0"),
        (7, "must be the name of a step"),
    ],
)
def test_a_mistake_in_a_config_says_what_is_allowed(config: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_steps([config])  # type: ignore[list-item]
