# SPDX-License-Identifier: Apache-2.0
"""The BERT family against HF tokenizers: ids, tokens, offsets, everything an encoding has; files; decoding.

`DIFFERENCES` is the whole list of what is meant to differ.
"""

import random
from pathlib import Path

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tokenizers import processors  # noqa: E402

from tests import strategies  # noqa: E402
from tests.corpora import documents  # noqa: E402
from tests.parity import families  # noqa: E402
from tokenmill.tokenizer import Tokenizer, TokenizerFileError  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "special tokens in text": "text stays text; HF cuts them out unless encode_special_tokens is set",
    "vocab.txt line ends": "only line ends are cut; HF also cuts other white space, which no BERT word contains",
    "no room for special tokens": "an error; HF subtracts below zero and does not truncate at all",
    "decode of unknown ids": "an error naming the id; HF leaves them out silently",
    "a token twice in vocab.txt": "refused, naming both lines; HF takes the later one, and no token has the other id",
}
MODELS = ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"]
CORPORA = ["en", "code", "multi", "zh"]
ATTRIBUTES = (
    "ids", "tokens", "type_ids", "attention_mask", "special_tokens_mask", "offsets", "word_ids", "sequence_ids",
)  # fmt: skip
SMALL_VOCAB = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789!#[]玫中가",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789\u0301\u302e\u1100"), "the", "##able", "un", "##aff", "é",
]  # fmt: skip


def as_hf(tokenizer: Tokenizer) -> "hf.Tokenizer":
    """The same tokenizer in HF's library, by way of the file; text stays text there too."""
    theirs = hf.Tokenizer.from_str(tokenizer.to_str())
    theirs.encode_special_tokens = True
    return theirs


@pytest.fixture(scope="session", params=MODELS)
def pair(request: pytest.FixtureRequest, shared_data: Path) -> tuple[Tokenizer, "hf.Tokenizer"]:
    """A real vocabulary in both libraries, HF's made from the file without our help."""
    path = shared_data / "vocab" / f"{request.param}.txt"
    lowercase = request.param != "bert-base-cased"
    theirs = hf.Tokenizer.from_str(hf.BertWordPieceTokenizer(str(path), lowercase=lowercase).to_str())
    theirs.encode_special_tokens = True
    return Tokenizer.from_file(path, lowercase=lowercase), theirs


def assert_same_ids(ours: Tokenizer, theirs: "hf.Tokenizer", texts: list[str]) -> None:
    rows = ours.encode_arrow(pa.array(texts, pa.large_string()))
    for text, row, expected in zip(texts, rows, families.ids_of(theirs, texts, False), strict=True):
        assert row.as_py() == expected, text[:2000]


@pytest.mark.parametrize("corpus", CORPORA)
def test_ids_on_documents(pair: tuple[Tokenizer, "hf.Tokenizer"], shared_data: Path, corpus: str) -> None:
    assert_same_ids(*pair, documents(shared_data, corpus))


def test_ids_on_every_code_point(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    for start in range(0, len(strategies.TRIED), 50_000):
        assert_same_ids(*pair, [f"a{c}b {c} c{c}" for c in strategies.TRIED[start : start + 50_000]])


def test_ids_on_hostile_text(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    @given(st.lists(strategies.texts(), max_size=20))
    def check(texts: list[str]) -> None:
        assert_same_ids(*pair, texts)

    check()


def test_everything_an_encoding_has(pair: tuple[Tokenizer, "hf.Tokenizer"], shared_data: Path) -> None:
    ours, theirs = pair
    for corpus in CORPORA:
        for text in documents(shared_data, corpus)[:30]:
            text = text[:5000]
            got, expected = ours.encode(text, text[:50]), theirs.encode(text, text[:50])
            for name in ATTRIBUTES:
                assert getattr(got, name) == getattr(expected, name), name


@given(strategies.texts(), st.one_of(st.none(), strategies.texts(20)), st.booleans(), st.booleans())
def test_everything_an_encoding_has_on_hostile_text(
    text: str, pair: str | None, special: bool, lowercase: bool
) -> None:
    ours = Tokenizer.for_bert(SMALL_VOCAB, lowercase=lowercase)
    got, expected = (
        ours.encode(text, pair, add_special_tokens=special),
        as_hf(ours).encode(text, pair, add_special_tokens=special),
    )
    for name in ATTRIBUTES:
        assert getattr(got, name) == getattr(expected, name), name


@given(
    strategies.small_words(),
    st.one_of(st.none(), strategies.small_words()),
    st.integers(0, 12),
    st.sampled_from(["longest_first", "only_first", "only_second"]),
    st.sampled_from(["right", "left"]),
    st.sampled_from([None, 0, 5, 16]),
    st.sampled_from(["right", "left"]),
    st.sampled_from([None, 1, 8]),
    st.booleans(),
)
def test_truncation_and_padding(
    text: str, pair: str | None, max_length: int, strategy: str, cut: str, length: int | None, pad: str,
    multiple: int | None, special: bool,
) -> None:  # fmt: skip
    ours = Tokenizer.for_bert(SMALL_VOCAB, lowercase=False)
    theirs = as_hf(ours)
    ours.enable_truncation(max_length, strategy=strategy, direction=cut)
    ours.enable_padding(direction=pad, length=length, pad_to_multiple_of=multiple)
    if special and max_length < ours.num_special_tokens_to_add(pair is not None):
        with pytest.raises(ValueError, match="leaves no room for the"):
            ours.encode(text, pair)
        return
    try:
        theirs.enable_truncation(max_length, strategy=strategy, direction=cut)
        theirs.enable_padding(direction=pad, length=length, pad_to_multiple_of=multiple, pad_id=0)
        expected = theirs.encode(text, pair, add_special_tokens=special)
    except BaseException:  # HF panics, or raises a bare Exception
        with pytest.raises(ValueError, match=r"max_length|truncation"):
            ours.encode(text, pair, add_special_tokens=special)
        return
    got = ours.encode(text, pair, add_special_tokens=special)
    for name in ATTRIBUTES:
        assert getattr(got, name) == getattr(expected, name), name
    if pair is None:
        column = ours.encode_arrow(pa.array([text]), add_special_tokens=special)
        assert column.to_pylist() == [expected.ids]


@pytest.mark.parametrize("added", [[], ["ht"]], ids=["no token", "a normalized token"])
def test_marks_that_change_their_order(added: list[str]) -> None:
    ours = Tokenizer.for_bert([*SMALL_VOCAB, "\u302e", "##\u1b44", "##\U0001d165"])
    ours.add_tokens(added)
    theirs, chance = as_hf(ours), random.Random(0)
    marks = "\u302e\u0316\u1b44\u0902\U0001d16e\U0001d15e\u0301\u0344aé\x00 "
    texts = ["".join(chance.choices(marks, k=chance.randint(1, 6))) for _ in range(500)]
    expected = [[getattr(each, name) for name in ATTRIBUTES] for each in theirs.encode_batch(texts)]
    assert [[getattr(each, name) for name in ATTRIBUTES] for each in ours.encode_batch(texts)] == expected
    assert [[getattr(ours.encode(text), name) for name in ATTRIBUTES] for text in texts] == expected


def test_templates() -> None:
    plain = Tokenizer.for_bert(SMALL_VOCAB)
    theirs = as_hf(plain)
    theirs.post_processor = processors.TemplateProcessing(
        single="[CLS] [MASK]:3 $A:2 [SEP] [SEP]", pair="$B:1 [SEP] [CLS]:7 $A:4",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3), ("[MASK]", 4)],
    )  # fmt: skip
    ours = Tokenizer.from_str(theirs.to_str())
    for text, pair in (("abc the", None), ("abc", "the unable"), ("", None), ("", "")):
        got, expected = ours.encode(text, pair), theirs.encode(text, pair)
        for name in ATTRIBUTES:
            assert getattr(got, name) == getattr(expected, name), name
    assert ours.encode_arrow(pa.array(["abc the"]), add_special_tokens=True).to_pylist() == [
        theirs.encode("abc the").ids
    ]
    assert ours.num_special_tokens_to_add() == theirs.num_special_tokens_to_add(False)
    assert ours.num_special_tokens_to_add(True) == theirs.num_special_tokens_to_add(True)


def test_decoding(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    ours, theirs = pair
    chooser, n = random.Random(0), ours.n_ids
    rows = [[chooser.randrange(n) for _ in range(chooser.randrange(40))] for _ in range(2000)]
    rows += [theirs.encode(t).ids for t in ("I don't , do not . we 've you 're 's ' x !", "unaffable", "a . b ? c !")]
    # HF's reader cut the line separator off this token, so its text is empty there.
    cut = {ours.token_to_id("\u2028"), ours.token_to_id("##\u2028")} - {None}
    rows = [[i for i in row if i not in cut] for row in rows]
    for skip in (True, False):
        expected = [theirs.decode(row, skip_special_tokens=skip) for row in rows]
        assert ours.decode_batch(rows, skip) == expected
        assert ours.decode_arrow(pa.array(rows, pa.list_(pa.int32())), skip).to_pylist() == expected


def test_vocabulary_methods(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    ours, theirs = pair
    cut = {t.rstrip(): t for t in ours.get_vocab() if t != t.rstrip()}
    assert {t.rstrip(): i for t, i in ours.get_vocab().items()} == theirs.get_vocab()
    assert ours.get_vocab_size() == theirs.get_vocab_size()
    for token in ("the", "##s", "[CLS]", "no such token"):
        assert ours.token_to_id(token) == theirs.token_to_id(token)
    for token_id in (0, 100, 5000, 10**6):
        token = theirs.id_to_token(token_id)
        assert ours.id_to_token(token_id) == cut.get(token, token)


def test_a_file_round_trip_through_hf(pair: tuple[Tokenizer, "hf.Tokenizer"], tmp_path: Path) -> None:
    ours, theirs = pair
    texts = ["unaffable résumé 玫瑰花 3Ⰻ7!", "[CLS] x"]
    ours.save(tmp_path / "ours.json")
    loaded = hf.Tokenizer.from_file(str(tmp_path / "ours.json"))
    loaded.encode_special_tokens = True
    assert [e.ids for e in loaded.encode_batch(texts)] == [e.ids for e in theirs.encode_batch(texts)]
    theirs.save(str(tmp_path / "theirs.json"))
    assert [e.ids for e in Tokenizer.from_file(tmp_path / "theirs.json").encode_batch(texts)] == [
        e.ids for e in theirs.encode_batch(texts)
    ]


@pytest.mark.parametrize("oov", ["contain", "char"])
def test_a_policy_of_ours_survives_and_hf_ignores_it(oov: str) -> None:
    ours = Tokenizer.for_bert(SMALL_VOCAB, oov=oov)
    assert Tokenizer.from_str(ours.to_str()).model.oov_policy == oov
    assert as_hf(ours).encode("aⰋb", add_special_tokens=False).tokens == ["[UNK]"]


def test_the_mixed_sentence(shared_data: Path) -> None:
    ours = Tokenizer.from_file(shared_data / "vocab" / "bert-base-chinese.txt", lowercase=True)
    text = (
        "BERT stands for Bidirectional Encoder Representations from Transformers. "
        "Let's play bert with bert-base-chinese. 为避免雾里看花，我们将深入源码。āóǔèç"
    )
    expected = (
        "be ##rt st ##and ##s for bi ##di ##rect ##ion ##al en ##code ##r re ##pr ##ese ##nt ##ations from t ##ran ##s "
        "##form ##ers . let ' s play be ##rt with be ##rt - base - chinese . "
        "为 避 免 雾 里 看 花 ， 我 们 将 深 入 源 码 。 a ##ou ##ec"
    )
    assert ours.encode(text, add_special_tokens=False).tokens == expected.split()


def test_the_differences_are_these(tmp_path: Path) -> None:
    """Each listed difference is real; what is not listed is equal by the tests above."""
    ours = Tokenizer.for_bert(SMALL_VOCAB)
    theirs = hf.Tokenizer.from_str(ours.to_str())
    seen = set()
    if ours.encode("[CLS]").ids != theirs.encode("[CLS]").ids:
        seen.add("special tokens in text")
    (tmp_path / "vocab.txt").write_text("[UNK]\na\u2028\n[CLS]\n[SEP]\n", encoding="utf-8")
    if (
        Tokenizer.from_file(tmp_path / "vocab.txt").get_vocab()
        != hf.BertWordPieceTokenizer(str(tmp_path / "vocab.txt")).get_vocab()
    ):
        seen.add("vocab.txt line ends")
    theirs.enable_truncation(1)
    ours.enable_truncation(1)
    if len(theirs.encode("a b c").ids) > 1:
        with pytest.raises(ValueError, match="leaves no room for the 2 special tokens"):
            ours.encode("a b c")
        seen.add("no room for special tokens")
    assert theirs.decode([5, 10**6]) == "a"
    with pytest.raises(ValueError, match="id 1000000 belongs to no token"):
        ours.decode([5, 10**6])
    seen.add("decode of unknown ids")
    (tmp_path / "vocab.txt").write_text("[UNK]\na\nb\na\n", encoding="utf-8")
    with pytest.raises(TokenizerFileError, match="line 4: token 'a' stands already on line 2"):
        Tokenizer.from_file(tmp_path / "vocab.txt")
    twice = hf.models.WordPiece.from_file(str(tmp_path / "vocab.txt"))
    assert (twice.token_to_id("a"), twice.id_to_token(1)) == (3, None)
    seen.add("a token twice in vocab.txt")
    assert seen == set(DIFFERENCES)
