# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files made to do harm: a clear error, in little time and memory."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tokenizer import Tokenizer, TokenizerFileError
from tokenizer.formats import sentencepiece
from tokenizer.formats.sentencepiece import SentencePieceFile, TrainerSpec
from tokenizer.models.unigram import PieceType

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
    "post-processors": (nested("post_processor", "processors", "ByteLevel", 100), "a Sequence in a Sequence"),
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
    "a long token twice": (b"[UNK]\n" + b"a" * 10**6 + b"\nb\n" + b"a" * 10**6, "stands already on line 2"),
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


def test_a_whole_character_written_as_two_escapes_is_text() -> None:
    data = tokenizer_json(model=WORDS | {"vocab": {"[UNK]": 0, "😀": 1}})
    assert b"\\ud83d\\ude00" in data
    assert Tokenizer.from_str(data.decode()).token_to_id("😀") == 1
