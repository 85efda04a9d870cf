# SPDX-License-Identifier: Apache-2.0
"""Tokenizers written in the formats of other libraries: those read them, and so do we, with the same ids."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.parity import families
from tests.parity.test_files import TIKTOKEN
from tests.parity.test_sentencepiece_tokenizers import OPTIONS, TYPES, train
from tokenmill.tokenizer import BPE, Tokenizer
from tokenmill.tokenizer.formats import bpe_files, saving
from tokenmill.tokenizer.pre_tokenizers import Metaspace

pytestmark = pytest.mark.parity


def ids(tokenizer: Tokenizer) -> list[list[int]]:
    return tokenizer.encode_arrow(pa.array(families.sample())).to_pylist()


def gpt2() -> Tokenizer:
    fields = json.loads(families.family("gpt2"))["model"]
    vocab = {t: i for t, i in fields["vocab"].items() if t != "<|endoftext|>"}
    # GPT-2's own order: the bytes, the merges, the special token.
    order = [t for t, _ in sorted(vocab.items(), key=lambda item: item[1])] + ["<|endoftext|>"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in fields["merges"]]
    return Tokenizer.from_parts(bpe_files.vocab_and_merges({t: i for i, t in enumerate(order)}, merges))


@pytest.mark.parametrize(
    ("family", "pattern"),
    [("gpt2", "r50k_base"), ("cl100k", "llama3"), ("llama3", "llama3"), ("o200k", "o200k_base"), ("kimi", "kimi_k2")],
)
def test_tiktoken_ranks(tmp_path: Path, family: str, pattern: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="needs the test group: tiktoken")
    fields = json.loads(families.family(family))
    fields["post_processor"] = None
    ours = Tokenizer.from_str(json.dumps(fields))
    if family == "gpt2":
        ours = gpt2()
    path = tmp_path / "x.tiktoken"
    ours.save(path)
    lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    text = {"llama3": families._CL100K, "kimi_k2": families._KIMI}.get(pattern) or TIKTOKEN[pattern]
    theirs = tiktoken.Encoding(pattern, pat_str=text, mergeable_ranks=ranks, special_tokens={})
    assert [theirs.encode_ordinary(t) for t in families.sample()] == ids(ours)
    assert ids(Tokenizer.from_file(path, pattern=saving.tiktoken_pattern(ours.parts))) == ids(ours)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("model_type", TYPES)
def test_sentencepiece_models(tmp_path: Path, model_type: str, name: str) -> None:
    spm = pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")
    (tmp_path / "theirs.model").write_bytes(train(model_type, OPTIONS[name]))
    ours = Tokenizer.from_file(tmp_path / "theirs.model")
    ours.save(tmp_path / "ours.model")
    loaded: Any = spm.SentencePieceProcessor(model_file=str(tmp_path / "ours.model"))
    theirs: Any = spm.SentencePieceProcessor(model_file=str(tmp_path / "theirs.model"))
    assert loaded.encode(families.sample()) == theirs.encode(families.sample()) == ids(ours)
    for i in range(len(theirs)):
        kinds = [(p.id_to_piece(i), p.is_control(i), p.is_unknown(i), p.is_byte(i)) for p in (loaded, theirs)]
        assert kinds[0] == kinds[1]
    assert (loaded.bos_id(), loaded.eos_id(), loaded.unk_id()) == (theirs.bos_id(), theirs.eos_id(), theirs.unk_id())
    again = Tokenizer.from_file(tmp_path / "ours.model")
    assert again.to_str() == ours.to_str()


def clip(tmp_path: Path, n_merges: int = 300) -> Tokenizer:
    merges = json.loads(families.family("clip"))["model"]["merges"][:n_merges]
    lines = [" ".join(m) if isinstance(m, list) else m for m in merges]
    path = tmp_path / "bpe.txt.gz"
    path.write_bytes(gzip.compress(("#version: 0.2\n" + "\n".join(lines) + "\n").encode()))
    return Tokenizer.from_file(path)


def test_what_a_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    def refused(ours: Tokenizer, file_format: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ours.save(tmp_path / "out", format=file_format)
        assert list(tmp_path.iterdir()) == []

    def family(name: str) -> Tokenizer:
        return Tokenizer.from_str(families.family(name))

    refused(family("roberta"), "vocab.json", "vocab.json cannot hold this added-tokens")
    refused(family("llama3"), "vocab.json", "cannot hold this pre-tokenizer")
    refused(family("t5"), "vocab.json", "only BPE")
    refused(family("llama2"), "clip", "is not written")
    refused(family("t5"), "sentencepiece", "cannot hold the normalizer .*: it has its own, SentencePieceNormalizer")
    spaced = Tokenizer.untrained("sentencepiece", "none")
    refused(spaced.replace(model=Tokenizer.from_str(families.family("t5")).model), "sentencepiece", "its own rules")
    refused(spaced.replace(pre_tokenizer=Metaspace()), "sentencepiece", "the pre-tokenizer Metaspace.*: it has none")

    def merging(*merges: tuple[str, str], **options: Any) -> Tokenizer:
        tokens = dict.fromkeys(["<unk>", *"▁abc", *(left + right for left, right in merges)])
        model = BPE({token: i for i, token in enumerate(tokens)}, merges, unk_token="<unk>", **options)
        return spaced.with_model(model, ["<unk>"])

    refused(merging(("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")), "sentencepiece", "'abc', which two merges make")
    refused(merging(("b", "c"), ("a", "b"), ("ab", "c")), "sentencepiece", "'abc', which its own merges do not make")
    refused(merging(("a", "b"), dropout=0.1), "sentencepiece", r"BPE with dropout=0\.1")
    smuggled = merging(("a", "b"), ("ab", "c"))
    smuggled.add_special_tokens(["ab"])
    refused(smuggled, "sentencepiece", "the token 'ab', which is both special and made by a merge")
    refused(family("qwen2"), "tiktoken", "cannot hold the normalizer NFC")
    refused(family("unknown pattern"), "tiktoken", "which is no named pattern")
    refused(family("llama2"), "tiktoken", "cannot hold the normalizer")
    refused(family("word level"), "vocab.txt", "only WordPiece")
    refused(family("gpt2"), "gguf", "format must be one of tokenizer.json, vocab.txt")
    padded = gpt2()
    padded.enable_truncation(5)
    refused(padded, "vocab.json", "cannot hold this truncation")
    spaced = Tokenizer.from_str(families.family("gpt2"))
    vocab = {**spaced.model.vocab, "a b": 100_000, "a ba": 100_001}
    model = type(spaced.model)(vocab, [*spaced.model.merges, ("a b", "a")], byte_level=True)
    refused(Tokenizer(model=model), "vocab.json", r"the merge \('a b', 'a'\)")
