# SPDX-License-Identifier: Apache-2.0
"""The tokenizers to measure with: real BERT vocabularies where they are at hand, else one trained on the spot."""

from collections.abc import Iterator

import pyarrow as pa

from benchmarks import corpora
from tokenizer import Tokenizer
from tokenizer.trainers import WordPieceTrainer

# Which files of the larger data folder are BERT vocabularies, and whether their models lower-case.
BERT_VOCABULARIES = {"bert-base-uncased": True, "bert-base-cased": False, "bert-base-chinese": True}


def load(texts: list[corpora.Corpus]) -> Iterator[tuple[str, Tokenizer]]:
    """The BERT vocabularies of the larger data folder where it is there, else one trained on the corpora."""
    shared = corpora.shared_folder()
    if shared is not None:
        for name, lowercase in BERT_VOCABULARIES.items():
            yield name, Tokenizer.from_file(str(shared / "vocab" / f"{name}.txt"), lowercase=lowercase, oov="word")
        return
    counter = Tokenizer.untrained_bert().new_word_counter()
    for corpus in texts:
        counter.update(pa.array(corpus.texts, pa.large_string()))
    model = WordPieceTrainer(vocab_size=16_000).train(counter.to_table())
    yield "trained, 16000", Tokenizer.for_bert(model.vocab, oov="word")
