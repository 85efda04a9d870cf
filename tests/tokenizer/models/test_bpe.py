# SPDX-License-Identifier: Apache-2.0
"""BPE: the kernels against the plain Python version of the model, random models and words; what a constructor
refuses."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels import bpe as kernels
from tokenmill.tokenizer.kernels import bpe_pairs
from tokenmill.tokenizer.kernels.bpe_merging import dropout_key as key_in_kernel
from tokenmill.tokenizer.models.bpe import BPE, BYTE_ALPHABET
from tokenmill.tokenizer.models.bpe_reference import dropout_key
from tokenmill.tokenizer.models.bpe_tables import new_bpe_scratch, pair_table
from tokenmill.tokenizer.models.vocabulary import MAX_ID
from tokenmill.tokenizer.ragged import read_only

LETTERS = "abcé玫𝖟"


@kernel
def drop_words(data, starts, stops, model, scratch, seed, out, ends, all_ends, out_offsets, unknowns):
    """Tokenizes every word both ways: with dropout where a seed is given (not negative), without where not."""
    o = 0
    for t in range(starts.size):
        before = o
        w = stops[t] - starts[t]
        if seed >= 0:
            key = key_in_kernel(seed, t)
            o, unknown = kernels.bpe_word_dropout(data, starts[t], w, model, scratch, out, o, ends, key)
        else:
            o, unknown = kernels.bpe_word(data, starts[t], w, model, scratch, out, o, ends)
        for q in range(o - before):
            all_ends[before + q] = ends[q]
        out_offsets[t + 1] = o
        unknowns[t] = unknown


def in_kernel(model: BPE, words: list[bytes], seed: int = -1) -> tuple[list[list[tuple[int, int]]], list[bool]]:
    """What the kernel makes of words: ids with ends in bytes, and whether a character was unknown."""
    lengths = np.array([len(w) for w in words], np.int64)
    stops = np.cumsum(lengths)
    data = read_only(np.frombuffer(b"".join([*words, bytes(16)]), np.uint8))
    longest = int(lengths.max(initial=0))
    n_ids = int(lengths.sum()) * model.max_ids_per_byte
    out, all_ends = np.empty(n_ids, np.int32), np.empty(n_ids, np.int64)
    ends = np.empty(longest * model.max_ids_per_byte, np.int64)
    offsets, unknowns = np.zeros(len(words) + 1, np.int64), np.zeros(len(words), np.bool_)
    tables = model.tables if seed < 0 else model.dropout_tables
    scratch = new_bpe_scratch(longest, tables)
    drop_words(data, stops - lengths, stops, tables, scratch, seed, out, ends, all_ends, offsets, unknowns)
    found = list(zip(out.tolist(), all_ends.tolist(), strict=True))
    return [found[a:b] for a, b in itertools.pairwise(offsets)], unknowns.tolist()


@st.composite
def models(draw: st.DrawFn, byte_level: bool | None = None) -> BPE:
    """Small models over a few characters: merges that compete, merges in the wrong order, gaps in the alphabet."""
    if byte_level is None:
        byte_level = draw(st.booleans())
    prefix = draw(st.sampled_from([None, "", "##", "é"]))
    suffix = draw(st.sampled_from([None, "", "</w>"]))
    letters = LETTERS
    if byte_level:
        letters = "".join(BYTE_ALPHABET[b] for b in sorted(set(LETTERS.encode())))
        if draw(st.booleans()):
            letters = BYTE_ALPHABET  # nothing unknown
    known = draw(st.sets(st.sampled_from(letters))) if letters != BYTE_ALPHABET else set(letters)
    tokens = [
        before + letter + after
        for letter in sorted(known)
        for before in sorted({"", prefix or ""})
        for after in sorted({"", suffix or ""})
        if letters == BYTE_ALPHABET or draw(st.integers(0, 5))
    ]
    tokens = sorted(set(tokens))
    frequent = [t for t in tokens if t.removeprefix(prefix or "").removesuffix(suffix or "") in "abÃ©"] or tokens
    merges = []
    n_prefix = len((prefix or "").encode())
    for _ in range(draw(st.integers(0, 25)) if tokens else 0):
        left, right = (draw(st.sampled_from(draw(st.sampled_from([tokens, frequent])))) for _ in range(2))
        if prefix and not right.startswith(prefix):
            continue
        product = left + right.encode()[n_prefix:].decode()
        merges.append((left, right))
        if product not in tokens:
            tokens.append(product)
            frequent = [*frequent, product]
    if draw(st.booleans()):
        merges = draw(st.permutations(merges))
    fallback = draw(st.booleans())
    if fallback:
        spelled = {*LETTERS.encode(), *(prefix or "").encode(), *(suffix or "").encode()}
        if draw(st.booleans()):
            spelled -= set("玫".encode())
        tokens += [f"<0x{b:02X}>" for b in sorted(spelled)]
    ignore = draw(st.booleans())
    if ignore:
        words = st.text(st.sampled_from(letters), min_size=1, max_size=24)
        tokens += sorted(draw(st.sets(words, max_size=5)) - set(tokens))
    unk = draw(st.sampled_from([None, "<unk>"]))
    if unk:
        tokens.insert(draw(st.integers(0, len(tokens))), unk)
    vocab = {token: i for i, token in enumerate(tokens)}
    dropout, fuse = draw(st.sampled_from([None, 0.3, 1.0])), draw(st.booleans())
    return BPE(vocab, merges, dropout, unk, prefix, suffix, fuse, fallback, ignore, byte_level)


def words(model: BPE) -> st.SearchStrategy[bytes]:
    """Words for a model: short, its own entries, and longer than what is scanned."""
    text = st.one_of(
        st.text(st.sampled_from(LETTERS), min_size=1, max_size=12),
        st.text(st.sampled_from("ab"), min_size=1, max_size=70),
        st.builds(lambda t, n: t * n, st.text(st.sampled_from("abé"), min_size=1, max_size=3), st.integers(1, 120)),
    ).map(str.encode)
    return st.one_of(text, st.binary(min_size=1, max_size=20)) if model.byte_level else text


def twin_is_unknown(model: BPE, word: bytes) -> bool:
    """Whether a character of the word is neither an entry nor made of byte tokens."""
    text = "".join(BYTE_ALPHABET[b] for b in word) if model.byte_level else word.decode()
    if model.ignore_merges and text in model.vocab:
        return False
    prefix, suffix = model.continuing_subword_prefix or "", model.end_of_word_suffix or ""
    for i, character in enumerate(text):
        symbol = (prefix if i else "") + character + (suffix if i == len(text) - 1 else "")
        fallen = model.byte_fallback and all(f"<0x{b:02X}>" in model.vocab for b in symbol.encode())
        if symbol not in model.vocab and not fallen:
            return True
    return False


@pytest.mark.parametrize(
    ("order", "first"), [((0, 1, 2, 3), 256), ((1, 2, 3, 4), 257), ((0, 2, 1, 3), -1), ((0, 1, 2, 4), -1)]
)
def test_ids_that_follow_ranks_need_no_table(order: tuple[int, ...], first: int) -> None:
    merges = [("a", "b"), ("ab", "a"), ("c", "ab"), ("cab", "aba")]
    ids = {"".join(merge): 256 + k for merge, k in zip(merges, order, strict=True)}
    model = BPE({c: i for i, c in enumerate(BYTE_ALPHABET)} | ids, merges, byte_level=True)
    assert model.tables.first_product == first
    words = [b"ab", b"aba", b"cababa", b"bcabcababab"]
    assert in_kernel(model, words)[0] == [model.tokenize_bytes(word) for word in words]


@given(st.data())
def test_the_kernel_is_the_twin(data: st.DataObject) -> None:
    model = data.draw(models())
    column = data.draw(st.lists(words(model), min_size=1, max_size=6))
    found, unknowns = in_kernel(model, column)
    for word, tokens, unknown in zip(column, found, unknowns, strict=True):
        assert tokens == model.tokenize_bytes(word), word
        assert unknown == twin_is_unknown(model, word), word


@given(st.data(), st.integers(0, 2**40))
def test_dropout_is_the_twin(data: st.DataObject, seed: int) -> None:
    model = data.draw(models())
    column = data.draw(st.lists(words(model), min_size=1, max_size=6))
    found, _ = in_kernel(model, column, seed)
    for i, (word, tokens) in enumerate(zip(column, found, strict=True)):
        assert tokens == model.tokenize_bytes(word, dropout_key(seed, i)), word


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"vocab": {"a": -1}}, r"id of token 'a' must be in 0\.\.16777215, got -1"),
        ({"vocab": {"a": 1 << 24}}, r"must be in 0\.\.16777215, got 16777216"),
        ({"vocab": {"a": 1.0}}, r"must be in 0\.\.16777215, got 1\.0"),
        ({"vocab": {"a": 1, "b": 1}}, "id 1 belongs to two tokens, 'a' and 'b'"),
        ({"merges": [("a", "b")]}, r"merge 0 of 'a' and 'b' makes 'ab', which the vocabulary does not have"),
        ({"merges": [("a", "c")]}, "merge 0 is of 'a' and 'c', but the vocabulary has no token 'c'"),
        ({"merges": [("a",)]}, r"merge 0 must be a pair of tokens, got \('a',\)"),
        ({"merges": ["ab"]}, "merge 0 must be a pair of tokens, got 'ab'"),
        ({"merges": [(1, 2)]}, r"merge 0 must be a pair of tokens, got \(1, 2\)"),
        ({"merges": [None]}, "merge 0 must be a pair of tokens, got None"),
        ({"merges": [("a", "b")], "continuing_subword_prefix": "##"}, "'b' is shorter than the continuing prefix"),
        ({"dropout": 1.5}, r"dropout must be in 0\.\.1, got 1\.5"),
    ],
)
def test_what_a_model_cannot_be(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BPE(**({"vocab": {"a": 0, "b": 1}, "merges": []} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"merge_ranks": [0]}, "must be 3 numbers, 0 first, each that before it or one more"),
        ({"merge_ranks": [1, 1, 2]}, "0 first"),
        ({"merge_ranks": [0, 2, 3]}, "or one more"),
        ({"merge_ranks": [0, 1, 0]}, "or one more"),
        ({"merge_ranks": [0.5, 1.0, 1.0]}, r"merge_ranks must be integers, got \[0\.5, 1\.0, 1\.0\]"),
        ({"merge_ranks": [0, 1, 2]}, "merge 2 makes the same token as merge 1, but has another of merge_ranks"),
        ({"merge_ranks": [0, 1, 1], "fuse_unk": False}, "whose unknown tokens are fused"),
        ({"merge_ranks": [0, 1, 1], "ignore_merges": True}, "are for models of characters without markers"),
    ],
)
def test_what_merge_ranks_cannot_be(arguments: dict[str, object], message: str) -> None:
    fields = {
        "vocab": {token: i for i, token in enumerate(["<unk>", "a", "b", "ab", "aba", "ba"])},
        "merges": [("a", "b"), ("ab", "a"), ("a", "ba")], "unk_token": "<unk>", "fuse_unk": True,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        BPE(**(fields | arguments))  # type: ignore[arg-type]
    assert BPE(**fields, merge_ranks=[0, 1, 1]).tokenize("aba") == [(4, 3)]  # type: ignore[arg-type]


def test_what_ranks_cannot_be() -> None:
    ranks = {bytes([b]): b for b in range(256)}
    with pytest.raises(ValueError, match=r"every byte must be a token, but b'\\x07' and 0 others are not"):
        BPE.from_ranks({t: i for t, i in ranks.items() if i != 7})
    with pytest.raises(ValueError, match="a token must not be empty, but id 300 is"):
        BPE.from_ranks(ranks | {b"": 300})
    with pytest.raises(ValueError, match="id 7 belongs to two tokens"):
        BPE.from_ranks(ranks | {b"ab": 7})
    assert len(BPE.from_ranks(ranks | {b"ab": (1 << 24) - 1}).merges) == 1


def colliding_pairs(n: int, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of ids whose hashes have the same first bits."""
    chooser = random.Random(0)
    inverse = pow(0x9E3779B97F4A7C15, -1, 1 << 48)
    pairs = [(chooser.randrange(1 << (48 - n_bits)) * inverse) % (1 << 48) for _ in range(n)]
    return np.array([p >> 24 for p in pairs], np.int32), np.array([p & 0xFFFFFF for p in pairs], np.int32)


def test_a_crowded_pair_table_grows_and_a_hostile_one_is_refused() -> None:
    few = pair_table(*colliding_pairs(60, 15))[1]
    assert few == bpe_pairs.MIN_PAIR_BITS
    assert pair_table(*colliding_pairs(100, 15))[1] > few
    with pytest.raises(ValueError, match="look made to collide"):
        pair_table(*colliding_pairs(3000, 30))
    # This pair stands for none in the kernels.
    largest = np.array([MAX_ID], np.int32)
    with pytest.raises(ValueError, match="look made to collide"):
        pair_table(largest, largest)
