# SPDX-License-Identifier: Apache-2.0
"""`extend`: against its reference implementation, on real vocabularies word by word, and in other libraries."""

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest
import sentencepiece
import tokenizers as hf
from hypothesis import example, given
from hypothesis import strategies as st

from tests import corpora
from tests.reference import vocabulary as reference
from tests.word_counts import small, table
from tokenmill.tokenizer import BPE, BPETrainer, Tokenizer, UnigramTrainer, WordPieceTrainer
from tokenmill.tokenizer.vocabulary import Change, extend, reserved_ids

OLD = ["the mill grinds the text", "the miller mills text into tokens", "a text is a text"] * 3
NEW = ["玫瑰花是玫瑰花", "mahlende Mühlen mahlen Mehl", "玫瑰 Mehl Mühle", "die Mühle mahlt das Mehl"] * 4


def counted(tokenizer: Tokenizer, texts: list[str]) -> pa.Table:
    counter = tokenizer.new_word_counter()
    counter.update(texts)
    return counter.to_table()


def trained(kind: str) -> Tokenizer:
    """A small tokenizer of a kind, trained on `OLD`."""
    if kind == "byte_level":
        start = Tokenizer.untrained("none", "gpt2", byte_level=True)
        return start.train_from_iterator(OLD, BPETrainer(vocab_size=290, byte_level=True, special_tokens=("<|end|>",)))
    if kind == "wordpiece":
        trainer: Any = WordPieceTrainer(
            vocab_size=60, special_tokens=("[UNK]", "[unused1]", "[unused2]", "[CLS]", "[SEP]")
        )
        return Tokenizer.untrained("bert", "bert", lowercase=True).train_from_iterator(OLD, trainer)
    start = Tokenizer.untrained("sentencepiece", "none")
    if kind == "unigram":
        return start.train_from_iterator(OLD, UnigramTrainer(vocab_size=40, hard_vocab_limit=False))
    trainer = BPETrainer(vocab_size=40, special_tokens=("<unk>", "<s>"), unk_token="<unk>")
    if kind == "bpe_with_bytes":
        trainer = BPETrainer(vocab_size=300, special_tokens=("<unk>", "<s>"), unk_token="<unk>", byte_fallback=True)
    return start.train_from_iterator(OLD, trainer)


KINDS = ("byte_level", "wordpiece", "unigram", "bpe", "bpe_with_bytes")


def check_proof(change: Change, old: Tokenizer) -> None:
    """Every claim of the report, checked without the code that made it."""
    assert set(change.report["proof"].values()) == {0}
    new = change.tokenizer
    moved = change.new_ids().tolist()
    for token, token_id in old.get_vocab().items():
        assert moved[token_id] < 0 or new.token_to_id(token) == moved[token_id]
    assert len({each["token"] for each in change.report["added"]} & set(old.get_vocab())) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_old_texts_and_old_ids_stay_while_new_ones_take_fewer_tokens(kind: str) -> None:
    old = trained(kind)
    change = extend(old, counted(old, NEW), 25, keep=counted(old, OLD))
    check_proof(change, old)
    assert change.tokenizer.encode_arrow(OLD).equals(old.encode_arrow(OLD))
    assert 10 <= len(change.report["added"]) == change.tokenizer.n_ids - old.n_ids <= 25
    row = change.report["words"]["all"][0]
    assert row["tokens_after"] < row["tokens_before"] or row["unknown_after"] < row["unknown_before"]
    assert row["tokens_after"] == sum(map(len, change.tokenizer.encode_arrow(NEW).to_pylist()))
    assert "proven: all" in repr(change)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_a_file_that_gives_the_same_ids_again(kind: str, tmp_path) -> None:
    old = trained(kind)
    new = extend(old, counted(old, NEW), 30).tokenizer
    texts = [*OLD, *NEW, "玫瑰 mills Mehltext"]
    new.save(tmp_path / "tokenizer.json")
    assert Tokenizer.from_file(tmp_path / "tokenizer.json").encode_arrow(texts).equals(new.encode_arrow(texts))
    if kind in ("byte_level", "wordpiece"):
        theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert [each.ids for each in theirs.encode_batch(texts, add_special_tokens=False)] == new.encode_arrow(
            texts
        ).to_pylist()
    else:
        new.save(tmp_path / "new.model")
        processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "new.model"))
        assert processor.encode(texts) == new.encode_arrow(texts).to_pylist()
        again = Tokenizer.from_file(tmp_path / "new.model")
        change = extend(again, counted(again, ["Mehlsack Mehlsack Mühlstein Mühlstein"]), 5, keep=counted(again, texts))
        check_proof(change, again)  # now with the ranks of a file of sentencepiece
        change.tokenizer.save(tmp_path / "more.model")
        processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "more.model"))
        assert processor.encode(texts) == again.encode_arrow(texts).to_pylist()
        assert processor.encode(["Mehlsack"]) == change.tokenizer.encode_arrow(["Mehlsack"]).to_pylist()


@given(old=small(), new=small(), n=st.integers(1, 12), keeps=st.booleans(), min_count=st.integers(1, 3))
@example(old={"ab": 3, "abc": 1}, new={"xabcab": 2, "ab": 1, "x": 1}, n=4, keeps=True, min_count=1)
def test_merges_are_those_of_the_reference(
    old: dict[str, int], new: dict[str, int], n: int, keeps: bool, min_count: int
) -> None:
    alphabet = tuple(sorted({character for word in (*old, *new) for character in word}))
    model = BPETrainer(vocab_size=len(alphabet) + 4, initial_alphabet=alphabet).train(table(old.items()))
    expected = reference.extend_bpe(model, new, n, kept=old if keeps else {}, min_count=min_count)
    tokenizer, keep = Tokenizer(model=model), table(old.items()) if keeps else None
    if not expected:
        with pytest.raises(ValueError, match="nothing can be added"):
            extend(tokenizer, table(new.items()), n, keep=keep, min_count=min_count)
        return
    change = extend(tokenizer, table(new.items()), n, keep=keep, min_count=min_count)
    check_proof(change, tokenizer)
    assert list(change.tokenizer.model.merges) == [*model.merges, *expected]
    if keeps:
        for word in old:
            assert change.tokenizer.model.tokenize(word) == model.tokenize(word)


def test_words_that_are_cut_at_once_are_kept_too() -> None:
    vocab = {token: i for i, token in enumerate(["a", "b", "c", "x", "ab"])}
    tokenizer = Tokenizer(model=BPE(vocab, [("a", "b")], ignore_merges=True))
    new = table([("xabc", 9), ("abcab", 9)])
    assert extend(tokenizer, new, 1).tokenizer.model.merges[-1] == ("ab", "c")
    change = extend(tokenizer, new, 1, keep=table([("abc", 1)]))
    assert change.tokenizer.model.merges[-1] == ("c", "ab")


def test_reserved_ids_take_new_entries_in_their_order() -> None:
    old = trained("wordpiece")
    assert reserved_ids(old) == [1, 2]
    change = extend(old, counted(old, ["rose"] * 9), 2, into=reserved_ids(old))
    assert change.tokenizer.n_ids == old.n_ids
    assert [each["id"] for each in change.report["added"]] == [1, 2]
    assert change.new_ids()[:4].tolist() == [0, -1, -1, 3]
    assert change.tokenizer.token_to_id("[unused1]") is None


def test_labels_say_which_language_gains() -> None:
    old = trained("byte_level")
    parts = [counted(old, NEW[:1] * 5), counted(old, OLD)]
    labelled = pa.concat_tables(
        [
            part.append_column("lang", pa.repeat(name, part.num_rows))
            for part, name in zip(parts, ("zh", "en"), strict=True)
        ]
    )
    rows = {row["name"]: row for row in extend(old, labelled, 5, keep=parts[1]).report["words"]["lang"]}
    assert rows["zh"]["tokens_after"] < rows["zh"]["tokens_before"]
    assert (rows["en"]["changed_words"], rows["en"]["tokens_after"]) == (0, rows["en"]["tokens_before"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 0}, "must be positive"),
        ({"n": 3, "into": [1, 1, 2]}, "3 new entries need as many distinct ids"),
        ({"n": 3, "into": [1]}, "3 new entries need as many distinct ids, got 1"),
        ({"n": 3, "min_count": 1000}, "nothing can be added"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], words: str) -> None:
    old = trained("byte_level")
    with pytest.raises(ValueError, match=words):
        extend(old, counted(old, NEW), arguments.pop("n"), **arguments)


@pytest.mark.parametrize("name", ["gpt2-vocab.json", "bert-base-uncased.txt", "xlnet.model", "sp-ja.model"])
def test_real_vocabularies_keep_every_old_word_and_load_elsewhere(name: str, shared_data, tmp_path) -> None:
    old = Tokenizer.from_file(shared_data / "vocab" / name)
    english, chinese = (corpora.documents(shared_data, each, 150_000) for each in ("en", "zh"))
    half = len(chinese) // 2
    change = extend(old, counted(old, chinese[:half]), 300, keep=counted(old, english))
    check_proof(change, old)
    assert change.tokenizer.encode_arrow(english).equals(old.encode_arrow(english))
    held_out = chinese[half:] + english[:5]
    ids = change.tokenizer.encode_arrow(held_out).to_pylist()
    if name.endswith(".model"):
        change.tokenizer.save(tmp_path / "new.model")
        assert sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "new.model")).encode(held_out) == ids
        return
    change.tokenizer.save(tmp_path / "tokenizer.json")
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [each.ids for each in theirs.encode_batch(held_out, add_special_tokens=False)] == ids
    if name.startswith("gpt2"):
        assert sum(map(len, ids)) < 0.8 * sum(map(len, old.encode_arrow(held_out).to_pylist()))
        old_ids = json.loads(old.to_str())["model"]["vocab"]
        assert {
            t: i for t, i in json.loads(change.tokenizer.to_str())["model"]["vocab"].items() if i < old.n_ids
        } == old_ids


def test_new_pieces_of_unigram_do_not_tie() -> None:
    # With one gain for all, am + e scored as a + me, and which one is taken was left to the order of a library's sums.
    vocab = [["<unk>", 0.0], ["a", -4.1], ["m", -4.3], ["e", -4.5], ["b", -4.2], ["z", -30.0]]
    model = {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False}
    old = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    words = table({"am": 40, "me": 30, "ea": 20, "mab": 9}.items())
    new = extend(old, words, 6).tokenizer
    theirs = hf.Tokenizer.from_str(new.to_str())
    texts = ["".join(letters) for n in range(1, 7) for letters in itertools.product("ame", repeat=n)]
    assert [each.ids for each in new.encode_batch(texts)] == [each.ids for each in theirs.encode_batch(texts)]
    scores = dict(json.loads(new.to_str())["model"]["vocab"])
    assert abs(scores["am"] + scores["e"] - scores["a"] - scores["me"]) > 1e-6
