# SPDX-License-Identifier: Apache-2.0
"""The command `tokenmill chat check`: what a chat template makes of conversations, and what of them is trained."""

import argparse
import datetime
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tokenmill.pipeline.commands.arguments import file_path, positive, set_command
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    chat = commands.add_parser("chat", help="check chat templates and loss masks")
    check = chat.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "check",
        help="what a chat template makes of conversations, and which tokens are trained",
        description="Renders conversations with the chat template of a tokenizer and shows which tokens are trained. "
        "Fails if the answer or the stop token of a turn is not trained, or if no record of DATA can be used.",
    )
    check.add_argument("tokenizer", type=file_path, metavar="TOKENIZER", help="a folder as transformers saves it")
    check.add_argument("data", type=file_path, nargs="?", metavar="DATA", help="a file of JSON lines")
    check.add_argument("--template", type=file_path, metavar="FILE", help="a file of Jinja, or a folder with one")
    check.add_argument("--messages-field", default="messages", metavar="FIELD", help="the field of messages (messages)")
    trained = ["assistant", "last_assistant", "all"]
    check.add_argument("--train", default=trained[0], choices=trained, help="what is trained (assistant)")
    check.add_argument("--date", type=datetime.date.fromisoformat, metavar="DATE", help="today, for the template")
    check.add_argument("--records", type=positive, default=1000, metavar="N", help="at most this many of DATA (1000)")
    set_command(check, _check, "what was found")


def _check(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import Tokenizer
    from tokenmill.tokenizer.chat.check import check_chat
    from tokenmill.tokenizer.chat.spans import TrainingRule
    from tokenmill.tokenizer.chat.templates import load_template

    with mistakes():
        tokenizer = Tokenizer.from_file(options.tokenizer)
        source = options.template or options.tokenizer
        if options.template is None and os.path.isfile(source):
            source = os.path.dirname(source) or "."
        template = load_template(source, date=options.date)
        records = itertools.islice(_records(options.data), options.records) if options.data else ()
        found = check_chat(tokenizer, template, TrainingRule(options.train), records, options.messages_field)
    if options.json:
        said = {
            "good": found.is_good,
            "findings": [finding._asdict() for finding in found.findings],
            "records": found.n_records,
            "rejected": found.rejected,
            "examples": [example._asdict() for example in found.examples],
        }
        print_json(said)
        return DONE if found.is_good else FAILED
    _show(found)
    return DONE if found.is_good else FAILED


def _records(path: str) -> Iterator[Mapping[str, Any]]:
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{path}, line {number}: not an object")
            yield record


def _show(found: Any) -> None:
    from rich.text import Text

    from tokenmill.pipeline.running.terminal import Terminal

    terminal = Terminal(sys.stdout)
    styles = {"good": "green", "note": "yellow", "bad": "bold red"}
    for finding in found.findings:
        said = f"{finding.name}: {finding.detail}"
        terminal.print(Text.assemble((f"{finding.level:<5}", styles[finding.level]), said))
    for example in found.examples:
        terminal.print(Text(f"\n{example.name}", style="bold"))
        if example.refused:
            terminal.print(f"not taken: {example.refused}")
            continue
        shown = Text()
        for trained, group in itertools.groupby(example.tokens, key=lambda token: token[1]):
            text = "".join(piece for piece, _ in group)
            # Without colour, brackets show what is trained.
            has_colour = terminal.color_system is not None
            style = "black on green" if trained else "dim"
            shown.append(f"«{text}»" if trained and not has_colour else text, style=style)
        terminal.print(shown)
    if found.n_records:
        n = sum(found.rejected.values())
        reasons = "".join(f", {reason} {count:,}" for reason, count in found.rejected.items())
        terminal.print(f"\n{found.n_records:,} records, {n:,} not trained on{reasons}")
