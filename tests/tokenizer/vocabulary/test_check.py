# SPDX-License-Identifier: Apache-2.0
"""`check` and `transfer`, by hand and on small and real vocabularies."""

import pytest

from tests.tokenizer.vocabulary.test_extend import KINDS, NEW, OLD, counted, trained
from tokenmill.tokenizer import BPE, AddedToken, BPETrainer, Tokenizer, Unigram
from tokenmill.tokenizer.vocabulary import check, extend, transfer


def found(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [(each.token, each.problem) for each in check(tokenizer)]


def test_entries_that_merges_never_make_are_named() -> None:
    vocab = {token: i for i, token in enumerate(["a", "b", "c", "ab", "bc", "abc", "cc"])}
    # "abc" is cut into "ab" and "c" before "bc" can be merged; nothing makes "cc".
    model = BPE(vocab, [("a", "b"), ("b", "c"), ("a", "bc")])
    assert found(Tokenizer(model=model)) == [("abc", "unmakeable"), ("cc", "unmakeable")]
    assert repr(check(Tokenizer(model=model))) == "2 unmakeable\nunmakeable: 'abc' (5), 'cc' (6)"
    assert repr(check(Tokenizer(model=BPE(vocab, [], ignore_merges=True)))) == "every entry can be reached"


def test_pieces_that_are_never_best_duplicates_and_shadowed_entries_are_named() -> None:
    model = Unigram([("<unk>", 0), ("a", -1), ("b", -1), ("ab", -3)], unk_id=0)
    assert found(Tokenizer(model=model)) == [("ab", "unmakeable")]
    model = Unigram([("<unk>", 0), ("a", -1), ("b", -1), ("a", -3)], unk_id=0)
    assert found(Tokenizer(model=model))[:2] == [("a", "duplicate"), ("a", "duplicate")]
    vocab = {token: i for i, token in enumerate(["a", "b", "ab", "aba"])}
    added = [AddedToken(4, "ba", special=False)]
    tokenizer = Tokenizer(model=BPE(vocab, [("a", "b"), ("ab", "a")]), added_tokens=added)
    assert found(tokenizer) == [("aba", "shadowed")]


def test_what_a_normalizer_keeps_text_from_is_unreachable() -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", "a", "##a", "Ab", "é"])
    assert found(tokenizer) == [("Ab", "unreachable"), ("é", "unreachable")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_without_a_decoder_has_the_same_problems(kind: str) -> None:
    tokenizer = trained(kind)
    assert found(tokenizer.replace(decoder=None)) == found(tokenizer)


@pytest.mark.parametrize("kind", KINDS)
def test_added_entries_have_no_problem_and_are_made_of_old_ones(kind: str) -> None:
    old = trained(kind)
    new = extend(old, counted(old, NEW), 20, keep=counted(old, OLD)).tokenizer
    assert {each.id for each in check(new)} <= {each.id for each in check(old)}
    rows = transfer(old, new).to_pylist()
    assert [row["new_id"] for row in rows] == list(range(new.n_ids))
    assert all(row["old_ids"] == [i] for i, row in enumerate(rows[: old.n_ids]))
    for row in rows[old.n_ids :]:
        assert sum(row["weights"]) == pytest.approx(1)
        if old.unk_token_id not in row["old_ids"] and kind in ("byte_level", "bpe", "unigram"):
            assert "".join(str(old.id_to_token(i)) for i in row["old_ids"]) == row["token"]


def test_transfer_knows_how_families_spell_the_same_text() -> None:
    spaced = Tokenizer.untrained("none", "gpt2", byte_level=True)
    spaced = spaced.train_from_iterator(OLD, BPETrainer(vocab_size=290, byte_level=True))
    for other in ("bpe", "bpe_with_bytes", "unigram", "wordpiece"):
        new = trained(other)
        rows = {row["token"]: row for row in transfer(spaced, new).to_pylist()}
        begins = "▁t" if "▁t" in rows else "t" if other == "wordpiece" else "▁the"
        text = "".join(str(spaced.id_to_token(i)) for i in rows[begins]["old_ids"])
        assert text == begins.replace("▁", "Ġ") if other != "wordpiece" else text in ("t", "Ġt")
    assert {row["token"]: row["old_ids"] for row in transfer(spaced, trained("bpe_with_bytes")).to_pylist()}[
        "<0x61>"
    ] == [spaced.token_to_id("a")]
