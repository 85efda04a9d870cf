# SPDX-License-Identifier: Apache-2.0
"""The command `tokenmill chat check`: what a chat template makes of conversations, and what of them is trained."""

import argparse
import datetime
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import add_overrides, file_path, positive, set_command
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json

if TYPE_CHECKING:
    from tokenmill.pipeline.config.job import Config
    from tokenmill.tokenizer.chat.conversations import ConversationError

_BATCH_BYTES = 1 << 20


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    chat = commands.add_parser("chat", help="check chat templates and loss masks")
    check = chat.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "check",
        help="what a chat template makes of conversations, and which tokens are trained",
        description="Renders conversations with the chat template of a tokenizer and shows which tokens are trained. "
        "Fails if what is trained of made-up turns is wrong, or if no record of DATA can be used.",
    )
    check.add_argument("tokenizer", type=file_path, metavar="TOKENIZER", help="a folder as transformers saves it")
    check.add_argument("data", type=file_path, nargs="?", metavar="DATA", help="a file that a job would read")
    check.add_argument("--template", type=file_path, metavar="FILE", help="a file of Jinja, or a folder with one")
    check.add_argument("--messages-field", default="messages", metavar="FIELD", help="the field of messages (messages)")
    trained = ["assistant", "last_assistant", "all"]
    check.add_argument("--train", choices=trained, help="what is trained (assistant)")
    check.add_argument("--date", type=datetime.date.fromisoformat, metavar="DATE", help="today, for the template")
    check.add_argument("--records", type=positive, default=1000, metavar="N", help="at most this many of DATA (1000)")
    add_overrides(check, "a key of the config of a job, as in --set chat.thinking=false")
    set_command(check, _check, "what was found")


def _check(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.tokenizing.chat import open_template, rule_of
    from tokenmill.tokenizer import Tokenizer
    from tokenmill.tokenizer.chat.check import check_chat

    with mistakes():
        given = {"template": options.template, "train": options.train, "date": options.date and str(options.date)}
        tree = {
            "input": {"paths": [options.data or os.devnull], "messages_field": options.messages_field},
            "tokenizer": {"file": options.tokenizer},
            "chat": {name: value for name, value in given.items() if value is not None},
            "output": {"path": "."},  # nothing is written
        }
        config = load_config(tree, options.overrides)
        chat, field = config.chat, config.input.messages_field
        assert chat is not None, "load_config puts it there"
        assert field is not None
        records = itertools.islice(_records(config), options.records) if options.data else ()
        ends = chat.end_tokens or ()
        tokenizer = Tokenizer.from_file(options.tokenizer)
        found = check_chat(tokenizer, open_template(chat), rule_of(chat), records, field, chat.arguments, ends)
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


def _records(config: "Config") -> "Iterator[Mapping[str, Any] | ConversationError]":
    """Yields the records of the input as jobs read them, and why others are rejected."""
    from tokenmill.pipeline.input.reading import read_split
    from tokenmill.pipeline.input.splitting import plan_splits
    from tokenmill.tokenizer.chat.conversations import ConversationError

    for split in plan_splits(config.input, ""):
        for batch in read_split(split, config.input, _BATCH_BYTES):
            yield from map(json.loads, batch.documents.column("text").to_pylist())
            if batch.rejects is not None:
                rejects = batch.rejects.select(["reason", "detail"]).to_pylist()
                yield from (ConversationError(each["reason"], each["detail"]) for each in rejects)


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
