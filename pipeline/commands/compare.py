# SPDX-License-Identifier: Apache-2.0
"""`tokenmill compare`: tokenizers against one another. `comparing` does the work."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.commands.arguments import add_output, natural
from pipeline.commands.reporting import DONE, FAILED, mistakes, say

if TYPE_CHECKING:
    from pipeline.comparing.loading import Candidate

_SPEED_BYTES = 8_000_000
"""Text that speed is measured on."""

_WIDTH = 140
"""Of tables that go to a file."""


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    compare = commands.add_parser(
        "compare",
        help="compare tokenizers of any format on a corpus, or on word counts",
        description="Compares tokenizers with the first of them. All numbers are diagnostics: they say how text is "
        "cut, not how well a model learns from it.",
    )
    compare.add_argument("tokenizers", nargs="+", metavar="TOKENIZER", help="two or more, files or folders")
    compare.add_argument(
        "--on", nargs="+", required=True, metavar="CORPUS|COUNTS",
        help="files, folders or globs of a corpus; or a folder with word counts",
    )  # fmt: skip
    compare.add_argument(
        "--max-bytes", type=natural, default=50_000_000, metavar="N",
        help="text to read, about the same from the beginning of every file (50000000); 0: all",
    )  # fmt: skip
    compare.add_argument("--text-field", default="text", metavar="NAME", help="field of JSON lines or Parquet (text)")
    compare.add_argument(
        "--lang-field", metavar="NAME", help="field with the language; without it, languages are identified"
    )
    compare.add_argument(
        "--parallel", metavar="LANGUAGE", help="every language has the documents of this one, translated: adds parity"
    )
    compare.add_argument("--speed", action="store_true", help="measure how long loading and encoding take, too")
    compare.add_argument(
        "--fail-if", action="append", default=[], metavar="CONDITION",
        help="exit with 1 if it holds, as in 'bytes_per_token[de] < 3.8' or 'unknown@new.json > 0'; may be repeated",
    )  # fmt: skip
    compare.add_argument("--html", metavar="FILE", help="write all of it as a page that opens offline, too")
    add_output(compare, "all of it")
    compare.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from pipeline import storage
    from pipeline.comparing import conditions, loading, page

    with mistakes():
        asked = [conditions.parse(text) for text in options.fail_if]
        candidates = loading.load(options.tokenizers)
        report = _measure(options, candidates)
        holding = [line for condition in asked for line in conditions.holding(condition, report)]
        if options.html is not None:
            storage.write_atomic(options.html, page.page(report).encode("utf-8"))
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=1))
    else:
        _print(report)
    for line in holding:
        say(f"--fail-if {line}")
    return FAILED if holding else DONE


def _measure(options: argparse.Namespace, candidates: "Sequence[Candidate]") -> dict[str, Any]:
    from pipeline.comparing import from_counts, from_text, probes, reading
    from pipeline.counting import counts

    if any(counts.is_counts(path) for path in options.on):
        _check_for_counts(options)
        report = from_counts.compare(candidates, counts.open_counts(options.on[0]))
        texts = []
    else:
        corpus = reading.Corpus(options.on, options.text_field, options.lang_field, options.max_bytes)
        report = from_text.compare(candidates, corpus, options.parallel)
        again = dataclasses.replace(corpus, max_bytes=_SPEED_BYTES) if options.speed else None
        texts = [read.table.column("text") for read in again.documents()] if again is not None else []
    if options.speed:
        report["speed"] = probes.speed(candidates, texts)
    return report


def _check_for_counts(options: argparse.Namespace) -> None:
    if len(options.on) > 1:
        raise ValueError(
            "--on: takes a corpus, or one folder with word counts; `tokenmill counts merge` adds counts up"
        )
    given = [name for name in ("lang_field", "parallel") if getattr(options, name) is not None]
    if given:
        raise ValueError(f"--{given[0].replace('_', '-')}: is for texts, and {options.on[0]!r} holds word counts")


def _print(report: Any) -> None:
    from rich.console import Console

    from pipeline.comparing import page

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    for part in page.tables(report):
        console.print(part, soft_wrap=isinstance(part, str), markup=False)
