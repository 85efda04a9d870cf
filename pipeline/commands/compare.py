# SPDX-License-Identifier: Apache-2.0
"""`tokenmill compare`: tokenizers against one another. `comparing` does the work."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.commands.arguments import natural
from pipeline.commands.reporting import DONE, mistakes

if TYPE_CHECKING:
    from pipeline.comparing.loading import Candidate


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
    compare.add_argument("--json", action="store_true", help="print all of it as JSON")
    compare.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    from pipeline.comparing import loading

    with mistakes():
        candidates = loading.load(options.tokenizers)
        report = _measure(options, candidates)
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=1))
    else:
        _print(report)
    return DONE


def _measure(options: argparse.Namespace, candidates: "Sequence[Candidate]") -> dict[str, Any]:
    from pipeline.comparing import from_counts, from_text, reading
    from pipeline.counting import counts

    are_counts = [counts.is_counts(path) for path in options.on]
    if not any(are_counts):
        corpus = reading.Corpus(options.on, options.text_field, options.lang_field, options.max_bytes)
        return from_text.compare(candidates, corpus, options.parallel)
    if len(options.on) > 1:
        raise ValueError(
            "--on: takes a corpus, or one folder with word counts; `tokenmill counts merge` adds counts up"
        )
    given = [name for name in ("lang_field", "parallel") if getattr(options, name) is not None]
    if given:
        raise ValueError(f"--{given[0].replace('_', '-')}: is for texts, and {options.on[0]!r} holds word counts")
    return from_counts.compare(candidates, counts.open_counts(options.on[0]))


def _print(report: Any) -> None:
    from rich.console import Console

    from pipeline.comparing import tables

    console = Console(highlight=False)
    for part in tables.render(report):
        console.print(part, soft_wrap=isinstance(part, str), markup=False)
