# SPDX-License-Identifier: Apache-2.0
"""What a user of `Tokenizer` sees beside ids: vocabulary, rows of fixed length, decoding, explanations."""

import copy

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tokenmill.tokenizer import Tokenizer

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "##c", "玫", ".", "don", "n't"]


def test_vocabulary() -> None:
    tokenizer = Tokenizer.for_bert(VOCAB)
    assert tokenizer.get_vocab() == {t: i for i, t in enumerate(VOCAB)}
    assert tokenizer.get_vocab_size() == tokenizer.n_ids == len(VOCAB)
    assert (tokenizer.token_to_id("玫"), tokenizer.token_to_id("no")) == (9, None)
    assert (tokenizer.id_to_token(9), tokenizer.id_to_token(99)) == ("玫", None)
    assert (tokenizer.unk_token_id, tokenizer.pad_token_id) == (1, 0)
    assert (tokenizer.num_special_tokens_to_add(), tokenizer.num_special_tokens_to_add(True)) == (2, 3)


def test_ids_may_have_gaps() -> None:
    tokenizer = Tokenizer.for_bert({"[UNK]": 7, "a": 1000, "##b": 3})
    assert tokenizer.encode_arrow(pa.array(["ab x"])).to_pylist() == [[1000, 3, 7]]
    assert tokenizer.n_ids == 1001
    with pytest.raises(ValueError, match="id 4 belongs to no token"):
        tokenizer.decode([1000, 4])


def test_a_vocabulary_without_cls_and_sep_adds_nothing() -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", "[CLS]", "a"])
    assert tokenizer.encode("a").ids == [2]


@given(st.lists(strategies.small_words(), max_size=5), st.integers(2, 9), st.integers(0, 9), st.data())
def test_rows_of_fixed_length(texts: list[str], max_length: int, length: int, data: st.DataObject) -> None:
    side = st.sampled_from(["right", "left"])
    tokenizer = Tokenizer.for_bert(VOCAB, oov="contain")
    tokenizer.enable_truncation(max_length, direction=data.draw(side))
    tokenizer.enable_padding(length=data.draw(st.sampled_from([None, length])), direction=data.draw(side))
    rows = tokenizer.encode_arrow(pa.array(texts, pa.string()), add_special_tokens=True).to_pylist()
    assert rows == [e.ids for e in tokenizer.encode_batch(texts)]
    assert all(len(row) >= (tokenizer.padding.length or 0) for row in rows)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    assert all(len(e.ids) == len(e.attention_mask) == sum(e.attention_mask) for e in tokenizer.encode_batch(texts))


def test_padding_needs_a_token() -> None:
    with pytest.raises(ValueError, match=r"no padding token '\[PAD\]'; pass pad_id="):
        Tokenizer.for_bert(["[UNK]"]).enable_padding()


def test_decoding() -> None:
    tokenizer = Tokenizer.for_bert(VOCAB)
    ids = tokenizer.encode("abc 玫. a").ids
    assert tokenizer.decode(ids) == "abc 玫. a"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "[CLS] abc 玫. a [SEP]"
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode_arrow(pa.array([ids, None, []], pa.large_list(pa.int32()))).to_pylist() == [
        "abc 玫. a", None, "",
    ]  # fmt: skip
    sliced = pa.array([[1], ids, [5]], pa.list_(pa.int64())).slice(1)
    assert tokenizer.decode_arrow(sliced).to_pylist() == ["abc 玫. a", "a"]


@pytest.mark.parametrize(("ids", "bad"), [([-1], -1), ([5, 13], 13), ([2**31], 2**31)])
def test_ids_outside_the_vocabulary(ids: list[int], bad: int) -> None:
    with pytest.raises(ValueError, match=f"id {bad} belongs to no token; ids are 0..12"):
        Tokenizer.for_bert(VOCAB).decode(ids)


def test_other_columns_are_not_decoded() -> None:
    tokenizer = Tokenizer.for_bert(VOCAB)
    for column in (pa.array(["a"]), pa.array([[1.5]]), [[1]]):
        with pytest.raises(TypeError, match="expected an Arrow list array of integers"):
            tokenizer.decode_arrow(column)
    with pytest.raises(ValueError, match="ids must not be null"):
        tokenizer.decode_arrow(pa.array([[1, None]]))


def test_byte_tokens_decode_to_their_characters() -> None:
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer.for_bert(["[UNK]", "3", "##7", *byte_tokens], oov="byte", lowercase=False)
    assert tokenizer.decode(tokenizer.encode("3Ⰻ7").ids) == "3Ⰻ7"
    half = tokenizer.encode("Ⰻ").ids[:2]
    assert tokenizer.decode(half) == "\ufffd"
    assert tokenizer.decode_arrow(pa.array([half, tokenizer.encode("Ⰻ").ids])).to_pylist() == ["\ufffd", "Ⰻ"]


def test_a_tokenizer_without_a_model_counts_but_does_not_encode() -> None:
    tokenizer = Tokenizer.untrained_bert()
    counter = tokenizer.new_word_counter()
    counter.update(pa.array(["A a"]))
    assert counter.n_words == 2
    assert Tokenizer.from_str(tokenizer.to_str()).model is None
    with pytest.raises(ValueError, match="has no model; train a vocabulary first"):
        tokenizer.encode("a")


def test_explain_says_what_is_fused_and_how_full_the_cache_is() -> None:
    tokenizer = Tokenizer.for_bert(VOCAB)
    tokenizer.encode_arrow(pa.array(["a b ab a"]))
    text = tokenizer.explain()
    assert "BertNormalizer + BertPreTokenizer + WordPiece" in text
    assert "cache     3 words in 0.0 of 32 MiB, 1 hits and 3 misses so far" in text
    assert "categories 8.0.0" in text


def test_text_must_be_text() -> None:
    with pytest.raises(TypeError, match="text must be a str, got bytes"):
        Tokenizer.for_bert(VOCAB).encode(b"a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"row 0 is not text: '\\ud800' at character 0 is half a character"):
        Tokenizer.for_bert(VOCAB).encode("\ud800")


def test_a_vocabulary_with_a_token_twice() -> None:
    with pytest.raises(ValueError, match="vocab holds token 'a' more than once"):
        Tokenizer.for_bert(["[UNK]", "a", "a"])


def test_the_digest_follows_what_decides_ids() -> None:
    base = Tokenizer.for_bert(VOCAB)
    assert base.digest == Tokenizer.for_bert(VOCAB).digest
    assert len({base.digest, *(t.digest for t in (
        Tokenizer.for_bert(VOCAB, lowercase=False), Tokenizer.for_bert(VOCAB, oov="char"),
        Tokenizer.for_bert([*VOCAB, "x"]),
    ))}) == 4  # fmt: skip


def test_a_notebook_shows_what_a_tokenizer_is_made_of(tiny_vocab: list[str]) -> None:
    tokenizer = Tokenizer.for_bert(tiny_vocab)
    tokenizer.add_tokens([f"<b>{i}\u202e" for i in range(9999)])
    page = tokenizer._repr_html_()
    for text in ("WordPiece, 10,027 tokens", "BertNormalizer(", "&lt;b&gt;0\\u202e", "BertProcessing("):
        assert text in page
    assert "<b>" not in page
    assert len(page) < 5000


def test_names_of_other_libraries_are_answered_by_what_to_type() -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", "a"])
    for name, answer in [
        ("tokenize", r"type encode\(text\)\.tokens"), ("vocab_size", r"type get_vocab_size\(\)"),
        ("PieceToId", r"type token_to_id\(token\)"), ("eos_token_id", r"type as_hf\(\)\.eos_token_id"),
        ("apply_chat_template", r"type as_hf\(\)\.apply_chat_template"), ("nothing", "has no attribute 'nothing'$"),
    ]:  # fmt: skip
        with pytest.raises(AttributeError, match=answer):
            getattr(tokenizer, name)
        assert not hasattr(tokenizer, name)
    with pytest.raises(TypeError, match=r"get_vocab\(\) is a dict of its tokens"):
        list(tokenizer)
    assert copy.deepcopy(tokenizer).get_vocab() == tokenizer.get_vocab() == {"[UNK]": 0, "a": 1}
    assert tokenizer.decode_batch([[1], [1, 1]]) == ["a", "a a"]
