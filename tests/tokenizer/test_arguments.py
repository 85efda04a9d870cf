# SPDX-License-Identifier: Apache-2.0
"""One string, or a mapping, where a list is expected is an error, not a list of characters or of keys."""

import pytest

from tokenmill.tokenizer import BPETrainer, Tokenizer, WordPieceTrainer

VOCAB = ["[PAD]", "[UNK]", "a", "b", "c", "abc"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.for_bert(VOCAB)


def test_what_is_in_a_list_must_be_a_string(tokenizer):
    with pytest.raises(TypeError, match="tokens must hold str or AddedToken, got b'x'"):
        tokenizer.replace().add_special_tokens([b"x"])
    with pytest.raises(TypeError, match="special_tokens must hold str, got 1"):
        BPETrainer(vocab_size=50, special_tokens=["a", 1])
    with pytest.raises(TypeError, match="text must be a str, got bytes"):
        tokenizer.encode_batch([b"abc"])
    for texts, options in ((["a", None], {}), (["a", ("b", 3)], {}), ([["a"], ["b", None]], {"is_pretokenized": True})):
        for encode in (tokenizer.encode_batch, tokenizer.encode_batch_fast):
            with pytest.raises(TypeError, match=r"input\[1\]: (text must be a str, got|pre-tokenized text must be)"):
                encode(texts, **options)


def test_a_path_is_no_vocabulary():
    with pytest.raises(TypeError, match=r"vocab must be a list, got one str, 'vocab\.txt'"):
        Tokenizer.for_bert("vocab.txt")
    with pytest.raises(TypeError, match="files must be a list, got a dict"):
        Tokenizer.untrained_bert().train({"a.txt": 1}, WordPieceTrainer(vocab_size=50))


def test_bytes_are_no_text(tokenizer):
    with pytest.raises(TypeError, match="text must hold str, got b'abc'"):
        tokenizer.normalizer.normalize_str(b"abc")
    with pytest.raises(TypeError, match="text must hold str, got None"):
        tokenizer.normalizer.normalize_str(None)
    with pytest.raises(TypeError, match=r"json must be the text of a tokenizer\.json, got bytes; from_buffer"):
        Tokenizer.from_str(b"{}")


@pytest.mark.parametrize("ids", ["12", b"12", 5, 1.5, [1.5], [True], ["1"], [[2], [3]], [None], {2: "a"}, [2**70]])
def test_what_is_no_row_of_ids_is_not_decoded(ids, tokenizer):
    with pytest.raises(TypeError, match="expected the ids of one row, a list of integers, got"):
        tokenizer.decode(ids)


def test_one_row_of_ids_is_no_batch(tokenizer):
    assert tokenizer.decode_batch([[2, 3], []]) == ["a b", ""]
    with pytest.raises(TypeError, match="expected the ids of one row, a list of integers, got 2"):
        tokenizer.decode_batch([2, 3])
