# SPDX-License-Identifier: Apache-2.0
"""Encoding, one thread each: `Tokenizer.encode_arrow` against `tokenizers.Tokenizer.encode_batch_fast`.

Before anything is timed the ids of every document are compared. Where they differ there is no number, and the exit code
is 1.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from benchmarks import corpora, peers, report, timing, tokenizers
from tokenizer import Tokenizer

SIZES = (10, 100, 1_000, 10_000, 100_000)


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench encode", description=__doc__)
    parser.add_argument("--corpora", nargs="+", metavar="NAME", help="only these: english chinese code multilingual")
    parser.add_argument(
        "--models", nargs="+", metavar="NAME", help=f"only these: {' '.join(tokenizers.BERT_VOCABULARIES)}"
    )
    parser.add_argument("--mb", type=float, default=12, help="measure the first so many MB of each corpus (default 12)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--quick", action="store_true", help="corpora only: no worst cases, no sizes")
    parser.add_argument("--save", action="store_true", help="keep the raw samples under benchmarks/results/")
    options = parser.parse_args(arguments)
    if lacking := peers.missing("tokenizers"):
        print(f"no peer to compare with: {', '.join(lacking)} is not installed; ./run.sh bench installs it")
        return 1
    pa.set_cpu_count(1)
    peers.stay_on_one_core()
    facts = report.machine() | report.versions("tokenmill", "tokenizers", "numba", "numpy", "pyarrow")
    print(report.describe(facts))
    print("one thread each; a ratio is median over median of interleaved rounds; spread is (max - min) / median\n")

    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load()]
    texts = [corpus for corpus in texts if not options.corpora or corpus.name in options.corpora]
    models = {name: tok for name, tok in tokenizers.load(texts) if not options.models or name in options.models}
    if not texts or not models:
        print("nothing to measure: no corpus or no model has one of the given names")
        return 1
    for corpus in texts:
        n_documents = len(corpus.texts)
        print(
            f"{corpus.name}: {corpus.origin}, {n_documents} documents, {corpus.n_bytes} bytes, digest {corpus.digest}"
        )
    for name, tok in models.items():
        print(f"{name}: {tok.get_vocab_size()} tokens, digest {tok.digest[:12]}")

    measurements = measure_corpora(texts, models, options.rounds)
    if not options.quick:
        name, tok = next(iter(models.items()))
        measurements += measure_corpora(corpora.adversarial(), {name: tok}, options.rounds)
        measurements += measure_sizes(texts[0], name, tok, options.rounds)
    if options.save:
        print(f"\nraw samples: {report.save('encode', facts, measurements)}")
    return int(any(not measurement["equal"] for measurement in measurements))


def measure_corpora(texts: list[corpora.Corpus], models: dict[str, Tokenizer], rounds: int) -> list[dict[str, Any]]:
    """Compares, times and prints every corpus with every model; returns the raw samples."""
    measurements, rows = [], []
    for corpus in texts:
        array = pa.array(corpus.texts, pa.large_string())
        for name, tok in models.items():
            peer = peers.HuggingFaceTokenizer(tok.to_str())
            measurement: dict[str, Any] = {"corpus": corpus.name, "digest": corpus.digest, "model": name}
            difference = first_difference(tok, peer, corpus.texts)
            measurement["equal"] = difference is None
            measurements.append(measurement)
            if difference is not None:
                rows.append([corpus.name, name, "ids differ", "-", "-", "-", "-", "-"])
                print(f"\n{corpus.name} x {name}: {difference}", file=sys.stderr)
                continue
            fresh = _fresh_tokenizers(tok, rounds)
            timings = timing.interleave(
                {
                    "warm": lambda tok=tok, array=array: tok.encode_arrow(array),
                    "cold": lambda fresh=fresh, array=array: next(fresh).encode_arrow(array),
                    "peer": lambda peer=peer, corpus=corpus: peer.encode_batch(corpus.texts),
                },
                rounds=rounds,
                once={"cold"},
            )
            measurement |= {"n_bytes": corpus.n_bytes} | {key: value.seconds for key, value in timings.items()}
            warm, cold, theirs = timings["warm"], timings["cold"], timings["peer"]
            rows.append(
                [
                    corpus.name,
                    name,
                    _speed(corpus, warm),
                    _speed(corpus, cold),
                    _speed(corpus, theirs),
                    f"{warm.times_faster_than(theirs):.1f}x",
                    f"{cold.times_faster_than(theirs):.1f}x",
                    f"{max(timings.values(), key=lambda t: t.spread).spread:.0%}",
                ]
            )
    header = ["text", "model", "warm MB/s", "cold MB/s", "tokenizers MB/s", "warm ratio", "cold ratio", "spread"]
    print("\n" + report.table(header, rows))
    return measurements


def measure_sizes(corpus: corpora.Corpus, name: str, tok: Tokenizer, rounds: int) -> list[dict[str, Any]]:
    """Times single calls on the start of a corpus, from 10 bytes on, and prints microseconds."""
    whole = "\n".join(corpus.texts)[: 2 * SIZES[-1]]
    peer = peers.HuggingFaceTokenizer(tok.to_str())
    measurements, rows = [], []
    for size in SIZES:
        text = whole.encode()[:size].decode("utf-8", "ignore")
        array = pa.array([text], pa.large_string())
        equal = first_difference(tok, peer, (text,)) is None
        measurements.append({"corpus": corpus.name, "size": size, "model": name, "equal": equal})
        if not equal:
            rows.append([f"{size} bytes", "ids differ", "-", "-"])
            continue
        timings = timing.interleave(
            {
                "warm": lambda array=array: tok.encode_arrow(array),
                "peer": lambda text=text: peer.encode_batch([text]),
            },
            rounds=rounds,
        )
        measurements[-1] |= {key: value.seconds for key, value in timings.items()}
        warm, theirs = timings["warm"], timings["peer"]
        rows.append(
            [
                f"{size} bytes",
                f"{warm.median * 1e6:.1f}",
                f"{theirs.median * 1e6:.1f}",
                f"{warm.times_faster_than(theirs):.1f}x",
            ]
        )
    header = [f"one call, {corpus.name}, {name}", "encode_arrow us", "encode_batch_fast us", "ratio"]
    print("\n" + report.table(header, rows))
    return measurements


def first_difference(tok: Tokenizer, peer: peers.HuggingFaceTokenizer, texts: tuple[str, ...]) -> str | None:
    """Compares the ids of every text; returns None where all are equal, else where they first are not."""
    ours = tok.encode_arrow(pa.array(texts, pa.large_string()))
    for i, expected in enumerate(peer.ids(texts)):
        found = ours[i].as_py()
        if found != expected:
            at = next((k for k, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
            at = min(len(found), len(expected)) if at is None else at
            return f"document {i}, token {at}: {found[at : at + 3]} here, {expected[at : at + 3]} in {peer.name}"
    return None


def _fresh_tokenizers(tok: Tokenizer, n: int) -> Iterator[Tokenizer]:
    """Tokenizers like `tok` that have seen no word yet, but have built their tables; as many as there are rounds."""
    fresh = [Tokenizer.from_str(tok.to_str()) for _ in range(n)]
    for one in fresh:
        one.encode_arrow(pa.array([""]))
    return iter(fresh)


def _speed(corpus: corpora.Corpus, measured: timing.Timing) -> str:
    return f"{corpus.n_bytes / measured.median / 1e6:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
