# SPDX-License-Identifier: Apache-2.0
"""Measures calls with strings: one text, 32 or 2,000 of them, to ids alone and with offsets; by GPT-2's tokenizer.

Beside `tokenizers` and tiktoken, and gigatoken where it is installed. The ids of all are compared before anything is
timed. Microseconds of processor time per call, medians of interleaved rounds.
"""

import argparse
import functools
import importlib
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import tiktoken
import tokenizers as hf

from benchmarks import corpora, report, tokenizers
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GOALS = {("ids", 1): 10.0, ("ids", 32): 100.0, ("offsets", 1): 30.0, ("offsets", 32): 300.0}
"""Microseconds that a call with texts of 100 bytes may take."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench calls", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--save", action="store_true", help="keep the raw samples under benchmarks/results/")
    options = parser.parse_args(arguments)
    shared = corpora.shared_folder()
    if shared is None:
        print("nothing to measure: needs the vocabularies in the folder that TOKENMILL_SHARED names")
        return 1
    facts = report.machine() | report.versions("tokenmill", "tokenizers", "tiktoken", "gigatoken", "numba")
    print(report.describe(facts))
    ours = tokenizers.load_gpt2(shared / "vocab")
    theirs = hf.Tokenizer.from_str(ours.to_str())
    ranks = {bytes(BYTE_ALPHABET.index(c) for c in text): i for text, i in ours.get_vocab(False).items()}
    ranks.pop(b"<|endoftext|>", None)
    openai = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    ids: dict[str, Callable[[list[str]], Any]] = {
        "tokenmill": lambda texts: [each.ids for each in ours.encode_batch(texts)],
        "tokenmill, column": lambda texts: ours.encode_arrow(pa.array(texts)),
        "tokenizers": lambda texts: [each.ids for each in theirs.encode_batch(texts)],
        "tiktoken": lambda texts: [openai.encode_ordinary(text) for text in texts],
    }
    offsets: dict[str, Callable[[list[str]], Any]] = {
        "tokenmill": lambda texts: [each.offsets for each in ours.encode_batch(texts)],
        "tokenizers": lambda texts: [each.offsets for each in theirs.encode_batch(texts)],
    }
    one: dict[str, Callable[[list[str]], Any]] = {
        "tokenmill": lambda texts: [ours.encode(texts[0]).ids],
        "tokenizers": lambda texts: [theirs.encode(texts[0]).ids],
        "tiktoken": lambda texts: [openai.encode_ordinary(texts[0])],
    }
    words = next(corpus for corpus in corpora.load() if corpus.name == "english").texts
    text = " ".join(itertools.islice((text for text in words if text), 3000))
    samples: dict[str, list[float]] = {}
    for n, size in itertools.product((1, 32, 2000), (20, 100, 2000)):
        step = max(1, (len(text) - size) // n)
        texts = [text[i : i + size] for i in range(0, step * n, step)]
        for what, functions in (("ids", one if n == 1 else ids), ("offsets", offsets)):
            if what == "offsets" and n * size > 200_000:
                continue  # seconds for each call
            found = {name: [list(each) for each in _values(call(texts))] for name, call in functions.items()}
            if len({repr(each) for each in found.values()}) > 1:
                print(f"{what} of {n} texts of {size} bytes differ, so nothing is measured")
                return 1
            calls = {name: functools.partial(call, texts) for name, call in functions.items()}
            times = _measure(calls, options.rounds)
            goal = f"   {GOALS[what, n]:g} wanted" if size == 100 and (what, n) in GOALS else ""
            listed = ", ".join(f"{name} {statistics.median(each):,.1f}" for name, each in times.items())
            print(f"{n:5} x {size:4} bytes, {what:7} µs: {listed}{goal}", flush=True)
            samples |= {f"{what} {n} x {size} {name}": each for name, each in times.items()}
    if options.save:
        print(f"saved {report.save('calls', facts, [samples])}")
    return 0


def _values(found: Any) -> Any:
    return found.to_pylist() if isinstance(found, pa.Array) else found


def _measure(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Returns microseconds of processor time per call, a sample for each round."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _, (name, call) in itertools.product(range(rounds), calls.items()):
        n, began = 0, time.process_time()
        while (passed := time.process_time() - began) < 0.02 or n == 0:
            call()
            n += 1
        samples[name].append(passed / n * 1e6)
    return samples


if __name__ == "__main__":
    import sys

    sys.exit(importlib.import_module("benchmarks.calls").main(sys.argv[1:]))
