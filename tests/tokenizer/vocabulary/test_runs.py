# SPDX-License-Identifier: Apache-2.0
"""Superwords: runs that merges can change, against counting all; the result in HF and on held-out text. `measure`."""

import itertools
from collections import Counter
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
import tokenizers as hf
from hypothesis import given
from hypothesis import strategies as st

from tests import corpora
from tests.reference import vocabulary as reference
from tests.tokenizer.vocabulary.test_extend import NEW, OLD, check_proof, counted, trained
from tests.word_counts import small, table
from tokenmill.tokenizer import BPETrainer, Tokenizer
from tokenmill.tokenizer.vocabulary import extend, extending, measure, model_alone, runs, superwords
from tokenmill.tokenizer.vocabulary.words import cutter, portions


def characters(*words: str) -> Tokenizer:
    alphabet = tuple(sorted({character for word in words for character in word}))
    return Tokenizer(
        model=BPETrainer(vocab_size=len(alphabet), initial_alphabet=alphabet).train(table([(alphabet[0], 1)]))
    )


@given(words=small(), least=st.integers(1, 6), room=st.sampled_from([1, 1 << 20]))
def test_runs_hold_all_that_is_frequent_enough_and_nothing_else(words: dict[str, int], least: int, room: int) -> None:
    pairs: Counter[str] = Counter()
    for word, count in words.items():
        for pair in itertools.pairwise(word):
            pairs["".join(pair)] += count
    expected: Counter[str] = Counter()
    for word, count in words.items():
        run = word[:1]
        for a, b in itertools.pairwise(word + "\0"):
            if pairs[a + b] >= least:
                run += b
                continue
            expected[run] += count if len(run) > 1 else 0
            run = b
    tokenizer = characters(*words)
    tables = [table([row]) for row in words.items()]  # as a large artifact, a stretch at a time
    found = runs.Neighbours(tables, tokenizer).runs(least, room)
    texts = ["".join(str(tokenizer.id_to_token(i)) for i in row) for row in np.split(found.values, found.offsets[1:-1])]
    assert dict(zip(texts, found.counts.tolist(), strict=False)) == {run: n for run, n in expected.items() if n}


@given(
    words=st.dictionaries(st.text("abc ", min_size=2, max_size=16), st.integers(1, 9), min_size=1, max_size=9),
    n=st.integers(1, 8), pairs=st.sampled_from([1, 4]), bits=st.sampled_from([2, 5, 24]),
)  # fmt: skip
def test_the_second_stage_is_that_of_counting_every_n_gram_again(
    words: dict[str, int], n: int, pairs: int, bits: int
) -> None:
    """However few pairs it begins with, and whatever other pairs are counted with one."""
    tokenizer = characters(*words)
    expected = reference.extend_bpe(tokenizer.model, words, n, kept={}, min_count=2)
    if expected:
        tables = [table([row]) for row in words.items()]
        with mock.patch.object(extending, "_PAIRS_FOR_EACH", pairs), mock.patch.object(runs, "_BITS", bits):
            merges = extend(tokenizer, tables, n).tokenizer.model.merges
        assert list(merges) == expected


def test_training_reads_again_with_rarer_pairs_until_there_are_enough_entries() -> None:
    words = [table([("ab", 90), ("cd", 80)]), table([("ef", 3), ("gh", 2)])]
    tokenizer, asked = characters("abcdefgh"), list[int]()
    read = runs.Neighbours.runs

    def noted(self: runs.Neighbours, least: int) -> object:
        asked.append(least)
        return read(self, least)

    with mock.patch.object(extending, "_PAIRS_FOR_EACH", 1), mock.patch.object(runs.Neighbours, "runs", noted):
        assert extend(tokenizer, words, 2).tokenizer.n_ids == 10
        assert asked == [80]
        base = characters("abcdefgh", "ij")
        assert extend(base, words, 3, keep=table([("ab", 1)])).tokenizer.n_ids == 13
        assert asked == [80, 3, 2]
        with pytest.raises(ValueError, match="what can be merged has 8 tokens, more than the 7 that memory"):
            mock.patch.object(runs, "MAX_TOKENS", 7)(extend)(base, words, 4)


@given(
    learned=st.lists(st.text("ab é", min_size=1, max_size=9), max_size=9),
    words=st.lists(st.text("ab é\n", min_size=1, max_size=12), min_size=1, max_size=9),
)
def test_words_of_several_words_are_cut_as_the_model_cuts_them(learned: list[str], words: list[str]) -> None:
    counts = table([(word, 3) for word in dict.fromkeys([*learned, "ab"])])
    start = Tokenizer.untrained("none", "gpt2", byte_level=True)
    tokenizer = start.with_model(BPETrainer(vocab_size=270, byte_level=True).train(counts))
    (counted_words,) = portions(table([(word, 1) for word in dict.fromkeys(words)]))
    cuts = cutter(tokenizer)(counted_words)
    expected = model_alone(tokenizer).encode_bare(counted_words.words).to_pylist()
    assert [row.tolist() for row in np.split(cuts.values, cuts.offsets[1:-1])] == expected


def test_superwords_cut_text_as_before_and_then_across_spaces(tmp_path) -> None:
    old = trained("byte_level")
    wide = superwords(old, 3)
    assert wide.encode_arrow([*OLD, *NEW]).equals(old.encode_arrow([*OLD, *NEW]))
    words = {word.decode() for word in counted(wide, OLD)["word"].to_pylist()}
    assert words >= {"the mill grinds", " the text", "a text is"}
    change = extend(wide, counted(wide, OLD), 40)
    check_proof(change, wide)
    assert any("Ġ" in each["token"][1:] for each in change.report["added"])
    change.tokenizer.save(tmp_path / "tokenizer.json")
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = [*OLD, *NEW, "the mill  grinds, the mill's text\nthe mill"]
    assert [each.ids for each in theirs.encode_batch(texts)] == change.tokenizer.encode_arrow(texts).to_pylist()
    for each in (wide, trained("wordpiece"), trained("bpe")):
        with pytest.raises(ValueError, match=r"superwords needs|n must be"):
            superwords(each, 1 if each is wide else 2)


@pytest.mark.parity
def test_superwords_take_fewer_tokens_of_held_out_text_than_words_at_the_same_size(shared_data, tmp_path) -> None:
    english = corpora.documents(shared_data, "en")
    held_out = english[::5]
    learned = [text for i, text in enumerate(english) if i % 5]
    start = Tokenizer.untrained("none", "gpt2", byte_level=True)
    words = counted(start, learned)
    first, same_size = (
        start.with_model(BPETrainer(vocab_size=size, byte_level=True).train(words)) for size in (3000, 4000)
    )
    wide = superwords(first)
    new = extend(wide, counted(wide, learned), 1000).tokenizer
    assert new.n_ids == same_size.n_ids
    assert wide.encode_arrow(held_out).equals(first.encode_arrow(held_out))
    rows = measure({"words": same_size, "superwords": new}, counted(new, held_out))
    print(rows)
    assert rows[1]["gain"] > 0.02
    new.save(tmp_path / "tokenizer.json")
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [each.ids for each in theirs.encode_batch(held_out)] == new.encode_arrow(held_out).to_pylist()


def test_measures_say_what_a_size_is_worth_and_how_equal_languages_are() -> None:
    start = Tokenizer.untrained("none", "gpt2", byte_level=True)
    models = BPETrainer(vocab_size=270, byte_level=True).train_sizes(counted(start, OLD), [260, 270])
    tokenizers = {str(size): start.with_model(model) for size, model in models.items()}
    parts = [counted(start, texts) for texts in (OLD, NEW)]
    labels = [pa.repeat(name, part.num_rows) for name, part in zip(("en", "de"), parts, strict=True)]
    rows = measure(tokenizers, [part.append_column("lang", each) for part, each in zip(parts, labels, strict=True)])
    assert [(row["name"], row["kind"], row["label"]) for row in rows[:3]] == [
        ("260", "all", "all"), ("260", "lang", "de"), ("260", "lang", "en")
    ]  # fmt: skip
    assert rows[0]["gain"] is None
    tokens = [sum(map(len, each.encode_arrow([*OLD, *NEW]).to_pylist())) for each in tokenizers.values()]
    assert [rows[0]["tokens"], rows[3]["tokens"]] == tokens
    assert rows[3]["gain"] == pytest.approx(1 - tokens[1] / tokens[0])
    low, high = sorted(row["tokens"] / row["bytes"] for row in rows[4:])
    assert rows[3]["gini"]["lang"] == pytest.approx((high - low) / (2 * (high + low)))
    assert "bytes each" in repr(rows)
    assert "Gini by lang" in rows._repr_html_()
