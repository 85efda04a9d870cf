# SPDX-License-Identifier: Apache-2.0
"""`tokenmill workers`: serves workers to a runner elsewhere."""

import argparse
import json
from typing import Any

from tokenmill.pipeline.commands.arguments import integer, set_command
from tokenmill.pipeline.commands.reporting import DONE, mistakes


def add_parsers(commands: Any) -> None:
    """Adds the command to the commands of a parser."""
    workers = commands.add_parser("workers", help="serve workers to a runner elsewhere: --environment_type=EXTERNAL")
    workers.add_argument("--host", default="localhost", help="address to listen on; whoever reaches it can run code")
    workers.add_argument(
        "--port", type=integer(0, 65535), default=50000, metavar="N", help="port (50000); 0: a free one"
    )
    set_command(workers, _workers, "the address that it listens on")


def _workers(options: argparse.Namespace) -> int:
    def told(host: str, port: int) -> None:
        print(json.dumps({"host": host, "port": port}) if options.json else f"{host}:{port}", flush=True)

    from tokenmill.pipeline.running.external_workers import serve

    with mistakes():
        serve(options.host, options.port, told, debug=options.debug)
    return DONE
