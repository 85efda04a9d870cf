# SPDX-License-Identifier: Apache-2.0
"""From raw bytes to ids in one pass, against normalizing first and tokenizing each row as a whole in plain Python."""

import dataclasses
import itertools
import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import charsmaps
from tests.reference.tracing import traced
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.added_tokens import no_tokens
from tokenmill.tokenizer.counting import Tally
from tokenmill.tokenizer.engines import choose
from tokenmill.tokenizer.engines.tables import Engine, TablePool
from tokenmill.tokenizer.kernels import encode_loop
from tokenmill.tokenizer.kernels.sentencepiece_unigram import LONGEST_EXACT
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.unigram import MAX_PIECE_CHARACTERS, PieceType
from tokenmill.tokenizer.normalizers.sentencepiece import SentencePieceNormalizer
from tokenmill.tokenizer.ragged import text_rows


def charsmap(rules: dict[str, str]) -> bytes:
    return charsmaps.build({key.encode(): result for key, result in rules.items()})


RULES = {
    "A": "a", "ﬁ": "fi", "e\u0301": "é", "\n": " ", "\t": " ", "\u3000": " ", "\u200b": "", "´": " \u0301", "，": ",",
    "\x01": "", "か\u3099": "が", "…": "...",
}  # fmt: skip
ALPHABET = "abAeé\u0301fi \n\t\u3000\u200b´，,\x01かが\u3099…玫瑰▁x\x00🙂\x0b12()\x7f"
"""What the rules are about, characters that no piece has, every kind of white space, and every class of ASCII."""


def engine_of(normalizer: SentencePieceNormalizer, model: object) -> Engine:
    engine, normalizes = choose(normalizer, None, model, TablePool(1 << 17))
    assert normalizes, "rows should be encoded from their raw bytes"
    return engine


def encode(engine: Engine, texts: list[str], tally: Tally | None = None, more: str = "") -> list[list[int]]:
    """Encodes rows in front of another one, `more`, whose ids are left out."""
    rows = text_rows([*texts, more])
    ids = engine.encode(rows, no_tokens(), np.ones(rows.n_rows, np.bool_), tally)
    return [ids.values[a:b].tolist() for a, b in itertools.pairwise(ids.offsets)][:-1]


FAR = " " * 100
"""With this behind them texts are far enough from the end of the column to be read in blocks of 64 bytes."""


def slowly(normalizer: SentencePieceNormalizer, model: Unigram, text: str) -> list[int]:
    return [i for i, _ in model.tokenize(traced(normalizer, text).text)]


def merged_slowly(normalizer: SentencePieceNormalizer, model: BPE, text: str) -> list[int]:
    """The best-scored piece that two neighbours make, leftmost first; a run of unknown characters is one token."""
    ranks: dict[str, int] = {}
    for left, right in model.merges:
        ranks.setdefault(left + right, len(ranks))
    pairs = set(model.merges)
    symbols = list(traced(normalizer, text).text)
    while True:
        found = [(ranks[a + b], k) for k, (a, b) in enumerate(itertools.pairwise(symbols)) if (a, b) in pairs]
        if not found:
            break
        k = min(found)[1]
        symbols[k : k + 2] = [symbols[k] + symbols[k + 1]]
    ids: list[int] = []
    for symbol in symbols:
        if symbol in model.vocab:
            ids.append(model.vocab[symbol])
        elif model.byte_fallback:
            ids += [model.vocab[f"<0x{byte:02X}>"] for byte in symbol.encode()]
        elif not ids or ids[-1] != model.vocab["<unk>"]:
            ids.append(model.vocab["<unk>"])
    return ids


@st.composite
def normalizers(draw: st.DrawFn) -> SentencePieceNormalizer:
    rules = draw(st.dictionaries(st.sampled_from(sorted(RULES)), st.just(None), max_size=len(RULES)))
    return SentencePieceNormalizer(
        precompiled_charsmap=charsmap({key: RULES[key] for key in rules}) if rules else b"",
        add_dummy_prefix=draw(st.booleans()),
        remove_extra_whitespaces=draw(st.booleans()),
        user_defined_symbols=tuple(draw(st.lists(st.sampled_from(["AA", "ﬁ", "ab", "，"]), max_size=2))),
    )


def pieces(draw: st.DrawFn, more: tuple[str, ...] = ()) -> list[str]:
    inner = st.text("abeé\u0301fi,かが玫12(", min_size=1, max_size=4)
    spaces = st.sampled_from(["", "", "▁", "▁▁"])
    found = draw(st.lists(st.tuples(spaces, inner).map("".join), max_size=20, unique=True))
    return sorted({*found, *more, "▁", "a", "b"})


@st.composite
def unigrams(draw: st.DrawFn, symbols: tuple[str, ...]) -> Unigram:
    texts = pieces(draw, symbols)
    scores = [draw(st.floats(-20, -1, width=32)) for _ in texts]
    types = [PieceType.USER_DEFINED if text in symbols else PieceType.NORMAL for text in texts]
    vocab, byte_fallback = [("<unk>", 0.0), *zip(texts, scores, strict=True)], draw(st.booleans())
    kinds = [PieceType.UNKNOWN, *types]
    if byte_fallback:
        vocab += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
        kinds += [PieceType.BYTE] * 256
    return Unigram(vocab, 0, byte_fallback, kinds)


# Longer ones are of few characters, so that parts come back: mixed, and ASCII between runs of others.
RUNS = st.lists(
    st.sampled_from(["玫", "瑰", "か", "é", "か\u3099", "玫玫e\u0301", "ab", "abababab ab", "a,b", " ", "  "]),
    max_size=60,
)
TEXTS = st.lists(
    st.one_of(
        st.text(ALPHABET, max_size=40),
        st.text("ab \n\té玫x\x01", max_size=150),
        st.text("ab12(), \n\x01\x7f", max_size=150),
        RUNS.map("".join),
    ),
    max_size=8,
)


@given(st.data(), TEXTS)
def test_unigram_rows_are_those_of_the_slow_way(data: st.DataObject, texts: list[str]) -> None:
    normalizer = data.draw(normalizers())
    model = data.draw(unigrams(normalizer.user_defined_symbols))
    engine = engine_of(normalizer, model)
    expected = [slowly(normalizer, model, text) for text in texts]
    assert encode(engine, texts) == expected
    # Once more, from the cache; in another order; in blocks; and each alone.
    assert encode(engine, texts[::-1]) == expected[::-1]
    assert encode(engine, texts, more=FAR) == expected
    assert encode(engine, texts[::-1], more=FAR) == expected[::-1]
    assert [encode(engine, [text])[0] for text in texts] == expected


@given(st.data(), TEXTS)
def test_bpe_rows_are_those_of_the_slow_way(data: st.DataObject, texts: list[str]) -> None:
    normalizer = dataclasses.replace(data.draw(normalizers()), user_defined_symbols=())
    whole = pieces(data.draw)
    order = data.draw(st.permutations(whole))
    single = sorted({c for piece in whole for c in piece})
    tokens = ["<unk>", *[f"<0x{byte:02X}>" for byte in range(256)], *single, *[p for p in order if len(p) > 1]]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [
        (piece[:k], piece[k:]) for piece in order for k in range(1, len(piece))
        if piece[:k] in vocab and piece[k:] in vocab
    ]  # fmt: skip
    fallback = data.draw(st.booleans())
    made = list(dict.fromkeys(left + right for left, right in merges))
    ranks = [made.index(left + right) for left, right in merges]
    model = BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=fallback, merge_ranks=ranks)
    engine = engine_of(normalizer, model)
    expected = [merged_slowly(normalizer, model, text) for text in texts]
    assert encode(engine, texts) == expected
    assert encode(engine, texts[::-1], more=FAR) == expected[::-1]
    assert encode(engine, texts, more=FAR) == expected


PLAIN = SentencePieceNormalizer(charsmap(RULES))
SMALL = Unigram(
    [("<unk>", 0.0), *((c, -5.0 - 0.37 * i) for i, c in enumerate("▁abcdef,")), ("▁ab", -7.1), ("cd", -6.3)],
    0, False, [2] + [1] * 10,
)  # fmt: skip


@pytest.mark.parametrize("length", [LONGEST_EXACT - 1, LONGEST_EXACT, LONGEST_EXACT + 1, MAX_PIECE_CHARACTERS])
def test_pieces_longer_than_the_parts_that_an_automaton_scores(length: int) -> None:
    texts = [piece for n in (1, 2, length - 1, length, length + 1, 2 * length) for piece in ("a" * n, "b" + "a" * n)]
    pieces = [("<unk>", 0.0), ("▁", -2.0), ("a" * length, -1.0), ("aa", -2.0), ("a", -9.0), ("b", -3.0)]
    model = Unigram(pieces, 0, False, [PieceType.UNKNOWN] + [PieceType.NORMAL] * 5)
    engine = engine_of(PLAIN, model)
    expected = [slowly(PLAIN, model, text) for text in texts]
    assert encode(engine, texts) == expected
    assert encode(engine, texts, more=FAR) == expected


@pytest.mark.parametrize(
    ("n_spans", "shrink", "prefix"), [(1, True, True), (2, False, True), (3, True, False), (128, False, False)]
)
def test_batches_of_few_parts(n_spans: int, shrink: bool, prefix: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a batch ends, and what hostile rows do to it, changes nothing."""
    monkeypatch.setattr(encode_loop, "BATCH", n_spans)
    normalizer = dataclasses.replace(PLAIN, remove_extra_whitespaces=shrink, add_dummy_prefix=prefix)
    engine = engine_of(normalizer, SMALL)
    rng = random.Random(n_spans)
    parts = [
        *ALPHABET, "ab", "cd", "玫瑰玫瑰", "🙂🙂", "玫\u0301瑰", "\u200b ", " \u3000", "▁ ", "cd" * 40, FAR, "é" * 30,
    ]  # fmt: skip
    texts = ["".join(rng.choices(parts, k=rng.choice([0, 1, 2, 3, 9, 60]))) for _ in range(80)]
    texts += [
        "玫" * 2000 + "\u0301", "玫" * 2000 + "a", "a\u0301" * 3000, "ab" * 3000, "\x01" * 300, "\u200b", " " * 300,
    ]  # fmt: skip
    expected = [slowly(normalizer, SMALL, text) for text in texts]
    tallies = [engine.new_tally() for _ in range(2)]
    for tally in (*tallies, None):
        assert encode(engine, texts, tally) == expected
    words, again = (tally.oov_words().to_pydict() for tally in tallies)
    assert words == again
    assert tallies[0].n_words == tallies[1].n_words
    one_by_one = engine.new_tally()
    for text in texts:
        encode(engine, [text], one_by_one)
    assert one_by_one.oov_words().to_pydict() == words
    assert one_by_one.n_words == tallies[0].n_words


@given(TEXTS, st.booleans())
def test_words_are_counted_alike_whatever_the_cache_holds(texts: list[str], shrink: bool) -> None:
    engine = engine_of(dataclasses.replace(PLAIN, remove_extra_whitespaces=shrink), SMALL)
    tallies = [engine.new_tally() for _ in range(3)]
    for tally, more in zip(tallies, ("", FAR, FAR), strict=True):
        encode(engine, texts, tally, more)
    assert tallies[0].n_words == tallies[1].n_words == tallies[2].n_words
    words = [{row["word"]: row["count"] for row in tally.oov_words().to_pylist()} for tally in tallies]
    assert words[0] == words[1] == words[2]


def test_characters_that_grow_get_the_room_they_need() -> None:
    normalizer = SentencePieceNormalizer(charsmap({"ﷺ": "abcdef" * 9}))
    texts = ["ﷺ" * 2000, "", "ﷺ", "a"]
    assert encode(engine_of(normalizer, SMALL), texts) == [slowly(normalizer, SMALL, text) for text in texts]


def test_a_tally_that_fills_up_counts_everything_once() -> None:
    words = [f"{chr(0x4E00 + i % 20000)}{'ab'[i % 2]}{i // 20000 * 'c'}" for i in range(70_000)]
    engine = engine_of(PLAIN, SMALL)
    tally = engine.new_tally()
    texts = [" ".join(words[i : i + 700]) for i in range(0, len(words), 700)]
    assert encode(engine, texts, tally) == encode(engine, texts)
    assert tally.n_words == len(words)
    assert tally.n_oov_characters == len(words)
    counted = sum(tally.oov_words()["count"].to_pylist()) + tally.n_oov_words_untracked
    assert counted == len(words)


@pytest.mark.parametrize(
    "changes",
    [
        {"escape_whitespaces": False},
        {"treat_whitespace_as_suffix": True},
        {"user_defined_symbols": ("a b",)},
        {"precompiled_charsmap": charsmap({"a b": "c"})},
        {"precompiled_charsmap": charsmap({" \u0301": "c"})},
        {"precompiled_charsmap": charsmap({" ": "_"})},
    ],
)
def test_what_cannot_be_cut_at_spaces_is_normalized_first(changes: dict) -> None:
    normalizer = SentencePieceNormalizer(**changes)
    engine, normalizes = choose(normalizer, None, SMALL, TablePool(1 << 17))
    assert not normalizes
    texts = ["a b ab  cd", " \u0301a b"]
    rows = normalizer.normalize_rows(text_rows(texts))
    ids = engine.encode(rows, no_tokens(), np.ones(2, np.bool_), None)
    assert [ids.values[a:b].tolist() for a, b in itertools.pairwise(ids.offsets)] == [
        slowly(normalizer, SMALL, text) for text in texts
    ]


@pytest.mark.parametrize("more", ["", FAR])
@pytest.mark.parametrize(("piece", "text"), [("玫é", "玫e\u0301"), ("1é", "1e\u0301"), ("é玫", "e\u0301玫")])
def test_nothing_is_cut_where_a_rule_of_several_characters_makes_a_piece(piece: str, text: str, more: str) -> None:
    normalizer = SentencePieceNormalizer(charsmap({"e\u0301": "é"}), False, False)
    vocab = [("<unk>", 0.0), ("a", -1.0), ("▁", -1.0), (piece, -1.0)]
    model = Unigram(vocab, 0, piece_types=[PieceType.UNKNOWN] + 3 * [PieceType.NORMAL])
    assert encode(engine_of(normalizer, model), [text], more=more) == [[3]]


def test_keys_that_share_their_ends() -> None:
    # Any two of 94 characters become "é": 8,836 keys in 1,024 units.
    characters = range(0x21, 0x7F)
    units = [0] * 1024
    units[0] = 256 << 10
    for byte in characters:
        units[256 ^ byte] = (256 ^ byte ^ 512) << 10 | byte
        units[512 ^ byte] = (512 ^ byte ^ 768) << 10 | 1 << 8 | byte
    units[768] = 1 << 31
    shared = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + "é\0".encode()
    normalizer = SentencePieceNormalizer(shared, False, False)
    vocab = [("<unk>", 0.0), ("a", -1.0), ("▁", -1.0), ("é", -1.0), ("玫é", -1.0), ("玫", -1.0)]
    model = Unigram(vocab, 0, piece_types=[PieceType.UNKNOWN] + 5 * [PieceType.NORMAL])
    engine = engine_of(normalizer, model)
    texts = ["ab", "a", "aa a!", "玫ab", "玫a", "玫玫~~~"]
    assert encode(engine, texts) == [slowly(normalizer, model, text) for text in texts]
    assert encode(engine, texts) == [[3], [1], [3, 2, 3], [4], [5, 1], [5, 4, 0]]


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("pieces", [["▁▁", "▁▁a", "▁a"], ["▁a"]])
def test_spaces_around_what_becomes_nothing_are_neighbours(merges: bool, prefix: bool, pieces: list[str]) -> None:
    normalizer = SentencePieceNormalizer(charsmap({"\u200b": ""}), prefix, False, True)
    unigram = Unigram([("<unk>", 0.0), ("▁", -2.0), ("a", -2.0), *((each, -1.0) for each in pieces)], 0)
    vocab = {text: i for i, (text, _) in enumerate(unigram.vocab)}
    merges_of = [
        (each[:k], each[k:]) for each in pieces for k in range(1, len(each)) if {each[:k], each[k:]} <= vocab.keys()
    ]
    ranks = [pieces.index(left + right) for left, right in merges_of]
    bpe = BPE(vocab, merges_of, unk_token="<unk>", fuse_unk=True, merge_ranks=ranks)
    tokenizer = Tokenizer(model=bpe if merges else unigram, normalizer=normalizer)
    for text in ["\u200b a", "a \u200b a", " \u200b \u200b\u200b a", "a\u200b a", "\u200b"]:
        normalized = normalizer.normalize_str(text)
        expected = merged_slowly(normalizer, bpe, text) if merges else slowly(normalizer, unigram, text)
        assert tokenizer.encode_arrow([text]).to_pylist() == [expected if normalized else []], ascii(text)


def test_rows_that_are_encoded_as_a_whole_keep_their_place() -> None:
    engine = engine_of(dataclasses.replace(PLAIN, remove_extra_whitespaces=False), SMALL)
    rows = text_rows(["a", "x▁ b", "", "<added>", "玫▁", "▁", "cd"])
    added = np.full(rows.n_rows, -1, np.int32)
    added[3] = 99
    tally = engine.new_tally()
    ids = engine.encode(rows, added, np.ones(rows.n_rows, np.bool_), tally)
    texts = ["a", "x▁ b", "", "", "玫▁", "▁", "cd"]
    expected = [slowly(engine._normalizer, SMALL, text) for text in texts]  # type: ignore[attr-defined]
    expected[3] = [99]
    assert [ids.values[a:b].tolist() for a, b in itertools.pairwise(ids.offsets)] == expected
    assert tally.n_words == 6
    assert {row["word"].decode(): row["count"] for row in tally.oov_words().to_pylist()} == {"▁x▁▁b": 1, "▁玫▁": 1}


def test_the_tally_counts_units_with_unknown_characters() -> None:
    engine = engine_of(PLAIN, SMALL)
    tally = engine.new_tally()
    encode(engine, ["ab 玫a ab\n玫A\u3000 ab", "x", "", " cd 玫玫", "ab"], tally)
    assert tally.n_words == 9
    words = {row["word"].decode(): row["count"] for row in tally.oov_words().to_pylist()}
    assert words == {"▁玫a": 2, "▁x": 1, "▁玫玫": 1}
    assert [c.tolist() for c in tally.oov_characters()] == [[ord("x"), ord("玫")], [1, 4]]
