# SPDX-License-Identifier: Apache-2.0
"""HF's parts that come to what sentencepiece does, as in Llama 2's and Gemma's `tokenizer.json`, run in its kernel."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import BPE, Tokenizer
from tokenmill.tokenizer.normalizers import NFC, Normalizer, Prepend, Replace, Sequence
from tokenmill.tokenizer.pre_tokenizers import Metaspace, Split

MERGES = [("a", "b"), ("▁", "ab"), ("ab", "c"), ("▁", "▁"), ("c", "玫"), ("▁▁", "▁▁"), ("玫", "玫"), ("▁", "c")]
TOKENS = ["<unk>", *"▁abc玫.", *(a + b for a, b in MERGES)]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
WITH_UNKNOWN = BPE({t: i for i, t in enumerate(TOKENS)}, MERGES, unk_token="<unk>", fuse_unk=True)
WITH_BYTES = dataclasses.replace(
    WITH_UNKNOWN, vocab={t: i for i, t in enumerate([*TOKENS, *BYTES])}, byte_fallback=True
)
LLAMA = Sequence((Prepend("▁"), Replace(" ", "▁")))


def kernel_of(normalizer: Normalizer | None, pre_tokenizer: Any, model: BPE) -> str:
    return str(Tokenizer(model=model, normalizer=normalizer, pre_tokenizer=pre_tokenizer).explain()).split()[1]


@pytest.mark.parametrize("model", [WITH_UNKNOWN, WITH_BYTES])
@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (LLAMA, None),
        (Replace(" ", "▁"), Split(" ", "merged_with_previous")),
        (Sequence((Replace(" ", "▁"),)), Metaspace(prepend_scheme="never", split=False)),
        (None, Metaspace(prepend_scheme="first", split=False)),
        (None, Metaspace(prepend_scheme="always", split=False)),
        (NFC(), Metaspace(prepend_scheme="first", split=False)),
        (LLAMA, Metaspace(prepend_scheme="always", split=False)),
    ],
)
def test_ids_are_those_of_the_parts(normalizer: Normalizer, pre_tokenizer: Any, model: BPE) -> None:
    tok = Tokenizer(model=model, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    assert kernel_of(normalizer, pre_tokenizer, model).startswith("sentencepiece_bpe")

    @given(st.lists(st.text("aabbcc玫玫.▁  \n\0ßx😀", max_size=40), max_size=5))
    def check(texts: list[str]) -> None:
        # One text goes through the parts themselves.
        assert tok.encode_arrow(texts).to_pylist() == [tok.encode(text).ids for text in texts]

    check()


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "changes"),
    [
        (None, None, {}),
        (Sequence(()), None, {}),
        (Prepend("▁"), None, {}),
        (Sequence((Replace(" ", "▁"), Prepend("▁"))), None, {}),
        (Sequence((Prepend(" "), Replace(" ", "▁"))), None, {}),
        (None, Metaspace("_", split=False), {}),
        (None, Metaspace(), {}),
        (None, Metaspace(), {"merges": (), "vocab": {"<unk>": 0, "a": 1}}),  # "▁" is unknown, and fused with what is
        (LLAMA, Split("a", "merged_with_previous"), {}),
        (LLAMA, Split(" ", "removed", invert=True), {}),
        (LLAMA, None, {"dropout": 0.1}),
        (LLAMA, None, {"fuse_unk": False}),
        (LLAMA, None, {"ignore_merges": True}),
        (LLAMA, None, {"end_of_word_suffix": "c"}),
        (LLAMA, None, {"unk_token": "a"}),
        (LLAMA, None, {"unk_token": None}),
    ],
)
def test_what_comes_to_something_else_does_not(
    normalizer: Normalizer | None, pre_tokenizer: Any, changes: dict[str, Any]
) -> None:
    assert not kernel_of(normalizer, pre_tokenizer, dataclasses.replace(WITH_UNKNOWN, **changes)).startswith("sentence")
