# SPDX-License-Identifier: Apache-2.0
"""Measures calls with strings: one text, 32 or 2,000 of them, to ids alone and with offsets.

GPT-2's tokenizer beside `tokenizers` 0.23, tiktoken, gigatoken, snaptokens and fastokens; BERT's beside `tokenizers`
and nanotoken. `TOKENMILL_TOKENIZERS_1` names a Python that has `tokenizers` 1.0, which runs in a process of its own.
The ids of all are compared before anything is timed. Microseconds of processor time per call, medians of interleaved
rounds.
"""

import contextlib
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import tokenizers as hf

from benchmarks import corpora, peers, report, tokenizers
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET

GOALS = {("ids", 1): 10.0, ("ids", 32): 100.0, ("offsets", 1): 15.0, ("offsets", 32): 150.0}
"""Microseconds that a call with texts of 100 bytes may take, by GPT-2's tokenizer."""
SECONDS = 0.02
"""How long a sample takes at least."""
NEWER = "tokenizers 1.0"
_SERVER = """
import json, sys, time
import tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
print(tokenizers.__version__, flush=True)
for line in sys.stdin:
    texts, seconds = json.loads(line)
    if len(texts) == 1:
        call = lambda: [tokenizer.encode(texts[0], add_special_tokens=False)]
    else:
        call = lambda: tokenizer.encode_batch(texts, add_special_tokens=False)
    n, passed, began = 0, 0.0, time.process_time()
    while passed < seconds or n == 0:
        found = [getattr(each, "ids", each) for each in call()]
        n, passed = n + 1, time.process_time() - began
    print(json.dumps([[] if seconds else [list(map(int, ids)) for ids in found], passed / n * 1e6]), flush=True)
"""
Calls = dict[str, Callable[[Sequence[str]], Any]]


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("small", __doc__, rounds=5)
    options = parser.parse_args(arguments)
    vocab = corpora.vocabularies()
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")  # before the first batch
    print(
        report.describe(
            "tokenmill", "tokenizers", "tiktoken", "gigatoken", "snaptokens", "fastokens", "nanotoken", "numba"
        )
    )
    gpt2, bert = tokenizers.load_gpt2(vocab), Tokenizer.from_file(vocab / "bert-base-uncased.txt")
    ranks = {bytes(BYTE_ALPHABET.index(c) for c in token): i for token, i in gpt2.get_vocab(False).items()}
    ranks.pop(b"<|endoftext|>", None)
    words = next(corpus for corpus in corpora.load() if corpus.name == "english").texts
    text = " ".join(itertools.islice((text for text in words if text), 3000))
    subjects = [
        ("GPT-2", gpt2, peers.for_byte_level_bpe(gpt2.to_str(), ranks)),
        ("BERT", bert, peers.for_wordpiece(bert.to_str())),
    ]
    for name, tokenizer, others in subjects:
        with contextlib.ExitStack() as stack:
            newer = stack.enter_context(_newer(tokenizer))
            if newer is not None:
                print(f"{name}: {newer.name} as {NEWER}")
            _measure_all(name, tokenizer, others, newer, text, options.rounds)
    return 0


def _measure_all(
    name: str, ours: Tokenizer, others: dict[str, peers.Peer], newer: "_Newer | None", text: str, rounds: int
) -> None:
    theirs = hf.Tokenizer.from_str(peers.for_peers(ours.to_str()))
    ids = {
        "tokenmill": lambda texts: [each.ids for each in ours.encode_batch(texts, add_special_tokens=False)],
        "column": lambda texts: ours.encode_arrow(pa.array(texts)),
        "list as column": ours.encode_arrow,
        "tokenizers": lambda texts: [each.ids for each in theirs.encode_batch(texts, add_special_tokens=False)],
    }
    one = {
        "tokenmill": lambda texts: [ours.encode(texts[0], add_special_tokens=False).ids],
        "tokenizers": lambda texts: [theirs.encode(texts[0], add_special_tokens=False).ids],
    }
    offsets = {
        "tokenmill": lambda texts: [each.offsets for each in ours.encode_batch(texts, add_special_tokens=False)],
        "tokenizers": lambda texts: [each.offsets for each in theirs.encode_batch(texts, add_special_tokens=False)],
    }
    to_ids = {peer: each.to_ids for peer, each in others.items() if peer != "tokenizers"}
    more = {peer: each.load() for peer, each in others.items() if peer != "tokenizers"}
    for n, size in itertools.product((1, 32, 2000), (20, 100, 2000)):
        step = max(1, (len(text) - size) // n)
        texts = [text[i : i + size] for i in range(0, step * n, step)]
        for what, functions in (("ids", (one if n == 1 else ids) | more), ("offsets", offsets)):
            if n * size > 200_000 and what == "offsets":
                continue  # seconds for each call
            found = {peer: _listed(call(texts), to_ids.get(peer)) for peer, call in functions.items()}
            if newer is not None and what == "ids":
                found[NEWER] = newer.run(texts, 0)[0]
            wrong = [peer for peer, each in found.items() if each != found["tokenmill"]]
            for peer in wrong:
                print(f"{name}, {what} of {n} texts of {size} bytes: {peer} has others, and is not measured")
            calls: dict[str, Callable[[], float]] = {
                peer: functools.partial(_sample, call, texts) for peer, call in functions.items() if peer not in wrong
            }
            if NEWER in found and NEWER not in wrong and newer is not None:
                calls[NEWER] = functools.partial(lambda newer, texts: newer.run(texts, SECONDS)[1], newer, texts)
            times: dict[str, list[float]] = {peer: [] for peer in calls}
            for _, (peer, sample) in itertools.product(range(rounds), calls.items()):
                times[peer].append(sample())
            goal = f"   {GOALS[what, n]:g} wanted" if (name, size) == ("GPT-2", 100) and (what, n) in GOALS else ""
            listed = ", ".join(f"{peer} {statistics.median(each):,.1f}" for peer, each in times.items())
            print(f"{name:5} {n:5} x {size:4} bytes, {what:7} µs: {listed}{goal}", flush=True)


def _listed(found: Any, to_ids: Callable[[Any], list[list[int]]] | None) -> list[list[Any]]:
    if to_ids is not None:
        return list(map(list, to_ids(found)))
    return [list(each) for each in (found.to_pylist() if isinstance(found, pa.Array) else found)]


def _sample(call: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> float:
    """Returns microseconds of processor time per call."""
    n, passed, began = 0, 0.0, time.process_time()
    while passed < SECONDS or n == 0:
        call(texts)
        n, passed = n + 1, time.process_time() - began
    return passed / n * 1e6


class _Newer:
    """`tokenizers` 1.0 in another process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked, self._answers = process.stdin, process.stdout
        self.name = f"tokenizers {self._answers.readline().strip()}"

    def run(self, texts: Sequence[str], seconds: float) -> tuple[list[list[int]], float]:
        """Encodes texts for so many seconds; returns their ids, if that is 0, and microseconds per call."""
        print(json.dumps([texts, seconds]), file=self._asked, flush=True)
        ids, microseconds = json.loads(self._answers.readline())
        return ids, microseconds


@contextlib.contextmanager
def _newer(tokenizer: Tokenizer) -> Iterator[_Newer | None]:
    python = os.environ.get("TOKENMILL_TOKENIZERS_1")
    if python is None:
        print("TOKENMILL_TOKENIZERS_1 names no Python with tokenizers 1.0, so that is not measured")
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as folder:
        path = Path(folder, "tokenizer.json")
        path.write_text(peers.for_peers(tokenizer.to_str()), encoding="utf-8")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with subprocess.Popen(
            [python, "-c", _SERVER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            try:
                yield _Newer(process)
            finally:
                assert process.stdin is not None
                process.stdin.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
