# SPDX-License-Identifier: Apache-2.0
"""`tokenmill report`: writes the report of a finished job. `reporting` does the work."""

import argparse
from typing import Any

from tokenmill.pipeline.commands.arguments import add_target, set_command
from tokenmill.pipeline.commands.reporting import DONE, mistakes, print_json
from tokenmill.pipeline.commands.results import find_output, say_owner


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    report = commands.add_parser(
        "report",
        help="write report.html, what a finished job did as one page",
        description="Writes report.html into the output folder: one page that opens offline, and prints where it is.",
    )
    add_target(report)
    set_command(report, _report, "what the page says")


def _report(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.books.parts import folders_of
    from tokenmill.pipeline.reporting import facts, page

    with mistakes():
        output, _ = find_output(options.target, options.overrides)
        say_owner(output)
        if options.json:
            print_json(facts.gather(output))
        else:
            for folder in folders_of(output):
                print(page.draw(folder))
    return DONE
