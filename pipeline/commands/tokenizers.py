# SPDX-License-Identifier: Apache-2.0
"""The command that needs only a tokenizer: `tokenmill convert`."""

import argparse
import json
from typing import Any

from tokenmill.pipeline.commands.arguments import add_output, file_path
from tokenmill.pipeline.commands.reporting import DONE, mistakes


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    convert = commands.add_parser(
        "convert",
        help="write a tokenizer in another format",
        description="Reads a tokenizer of any kind and writes it as the name of the new file says: vocab.txt, "
        "vocab.json (merges.txt beside it), *.model, *.tiktoken, *.gz (CLIP), else tokenizer.json. A format that "
        "cannot hold the tokenizer is refused.",
    )
    convert.add_argument(
        "source", type=file_path, metavar="TOKENIZER", help="a file, or a folder as transformers saves it"
    )
    convert.add_argument("target", type=file_path, metavar="FILE", help="the file to write")
    add_output(convert, "which tokenizer was written where")
    convert.set_defaults(command=_convert)


def _convert(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import Tokenizer

    with mistakes():
        tokenizer = Tokenizer.from_file(options.source)
        tokenizer.save(options.target)
    if options.json:
        said = {"source": options.source, "target": options.target}
        print(json.dumps(said | {"digest": tokenizer.digest, "vocab_size": tokenizer.n_ids}, indent=1))
    return DONE
