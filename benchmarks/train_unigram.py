# SPDX-License-Identifier: Apache-2.0
"""Times training a Unigram vocabulary, with one thread, against sentencepiece and `tokenizers`.

The pieces cannot be the same, so the gate is their purpose: sentencepiece itself cuts held-out lines, one stretch of 50
in ten, with every vocabulary, and ours may take at most `MAY_BE_MORE` times as many tokens as a peer's. All train on
the same lines, with spaces as sentencepiece's identity normalization leaves them. Times include counting the words.
"""

import dataclasses
import importlib.util
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from benchmarks import corpora, report, timing
from tokenmill.tokenizer import Tokenizer, Unigram, UnigramTrainer
from tokenmill.tokenizer.formats import sentencepiece as sentencepiece_file
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.pre_tokenizers import Metaspace

MAY_BE_MORE = 1.005
"""How many times a peer's tokens ours may take on held-out text for a number to be printed."""

DESCRIBES = "lines split at spaces, not normalized otherwise; tokens per byte of held-out lines in front of the seconds"

Model = list[tuple[str, float]]
"""The learned pieces with their scores."""


def train_ours(lines: Sequence[str], vocab_size: int) -> Model:
    """Counts the words of `lines` and trains on the counts."""
    pre_tokenizer = Metaspace(prepend_scheme="never")  # the normalizer has put a "▁" in front
    counter = Tokenizer(
        model=None, normalizer=SentencePieceNormalizer(), pre_tokenizer=pre_tokenizer
    ).new_word_counter()
    counter.update(pa.array(lines, pa.large_string()))
    return _learned(UnigramTrainer(vocab_size=vocab_size).train(counter.to_table()))


def _learned(model: Unigram) -> Model:
    kinds = model.piece_types or ()
    return [entry for entry, kind in zip(model.vocab, kinds, strict=True) if kind == PieceType.NORMAL]


def train_sentencepiece(lines: Sequence[str], vocab_size: int) -> Model:
    """Does the same with `sentencepiece`, which is told to accept lines of any length."""
    file = sentencepiece_file.read(_sentencepiece_model(lines, vocab_size), "sentencepiece")
    entries = zip(file.pieces, file.scores, file.types, strict=True)
    return [(piece, score) for piece, score, kind in entries if kind == PieceType.NORMAL]


def _sentencepiece_model(lines: Sequence[str], vocab_size: int) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="unigram", vocab_size=vocab_size,
        normalization_rule_name="identity", num_threads=1, max_sentence_length=1 << 30, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


def train_tokenizers(lines: Sequence[str], vocab_size: int) -> Model:
    """Does the same with `tokenizers`, which keeps all characters that occur."""
    import tokenizers as hf
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    trained = hf.Tokenizer(models.Unigram())
    trained.normalizer = normalizers.Replace(hf.Regex(" {2,}"), " ")
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, unk_token="<unk>", special_tokens=specials, show_progress=False
    )
    trained.train_from_iterator((line.strip(" ") for line in lines), trainer)
    return [(piece, score) for piece, score in json.loads(trained.to_str())["model"]["vocab"] if piece not in specials]


PEERS = {"sentencepiece": train_sentencepiece, "tokenizers": train_tokenizers}
"""Peers by the module that they need."""


def tokens_per_byte(model: Model, lines: Sequence[str]) -> float:
    """Cuts lines with a model, in sentencepiece, and returns the tokens per byte of text."""
    import sentencepiece

    specials = {"<unk>": PieceType.UNKNOWN, "<s>": PieceType.CONTROL, "</s>": PieceType.CONTROL}
    file = sentencepiece_file.read(_sentencepiece_model(["a b"] * 99, 6), "sentencepiece")  # for its other fields
    file = dataclasses.replace(
        file,
        pieces=(*specials, *(piece for piece, _ in model)),
        scores=(0.0, 0.0, 0.0, *(score for _, score in model)),
        types=(*specials.values(), *(PieceType.NORMAL for _ in model)),
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_file.write(file))
    return sum(map(len, processor.encode(list(lines)))) / sum(len(line.encode()) for line in lines)


def hold_out(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the lines to train on, and those to measure on: one of every ten stretches of 50 lines."""
    lines = [line.rstrip("\r") for text in texts for line in text.split("\n")]  # sentencepiece would drop the "\r"
    lines = [line for line in lines if line.strip(" ")]
    held = [i // 50 % 10 == 3 for i in range(len(lines))]
    train = [line for line, is_held in zip(lines, held, strict=True) if not is_held]
    return train, [line for line, is_held in zip(lines, held, strict=True) if is_held]


def run(texts: Sequence[corpora.Corpus], vocab_size: int, rounds: int) -> list[dict[str, Any]]:
    """Prints the table and returns the raw samples; does nothing without sentencepiece, which cuts for all."""
    if importlib.util.find_spec("sentencepiece") is None:
        print("unigram: sentencepiece is not installed; ./run.sh bench installs it")
        return []
    installed = [name for name in PEERS if importlib.util.find_spec(name) is not None]
    print(f"unigram: {DESCRIBES}\n")
    measured = [_measure(corpus, installed, vocab_size, rounds) for corpus in texts]
    print(report.table(["text", "digest", "tokenmill", *installed, "spread"], [row for _, row in measured]) + "\n")
    return [measurement for measurement, _ in measured]


def _measure(
    corpus: corpora.Corpus, installed: Sequence[str], vocab_size: int, rounds: int
) -> tuple[dict[str, Any], list[str]]:
    train, held_out = hold_out(corpus.texts)
    ours = tokens_per_byte(train_ours(train, vocab_size), held_out)  # compiles, too
    rates, equal = {"tokenmill": ours}, {}
    functions: dict[str, Any] = {"tokenmill": lambda: train_ours(train, vocab_size)}
    for name in installed:
        rates[name] = tokens_per_byte(PEERS[name](train, vocab_size), held_out)
        equal[name] = ours <= MAY_BE_MORE * rates[name]
        if equal[name]:
            functions[name] = lambda name=name: PEERS[name](train, vocab_size)
        else:
            print(f"{corpus.name}: {ours:.4f} tokens per byte here, {rates[name]:.4f} with {name}", file=sys.stderr)
    timings = timing.interleave(functions, rounds=rounds, once=installed)
    cells = [f"{ours:.4f} {timings['tokenmill'].median:.2f}"]
    for name in installed:
        seconds = "worse"
        if equal[name]:
            faster = timings["tokenmill"].times_faster_than(timings[name])
            seconds = f"{timings[name].median:.2f} ({faster:.1f}x)"
        cells.append(f"{rates[name]:.4f} {seconds}")
    measurement = {"subject": "unigram", "corpus": corpus.name, "digest": corpus.digest, "vocab_size": vocab_size}
    measurement |= {"equal": equal, "tokens_per_byte": rates, "seconds": {k: t.seconds for k, t in timings.items()}}
    spread = max(value.spread for value in timings.values())
    return measurement, [corpus.name, corpus.digest, *cells, f"{spread:.0%}"]
