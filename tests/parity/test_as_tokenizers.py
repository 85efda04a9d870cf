# SPDX-License-Identifier: Apache-2.0
"""`as_tokenizers()` does what HF's `Tokenizer` does; `test_as_hf.py` has it under transformers, for every family."""

import copy
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

from tests.parity.families import family  # noqa: E402
from tokenmill.tokenizer import Tokenizer, reference_encoding  # noqa: E402
from tokenmill.tokenizer.adapters.tokenizers import DecodeStream, HFTokenizer  # noqa: E402

pytestmark = pytest.mark.parity

WORDS = [
    "the", "mill", "Grinds", "it's", "1234", "玫瑰", "😀", "É", "  ", "<|endoftext|>", "<s>", "</s>", "<tool_call>", "",
]  # fmt: skip
FIELDS = ("ids", "tokens", "type_ids", "attention_mask", "special_tokens_mask", "offsets", "word_ids", "sequence_ids")


@pytest.fixture(params=["roberta", "llama2", "t5", "added tokens", "modernbert", "clip", "whisper"])
def both(request: pytest.FixtureRequest) -> tuple[HFTokenizer, Any]:
    text = family(request.param)
    theirs = hf.Tokenizer.from_str(text)
    if theirs.post_processor is None:  # without one, HF forgets which tokens are of which text
        theirs.post_processor = hf.processors.TemplateProcessing(single="$A", pair="$A $B:1")
    return Tokenizer.from_str(theirs.to_str()).as_tokenizers(), theirs


def text_of(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randrange(10)))


def shown(encoding: Any) -> list[Any]:
    return [getattr(encoding, name) for name in FIELDS]


def test_ids_are_decoded_the_same(both: tuple[HFTokenizer, Any]) -> None:
    ours, theirs = both
    rng = random.Random(5)
    for _ in range(40):
        rows = [rng.choices(range(theirs.get_vocab_size() + 9), k=6), theirs.encode(text_of(rng)).ids]  # some unknown
        for skip in (True, False):
            assert ours.decode_batch(rows, skip_special_tokens=skip) == theirs.decode_batch(
                rows, skip_special_tokens=skip
            )
            assert ours.decode(rows[0], skip) == theirs.decode(rows[0], skip)
    for tokenizer in both:
        for wrong in (-100, 1 << 32):
            with pytest.raises(OverflowError):
                tokenizer.decode([1, wrong])
        for wrong in (None, [None], ["a", None]):
            with pytest.raises(TypeError):
                tokenizer.encode_batch(wrong)
        with pytest.raises(TypeError):
            tokenizer.encode(None, "a")


@pytest.mark.parametrize("name", ["roberta", "bert and digits", "word level", "llama2", "xlm-r", "clip", "whisper"])
def test_streams_are_decoded_the_same(name: str) -> None:
    theirs = hf.Tokenizer.from_str(family(name))
    ours = Tokenizer.from_str(theirs.to_str()).as_tokenizers()
    rng = random.Random(5)
    broken = [theirs.token_to_id(f"<0x{byte:02X}>") or byte for byte in (0xE7, 0x8E, 0xAB, 0x61)]
    known = sorted(theirs.get_added_tokens_decoder()) or [0]
    n_texts = 0
    for _ in range(150):
        source = [range(theirs.get_vocab_size() + 3), broken, known, theirs.encode(text_of(rng)).ids or [0]]
        ids = [rng.choice(rng.choice(source)) for _ in range(rng.randrange(30))]
        n, skip = rng.randrange(4), rng.choice([True, False, None])
        streams = DecodeStream(ids[:n], skip), hf.decoders.DecodeStream(ids[:n], skip)
        while n < len(ids):
            size = rng.choice([0, 1, 2])
            step = ids[n : n + size] if size else ids[n]
            n += size or 1
            found = []
            for stream, tokenizer in zip(streams, (ours, theirs), strict=True):
                again = copy.copy(stream)
                try:
                    found.append(stream.step(tokenizer, step))
                    assert again.step(tokenizer, step) == found[-1]
                except Exception:  # HF raises nothing more special
                    found.append(...)
            assert found[0] == found[1], (ids, n, skip)
            n_texts += isinstance(found[0], str)
    assert n_texts > 500
    for wrong in ("a", 1.5, [1.5], None):
        with pytest.raises(TypeError):
            DecodeStream().step(ours, wrong)


def test_tokens_are_added_the_same(both: tuple[HFTokenizer, Any]) -> None:
    ours, theirs = both
    token = hf.AddedToken("<x>", lstrip=True, rstrip=True)
    for tokens in (["grinds", "<new>"], [token, "<new>"], [token], ["", "mill"]):
        assert ours.add_tokens(tokens) == theirs.add_tokens(tokens)
    assert len({each.add_special_tokens(["<e>", hf.AddedToken("<x>", lstrip=True)]) for each in both}) == 1
    assert repr(ours.get_added_tokens_decoder()) == repr(theirs.get_added_tokens_decoder())
    text = "the <x> mill <e>grinds<new> a"
    assert shown(ours.encode(text)) == shown(theirs.encode(text))
    assert ours.get_vocab() == theirs.get_vocab()
    assert [ours.token_to_id("<x>"), ours.id_to_token(3)] == [theirs.token_to_id("<x>"), theirs.id_to_token(3)]
    again = pickle.loads(pickle.dumps(ours))
    assert shown(again.encode(text)) == shown(theirs.encode(text))


def test_unknown_pieces_behind_byte_level_are_named_as_there() -> None:
    theirs = hf.Tokenizer(hf.models.Unigram([("<unk>", 0.0), ("a", -1.0), ("Ġ", -1.0), ("¸", -1.0)], 0))
    theirs.pre_tokenizer = hf.pre_tokenizers.ByteLevel()
    theirs.post_processor = hf.processors.ByteLevel()
    tokenizer = Tokenizer.from_str(theirs.to_str())
    ours = tokenizer.as_tokenizers()
    for text in ("a 中é", "\tÅ", "b  a\u3000"):
        assert shown(ours.encode(text))[:-1] == shown(theirs.encode(text))[:-1]  # the last: see test_post_processors.py
        assert reference_encoding.encode(tokenizer, text) == theirs.encode(text).ids


def untrained(model: Any, pre_tokenizer: Any) -> tuple[HFTokenizer, Any]:
    tokenizers = Tokenizer(model=None).as_tokenizers(), hf.Tokenizer(hf.models.BPE())
    for tokenizer in tokenizers:
        tokenizer.model, tokenizer.pre_tokenizer = model, pre_tokenizer
    return tokenizers


def options_of_trainers(rng: random.Random) -> dict[str, Any]:
    special = ["[UNK]", hf.AddedToken("<s>", lstrip=True), "m", *rng.choice([[], ["[UNK]", "mill"]])]
    return {
        "vocab_size": rng.randrange(60, 400), "min_frequency": rng.randrange(4), "special_tokens": special,
        "initial_alphabet": rng.choice([[], ["z", "é"]]), "show_progress": False,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_bpe_and_words_are_trained_the_same(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    texts = [f"{text_of(rng)} {''.join(rng.choices('abcmé', k=9))}\n" for _ in range(40)]
    (tmp_path / "texts.txt").write_text("".join(texts), "utf-8")
    pre_tokenizers, options = hf.pre_tokenizers, options_of_trainers(rng)
    words = {name: options[name] for name in ("vocab_size", "min_frequency", "show_progress")}
    words["special_tokens"] = options["special_tokens"][:2]  # HF lists a word twice that is a special token, too
    options["max_token_length"] = rng.choice([{}, {"max_token_length": 4}]).get("max_token_length")
    options = {name: value for name, value in options.items() if value is not None}
    letters = options | {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "vocab_size": 340}
    for model, pre_tokenizer, trainer in (
        (
            hf.models.BPE(unk_token="[UNK]", fuse_unk=True),
            pre_tokenizers.Whitespace(),
            hf.trainers.BpeTrainer(**options),
        ),
        (hf.models.BPE(), pre_tokenizers.ByteLevel(), hf.trainers.BpeTrainer(**options)),
        (hf.models.BPE(ignore_merges=True), pre_tokenizers.ByteLevel(), hf.trainers.BpeTrainer(**letters)),
        (hf.models.WordLevel(unk_token="[UNK]"), pre_tokenizers.Whitespace(), hf.trainers.WordLevelTrainer(**words)),
    ):
        both = untrained(model, pre_tokenizer)
        found = []
        for tokenizer in both:
            if rng.random() < 0.5:
                tokenizer.train_from_iterator([texts[:9], *texts[9:]], trainer, length=40)
            else:
                tokenizer.train([str(tmp_path / "texts.txt")], trainer)
            again = pickle.loads(pickle.dumps(tokenizer))
            found.append((json.loads(tokenizer.to_str()), again.encode(" the <s>mill ☃").tokens))
        assert found[0] == found[1]


def test_unigram_is_trained_with_the_same_special_tokens_and_alphabet() -> None:
    options = {"special_tokens": ["<s>", "[UNK]"], "unk_token": "[UNK]", "initial_alphabet": ["z"], "vocab_size": 60}
    trainer = hf.trainers.UnigramTrainer(**options, show_progress=False)
    both = untrained(hf.models.Unigram(), hf.pre_tokenizers.Metaspace())
    for tokenizer in both:
        tokenizer.train_from_iterator(["the mill grinds", "a miller's mills"] * 9, trainer)
    ours, theirs = (json.loads(tokenizer.to_str()) for tokenizer in both)
    assert ours["added_tokens"] == theirs["added_tokens"]
    vocabularies = [model["model"].pop("vocab") for model in (ours, theirs)]
    assert ours["model"] == theirs["model"]
    assert [piece for piece, _ in vocabularies[0][:2]] == ["<s>", "[UNK]"]
    letters = [{piece for piece, _ in pieces if len(piece) == 1} for pieces in vocabularies]
    assert letters[0] == letters[1]
    assert "▁mill" in dict(vocabularies[0])


@pytest.mark.parametrize("unk", ["[UNK]", None])
def test_unigram_has_as_many_entries_with_and_without_an_unknown_one(unk: str | None) -> None:
    special = ["<s>"] if unk is None else ["<s>", unk]
    trainer = hf.trainers.UnigramTrainer(vocab_size=22, special_tokens=special, unk_token=unk, show_progress=False)
    both = untrained(hf.models.Unigram(), hf.pre_tokenizers.Metaspace())
    for tokenizer in both:
        tokenizer.train_from_iterator(
            ["the mill grinds", "a miller's mills", "grinding and milling the text"] * 9, trainer
        )
    models = [json.loads(tokenizer.to_str())["model"] for tokenizer in both]
    unk_id = None if unk is None else 1
    assert [(len(model["vocab"]), model["unk_id"]) for model in models] == [(22, unk_id)] * 2


def test_options_that_cannot_be_kept_are_refused_before_any_text_is_read() -> None:
    texts = iter(["a"])
    ours = Tokenizer(model=None).as_tokenizers()
    with pytest.raises(ValueError, match="no model yet"):
        ours.train_from_iterator(texts)
    ours.model = hf.models.WordPiece(unk_token="[UNK]")
    for trainer, error, message in (
        (hf.trainers.WordPieceTrainer(end_of_word_suffix="/", special_tokens=["[UNK]"]), ValueError, "end_of_word_suf"),
        (hf.trainers.WordPieceTrainer(), ValueError, r"must hold the unknown token '\[UNK\]'"),
        (None, ValueError, r"must hold the unknown token '\[UNK\]'"),
        (hf.trainers.BpeTrainer(), ValueError, "BpeTrainer can only train a BPE, and the model is a WordPiece"),
        (hf.trainers.ParityBpeTrainer(), TypeError, "trainer must be one of BpeTrainer, .*, got .*ParityBpeTrainer"),
        ("BpeTrainer", TypeError, "trainer must be one of"),
    ):
        with pytest.raises(error, match=message):
            ours.train_from_iterator(texts, trainer)
    assert list(texts) == ["a"]
