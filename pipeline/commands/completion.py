# SPDX-License-Identifier: Apache-2.0
"""`tokenmill completion`: a script, written by shtab, that lets a shell complete commands and options."""

import argparse
import json
from typing import Any

from tokenmill.pipeline.commands.arguments import set_command
from tokenmill.pipeline.commands.reporting import DONE

SHELLS = ("bash", "zsh", "fish")


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    completion = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete commands and options",
        description='Prints a script for a shell to load: `eval "$(tokenmill completion bash)"`, the same with zsh, '
        "and `tokenmill completion fish | source`.",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")
    set_command(completion, _completion, "the script, and for which shell it is,")


def _completion(options: argparse.Namespace) -> int:
    import shtab

    script = shtab.complete(options.parser, options.shell)
    print(json.dumps({"shell": options.shell, "script": script}) if options.json else script)
    return DONE
