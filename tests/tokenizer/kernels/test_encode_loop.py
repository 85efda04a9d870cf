# SPDX-License-Identifier: Apache-2.0
"""The encode loop at its edges: of blocks, batches, rows and the table. One text by itself goes another, slower way."""

import itertools
import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tests.reference.spellings import SPELLINGS
from tokenmill.tokenizer import AddedToken, Tokenizer, recycled
from tokenmill.tokenizer.engines import tables
from tokenmill.tokenizer.kernels import encode_loop
from tokenmill.tokenizer.models import BPE, WordPiece
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, CharDelimiterSplit, Digits, Punctuation, Sequence, Split

KINDS = ("A", "b", "7", " ", "\n", "'", ".", "\0", "é", "中", "好", "。", "ก", "😀", "\u0301")
"""Characters of every kind that scanners and normalizers tell apart, of one to four bytes."""
PLACES = range(68)
CLIP = SPELLINGS["clip"][0]


def _bytes_model(suffix: str = "") -> BPE:
    joins = [(" ", "a"), ("a", "a"), ("aa", "a"), ("好", "。"), ("b", "é")]
    tokens, merges = [*BYTE_ALPHABET], []
    for pair in joins:
        left, right = ("".join(BYTE_ALPHABET[b] for b in part.encode()) for part in pair)
        made = left[0]
        for letter in (left + right)[1:]:
            merges.append((made, letter))
            made += letter
            tokens.append(made)
    if suffix:
        tokens += [token + suffix for token in tokens]
        merges += [(a, b + suffix) for a, b in merges]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return BPE(vocab, list(dict.fromkeys(merges)), byte_level=True, end_of_word_suffix=suffix or None)


def _gpt2() -> Tokenizer:
    return Tokenizer(model=_bytes_model(), pre_tokenizer=ByteLevel(False))


def _clip() -> Tokenizer:
    steps = Sequence((Split(CLIP, "removed", is_regex=True, invert=True), ByteLevel(False)))
    return Tokenizer(model=_bytes_model("</w>"), pre_tokenizer=steps)


def _bert() -> Tokenizer:
    pieces = [*"ab7.'é中", "aa", "##a", "##aa", "##b", "##7", "a7", "ab"]
    return Tokenizer.for_bert(["[UNK]", *pieces])


def _found() -> Tokenizer:
    vocab = {token: i for i, token in enumerate(["<unk>", *"abA7.é中", "aa", "##a", "##b", "##aa"])}
    return Tokenizer(
        model=WordPiece(vocab, unk_token="<unk>"), pre_tokenizer=CharDelimiterSplit(" "),
        added_tokens=[AddedToken(len(vocab), "好", special=False)],
    )  # fmt: skip


def _falcon() -> Tokenizer:
    steps = Punctuation("contiguous"), ByteLevel(False), Digits()
    return Tokenizer(model=_bytes_model(), pre_tokenizer=Sequence(steps))


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": _gpt2, "clip": _clip, "falcon": _falcon, "bert": _bert, "found": _found
}  # fmt: skip


def _one_by_one(tok: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tok.encode_batch(texts, add_special_tokens=False)]


def _column(tok: Tokenizer, texts: list[str]) -> list[list[int]]:
    ids: list[list[int]] = tok.encode_arrow(pa.array(texts, pa.large_string())).to_pylist()
    return ids


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("limit", [1, 2, 3, 128])
def test_every_pair_of_kinds_at_every_place_of_a_block(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_loop, "BATCH", limit)
    tok = TOKENIZERS[name]()
    pairs = [*itertools.product(KINDS, KINDS)]
    # Every place in turn for every pair, and all of them with blocks that are read whole behind them.
    texts = ["a" * PLACES[i % len(PLACES)] + a + b + "a" * (i % 5) + " a" * 40 for i, (a, b) in enumerate(pairs * 7)]
    assert _column(tok, texts) == _one_by_one(tok, texts)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("limit", [1, 3, 128])
def test_short_rows(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_loop, "BATCH", limit)
    chooser = random.Random(3)
    texts = ["".join(chooser.choices(KINDS, k=chooser.randrange(5))) for _ in range(3000)]
    tok = TOKENIZERS[name]()
    expected = _one_by_one(tok, texts)
    assert _column(tok, texts) == expected
    # A slice begins within the bytes of its column.
    assert tok.encode_arrow(pa.array(texts, pa.large_string())[7:]).to_pylist() == expected[7:]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_hostile_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word twice, more words than the table has places, in turn; one word of a megabyte; a tally that fills up."""
    words = ["".join("ab7é"[n >> 2 * k & 3] for k in range(9)) for n in range(1 << 15)]
    texts = [" ".join(words), " ".join(words), "a" * (1 << 20) + "b", "中好" * 50_000]
    large = TOKENIZERS[name]()
    tally = large.new_tally()
    expected = large.encode_arrow(pa.array(texts), tally=tally)
    new_table = tables.new_table
    monkeypatch.setattr(tables, "n_lines", lambda *_: 8)
    monkeypatch.setattr(tables, "new_table", lambda n, _: new_table(n, 256))
    small = TOKENIZERS[name]()
    other = small.new_tally()
    assert small.encode_arrow(pa.array(texts), tally=other).equals(expected)
    assert tally.n_words == other.n_words
    assert tally.oov_words().equals(other.oov_words())
    assert tally.n_oov_characters == other.n_oov_characters


def test_a_table_is_lent_to_one_call_at_a_time() -> None:
    pool = tables.TablePool(1 << 16)
    with pool.borrow(None) as first, pool.borrow(None) as second:
        assert first.table.slots.ctypes.data != second.table.slots.ctypes.data
    with pool.borrow(None) as third:
        assert third in (first, second)
    assert pool.info().bound == 2 << 16


def test_scratch_is_kept_unless_it_is_large() -> None:
    pool = tables.TablePool(1 << 16)
    with pool.borrow(None) as lent:
        lent.make_room(100, 1, np.zeros)
        scratch = lent.model
        lent.make_room(200, 1, np.zeros)
        assert lent.model is scratch
        lent.make_room(1 << 20, 1, np.zeros)
        assert lent.model.size > 1 << 20
    assert lent.model is None


@pytest.mark.parametrize("n_bytes", [1 << 16, 1 << 20, 1 << 25])
def test_lines_begin_where_lines_of_memory_do(n_bytes: int) -> None:
    recycled.empty(n_bytes, np.uint8).fill(1)  # memory that the table may get has been used
    with tables.TablePool(n_bytes).borrow(None, 1 << 30) as lent:
        slots = lent.table.slots
        assert slots.ctypes.data % 64 == 0
        assert not slots.any()
        assert slots.nbytes * 4 > n_bytes
