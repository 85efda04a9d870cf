# SPDX-License-Identifier: Apache-2.0
"""What editors and shells ask: `tokenmill schema`, what may be in a config, and `completion`, a script by shtab."""

import argparse
import json
from typing import Any

from tokenmill.pipeline.commands.arguments import set_command
from tokenmill.pipeline.commands.reporting import DONE

SHELLS = ("bash", "zsh", "fish")


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    schema = commands.add_parser("schema", help="print the JSON Schema of a config, for editors, or of stats.json")
    schema.add_argument("file", nargs="?", choices=["config", "stats"], default="config", help="of which file (config)")
    set_command(schema, _schema, "it, as ever,")

    completion = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete commands and options",
        description='Prints a script for a shell to load: `eval "$(tokenmill completion bash)"`, the same with zsh, '
        "and `tokenmill completion fish | source`.",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")
    set_command(completion, _completion, "the script, and for which shell it is,")


def _schema(options: argparse.Namespace) -> int:
    if options.file == "stats":
        from tokenmill.pipeline.reporting.stats_file import json_schema
    else:
        from tokenmill.pipeline.config.job import json_schema

    print(json.dumps(json_schema(), indent=2))
    return DONE


def _completion(options: argparse.Namespace) -> int:
    import shtab

    script = shtab.complete(options.parser, options.shell)
    print(json.dumps({"shell": options.shell, "script": script}) if options.json else script)
    return DONE
