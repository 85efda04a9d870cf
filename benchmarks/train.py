# SPDX-License-Identifier: Apache-2.0
"""Times training a vocabulary from text, with one thread, against the trainers of other libraries.

Every time includes counting the words. A peer's vocabulary must be the one that our trainer makes with the peer's order
of ties, or the peer gets no number. `tokenizers` leaves the ties of WordPiece to chance, so there two vocabularies must
share 99 % of their tokens.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks import corpora, peers, report, timing, train_unigram
from benchmarks.trainers import SUBJECTS, Subject


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    names = [*SUBJECTS, "unigram"]
    parser = argparse.ArgumentParser(prog="./run.sh bench train", description=__doc__, allow_abbrev=False)
    parser.add_argument("--subjects", nargs="+", choices=names, default=names, help="only these")
    parser.add_argument("--corpora", nargs="+", metavar="NAME", help="only these: english chinese code multilingual")
    parser.add_argument("--mb", type=float, default=12, help="train on this many MB of each corpus (default 12)")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="entries of the vocabulary (default 32000)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--save", action="store_true", help="keep the raw samples under benchmarks/results/")
    options = parser.parse_args(arguments)
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load()]
    texts = [corpus for corpus in texts if not options.corpora or corpus.name in options.corpora]
    if not texts:
        print("nothing to measure: no corpus has one of the given names")
        return 1
    os.environ.update(peers.ONE_THREAD)
    pa.set_cpu_count(1)
    peers.stay_on_one_core()
    libraries = dict.fromkeys(name for subject in SUBJECTS.values() for name in subject.peers) | dict.fromkeys(
        train_unigram.PEERS
    )
    facts = report.machine() | report.versions("tokenmill", *libraries, "numba", "numpy", "pyarrow")
    print(report.describe(facts))
    print(f"{options.vocab_size} entries, one thread each, seconds with counting, medians of interleaved rounds;")
    print("in brackets how many times as long as ours\n")
    measurements = []
    for name in options.subjects:
        if name == "unigram":
            measurements += train_unigram.run(texts, options.vocab_size, options.rounds)
            continue
        subject = SUBJECTS[name]
        missing = subject.peers.keys() - subject.installed_peers.keys()
        if missing:
            print(f"{', '.join(sorted(missing))} is not installed; ./run.sh bench installs it")
        print(f"{name}: {subject.describes}\n")
        measured = [measure(name, subject, corpus, options.vocab_size, options.rounds) for corpus in texts]
        header = ["text", "digest", "tokenmill", *subject.installed_peers, "spread"]
        print(report.table(header, [row for _, row in measured]) + "\n")
        measurements += [measurement for measurement, _ in measured]
    if options.save:
        print(f"raw samples: {report.save('train', facts, measurements)}")
    return int(any(not equal for measurement in measurements for equal in measurement["equal"].values()))


def measure(
    name: str, subject: Subject, corpus: corpora.Corpus, vocab_size: int, rounds: int
) -> tuple[dict[str, Any], list[str]]:
    """Compares, then times; returns the raw samples and a row of the table."""
    installed = subject.installed_peers
    candidates: dict[str, Callable[[], object]] = {"tokenmill": lambda: subject.ours(corpus.texts, vocab_size)}
    candidates["tokenmill"]()  # compiles
    equal, shares = {}, {}
    for peer_name, peer in installed.items():
        theirs, expected = peer.train(corpus.texts, vocab_size), peer.expected(corpus.texts, vocab_size)
        equal[peer_name], shares[peer_name] = peer.agrees(theirs, expected)
        if equal[peer_name]:
            candidates[peer_name] = lambda peer=peer: peer.train(corpus.texts, vocab_size)  # type: ignore[misc]
        else:
            counts = f"{len(expected)} tokens here, {len(theirs)} there, {shares[peer_name]:.2%} shared"
            print(f"{corpus.name}: the vocabulary of {peer_name} differs: {counts}", file=sys.stderr)
    timings = timing.interleave(candidates, rounds=rounds)
    ours = timings["tokenmill"]
    cells = [f"{ours.median:.2f}"]
    for peer_name in installed:
        if equal[peer_name]:
            cells.append(f"{timings[peer_name].median:.2f} ({ours.times_faster_than(timings[peer_name]):.1f}x)")
        else:
            cells.append("differs")
    measurement = {"subject": name, "corpus": corpus.name, "digest": corpus.digest, "vocab_size": vocab_size}
    measurement |= {"equal": equal, "shared": shares, "seconds": {key: t.seconds for key, t in timings.items()}}
    spread = max(timing.spread for timing in timings.values())
    return measurement, [corpus.name, corpus.digest, *cells, f"{spread:.0%}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
