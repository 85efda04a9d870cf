# SPDX-License-Identifier: Apache-2.0
"""WordPiece against HF tokenizers', on vocabularies and words in which the prefix stands for itself too."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402

from tokenmill.tokenizer import Tokenizer  # noqa: E402
from tokenmill.tokenizer.models import WordPiece  # noqa: E402

pytestmark = pytest.mark.parity

PREFIXES = ("##", "#", "ab", "é", "▁", "▁▂", "")
_TEXTS = st.text("#abé▁▂玫𝖟", max_size=8)
"""▁ and ▂ differ in their third byte."""


@st.composite
def _vocabs(draw: st.DrawFn) -> tuple[list[str], str]:
    """Entries with a prefix and without, the prefix itself among them, and what is longer or shorter."""
    prefix = draw(st.sampled_from(PREFIXES))
    parts = draw(st.lists(_TEXTS, max_size=12))
    marked = draw(st.lists(_TEXTS, max_size=12))
    tokens = [*parts, *(prefix + part for part in marked)]
    return ["[UNK]", *dict.fromkeys(token for token in tokens if token)], prefix


def tokenizer_of(vocab: list[str], prefix: str, max_chars: int = 100, oov: str = "word") -> Tokenizer:
    from tokenmill.tokenizer.pre_tokenizers import WhitespaceSplit

    ids = {token: i for i, token in enumerate(vocab)}
    model = WordPiece(ids, continuing_subword_prefix=prefix, max_input_chars_per_word=max_chars, oov_policy=oov)
    return Tokenizer(model=model, pre_tokenizer=WhitespaceSplit())


@given(_vocabs(), st.lists(_TEXTS, max_size=6), st.integers(1, 8))
@example((["[UNK]", "#", "###"], "##"), ["#####", "###"], 8)
@example((["[UNK]", "##"], "##"), ["##", "####"], 8)
@example((["[UNK]", "a", "b"], ""), ["ab"], 8)
@example((["[UNK]", "▁", "▁▁▂", "▂"], "▁"), ["▂▂", "▁▂", "▁▁", "▂▁", "▁▁▂▂"], 8)
def test_ids_and_offsets_equal_hf(vocab: tuple[list[str], str], words: list[str], max_chars: int) -> None:
    tokens, prefix = vocab
    ours = tokenizer_of(tokens, prefix, max_chars)
    model = hf.models.WordPiece(
        {token: i for i, token in enumerate(tokens)}, unk_token="[UNK]", max_input_chars_per_word=max_chars,
        continuing_subword_prefix=prefix,
    )  # fmt: skip
    theirs = hf.Tokenizer(model)
    theirs.pre_tokenizer = hf.pre_tokenizers.WhitespaceSplit()
    text = " ".join(words)
    expected = theirs.encode(text)
    assert ours.encode_arrow(pa.array([text]))[0].as_py() == expected.ids
    found = ours.encode(text)
    assert (found.ids, found.offsets) == (expected.ids, expected.offsets)
