# SPDX-License-Identifier: Apache-2.0
"""`WordPieceTrainer(rule="frequency")` against HF tokenizers' `WordPieceTrainer`.

HF numbers the characters that continue a word in the order of a hash table, another one in every run (tokenizers
#1794), and breaks ties between equally frequent pairs by these numbers. Two HF runs on the same words therefore differ:
in all ids after the alphabet, and in the few entries that a tie at the end of the vocabulary lets in or not. The order
a run has drawn is the beginning of its vocabulary, though. Given that order as special tokens, our trainer numbers the
characters the same way, and must then learn the same vocabulary, entry by entry: nothing is left to tolerance.
"""

import collections
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from tests.corpora import documents
from tests.strategies import EXHAUSTIVE
from tokenmill.tokenizer.trainers import WordPieceTrainer

hf = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.parity

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def words_of(texts: Iterable[str]) -> collections.Counter[str]:
    normalizer, pre_tokenizer = hf.normalizers.BertNormalizer(), hf.pre_tokenizers.BertPreTokenizer()
    counts: collections.Counter[str] = collections.Counter()
    for text in texts:
        counts.update(word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text)))
    return counts


def hf_train(counts: Mapping[str, int], **fields: object) -> list[str]:
    def texts() -> Iterator[str]:
        for word, count in counts.items():
            for start in range(0, count, 1000):
                yield f"{word} " * min(1000, count - start)

    tokenizer = hf.Tokenizer(hf.models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = hf.pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(texts(), hf.trainers.WordPieceTrainer(show_progress=False, **fields))
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    return sorted(vocabulary, key=vocabulary.__getitem__)


def our_train(counts: Mapping[str, int], **fields: object) -> list[str]:
    words = pa.array([word.encode() for word in counts], pa.large_binary())
    table = pa.table({"word": words, "count": pa.array(counts.values(), pa.int64())})
    return list(WordPieceTrainer(**{"limit_alphabet": None, "min_frequency": 0, **fields}).train(table).vocab)


def check(counts: Mapping[str, int], *, n_runs: int = 2, **fields: object) -> list[list[str]]:
    """Compares with `n_runs` runs of HF; returns our vocabulary and theirs."""
    first = our_train(counts, **{**fields, "min_frequency": 2**62})  # nothing is that frequent: no merges
    ours = our_train(counts, **fields)
    theirs = [hf_train(counts, **fields) for _ in range(n_runs)]
    for vocabulary in theirs:
        drawn = vocabulary[: len(first)]
        assert set(drawn) == set(first)
        n_sorted = sum(not token.startswith("##") for token in first)
        assert drawn[:n_sorted] == first[:n_sorted]  # all but the "##" forms are in a fixed order
        assert vocabulary == our_train(counts, **{**fields, "special_tokens": drawn})
    return [ours, *theirs]


@pytest.mark.parametrize("seed", range(40))
def test_random_words(seed: int) -> None:
    rng = random.Random(seed)
    alphabet = "abcé花😀gh"[: rng.randint(1, 8)]
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(rng.randint(1, 40)):
        counts["".join(rng.choices(alphabet, k=rng.randint(1, 20)))] += rng.randint(1, 6)
    n_first = 1 + 2 * len(alphabet)
    check(counts, vocab_size=n_first + rng.randint(0, 80), min_frequency=rng.randint(0, 4), special_tokens=["[UNK]"])


@pytest.mark.parametrize("vocab_size", [8_000, 32_000] if EXHAUSTIVE else [8_000])
def test_english_corpus(shared_data: Path, vocab_size: int) -> None:
    counts = words_of(documents(shared_data, "en"))
    ours, *theirs = check(counts, vocab_size=vocab_size, min_frequency=2, special_tokens=SPECIAL_TOKENS)
    assert len(ours) == vocab_size
    for one, other in itertools.combinations([ours, *theirs], 2):
        assert len(set(one) ^ set(other)) <= vocab_size // 50
