# SPDX-License-Identifier: Apache-2.0
"""Scanners and BPE in one kernel, where a text is not scanned as it is."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenizer import Tokenizer
from tokenizer.added_tokens import AddedToken
from tokenizer.models.bpe import BPE, BYTE_ALPHABET
from tokenizer.pre_tokenizers import ByteLevel
from tokenizer.sampling import Sampling


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
        assert "scanned_bpe.gpt2" in str(tok.explain())
        # Singly, text goes through every step.
        assert tok.encode_arrow(pa.array(texts, pa.large_string())).to_pylist() == [tok.encode(t).ids for t in texts]


@pytest.mark.parametrize("n", [30, 3000, 300_000])
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
