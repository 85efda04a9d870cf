# SPDX-License-Identifier: Apache-2.0
"""The commands that need only tokenizers: `tokenmill convert`, and `compare`, whose work `comparing` does."""

import argparse
import re
import sys
from typing import Any

from tokenmill.pipeline.commands.arguments import file_path, integer, natural, set_command, tokenizer_path
from tokenmill.pipeline.commands.reporting import DONE, mistakes, print_json, say

_WIDTH = 140
"""Width in characters of tables that go to a file or pipe."""


def add_parsers(commands: Any) -> None:
    """Adds these to the commands of a parser."""
    convert = commands.add_parser(
        "convert",
        help="write a tokenizer in another format",
        description="Reads a tokenizer of any kind and writes it as the name of the new file says: vocab.txt, "
        "vocab.json (merges.txt beside it), *.model, *.tiktoken, else tokenizer.json; or as --to says. A "
        "format that cannot hold the tokenizer is refused; what else a file leaves out is said before it is written.",
    )
    convert.add_argument(
        "source", type=tokenizer_path, metavar="TOKENIZER", help="a file, or a folder as transformers saves it"
    )
    convert.add_argument("target", type=file_path, metavar="FILE", help="the file to write")
    convert.add_argument(
        "--to", metavar="FORMAT", help="tokenizer.json, vocab.txt, vocab.json, sentencepiece or tiktoken"
    )
    convert.add_argument("--pattern", help="for tiktoken's ranks: the pattern that splits text, or its name")
    convert.add_argument("--as-class", metavar="NAME", help="the class of transformers that reads the files")
    set_command(convert, _convert, "which tokenizer was written where")

    compare = commands.add_parser(
        "compare",
        help="compare tokenizers of any format on a corpus, or on word counts",
        description="Compares tokenizers with the first of them. All numbers are diagnostics: they say how text is "
        "cut, not how well a model learns from it.",
    )
    compare.add_argument(
        "tokenizers",
        nargs="+",
        type=tokenizer_path,
        metavar="TOKENIZER",
        help="two or more, files or folders; with --sizes one is enough; FILE@1.0 and FILE@0.23 have the ids of that "
        "version of HF tokenizers",
    )
    compare.add_argument(
        "--on", nargs="+", type=file_path, metavar="CORPUS|COUNTS",
        help="files, folders or globs of a corpus; or a folder with word counts; without it: every code point, for "
        "tokenizers with one vocabulary",
    )  # fmt: skip
    compare.add_argument(
        "--max-bytes", type=natural, default=50_000_000, metavar="N",
        help="text to read, about the same from the beginning of every file (50000000); 0: all",
    )  # fmt: skip
    compare.add_argument("--text-field", default="text", metavar="NAME", help="field that holds the text (text)")
    compare.add_argument(
        "--lang-field", metavar="NAME", help="field with the language; without it, languages are identified"
    )
    compare.add_argument(
        "--parallel", metavar="LANGUAGE", help="every language has the documents of this one, translated: adds parity"
    )
    compare.add_argument(
        "--sizes", type=_sizes, default=[], metavar="N,N,...",
        help="compare each tokenizer, which must be BPE, with itself at these vocabulary sizes, as in 8k,16k (k: 1000)",
    )  # fmt: skip
    compare.add_argument("--speed", action="store_true", help="measure how long loading and encoding take, too")
    compare.add_argument(
        "--html", type=file_path, metavar="FILE", help="also write everything as a page that opens offline"
    )
    set_command(compare, _compare, "all of it")


def _compare(options: argparse.Namespace) -> int:
    from tokenmill.pipeline import storage
    from tokenmill.pipeline.comparing import page
    from tokenmill.pipeline.comparing.comparison import compare

    if options.on is None:
        return _compare_code_points(options)
    with mistakes():
        report = compare(
            options.tokenizers, options.on, sizes=options.sizes, text_field=options.text_field,
            lang_field=options.lang_field, max_bytes=options.max_bytes, parallel=options.parallel, speed=options.speed,
        )  # fmt: skip
        if options.html is not None:
            storage.write_atomic(options.html, page.page(report).encode("utf-8"))
    if options.json:
        print_json(report)
    else:
        _print(report)
    return DONE


def _compare_code_points(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.comparing import loading
    from tokenmill.pipeline.comparing.comparison import code_point_lines, compare_code_points

    with mistakes():
        needing = ("text_field", "lang_field", "parallel", "sizes", "speed", "html")
        for name in needing:
            if getattr(options, name) not in (None, [], False, "text"):
                raise ValueError(f"--{name.replace('_', '-')}: needs --on, a corpus or word counts")
        report = compare_code_points(loading.load(options.tokenizers))
    if options.json:
        print_json(report)
    else:
        for line in code_point_lines(report):
            print(line)
    return DONE


def _sizes(text: str) -> list[int]:
    if not re.fullmatch(r"\d+k?(,\d+k?)*", text):
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, as in 8k,16k, got {text!r}")
    return [integer(1, 10_000_000)(each.replace("k", "000")) for each in text.split(",")]


def _print(report: Any) -> None:
    from tokenmill.pipeline.comparing import page
    from tokenmill.pipeline.running.terminal import Terminal

    console = Terminal(sys.stdout, width=None if sys.stdout.isatty() else _WIDTH)
    for part in page.tables(report):
        console.print(part, soft_wrap=isinstance(part, str))


def _convert(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import Tokenizer

    with mistakes():
        tokenizer = Tokenizer.from_file(options.source, pattern=options.pattern, as_class=options.as_class)
        left_out = tokenizer.left_out(options.target, format=options.to)
        for what in left_out:
            say(f"{options.target} does not hold {what}")
        tokenizer.save(options.target, format=options.to)
    if options.json:
        said = {"source": options.source, "target": options.target, "left_out": left_out}
        print_json(said | {"digest": tokenizer.digest, "vocab_size": tokenizer.n_ids})
    return DONE
