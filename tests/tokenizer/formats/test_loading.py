# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files: round trips, detection by content, and what broken or hostile files get."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import texts
from tokenmill.tokenizer import BPE, Tokenizer, TokenizerFileError

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "玫", "\u2028"]


def fields(**changes: Any) -> dict[str, Any]:
    """A good `tokenizer.json` with some fields replaced."""
    return json.loads(Tokenizer.for_bert(VOCAB).to_str()) | changes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "no tokens"),
        ("a\nb\n", r"no unknown token '\[UNK\]'"),
        ('{"version": "1.0", "version": "1.0"}', "'version' stands twice"),
        ('{"version": "2.0"}', "version must be '1.0', got '2.0'"),
        ('{"version": "1.0", "extra": 1}', "field 'extra' is not supported"),
        ('{"version": "2.0", "role_to_token": {}}', "got '2.0'; HF tokenizers 1.0 writes it, so take the file that"),
        ('{"version": "1.0"}', "field 'model' is missing"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=message) as caught:
        Tokenizer.from_file(tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value)


MODEL = {"type": "WordPiece", "vocab": {"[UNK]": 0}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "NFXX"}}, r"normalizer\.type: 'NFXX' is not supported; supported: BertNormalizer"),
        ({"normalizer": {"type": "BertNormalizer", "lowercase": 1}}, "lowercase: expected true or false, got 1"),
        ({"pre_tokenizer": {"type": "Spaces"}}, "'Spaces' is not supported"),
        ({"decoder": {"type": "Bytes"}}, "'Bytes' is not supported"),
        ({"post_processor": {"type": "XProcessing"}}, "'XProcessing' is not supported"),
        ({"post_processor": {"type": "BertProcessing", "sep": ["[SEP]"], "cls": ["[CLS]", 2]}}, r"sep: expected \["),
        ({"truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 3}}, "stride"),
        ({"truncation": {"max_length": True}}, "max_length: expected an integer, got true"),
        ({"padding": {"strategy": {"Fixed": 3}, "direction": "Up"}}, "'Up' is not supported; supported: Right, Left"),
        ({"model": MODEL | {"type": "BPX"}}, r"model\.type: 'BPX' is not supported"),
        ({"model": MODEL | {"vocab": {"[UNK]": -1}}}, r"id of token '\[UNK\]' must be in 0\.\.16777215, got -1"),
        ({"model": MODEL | {"vocab": {"[UNK]": 2**40}}}, r"must be in 0\.\.16777215"),
        ({"model": MODEL | {"vocab": {"[UNK]": "0"}}}, "must be an integer"),
        ({"model": MODEL | {"vocab": {"[UNK]": 0, "a": 0}}}, r"id 0 belongs to two tokens, '\[UNK\]' and 'a'"),
        ({"model": MODEL | {"max_input_chars_per_word": 0}}, r"must be positive and below 2\*\*63, got 0"),
        ({"model": MODEL | {"oov_policy": "guess"}}, "oov must be one of word, contain, char, byte, got 'guess'"),
        ({"model": MODEL | {"oov_policy": "byte"}}, "needs byte tokens"),
        ({"model": []}, "model: expected an object"),
        # HF takes it for BertProcessing, which has one separator in a pair.
        (
            {"post_processor": {"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["a", 0], "trim_offsets": True}},
            "post_processor: field 'add_prefix_space' is missing",
        ),
        ({"normalizer": {"type": "Sequence", "normalizers": [None]}}, r"normalizers\[0\]: expected an object"),
    ],
)  # fmt: skip
def test_what_cannot_be_represented_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_str(json.dumps(fields(**changes)))


def test_fields_that_hf_ignores_are_ignored_and_noted() -> None:
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Lowercase", "use_regex": True}]}
    tokenizer = Tokenizer.from_str(json.dumps(fields(normalizer=normalizer, model=fields()["model"] | {"new": 1})))
    assert tokenizer.ignored_fields == (
        "tokenizer.json.model.new", "tokenizer.json.normalizer.normalizers[0].use_regex",
    )  # fmt: skip
    for same in (tokenizer, tokenizer.replace(cache_bytes=1 << 20)):
        assert same.explain().splitlines()[-1].startswith("ignored   tokenizer.json.model.new, tokenizer.json.normal")
    assert "ignored" not in Tokenizer.from_str(tokenizer.to_str()).explain()


def test_a_sparse_file_of_ten_gigabytes_of_zeros(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    with path.open("wb") as handle:
        handle.truncate(10 << 30)
    with pytest.raises(TokenizerFileError, match="this is zeros"):
        Tokenizer.from_file(path)
    with path.open("r+b") as handle:
        handle.write(b"[UNK]")
    with pytest.raises(TokenizerFileError, match="longer than"):
        Tokenizer.from_file(path)


def test_openais_names_of_two_files(tmp_path: Path) -> None:
    from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET

    vocab = {token: i for i, token in enumerate([*BYTE_ALPHABET, "ab", "<|endoftext|>"])}
    (tmp_path / "encoder.json").write_text(json.dumps(vocab), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=r"encoder\.json: .* which needs vocab\.bpe beside it"):
        Tokenizer.from_file(tmp_path / "encoder.json")
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\na b\n", encoding="utf-8")
    for path in (tmp_path, tmp_path / "encoder.json", tmp_path / "vocab.bpe"):
        assert Tokenizer.from_file(path).encode("abc").tokens == ["ab", "c"]
    with pytest.raises(TokenizerFileError, match="buffer: this is a list of merges, which needs another file"):
        Tokenizer.from_buffer((tmp_path / "vocab.bpe").read_bytes())


def test_a_buffer_may_hold_any_single_file(tmp_path: Path) -> None:
    from tests.tokenizer.formats.test_hostile_files import bpe_model

    model = bpe_model(["▁", "a", "aa"])
    assert Tokenizer.from_buffer(model).encode("aaa").tokens == ["▁", "aa", "a"]
    assert Tokenizer.from_buffer(b"\xef\xbb\xbf[UNK]\na\n").encode("a").ids == [1]
    assert Tokenizer.from_buffer(Tokenizer.for_bert(VOCAB).to_str().encode()).encode("a").ids == [2, 5, 3]
    with pytest.raises(TokenizerFileError, match="buffer: this is an empty file"):
        Tokenizer.from_buffer(b"")
    with pytest.raises(TokenizerFileError, match="line 1: expected base64 and a rank"):
        Tokenizer.from_buffer(b"[UNK]\na\n", pattern="gpt2")


def test_lists_of_tokens_and_numbers_are_told_apart(tmp_path: Path) -> None:
    for numbers, what in (
        ("0 1 2 3", "a list of tokens and ids, which does not say how"),
        ("9 7 7 1", "a list of tokens and numbers, which does not say how"),
        ("0 0 0 -1", "the list of pieces that sentencepiece writes"),
        ("0 0 -1.5 -2e-3", "the list of pieces that sentencepiece writes"),
    ):
        lines = zip(["[PAD]", "[UNK]", "a", "b"], numbers.split(), strict=True)
        (tmp_path / "vocab.txt").write_text("".join(f"{token}\t{number}\n" for token, number in lines))
        with pytest.raises(TokenizerFileError, match=what):
            Tokenizer.from_file(tmp_path / "vocab.txt")


@pytest.mark.parametrize("vocab", [{"a": 0, "b": 1, "ab": 2}, {"a": 0, "b": 1, "ab": 2, "#version:": 3, "0.2": 4}])
def test_a_version_among_merges_is_no_merge(tmp_path: Path, vocab: dict[str, int]) -> None:
    model = {"type": "BPE", "vocab": vocab, "merges": ["#version: 0.2", "a b"]}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    assert Tokenizer.from_file(tmp_path).encode("ab").ids == [2]


def test_a_vocabulary_beside_a_tokenizer_that_differs_is_told(tmp_path: Path) -> None:
    Tokenizer.for_bert(VOCAB).save(tmp_path / "tokenizer.json")
    more = "vocab.txt beside it has 10, 1 of them not there or with another id"
    for tokens, said in ((VOCAB, ""), (VOCAB[:6], ""), ([*VOCAB, "c"], more)):
        (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
        found = " ".join(Tokenizer.from_file(tmp_path).assumptions)
        assert said in found
        assert bool(said) == bool(found)


@given(st.lists(texts(8).filter(bool), min_size=1, unique=True), st.randoms(use_true_random=False))
def test_columns_are_written_as_lists_would_be(tokens: list[str], random: Any) -> None:
    ids = random.sample(range(3 * len(tokens)), len(tokens))
    vocab = {}
    for token, i in zip(tokens, ids, strict=True):
        vocab |= {token: i, token + tokens[0]: 3 * len(tokens) + i}
    vocab = dict(sorted(vocab.items(), key=lambda item: random.random()))
    merges = [(token, tokens[0]) for token in tokens if vocab[token + tokens[0]] >= 3 * len(tokens)]
    tokenizer = Tokenizer(model=BPE({**vocab}, merges))
    text = tokenizer.to_str()
    assert text == json.dumps(json.loads(tokenizer.to_str(pretty=True)), ensure_ascii=False, separators=(",", ":"))
    model = json.loads(text)["model"]
    assert [*model["vocab"].items()] == sorted(vocab.items(), key=lambda item: item[1])
    assert model["merges"] == [list(merge) for merge in merges]
