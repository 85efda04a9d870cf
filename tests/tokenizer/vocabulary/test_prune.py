# SPDX-License-Identifier: Apache-2.0
"""`prune` and `replace`: against a reference implementation, with embeddings, on real vocabularies, in HF."""

from typing import Any

import numpy as np
import pytest
import sentencepiece
import tokenizers as hf
from hypothesis import given
from hypothesis import strategies as st

from tests import corpora
from tests.reference import vocabulary as reference
from tests.tokenizer.vocabulary.test_extend import KINDS, NEW, OLD, check_proof, counted, trained
from tests.word_counts import small, table
from tokenmill.tokenizer import BPETrainer, Tokenizer
from tokenmill.tokenizer.vocabulary import prune, replace


def logits(ids: list[int], embeddings: Any) -> Any:
    """A model of one layer whose input and output embeddings are the same."""
    mixing = np.random.default_rng(0).normal(size=(embeddings.shape[1],) * 2)
    return np.tanh(np.cumsum(embeddings[ids], axis=0) @ mixing) @ embeddings.T


@pytest.mark.parametrize("kind", KINDS)
def test_the_id_map_moves_embeddings_so_that_logits_stay(kind: str) -> None:
    old = trained(kind)
    change = prune(old, counted(old, OLD[:2]), min_count=2)
    check_proof(change, old)
    moved, new = change.new_ids(), change.tokenizer
    kept = np.flatnonzero(moved >= 0)
    assert moved[kept].tolist() == list(range(len(kept)))
    assert 0 < len(change.report["removed"]) == old.n_ids - new.n_ids
    embeddings = np.random.default_rng(1).normal(size=(old.n_ids, 8))
    n_alike = 0
    for text in [*OLD, *NEW, "the mill", "a mill grinds"]:
        ids = old.encode(text, add_special_tokens=False).ids
        again = new.encode(text, add_special_tokens=False).ids
        if min(moved[ids]) >= 0:
            n_alike += 1
            assert again == moved[ids].tolist()
            assert np.allclose(logits(ids, embeddings)[:, kept], logits(again, embeddings[kept]), rtol=0, atol=1e-9)
    assert n_alike >= 2
    rows = change.id_map.to_pylist()
    assert all(row["new_ids"] == [row["new_id"]] for row in rows if row["new_id"] >= 0)
    assert all(0 <= i < new.n_ids for row in rows for i in row["new_ids"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_asked_for_is_the_size_of_a_file_that_loads_elsewhere(kind: str, tmp_path) -> None:
    old = trained(kind)
    texts = [*OLD, *NEW]
    size = old.n_ids - 6
    new = prune(old, counted(old, OLD), size=size).tokenizer
    assert new.n_ids == size == len(new.get_vocab())
    new.save(tmp_path / "tokenizer.json")
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.get_vocab_size() == size
    if kind in ("byte_level", "wordpiece"):
        ids = [each.ids for each in theirs.encode_batch(texts, add_special_tokens=False)]
    else:
        new.save(tmp_path / "new.model")
        ids = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "new.model")).encode(texts)
    assert ids == new.encode_arrow(texts).to_pylist()
    with pytest.raises(ValueError, match=r"size, or --to: 1: must be from \d+, which have to stay, to \d+, all"):
        prune(old, counted(old, OLD), size=1)


@given(learned=small(), used=small(), n_merges=st.integers(0, 12), n_removed=st.integers(0, 12))
def test_what_is_left_is_what_the_reference_leaves(
    learned: dict[str, int], used: dict[str, int], n_merges: int, n_removed: int
) -> None:
    alphabet = tuple(sorted({character for word in (*learned, *used) for character in word}))
    model = BPETrainer(vocab_size=len(alphabet) + n_merges, initial_alphabet=alphabet).train(table(learned.items()))
    size = len(model.vocab) - min(n_removed, len(model.merges))
    tokenizer = Tokenizer(model=model)
    change = prune(tokenizer, table(used.items()), size=size)
    check_proof(change, tokenizer)
    left = reference.prune_bpe(model, used, size)
    assert set(change.tokenizer.get_vocab()) == left
    assert list(change.tokenizer.model.merges) == [m for m in model.merges if {*m, m[0] + m[1]} <= left]


@pytest.mark.parametrize("kind", KINDS)
def test_unused_entries_give_their_ids_to_new_ones(kind: str) -> None:
    old = trained(kind)
    texts, mine = ["the mill grinds Mehl zu Mehl und Mehl zu Mehl"], counted(old, OLD[:1])
    change = replace(old, counted(old, texts * 3), 4, keep=mine)
    check_proof(change, old)
    taken = {each["id"] for each in change.report["removed"]}
    assert 0 < len(taken) <= 4
    assert {each["id"] for each in change.report["added"]} == taken
    assert change.tokenizer.n_ids == old.n_ids
    assert change.tokenizer.encode_arrow(OLD[:1]).equals(old.encode_arrow(OLD[:1]))
    assert {i for i, new in enumerate(change.new_ids().tolist()) if new != i} == taken


def test_special_and_byte_tokens_stay_though_nothing_uses_them() -> None:
    old = trained("bpe_with_bytes")
    new = prune(old, counted(old, ["a"]), min_count=1000).tokenizer
    assert set(new.get_vocab()) == {"<unk>", "<s>", "▁", *(f"<0x{byte:02X}>" for byte in range(256))}
    assert new.decode(new.encode("the 玫瑰").ids) == "the 玫瑰"
    old = trained("byte_level")
    new = prune(old, counted(old, ["a"]), min_count=1000).tokenizer
    assert (new.n_ids, new.token_to_id("<|end|>")) == (257, 0)


def test_mistakes_are_named() -> None:
    old = trained("byte_level")
    with pytest.raises(ValueError, match="give size or min_count, one of them; got None and None"):
        prune(old, counted(old, OLD))
    full = Tokenizer(model=BPETrainer(vocab_size=2).train(table([("ab", 1)])))
    with pytest.raises(ValueError, match="no entry can be replaced: words use all of them"):
        replace(full, table([("ab", 3)]), 1)


@pytest.mark.parametrize("name", ["gpt2-vocab.json", "bert-base-uncased.txt", "xlnet.model"])
def test_real_vocabularies_lose_what_english_does_not_use(name: str, shared_data, tmp_path) -> None:
    old = Tokenizer.from_file(shared_data / "vocab" / name)
    english = corpora.documents(shared_data, "en", 150_000)
    change = prune(old, counted(old, english[::2]), size=20_000)
    check_proof(change, old)
    moved, new = change.new_ids(), change.tokenizer
    assert new.n_ids == 20_000
    before, after = old.encode_arrow(english).to_pylist(), new.encode_arrow(english).to_pylist()
    for was, now in zip(before[::2], after[::2], strict=True):
        if min(moved[was], default=0) >= 0:
            assert now == moved[was].tolist()
    assert sum(map(len, after)) < 1.03 * sum(map(len, before))
    if name.endswith(".model"):
        new.save(tmp_path / "new.model")
        assert sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "new.model")).encode(english) == after
    else:
        new.save(tmp_path / "tokenizer.json")
        theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert [each.ids for each in theirs.encode_batch(english, add_special_tokens=False)] == after
