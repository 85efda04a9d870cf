# SPDX-License-Identifier: Apache-2.0
"""Scanners and BPE in one kernel, where a text is not scanned as it is."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.models.bpe import BPE, BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, Sequence, Split
from tokenmill.tokenizer.pre_tokenizers.known_patterns import GPT2_PATTERN
from tokenmill.tokenizer.sampling import Sampling


@given(st.lists(st.text(" a\t\u3000中é'<s>", max_size=12), min_size=1, max_size=8))
@example(["", " ", "  ", "a", " a", "\ta", "中", "<s>a", " <s> a<s>", "<s>"])
def test_a_space_in_front_of_every_text_as_in_roberta(texts: list[str]) -> None:
    vocab = {b: i for i, b in enumerate(BYTE_ALPHABET)} | {"Ġa": 256, "aa": 257, "<s>": 258}
    model = BPE(vocab, [("Ġ", "a"), ("a", "a")], byte_level=True)
    for special in ("plain", "split"):
        tok = Tokenizer(
            model=model,
            pre_tokenizer=ByteLevel(add_prefix_space=True),
            added_tokens=[AddedToken(258, "<s>", special=True)],
            special=special,
        )
        assert "encode_joined_bpe" in str(tok.explain())
        # Singly, text goes through every step.
        assert tok.encode_arrow(pa.array(texts, pa.large_string())).to_pylist() == [tok.encode(t).ids for t in texts]


@pytest.mark.parametrize("n", [30, 3000, 100_000])
@pytest.mark.parametrize("steps", [ByteLevel(add_prefix_space=False), None], ids=["bytes", "characters"])
def test_a_byte_may_become_many_ids(steps: ByteLevel | None, n: int) -> None:
    """Byte tokens of letters and markers: more ids than bytes, in words of any length."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    markers = {} if steps else {"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"}
    model = BPE(vocab, [], byte_fallback=True, byte_level=steps is not None, **markers)
    tok = Tokenizer(model=model, pre_tokenizer=steps)
    letter = "Ã©" if steps else "##é"
    expected = list((letter * n if steps else "é" + letter * (n - 1) + "</w>").encode())
    assert tok.encode_arrow(pa.array(["é" * n])).to_pylist() == [expected]
    assert tok.encode("é" * n).ids == expected
    sampled = tok.encode_arrow(pa.array(["é" * n]), sampling=Sampling(dropout=1.0))
    assert sampled.to_pylist() == [expected]


@pytest.mark.parametrize(
    ("kernel", "split"),
    [
        ("joined", Split(GPT2_PATTERN, "isolated", is_regex=True)),
        ("joined", Split(r"\p{L}+|\d|\s+", "isolated", is_regex=True)),
        ("apart", Split(r"[\p{L}]+|[^\s\p{L}]+", "removed", invert=True, is_regex=True)),
        ("found", Split(r"[\p{L}]+|[^\s\p{L}]+", "contiguous", is_regex=True)),
    ],
)
def test_a_suffix_marks_the_last_part_of_a_word_behind_any_pattern(kernel: str, split: Split) -> None:
    """Words are cut where nothing reaches across, and only their last part ends with the suffix."""
    suffix = "</w>"
    vocab = {token: i for i, token in enumerate([*BYTE_ALPHABET, *(b + suffix for b in BYTE_ALPHABET)])}
    model = BPE(vocab, [], end_of_word_suffix=suffix, byte_level=True)
    steps = Sequence((split, ByteLevel(False, use_regex=False)))
    tok = Tokenizer(model=model, pre_tokenizer=steps)
    assert f"encode_{kernel}_bpe_flagged" in tok.explain()
    # Parts that are words elsewhere, on either side of them; words are not cut near the end of a column.
    texts = ["感皇恩 ab 中a文", "感 皇 恩 文", "感皇恩", "añb ééé", "中", "." * 80]
    assert tok.encode_arrow(pa.array(texts)).to_pylist() == [tok.encode(text).ids for text in texts]
    assert tok.encode("中").tokens == ["ä", "¸", "Ń</w>"]
