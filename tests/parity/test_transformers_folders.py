# SPDX-License-Identifier: Apache-2.0
"""Folders with a slow tokenizer's files against `transformers`: the same ids, vocabulary and special tokens."""

import json
import string
from pathlib import Path
from typing import Any

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from tests.parity import families  # noqa: E402
from tests.parity.test_saving import gpt2  # noqa: E402
from tests.parity.test_sentencepiece_tokenizers import train  # noqa: E402
from tokenizer import Tokenizer, TokenizerFileError  # noqa: E402

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

TEXTS = [
    "The mill grinds text into tokens; it's what the miller's wheels do, don't they? 1234 and 5,678.",
    "Hello world", "def f(x): return x ** 2 # squared", "unaffable people, 'quoted'.",
]  # fmt: skip
_LLAMA = {
    "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
    "split_digits": True,
}  # fmt: skip
_ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
_GEMMA = {"add_dummy_prefix": False, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "T5Tokenizer": ("spiece.model", "unigram", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    "LlamaTokenizer": ("tokenizer.model", "bpe", _LLAMA),
    "GemmaTokenizer": ("tokenizer.model", "bpe", _LLAMA | _GEMMA | {"bos_piece": "<bos>", "eos_piece": "<eos>"}),
    "XLMRobertaTokenizer": ("sentencepiece.bpe.model", "unigram", {}),
    "CamembertTokenizer": ("sentencepiece.bpe.model", "unigram", {}),
    "MBartTokenizer": ("sentencepiece.bpe.model", "unigram", {}),
    "AlbertTokenizer": ("spiece.model", "unigram", _ALBERT | {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}),
    "XLNetTokenizer": (
        "spiece.model", "unigram", {"user_defined_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"]},
    ),
    "DebertaV2Tokenizer": (
        "spm.model", "unigram",
        _ALBERT | {"control_symbols": ["[CLS]", "[SEP]"], "pad_piece": "[PAD]", "unk_piece": "[UNK]"},
    ),
}  # fmt: skip
MERGES: dict[str, list[str]] = {
    "GPT2Tokenizer": [],
    "RobertaTokenizer": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "Qwen2Tokenizer": [],
    "WhisperTokenizer": ["<|startoftranscript|>", "<|notimestamps|>"],
}
CLIP_ENDS = ["<|startoftext|>", "<|endoftext|>"]
FAMILIES = {"CLIPTokenizer": "clip", "OpenAIGPTTokenizer": "char bpe"}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in [*MODELS, *MERGES, *FAMILIES, "BertTokenizer"]),
    ("LlamaTokenizer", {"add_bos_token": True, "add_eos_token": True}),
    ("LlamaTokenizer", {"add_bos_token": False}),
    ("GPT2Tokenizer", {"add_prefix_space": True, "add_bos_token": True}),
    ("MBartTokenizer", {"src_lang": "de_DE"}),
    ("BertTokenizer", {"do_lower_case": False}),
    ("T5Tokenizer", {"extra_ids": 7}),
    ("AlbertTokenizer", {"do_lower_case": False, "keep_accents": True}),
]


def write_folder(folder: Path, name: str, config: dict[str, Any]) -> None:
    if name in MODELS:
        file, model_type, options = MODELS[name]
        (folder / file).write_bytes(train(model_type, options))
    elif name in FAMILIES:
        model = json.loads(families.family(FAMILIES[name]))["model"]
        vocab = model["vocab"]
        vocab |= {t: len(vocab) + i for i, t in enumerate(t for t in CLIP_ENDS if t not in vocab)}
        merges = "".join(f"{a} {b}\n" for a, b in model["merges"])
        (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
        (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    elif name in MERGES:
        gpt2().save(folder / "vocab.json")
        vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        vocab |= {token: len(vocab) + i for i, token in enumerate(MERGES[name])}
        (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    else:
        letters = string.ascii_letters + string.digits
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "mill", "##aff", ".", ",", "'", *letters]
        (folder / "vocab.txt").write_text("\n".join([*tokens, *(f"##{c}" for c in letters)]) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name} | config), encoding="utf-8")


@pytest.mark.parametrize(("name", "config"), CASES)
def test_ids_of_a_slow_tokenizers_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, config: dict[str, Any]
) -> None:
    # transformers' description of .model files may be newer than the protobuf that Beam allows; it works all the same.
    monkeypatch.setattr("google.protobuf.runtime_version.ValidateProtobufRuntimeVersion", lambda *_: None)
    config = {"add_bos_token": True} | config if name in ("LlamaTokenizer", "GemmaTokenizer") else config
    write_folder(tmp_path, name, config)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert type(theirs).__name__ == name
    ours = Tokenizer.from_file(tmp_path)
    for text in TEXTS:
        expected = theirs(text)["input_ids"]
        assert ours.encode(text).ids == expected
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=True)
    assert ours.encode(TEXTS[1], TEXTS[0]).ids == theirs(TEXTS[1], TEXTS[0])["input_ids"]
    for text in families.sample()[-2:]:
        assert ours.encode(text, add_special_tokens=False).ids == theirs(text, add_special_tokens=False)["input_ids"]
    got, wanted = ours.get_vocab(), theirs.get_vocab()
    assert got.items() <= wanted.items()
    # transformers makes up special tokens that a vocabulary lacks.
    assert {token for token in wanted if token not in got} <= {"<mask>"}
    assert Tokenizer.from_str(ours.to_str()).encode(TEXTS[0]).ids == ours.encode(TEXTS[0]).ids


def test_tokens_added_beside_a_tokenizer_json(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(families.family("gpt2"), encoding="utf-8")
    decoder = {"700": {"content": "<|tool|>", "special": True}, "701": {"content": "<think>", "lstrip": True}}
    config = {"added_tokens_decoder": decoder, "pad_token": {"content": "<|endoftext|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    ours = Tokenizer.from_file(tmp_path, special="split")
    assert ours.encode("a <think><|tool|>").ids[1:] == [701, 700]
    assert [t.special for t in ours.added_tokens if t.id >= 700] == [True, False]


def test_tokens_added_by_an_older_version(tmp_path: Path) -> None:
    write_folder(tmp_path, "GPT2Tokenizer", {})
    n = gpt2().n_ids
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<a>": n, "<b>": n + 1}), encoding="utf-8")
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"additional_special_tokens": ["<b>"]}), encoding="utf-8"
    )
    ours = Tokenizer.from_file(tmp_path)
    assert [(t.content, t.special) for t in ours.added_tokens if t.id >= n] == [("<a>", False), ("<b>", True)]
    assert n in ours.encode("x<a>y<b>").ids
    assert n + 1 not in ours.encode("x<a>y<b>").ids


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json: expected an object"),
        ("tokenizer_config.json", '{"tokenizer_class": 3}', "tokenizer_class: expected a string"),
        ("tokenizer_config.json", '{"add_prefix_space": "no"}', "add_prefix_space: expected true or false"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}', "expected ids as keys, got 'x'"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"9999": {"content": ""}}}', "has no content"),
        ("tokenizer_config.json", '{"tokenizer_class": "RobertaTokenizer"}', "the vocabulary has no '</?s>'"),
        ("added_tokens.json", '{"<a>": "1"}', "<a>: expected an integer"),
        ("added_tokens.json", '{"<a>": 5}', "id 5 belongs to"),
        ("special_tokens_map.json", '{"a": 1', "not JSON"),
    ],
)
def test_broken_settings(tmp_path: Path, file: str, content: str, message: str) -> None:
    write_folder(tmp_path, "GPT2Tokenizer", {})
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_file(tmp_path)


def test_nllbs_languages_are_added_tokens(tmp_path: Path) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(train("unigram", {}))
    config: dict[str, Any] = {"tokenizer_class": "NllbTokenizer", "src_lang": "deu_Latn"}
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match="the vocabulary has no lang token 'deu_Latn'"):
        Tokenizer.from_file(tmp_path)
    config["added_tokens_decoder"] = {"9000": {"content": "deu_Latn", "special": True}}
    path.write_text(json.dumps(config), encoding="utf-8")
    ours = Tokenizer.from_file(tmp_path)
    assert [*ours.encode("Hello").ids[:1], *ours.encode("Hello").ids[-1:]] == [9000, 2]
    assert ours.id_to_token(3) == "<unk>"
