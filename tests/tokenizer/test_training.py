# SPDX-License-Identifier: Apache-2.0
"""Training without a pipeline: texts or files in, a tokenizer that works."""

import pytest

from tokenmill.tokenizer import Tokenizer, compositions, decoders
from tokenmill.tokenizer import normalizers as nm
from tokenmill.tokenizer import pre_tokenizers as pt
from tokenmill.tokenizer.post_processors import BertProcessing
from tokenmill.tokenizer.pre_tokenizers.known_patterns import GPT2_PATTERN
from tokenmill.tokenizer.trainers import (
    BPETrainer,
    CharacterTrainer,
    UnigramTrainer,
    WordLevelTrainer,
    WordPieceTrainer,
)

TEXTS = ["The mill grinds text.", "The miller's mill, the mill!\n", "字字 mill"] * 3
SENTENCEPIECE = ("<unk>", "<s>", "</s>")


def made() -> list[tuple[Tokenizer, object]]:
    blank, spaced = Tokenizer.untrained, {"special_tokens": SENTENCEPIECE, "unk_token": "<unk>"}
    unigram = UnigramTrainer(vocab_size=60, hard_vocab_limit=False, character_coverage=1.0)
    end, unk = ("<|endoftext|>",), ("<unk>",)
    # Behind a ByteLevel words are letters that spell bytes.
    of_letters = (
        unigram, WordLevelTrainer(vocab_size=20), WordPieceTrainer(vocab_size=60),
        BPETrainer(vocab_size=60, special_tokens=unk, unk_token="<unk>"),
    )  # fmt: skip
    return [
        (Tokenizer.untrained_bert(), WordPieceTrainer(vocab_size=80)),
        (blank("none", "gpt2", byte_level=True), BPETrainer(vocab_size=280, byte_level=True)),
        (blank("none", "o200k_base", byte_level=True), BPETrainer(vocab_size=280, byte_level=True, special_tokens=end)),
        (blank("nfkc", "metaspace"), BPETrainer(vocab_size=60, **spaced)),
        (blank("nfkc", "whitespace_metaspace"), BPETrainer(vocab_size=320, byte_fallback=True, **spaced)),
        (blank("nmt_nfkc", "whitespace_metaspace"), unigram),
        (blank("nfkc", "whitespace"), WordLevelTrainer(vocab_size=20)),
        (blank("nfc", "metaspace"), CharacterTrainer(vocab_size=40)),
        (blank("none", "gpt2"), WordLevelTrainer(vocab_size=20)),
        *((Tokenizer(model=None, pre_tokenizer=pt.ByteLevel(add_prefix_space=False)), each) for each in of_letters),
        (blank("sentencepiece", "none"), unigram),  # what HF has no parts for
    ]


@pytest.mark.parametrize("case", range(len(made())))
def test_trained_on_texts(case: int) -> None:
    tokenizer, trainer = made()[case]
    returned = tokenizer.train_from_iterator(TEXTS, trainer)
    assert returned is tokenizer
    assert tokenizer.get_vocab_size() <= trainer.vocab_size
    assert [token.content for token in tokenizer.added_tokens if token.special] == list(
        getattr(trainer, "special_tokens", SENTENCEPIECE)
    )
    ids = tokenizer.encode("The mill", add_special_tokens=False).ids
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids).lower() == "the mill"
    # The same from batches, from other orders, and from its file.
    again, trainer = made()[case]
    assert (
        again.train_from_iterator((TEXTS[i : i + 2] for i in (4, 6, 2, 8, 0)), trainer).to_str() == tokenizer.to_str()
    )
    assert Tokenizer.from_str(tokenizer.to_str()).encode("The mill", add_special_tokens=False).ids == ids


def test_training_keeps_added_tokens_the_layout_and_the_decoder() -> None:
    tokenizer = Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "old"])
    tokenizer.add_tokens(["<tab>"])
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.enable_truncation(6)
    trainer = WordPieceTrainer(vocab_size=20, special_tokens=("[SEP]", "[UNK]", "[CLS]"))
    tokenizer.train_from_iterator(["mill mill"], trainer)
    assert tokenizer.encode("mill<tab>mill").tokens == ["[CLS]", "mill", "<tab>", "mill", "[SEP]"]
    assert [tokenizer.token_to_id(t) for t in ("[SEP]", "[CLS]")] == [0, 2]
    # What the trainer does not know comes after the vocabulary, in the order it had.
    n = tokenizer.get_vocab_size(with_added_tokens=False)
    assert (tokenizer.token_to_id("[PAD]"), tokenizer.token_to_id("<tab>")) == (n, n + 1)
    assert [t.content for t in tokenizer.added_tokens if not t.special] == ["<tab>"]
    assert tokenizer.decoder == decoders.WordPiece(cleanup=False)
    assert tokenizer.truncation.max_length == 6


def test_a_layout_without_its_tokens_is_refused_before_any_work() -> None:
    tokenizer = Tokenizer(model=None, post_processor=BertProcessing(("</s>", 1), ("<s>", 0)))
    with pytest.raises(ValueError, match="lays texts out with '</s>', which the vocabulary would not have; add it"):
        tokenizer.train_from_iterator(["ab"], BPETrainer(special_tokens=("<s>",)))
    tokenizer.train_from_iterator(["ab"], UnigramTrainer(vocab_size=5, hard_vocab_limit=False))
    assert tokenizer.encode("a").tokens == ["<s>", "a", "</s>"]


def test_bad_input_leaves_the_tokenizer_as_it_was() -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", "old"])
    with pytest.raises(TypeError, match="texts to train on must be str, got int"):
        tokenizer.train_from_iterator(["a", [3]], WordPieceTrainer())
    with pytest.raises(ValueError, match="no words"):
        tokenizer.train_from_iterator([], WordPieceTrainer())
    with pytest.raises(ValueError, match="vocab_size=5 is smaller than"):
        tokenizer.train_from_iterator(["abcdef"], WordPieceTrainer(vocab_size=5))
    assert tokenizer.encode("old").tokens == ["old"]


def test_components_by_name() -> None:
    assert compositions.named_normalizer("none") is None
    assert compositions.named_normalizer("nfc") == nm.NFC()
    assert compositions.named_normalizer("bert", lowercase=True) == nm.BertNormalizer(lowercase=True)
    assert compositions.named_normalizer("none", lowercase=True) == nm.Lowercase()
    assert compositions.named_normalizer("nfkc", True, True) == nm.Sequence(
        (nm.NFKC(), nm.NFD(), nm.StripAccents(), nm.Lowercase())
    )
    spaced = compositions.named_normalizer("sentencepiece", user_defined_symbols=["<T>"])
    assert spaced.normalize_str(" Ä<T>É  한") == "▁Ä<T>É▁한"
    for fold in ((True, False), (False, True)):
        with pytest.raises(ValueError, match=r"lowercase and strip_accents need a character map.* choose normalizer"):
            compositions.named_normalizer("sentencepiece", *fold)
    assert compositions.named_pre_tokenizer("gpt2", byte_level=True) == pt.ByteLevel(add_prefix_space=False)
    assert compositions.named_pre_tokenizer("gpt2") == pt.Split(GPT2_PATTERN, "isolated", is_regex=True)
    assert compositions.named_pre_tokenizer("none", byte_level=True) == pt.ByteLevel(False, use_regex=False)
    cl100k = compositions.named_pre_tokenizer("cl100k_base", byte_level=True)
    assert isinstance(cl100k, pt.Sequence)
    assert cl100k.is_fast
    with pytest.raises(ValueError, match="there is no normalizer 'nfcc'; choose one of bert, nfc, nfkc, nmt_nfkc"):
        compositions.named_normalizer("nfcc")
    with pytest.raises(ValueError, match="there is no pre-tokenizer 'gpt9'; choose one of bert, cl100k_base"):
        compositions.named_pre_tokenizer("gpt9")
