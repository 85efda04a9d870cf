# SPDX-License-Identifier: Apache-2.0
"""Writes the page of all commands and options, from the parsers of the command line.

argparse's own help is not used: its layout depends on the width of the terminal and on the version of Python.
"""

import argparse
import re
from collections.abc import Iterator, Sequence

from tokenmill.pipeline.cli import EXAMPLES, parser
from tokenmill.pipeline.commands.arguments import commands_of

PAGE = "docs/reference/commands.md"

_HEAD = """\
# Commands

```bash
tokenmill run configs/quickstart.yaml --overwrite
tokenmill verify build/quickstart/out
```

`./run.sh COMMAND ...` is the same as `tokenmill COMMAND ...`, with the `.venv` of a checkout.
Options must be written out. What follows `--` goes to Beam: `tokenmill run my.yaml -- --runner=FlinkRunner`.

The summary, rows, the schema and what `verify` finds go to stdout. Progress, warnings and errors go to stderr.
[Exit codes](errors.md#exit-codes) say how a command ended.

Every command also has `--quiet`, which prints warnings and errors only, and what `--json` asks for; or `--verbose`,
which shows tracebacks of errors, and Beam's log.
"""

_LEFT_OUT = {"--quiet", "--verbose"}
"""Options that the head of the page describes."""

_NOT_RUN = {
    "workers": "it serves until it is stopped",
    "attach": "needs a job server, and a job of it",
    "vocab balance": "needs a BPE tokenizer, of configs/train-from-counts.yaml",
    "vocab superwords": "needs a BPE tokenizer, of configs/train-from-counts.yaml",
}


def page() -> str:
    """Returns the page."""
    found = list(commands_of(parser()))
    lines = [_HEAD, "| command | what it does |", "|---|---|"]
    for name, _, words in found:
        lines.append(f"| [`{name}`](#tokenmill-{name.replace(' ', '-')}) | {_cell(words)} |")
    lines += [
        "",
        "`tokenmill --version` prints the version; `--help`, after a command too, prints a short form of this page.",
    ]
    tables: dict[str, str] = {}
    for name, command, words in found:
        lines += ["", f"## tokenmill {name}", "", *_entry(name, command, words, tables)]
    return "\n".join(lines) + "\n"


def _entry(name: str, command: argparse.ArgumentParser, words: str, tables: dict[str, str]) -> Iterator[str]:
    """Yields the lines about a command; tables: the commands before it, by their tables, which are not repeated."""
    yield _cell(command.description or words)
    yield ""
    yield from ([f"<!-- not run: {_NOT_RUN[name]} -->"] if name in _NOT_RUN else [])
    yield "```bash"
    yield EXAMPLES[name]
    yield "```"
    actions = [action for action in command._actions if not isinstance(action, argparse._HelpAction)]
    if any(isinstance(action, argparse._SubParsersAction) for action in actions):
        return
    yield ""
    yield "```text"
    actions = [action for action in actions if not _LEFT_OUT & {*action.option_strings}]
    usage = command.usage or " ".join(["tokenmill", name, *map(_usage, actions)])
    yield usage.replace(" [--quiet] [--verbose]", "")
    yield "```"
    table = "\n".join(_table(command, actions))
    first = tables.setdefault(table, name)
    yield ""
    yield table if first == name else f"Its arguments are those of [`{first}`](#tokenmill-{first.replace(' ', '-')})."


def _table(command: argparse.ArgumentParser, actions: Sequence[argparse.Action]) -> Iterator[str]:
    exclusive = {id(a): group for group in command._mutually_exclusive_groups for a in group._group_actions}
    yield "| argument | default | |"
    yield "|---|---|---|"
    for action in actions:
        help_ = _cell(_without_default(action.help or "", action.default))
        if action.choices is not None:
            help_ += " One of " + ", ".join(f"`{choice}`" for choice in action.choices) + "."
        if id(action) in exclusive:
            others = [a.option_strings[0] for a in exclusive[id(action)]._group_actions if a is not action]
            help_ += f" Not with {' or '.join(f'`{other}`' for other in others)}."
        named = _named(action).replace("|", "\\|")
        yield f"| `{named}` | {_default(action)} | {help_} |"


def _usage(action: argparse.Action) -> str:
    named = _named(action)
    if not action.option_strings:
        return f"[{named}]" if action.nargs == "?" else f"{named} ..." if action.nargs == "+" else named
    return named if action.required else f"[{named}]"


def _named(action: argparse.Action) -> str:
    value = str(action.metavar or (action.dest.upper() if action.option_strings else action.dest))
    if not action.option_strings:
        return value
    takes_none = action.nargs == 0
    return action.option_strings[0] if takes_none else f"{action.option_strings[0]} {value}"


def _default(action: argparse.Action) -> str:
    if action.required or (not action.option_strings and action.nargs != "?"):
        return "must be given"
    if action.default is None or action.default is False or action.default == []:
        return ""
    return f"`{action.default}`"


def _without_default(text: str, default: object) -> str:
    """Returns a help text without the default in parentheses, which has a column of its own: `how many rows (5)`."""
    words, _, value = text.removesuffix(")").rpartition(" (")
    is_default = text.endswith(")") and value in (str(default), str(default).removesuffix(".0"))
    return words if is_default else text


def _cell(text: str) -> str:
    """Returns a text as a sentence in Markdown: with a capital, a full stop, and `|` and `*` escaped."""
    words = re.sub(r"\s+", " ", text).replace("|", "\\|").replace("*", "\\*")
    begins_with_a_file = "." in words.partition(" ")[0].rstrip(".,")
    return words and (words if begins_with_a_file else words[0].upper() + words[1:]) + (
        "" if words.endswith((".", ")")) else "."
    )
