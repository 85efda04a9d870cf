# SPDX-License-Identifier: Apache-2.0
"""The subjects of `bench train`: for each kind of vocabulary, our trainer, the peers, and what it means to agree.

A `Train` function takes texts and a size, and returns the vocabulary in the order of its ids. It counts the words of
the texts, but does not read these. Every peer runs in one thread.
"""

import contextlib
import dataclasses
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.tokenizer import BPETrainer, Tokenizer, WordPieceTrainer
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel

Train = Callable[[Sequence[str], int], Sequence[Any]]

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MUST_SHARE = 0.99
"""Share of the larger vocabulary that the other must have too, if a peer leaves ties to chance."""

_SEPARATOR = "\ufdd0"  # a noncharacter that joins the texts for a peer that takes only one


@dataclasses.dataclass(frozen=True)
class Peer:
    """A trainer of another library, and the vocabulary that it must produce."""

    train: Train
    expected: Train
    """Our trainer with the peer's order of ties; not timed."""
    must_share: float = 1.0
    """1: the same tokens in the same order. Below 1: this share of the larger vocabulary, in any order."""

    def agrees(self, theirs: Sequence[Any], expected: Sequence[Any]) -> tuple[bool, float]:
        """Returns whether two vocabularies are as equal as they must be, and the share that they have in common."""
        shared = len(set(theirs) & set(expected)) / max(len(theirs), len(expected))
        if self.must_share < 1:
            return shared >= self.must_share, shared
        return list(theirs) == list(expected), shared


@dataclasses.dataclass(frozen=True)
class Subject:
    """A kind of vocabulary."""

    describes: str
    ours: Train
    peers: Mapping[str, Peer]
    """Peers by the module that they need."""

    @property
    def installed_peers(self) -> dict[str, Peer]:
        """The peers that are installed."""
        return {name: peer for name, peer in self.peers.items() if importlib.util.find_spec(name) is not None}


# WordPiece


def train_wordpiece(texts: Sequence[str], vocab_size: int) -> list[str]:
    """Counts the lower-cased BERT words of `texts` and trains on the counts."""
    counts = _count(Tokenizer.untrained_bert(lowercase=True), texts)
    return list(WordPieceTrainer(vocab_size=vocab_size).train(counts).vocab)


def _tokenizers_wordpiece(texts: Sequence[str], vocab_size: int) -> list[str]:
    """Does the same with `tokenizers`, set up like its own `BertWordPieceTokenizer`."""
    import tokenizers as hf
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    ours = WordPieceTrainer(vocab_size=vocab_size)
    trained = hf.Tokenizer(models.WordPiece(unk_token=ours.unk_token))
    trained.normalizer = normalizers.BertNormalizer(lowercase=True)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=ours.min_frequency,
        limit_alphabet=ours.limit_alphabet,
        special_tokens=list(ours.special_tokens),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    return list(trained.get_vocab())


# Byte-level BPE


def train_byte_level(texts: Sequence[str], vocab_size: int) -> list[bytes]:
    """Counts the words of GPT-2's pattern and trains on the counts."""
    return _tokens(_train_bytes(_count_bytes(texts), vocab_size))


def _train_by_value(texts: Sequence[str], vocab_size: int) -> list[bytes]:
    """Does the same with bytes numbered by value, as some peers do to break ties, instead of in GPT-2's order."""
    counts = _count_bytes(texts)
    order = [BYTE_ALPHABET.index(character) for character in sorted(BYTE_ALPHABET)]
    # Each byte is replaced by the one whose place in GPT-2's order is its value; the tokens are mapped back.
    words = [word.translate(bytes(order)) for word in counts["word"].to_pylist()]
    counts = counts.set_column(0, "word", pa.array(words, pa.large_binary()))
    back = bytes(map(order.index, range(256)))
    return [token.translate(back) for token in _tokens(_train_bytes(counts, vocab_size))]


def _count_bytes(texts: Sequence[str]) -> pa.Table:
    return _count(Tokenizer(model=None, pre_tokenizer=ByteLevel(add_prefix_space=False)), texts)


def _train_bytes(counts: pa.Table, vocab_size: int) -> Sequence[str]:
    return list(BPETrainer(vocab_size=vocab_size, byte_level=True).train(counts).vocab)


def _tokens(vocabulary: Sequence[str]) -> list[bytes]:
    return [bytes(map(BYTE_ALPHABET.index, token)) for token in vocabulary]


def _tokenizers_bpe(texts: Sequence[str], vocab_size: int) -> list[bytes]:
    import tokenizers as hf
    from tokenizers import models, pre_tokenizers, trainers

    trained = hf.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(texts, trainer)
    vocabulary = trained.get_vocab()
    return _tokens(sorted(vocabulary, key=vocabulary.__getitem__))


def _rustbpe(texts: Sequence[str], vocab_size: int) -> list[bytes]:
    import rustbpe

    trained = rustbpe.Tokenizer()
    trained.train_from_iterator(iter(texts), vocab_size, pattern=GPT2_PATTERN)
    return [bytes(token) for token, _ in sorted(trained.get_mergeable_ranks(), key=lambda entry: entry[1])]


def _bpeasy(texts: Sequence[str], vocab_size: int) -> list[bytes]:
    import bpeasy

    longest = 1 << 20  # a limit must be given; no word here is as long
    ranks = bpeasy.train_bpe(iter(texts), GPT2_PATTERN, max_token_length=longest, vocab_size=vocab_size)
    return sorted(ranks, key=ranks.__getitem__)


def _gigatoken(texts: Sequence[str], vocab_size: int) -> list[bytes]:
    import gigatoken

    data, separator = _SEPARATOR.join(texts).encode(), _SEPARATOR.encode()
    with _silence():
        tokens, _ = gigatoken.train_bpe(data, vocab_size, [], tie_breaking="raw_token_ids", separator=separator)
    return [tokens[i] for i in range(len(tokens))]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps what a library writes to the process's own output away from ours."""
    kept = [os.dup(1), os.dup(2)]
    with open(os.devnull, "wb") as nowhere:
        for descriptor in (1, 2):
            os.dup2(nowhere.fileno(), descriptor)
        try:
            yield
        finally:
            for descriptor, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)


def _count(tokenizer: Tokenizer, texts: Sequence[str]) -> pa.Table:
    counter = tokenizer.new_word_counter()
    counter.update(pa.array(texts, pa.large_string()))
    return counter.to_table()


SUBJECTS = {
    "wordpiece": Subject(
        "lower-cased BERT words, pairs by frequency; ties are left to chance by tokenizers",
        train_wordpiece,
        {"tokenizers": Peer(_tokenizers_wordpiece, train_wordpiece, MUST_SHARE)},
    ),
    "byte-level-bpe": Subject(
        "words of GPT-2's pattern; every token and its place is equal, ties broken alike",
        train_byte_level,
        {
            "rustbpe": Peer(_rustbpe, _train_by_value),
            "gigatoken": Peer(_gigatoken, _train_by_value),
            "bpeasy": Peer(_bpeasy, _train_by_value),
            "tokenizers": Peer(_tokenizers_bpe, train_byte_level),
        },
    ),
}
"""Subjects by their names on the command line."""
