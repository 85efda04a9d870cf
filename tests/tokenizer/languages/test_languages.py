# SPDX-License-Identifier: Apache-2.0
"""Languages of documents: the kernel against its reference implementation, and rules for seven languages, each checked
by hand."""

import re
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.languages import identify_text
from tests.strategies import text_columns, texts
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.languages import (
    RULES,
    SCRIPTS,
    LanguageTextTokenizer,
    LanguageTokenizers,
    identify,
    identifying,
    language_codes,
)
from tokenmill.tokenizer.languages.scripts import count_scripts, script_table
from tokenmill.tokenizer.ragged import text_rows
from tokenmill.tokenizer.text import TextChain

SENTENCES = {
    "en": "All human beings are born free and equal in dignity and rights.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "uk": "Всі люди народжуються вільними і рівними у своїй гідності та правах.",
    "ar": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "fa": "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "ne": "सबै व्यक्तिहरू जन्मजात स्वतन्त्र हुन् ती सबैको समान अधिकार र महत्व छ।",
    "th": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "zh": "人人生而自由，在尊严和权利上一律平等。",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "und": "12345 ... !!!",
}


def mixtures() -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.sampled_from([*SENTENCES.values(), " ", "ÀÉ"]), texts(8)), max_size=40).map("".join)


def test_sentences_are_in_their_languages() -> None:
    assert identify(list(SENTENCES.values())).codes.to_pylist() == list(SENTENCES)


def test_scripts_are_those_of_unicode() -> None:
    for number, name in enumerate(SCRIPTS):
        if name and name != "Hiragana":
            found = regex.findall(rf"\p{{Script={name}}}", "".join(map(chr, range(0x3400))))
            assert {ord(c) for c in found} == set(np.flatnonzero(script_table()[:0x3400] == number).tolist()), name


@given(text_columns())
def test_script_counts_are_those_of_plain_python(column: pa.Array) -> None:
    found = count_scripts(text_rows(column))
    for row, text in enumerate(column.to_pylist()):
        numbers = [int(script_table()[ord(c)]) for c in text or ""]
        assert found.total[row] == sum(number > 0 for number in numbers)
        assert found.n_kana[row] == numbers.count(SCRIPTS.index("Hiragana"))


@given(st.lists(mixtures(), max_size=6))
def test_columns_have_the_languages_of_the_reference_implementation(column: list[str]) -> None:
    # py3langid composes with Python's older Unicode.
    column = ["".join(c for c in text if unicodedata.category(c) != "Cn") for text in column]
    found = identify(pa.array(column, pa.string()))
    for row, text in enumerate(column):
        code, confidence, mixed = identify_text(text)
        assert found.confidence[row] == pytest.approx(confidence, abs=1e-3)
        if abs(confidence - 0.5) > 2e-3:
            assert (found.codes[row].as_py(), bool(found.mixed[row])) == (code, mixed)


def test_what_cannot_be_told_is_und() -> None:
    found = identify(pa.array(["", None, "123", "ok", "𐎀𐎁𐎂"]))
    assert found.codes.to_pylist() == ["und"] * 5
    assert found.confidence[:3].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "code, text, expected",
    [
        ("zh", "我爱ＡＢＣ，２０２４年！", "我 爱 ABC,2024 年 !"),
        ("zh", "中文English混排", "中 文 English 混 排"),
        ("zh", "你好\u200b世界。", "你 好 世 界 。"),
        ("ja", "東京ﾀﾜｰへ行きました", "東 京 タワー へ 行 きました"),
        ("ja", "ｶﾞﾗｽ１２３", "ガラス 123"),
        ("ja", "コーヒーを2杯", "コーヒー を 2 杯"),
        ("ko", "\u1112\u1161\u11ab글 １２", "한글 12"),
        ("ko", "나는 학교에 간다!", "나는 학교에 간다!"),
        ("ar", "الســـلام ١٢٣", "السلام 123"),
        ("ar", "\ufefb شَمْس", "لا شَمْس"),
        ("ar", "\u202bمرحبا\u202c", "مرحبا"),
        ("ru", "«Ёлка» — это ёй…", '"Ёлка" - это ёй...'),
        ("ru", "и\u0306 и\u0301", "й и\u0301"),
        ("th", "เด็กไทย๑๒", "เด็ ก ไท ย 12"),
        ("th", "น้ำ\u200bมาก", "น้ำ มา ก"),
        ("hi", "\u0958लम १२", "\u0915\u093cलम 12"),
        ("hi", "क्\u200dष हिन्दी", "क्\u200dष हिन्दी"),
        ("default", "Caf\u0065\u0301 “x”\u200b", "Café “x”"),
    ],
)
def test_rules_of_languages_do_what_was_checked_by_hand(code: str, text: str, expected: str) -> None:
    assert TextChain.from_config(RULES[code]).apply([text])[0].to_pylist() == [expected]


def test_every_document_takes_the_rule_of_its_language(tiny_vocab_file: object) -> None:
    routed = LanguageTextTokenizer(
        Tokenizer.from_file(str(tiny_vocab_file)), rules={"ru": ["casefold"], "default": ["lowercase"]}
    )
    column = pa.array([SENTENCES["en"], SENTENCES["ru"], None, SENTENCES["zh"], SENTENCES["fr"]])
    prepared = routed.prepare(column)
    expected = [
        SENTENCES["en"].lower(), SENTENCES["ru"].casefold(), "",
        SENTENCES["zh"].lower(), SENTENCES["fr"].lower(),
    ]  # fmt: skip
    assert prepared.texts().to_pylist() == expected
    reports = {report.step: report for report in prepared.reports}
    assert reports["ru.casefold"].n_documents == 1
    assert reports["default.lowercase"].n_documents == 4
    assert [*reports] == ["default.lowercase", "ru.casefold"]


@given(st.lists(st.one_of(mixtures(), st.sampled_from([*SENTENCES.values()])), max_size=8))
def test_one_pass_over_a_mixed_column_gives_what_each_language_gives_alone(column: list[str]) -> None:
    spans = [{"token": "[NUM]", "find": "number"}]
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz人"])}
    routed = LanguageTextTokenizer(
        Tokenizer.for_bert(vocab, oov="contain"), rules=RULES, spans=spans, normalize=["nfc"]
    )
    together = routed.encode_arrow(pa.array(column, pa.string())).ids.to_pylist()
    assert together == [routed.encode_arrow([text]).ids[0].as_py() for text in column]
    assert together == [routed.encode(text, add_special_tokens=False).ids for text in column]


def test_a_rule_for_a_language_that_is_not_known_is_refused(tiny_vocab_file: object) -> None:
    with pytest.raises(ValueError, match="'xx' is no language"):
        LanguageTextTokenizer(Tokenizer.from_file(str(tiny_vocab_file)), rules={"xx": []})
    with pytest.raises(ValueError, match="'default'"):
        LanguageTokenizers({})


def test_codes_are_iso_639() -> None:
    assert {"und", "ja", "zh", "ko", "en", "ru", "ar", "hi", "th", "bo"} <= set(language_codes())
    assert all(re.fullmatch("[a-z]{2,3}", code) for code in language_codes())


def test_a_py3langid_that_keeps_its_model_elsewhere_is_an_error_with_the_version_to_install(monkeypatch):
    monkeypatch.delattr("py3langid.langid.LanguageIdentifier.from_model_file")
    with pytest.raises(ImportError, match=r"py3langid \S+ keeps its model in another way; install py3langid 0\.4"):
        identifying.load_model.__wrapped__()
