# SPDX-License-Identifier: Apache-2.0
"""The command that needs only a tokenizer: `tokenmill convert`."""

import argparse
from typing import Any

from tokenmill.pipeline.commands.arguments import file_path, set_command
from tokenmill.pipeline.commands.reporting import DONE, mistakes, print_json, say


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    convert = commands.add_parser(
        "convert",
        help="write a tokenizer in another format",
        description="Reads a tokenizer of any kind and writes it as the name of the new file says: vocab.txt, "
        "vocab.json (merges.txt beside it), *.model, *.tiktoken, *.gz (CLIP), else tokenizer.json; or as --to says. A "
        "format that cannot hold the tokenizer is refused; what else a file leaves out is said before it is written.",
    )
    convert.add_argument(
        "source", type=file_path, metavar="TOKENIZER", help="a file, or a folder as transformers saves it"
    )
    convert.add_argument("target", type=file_path, metavar="FILE", help="the file to write")
    convert.add_argument(
        "--to", metavar="FORMAT", help="tokenizer.json, vocab.txt, vocab.json, sentencepiece, tiktoken or clip"
    )
    convert.add_argument("--pattern", help="for tiktoken's ranks: the pattern that splits text, or its name")
    convert.add_argument("--as-class", metavar="NAME", help="the class of transformers that reads the files")
    set_command(convert, _convert, "which tokenizer was written where")


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
