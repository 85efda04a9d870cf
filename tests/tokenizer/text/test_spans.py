# SPDX-License-Identifier: Apache-2.0
"""Special spans: found where their reference implementation finds them, one token each, and nothing else changes."""

import itertools
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import text_steps as reference
from tests.strategies import texts
from tokenmill.tokenizer import Tokenizer, decoders, pre_tokenizers
from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.ragged import text_rows
from tokenmill.tokenizer.text.spans import RESERVED, SpanFinder, SpanRule
from tokenmill.tokenizer.text.tokenizing import TextTokenizer

RULES = [
    SpanRule("[URL]", find="url", keep_source=True),
    SpanRule("[MAIL]", find="email"),
    SpanRule("[EMOJI]", find="emoji", keep_source=True),
    SpanRule("[NUM]", find="number", keep_source=True),
    SpanRule("[REP]", find="repeated"),
    SpanRule("[SPACE]", find="whitespace"),
    SpanRule("[BR]", literal="<br>"),
    SpanRule("[ORDER]", regex=r"(?i)ord-\d+|é+"),
]
_PIECES = [
    "http://a.b/c?d=e", "HTTPS://x.", "www.a", "www.", "ftp://", "https://例え", "(http://a.b).", "a@b.co",
    "a@b@c.de", "x@y.c",
    "a@b.co.1x", "@", "a@b..co", "12", "1,234.5", "1.", ".5", "٣٤٫", "१२", "1٣", "x1y2", "<br>", "<br", "<<br>>",
    "!!!!", "aaaa",
    "ééééé", "....", "    ", " \u3000 ", "\n\n\n", "😀", "👨\u200d👩\u200d👧", "🇩🇪🇩", "1\ufe0f\u20e3",
    "ORD-7", "ord-", "abc", "[NUM]", "[PAD]",
    "\ue000", "\U000f0000", "mill", "the", "text",
]  # fmt: skip


def hostile() -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.sampled_from(_PIECES), texts(5)), max_size=12).map("".join)


def rule_lists() -> st.SearchStrategy[list[SpanRule]]:
    return st.lists(st.sampled_from(RULES), min_size=1, max_size=4, unique=True)


@pytest.fixture(scope="module")
def bert(tiny_vocab: list[str]) -> Tokenizer:
    return Tokenizer.for_bert(tiny_vocab, oov="contain")


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    vocab = {c: i for i, c in enumerate(sorted(BYTE_ALPHABET))}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    return Tokenizer(
        model=BPE(vocab, merges, byte_level=True),
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoder=decoders.ByteLevel(),
    )


MORE_RULES = [
    *RULES, SpanRule("[TWICE]", find="repeated", least=2), SpanRule("[ONE]", find="whitespace", least=1),
    SpanRule("[AA]", literal="aa"),
]  # fmt: skip


@given(
    rows=st.lists(hostile(), max_size=4), skip=st.integers(0, 1),
    rules=st.lists(st.sampled_from(MORE_RULES), min_size=1, max_size=4, unique=True),
)  # fmt: skip
def test_spans_are_where_the_reference_finds_them(rows: list[str], rules: list[SpanRule], skip: int) -> None:
    finder = SpanFinder(rules)
    cut = finder.cut(text_rows(pa.array(rows, pa.large_string()).slice(min(skip, len(rows)))))
    expected = [reference.find_spans(tuple(rules), row) for row in rows[skip:]]
    assert [finder.find_text(row) for row in rows[skip:]] == expected
    if cut is None:
        assert not any(expected)
        return
    parts = pa.LargeStringArray.from_buffers(
        len(cut.rules), pa.py_buffer(cut.rows.offsets), pa.py_buffer(cut.rows.values)
    ).to_pylist()
    for row, spans, (first, last) in zip(
        rows[skip:], expected, itertools.pairwise(cut.documents.tolist()), strict=True
    ):
        pieces: list[tuple[str, int]] = []
        at = 0
        for start, stop, rule in spans:
            pieces += [(row[at:start], -1)] if at < start else []
            pieces.append(("", rule))
            at = stop
        pieces += [(row[at:], -1)] if at < len(row) or not pieces else []
        assert list(zip(parts[first:last], cut.rules[first:last].tolist(), strict=True)) == pieces


@pytest.mark.parametrize("kind", ["bert", "byte_level"])
@given(text=hostile(), rules=rule_lists())
def test_a_span_is_its_token_once_at_its_place_and_nothing_else_changes(
    kind: str, text: str, rules: list[SpanRule], request: pytest.FixtureRequest
) -> None:
    plain = request.getfixturevalue(kind)
    tok = TextTokenizer(plain, spans=rules)
    spans = tok.finder.find_text(text)
    encoding = tok.encode(text, add_special_tokens=False)
    ids = {tok.tokenizer.token_to_id(rule.token): i for i, rule in enumerate(rules)}
    at_spans = [(*span, ids[i]) for i, span in zip(encoding.ids, encoding.offsets, strict=True) if i in ids]
    assert at_spans == spans
    # The rest is what lies between, as if it stood alone.
    expected: list[tuple[int, tuple[int, int]]] = []
    at = 0
    for start, stop, rule in [*spans, (len(text), len(text), -1)]:
        between = plain.encode(text[at:start], add_special_tokens=False)
        expected += [(i, (a + at, b + at)) for i, (a, b) in zip(between.ids, between.offsets, strict=True)]
        if rule >= 0:
            expected.append((tok.tokenizer.token_to_id(rules[rule].token), (start, stop)))
        at = stop
    assert list(zip(encoding.ids, encoding.offsets, strict=True)) == expected
    # The column says the same.
    encoded = tok.encode_arrow(pa.array([text, "", text]))
    assert encoded.ids.to_pylist() == [encoding.ids, [], encoding.ids]
    assert sum(encoded.prepared.n_spans.values()) == 2 * len(spans)


@pytest.fixture(scope="module")
def metaspace() -> Tokenizer:
    letters = [chr(c) for c in range(32, 127)]
    vocab = {c: i for i, c in enumerate(["<x>", "▁", "▁the", *letters, "th", "the"])}
    merges = [("t", "h"), ("th", "e"), ("▁", "the")]
    return Tokenizer(
        model=BPE(vocab, merges, unk_token="<x>"),
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=True),
        decoder=decoders.Metaspace(prepend_scheme="first"),
    )


CHAIN = ["nfkc", "whitespace", "html_entities", "punctuation", {"emoji": "isolate"}, "lowercase"]


@pytest.mark.parametrize("kind", ["bert", "byte_level", "metaspace"])
@given(text=hostile(), rules=st.one_of(st.just([]), rule_lists()))
def test_one_text_has_the_ids_of_the_column_and_offsets_into_the_raw_text(
    kind: str, text: str, rules: list[SpanRule], request: pytest.FixtureRequest
) -> None:
    text = "".join(c for c in text if unicodedata.category(c) != "Cn")
    tok = TextTokenizer(request.getfixturevalue(kind), normalize=CHAIN, spans=rules)
    encoding = tok.encode(text, add_special_tokens=False)
    assert tok.encode_arrow(pa.array(["the", text])).ids[1].as_py() == encoding.ids
    assert all(0 <= start <= stop <= len(text) for start, stop in encoding.offsets)
    ids = {tok.tokenizer.token_to_id(rule.token) for rule in rules}
    at_spans = [span for i, span in zip(encoding.ids, encoding.offsets, strict=True) if i in ids]
    assert at_spans == [(start, stop) for start, stop, _ in tok.finder.find_text(text)]


@given(text=hostile(), rules=rule_lists())
def test_spans_that_keep_their_source_decode_to_the_original_text(
    text: str, rules: list[SpanRule], byte_level: Tokenizer
) -> None:
    tok = TextTokenizer(byte_level, spans=[SpanRule(**{**vars(rule), "keep_source": True}) for rule in rules])
    encoded = tok.encode_arrow(pa.array(["x", text]))
    assert encoded.sources is not None
    assert tok.decode(encoded.ids[1].as_py(), encoded.sources[1].as_py()) == text
    assert tok.decode(encoded.ids[0].as_py(), encoded.sources[0].as_py()) == "x"


def test_only_rules_that_ask_for_it_keep_their_source(bert: Tokenizer) -> None:
    tok = TextTokenizer(bert, spans=RULES)
    encoded = tok.encode_arrow(pa.array(["the 7 mill <br> http://a.b", None, "a"]))
    assert encoded.sources is not None
    assert encoded.sources.to_pylist() == [["7", None, "http://a.b"], [], []]
    ids = encoded.ids[0].as_py()
    assert tok.decode(ids, encoded.sources[0].as_py()) == "the 7 mill http://a.b"
    assert tok.decode(ids, skip_special_tokens=False) == "the [NUM] mill [BR] [URL]"
    assert encoded.ids[1].as_py() is None


def test_the_text_of_a_token_and_private_characters_are_no_way_in(bert: Tokenizer) -> None:
    tok = TextTokenizer(bert, spans=[SpanRule("[NUM]", find="number")])
    number = tok.tokenizer.token_to_id("[NUM]")
    private = "".join(chr(c) for c in range(0xE000, 0xF900))
    for text in ("[NUM]", " [NUM] ", "a[NUM]b", private, " ".join(private), "\U000f0000\U0010fffd"):
        assert number not in tok.encode(text).ids
        assert number not in tok.encode_arrow(pa.array([text])).ids[0].as_py()


def test_spans_of_tokens_that_a_tokenizer_has_use_them_and_others_get_the_next_ids(bert: Tokenizer) -> None:
    assert bert.n_ids == 28
    tok = TextTokenizer(bert, spans=[SpanRule("[NUM]", find="number"), SpanRule("mill", literal="MILL")])
    assert tok.tokenizer.token_to_id("[NUM]") == 28
    assert tok.tokenizer.token_to_id("mill") == bert.token_to_id("mill")
    assert tok.encode("MILL 7", add_special_tokens=False).ids == [bert.token_to_id("mill"), 28]
    restored = Tokenizer.from_str(tok.tokenizer.to_str())
    assert TextTokenizer(restored, spans=tok.finder.rules).tokenizer.to_str() == tok.tokenizer.to_str()


def test_a_document_on_which_an_expression_takes_too_long_is_rejected(bert: Tokenizer) -> None:
    rules = [SpanRule("[X]", regex="(?:(?:x|xx)+)+[yz]", seconds=0.05), SpanRule("[NUM]", find="number")]
    encoded = TextTokenizer(bert, spans=rules).encode_arrow(pa.array(["the 7", "1" + "x" * 60, "mill"]))
    assert encoded.prepared.rejected.tolist() == [False, True, False]
    assert encoded.ids.to_pylist()[1] is None
    assert encoded.prepared.n_spans == {"[X]": 0, "[NUM]": 1}


@pytest.mark.parametrize("token", sorted(RESERVED))
def test_a_token_that_has_a_function_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="has a function already"):
        SpanRule(token, find="number")


def test_a_token_that_has_a_function_in_this_tokenizer_is_refused(tiny_vocab: list[str]) -> None:
    tok = Tokenizer.for_bert(tiny_vocab)
    tok.enable_padding(pad_token="mill")
    with pytest.raises(ValueError, match="span token 'mill' is the padding token of the tokenizer"):
        TextTokenizer(tok, spans=[SpanRule("mill", find="number")])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"must have one of find, regex and literal, got \[\]"),
        ({"find": "number", "literal": "7"}, r"got \['find', 'literal'\]"),
        ({"find": "numbers"}, "find must be one of number, url, .*did you mean 'number'"),
        ({"regex": "("}, "is no regular expression"),
        ({"literal": ""}, "literal must not be empty"),
        ({"literal": "\ud800"}, r"span '\[X\]': literal must be text, but holds the lone surrogate '\\ud800'"),
        ({"regex": "(" * 4000 + "a" + ")" * 4000}, "nests too deeply"),
        ({"find": "number", "least": 3}, "least goes with repeated and whitespace"),
        ({"find": "repeated", "least": 1}, "one character is not repeated"),
        ({"regex": "a", "seconds": 0}, "seconds must be more than 0"),
    ],
)
def test_a_mistake_in_a_rule_says_what_is_allowed(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpanRule("[X]", **fields)
