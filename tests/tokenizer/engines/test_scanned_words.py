# SPDX-License-Identifier: Apache-2.0
"""Models that a scanner runs with in one pass, against the same steps one after the other."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import EXHAUSTIVE
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.engines.staged import StagedEngine
from tokenmill.tokenizer.engines.tables import TablePool
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.normalizers import NFC
from tokenmill.tokenizer.pre_tokenizers import (
    BertPreTokenizer,
    Digits,
    PreTokenizer,
    Punctuation,
    Sequence,
    Split,
    Whitespace,
)
from tokenmill.tokenizer.pre_tokenizers import WhitespaceSplit as Spaces
from tokenmill.tokenizer.pre_tokenizers.known_patterns import GPT2_PATTERN
from tokenmill.tokenizer.ragged import text_rows

NONE = np.empty(0, np.int32)
WORDS = ("[UNK]", "a", "b", "ab", "the", "##b", "##a", "##ab", "中", "##中", "é", "'", "12", "1", "<s>")
VOCAB = {word: i for i, word in enumerate(WORDS)}
MODELS = {
    "WordLevel": WordLevel(VOCAB, unk_token="[UNK]"),
    "WordPiece": WordPiece(VOCAB, unk_token="[UNK]"),
    "Unigram": Unigram([(word, -1.0 - (i * 5) % 7) for i, word in enumerate(WORDS)], unk_id=0),
    "BPE": BPE(
        {c: i for i, c in enumerate(["<unk>", "a", "b</w>", "b", "a</w>", "ab</w>", "é", "中</w>"])}, [("a", "b</w>")],
        unk_token="<unk>", end_of_word_suffix="</w>",
    ),
}  # fmt: skip
STEPS: dict[str, PreTokenizer] = {
    "nonspace": Spaces(),
    "unicode_words": Whitespace(),
    "bert": BertPreTokenizer(),
    "gpt2": Split(GPT2_PATTERN, "isolated", is_regex=True),
    "automata": Sequence((Punctuation("contiguous"), Digits(True))),
}
PARTS = (
    "a", "b", "ab", "the", "abba", "é", "中", "中a", "'", "..", "12", "a1", " ", "  ", "\n", "\u3000", "\x1c", "_",
    "x" * 40,
)  # fmt: skip
TEXTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=60).map("".join), max_size=6)


# Some pairs are a kernel to compile, made of two that are not changed by it: every scanner and model once or twice.
PAIRS = [
    (scanner, model)
    for i, scanner in enumerate(STEPS)
    for j, model in enumerate(MODELS)
    if (i - j) % len(MODELS) in ((0, 1) if EXHAUSTIVE else (0,))
]


@pytest.mark.parametrize(("scanner", "model"), PAIRS)
def test_a_scanner_and_a_model_in_one_pass(scanner: str, model: str) -> None:
    tok = Tokenizer(
        model=MODELS[model],
        normalizer=NFC(),  # WordPiece behind BertPreTokenizer alone is the engine for BERT
        pre_tokenizer=STEPS[scanner],
        added_tokens=[AddedToken(len(VOCAB) - 1, "<s>", special=True)],
    )
    way = "apart" if scanner in ("nonspace", "unicode_words", "bert") else "joined"
    assert f"encode_{way}_{model.lower()}" in tok.explain()
    engine = tok._plan._engine
    assert isinstance(engine, StagedEngine)

    pool = TablePool(1 << 20)

    @given(texts=TEXTS)
    def check(texts: list[str]) -> None:
        column = pa.array(texts, pa.large_string())
        rows = text_rows(column)
        is_first = np.ones(len(texts), np.bool_)
        words = STEPS[scanner].split_rows(rows, is_first)
        tallies = engine.new_tally(), engine.new_tally()
        for tally in (None, tallies[0]):
            found = engine.encode(rows, NONE, is_first, tally)
            expected = engine._runner.encode(words, NONE, pool, tallies[1] if tally else None)
            assert found.values.tolist() == expected.values.tolist()
            assert found.offsets.tolist() == expected.offsets.tolist()
        assert tallies[0].n_words == tallies[1].n_words
        assert tallies[0].oov_words().equals(tallies[1].oov_words())
        assert tok.encode_arrow(column).to_pylist() == [tok.encode(text).ids for text in texts]

    check()


@pytest.mark.parametrize("steps", [(Spaces(), Punctuation()), (Punctuation(), Spaces())])
def test_white_space_and_punctuation_are_berts_words(steps: tuple[PreTokenizer, ...]) -> None:
    # One after the other, over all of Unicode, between letters and beside their like.
    texts = [f"a{c}b {c}{c}. {c}" for c in map(chr, range(1, 0x110000)) if not "\ud800" <= c <= "\udfff"]
    rows = text_rows(pa.array(texts, pa.large_string()))
    found, expected = (
        pre_tokenizer.split_rows(rows, np.ones(rows.n_rows, np.bool_))
        for pre_tokenizer in (Sequence(steps), BertPreTokenizer())
    )
    for column in ("starts", "stops", "row_offsets"):
        assert np.array_equal(getattr(found, column), getattr(expected, column))
    tok = Tokenizer(model=MODELS["WordPiece"], pre_tokenizer=Sequence(steps))
    assert "bert" in tok.explain()
    assert tok.encode("ab ab.the x").tokens == ["ab", "ab", "[UNK]", "the", "[UNK]"]
