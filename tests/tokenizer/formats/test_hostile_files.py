# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files made to do harm: a clear error, in little time and memory."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tokenmill.tokenizer import Tokenizer, TokenizerFileError
from tokenmill.tokenizer.formats import sentencepiece
from tokenmill.tokenizer.formats.sentencepiece import SentencePieceFile, TrainerSpec
from tokenmill.tokenizer.models.unigram import PieceType

WORDS = {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}


def tokenizer_json(**fields: Any) -> bytes:
    return json.dumps({"version": "1.0", "model": WORDS} | fields).encode()


def nested(role: str, key: str, kind: str, depth: int) -> bytes:
    inner = '{"type":"Sequence","' + key + '":['
    text = inner * depth + '{"type":"' + kind + '"}' + "]}" * depth
    return tokenizer_json(**{role: "@"}).replace(b'"@"', text.encode())


def split(pattern: str) -> bytes:
    return tokenizer_json(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    )


def bpe(vocab: dict[str, int], merges: list[list[str]]) -> bytes:
    return tokenizer_json(model={"type": "BPE", "vocab": vocab, "merges": merges})


def lone_surrogate(**fields: Any) -> bytes:
    return tokenizer_json(**fields).replace(b"@", b"\\ud800")


def bpe_model(pieces: list[str]) -> bytes:
    types = [PieceType.UNKNOWN] + [PieceType.NORMAL] * len(pieces)
    scores = tuple(-float(i) for i in range(len(types)))
    return sentencepiece.write(
        SentencePieceFile.of(("<unk>", *pieces), scores, tuple(map(int, types)), TrainerSpec(sentencepiece.BPE))
    )


FILES: dict[str, tuple[bytes, str]] = {
    "objects in objects": (b'{"a":' * 1_000_000, "not JSON"),
    "normalizers in normalizers": (nested("normalizer", "normalizers", "NFC", 100), "nested more than 32 deep"),
    "pre-tokenizers": (nested("pre_tokenizer", "pretokenizers", "Whitespace", 100), "nested more than 32 deep"),
    "decoders in decoders": (nested("decoder", "decoders", "Fuse", 100), "nested more than 32 deep"),
    "post-processors": (nested("post_processor", "processors", "ByteLevel", 100), "nested more than 32 deep"),
    "a number of a million digits": (
        b'{"version":"1.0","model":{"type":"BPE","vocab":{"a":' + b"9" * 1_000_000 + b'},"merges":[]}}', "not JSON",
    ),
    "merges in a circle": (bpe({"a": 0, "b": 1, "ab": 2}, [["a", "b"], ["ab", "a"]]), "the vocabulary does not have"),
    "one id for two tokens": (bpe({"a": 0, "b": 0}, []), "id 0 belongs to two tokens"),
    "a huge id": (bpe({"a": 10**30}, []), r"must be in 0\.\.16777215"),
    "a huge id of an added token": (tokenizer_json(added_tokens=[{"id": 2**40, "content": "x"}]), "has id 10995"),
    "a huge length": (tokenizer_json(pre_tokenizer={"type": "FixedLength", "length": 10**30}), "must fit into 64 bits"),
    "rows of all memory": (
        tokenizer_json(padding={"strategy": {"Fixed": 10**13}}), "rows are padded to at most 16777216 tokens",
    ),
    "half a character in the vocabulary": (
        lone_surrogate(model=WORDS | {"vocab": {"[UNK]": 0, "@": 1}}), "surrogates not allowed",
    ),
    "half a character in an added token": (
        lone_surrogate(added_tokens=[{"id": 1, "content": "@"}]), "surrogates not allowed",
    ),
    "a deep pattern": (split("(" * 4000 + "a+" + ")" * 4000), "nests too deeply"),
    "a long pattern": (split("a" * 20_000), "has 20000 characters, allowed are 10000"),
    "a pattern of all characters": (split("|".join([r"\p{L}"] * 1500)), "names too many characters"),
    "a gzip bomb": (gzip.compress(b"#version: 0.2\n" + b"a b\n" * 10_000_000, 1), "unpacks to more than 33554432"),
    "empty pieces": (b"\x0a\x02\x0a\x00" * 1_000_000, "piece 0 is empty"),
    "pieces without end": (b"\x0a\x03\x0a\x01a" * 8_000_000, "longer than 33554432 bytes"),
    "pieces that are the beginnings of one another": (
        bpe_model(["a" * n for n in range(1, 3000)]), "can be made in more ways than training leaves",
    ),
    "an id that is a long text": (
        bpe({"a": "9" * 10**6}, []), "id of 'a' must be an integer",  # type: ignore[dict-item]
    ),
    "a merge of long tokens": (bpe({"a": 0}, [["a", "b" * 10**6]]), "merge 0 is of 'a' and 'bbb"),
    "a long special token": (
        tokenizer_json(added_tokens=[{"id": 2**40, "content": "x" * 10**6}]), "has id 1099511627776",
    ),
    "a rank that stands twice": (
        b"YQ== 0\n" + base64.b64encode(b"b" * 10**6) + b" 1\n" + base64.b64encode(b"b" * 10**6) + b" 2\n",
        "stands twice",
    ),
    "a negative rank": (
        b"".join(base64.b64encode(bytes([i])) + b" %d\n" % (i - 5) for i in range(256)), r"must be in 0\.\.16777215",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused(tmp_path: Path, name: str) -> None:
    data, message = FILES[name]
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(TokenizerFileError, match=message) as caught:
        Tokenizer.from_file(path, pattern="r50k_base" if "rank" in name else None)
    assert len(str(caught.value)) < 1000, "a message is for people"


FOLDERS: dict[str, tuple[dict[str, Any], str]] = {
    "as many made-up tokens as memory holds": (
        {"tokenizer_class": "T5Tokenizer", "extra_ids": 10**12},
        r"tokenizer_config.json.extra_ids: must be in 0\.\.65536, got 1000000000000",
    ),
    "an id of thousands of digits": (
        {"added_tokens_decoder": {"1" * 5000: {"content": "x"}}}, "expected ids as keys, got '111",
    ),
    "an id of other digits": ({"added_tokens_decoder": {"٣": {"content": "x"}}}, "expected ids as keys, got '٣'"),
    "an added token of no text": (
        {"added_tokens_decoder": {"7": {"content": ""}}}, r"added_tokens_decoder.7: added token 7 has no content",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_hostile_folder_is_refused(tmp_path: Path, name: str) -> None:
    config, message = FOLDERS[name]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "spiece.model").write_bytes(bpe_model(["a"]))
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_file(tmp_path)


def test_a_long_line_of_merges_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("a" * 10**6 + "\n")
    with pytest.raises(TokenizerFileError, match=r"merges\.txt, line 1: expected two tokens with a space") as caught:
        Tokenizer.from_file(tmp_path)
    assert len(str(caught.value)) < 1000


def test_an_empty_token_of_added_tokens_json_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "added_tokens.json").write_text('{"": 7}')
    (tmp_path / "spiece.model").write_bytes(bpe_model(["a"]))
    with pytest.raises(TokenizerFileError, match=r"added_tokens.json.: added token 7 has no content"):
        Tokenizer.from_file(tmp_path)


def test_one_long_piece_takes_no_longer_for_its_length(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(bpe_model(["▁", "a", "aa", "a" * 2_000_000]))
    assert Tokenizer.from_file(path).encode("aaa").tokens == ["▁", "aa", "a"]


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9085657\n"
MISTAKES: dict[str, tuple[str, bytes, str]] = {
    "nothing": ("tokenizer.json", b"", "an empty file"),
    "zeros": ("tokenizer.json", bytes(9000), "zeros; a download that broke off"),
    "git-lfs": ("tokenizer.json", LFS, "a pointer of git-lfs, not the file; get it with `git lfs pull`"),
    "a web page": ("tokenizer.json", b"\n<!DOCTYPE html>\n<html><body>404</body>", "a web page, not the file"),
    "xml": ("spiece.model", b'<?xml version="1.0"?><Error>', "a web page, not the file"),
    "a server's message": ("tokenizer.json", b'{"error": "Invalid token"}', r"a message, .*Invalid token"),
    "safetensors": ("model.safetensors", b"\x60\x01\0\0\0\0\0\0" + b'{"__metadata__":{}}', "a safetensors file"),
    "a zip": ("pytorch_model.bin", b"PK\x03\x04\x00\x00\x08\x08", "a zip archive, as PyTorch's weights are"),
    "a pickle": ("pytorch_model.bin", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a pickle.* so it is not opened"),
    "GGUF": ("model.gguf", b"GGUF\x03\0\0\0" + bytes(64), "a GGUF file, weights of a model; the tokenizer is in"),
    "zstd": ("tokenizer.json.zst", b"\x28\xb5\x2f\xfd\x04\x58", "packed with zstd; unpack it"),
    "a tar": ("vocab.tar", b"vocab.txt".ljust(257, b"\0") + b"ustar\x0000" + bytes(248), "a tar archive"),
    "a packed tokenizer": ("tokenizer.json.gz", gzip.compress(b'{"version": "1.0"}'), "other packed file, unpack"),
    "a model's config": ("config.json", b'{"model_type": "bert", "hidden_size": 3}', "the config of a model"),
    "a tokenizer's": ("tokenizer_config.json", b'{"tokenizer_class": "T5Tokenizer"}', "notes beside a tokenizer"),
    "special tokens": ("special_tokens_map.json", b'{"bos_token": "<s>"}', "a map of special tokens; name the folder"),
    "tekken": (
        "tekken.json", b'{"config": {}, "vocab": [{"rank": 0, "token_bytes": "AA==", "token_str": null}]}',
        r"\.config: field 'default_num_special_tokens' is missing",
    ),
    "a list": ("vocab.json", b'["[PAD]", "[UNK]"]', "expected an object"),
    "RWKV": ("rwkv_vocab.txt", b"1 '\\x00' 1\n2 '\\x01' 1\n3 b'\\xe7' 1\n", "a vocabulary of RWKV, which is not read"),
    "pieces for people": (
        "m.vocab", b"<unk>\t0\n<s>\t0\n</s>\t0\n\xe2\x96\x81the\t-3.2\n", r"use the \.model beside it",
    ),
    "Keras": ("tokenizer.json", b'{"class_name": "Tokenizer", "config": {}}', "a Tokenizer of Keras, .* is not read"),
    "Keras in a string": (
        "tokenizer.json", b'"{\\"class_name\\": \\"Tokenizer\\", \\"config\\": {}}"', "a Tokenizer of Keras"
    ),
    "JSON in a string": ("tokenizer.json", b'"{\\n  \\"version\\": \\"1.0\\"}"', "JSON inside a string of JSON"),
    "of MidiTok": ("tokenizer.json", b'{"config": {}, "tokenization": "REMI"}', "with 'config', 'tokenization' and"),
    "added tokens": ("added_tokens.json", b'{"<x>": 50257, "<y>": 50258}', "these are added tokens, .* name the"),
    "a template": ("chat_template.jinja", b"{%- for m in messages %}{{ m.content }}", "a template, of chats perhaps"),
    "a repeated token": ("tokenizer.json", b'{"model": {"a": "0", "a": 1}}', r"json: 'a' stands twice in one object"),
    "a readme": ("README.md", b"# Model\n\nThis is a model.\nIt is good.\n", "read as a .* begin with '# Model'"),
    "merges": ("merges.txt", b"a b\nab c\n", r"a list of merges, which needs vocab\.json beside it"),
    "ranks": ("tokenizer.model", b"IQ== 0\nIg== 1\nIw== 2\n", "pass pattern="),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_as_what_it_is(tmp_path: Path, name: str) -> None:
    file, data, message = MISTAKES[name]
    path = tmp_path / file
    path.write_bytes(data)
    with pytest.raises(TokenizerFileError, match=message) as caught:
        Tokenizer.from_file(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000, "a message is for people"


def test_a_folder_of_something_else_says_what_is_in_it(tmp_path: Path) -> None:
    with pytest.raises(TokenizerFileError, match=r"holds none of tokenizer\.json.* but nothing"):
        Tokenizer.from_file(tmp_path)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(TokenizerFileError, match=r"but config\.json, model\.safetensors"):
        Tokenizer.from_file(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(LFS)
    with pytest.raises(TokenizerFileError, match=r"tokenizer\.json: this is a pointer of git-lfs"):
        Tokenizer.from_file(tmp_path)


@pytest.mark.parametrize("as_class", [None, "GPT2Tokenizer"])
def test_merges_that_do_not_fit_name_both_files(tmp_path: Path, as_class: str | None) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nb c\n")
    for path in (tmp_path, tmp_path / "vocab.json"):
        with pytest.raises(TokenizerFileError, match=r"/vocab\.json with merges\.txt: merge 1 is of 'b' and 'c', but"):
            Tokenizer.from_file(path, as_class=as_class)


def test_ranks_in_a_folder_as_llama_3_has_them(tmp_path: Path) -> None:
    ranks = "".join(f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(256))
    (tmp_path / "tokenizer.model").write_text(ranks)
    (tmp_path / "params.json").write_text("{}")
    with pytest.raises(TokenizerFileError, match="pass pattern="):
        Tokenizer.from_file(tmp_path)
    assert Tokenizer.from_file(tmp_path, pattern="llama3").encode("é!").ids == [0xC3, 0xA9, 0x21]
