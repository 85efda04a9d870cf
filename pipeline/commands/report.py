# SPDX-License-Identifier: Apache-2.0
"""`tokenmill report`: writes the report of a finished job. `reporting` does the work."""

import argparse
import json
from typing import Any

from tokenmill.pipeline.commands.arguments import add_output, add_set, file_path
from tokenmill.pipeline.commands.reporting import DONE, mistakes
from tokenmill.pipeline.commands.results import find_output, say_owner


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    report = commands.add_parser(
        "report",
        help="write report.html, what a finished job did as one page",
        description="Writes report.html into the output folder: one page that opens offline, and prints where it is.",
    )
    report.add_argument(
        "target", type=file_path, metavar="FOLDER|CONFIG", help="an output folder, or the config of its job"
    )
    add_set(report)
    add_output(report, "what the page says")
    report.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.books.parts import folders_of
    from tokenmill.pipeline.reporting import facts, page

    with mistakes():
        output = find_output(options)
        say_owner(output)
        if options.json:
            print(json.dumps(facts.gather(output), indent=1, ensure_ascii=False))
        else:
            for folder in folders_of(output):
                print(page.draw(folder))
    return DONE
