# SPDX-License-Identifier: Apache-2.0
"""Times text steps and spans, with one thread, in MB/s of processor time; and the cost of a chain from end to end.

Before a step is timed, its result for the beginning of each corpus is compared with its reference, and with the library
that it must agree with, if there is one. If they differ there is no number, and the exit code is 1.
"""

import argparse
import html
import statistics
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ftfy
import pyarrow as pa

from benchmarks import corpora, report, tokenizers
from tests.reference import text_steps as reference
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.normalizers.base import replaced
from tokenmill.tokenizer.ragged import text_rows
from tokenmill.tokenizer.text import SpanRule, TextChain
from tokenmill.tokenizer.text.spans import SpanFinder

STEPS: list[Any] = [
    "default", "nfc", "nfd", "nfkc", "nfkd", "lowercase", "casefold", "control_characters", "zero_width", "bidi",
    "punctuation", "full_width", "tatweel", "ascii_digits", {"strip_accents": "latin-only"}, {"strip_accents": "all"},
    "whitespace", {"whitespace": {"newlines": "space"}}, "repeated_punctuation", "isolate_digits",
    {"emoji": "isolate"}, {"emoji": "describe"}, {"emoji": "drop"}, "html_entities", {"regex": r"\d{3,}"}, "mojibake",
    "ftfy",
]  # fmt: skip
SPANS = [
    SpanRule("[NUM]", find="number"),
    SpanRule("[URL]", find="url"),
    SpanRule("[MAIL]", find="email"),
    SpanRule("[EMOJI]", find="emoji"),
    SpanRule("[REP]", find="repeated"),
    SpanRule("[SPACE]", find="whitespace"),
    SpanRule("[THE]", literal="the"),
    SpanRule("[ISO]", regex=r"\d{4}-\d\d-\d\d"),
]
LIBRARIES: dict[str, Callable[[str], str]] = {
    **{
        form.lower(): lambda text, form=form: unicodedata.normalize(form, text)
        for form in ("NFC", "NFD", "NFKC", "NFKD")
    },
    "casefold": str.casefold,
    "html_entities": html.unescape,
    "ftfy": ftfy.fix_text,
}
SLOW = {"ftfy", "mojibake"}
"""Steps that call ftfy; these are measured on a sixteenth of the text."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench text", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mb", type=float, default=8, help="use this many MB of each corpus (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument(
        "--only",
        metavar="TEXT",
        default="",
        help="only steps and spans with TEXT in their name, and jobs if it is in 'default'",
    )
    options = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    print(report.describe(report.machine() | report.versions("tokenmill", "ftfy", "regex", "numba", "pyarrow")))
    print("one thread, MB/s of processor time, medians; each step alone\n")
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load()]
    rows, equal = [], True
    for config in STEPS:
        if options.only in str(config):
            row, same = measure_step(config, texts, options.rounds)
            rows.append(row)
            equal &= same
    for rule in SPANS:
        if options.only in str(rule):
            row, same = measure_span(rule, texts, options.rounds)
            rows.append(row)
            equal &= same
    print(report.table(["step", *(corpus.name for corpus in texts)], rows))
    if options.only in "default":
        print()
        print(
            report.table(["end to end, MB/s", "without", "default chain", "cost"], measure_jobs(texts, options.rounds))
        )
    return int(not equal)


def measure_step(config: Any, texts: list[corpora.Corpus], rounds: int) -> tuple[list[str], bool]:
    """Returns the row of one step, and whether all answers were right."""
    chain = TextChain.from_config([config])
    cells, equal = [], True
    for corpus in texts:
        corpus = corpus.first(corpus.n_bytes // 16) if str(config) in SLOW else corpus
        column = pa.array(corpus.texts, pa.large_string())
        wrong = first_difference(chain, config, corpus.first(200_000).texts)
        equal &= wrong is None
        cells.append(wrong or f"{corpus.n_bytes / seconds(lambda c=column: chain.apply(c), rounds) / 1e6:.0f}")
    return [str(config), *cells], equal


def first_difference(chain: TextChain, config: Any, texts: tuple[str, ...]) -> str | None:
    """Compares the result of a chain for texts with its reference and its library."""
    after = chain.apply(pa.array(texts, pa.large_string()))[0].to_pylist()
    for i, text in enumerate(texts):
        expected = text
        for step in chain.steps:
            expected = replaced(expected, reference.edits(step, expected))
        library = LIBRARIES.get(config) if isinstance(config, str) else None
        if after[i] != expected or (library is not None and after[i] != library(text)):
            return f"differs in document {i}"
    return None


def measure_span(rule: SpanRule, texts: list[corpora.Corpus], rounds: int) -> tuple[list[str], bool]:
    """Returns the row of one span, and whether all answers were right."""
    finder = SpanFinder([rule])
    cells, equal = [], True
    for corpus in texts:
        sample = corpus.first(200_000).texts
        cut = finder.cut(text_rows(list(sample)))
        n_expected = sum(len(reference.find_spans(finder.rules, text)) for text in sample)
        same = n_expected == (0 if cut is None else len(cut.sources))
        equal &= same
        column = pa.array(corpus.texts, pa.large_string())
        speed = corpus.n_bytes / seconds(lambda c=column: finder.cut(text_rows(c)), rounds) / 1e6
        cells.append(f"{speed:.0f}" if same else "differs")
    return [f"span {rule.find or rule.regex or rule.literal}", *cells], equal


def measure_jobs(texts: list[corpora.Corpus], rounds: int) -> list[list[str]]:
    """Tokenizes each corpus from JSON lines to a Parquet shard, with the default chain and without, in turn."""
    rows = []
    name, tok = next(iter(tokenizers.load(texts)))
    with tempfile.TemporaryDirectory() as folder:
        for corpus in texts:
            paths = corpora.write_jsonl([corpus], Path(folder) / corpus.name, corpus.n_bytes, 1)
            n_bytes = sum(path.stat().st_size for path in paths)
            samples: dict[bool, list[float]] = {False: [], True: []}
            for i in range(2 * rounds + 2):
                output = Path(folder) / f"{corpus.name}-{i}"
                spent = tokenize(paths, output, tok, ["default"] if i % 2 else [])
                if i > 1:  # the first run of each compiles and fills the word cache
                    samples[bool(i % 2)].append(spent)
            without, with_chain = (statistics.median(samples[key]) for key in (False, True))
            speeds = [f"{n_bytes / spent / 1e6:.1f}" for spent in (without, with_chain)]
            rows.append([f"{corpus.name}, {name}", *speeds, f"{100 * (with_chain / without - 1):.1f} %"])
    return rows


def tokenize(paths: list[Path], output: Path, tok: Tokenizer, normalize: list[str]) -> float:
    """Returns the processor time of one split from file to shard."""
    config = Config.model_validate(
        {
            "input": {"paths": [str(path) for path in paths], "split_bytes": 1 << 30},
            "tokenizer": {"file": "given"},
            "output": {"path": str(output)},
            "normalize": normalize,
        }
    )
    (split,) = plan_splits(config.input, "bench")
    started = time.thread_time()
    tokenize_split(split, config, tok, 1)
    return time.thread_time() - started


def seconds(function: Callable[[], object], rounds: int) -> float:
    """Returns the median processor time of a call, after one that is not counted."""
    function()
    samples = []
    for _ in range(rounds):
        started = time.thread_time()
        function()
        samples.append(time.thread_time() - started)
    return max(statistics.median(samples), 1e-9)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
