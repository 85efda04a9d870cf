# SPDX-License-Identifier: Apache-2.0
"""`UnigramTrainer` and its kernels against their slow twins, by hand, and on what goes wrong."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.word_counts import scattered, table
from tokenizer.kernels import unigram_training as kernels
from tokenizer.models.unigram import PieceType, Unigram
from tokenizer.trainers import UnigramTrainer
from tokenizer.trainers import unigram_reference as reference
from tokenizer.trainers.unigram_em import expect, expected_counts, fixed_point_unit, match
from tokenizer.trainers.unigram_seeds import choose_alphabet, find_seeds
from tokenizer.trainers.unigram_text import Text, lay_out, sort_suffixes
from tokenizer.trainers.word_counts import words_as_code_points

HUGS = {"▁hug": 100, "▁pug": 50, "▁pun": 120, "▁bun": 40, "▁hugs": 50}


def train(counts: Mapping[str, int], **fields: Any) -> Unigram:
    fields = {"hard_vocab_limit": False, **fields}
    return UnigramTrainer(**fields).train(table(list(counts.items())))


def learned(model: Unigram) -> list[tuple[str, float]]:
    assert model.piece_types is not None
    return [entry for entry, kind in zip(model.vocab, model.piece_types, strict=True) if kind == PieceType.NORMAL]


def text_of(counts: Mapping[str, int], alphabet: str | None = None) -> Text:
    words = words_as_code_points(table(list(counts.items())))
    known = sorted(set("".join(counts) if alphabet is None else alphabet))
    return lay_out(words, np.array([ord(character) for character in known], np.int32))


def runs_of(text: Text) -> list[tuple[str, int]]:
    values = text.values.tolist()
    return [
        ("".join(chr(text.alphabet[v - 1]) for v in values[start : stop - 1]), count)
        for (start, stop), count in zip(itertools.pairwise(text.starts.tolist()), text.counts.tolist(), strict=True)
    ]


# By hand


def test_pieces_of_hugs() -> None:
    model = train(HUGS, vocab_size=16)
    assert [piece for piece, _ in model.vocab[:3]] == ["<unk>", "<s>", "</s>"]
    pieces = learned(model)
    assert {"▁", "h", "u", "g", "p", "n", "b", "s"} <= {piece for piece, _ in pieces}
    assert pieces == sorted(pieces, key=lambda item: (-item[1], item[0]))
    assert [model.vocab[i][0] for i, _ in model.tokenize("▁hugs")] in (["▁hugs"], ["▁hug", "s"])


def test_special_pieces_stand_where_their_ids_are() -> None:
    model = train(
        HUGS, vocab_size=300, unk_id=2, bos_id=-1, eos_id=0, pad_id=5, byte_fallback=True,
        control_symbols=["<mask>", "</s>"], user_defined_symbols=["<x>"],
    )  # fmt: skip
    pieces = [piece for piece, _ in model.vocab]
    assert pieces[:7] == ["</s>", "<mask>", "<unk>", "<x>", "<0x00>", "<pad>", "<0x01>"]
    assert pieces[6 : 6 + 255] == [f"<0x{byte:02X}>" for byte in range(1, 256)]
    kinds = list(model.piece_types or ())
    assert kinds[:7] == [3, 3, 2, 4, 6, 3, 6]
    assert model.unk_id == 2
    assert model.byte_fallback
    assert all(score == 0 for (_, score), kind in zip(model.vocab, kinds, strict=True) if kind != PieceType.NORMAL)
    assert kinds.count(PieceType.NORMAL) > 8


def test_pieces_do_not_cross_the_texts_of_special_pieces() -> None:
    counts = {"▁ab<x>ab": 90, "▁ab<xy>": 50, "▁<s>ab": 30}
    pieces = {piece for piece, _ in learned(train(counts, user_defined_symbols=["<x>", "<xy>"]))}
    assert pieces == {"▁", "a", "b", "ab", "▁ab"}
    assert any("<" in piece for piece, _ in learned(train(counts)))
    fields = {"split_by_unicode_script": False, "byte_fallback": True}
    pieces = {piece for piece, _ in learned(train({"▁a<0x41>": 90, "▁a<0x4": 40}, **fields))}
    assert pieces == {"▁", "a", "<", "0", "x", "4", "▁a", "<0x4", "▁a<0x4"}


def test_rare_characters_are_left_out_unless_required() -> None:
    counts = {"▁ab": 5000, "▁x": 2, "▁yab": 1}
    assert {piece for piece, _ in learned(train(counts, character_coverage=0.999))} <= {"▁", "a", "b", "ab", "▁ab"}
    required = learned(train(counts, character_coverage=0.999, required_chars="yqz\0"))
    assert {"y", "q", "z"} <= {piece for piece, _ in required}
    assert "x" not in dict(required)
    assert "\0" not in dict(required)
    # Absent ones score like the worst piece, a little apart, by code points.
    worst = min(score for piece, score in required if piece not in "qz")
    assert dict(required)["q"] == pytest.approx(worst, abs=1e-3)
    assert dict(required)["z"] - dict(required)["q"] == pytest.approx(1e-4, rel=0.01)
    assert "x" in dict(learned(train(counts, character_coverage=1.0)))


@pytest.mark.parametrize(
    ("fields", "word", "never", "sometimes"),
    [
        ({}, "aб", ["aб"], []),
        ({"split_by_unicode_script": False}, "aб", [], ["aб"]),
        ({}, "花カ", [], ["花カ"]),
        ({}, "a1", ["a1"], []),
        ({"split_by_number": False}, "a1", [], ["a1"]),
        ({}, "11", [], ["11"]),
        ({"split_digits": True}, "11", ["11"], []),
        ({}, "▁a▁b", ["a▁b", "a▁", "▁a▁b"], ["▁b"]),
        ({"split_by_whitespace": False}, "▁a▁b", ["a▁", "▁a▁"], ["▁a▁b"]),
        ({"treat_whitespace_as_suffix": True}, "a▁", [], ["a▁"]),
        ({}, "▁▁", ["▁▁"], []),
        ({"allow_whitespace_only_pieces": True}, "▁▁", [], ["▁▁"]),
        ({}, "e\u0301x", [], ["e\u0301x"]),
        ({"max_piece_length": 2}, "abc", ["abc"], []),
    ],
)
def test_rules_of_pieces(fields: dict[str, Any], word: str, never: list[str], sometimes: list[str]) -> None:
    pieces = {piece for piece, _ in learned(train({word: 50}, **fields))}
    assert pieces.isdisjoint(never)
    assert pieces >= set(sometimes)


def test_fewer_seeds_give_fewer_pieces() -> None:
    sizes = [len(learned(train(HUGS, seed_sentencepiece_size=n))) for n in (1, 3, 1000)]
    assert sizes == sorted(set(sizes))


def test_options_of_the_search_change_the_result() -> None:
    rng = random.Random(3)
    counts = {"▁" + "".join(rng.choices("abcdef", k=rng.randint(2, 9))): rng.randint(1, 9) for _ in range(300)}
    for size, fields in ((120, {"shrinking_factor": 0.5}), (250, {"num_sub_iterations": 1})):
        assert learned(train(counts, vocab_size=size)) != learned(train(counts, vocab_size=size, **fields))


# Against the slow twin


small_words = st.sampled_from(["ab", "▁ab", "▁abcd花カ1é\u0301б<"]).flatmap(
    lambda alphabet: st.dictionaries(
        st.text(alphabet, min_size=1, max_size=14),
        st.integers(1, 4) | st.sampled_from([50, 2**33, 10**15]),
        min_size=1,
        max_size=14,
    )
)


@given(
    counts=small_words,
    extra=st.integers(0, 30),
    coverage=st.sampled_from([1.0, 0.9995, 0.8]),
    required=st.sampled_from(["", "az"]),
    longest=st.sampled_from([1, 2, 3, 16]),
    n_seeds=st.sampled_from([1, 5, 1_000_000]),
    shrinking=st.sampled_from([0.75, 0.5]),
    n_steps=st.integers(1, 2),
    flags=st.lists(st.booleans(), min_size=6, max_size=6),
    symbols=st.sampled_from([(), ("ab",), ("<", "b<")]),
)
def test_equals_the_slow_twin(
    counts: dict[str, int],
    extra: int,
    coverage: float,
    required: str,
    longest: int,
    n_seeds: int,
    shrinking: float,
    n_steps: int,
    flags: list[bool],
    symbols: tuple[str, ...],
) -> None:
    trainer = UnigramTrainer(
        vocab_size=20 + extra,
        character_coverage=coverage,
        required_chars=required,
        max_piece_length=longest,
        seed_sentencepiece_size=n_seeds,
        shrinking_factor=shrinking,
        num_sub_iterations=n_steps,
        user_defined_symbols=symbols,
        hard_vocab_limit=False,
        split_by_unicode_script=flags[0],
        split_by_number=flags[1],
        split_by_whitespace=flags[2],
        split_digits=flags[3],
        treat_whitespace_as_suffix=flags[4],
        allow_whitespace_only_pieces=flags[5],
    )
    special = ["<unk>", "<s>", "</s>", *symbols]
    if not any(word.strip("".join(symbols)) for word in counts):
        return  # nothing but symbols, which is an error, tested below
    assert learned(trainer.train(table(list(counts.items())))) == reference.train_unigram(trainer, counts, special)


@given(counts=small_words, depth=st.integers(1, 20), skip=st.sampled_from(["", "b"]))
def test_suffixes_are_sorted(counts: dict[str, int], depth: int, skip: str) -> None:
    text = text_of(counts, "".join(set("".join(counts)) - set(skip)))
    if not text.counts.size:
        return
    suffixes, common = sort_suffixes(text, depth)
    rests = []
    for run, start in zip(runs_of(text), text.starts.tolist(), strict=False):
        rests += [(run[0][i:][:depth], start + i) for i in range(len(run[0]))]
    spelled = dict(zip([place for _, place in rests], [rest for rest, _ in rests], strict=True))
    assert sorted(suffixes.tolist()) == sorted(spelled)
    found = [spelled[place] for place in suffixes.tolist()]
    assert found == sorted(found)
    expected = [
        sum(1 for _ in itertools.takewhile(lambda both: both[0] == both[1], zip(*pair, strict=False)))
        for pair in itertools.pairwise(found)
    ]
    assert common.tolist() == [0, *expected, 0]


@pytest.mark.parametrize("n_letters", [2, 300, 40_000])
def test_suffixes_of_alphabets_of_any_size_are_sorted(n_letters: int) -> None:
    rng = random.Random(n_letters)
    letters = [chr(0x4E00 + i) if i < 20_000 else chr(0x20000 + i) for i in range(n_letters)]
    words = ["".join(rng.choices(letters, k=40)) for _ in range(60)]
    text = text_of(dict.fromkeys([*words, *(word[7:] for word in words)], 1), "".join(letters))
    suffixes, _ = sort_suffixes(text, 33)
    rests = []
    for place in suffixes.tolist():
        stop = text.starts[text.run_of[place] + 1] - 1
        rests.append(text.values[place : min(stop, place + 33)].tolist())
    assert rests == sorted(rests)


def every_cut(text: str) -> list[list[str]]:
    cuts = []
    for mask in range(1 << (len(text) - 1)):
        ends = [i + 1 for i in range(len(text) - 1) if mask >> i & 1]
        cuts.append([text[a:b] for a, b in itertools.pairwise([0, *ends, len(text)])])
    return cuts


scored_pieces = st.dictionaries(
    st.text("abc", min_size=1, max_size=4), st.floats(-12, -0.1, allow_nan=False), min_size=1, max_size=12
)


def lattice_of(text: Text, scores: Mapping[str, float]) -> tuple[Any, np.ndarray]:
    pieces = sorted(scores)
    numbers = {chr(code_point): i + 1 for i, code_point in enumerate(text.alphabet.tolist())}
    spelled = np.array([numbers[c] for piece in pieces for c in piece], np.int32)
    offsets = np.cumsum([0, *map(len, pieces)])
    suffixes, common = sort_suffixes(text, max(map(len, pieces)))
    return match(text, suffixes, common, spelled, offsets), np.array([scores[piece] for piece in pieces])


@given(scores=scored_pieces, words=st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=5))
def test_expected_counts_are_those_of_all_segmentations(scores: dict[str, float], words: list[str]) -> None:
    counts = Counter(words)
    text = text_of(counts, "abc")
    lattice, score_array = lattice_of(text, scores)
    unknown = min(scores.values()) - 10
    wanted: Counter[str] = Counter()
    for word, count in counts.items():
        paths = [
            (math.exp(math.fsum(scores.get(piece, unknown) for piece in cut)), cut)
            for cut in every_cut(word)
            if all(piece in scores or len(piece) == 1 for piece in cut)
        ]
        total = math.fsum(weight for weight, _ in paths)
        for weight, cut in paths:
            for piece in cut:
                wanted[piece] += count * weight / total
    unit = 1 << 40
    expected = expect(text, lattice, score_array, unit)
    for piece, parts in zip(sorted(scores), expected.tolist(), strict=True):
        assert parts / unit == pytest.approx(wanted[piece], abs=1e-9)


@given(scores=scored_pieces, word=st.text("abc", min_size=1, max_size=9), whole=st.booleans())
def test_best_path_is_best_of_all_segmentations(scores: dict[str, float], word: str, whole: bool) -> None:
    unknown = min(scores.values()) - 10
    possible = [
        math.fsum(scores.get(piece, unknown) for piece in cut)
        for cut in every_cut(word)
        if all(piece in scores or len(piece) == 1 for piece in cut)
    ]
    score, path = reference.find_best(scores, word)
    assert score == pytest.approx(max(possible))
    # The kernel counts the pieces of that very path.
    text = text_of({word: 3}, "abc")
    lattice, score_array = lattice_of(text, scores)
    frequencies = np.zeros(len(scores), np.int64)
    room = np.empty(len(word) + 1), np.empty(len(word) + 1, np.int32)
    kernels.count_best(text.starts, text.counts, *lattice, score_array, unknown, *room, frequencies)
    in_path = Counter(piece for piece in path if piece is not None)
    assert frequencies.tolist() == [3 * in_path[piece] for piece in sorted(scores)]


def test_seeds_are_substrings_that_are_followed_by_different_things() -> None:
    counts = {"abcd": 12, "abce": 4, "xabc": 4, "zz": 4, "qrs": 5}
    text = text_of(counts)
    pieces, shares = find_seeds(text, *sort_suffixes(text, 17), depth=17, rules=0, n_seeds=1000)
    spelled, offsets = pieces.spell(text)
    words = ["".join(chr(text.alphabet[v - 1]) for v in spelled[a:b]) for a, b in itertools.pairwise(offsets.tolist())]
    found = {word: share for word, share in zip(words, shares.tolist(), strict=True) if len(word) > 1}
    # "ab" is always followed by "c"; "abcd" and "qrs" always end words, and so do "zz" and "abce", but not 5 times.
    assert found == {"abc": 60, "bc": 40, "abcd": 48, "bcd": 36, "cd": 24, "qrs": 15, "rs": 10}
    assert words == sorted(words)


# Only words and their total counts matter


@given(counts=small_words, seed=st.integers(0, 99))
def test_only_words_and_their_total_counts_matter(counts: dict[str, int], seed: int) -> None:
    trainer = UnigramTrainer(vocab_size=30, hard_vocab_limit=False)
    assert learned(trainer.train(scattered(counts, seed))) == reference.train_unigram(trainer, counts)


@given(counts=small_words, n_shards=st.integers(1, 5), seed=st.integers(0, 99))
def test_expected_counts_of_shards_add_up_to_the_bit(counts: dict[str, int], n_shards: int, seed: int) -> None:
    rng = random.Random(seed)
    words = list(counts.items())
    whole = words_as_code_points(table(words))
    alphabet = choose_alphabet(whole, 0.9995, "").code_points
    substrings = {w[i:j] for w in counts for i in range(len(w)) for j in range(i + 1, min(len(w), i + 4) + 1)}
    known = set(map(chr, alphabet.tolist()))
    pieces = sorted(piece for piece in substrings if set(piece) <= known and rng.random() < 0.7)
    if not pieces:
        return
    scores = np.array([-rng.uniform(1, 12) for _ in pieces])
    unit = fixed_point_unit(sum(len(word) * count for word, count in words))
    total = expected_counts(pa.array(pieces, pa.large_string()), scores, alphabet, whole, unit)
    rng.shuffle(words)
    parts = [words[i::n_shards] for i in range(n_shards)]
    shards = [words_as_code_points(table(part)) for part in parts if part]
    added = sum(expected_counts(pa.array(pieces, pa.large_string()), scores, alphabet, s, unit) for s in shards)
    assert np.array_equal(added, total)


def test_sizes_from_one_training_are_those_of_one_training_each() -> None:
    rng = random.Random(5)
    words = {"▁" + "".join(rng.choices("abcdefgh", k=rng.randint(1, 10))): rng.randint(1, 40) for _ in range(2000)}
    rows = table(list(words.items()))
    sizes = [300, 20, 120, 121, 30, 300]
    models = UnigramTrainer().train_sizes(rows, sizes)
    assert list(models) == [300, 20, 120, 121, 30]
    for size, model in models.items():
        assert len(model.vocab) == size
        assert model.vocab == UnigramTrainer(vocab_size=size).train(rows).vocab


# Large numbers


def test_counts_beyond_32_bits_are_counted_right() -> None:
    scale = 2**33 + 1
    small, large = train(HUGS, vocab_size=20), train({w: c * scale for w, c in HUGS.items()}, vocab_size=20)
    assert [piece for piece, _ in learned(large)][:4] == [piece for piece, _ in learned(small)][:4]
    # 2**32 would be nothing, or one, in 32 bits.
    pieces = dict(learned(train({"ab": 2**32, "cd": 2**31}, vocab_size=9)))
    assert pieces["ab"] - pieces["cd"] == pytest.approx(math.log(2), rel=0.02)


def test_the_largest_counts_that_fit_are_counted_right() -> None:
    counts = {"ab": 2**56, "ba": 2**55, "c": 1}
    trainer = UnigramTrainer(vocab_size=20, hard_vocab_limit=False)
    assert learned(trainer.train(table(list(counts.items())))) == reference.train_unigram(trainer, counts)
    with pytest.raises(
        ValueError, match=r"add up to 288230376151711744 characters, which times max_piece_length=16 is"
    ):
        train({"a": 2**58})


def test_a_long_word_underflows_nowhere() -> None:
    rng = random.Random(1)
    scores = {"a": -9.0, "b": -11.0, "c": -2.0, "ab": -5.0, "bca": -4.0, "cccc": -1.0}
    word = "".join(rng.choices("abcd", k=5000))  # "d" is unknown: probabilities of e**-21 each
    text = text_of({word: 7}, "abcd")
    lattice, score_array = lattice_of(text, scores)
    unit = 1 << 30
    expected = dict(zip(sorted(scores), (expect(text, lattice, score_array, unit) / unit).tolist(), strict=True))
    # Every "a" is in one of three pieces, and so on.
    assert expected["a"] + expected["ab"] + expected["bca"] == pytest.approx(7 * word.count("a"), rel=1e-6)
    assert expected["b"] + expected["ab"] + expected["bca"] == pytest.approx(7 * word.count("b"), rel=1e-6)
    # Cut at the unknown characters, which no piece crosses, the same is to be expected.
    parts = Counter(part for part in word.split("d") if part)
    pieces = text_of({part: 7 * count for part, count in parts.items()}, "abcd")
    lattice, score_array = lattice_of(pieces, scores)
    again = expect(pieces, lattice, score_array, unit) / unit
    assert list(expected.values()) == pytest.approx(again.tolist(), rel=1e-6)


def test_one_word_of_a_million_characters_is_a_word() -> None:
    word = bytes(random.Random(1).choices(b"abcdefghijklmnop", k=1_000_000)).decode()
    model = train({word: 1}, vocab_size=1000)
    assert len(model.vocab) == 1000
    assert [piece for piece, _ in learned(train({"a" * 1_000_000: 1}, vocab_size=12))] == ["a", "a" * 16]


# Mistakes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocab_size": 0}, r"vocab_size must be in 1\.\.16777216, got 0"),
        ({"character_coverage": 0}, "character_coverage must be above 0 and at most 1, got 0"),
        ({"character_coverage": 1.1}, "character_coverage must be above 0 and at most 1, got 1.1"),
        ({"shrinking_factor": 1}, "shrinking_factor must be above 0 and below 1, got 1"),
        ({"seed_sentencepiece_size": 0}, "seed_sentencepiece_size must be at least 1, got 0"),
        ({"num_sub_iterations": 0}, "num_sub_iterations must be at least 1, got 0"),
        ({"max_piece_length": 513}, r"max_piece_length must be in 1\.\.512, got 513"),
        ({"num_sub_iterations": 2.0}, "num_sub_iterations must be an integer, got 2.0"),
        ({"unk_id": -1}, "unk_id must not be negative"),
        ({"bos_id": 0}, "bos_id must differ from the other ids, got 0 twice"),
        ({"eos_piece": "<s>"}, "eos_piece must not be empty and differ from the others, got '<s>'"),
        ({"unk_piece": ""}, "unk_piece must not be empty"),
        ({"control_symbols": ["<a>"], "user_defined_symbols": ["<a>"]}, "be there once, got '<a>' twice"),
        ({"user_defined_symbols": ["<unk>"]}, "must not hold '<unk>'"),
        ({"user_defined_symbols": ["<0x0A>"], "byte_fallback": True}, "must not hold '<0x0A>'"),
        ({"control_symbols": "abc"}, "control_symbols must be a list of strings, got the string 'abc'"),
        ({"user_defined_symbols": ["\ud800"]}, "lone surrogate"),
    ],
)
def test_bad_fields_are_refused_at_construction(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        UnigramTrainer(**fields)


def test_a_vocabulary_too_small_for_its_alphabet_names_the_numbers_and_both_remedies() -> None:
    message = (
        r"vocab_size=10 is smaller than what the vocabulary begins with, 11 entries: 3 special pieces, 8 characters; "
        r"raise vocab_size to at least 11, or cover fewer characters with character_coverage \(now 0\.9995\)"
    )
    with pytest.raises(ValueError, match=message):
        train(HUGS, vocab_size=10)
    assert len(train(HUGS, vocab_size=11).vocab) == 11


def test_a_vocabulary_too_large_says_how_many_pieces_there_are() -> None:
    with pytest.raises(ValueError, match=r"vocab_size=8000 is too high, these words give \d+ pieces, special ones"):
        train(HUGS, vocab_size=8000, hard_vocab_limit=True)
    n = len(train(HUGS, vocab_size=8000).vocab)
    assert len(train(HUGS, vocab_size=n, hard_vocab_limit=True).vocab) == n
    with pytest.raises(ValueError, match=f"these words give {n} pieces, .*; lower vocab_size to {n} or less"):
        train(HUGS, vocab_size=n + 1, hard_vocab_limit=True)


def test_an_id_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the id 5000 of '<pad>' must be below the number of pieces, \d+;"):
        train(HUGS, pad_id=5000)
    with pytest.raises(ValueError, match="the id 5000 of '<pad>' must be below the number of pieces, 4000;"):
        train(HUGS, pad_id=5000, vocab_size=4000)


def test_one_single_character_is_enough_for_a_vocabulary() -> None:
    assert [piece for piece, _ in train({"a": 1}).vocab] == ["<unk>", "<s>", "</s>", "a"]
    with pytest.raises(ValueError, match="these words give 4 pieces"):
        train({"a": 1}, hard_vocab_limit=True)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no words"),
        ([("a", 0), ("", 9)], "holds no words"),
        ([("<s>", 3)], "holds no words"),
        ([("▅", 3), ("<s>", 1)], "holds no character that may be part of a piece"),
        ([("a", 1), ("b", -3)], "counts must not be negative, got -3"),
        ([("a", 1), (b"caf\xe9", 1)], r"words must be UTF-8, got b'caf\\xe9'"),
        ([("▁a", 1), ("b c", 1)], "words of a Unigram model have no spaces, got 'b c'; pre-tokenize with Metaspace"),
        ([("a", 2**63 - 1), ("b", 2**63 - 1)], "add up to 18446744073709551614 characters"),
    ],
)
def test_bad_word_counts_are_refused(rows: list[tuple[str | bytes, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UnigramTrainer().train(table(rows))


def test_no_size_is_refused() -> None:
    with pytest.raises(ValueError, match="sizes must name at least one"):
        UnigramTrainer().train_sizes(table([("a", 1)]), [])


def test_other_columns_are_refused() -> None:
    good = table([("a", 1)])
    for bad in (good.drop_columns("word"), good.cast(pa.schema([("word", pa.binary()), ("count", pa.int64())]))):
        with pytest.raises(TypeError, match="must have columns word: large_binary and count: int64, but"):
            UnigramTrainer().train(bad)


def test_a_trainer_is_a_value() -> None:
    trainer = UnigramTrainer(control_symbols=["<mask>"])
    assert trainer.control_symbols == ("<mask>",)
    assert eval(repr(trainer)) == trainer
    assert len({trainer, UnigramTrainer(control_symbols=("<mask>",))}) == 1
