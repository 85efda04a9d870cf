# SPDX-License-Identifier: Apache-2.0
"""The normalizer as a step of its own: steps that change no pre-token are left out, and no others."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.models import BPE, WordLevel
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers import NFC, Lowercase, Replace, Sequence
from tokenmill.tokenizer.pre_tokenizers import BertPreTokenizer, WhitespaceSplit
from tokenmill.tokenizer.text import TextChain, parse_steps

ONE_SPACE = Replace(r"\s+", " ", is_regex=True)


@given(st.lists(st.text("aB  \t\n\u3000\u2003\x85É中<|x>", max_size=12), min_size=1, max_size=6), st.booleans())
def test_the_ids_are_those_of_all_steps(texts: list[str], has_blank: bool) -> None:
    vocab = {b: i for i, b in enumerate(BYTE_ALPHABET)}
    model = BPE(vocab | {"<|x>": 300, "a b": 301}, [], byte_level=True)
    content = "a b" if has_blank else "<|x>"
    added = [AddedToken(vocab.get(content, 301 if has_blank else 300), content, normalized=True)]
    every = Sequence((NFC(), ONE_SPACE, Lowercase()))
    for pre_tokenizer in (WhitespaceSplit(), BertPreTokenizer()):
        for special in ("plain", "split"):
            tok = Tokenizer(
                model=model, normalizer=every, pre_tokenizer=pre_tokenizer, added_tokens=added, special=special
            )
            # Singly, text goes through every step.
            expected = [tok.encode(text).ids for text in texts]
            assert tok.encode_arrow(pa.array(texts, pa.large_string())).to_pylist() == expected


@pytest.mark.parametrize("step", [{"lowercase": {"final_sigma": True}}, {"strip_accents": "all"}, "nfc"], ids=str)
def test_a_text_step_is_not_saved_under_the_name_of_a_normalizer(step: object) -> None:
    (normalizer,) = parse_steps([step])  # type: ignore[list-item]
    tok = Tokenizer(model=WordLevel({"ας": 0, "?": 1}, unk_token="?"), normalizer=normalizer)
    with pytest.raises(ValueError, match=r"cannot be written as tokenizer\.json; it has no type for it"):
        tok.to_str()
    assert tok.normalizer.normalize_str("ΑΣ é") == TextChain([normalizer]).apply(["ΑΣ é"])[0][0].as_py()
