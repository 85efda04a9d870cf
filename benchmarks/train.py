# SPDX-License-Identifier: Apache-2.0
"""Training a WordPiece vocabulary from text, one thread each: counter and trainer against `tokenizers`' trainer.

Counting the words is in the clock of both. `tokenizers` breaks ties between equally frequent pairs by the order of a
hash table, so two of its own runs differ a little; the gate before the number is `MUST_SHARE` of the tokens.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from benchmarks import corpora, peers, report, timing
from tokenizer import Tokenizer
from tokenizer.trainers import WordPieceTrainer

MUST_SHARE = 0.99
"""Part of the larger vocabulary that the other must have too for a number to be printed."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench train", description=__doc__)
    parser.add_argument("--corpora", nargs="+", metavar="NAME", help="only these: english chinese code multilingual")
    parser.add_argument("--mb", type=float, default=12, help="train on the first so many MB of each (default 12)")
    parser.add_argument("--vocab-size", type=int, default=30_000, help="entries of the vocabulary (default 30000)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--save", action="store_true", help="keep the raw samples under benchmarks/results/")
    options = parser.parse_args(arguments)
    if lacking := peers.missing("tokenizers"):
        print(f"no peer to compare with: {', '.join(lacking)} is not installed; ./run.sh bench installs it")
        return 1
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load()]
    texts = [corpus for corpus in texts if not options.corpora or corpus.name in options.corpora]
    if not texts:
        print("nothing to measure: no corpus has one of the given names")
        return 1
    facts = report.machine() | report.versions("tokenmill", "tokenizers", "numba", "numpy", "pyarrow")
    print(report.describe(facts))
    print(f"lower-cased BERT words, {options.vocab_size} entries, pairs by frequency, one thread each\n")

    measurements, rows = [], []
    train_ours(("the same words, compiled once",), 50)
    for corpus in texts:
        measurement, row = _measure(corpus, options.vocab_size, options.rounds)
        measurements.append(measurement)
        rows.append(row)
    header = ["text", "digest", "tokens shared", "tokenmill s", "tokenizers s", "ratio", "spread"]
    print(report.table(header, rows))
    if options.save:
        print(f"\nraw samples: {report.save('train', facts, measurements)}")
    return int(any(not measurement["equal"] for measurement in measurements))


def train_ours(texts: Sequence[str], vocab_size: int) -> list[str]:
    """Counts the words of `texts` and trains on the counts."""
    counter = Tokenizer.untrained_bert(lowercase=True).new_word_counter()
    counter.update(pa.array(texts, pa.large_string()))
    return list(WordPieceTrainer(vocab_size=vocab_size).train(counter.to_table()).vocab)


def train_theirs(texts: Sequence[str], vocab_size: int) -> list[str]:
    """The same with `tokenizers`, set up like its own `BertWordPieceTokenizer`."""
    import tokenizers as hf_tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    ours = WordPieceTrainer(vocab_size=vocab_size)
    trained = hf_tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
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


def _measure(corpus: corpora.Corpus, vocab_size: int, rounds: int) -> tuple[dict[str, Any], list[str]]:
    measurement: dict[str, Any] = {"corpus": corpus.name, "digest": corpus.digest, "vocab_size": vocab_size}
    ours, theirs = set(train_ours(corpus.texts, vocab_size)), set(train_theirs(corpus.texts, vocab_size))
    shared = len(ours & theirs) / max(len(ours), len(theirs))
    measurement |= {"shared": shared, "equal": shared >= MUST_SHARE}
    head = [corpus.name, corpus.digest, f"{shared:.2%}"]
    if not measurement["equal"]:
        print(f"{corpus.name}: {len(ours)} tokens here, {len(theirs)} there, {shared:.2%} shared", file=sys.stderr)
        return measurement, [*head, "-", "-", "-", "-"]
    functions = {
        "ours": lambda: train_ours(corpus.texts, vocab_size),
        "theirs": lambda: train_theirs(corpus.texts, vocab_size),
    }
    timings = timing.interleave(functions, rounds=rounds)
    measurement |= {key: value.seconds for key, value in timings.items()}
    faster = timings["ours"].times_faster_than(timings["theirs"])
    spread = max(value.spread for value in timings.values())
    seconds = [f"{timings[key].median:.2f}" for key in ("ours", "theirs")]
    return measurement, [*head, *seconds, f"{faster:.1f}x", f"{spread:.0%}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
