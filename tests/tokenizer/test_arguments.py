# SPDX-License-Identifier: Apache-2.0
"""One string, or a mapping, where a list is expected is an error, not a list of characters or of keys."""

import pytest

from tokenmill.tokenizer import BPETrainer, Tokenizer, WordPieceTrainer
from tokenmill.tokenizer.languages import LanguageTextTokenizer
from tokenmill.tokenizer.text import TextChain, TextTokenizer, parse_steps

VOCAB = ["[PAD]", "[UNK]", "a", "b", "c", "abc"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.for_bert(VOCAB)


LISTS = {
    "encode_batch": lambda t, x: t.encode_batch(x),
    "encode_batch_fast": lambda t, x: t.encode_batch_fast(x),
    "add_tokens": lambda t, x: t.replace().add_tokens(x),
    "add_special_tokens": lambda t, x: t.replace().add_special_tokens(x),
    "with_special_tokens": lambda t, x: t.with_special_tokens(x),
    "with_model": lambda t, x: t.with_model(t.model, x),
    "with_model, symbols": lambda t, x: t.with_model(t.model, (), x),
    "untrained": lambda t, x: Tokenizer.untrained("sentencepiece", "none", user_defined_symbols=x),
    "train_from_iterator": lambda t, x: t.replace().train_from_iterator(x, WordPieceTrainer(vocab_size=50)),
    "special_tokens": lambda t, x: BPETrainer(vocab_size=50, special_tokens=x),
    "initial_alphabet": lambda t, x: WordPieceTrainer(vocab_size=50, initial_alphabet=x),
    "parse_steps": lambda t, x: parse_steps(x),
    "TextChain.from_config": lambda t, x: TextChain.from_config(x),
    "normalize": lambda t, x: TextTokenizer(t, normalize=x),
    "spans": lambda t, x: TextTokenizer(t, spans=x),
    "rules": lambda t, x: LanguageTextTokenizer(t, rules={"de": x}),
}


@pytest.mark.parametrize("name", LISTS)
def test_one_string_or_a_mapping_is_no_list(name, tokenizer):
    with pytest.raises(TypeError, match="must be a list, got one str, 'abc'; put it into a list"):
        LISTS[name](tokenizer, "abc")
    with pytest.raises(TypeError, match="must be a list, got one bytes, b'abc'"):
        LISTS[name](tokenizer, b"abc")
    with pytest.raises(TypeError, match="must be a list, got a dict; pass its values, as a list"):
        LISTS[name](tokenizer, {"pad_token": "[PAD]"})


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
