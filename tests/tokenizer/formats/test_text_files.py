# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files that are text: byte order marks, and vocabularies whose capitals prove that they are cased."""

import base64
import codecs
import json
from pathlib import Path

import pytest

from tokenmill.tokenizer import Tokenizer, TokenizerFileError
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNCASED = [*SPECIAL, "[unused1]", "<S>", "<|END|>", "a", "##b", "abc", "ǆ", "ℝ"]


def bert_folder(folder: Path, vocab: list[str] = UNCASED) -> Path:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocab), encoding="utf-8")
    return folder / "vocab.txt"


def bpe_folder(folder: Path) -> Path:
    tokens = [*BYTE_ALPHABET, "ab"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}), encoding="utf-8")
    (folder / "merges.txt").write_text("a b\n", encoding="utf-8")
    return folder / "vocab.json"


def json_file(folder: Path) -> Path:
    Tokenizer.for_bert(UNCASED).save(folder / "tokenizer.json")
    return folder / "tokenizer.json"


def large_json_file(folder: Path) -> Path:
    Tokenizer.for_bert([*SPECIAL, *(f"token{i}" for i in range(60_000))]).save(folder / "tokenizer.json")
    return folder / "tokenizer.json"


def ranks(folder: Path) -> Path:
    lines = (f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
    (folder / "ranks.tiktoken").write_text("".join(lines), encoding="utf-8")
    return folder / "ranks.tiktoken"


def transformers_folder(folder: Path) -> Path:
    bert_folder(folder)
    options = {"do_lower_case": False, "tokenizer_class": "BertTokenizer", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]"}), encoding="utf-8")
    (folder / "added_tokens.json").write_text(json.dumps({"new": len(UNCASED)}), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "make", [bert_folder, bpe_folder, json_file, large_json_file, ranks, transformers_folder], ids=lambda f: f.__name__
)
def test_a_byte_order_mark_changes_nothing(tmp_path: Path, make: object) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    pattern = "cl100k_base" if make is ranks else None
    expected = Tokenizer.from_file(path, pattern=pattern)
    for file in tmp_path.iterdir():
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    assert Tokenizer.from_file(path, pattern=pattern).to_str() == expected.to_str()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_refused_by_name(tmp_path: Path, encoding: str) -> None:
    text = "\ufeff" * (encoding != "utf-16") + "[UNK]\na\n"
    (tmp_path / "vocab.txt").write_bytes(text.encode(encoding))
    with pytest.raises(TokenizerFileError, match="text in UTF-16; save it as UTF-8"):
        Tokenizer.from_file(tmp_path / "vocab.txt")


def test_a_first_token_that_a_reader_would_take_for_a_byte_order_mark_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot begin with token '\\ufeffa'"):
        Tokenizer.for_bert(["\ufeffa", "[UNK]"]).save(tmp_path / "vocab.txt")


@pytest.mark.parametrize("says", [True, False])
def test_do_lower_case_wins_over_capitals(tmp_path: Path, says: bool) -> None:
    bert_folder(tmp_path, [*UNCASED, "A"])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": says}), encoding="utf-8")
    tokenizer = Tokenizer.from_file(tmp_path)
    assert tokenizer.normalizer.lowercase is says
    assert not tokenizer.assumptions


def test_a_class_decides_the_case_of_its_folder_and_that_is_said(tmp_path: Path) -> None:
    bert_folder(tmp_path, [*UNCASED, "A"])
    tokenizer = Tokenizer.from_file(tmp_path, as_class="BertTokenizer")
    assert tokenizer.normalizer.lowercase
    assert "BertTokenizer lower-cases text unless do_lower_case is false" in tokenizer.explain()
