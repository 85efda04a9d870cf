# SPDX-License-Identifier: Apache-2.0
"""What a user of `Tokenizer` sees beside ids: vocabulary, rows of fixed length, decoding, explanations."""

import copy

import pyarrow as pa
import pytest

from tokenmill.tokenizer import Tokenizer


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
