# SPDX-License-Identifier: Apache-2.0
"""Encoding with one thread: `Tokenizer.encode_arrow` against the libraries made for each tokenizer.

- GPT-2: tiktoken, gigatoken, fastokens, snaptokens and `tokenizers`.
- SentencePiece models (XLNet's, and two trained here and kept in `build/`): sentencepiece and `tokenizers`.
- BERT: nanotoken and `tokenizers`.
- `tokenizers` alone: the two trained models as `transformers` writes them into a `tokenizer.json`, the one like T5 also
  behind the normalizers of ALBERT and of HF's own trainer; BPE like NLLB's; CLIP; GPT-2's vocabulary behind the
  patterns of Kimi K2, Falcon and DeepSeek Coder; and BERT's behind other pre-tokenizers.
- Without the larger data folder: a vocabulary trained on the spot.

The ids of every document are compared first. A peer whose ids differ gets no number, and the exit code is 1. The
exception is `tokenizers` with a SentencePiece model: it follows other rules (`tokenizer_json.hf_steps`), so it is
timed on the documents with equal ids. "Cold" is the first encoding after loading, for every library: some of them cache
texts they have seen, as we do.

Every tokenizer has a process of its own: in a process that has run for half an hour, libraries are up to three times
slower.
"""

import argparse
import dataclasses
import functools
import itertools
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pyarrow as pa

from benchmarks import corpora, peers, report, timing, tokenizers
from tokenmill.tokenizer import Tokenizer


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    texts = corpora.load()
    makers = tokenizers.subjects(texts)
    parser = report.parser("encode", __doc__, rounds=3)
    names = [corpus.name for corpus in texts]
    parser.add_argument("--corpora", nargs="+", metavar="NAME", choices=names, help=f"only these: {' '.join(names)}")
    parser.add_argument(
        "--tokenizers", nargs="+", metavar="NAME", choices=list(makers), help=f"only these: {' '.join(makers)}"
    )
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="only these, such as gigatoken")
    parser.add_argument("--mb", type=float, default=12, help="use this many MB of each corpus (default 12)")
    parser.add_argument("--quick", action="store_true", help="no worst cases")
    options = parser.parse_args(arguments)
    print(report.describe(
        "tokenmill", "tokenizers", "tiktoken", "gigatoken", "fastokens", "snaptokens", "nanotoken", "sentencepiece",
        "numba", "numpy", "pyarrow",
    ))  # fmt: skip
    print(
        "one thread each, MB/s warm / cold, medians of interleaved rounds; in brackets how many times as fast we are,"
    )
    print("warm and cold; spread is the largest (max - min) / median\n")
    for corpus in _chosen(texts, options):
        counts = f"{len(corpus.texts)} documents, {corpus.n_bytes} bytes"
        print(f"{corpus.name}: {corpus.origin}, {counts}, digest {corpus.digest}", flush=True)

    chosen = options.tokenizers or list(makers)
    measurements: list[dict[str, Any]] = []
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=fresh, max_tasks_per_child=1) as processes:
        # One after the other: a second process would start while the first is measuring, and slow it down.
        for name in chosen:
            everything = name == chosen[-1] and not options.quick
            measurements += processes.submit(measure_named, name, options, everything=everything).result()
    return int(any(measurement["wrong"] for measurement in measurements))


def measure_named(name: str, options: argparse.Namespace, *, everything: bool) -> list[dict[str, Any]]:
    """Measures one tokenizer in this process, with worst cases if `everything` is set."""
    pa.set_cpu_count(1)
    peers.stay_on_one_core()
    loaded = corpora.load()
    subject, texts = tokenizers.subjects(loaded)[name](), _chosen(loaded, options)
    subject = subject._replace(peers={k: v for k, v in subject.peers.items() if k in (options.peers or subject.peers)})
    if options.peers and not subject.peers:
        raise SystemExit(f"--peers: none of {' '.join(options.peers)} is here, or has such a tokenizer")
    measurements = measure(subject, texts, options.rounds)
    if everything:
        measurements += measure(subject, corpora.adversarial(), options.rounds)
    return measurements


def _chosen(texts: Sequence[corpora.Corpus], options: argparse.Namespace) -> list[corpora.Corpus]:
    """Returns the beginnings of the chosen corpora."""
    n_bytes = int(options.mb * 1e6)
    return [corpus.first(n_bytes) for corpus in texts if options.corpora is None or corpus.name in options.corpora]


def measure(subject: tokenizers.Subject, texts: Sequence[corpora.Corpus], rounds: int) -> list[dict[str, Any]]:
    """Compares, times and prints a tokenizer on every corpus.

    Returns:
      The raw samples; under "wrong", the peers whose ids differ but must not.
    """
    tok, others = subject.tokenizer, subject.peers
    print(f"\n{subject.name}: {tok.get_vocab_size()} tokens, digest {tok.digest[:12]}")
    if not others:
        print("no peer to compare with; ./run.sh bench installs them")
    measurements, rows = [], []
    for corpus in texts:
        column = pa.array(corpus.texts, pa.large_string())
        expected = tok.encode_arrow(column).to_pylist()
        n_bytes = {"tokenmill": corpus.n_bytes}
        warm: dict[str, Callable[[], Any]] = {"tokenmill": functools.partial(tok.encode_arrow, column)}
        cold = {"tokenmill": functools.partial(_first_call, functools.partial(_load_ours, tok), column)}
        wrong = []
        for peer, (load, to_ids, other_rules) in others.items():
            encode = load()
            found = to_ids(encode(corpus.texts))
            same = [ours == theirs for ours, theirs in zip(expected, found, strict=True)]
            part = corpus
            if not all(same):
                print(f"{corpus.name}: ids of {peer} differ in {same.count(False)} of {len(same)} documents; ", end="")
                if not other_rules or not any(same):
                    wrong += [] if other_rules else [peer]
                    print(f"not measured; {first_difference(expected, found, peer)}")
                    continue
                print("measured on the others")
                part = dataclasses.replace(corpus, texts=tuple(itertools.compress(corpus.texts, same)))
            n_bytes[peer] = part.n_bytes
            warm[peer] = functools.partial(encode, part.texts)
            cold[peer] = functools.partial(_first_call, load, part.texts)
        timings = timing.interleave(warm, rounds=rounds), timing.interleave_first_calls(cold, rounds=rounds)
        rows.append([corpus.name, *_cells(n_bytes, timings, list(others))])
        measurements.append(
            {"tokenizer": subject.name, "corpus": corpus.name, "digest": corpus.digest, "wrong": wrong}
            | {"n_bytes": n_bytes}
            | {kind: {k: t.seconds for k, t in of.items()} for kind, of in zip(("warm", "cold"), timings, strict=True)}
        )
    print("\n" + report.table([subject.name, "tokenmill", *others, "spread"], rows), flush=True)
    return measurements


def first_difference(expected: Sequence[list[int]], found: Sequence[list[int]], peer: str) -> str:
    """Returns where the ids of two libraries, which must differ, first do so."""
    i, ours, theirs = next((i, a, b) for i, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b)
    shared = (k for k, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1])
    at = next(shared, min(len(ours), len(theirs)))
    return f"document {i}, token {at}: {ours[at : at + 3]} here, {theirs[at : at + 3]} in {peer}"


def _cells(n_bytes: dict[str, int], timings: Sequence[dict[str, timing.Timing]], others: list[str]) -> list[str]:
    """Returns the speeds of a row, ours first, and the largest spread."""
    speeds = [{peer: n_bytes[peer] / timed.median / 1e6 for peer, timed in of.items()} for of in timings]
    cells = []
    for candidate in ("tokenmill", *others):
        if candidate not in n_bytes:
            cells.append("ids differ")
            continue
        cell = " / ".join(f"{speed[candidate]:.1f}" for speed in speeds)
        if candidate in others:
            ratios = [f"{speed['tokenmill'] / speed[candidate]:.1f}x" for speed in speeds]
            cell += f" ({', '.join(ratios)})"
        cells.append(cell)
    return [*cells, f"{max(timed.spread for of in timings for timed in of.values()):.0%}"]


def _load_ours(tok: Tokenizer) -> peers.Encode:
    """Loads the tokenizer again, ready to encode, with an empty word cache."""
    fresh = Tokenizer.from_str(tok.to_str())
    fresh.encode_arrow(pa.array([""], pa.large_string()))
    return fresh.encode_arrow


def _first_call(load: Callable[[], peers.Encode], texts: Any) -> Callable[[], Any]:
    """Loads a tokenizer; returns the call with which it encodes texts."""
    return functools.partial(load(), texts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
