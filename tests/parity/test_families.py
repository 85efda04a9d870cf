# SPDX-License-Identifier: Apache-2.0
"""Whole tokenizers of every family against HF tokenizers: loaded from HF's file, they give the same of everything."""

import json

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tokenizers import normalizers, pre_tokenizers  # noqa: E402

from tests import strategies  # noqa: E402
from tests.parity import families  # noqa: E402
from tokenmill.tokenizer import Tokenizer  # noqa: E402
from tokenmill.tokenizer.models import Unigram  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "tokens of unknown pieces": "the unknown token; HF's Unigram gives the text of the piece",
    "tokens of added tokens": "the token; HF gives the text that matched, normalized and with its white space",
    "added tokens that normalize to nothing": "never found; HF cuts the text at every character",
    "a start that normalizes to white space": "Metaspace's `first` sees what is left; HF asks where it came from",
    "ids of added tokens, with gaps": "those of the file, which explain() says; HF takes the next free ones",
    "several parts of a first character": "`first` of Metaspace is the first of them; HF takes all for it",
    "BPE-dropout of a file": "for sampling= only; HF drops merges in every call, at random",
    "tokens that take the same white space": "the first takes it; HF crashes if the second is white space itself",
    "Prepend of nothing": "changes nothing; HF forgets where the first character came from",
    "added tokens that normalize alike": "the last of them; HF draws one whenever a tokenizer is made",
    "Metaspace behind ByteLevel": "refused unless it changes nothing; HF puts what is no byte in front of bytes",
    "what Replace puts in front": "stays; HF's ByteLevel behind other pre-tokenizers has it twice, alone it crashes",
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
    theirs.normalizer = normalizers.Lowercase()
    theirs.add_tokens([hf.AddedToken(token, normalized=True) for token in ("É", "é")])
    text, last = theirs.to_str(), theirs.token_to_id("é")
    if len({*(hf.Tokenizer.from_str(text).encode("é").ids[0] for _ in range(64))}) == 2:
        assert Tokenizer.from_str(text).encode("é").ids == [last]
        seen.add("added tokens that normalize alike")
    theirs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), pre_tokenizers.Metaspace()])
    assert theirs.pre_tokenizer.pre_tokenize_str("a") == [("▁Ġa", (0, 1))]
    with pytest.raises(ValueError, match="cannot come after ByteLevel"):
        Tokenizer.from_str(theirs.to_str())
    seen.add("Metaspace behind ByteLevel")
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
    theirs = hf.Tokenizer.from_str(families.family("gpt2"))
    spaces = {"12": {"rstrip": True}, " ": {"lstrip": True}}
    theirs.add_tokens([hf.AddedToken(token, normalized=False, **flag) for token, flag in spaces.items()])
    ours = Tokenizer.from_str(theirs.to_str())
    try:
        theirs.encode("12  a")
    except BaseException:  # a panic of Rust
        if ours.encode("12  a").offsets == [(0, 4), (4, 5)]:
            seen.add("tokens that take the same white space")
    theirs = hf.Tokenizer.from_str(families.family("gpt2"))
    ids = theirs.encode("the mill").ids
    theirs.model.dropout = 1.0
    if Tokenizer.from_str(theirs.to_str()).encode("the mill").ids == ids != theirs.encode("the mill").ids:
        seen.add("BPE-dropout of a file")
    theirs = hf.Tokenizer.from_str(families.family("gpt2"))
    theirs.normalizer = normalizers.Prepend("")
    ours = Tokenizer.from_str(theirs.to_str())
    if ours.encode("a b").offsets == [(0, 1), (1, 3)] and theirs.encode("a b").offsets[0] == (0, 0):
        seen.add("Prepend of nothing")
    theirs.normalizer = normalizers.Replace(hf.Regex("^"), "^")
    theirs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), theirs.pre_tokenizer])
    tokens = [
        [token.replace("Ġ", "") for token in each.encode("a").tokens]
        for each in (Tokenizer.from_str(theirs.to_str()), theirs)
    ]
    if tokens == [["^", "a"], ["^", "^", "a"]]:
        seen.add("what Replace puts in front")
    assert seen == set(DIFFERENCES)


def test_a_piece_with_two_ids_counts_twice_and_is_special_twice() -> None:
    """As in CamemBERT, whose unknown token has an id of its file and one of fairseq."""
    fields = json.loads(families.family("t5"))
    token = next(token for token in fields["added_tokens"] if token["content"] == "<unk>")
    unk_id = fields["model"]["unk_id"]
    assert (token["id"], token["special"]) == (unk_id, True)
    fields["model"]["vocab"].append(["<unk>", -100.0])
    token["id"] = len(fields["model"]["vocab"]) - 1
    ours, theirs = Tokenizer.from_str(json.dumps(fields)), hf.Tokenizer.from_str(json.dumps(fields))
    assert ours.get_vocab_size() == theirs.get_vocab_size() == len(ours.get_vocab()) + 1
    for ids in ([unk_id], [token["id"], unk_id, 20], theirs.encode("a \U0001d15e").ids):
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip)


def test_a_special_token_that_the_normalizer_changes_is_not_skipped() -> None:
    """HF spells it as the normalizer does, and no special token is spelled so."""
    theirs = hf.Tokenizer.from_str(families.family("gpt2"))
    theirs.normalizer = normalizers.Prepend("_")
    theirs.add_special_tokens([hf.AddedToken("<a>", normalized=True), hf.AddedToken("<b>", normalized=False)])
    ours = Tokenizer.from_str(theirs.to_str())
    ids = [theirs.token_to_id("<a>"), theirs.token_to_id("<b>"), 20]
    for skip in (True, False):
        assert ours.decode(ids, skip) == theirs.decode(ids, skip)


_BYTE_OF = {
    char: byte for byte, char in enumerate(chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None
    for b in range(256)) if char
}  # fmt: skip
_BYTE_OF |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in _BYTE_OF.values())}
