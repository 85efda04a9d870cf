# SPDX-License-Identifier: Apache-2.0
"""The BPE model against HF tokenizers and tiktoken, id for id, word by word; `test_bpe.py` has the kernels against it.

`DIFFERENCES` is the whole list of what is meant to differ.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
tiktoken = pytest.importorskip("tiktoken", reason="needs the test group: tiktoken")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tokenmill.tokenizer import Tokenizer  # noqa: E402
from tokenmill.tokenizer.models.bpe import BPE, BYTE_ALPHABET  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "two tokens with one id": "refused; HF takes either",
    "ids beyond 2^24-1": "refused; HF takes any 32-bit id",
    "merge shorter than the prefix": "refused; HF panics",
    "offsets of the bytes of markers": "those of the character that is marked; HF counts on behind it, beyond the word",
}
LETTERS = "abcdé玫𝖟"


def alphabetic(word: bytes) -> str:
    return "".join(BYTE_ALPHABET[b] for b in word)


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a model over a few characters, most of them known in most places."""
    prefix = draw(st.sampled_from([None, "##"]))
    suffix = draw(st.sampled_from([None, "</w>"]))
    tokens = [
        before + letter + after
        for letter in sorted(draw(st.sets(st.sampled_from(LETTERS), min_size=1)))
        for before in sorted({"", prefix or ""})
        for after in sorted({"", suffix or ""})
        if draw(st.integers(0, 7))
    ]
    merges = []
    for _ in range(draw(st.integers(0, 30)) if tokens else 0):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if right.startswith(prefix or "") and left + right.removeprefix(prefix or "") != left:
            merges.append((left, right))
            product = left + right.removeprefix(prefix or "")
            tokens += [product] if product not in tokens else []
    fallback = draw(st.booleans())
    if fallback:
        spelled = {*draw(st.sampled_from([LETTERS, "abcdé"])).encode(), *b"##</w>"}
        tokens += [f"<0x{b:02X}>" for b in sorted(spelled)]
    tokens += sorted(draw(st.sets(st.text(st.sampled_from("abé"), min_size=1, max_size=5), max_size=5)) - set(tokens))
    return {
        "vocab": {token: i for i, token in enumerate(["<unk>", *tokens])},
        "merges": draw(st.permutations(merges)),
        "unk_token": draw(st.sampled_from([None, "<unk>"])),
        "continuing_subword_prefix": prefix,
        "end_of_word_suffix": suffix,
        "fuse_unk": draw(st.booleans()),
        "byte_fallback": fallback,
        "ignore_merges": draw(st.booleans()),
        "dropout": draw(st.sampled_from([None, 0.0])),
    }


def in_hf(arguments: dict[str, Any]) -> "hf.Tokenizer":
    return hf.Tokenizer(hf.models.BPE(**{k: v for k, v in arguments.items() if v is not None}))


words = st.one_of(
    st.text(st.sampled_from(LETTERS), min_size=1, max_size=15),
    st.text(st.sampled_from("ab"), min_size=1, max_size=60),
    st.builds(lambda t, n: t * n, st.text(st.sampled_from("abé"), min_size=1, max_size=3), st.integers(1, 200)),
)


@given(models(), st.lists(words, min_size=1, max_size=20))
def test_random_models(arguments: dict[str, Any], column: list[str]) -> None:
    ours, theirs = BPE(**arguments), in_hf(arguments)
    for word in column:
        found, expected = ours.tokenize(word), theirs.encode(word)
        assert [i for i, _ in found] == expected.ids, word
        # Where markers are spelled in byte tokens, or characters are dropped, HF's offsets are of other text. So are
        # ours, in bytes, but a place within a character has no number.
        if not arguments["byte_fallback"] and arguments["unk_token"]:
            assert [end for _, end in found] == [stop for _, stop in expected.offsets], word


@given(
    lacking=st.sets(st.sampled_from(["Ġ", "a", "b", "Ã", "©", "Ċ"])), use_regex=st.booleans(), fallback=st.booleans(),
    ignore_merges=st.booleans(), column=st.lists(st.text(" abé玫\n1", max_size=12), min_size=1, max_size=5),
)  # fmt: skip
def test_offsets_where_the_vocabulary_lacks_bytes(lacking, use_regex, fallback, ignore_merges, column) -> None:
    letters = [letter for letter in BYTE_ALPHABET if letter not in lacking]
    merges = [pair for pair in (("a", "b"), ("Ġ", "a"), ("Ã", "©"), ("b", "a")) if not lacking.intersection(pair)]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(0xA5)] if fallback else []
    vocab = dict.fromkeys([*letters, *map("".join, merges), "Ġab", *byte_tokens])
    options = {"byte_fallback": fallback, "ignore_merges": ignore_merges}
    theirs = hf.Tokenizer(hf.models.BPE({token: i for i, token in enumerate(vocab)}, merges, **options))
    theirs.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    ours = Tokenizer.from_str(theirs.to_str())
    expected = [theirs.encode(text).offsets for text in column]
    assert [ours.encode(text).offsets for text in column] == expected
    found = ours.encode_arrow(column, offsets=True)
    pairs = zip(found.column("starts").to_pylist(), found.column("stops").to_pylist(), strict=True)
    assert [list(zip(*pair, strict=True)) for pair in pairs] == expected


def test_dropout_in_between_has_the_same_distribution() -> None:
    merges = [tuple(m.split()) for m in ("r e", "a t", "e d", "u n", "at ed", "re l", "rel ated", "un related")]
    tokens = [*"unrelatd", *("".join(m) for m in merges)]
    arguments = {"vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges, "dropout": 0.5}
    ours, theirs = BPE(**arguments), in_hf(arguments)
    n = 3000
    our_lengths = np.bincount([len(ours.tokenize("unrelated", key * 7919)) for key in range(n)], minlength=10) / n
    their_lengths = np.bincount([len(theirs.encode("unrelated").ids) for _ in range(n)], minlength=10) / n
    assert np.abs(our_lengths - their_lengths).max() < 0.06  # more than four standard deviations


@pytest.fixture(scope="session")
def gpt2(shared_data: Path) -> dict[str, Any]:
    vocab = json.loads((shared_data / "vocab" / "gpt2-vocab.json").read_text(encoding="utf-8"))
    lines = (shared_data / "vocab" / "gpt2-merges.txt").read_text(encoding="utf-8").split("\n")[1:]
    return {"vocab": vocab, "merges": [tuple(line.split(" ")) for line in lines if line]}


@pytest.fixture(scope="session")
def gpt2_ranks(gpt2: dict[str, Any]) -> dict[bytes, int]:
    byte_of = {c: b for b, c in enumerate(BYTE_ALPHABET)}
    return {bytes(byte_of[c] for c in t): i for t, i in gpt2["vocab"].items() if t != "<|endoftext|>"}


@pytest.fixture(scope="session")
def openai(gpt2_ranks: dict[bytes, int]) -> Callable[[bytes], list[int]]:
    encoding = tiktoken.Encoding("gpt2-words", pat_str=r"[\s\S]+", mergeable_ranks=gpt2_ranks, special_tokens={})
    return encoding._core_bpe.encode_single_piece


def hostile_words() -> Iterator[bytes]:
    chooser = random.Random(0)
    for unit in (b"a", b" ", b"^", b"ab", b"\n", b"\xff", "é".encode(), "中文".encode(), b"0", b"=-"):
        for n in (1, 2, 31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 1000, 5000):
            yield (unit * n)[:n]
    for n in [*range(1, 40), 255, 256, 257, 3000]:
        yield chooser.randbytes(n)
        yield bytes(chooser.choice(b"abcdefghijklmnopqrstuvwxyz") for _ in range(n))
        yield "".join(chr(chooser.randrange(0x4E00, 0x9FFF)) for _ in range(n)).encode()


@pytest.mark.parametrize("from_ranks", [False, True])
def test_gpt2_on_hostile_words(
    gpt2: dict[str, Any], gpt2_ranks: dict[bytes, int], openai: Callable[[bytes], list[int]], from_ranks: bool
) -> None:
    ours = BPE.from_ranks(gpt2_ranks) if from_ranks else BPE(**gpt2, byte_level=True)
    theirs = in_hf(gpt2)
    for word in hostile_words():
        ids = [i for i, _ in ours.tokenize_bytes(word)]
        assert ids == openai(word) == theirs.encode(alphabetic(word)).ids, word


def test_the_differences_are_these() -> None:
    """Each listed difference is real; what is not listed is equal by the tests above."""
    seen = set()
    assert hf.Tokenizer(hf.models.BPE({"a": 0, "b": 0}, [])).encode("ab").ids == [0, 0]
    with pytest.raises(ValueError, match="belongs to two tokens"):
        BPE({"a": 0, "b": 0}, [])
    seen.add("two tokens with one id")
    assert hf.Tokenizer(hf.models.BPE({"a": 1 << 24}, [])).encode("a").ids == [1 << 24]
    with pytest.raises(ValueError, match="must be in"):
        BPE({"a": 1 << 24}, [])
    seen.add("ids beyond 2^24-1")
    with pytest.raises(BaseException, match=r"range|slice|byte index|out of bounds"):
        hf.models.BPE({"a": 0, "b": 1}, [("a", "b")], continuing_subword_prefix="##")
    with pytest.raises(ValueError, match="shorter than the continuing prefix"):
        BPE({"a": 0, "b": 1}, [("a", "b")], continuing_subword_prefix="##")
    seen.add("merge shorter than the prefix")
    model = hf.models.BPE({f"<0x{b:02X}>": b for b in range(256)}, [], byte_fallback=True, end_of_word_suffix="#")
    text = hf.Tokenizer(model).to_str()
    if hf.Tokenizer(model).encode("é").offsets == [(0, 1), (0, 1), (2, 3)]:
        assert Tokenizer.from_str(text).encode("é").offsets == [(0, 1)] * 3
        seen.add("offsets of the bytes of markers")
    assert seen == set(DIFFERENCES)
