# SPDX-License-Identifier: Apache-2.0
"""Encoding behind each hand-written scanner against the same pattern without it, in MB/s of processor time.

The model is GPT-2's, or, without the larger data folder, WordPiece trained on the spot. A scanner is chosen by the
spelling of a pattern; a group around the pattern means the same, but is run as an automaton. The ids are compared
before anything is timed. If they differ there is no number, and the exit code is 1.
"""

import argparse
import statistics
import sys
import time
from typing import Any

import pyarrow as pa

from benchmarks import corpora, report, tokenizers
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.pre_tokenizers.scanner_patterns import PATTERNS

_WORDS: dict[str, tuple[dict[str, Any], str]] = {
    "nonspace": ({"type": "WhitespaceSplit"}, r"\S+"),
    "unicode_words": ({"type": "Whitespace"}, r"\w+|[^\w\s]+"),
}
"""Scanners of other steps, and a pattern that does the same."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench scanners", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mb", type=float, default=8, help="use this many MB of each corpus (default 8)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these scanners")
    options = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    print(report.describe(report.machine() | report.versions("tokenmill", "numba", "numpy", "pyarrow")))
    print("one thread, MB/s of processor time, medians of interleaved rounds: scanner / without it (quotient)\n")
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load() if corpus.name != "multilingual"]
    shared = corpora.shared_folder()
    model = tokenizers.trained(texts) if shared is None else tokenizers.load_gpt2(shared / "vocab")
    rows, equal = [], True
    for name, pair in pairs().items():
        if options.only is None or name in options.only:
            cells = [compare(model, pair, corpus, options.rounds) for corpus in texts]
            equal &= "differ" not in cells
            rows.append([name, *cells])
    print(report.table(["scanner", *(corpus.name for corpus in texts)], rows))
    return int(not equal)


def pairs() -> dict[str, tuple[list[Any], list[Any]]]:
    """Returns the steps of a pre-tokenizer with each scanner, and steps that cut the same without it."""
    found = {}
    for pattern, name in PATTERNS.items():
        keeps = {"behavior": "Removed", "invert": True} if name == "clip" else {}
        found.setdefault(name, ([_split(pattern, **keeps)], [_split(f"(?:{pattern})", **keeps)]))
    for name, (step, pattern) in _WORDS.items():
        found[name] = [step], [_split(pattern, behavior="Removed", invert=True)]
    return found


def _split(pattern: str, *, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def compare(model: Tokenizer, pair: tuple[list[Any], list[Any]], corpus: corpora.Corpus, rounds: int) -> str:
    """Returns the speeds of one model behind two pre-tokenizers, and their quotient."""
    column = pa.array(corpus.texts, pa.large_string())
    both = [Tokenizer.from_str(tokenizers.behind(model, steps)) for steps in pair]
    if both[0].encode_arrow(column) != both[1].encode_arrow(column):
        return "differ"
    samples: list[list[float]] = [[], []]
    for _ in range(rounds):
        for tok, seconds in zip(both, samples, strict=True):
            started = time.thread_time()
            tok.encode_arrow(column)
            seconds.append(time.thread_time() - started)
    fast, slow = (corpus.n_bytes / statistics.median(seconds) / 1e6 for seconds in samples)
    return f"{fast:.0f} / {slow:.0f} ({fast / slow:.2f})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
