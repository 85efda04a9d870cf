# SPDX-License-Identifier: Apache-2.0
"""Times training a vocabulary from text, with one thread, against the trainers of other libraries.

Every time includes counting the words. A peer gets a number only if its vocabulary is as good as ours:

- byte-level BPE: the one that our trainer makes with the peer's order of ties, token by token;
- WordPiece: at least 99 % of the tokens are shared, because `tokenizers` leaves ties to chance;
- Unigram: sentencepiece itself cuts held-out lines, one stretch of 50 in ten, with both, and ours takes at most 0.5 %
  more tokens. All train on the same lines, with spaces as sentencepiece's identity normalization leaves them.
"""

import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import corpora, peers, report, timing
from tokenmill.tokenizer import BPETrainer, Tokenizer, UnigramTrainer, WordPieceTrainer
from tokenmill.tokenizer.formats import sentencepiece as sentencepiece_file
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.models.vocabulary import Tokens
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, Metaspace

Train = Callable[[Sequence[str], int], Sequence[Any]]

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MUST_SHARE = 0.99
"""Share of the larger vocabulary that the other must have too, if a peer leaves ties to chance."""
MAY_BE_MORE = 1.005
"""How many times a peer's tokens ours may take on held-out text."""

_SEPARATOR = "\ufdd0"  # a noncharacter that joins the texts for a peer that takes only one


@dataclasses.dataclass(frozen=True)
class Peer:
    """A trainer of another library, and the vocabulary that it must produce."""

    train: Train
    expected: Train
    """Our trainer with the peer's order of ties; not timed."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A kind of vocabulary."""

    ours: Train
    peers: Mapping[str, Peer]
    """Peers by the module that they need."""
    judge: Callable[[Sequence[Any], Sequence[Any], Sequence[str]], tuple[bool, str]]
    """Returns whether a peer's vocabulary is as good as the expected one, and what to say; the last are all lines."""
    prepare: Callable[[Sequence[str]], Sequence[str]] = lambda texts: texts
    """Makes what all train on."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("train", __doc__, rounds=3)
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), help="only these")
    parser.add_argument("--corpora", nargs="+", metavar="NAME", help="only these: english chinese code multilingual")
    parser.add_argument("--mb", type=float, default=12, help="train on this many MB of each corpus (default 12)")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="entries of the vocabulary (default 32000)")
    options = parser.parse_args(arguments)
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load()]
    texts = [corpus for corpus in texts if not options.corpora or corpus.name in options.corpora]
    os.environ.update(peers.ONE_THREAD)
    pa.set_cpu_count(1)
    peers.stay_on_one_core()
    libraries = dict.fromkeys(name for subject in SUBJECTS.values() for name in subject.peers)
    print(report.describe("tokenmill", *libraries, "numba", "numpy", "pyarrow"))
    print(f"{options.vocab_size} entries, one thread each, seconds with counting, medians of interleaved rounds;")
    print("in brackets how many times as long as ours\n")
    measurements = []
    for name in options.subjects:
        measured = [measure(name, SUBJECTS[name], each, options.vocab_size, options.rounds) for each in texts]
        rows = [row for _, row in measured]
        print(report.table([name, "digest", "tokenmill", *SUBJECTS[name].peers, "spread"], rows) + "\n")
        measurements += [measurement for measurement, _ in measured]
    return int(not measurements or not all(all(each["equal"].values()) for each in measurements))


def measure(
    name: str, subject: Subject, corpus: corpora.Corpus, vocab_size: int, rounds: int
) -> tuple[dict[str, Any], list[str]]:
    """Compares, then times; returns the raw samples and a row of the table."""
    texts = subject.prepare(corpus.texts)
    candidates: dict[str, Callable[[], object]] = {"tokenmill": lambda: subject.ours(texts, vocab_size)}
    candidates["tokenmill"]()  # compiles
    equal, cells = {}, dict.fromkeys(subject.peers, "not installed")
    for peer_name, peer in subject.peers.items():
        if importlib.util.find_spec(peer_name) is None:
            continue
        theirs, expected = peer.train(texts, vocab_size), peer.expected(texts, vocab_size)
        equal[peer_name], difference = subject.judge(theirs, expected, corpus.texts)
        cells[peer_name] = "differs"
        if equal[peer_name]:
            candidates[peer_name] = lambda peer=peer: peer.train(texts, vocab_size)  # type: ignore[misc]
        else:
            print(f"{corpus.name}: the vocabulary of {peer_name} differs: {difference}", file=sys.stderr)
    timings = timing.interleave(candidates, rounds=rounds, once=candidates if name == "unigram" else ())
    ours = timings.pop("tokenmill")
    for peer_name, timed in timings.items():
        cells[peer_name] = f"{timed.median:.2f} ({ours.times_faster_than(timed):.1f}x)"
    seconds = {"tokenmill": ours.seconds} | {key: timed.seconds for key, timed in timings.items()}
    measurement = {"subject": name, "corpus": corpus.name, "digest": corpus.digest, "vocab_size": vocab_size}
    spread = max(timed.spread for timed in (ours, *timings.values()))
    row = [corpus.name, corpus.digest, f"{ours.median:.2f}", *cells.values(), f"{spread:.0%}"]
    return measurement | {"equal": equal, "seconds": seconds}, row


def same(theirs: Sequence[Any], expected: Sequence[Any], _: Sequence[str]) -> tuple[bool, str]:
    """Judges vocabularies that must be the same tokens in the same order."""
    return list(theirs) == list(expected), f"{len(expected)} tokens here, {len(theirs)} there"


def mostly_shared(theirs: Sequence[Any], expected: Sequence[Any], _: Sequence[str]) -> tuple[bool, str]:
    """Judges vocabularies whose ties are left to chance."""
    shared = len(set(theirs) & set(expected)) / max(len(theirs), len(expected))
    return shared >= MUST_SHARE, f"{len(expected)} tokens here, {len(theirs)} there, {shared:.2%} shared"


def as_short(theirs: Sequence[Any], expected: Sequence[Any], texts: Sequence[str]) -> tuple[bool, str]:
    """Judges Unigram vocabularies by the tokens that held-out lines take."""
    held_out = [line for line, is_held in _lines(texts) if is_held]
    ours, others = _tokens_per_byte(expected, held_out), _tokens_per_byte(theirs, held_out)
    return ours <= MAY_BE_MORE * others, f"{ours:.4f} tokens per byte here, {others:.4f} there"


# WordPiece


def train_wordpiece(texts: Sequence[str], vocab_size: int) -> list[str]:
    """Counts the lower-cased BERT words of `texts` and trains on the counts."""
    counts = _count(Tokenizer.untrained_bert(lowercase=True), texts)
    return list(WordPieceTrainer(vocab_size=vocab_size).train(counts).vocab)


def _tokenizers_wordpiece(texts: Sequence[str], vocab_size: int) -> list[str]:
    """Does the same with `tokenizers`, set up like its own `BertWordPieceTokenizer`."""
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    ours = WordPieceTrainer(vocab_size=vocab_size)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, min_frequency=ours.min_frequency, limit_alphabet=ours.limit_alphabet,
        special_tokens=list(ours.special_tokens), show_progress=False,
    )  # fmt: skip
    steps = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    return list(_tokenizers(models.WordPiece(unk_token=ours.unk_token), *steps, trainer, texts).get_vocab())


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
    from tokenizers import models, pre_tokenizers, trainers

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    step = pre_tokenizers.ByteLevel(add_prefix_space=False)
    vocabulary = _tokenizers(models.BPE(), None, step, trainer, texts).get_vocab()
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


# Unigram: vocabularies are lists of the learned pieces with their scores.


def train_unigram(lines: Sequence[str], vocab_size: int) -> list[tuple[str, float]]:
    """Counts the words of `lines` and trains on the counts."""
    steps = SentencePieceNormalizer(), Metaspace(prepend_scheme="never")  # the normalizer has put a "▁" in front
    counts = _count(Tokenizer(model=None, normalizer=steps[0], pre_tokenizer=steps[1]), lines)
    model = UnigramTrainer(vocab_size=vocab_size).train(counts)
    kinds = model.piece_types or ()
    return [entry for entry, kind in zip(model.vocab, kinds, strict=True) if kind == PieceType.NORMAL]


def _sentencepiece(lines: Sequence[str], vocab_size: int) -> list[tuple[str, float]]:
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


def _tokenizers_unigram(lines: Sequence[str], vocab_size: int) -> list[tuple[str, float]]:
    """Trains with `tokenizers`, which keeps all characters that occur."""
    from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

    specials = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, unk_token="<unk>", special_tokens=specials, show_progress=False
    )
    steps = normalizers.Replace(Regex(" {2,}"), " "), pre_tokenizers.Metaspace()
    trained = _tokenizers(models.Unigram(), *steps, trainer, [line.strip(" ") for line in lines])
    return [(piece, score) for piece, score in json.loads(trained.to_str())["model"]["vocab"] if piece not in specials]


def _tokens_per_byte(pieces: Sequence[Any], lines: Sequence[str]) -> float:
    """Cuts lines with learned pieces, in sentencepiece, and returns the tokens per byte of text."""
    import sentencepiece

    specials = {"<unk>": PieceType.UNKNOWN, "<s>": PieceType.CONTROL, "</s>": PieceType.CONTROL}
    file = sentencepiece_file.read(_sentencepiece_model(["a b"] * 99, 6), "sentencepiece")  # for its other fields
    file = dataclasses.replace(
        file,
        pieces=Tokens.of([*specials, *(piece for piece, _ in pieces)]),
        scores=np.array([0.0, 0.0, 0.0, *(score for _, score in pieces)]),
        types=np.array([*specials.values(), *(PieceType.NORMAL for _ in pieces)], np.int64),
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_file.write(file))
    return sum(map(len, processor.encode(list(lines)))) / sum(len(line.encode()) for line in lines)


def _lines(texts: Sequence[str]) -> list[tuple[str, bool]]:
    """Returns the lines of texts, and whether each is held out."""
    lines = (line.rstrip("\r") for text in texts for line in text.split("\n"))  # sentencepiece would drop the "\r"
    return [(line, i // 50 % 10 == 3) for i, line in enumerate(line for line in lines if line.strip(" "))]


def _tokenizers(model: Any, normalizer: Any, pre_tokenizer: Any, trainer: Any, texts: Sequence[str]) -> Any:
    """Returns a tokenizer of `tokenizers` that is trained on texts."""
    import tokenizers as hf

    trained = hf.Tokenizer(model)
    if normalizer is not None:
        trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizer
    trained.train_from_iterator(texts, trainer)
    return trained


def _count(tokenizer: Tokenizer, texts: Sequence[str]) -> pa.Table:
    counter = tokenizer.new_word_counter()
    counter.update(pa.array(texts, pa.large_string()))
    return counter.to_table()


SUBJECTS = {
    "wordpiece": Subject(
        train_wordpiece, {"tokenizers": Peer(_tokenizers_wordpiece, train_wordpiece)}, mostly_shared
    ),
    "byte-level-bpe": Subject(
        train_byte_level,
        {
            "rustbpe": Peer(_rustbpe, _train_by_value),
            "gigatoken": Peer(_gigatoken, _train_by_value),
            "bpeasy": Peer(_bpeasy, _train_by_value),
            "tokenizers": Peer(_tokenizers_bpe, train_byte_level),
        },
        same,
    ),
    "unigram": Subject(
        train_unigram,
        {"sentencepiece": Peer(_sentencepiece, train_unigram), "tokenizers": Peer(_tokenizers_unigram, train_unigram)},
        as_short,
        lambda texts: [line for line, is_held in _lines(texts) if not is_held],
    ),
}  # fmt: skip
"""Subjects by their names on the command line."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
