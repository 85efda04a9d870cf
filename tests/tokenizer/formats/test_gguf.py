# SPDX-License-Identifier: Apache-2.0
"""The tokenizer in a GGUF file gives the ids of the one that it was written from; broken metadata is an error."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.tokenizer.formats.test_hostile_files import bpe_model
from tokenmill.tokenizer import Tokenizer, TokenizerFileError
from tokenmill.tokenizer.formats import sentencepiece
from tokenmill.tokenizer.trainers import BPETrainer

TEXTS = ["the mill grinds", "The  miller's 123 mills", "", " ", "naïve 玫瑰", "<s>x</s>", "a\n\nb\t"]
TYPES = {int: 5, float: 6, bool: 7, str: 8, list: 9}


def packed(value: Any) -> bytes:
    """A value as GGUF has it, behind the number of its type."""
    kind = TYPES[type(value)]
    if kind == 9:
        inner = [packed(each) for each in value] or [struct.pack("<I", 8)]
        return struct.pack("<I", 9) + inner[0][:4] + struct.pack("<Q", len(value)) + b"".join(x[4:] for x in inner)
    data = value.encode() if kind == 8 else b""
    form = {5: "i", 6: "f", 7: "?", 8: "Q"}[kind]
    return struct.pack(f"<I{form}", kind, len(data) if kind == 8 else value) + data


def gguf(**fields: Any) -> bytes:
    named = {"general.architecture": "llama", "numbers": [1, 2]}
    named |= {f"tokenizer.ggml.{name}": value for name, value in fields.items()}
    keys = b"".join(struct.pack("<Q", len(key)) + key.encode() + packed(value) for key, value in named.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 1, len(named)) + keys + bytes(100)


def gpt2() -> Tokenizer:
    tokenizer = Tokenizer.untrained("none", "gpt2", byte_level=True)
    trainer = BPETrainer(vocab_size=290, byte_level=True, special_tokens=["<|endoftext|>"])
    return tokenizer.train_from_iterator(TEXTS * 3, trainer)


def gpt2_fields(pre: str = "gpt-2") -> dict[str, Any]:
    tokenizer = gpt2()
    tokens = [tokenizer.id_to_token(i) for i in range(len(tokenizer))]
    return {
        "model": "gpt2", "pre": pre, "tokens": tokens, "eos_token_id": tokens.index("<|endoftext|>"),
        "token_type": [3 if token == "<|endoftext|>" else 1 for token in tokens],
        "merges": [f"{a} {b}" for a, b in tokenizer.model.merges],
    }  # fmt: skip


def same_ids(data: bytes, tokenizer: Tokenizer, **options: Any) -> Tokenizer:
    found = Tokenizer.from_buffer(data, **options)
    assert found.encode_arrow(TEXTS).to_pylist() == tokenizer.encode_arrow(TEXTS).to_pylist()
    return found


def test_byte_level_bpe(tmp_path: Path) -> None:
    found = same_ids(gguf(**gpt2_fields()), gpt2())
    assert found.get_vocab() == gpt2().get_vocab()
    ended = Tokenizer.from_buffer(gguf(**gpt2_fields(), add_eos_token=True))
    assert ended.encode("a", "b").tokens == ["a", "<|endoftext|>", "b", "<|endoftext|>"]
    (tmp_path / "model.gguf").write_bytes(gguf(**gpt2_fields("mine")))
    with pytest.raises(TokenizerFileError, match=r"model\.gguf: tokenizer\.ggml\.pre is 'mine'.*pass pattern="):
        Tokenizer.from_file(tmp_path / "model.gguf")
    assert Tokenizer.from_file(tmp_path / "model.gguf", pattern="gpt2").to_str() == found.to_str()
    llama = Tokenizer.from_buffer(gguf(**gpt2_fields("llama-bpe"), bos_token_id=2))
    assert llama.model.ignore_merges
    assert llama.encode("12345").tokens[0] == llama.id_to_token(2)


def test_sentencepiece() -> None:
    data = bpe_model(["▁", *"themilgrnd", "th", "the", "▁the", "il", "ill"])
    file = sentencepiece.read(data, "m.model")
    fields = {
        "model": "llama", "tokens": [*file.pieces, "[PAD]"], "scores": [*file.scores.tolist(), -1000.0],
        "token_type": [*file.types.tolist(), 5], "remove_extra_whitespaces": file.normalizer.remove_extra_whitespaces,
        "add_space_prefix": file.normalizer.add_dummy_prefix, "add_bos_token": False,
        "precompiled_charsmap": list(file.normalizer.precompiled_charsmap) or [0][:0],
    }  # fmt: skip
    fields = {name: value for name, value in fields.items() if value != []}
    found = same_ids(gguf(**fields), Tokenizer.from_buffer(data))
    assert found.token_to_id("[PAD]") == len(file.pieces)


def test_bert() -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "mill", "##er", "'", "s"]
    types = [3] * 5 + [1] * 5
    plain = [t.removeprefix("##") if t.startswith("##") else f"▁{t}" for t in tokens]
    spelled = [*tokens[:5], *plain[5:]]
    bert = Tokenizer.for_bert(tokens)
    found = same_ids(gguf(model="bert", tokens=spelled, token_type=types), bert)
    assert found.encode("the miller").tokens == ["[CLS]", "the", "mill", "##er", "[SEP]"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "rwkv"}, "whose tokenizer is 'rwkv'; supported are gpt2, llama, t5, bert; use the"),
        ({"model": "gpt2"}, r"tokenizer\.ggml\.tokens has no tokens"),
        ({"model": "gpt2", "tokens": [1, 2]}, r"tokenizer\.ggml\.tokens must be a list of str"),
        ({"model": "gpt2", "tokens": "a"}, r"tokenizer\.ggml\.tokens must be list, got 'a'"),
        ({"model": "llama", "tokens": ["a"], "token_type": [1, 1]}, "token_type has 2 values for 1 tokens"),
        ({"model": "llama", "tokens": ["a"], "token_type": [9], "scores": [0.0]}, "type of piece 0, 'a', must be"),
        ({"model": "llama", "tokens": ["a"], "scores": [0.0, 0.0]}, "scores has 2 values for 1 tokens"),
        ({"model": "llama", "tokens": ["a"], "scores": [0.0], "bos_token_id": 5}, "must be below 1, got 5"),
        ({"model": "bert", "tokens": ["▁a", "▁a"]}, "has a token twice"),
        (gpt2_fields() | {"merges": ["a b c"]}, "merges must be pairs"),
    ],
)  # fmt: skip
def test_broken_fields(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_buffer(gguf(**fields))


def test_options_without_effect() -> None:
    with pytest.raises(TokenizerFileError, match=r"pattern='x' has no effect on a GGUF file of gpt2; .* one of gpt2"):
        Tokenizer.from_buffer(gguf(**gpt2_fields()), pattern="x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GGUF", "ends, at byte 4, within a value of 4 bytes"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(20), "of version 50331648; only 2 and 3 are read"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "ends, at byte 24"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63), "within a value of 9223372036854775808 bytes"),
        (b"GGUF" + struct.pack("<IQQQIIQ", 3, 0, 1, 0, 9, 8, 1 << 40), "with an array of 1099511627776 values"),
        (b"GGUF" + struct.pack("<IQQQIIQ", 3, 0, 1, 0, 9, 8, 1 << 20), "ends, at byte "),
        (b"GGUF" + struct.pack("<IQQQI", 3, 0, 1, 0, 9) + struct.pack("<IQ", 9, 1) * 9, "of the unknown type 9"),
        (b"GGUF" + struct.pack("<IQQQI", 3, 0, 1, 0, 77), "of the unknown type 77"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"\xff", "not UTF-8 at byte 0"),
    ],
)  # fmt: skip
def test_broken_metadata(data: bytes, message: str) -> None:
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_buffer(data)


def test_any_damage_is_an_error_or_no_matter() -> None:
    data = gguf(**gpt2_fields())

    @strategies.FEWER
    @given(
        st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=4), st.integers(4, len(data))
    )
    def check(changes: list[tuple[int, int]], size: int) -> None:
        damaged = bytearray(data[:size])
        for place, byte in changes:
            if 4 <= place < size:
                damaged[place] = byte
        try:
            Tokenizer.from_buffer(bytes(damaged)).encode("the mill")
        except TokenizerFileError:
            return

    check()
