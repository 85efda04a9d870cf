# SPDX-License-Identifier: Apache-2.0
"""Measures what a document costs in a Beam pipeline of a user's own: as rows, as Arrow batches, and by `beam.Map`.

All tokenize the same documents of about a kilobyte with GPT-2's tokenizer, on the local runner with one worker. The ids
of all are compared first. Rows with a second output for what cannot be used are measured without, with some and with
nothing but nulls. What the pipeline costs without tokenizing is printed, too, and is part of every figure.
"""

import functools
import hashlib
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tokenizers as hf

from benchmarks import corpora, report, tokenizers
from tokenmill import Tokenize
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.tokenizer import Tokenizer

DOCUMENT_BYTES = 1000
BATCH_ROWS = 4096
WANTED = {
    "batches / rows, NumPy ids": 0.5,
    "batches / rows, lists": 0.5,
    "beam.Map / rows, NumPy ids": 20.0,
    "beam.Map / rows, lists": 20.0,
    "10 % bad / none": 1.3,
}

_BAD = (0, 1, 10, 100)
"""Percentages of rows without a text."""

_texts: list[str] = []
_hf: dict[str, Any] = {}
_seen: list[int] = [0]


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("beam", __doc__, rounds=5)
    parser.add_argument("--mb", type=float, default=50, help="size of the input of our steps (default 50)")
    parser.add_argument("--peer-mb", type=float, default=2, help="size of the input of beam.Map (default 2)")
    parser.add_argument("--corpus", help="only this one of the corpora, for example english; default: as much of each")
    options = parser.parse_args(arguments)
    vocab = corpora.vocabularies()
    tokenizer = tokenizers.load_gpt2(vocab)
    _hf["gpt2"] = hf.Tokenizer.from_str(tokenizer.to_str())
    print(report.describe("tokenmill", "apache-beam", "tokenizers", "pyarrow", "numba"))
    texts = _documents(int(options.mb * 1e6), options.corpus)
    peer = texts[: max(1, int(options.peer_mb * 1e6 / DOCUMENT_BYTES))]
    if not _same_ids(peer, tokenizer):
        print("the ids differ, so nothing is measured")
        return 1
    print(f"ids of {len(peer):,} documents are equal; processor time, medians of {options.rounds} rounds\n")
    samples: dict[str, list[float]] = {}
    for round_number in range(-1, options.rounds):
        for name, (build, given) in _pipelines(tokenizer, texts, peer).items():
            seconds = _seconds(build, given)
            if round_number >= 0:
                samples.setdefault(name, []).append(seconds / len(given) * 1e6)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    for name, microseconds in medians.items():
        print(f"{name:24} {microseconds:8.2f} µs a document")
    ratios = {
        "batches / rows, NumPy ids": medians["batches"] / medians["rows, NumPy ids"],
        "batches / rows, lists": medians["batches"] / medians["rows, lists"],
        "beam.Map / rows, NumPy ids": medians["beam.Map, tokenizers"] / medians["rows, NumPy ids"],
        "beam.Map / rows, lists": medians["beam.Map, tokenizers"] / medians["rows, lists"],
        **{f"{n} % bad / none": medians[f"rows, {n} % bad"] / medians["rows, 0 % bad"] for n in _BAD[1:]},
    }
    print()
    for name, ratio in ratios.items():
        wanted = f"{WANTED[name]:g} wanted" if name in WANTED else ""
        print(f"{name:28} {ratio:8.2f}   {wanted}")
    return 0


def _documents(n_bytes: int, name: str | None) -> list[str]:
    """Returns real text in pieces of about a kilobyte, as much of every corpus, none of them twice."""
    found = [corpus for corpus in corpora.load() if name in (None, corpus.name)]
    if not found:
        raise SystemExit(f"--corpus {name}: there are {', '.join(corpus.name for corpus in corpora.load())}")
    pieces: list[str] = []
    for corpus in found:
        n = n_bytes // len(found) // DOCUMENT_BYTES
        data = b"\n".join(text.encode() for text in corpus.texts)
        cut = (data[i : i + DOCUMENT_BYTES] for i in range(0, min(len(data), n * DOCUMENT_BYTES), DOCUMENT_BYTES))
        pieces += [piece.decode(errors="ignore") for piece in cut]
    random.Random(3).shuffle(pieces)
    return pieces


Build = Callable[[beam.Pipeline], Any]


def _pipelines(tokenizer: Tokenizer, texts: list[str], peer: list[str]) -> dict[str, tuple[Build, list[str]]]:
    return {
        "rows alone": (_rows, texts),
        "batches alone": (_batches, texts),
        "batches": (lambda p: _batches(p) | Tokenize(tokenizer), texts),
        "rows, NumPy ids": (lambda p: _rows(p) | Tokenize(tokenizer, as_numpy=True), texts),
        "rows, lists": (lambda p: _rows(p) | Tokenize(tokenizer), texts),
        "beam.Map, tokenizers": (lambda p: _rows(p) | beam.Map(_encode_hf), peer),
        **{f"rows, {percent} % bad": (functools.partial(_some_bad, tokenizer, percent), texts) for percent in _BAD},
    }


def _some_bad(tokenizer: Tokenizer, percent: int, pipeline: beam.Pipeline) -> Any:
    rows = pipeline | beam.Impulse() | beam.FlatMap(_yield_bad_rows, percent).with_output_types(beam.Row)
    return (*(rows | Tokenize(tokenizer).with_exception_handling()),) | beam.Flatten()


def _yield_bad_rows(_: bytes, percent: int) -> Iterator[Any]:
    for i, text in enumerate(_texts):
        yield beam.Row(id=i, text=None if i % 100 < percent else text)


def _rows(pipeline: beam.Pipeline) -> Any:
    made = beam.FlatMap(_yield_rows).with_output_types(beam.Row)
    return pipeline | beam.Impulse() | made


def _yield_rows(_: bytes) -> Iterator[Any]:
    for i, text in enumerate(_texts):
        yield beam.Row(id=i, text=text)


def _batches(pipeline: beam.Pipeline) -> Any:
    return pipeline | beam.Impulse() | beam.FlatMap(_yield_batches).with_output_types(pa.RecordBatch)


def _yield_batches(_: bytes) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(_texts), BATCH_ROWS):
        yield pa.record_batch({"text": pa.array(_texts[start : start + BATCH_ROWS])})


def _encode_hf(row: Any) -> Any:
    return beam.Row(id=row.id, text=row.text, input_ids=_hf["gpt2"].encode(row.text, add_special_tokens=False).ids)


def _seconds(build: Build, texts: list[str]) -> float:
    _texts[:] = texts
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        _ = build(pipeline) | "Sink" >> beam.FlatMap(_drop)
        started = time.process_time()
        pipeline.run()
        return time.process_time() - started


def _drop(_: Any) -> list[Any]:
    return []


_digests: dict[str, Any] = {}


def _same_ids(texts: list[str], tokenizer: Tokenizer) -> bool:
    found = set()
    for name, (build, _) in _pipelines(tokenizer, texts, texts).items():
        if "alone" in name or "bad" in name:
            continue
        _texts[:] = texts
        digest = _digests[name] = hashlib.sha256()
        with open_runner(choose_runner((), mode="inline")) as (runner, options):
            pipeline = beam.Pipeline(runner=runner, options=options)
            _ = build(pipeline) | "Digest" >> beam.Map(_digest, name)
            pipeline.run()
        found.add(digest.hexdigest())
    return len(found) == 1


def _digest(element: Any, name: str) -> None:
    if isinstance(element, pa.RecordBatch):
        rows = element.column("input_ids")
        for row in rows:
            _digests[name].update(row.values.to_numpy().astype(np.int64).tobytes() + b"|")
    else:
        _digests[name].update(np.asarray(element.input_ids, np.int64).tobytes() + b"|")


if __name__ == "__main__":
    import sys

    from benchmarks import beam as this  # the functions are found by their module

    sys.exit(this.main(sys.argv[1:]))
