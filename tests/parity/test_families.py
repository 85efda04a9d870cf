# SPDX-License-Identifier: Apache-2.0
"""Whole tokenizers of every family against HF tokenizers: loaded from HF's file, they give the same of everything."""

import itertools
import json
from collections import Counter

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tokenizers import normalizers, pre_tokenizers  # noqa: E402

from tests import strategies  # noqa: E402
from tests.parity import families  # noqa: E402
from tokenmill.tokenizer import Tokenizer, TokenizerFileError  # noqa: E402
from tokenmill.tokenizer.models import Unigram  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "tokens of unknown pieces": "the unknown token; HF's Unigram gives the text of the piece",
    "tokens of added tokens": "the token; HF gives the text that matched, normalized and with its white space",
    "added tokens that normalize to nothing": "never found; HF cuts the text at every character",
    "a start that normalizes to white space": "Metaspace's `first` sees what is left; HF asks where it came from",
    "ids of added tokens, with gaps": "those of the file, which explain() says; HF takes the next free ones",
    "several parts of a first character": "`first` of Metaspace is the first of them; HF takes all for it",
}
ATTRIBUTES = (
    "ids", "tokens", "type_ids", "attention_mask", "special_tokens_mask", "offsets", "word_ids", "sequence_ids",
)  # fmt: skip


@pytest.fixture(scope="module", params=[*families.FAMILIES])
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, "hf.Tokenizer"]:
    """A tokenizer of a family in both libraries."""
    text = families.family(request.param)
    theirs = hf.Tokenizer.from_str(text)
    theirs.encode_special_tokens = True
    return Tokenizer.from_str(text), theirs


def assert_same_ids(ours: Tokenizer, theirs: "hf.Tokenizer", texts: list[str]) -> None:
    rows = ours.encode_arrow(pa.array(texts, pa.large_string()), add_special_tokens=True)
    for text, row, expected in zip(texts, rows, families.ids_of(theirs, texts), strict=True):
        assert row.as_py() == expected, repr(text)


def test_ids_on_the_sample(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    assert_same_ids(*pair, families.sample())


def test_ids_on_all_kinds_of_code_points(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    # That each part is HF's on every code point other files show. Many to a row: that costs HF more than a character.
    texts = [
        "".join(context.replace("{c}", c) for c in planes[i : i + 97])
        for planes, context in ((strategies.OF_EACH_KIND, "a{c}b {c} {c}{c}1 "), (strategies.UNIFORM_PLANES, "a{c} "))
        for i in range(0, len(planes), 97)
    ]
    assert_same_ids(*pair, texts)


def test_ids_on_hostile_text(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    @strategies.FEWER
    @given(st.lists(strategies.texts(), max_size=10))
    def check(texts: list[str]) -> None:
        assert_same_ids(*pair, texts)

    check()


def test_everything_an_encoding_has(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    ours, theirs = pair
    unk_id = ours.model.unk_id if isinstance(ours.model, Unigram) else None

    def check(text: str, other: str | None, special: bool) -> None:
        got, expected = (
            ours.encode(text, other, add_special_tokens=special),
            theirs.encode(text, other, add_special_tokens=special),
        )
        for name in ATTRIBUTES:
            if name == "tokens" and unk_id is not None:
                # For an unknown piece HF's Unigram gives the text, we the unknown token; see DIFFERENCES.
                known = [i for i, token_id in enumerate(expected.ids) if token_id != unk_id]
                assert [got.tokens[i] for i in known] == [expected.tokens[i] for i in known]
            else:
                assert getattr(got, name) == getattr(expected, name), (name, text, other)

    for text in families.sample():
        check(text, None, True)
    strategies.FEWER(given(strategies.texts(30), st.one_of(st.none(), strategies.texts(10)), st.booleans())(check))()


def test_the_differences_are_these() -> None:
    """Each listed difference is real; what is not listed is equal by the tests above."""
    text = families.family("t5")
    ours, theirs = Tokenizer.from_str(text), hf.Tokenizer.from_str(text)
    seen = set()
    unknown = "\U0001d15e"
    assert ours.encode(unknown).ids == theirs.encode(unknown).ids
    if ours.encode(unknown).tokens != theirs.encode(unknown).tokens:
        seen.add("tokens of unknown pieces")
    text = families.family("added tokens")
    ours, theirs = Tokenizer.from_str(text), hf.Tokenizer.from_str(text)
    theirs.add_tokens([hf.AddedToken("<x>", lstrip=True, normalized=False)])
    ours = Tokenizer.from_str(theirs.to_str())
    assert ours.encode("a <x>").ids == theirs.encode("a <x>").ids
    if ours.encode("a <x>").tokens != theirs.encode("a <x>").tokens:
        seen.add("tokens of added tokens")
    theirs = hf.Tokenizer.from_str(families.family("gpt2"))
    theirs.add_tokens([hf.AddedToken(" ", rstrip=True, normalized=False)])
    ours = Tokenizer.from_str(theirs.to_str())
    assert ours.encode("a  b").ids == theirs.encode("a  b").ids
    assert ours.encode("a  b").offsets == theirs.encode("a  b").offsets
    fields = json.loads(families.family("added tokens"))
    assert Tokenizer.from_str(json.dumps(fields)).assumptions == ()
    fields["model"]["unk_token"] = "no entry"  # which the tokens of bytes never need
    del fields["added_tokens"][1]
    ours, theirs = Tokenizer.from_str(json.dumps(fields)), hf.Tokenizer.from_str(json.dumps(fields))
    assert "added token '  ' has id 701, as the file says; HF tokenizers takes the next free one, 700" in ours.explain()
    assert ours.encode("a b").offsets == theirs.encode("a b").offsets
    if (ours.encode("  ").ids, theirs.encode("  ").ids) == ([701], [700]):
        seen.add("ids of added tokens, with gaps")
    theirs = hf.Tokenizer.from_str(families.family("gpt2"))
    theirs.normalizer = normalizers.Replace("x", "")
    theirs.add_tokens([hf.AddedToken("x", normalized=True)])
    if Tokenizer.from_str(theirs.to_str()).encode("the").ids != theirs.encode("the").ids:
        seen.add("added tokens that normalize to nothing")
    theirs = hf.Tokenizer.from_str(families.family("metaspace first"))
    theirs.normalizer = normalizers.NFKC()
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")]
    )
    ours = Tokenizer.from_str(theirs.to_str())
    if ours.encode_arrow(pa.array(["\u00b4"])).to_pylist() != [theirs.encode("\u00b4", add_special_tokens=False).ids]:
        seen.add("a start that normalizes to white space")
    theirs.normalizer = normalizers.NFKC()
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Metaspace(prepend_scheme="first")]
    )
    ours = Tokenizer.from_str(theirs.to_str())
    if ours.encode_arrow(pa.array(["½"])).to_pylist() != [theirs.encode("½", add_special_tokens=False).ids]:
        seen.add("several parts of a first character")
    assert seen == set(DIFFERENCES)


def test_word_counts_are_those_of_hf(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    ours, theirs = pair
    assert_same_word_counts(ours, theirs, families.sample())


def assert_same_word_counts(ours: Tokenizer, theirs: "hf.Tokenizer", texts: list[str]) -> None:
    """Compares with what HF's trainers are fed; byte-level pre-tokens are spelled back to bytes."""
    counter = ours.new_word_counter()
    counter.update(pa.array(texts, pa.large_string()))
    found = {row["word"]: row["count"] for row in counter.to_table().to_pylist()}
    is_byte_level = "ByteLevel" in json.dumps(json.loads(theirs.to_str())["pre_tokenizer"])
    expected: Counter[bytes] = Counter()
    for text in texts:
        normalized = theirs.normalizer.normalize_str(text) if theirs.normalizer else text
        words = [normalized] if normalized else []
        if theirs.pre_tokenizer is not None:
            words = [word for word, _ in theirs.pre_tokenizer.pre_tokenize_str(normalized)]
        expected.update(bytes(map(_BYTE_OF.__getitem__, word)) if is_byte_level else word.encode() for word in words)
    assert found == expected


_BYTE_OF = {
    char: byte for byte, char in enumerate(chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None
    for b in range(256)) if char
}  # fmt: skip
_BYTE_OF |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in _BYTE_OF.values())}


@pytest.mark.parametrize("text", [" a b", "a b", "  ", ""])
def test_a_start_that_is_stripped_is_none_in_columns_and_texts(text: str) -> None:
    theirs = hf.Tokenizer.from_str(families.family("metaspace first"))
    theirs.normalizer = normalizers.Strip()
    expected = theirs.encode(text, add_special_tokens=False)
    ours = Tokenizer.from_str(theirs.to_str())
    found = ours.encode(text, add_special_tokens=False)
    assert (found.ids, found.offsets) == (expected.ids, expected.offsets)
    assert ours.encode_arrow(pa.array([text])).to_pylist() == [expected.ids]


@pytest.mark.parametrize("strips", list(itertools.product([False, True], repeat=4)))
def test_added_tokens_of_white_space_that_strip_white_space(strips: tuple[bool, ...]) -> None:
    theirs = hf.Tokenizer.from_str(families.family("gpt2"))
    theirs.add_tokens(
        [
            hf.AddedToken(content, lstrip=strips[i], rstrip=strips[i + 1], normalized=False)
            for i, content in ((0, " "), (2, "<x>"))
        ]
    )
    ours = Tokenizer.from_str(theirs.to_str())
    panics = strips[:2] == (True, False) and strips[3]  # where HF subtracts below zero
    texts = ["a   b", " <x>a ", *([] if panics else ["<x>  b", "  <x> <x>"])]
    expected = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    assert [ours.encode(text, add_special_tokens=False).ids for text in texts] == expected
    assert ours.encode_arrow(pa.array(texts)).to_pylist() == expected


def _with_more(value: object) -> object:
    """Puts a field that nobody knows into every part, added token and special token."""
    if isinstance(value, list):
        return [_with_more(item) for item in value]
    if not isinstance(value, dict):
        return value
    more = {"x_more": [1]} if {"type", "content", "ids"} & value.keys() else {}
    return {key: _with_more(item) if key not in ("vocab", "merges") else item for key, item in value.items()} | more


@pytest.mark.parametrize("name", ["bert and digits", "gpt2", "llama3", "llama2", "albert", "viking", "metaspace first"])
def test_fields_that_hf_ignores(name: str) -> None:
    fields = json.loads(families.family(name))
    text = json.dumps({key: _with_more(value) for key, value in fields.items()})
    ours, plain = Tokenizer.from_str(text), Tokenizer.from_str(families.family(name))
    assert hf.Tokenizer.from_str(text).to_str() == hf.Tokenizer.from_str(families.family(name)).to_str()
    assert ours.digest == plain.digest
    assert len(ours.ignored_fields) == text.count('"x_more"') > 0
    with pytest.raises(Exception, match="expected"):
        hf.Tokenizer.from_str(json.dumps(fields | {"x_more": 1}))
    with pytest.raises(TokenizerFileError, match="field 'x_more' is not supported"):
        Tokenizer.from_str(json.dumps(fields | {"x_more": 1}))
