# SPDX-License-Identifier: Apache-2.0
"""`tokenmill schema`: what may be in a config, and what is in `stats.json`."""

import argparse
import json
from typing import Any

from tokenmill.pipeline.commands.arguments import set_command
from tokenmill.pipeline.commands.reporting import DONE


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    schema = commands.add_parser("schema", help="print the JSON Schema of a config, for editors, or of stats.json")
    schema.add_argument("file", nargs="?", choices=["config", "stats"], default="config", help="of which file (config)")
    set_command(schema, _schema, "it, as ever,")


def _schema(options: argparse.Namespace) -> int:
    if options.file == "stats":
        from tokenmill.pipeline.reporting.stats_file import json_schema
    else:
        from tokenmill.pipeline.config.job import json_schema

    print(json.dumps(json_schema(), indent=2))
    return DONE
