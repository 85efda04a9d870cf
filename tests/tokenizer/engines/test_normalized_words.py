# SPDX-License-Identifier: Apache-2.0
"""White space, a normalizer and a model in one kernel: the ids, and the counts, of all steps one after the other."""

from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import charsmaps
from tests.strategies import FEWER
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines import normalized_words
from tokenmill.tokenizer.kernels import encode_loop
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.normalizers import (
    NFC,
    NFD,
    NFKC,
    NFKD,
    Lowercase,
    Nmt,
    Precompiled,
    Replace,
    Sequence,
    StripAccents,
)
from tokenmill.tokenizer.normalizers import Strip as Strips
from tokenmill.tokenizer.pre_tokenizers import Metaspace, WhitespaceSplit
from tokenmill.tokenizer.pre_tokenizers import Sequence as PreTokenizers

ALWAYS = Metaspace("▁", prepend_scheme="always", split=True)
AT_WHITE_SPACE = PreTokenizers((WhitespaceSplit(), ALWAYS))
ONE_SPACE, ONE_MARK = Replace(" {2,}", " ", is_regex=True), Replace(" {2,}", "▁", is_regex=True)
END = Strips(left=False, right=True)

# White space becomes a space or nothing, characters become others, several, white space and more, and words of a map.
_TEXTS = {
    "\t": " ", "\n": " ", "\r": " ", "\u3000": " ", "\xa0": " ", "，": ",", "：": ":", "Ａ": "A", "\u200b": "",
    "¨": " \u0308", "ﬁ": "fi", "か\u3099": "が", "\u3099": "゛", "ﷺ": "a b", "é": "e\u0301", "豈": "岂", "☂": "▁",
    "\x07": "", "Ⅷ": "VIII", "\u2028": "\u2029",
}  # fmt: skip
MAP = charsmaps.build({key.encode(): text for key, text in _TEXTS.items()})
T5 = Sequence((Precompiled(MAP), END, ONE_MARK))
PARTS = {
    "T5": (T5, ALWAYS),
    "T5, spaces": (Sequence((Precompiled(MAP), END, ONE_SPACE)), ALWAYS),
    "stripped at both ends": (Sequence((Precompiled(MAP), Strips(left=True, right=True), ONE_MARK)), ALWAYS),
    "XLM-R": (Precompiled(MAP), AT_WHITE_SPACE),
    "not stripped": (Sequence((Precompiled(MAP), ONE_SPACE)), ALWAYS),
    "ALBERT": (Sequence((NFKD(), StripAccents(), Lowercase(), Precompiled(MAP), ONE_SPACE)), ALWAYS),
    "XLNet": (Sequence((Replace("``", '"'), NFKD(), StripAccents(), Precompiled(MAP), ONE_SPACE)), ALWAYS),
    "folds, no map": (Sequence((NFD(), StripAccents(), Replace("é", "e"), Lowercase(), ONE_SPACE)), ALWAYS),
    "marks go": (Sequence((NFKD(), Lowercase(), StripAccents(), Precompiled(MAP))), AT_WHITE_SPACE),
    "clean-up": (Sequence((Nmt(), Replace("x", " a▁"), Precompiled(MAP), END, ONE_SPACE)), ALWAYS),
    "a blank becomes": (Sequence((Replace(" ", "a"), Precompiled(MAP), ONE_SPACE)), ALWAYS),
    "long": (Sequence((Replace("é", "a" * 4), Replace("豈", "文" * 2), Precompiled(MAP), ONE_SPACE)), ALWAYS),
    "no map": (ONE_SPACE, ALWAYS),
    "nothing": (None, AT_WHITE_SPACE),
    "trained with HF": (Sequence((Nmt(), NFKC(), ONE_SPACE)), ALWAYS),
    "NFKC": (NFKC(), ALWAYS),
    "NFC at white space": (NFC(), AT_WHITE_SPACE),
    "NFKD": (Sequence((Lowercase(), NFKD(), END, ONE_SPACE)), ALWAYS),
    "NFD, marks go later": (Sequence((NFD(), Lowercase(), StripAccents())), ALWAYS),
    "decomposed, composed": (Sequence((Replace("b", "e\u0301"), NFD(), NFC())), ALWAYS),
    "nothing, every space": (None, ALWAYS),
    "another map": (Sequence((Precompiled(charsmaps.small()), END, ONE_SPACE)), AT_WHITE_SPACE),
}
STAGED = {"a blank becomes"}
"""Those of which words are not where the white space is."""
CHARACTERS = "aab中中文文か，：,▁▁fi岂éA:.*"
WORDS = (
    *(
        "a", "ab", "中文", "中", "，", "\u3099", "か\u3099", "か", " ", "  ", "\u3000", "\t", "\r\n", "\n", "▁", "¨",
        "ﷺ", "☂",
    ),
    *("é", "e\u0301", "\u0301", "\u200b", "\x07", "\0", "\u0600", "豈", "Ａ", "fi", "ﬁ", "😀", "鿿", "ก", "\xa0", "Ⅷ"),
    *("İ", "ſ", "\u0903", "ﾞ", "㍿", "´", "``", "`", "\x01", "\u0345", "Σ", "가\u11a8", "\u0301a", "\U0001d15e"),
    *("\u2028", "\x1f", "*", "*" * 9, "文" * 9, "<unk>", "x" * 17, "\u1100", "각", "\u200d", "中,", "文:a"),
)  # fmt: skip
LONG = (
    *("中", "文", "か", "岂", "豈", "，", "鿿", "か\u3099", "中文", "文" * 9, "가\u11a8", "😀"),
    *("é", "a", "fi", " ", "  ", "\u3000"),
)
"""What runs of 64 characters are made of, most of it."""
texts = st.lists(
    st.lists(st.sampled_from(WORDS), max_size=24).map("".join)
    | st.lists(st.sampled_from(LONG), max_size=90).map("".join),
    min_size=1,
    max_size=6,
)


@st.composite
def models(draw: st.DrawFn) -> Unigram:
    """Few pieces, whose scores often add up to the same."""
    pieces = draw(st.lists(st.text(CHARACTERS, min_size=1, max_size=3), unique=True, max_size=14))
    scores = st.sampled_from([-1.0, -2.0, -3.0, -0.1, -0.7, -2.2, -2.1])
    vocab = [("<unk>", 0.0), ("▁", -1.5), *((piece, draw(scores)) for piece in pieces if piece != "▁")]
    if draw(st.booleans()):
        vocab += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
        return Unigram(vocab, unk_id=0, byte_fallback=True)
    return Unigram(vocab, unk_id=0)


@st.composite
def merging_models(draw: st.DrawFn) -> BPE:
    """Few characters and merges, of the space too."""
    # With an entry that has a "▁" inside, the steps are not what sentencepiece does, which counts words otherwise.
    vocab = {token: i for i, token in enumerate(["<unk>", "z▁z", *dict.fromkeys("▁" + CHARACTERS[:12])])}
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 12))):
        tokens = st.sampled_from([token for token in vocab if token not in ("<unk>", "z▁z")])
        pair = draw(tokens), draw(tokens)
        if pair not in merges:
            merges.append(pair)
            vocab.setdefault("".join(pair), len(vocab))
    has_bytes = draw(st.booleans())
    if has_bytes:
        vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    return BPE(vocab, merges, unk_token="<unk>", fuse_unk=draw(st.booleans()), byte_fallback=has_bytes)


def counted(tok: Tokenizer, column: pa.Array) -> tuple[list[list[int]], dict[str, Any]]:
    tally = tok.new_tally()
    ids = tok.encode_arrow(column, tally=tally).to_pylist()
    return ids, summary(tally)


def summary(tally: Tally) -> dict[str, Any]:
    swallowed = tally.oov_characters()
    return {
        "words": tally.n_words,
        "unknown": sorted(tuple(row.values()) for row in tally.oov_words().to_pylist()),
        "swallowed": [array.tolist() for array in swallowed],
    }


def fused_and_in_steps(name: str, model: Unigram | BPE) -> tuple[Tokenizer, Tokenizer]:
    normalizer, pre_tokenizer = PARTS[name]
    tok = Tokenizer(model=model, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    assert ("normalized_words" in str(tok.explain())) == (name not in STAGED)
    # What is looked for in normalized text keeps the steps apart.
    never = AddedToken(len(model.vocab), "\ue000never", normalized=True)
    steps = Tokenizer(
        model=model, normalizer=normalizer, pre_tokenizer=pre_tokenizer, added_tokens=[never], special="split"
    )
    assert "normalized_words" not in str(steps.explain())
    return tok, steps


@pytest.mark.parametrize("name", PARTS)
@FEWER
@given(model=models() | merging_models(), texts=texts)
@example(
    model=Unigram([("<unk>", 0.0), ("▁", -1.0), ("中", -2.0)], 0), texts=["中文x文文中 文", "文" * 40, "x中文，中文"]
)
def test_ids_and_counts_are_those_of_the_steps(name: str, model: Unigram | BPE, texts: list[str]) -> None:
    tok, steps = fused_and_in_steps(name, model)
    # Near the end of a column nothing is read in blocks.
    column = pa.array([*texts, " ".join(texts), "".join(texts), "the end " * 20], pa.large_string())
    ids, counts = counted(steps, column)
    # The second time words, parts and characters come from caches.
    for _ in range(2):
        found_ids, found_counts = counted(tok, column)
        assert found_ids == ids
        if isinstance(model, BPE):
            # Its steps report the parts of words that they have cut, this the words.
            found_counts["unknown"] = counts["unknown"]
        assert found_counts == counts
        assert tok.encode_arrow(column).to_pylist() == ids


@given(model=models(), texts=texts)
def test_words_are_encoded_whole_where_rounding_might_decide(model: Unigram, texts: list[str]) -> None:
    tok, steps = fused_and_in_steps("T5", model)
    engine: Any = tok._plan._engine
    column = pa.array([*texts, "".join(texts), "the end " * 20], pa.large_string())
    engine._cuts = engine._cuts._replace(least_gap=1e9)
    assert counted(tok, column) == counted(steps, column)


@pytest.mark.parametrize("name", ["T5", "XLM-R", "ALBERT", "NFKC", "nothing"])
@FEWER
@example(Unigram([("<unk>", 0.0), ("▁", -1.5), ("中é", -1.0)], 0), ["中e\u0301"], 1)
@given(model=models() | merging_models(), texts=texts, size=st.integers(1, 30))
def test_long_rows_may_be_cut_at_white_space(name: str, model: Unigram | BPE, texts: list[str], size: int) -> None:
    tok, steps = fused_and_in_steps(name, model)
    column = pa.array([*texts, "", " ".join(texts), "a\tb\nc 中 文  a", "the end " * 20], pa.large_string())
    ids, counts = counted(steps, column)
    with mock.patch.object(normalized_words, "_PIECE_BYTES", size):
        found_ids, found_counts = counted(tok, column)
    if isinstance(model, BPE):
        found_counts["unknown"] = counts["unknown"]
    assert (found_ids, found_counts) == (ids, counts)


@pytest.mark.parametrize(("n", "name"), [(1, "T5"), (2, "not stripped"), (3, "NFKC"), (1, "NFC at white space")])
@FEWER
@given(model=models() | merging_models(), texts=texts)
def test_batches_may_end_anywhere(name: str, n: int, model: Unigram | BPE, texts: list[str]) -> None:
    tok, steps = fused_and_in_steps(name, model)
    column = pa.array([*texts, "", " ".join(texts), "", "the end " * 20, " " * 20], pa.large_string())
    expected = steps.encode_arrow(column).to_pylist()
    # Columns are encoded in parts as long as most words are new.
    with mock.patch.object(encode_loop, "BATCH", n), mock.patch.object(normalized_words, "_NEW_BYTES", 8):
        for _ in range(2):
            assert tok.encode_arrow(column).to_pylist() == expected
            assert tok.encode_arrow(column, tally=tok.new_tally()).to_pylist() == expected


@pytest.mark.parametrize("name", ["T5", "NFKC", "no map"])
@pytest.mark.parametrize("counts", [False, True])
def test_there_is_room_for_more_ids_than_bytes_and_for_any_word(name: str, counts: bool) -> None:
    has_bytes = BPE(
        {"<unk>": 0} | {f"<0x{b:02X}>": b + 1 for b in range(256)}, [], unk_token="<unk>", byte_fallback=True
    )
    tok, steps = fused_and_in_steps(name, has_bytes)
    rows = ["a " * 3000, " " * 5000, "中 " * 3000, "ﷺ" * 3000, "中文" * 3000, "b" + " " * 5000, "", "a  " * 3000]
    every = [*rows, "".join(rows), "x" * 200_000, "中" * 100_000, "é\u0301" * 70_000]
    for texts in ([text] for text in every), [every]:
        for column in texts:
            column = pa.array(column, pa.large_string())
            if counts:
                assert counted(tok, column)[0] == counted(steps, column)[0]
            else:
                assert tok.encode_arrow(column).to_pylist() == steps.encode_arrow(column).to_pylist()
    unknown = Unigram([("<unk>", 0.0), ("▁", -1.0)], 0)
    tok, steps = fused_and_in_steps(name, unknown)
    column = pa.array(every, pa.large_string())
    assert counted(tok, column) == counted(steps, column)


def test_a_map_in_front_of_spaces_that_count_is_left_to_the_steps() -> None:
    model = Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -2.0)], 0)
    tok = Tokenizer(model=model, normalizer=Precompiled(MAP), pre_tokenizer=ALWAYS)
    assert "normalized_words" not in str(tok.explain())
    # The map sees "\r\n" as one grapheme, and makes one space of it.
    assert tok.encode_arrow(["a\r\na", "a\n\na"]).to_pylist() == [[1, 2, 1, 2], [1, 2, 1, 1, 2]]


@pytest.mark.parametrize("name", ["NFKC", "NFC at white space", "T5", "trained with HF"])
@pytest.mark.parametrize("before", ["中", "b", "é"])
def test_a_character_that_composes_with_the_next_is_not_cut_from_the_one_before(name: str, before: str) -> None:
    """Its own neighbours in tokens say nothing: they have what it becomes."""
    pieces = [("<unk>", 0.0), ("▁", -1.5), (f"{before}é", -1.0), (f"{before}が", -1.0)]
    texts = ["中e\u0301", "be\u0301", "ée\u0301", "中か\u3099", "文bか\u3099文", "中e", "be"]
    tok, steps = fused_and_in_steps(name, Unigram(pieces, 0))
    for _ in range(2):
        assert tok.encode_arrow(pa.array(texts)).to_pylist() == steps.encode_arrow(pa.array(texts)).to_pylist()
