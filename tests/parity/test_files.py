# SPDX-License-Identifier: Apache-2.0
"""Real tokenizers from their own files, against the libraries they come from."""

import base64
import json
import unicodedata
from pathlib import Path

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402
from tokenizers import models, pre_tokenizers  # noqa: E402

from tests.corpora import documents  # noqa: E402
from tests.parity import families  # noqa: E402
from tokenmill.tokenizer import Tokenizer, TokenizerFileError  # noqa: E402
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET  # noqa: E402

pytestmark = pytest.mark.parity

CORPORA = ["en", "code", "multi", "zh"]


def as_bytes(token: str) -> bytes:
    return bytes(BYTE_ALPHABET.index(c) for c in token)


@pytest.fixture(scope="module")
def gpt2_folder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    for name in ("vocab.json", "merges.txt"):
        (folder / name).write_bytes((shared_data / "vocab" / f"gpt2-{name}").read_bytes())
    return folder


@pytest.fixture(scope="module")
def gpt2(gpt2_folder: Path) -> "hf.Tokenizer":
    theirs = hf.Tokenizer(models.BPE.from_file(str(gpt2_folder / "vocab.json"), str(gpt2_folder / "merges.txt")))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return theirs


@pytest.mark.parametrize("corpus", CORPORA)
def test_gpt2_on_documents_against_tiktoken(gpt2_folder: Path, shared_data: Path, corpus: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="needs the test group: tiktoken")
    vocab = json.loads((gpt2_folder / "vocab.json").read_text(encoding="utf-8"))
    ranks = {as_bytes(t): i for t, i in vocab.items() if t != "<|endoftext|>"}
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    theirs = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    texts = documents(shared_data, corpus)
    rows = Tokenizer.from_file(gpt2_folder).encode_arrow(pa.array(texts, pa.large_string()))
    for row, text in zip(rows, texts, strict=True):
        assert row.as_py() == theirs.encode_ordinary(text)


def test_patterns_that_mean_something_else(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "own.tiktoken", ranks_of("cl100k"))
    for pattern, message in [
        (r"a{1,3}+b|.", r"\{1,3\}\+ is possessive; write \(\?>\.\.\.\) around what it is of"),
        ("(?m:^a)|.", r"of the flags in '\(\?m' only i"),
        ("(", "is no regular expression"),
        ("cl100k", r"pass pattern= .*got 'cl100k'"),
    ]:
        with pytest.raises(TokenizerFileError, match=message):
            Tokenizer.from_file(path, pattern=pattern)


@pytest.mark.parametrize(
    ("file", "name", "pattern", "special"),
    [
        ("tiktoken.model", "TikTokenTokenizer", "kimi_k2", {0: "[BOS]", 1: "<|reserved_token_{}|>"}),
        ("qwen.tiktoken", "QWenTokenizer", "qwen", {0: "<|endoftext|>", 1: "<|im_start|>", 207: "<|extra_204|>"}),
        ("tokenizer.model", "ChatGLM4Tokenizer", "llama3", {0: "[BOS]", 1: "[gMASK]", 2: "<sop>"}),
    ],
)
def test_a_folder_of_ranks(tmp_path: Path, file: str, name: str, pattern: str, special: dict[int, str]) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="needs the test group: tiktoken")
    ranks = ranks_of("kimi")
    n = len(ranks)
    write_ranks(tmp_path / file, ranks)
    of_config = {} if name.startswith("QWen") else {i: t for i, t in special.items() if "{" not in t}
    given_tokens = {str(n + i): {"content": token, "special": True} for i, token in of_config.items()}
    config = {"tokenizer_class": name, "auto_map": {"AutoTokenizer": [f"own.{name}", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"added_tokens_decoder": given_tokens}))
    (tmp_path / "own.py").write_text("raise SystemExit('a file of a tokenizer is not run')")
    ours = Tokenizer.from_file(tmp_path)
    assert {i: ours.id_to_token(n + i) for i in special} == {i: t.format(n + i) for i, t in special.items()}
    theirs = tiktoken.Encoding(name, pat_str=PAT_STR[pattern], mergeable_ranks=ranks, special_tokens={})
    for text in families.sample():
        normal = unicodedata.normalize("NFC", text) if name.startswith("QWen") else text
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode_ordinary(normal)
    assert len(ours.encode("").ids) == (2 if name.startswith("ChatGLM4") else 0)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(TokenizerFileError, match=r"do not say how text is split; pass pattern="):
        Tokenizer.from_file(tmp_path)
    with pytest.raises(TokenizerFileError, match=r"T5Tokenizer does not read ranks; known are ChatGLM4Tokenizer, QWen"):
        Tokenizer.from_file(tmp_path, as_class="T5Tokenizer")
    assert Tokenizer.from_file(tmp_path, pattern=PAT_STR[pattern]).encode("a b").ids == theirs.encode_ordinary("a b")


@pytest.mark.parametrize("lists_special", [True, False])
def test_tekken(tmp_path: Path, lists_special: bool) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="needs the test group: tiktoken")
    ranks = ranks_of("tekken")
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in ranks.items()
    ]
    config = {
        "pattern": families._TEKKEN, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) - 9 + 50,
        "default_num_special_tokens": 50, "version": "v3",
    }  # fmt: skip
    special = [{"rank": 1, "token_str": "<s>", "is_control": True}, {"rank": 3, "token_str": "<x>", "is_control": True}]
    fields = {"config": config, "vocab": vocab} | ({"special_tokens": special} if lists_special else {})
    (tmp_path / "tekken.json").write_text(json.dumps(fields), encoding="utf-8")
    ours = Tokenizer.from_file(tmp_path / "tekken.json")
    kept = {token: rank for token, rank in ranks.items() if rank < len(vocab) - 9}
    theirs = tiktoken.Encoding("tekken", pat_str=families._TEKKEN, mergeable_ranks=kept, special_tokens={})
    for text in families.sample():
        assert ours.encode(text).ids == [1, *(50 + i for i in theirs.encode_ordinary(text))]
        assert ours.decode(ours.encode(text).ids) == text
    assert ours.encode("a", "b").ids == [1, 50 + kept[b"a"], 1, 50 + kept[b"b"]]
    assert [ours.id_to_token(i) for i in (1, 3, 49)] == ["<s>", "<x>" if lists_special else "[INST]", "<SPECIAL_49>"]
    assert Tokenizer.from_file(tmp_path).to_str() == ours.to_str()
    assert len(ours) == config["default_vocab_size"]


def ranks_of(family: str) -> dict[bytes, int]:
    vocab = json.loads(families.family(family))["model"]["vocab"]
    order = sorted((i, t) for t, i in vocab.items() if t != "<|endoftext|>")
    return {as_bytes(t): rank for rank, (_, t) in enumerate(order)}


def write_ranks(path: Path, ranks: dict[bytes, int]) -> Path:
    path.write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()), encoding="ascii")
    return path


_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PAT_STR = {
    "kimi_k2": families._KIMI,
    "qwen": _WORDS + r"\p{N}" + _REST,
    "llama3": _WORDS + r"\p{N}{1,3}" + _REST,
}
"""As the programs of Kimi K2, the first Qwen and GLM-4 have them."""
TIKTOKEN = {
    "kimi_k2": families._KIMI,
    "r50k_base": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    "cl100k_base": (
        r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"""
        r"""\s*[\r\n]|\s+(?!\S)|\s"""
    ),
    "o200k_base": "|".join(
        [
            r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""\p{N}{1,3}""",
            r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
            r"""\s*[\r\n]+""",
            r"""\s+(?!\S)""",
            r"""\s+""",
        ]
    ),
}
