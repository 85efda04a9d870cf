# SPDX-License-Identifier: Apache-2.0
"""Tables of words that are full, and forget: never another id, and never more memory than they may have."""

import itertools
import random

import pyarrow as pa
import pytest

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.engines import tables
from tokenmill.tokenizer.engines.tables import CacheInfo
from tokenmill.tokenizer.kernels import encode_loop
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, WhitespaceSplit

_CACHE_BYTES = 1 << 16
_LETTERS = "abcdé中"


def _byte_level() -> Tokenizer:
    merges = [("a", "b"), ("ab", "c"), ("d", "Ã"), ("ä", "¸")]
    vocab = [*BYTE_ALPHABET, *("".join(m) for m in merges)]
    model = BPE({t: i for i, t in enumerate(vocab)}, merges, byte_level=True)
    return Tokenizer(model=model, pre_tokenizer=ByteLevel(False), cache_bytes=_CACHE_BYTES)


def _characters() -> Tokenizer:
    vocab = {t: i for i, t in enumerate(["<unk>", *"abcé中", "ab", "abc"])}
    model = BPE(vocab, [("a", "b"), ("ab", "c")], unk_token="<unk>")
    return Tokenizer(model=model, pre_tokenizer=WhitespaceSplit(), cache_bytes=_CACHE_BYTES)


def _bert() -> Tokenizer:
    return Tokenizer.for_bert(["[UNK]", *"abc", *(f"##{c}" for c in "abc"), "##bc"], cache_bytes=_CACHE_BYTES)


def _sentencepiece() -> Tokenizer:
    pieces = [("<unk>", 0.0), *((c, -3.0) for c in "▁abcdé"), ("▁a", -2.0), ("bc", -2.5), ("cd", -2.6), ("éd", -2)]
    model = Unigram(pieces, 0, False, [2] + [1] * (len(pieces) - 1))
    return Tokenizer(normalizer=SentencePieceNormalizer(), model=model, cache_bytes=_CACHE_BYTES)


_TOKENIZERS = {f.__name__.strip("_"): f for f in (_byte_level, _characters, _bert, _sentencepiece)}


def _texts(n_words: int) -> list[str]:
    chooser = random.Random(5)
    words = ["".join(w) for k in (2, 3, 4, 5, 6) for w in itertools.product(_LETTERS, repeat=k)]
    chosen = chooser.choices(words, k=n_words) + ["abc" * n for n in range(1, 12)]
    return [" ".join(chosen[i : i + 40]) for i in range(0, len(chosen), 40)] + [
        "the end, far from every word " + "." * 80
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 128])
@pytest.mark.parametrize("name", [*_TOKENIZERS])
def test_small_tables_and_small_batches(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most words are forgotten, and met again; ids, words and what is unknown are as of one text at a time."""
    texts = _texts(4000)
    # One text by itself goes another way, without a table.
    one_by_one = [encoding.ids for encoding in _TOKENIZERS[name]().encode_batch(texts, add_special_tokens=False)]
    large = _TOKENIZERS[name]()
    tally = large.new_tally()
    large.encode_arrow(pa.array(texts), tally=tally)
    monkeypatch.setattr(encode_loop, "BATCH", limit)
    new_table = tables.new_table
    monkeypatch.setattr(tables, "n_lines", lambda *_: 2)
    monkeypatch.setattr(tables, "new_table", lambda n, _: new_table(n, 64))
    tok = _TOKENIZERS[name]()
    other = tok.new_tally()
    for n_rows in (1, 3, len(texts)):
        assert tok.encode_arrow(pa.array(texts[:n_rows])).to_pylist() == one_by_one[:n_rows]
    assert tok.encode_arrow(pa.array(texts), tally=other).to_pylist() == one_by_one
    assert tally.n_words == other.n_words > 4000
    assert tally.oov_words().equals(other.oov_words())
    assert 0 < tok.cache_info().words <= 4


@pytest.mark.parametrize("name", [*_TOKENIZERS])
def test_tables_grow_with_the_words_and_lose_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = _texts(1000)
    one_by_one = [encoding.ids for encoding in _TOKENIZERS[name]().encode_batch(texts, add_special_tokens=False)]
    grown, move_spans = [], tables.move_spans
    monkeypatch.setattr(tables, "_LEAST_LINES", 16)
    monkeypatch.setattr(tables, "move_spans", lambda old, new: (grown.append(new.size // 8), move_spans(old, new)))
    tok = _TOKENIZERS[name]()
    tok._cache_bytes = 1 << 20
    for text, ids in zip(texts, one_by_one, strict=True):
        assert tok.encode_arrow(pa.array([text])).to_pylist() == [ids]
    assert grown == [1 << k for k in range(grown[0].bit_length() - 1, grown[-1].bit_length())]
    assert len(grown) >= 3
    first = tok.cache_info()
    # A line of a table that is small has no room for a word now and then.
    assert first.words > 300
    assert first.words <= first.misses < 1.05 * first.words
    assert tok.encode_arrow(pa.array(texts)).to_pylist() == one_by_one
    assert tok.cache_info().misses - first.misses < 0.05 * first.words


def test_large_texts_have_large_tables() -> None:
    assert [tables.n_lines(n, 0, 1 << 25) for n in (0, 1 << 17, 1 << 20, 1 << 22, 1 << 30)] == [
        1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 18
    ]  # fmt: skip
    assert tables.n_lines(0, 1 << 14, 1 << 25) == 1 << 16
    assert tables.n_lines(1 << 30, 1 << 30, 1 << 16) == 512


@pytest.mark.parametrize("name", [*_TOKENIZERS])
def test_what_is_worn_is_forgotten(name: str) -> None:
    texts = _texts(4000)
    one_by_one = [encoding.ids for encoding in _TOKENIZERS[name]().encode_batch(texts, add_special_tokens=False)]
    tok = _TOKENIZERS[name]()
    n_held = []
    for _ in range(3):
        for text, ids in zip(texts, one_by_one, strict=True):
            assert tok.encode_arrow(pa.array([text])).to_pylist() == [ids]
            n_held.append(tok.cache_info().words)
    assert any(after < before for before, after in itertools.pairwise(n_held))


@pytest.mark.parametrize("first_id", [0, (1 << 16) - 130, (1 << 18) - 130, (1 << 21) - 130, (1 << 24) - 400])
def test_ids_of_any_size(first_id: int) -> None:
    merges = [("a", "b"), ("ab", "ab"), ("Ġ", "ab")]
    vocab = [*BYTE_ALPHABET, *("".join(m) for m in merges)]
    model = BPE({t: first_id + i for i, t in enumerate(vocab)}, merges, byte_level=True)
    tok = Tokenizer(model=model, pre_tokenizer=ByteLevel(False))
    # Of every length that tables tell apart, of few ids and many, some the same but for NUL bytes at their ends.
    words = [w for n in range(1, 20) for w in ("ab" * n, "c" * n, "a" * n, "\0" * n, "\0" + "c" * n, "中" * n, "é" * n)]
    texts = [" ".join(words) + " ." * 80, "".join(f" {w} {w}" for w in reversed(words)) + " ." * 80]
    expected = [encoding.ids for encoding in tok.encode_batch(texts, add_special_tokens=False)]
    for _ in range(3):
        assert tok.encode_arrow(pa.array(texts)).to_pylist() == expected


@pytest.mark.parametrize("tallying", [False, True])
@pytest.mark.parametrize("name", _TOKENIZERS)
def test_what_caches_were_good_for(name: str, tallying: bool) -> None:
    tok = _TOKENIZERS[name]()
    texts = pa.array(["abc ab cab abc", "abc ab", None, ""] * 3)
    assert tok.cache_info() == CacheInfo(words=0, bytes=0, bound=0, hits=0, misses=0)
    assert tok.cache_info().hit_rate == 0
    tally = tok.new_tally() if tallying else None
    tok.encode_arrow(texts, tally=tally)
    first = tok.cache_info()
    assert first.hits + first.misses == 18
    # Three words, of which byte-level models know those with a space in front apart.
    assert 3 <= first.misses <= 5
    assert 3 <= first.words <= 5
    assert 0 < first.bytes <= first.bound == _CACHE_BYTES
    tok.encode_arrow(texts, tally=tally)
    second = tok.cache_info()
    assert (second.misses, second.hits) == (first.misses, first.hits + 18)
    assert second.hit_rate == second.hits / 36


def test_figures_outlive_what_a_cache_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_is_worn", lambda _: True)
    tok, other = _bert(), _bert()
    n_words = 0
    for _ in range(3):
        texts = _texts(5000)
        before = tok.cache_info().misses
        tok.encode_arrow(pa.array(texts))
        found = [encoding.word_ids for encoding in other.encode_batch(texts)]
        n_words += sum(word_ids[-1] + 1 for word_ids in found if word_ids)
        info = tok.cache_info()
        assert info.misses > before
        assert info.hits + info.misses == n_words
    tok.decoder = None  # another part, another cache
    assert tok.cache_info().misses == 0
