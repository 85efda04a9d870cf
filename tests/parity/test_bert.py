# SPDX-License-Identifier: Apache-2.0
"""The BERT family against HF tokenizers: ids, tokens, offsets, everything an encoding has; files; decoding.

`DIFFERENCES` is the whole list of what is meant to differ.
"""

from pathlib import Path

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests import strategies  # noqa: E402
from tests.corpora import documents  # noqa: E402
from tests.parity import families  # noqa: E402
from tokenmill.tokenizer import Tokenizer  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "special tokens in text": "text stays text; HF cuts them out unless encode_special_tokens is set",
    "vocab.txt line ends": (
        "only line ends are cut, as in transformers; HF cuts other white space, too, and takes the last of equal lines"
    ),
    "no room for special tokens": "an error; HF subtracts below zero and does not truncate at all",
    "decode of unknown ids": "an error naming the id; HF leaves them out silently",
}
MODELS = ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"]
CORPORA = ["en", "code", "multi", "zh"]
ATTRIBUTES = (
    "ids", "tokens", "type_ids", "attention_mask", "special_tokens_mask", "offsets", "word_ids", "sequence_ids",
)  # fmt: skip
SMALL_VOCAB = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789!#[]玫中가",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789\u0301\u302e\u1100"), "the", "##able", "un", "##aff", "é",
]  # fmt: skip


@pytest.fixture(scope="session", params=MODELS)
def pair(request: pytest.FixtureRequest, shared_data: Path) -> tuple[Tokenizer, "hf.Tokenizer"]:
    """A real vocabulary in both libraries, HF's made from the file without our help."""
    path = shared_data / "vocab" / f"{request.param}.txt"
    lowercase = request.param != "bert-base-cased"
    theirs = hf.Tokenizer.from_str(hf.BertWordPieceTokenizer(str(path), lowercase=lowercase).to_str())
    theirs.encode_special_tokens = True
    return Tokenizer.from_file(path, lowercase=lowercase), theirs


def assert_same_ids(ours: Tokenizer, theirs: "hf.Tokenizer", texts: list[str]) -> None:
    rows = ours.encode_arrow(pa.array(texts, pa.large_string()))
    for text, row, expected in zip(texts, rows, families.ids_of(theirs, texts, False), strict=True):
        assert row.as_py() == expected, text[:2000]


@pytest.mark.parametrize("corpus", CORPORA)
def test_ids_on_documents(pair: tuple[Tokenizer, "hf.Tokenizer"], shared_data: Path, corpus: str) -> None:
    assert_same_ids(*pair, documents(shared_data, corpus))


def test_ids_on_every_code_point(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    for start in range(0, len(strategies.TRIED), 50_000):
        assert_same_ids(*pair, [f"a{c}b {c} c{c}" for c in strategies.TRIED[start : start + 50_000]])


def test_ids_on_hostile_text(pair: tuple[Tokenizer, "hf.Tokenizer"]) -> None:
    @given(st.lists(strategies.texts(), max_size=20))
    def check(texts: list[str]) -> None:
        assert_same_ids(*pair, texts)

    check()


def test_the_differences_are_these(tmp_path: Path) -> None:
    """Each listed difference is real; what is not listed is equal by the tests above."""
    ours = Tokenizer.for_bert(SMALL_VOCAB)
    theirs = hf.Tokenizer.from_str(ours.to_str())
    seen = set()
    if ours.encode("[CLS]").ids != theirs.encode("[CLS]").ids:
        seen.add("special tokens in text")
    (tmp_path / "vocab.txt").write_text("[UNK]\na\u2028\n[CLS]\n[SEP]\n", encoding="utf-8")
    if (
        Tokenizer.from_file(tmp_path / "vocab.txt").get_vocab()
        != hf.BertWordPieceTokenizer(str(tmp_path / "vocab.txt")).get_vocab()
    ):
        seen.add("vocab.txt line ends")
    theirs.enable_truncation(1)
    ours.enable_truncation(1)
    if len(theirs.encode("a b c").ids) > 1:
        with pytest.raises(ValueError, match="leaves no room for the 2 special tokens"):
            ours.encode("a b c")
        seen.add("no room for special tokens")
    assert theirs.decode([5, 10**6]) == "a"
    with pytest.raises(ValueError, match="id 1000000 belongs to no token"):
        ours.decode([5, 10**6])
    seen.add("decode of unknown ids")
    assert seen == set(DIFFERENCES)
