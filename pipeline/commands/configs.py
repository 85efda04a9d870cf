# SPDX-License-Identifier: Apache-2.0
"""The commands that need only a config: `tokenmill fidelity` and `schema`."""

import argparse
import sys
from typing import Any

from tokenmill.pipeline.commands.arguments import add_output, add_set, file_path, positive
from tokenmill.pipeline.commands.reporting import DONE, mistakes


def add_parsers(commands: Any) -> None:
    """Adds these to the commands of a parser."""
    fidelity = commands.add_parser("fidelity", help="measure what steps, tokenizer and OOV policy lose of the input")
    fidelity.add_argument("config", type=file_path, metavar="CONFIG", help="a YAML file with tokenizer.file")
    add_set(fidelity)
    fidelity.add_argument("--documents", type=positive, default=1000, metavar="N", help="at most this many (1000)")
    add_output(fidelity, "all of it")
    fidelity.set_defaults(command=_fidelity)

    schema = commands.add_parser("schema", help="print the JSON Schema of a config, for editors, or of stats.json")
    schema.add_argument("file", nargs="?", choices=["config", "stats"], default="config", help="of which file (config)")
    add_output(schema, "it, as ever,")
    schema.set_defaults(command=_schema)


def _fidelity(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.books import ledger
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.reporting import fidelity

    with mistakes():
        config = load_config(options.config, options.overrides, "tokenize")
        if config.tokenizer.file is None:
            raise ValueError("output.parts.tokenizers: fidelity takes one tokenizer; choose it by output.parts.only")
        if config.input.is_chat:
            raise ValueError(
                "input.messages_field: fidelity compares texts; `tokenmill chat check` looks at conversations"
            )
        report = fidelity.measure(config, options.documents)
    if options.json:
        sys.stdout.write(ledger.to_json(report).decode())
        return DONE
    from tokenmill.pipeline.running.terminal import Terminal

    console = Terminal(sys.stdout)
    for part in fidelity.render(report):
        console.print(part, soft_wrap=isinstance(part, str))
    return DONE


def _schema(options: argparse.Namespace) -> int:
    import json

    if options.file == "stats":
        from tokenmill.pipeline.reporting.stats_file import json_schema
    else:
        from tokenmill.pipeline.config.job import json_schema

    print(json.dumps(json_schema(), indent=2))
    return DONE
