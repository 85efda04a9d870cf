# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands take, and how they are read."""

import argparse
import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from tokenmill.pipeline.running.runners import MAX_WORKERS, MODES, check_mode


class Parser(argparse.ArgumentParser):
    """A parser that takes options anywhere, but only by full names, and suggests the right one for a misspelt name."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"allow_abbrev": False} | arguments)
        self._is_intermixing = False

    # Checked here, not at the end of the top parser, so that the message names the right command.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parses the arguments of a command; an unknown one is an error.

        Raises:
          SystemExit: after a message on stderr.
        """
        if self._is_intermixing:  # Python 3.11 calls this twice, once for options and once for the rest
            return super().parse_known_args(args, namespace)
        if self._subparsers is not None:
            options, unknown = super().parse_known_args(args, namespace)
        else:
            self._is_intermixing = True
            try:
                options, unknown = self.parse_known_intermixed_args(args, namespace)
            finally:
                self._is_intermixing = False
        if unknown:
            self._refuse(unknown)
        return options, unknown

    # argparse has no other place for a message about a command or a choice that does not exist.
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = difflib.get_close_matches(str(value), map(str, action.choices), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise argparse.ArgumentError(
                action, f"invalid choice: {value!r} (choose from {', '.join(action.choices)}){hint}"
            )

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        known = [name for action in self._actions for name in action.option_strings]
        hints = ["; options for Beam go last, after --"] if unknown[0].partition("=")[0] == "--runner" else []
        for name in (argument.partition("=")[0] for argument in unknown if argument.startswith("-")):
            begun = [option for option in known if len(name) > 2 and option.startswith(name)]
            if near := begun or difflib.get_close_matches(name, known, n=1):
                hints.append(f"; did you mean {' or '.join(near)}?")
        # Without the usage, which would push the sentence with the right name off a small screen.
        self.exit(2, f"{self.prog}: unrecognized arguments: {' '.join(unknown)}{''.join(hints)}\n")


def commands_of(
    parser: argparse.ArgumentParser, prefix: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yields every command by its name, `counts merge` for example, with its parser and its line of help."""
    for action in parser._actions:  # argparse has no public access to them
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield f"{prefix}{name}", command, helps[name]
                yield from commands_of(command, f"{prefix}{name} ")


def add_config(
    parser: argparse.ArgumentParser,
    help_: str = "a YAML file; `tokenmill schema` says what may be in it",
    name: str = "config",
    metavar: str = "CONFIG",
    nargs: str | None = None,
) -> None:
    """Adds the config of a job, or a target that may be one, and the option that overrides its keys."""
    parser.add_argument(name, type=file_path, metavar=metavar, nargs=nargs, help=help_)
    add_overrides(parser, "override a key of the config, as in --set tokenizer.oov=contain")


def add_overrides(parser: argparse.ArgumentParser, help_: str) -> None:
    """Adds the option that sets keys of a config."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help=f"{help_}; may be repeated"
    )


def add_target(
    parser: argparse.ArgumentParser,
    help_: str = "an output folder, or the config of its job",
    metavar: str = "FOLDER|CONFIG",
) -> None:
    """Adds what `results.find_output` takes."""
    add_config(parser, help_, "target", metavar)


def set_command(
    parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int], what: str, form: Any = None
) -> None:
    """Sets what a parser is for, and adds the options of every command: `--json`, `--quiet` and `--verbose`.

    Args:
      command: runs it, and returns its exit code; `cli` acts on the last two options.
      what: what `--json` prints, for its help.
      form: the mutually exclusive group that `--json` joins, if there is one.
    """
    (form or parser).add_argument("--json", action="store_true", help=f"print {what} as JSON")
    said = parser.add_mutually_exclusive_group()
    said.add_argument("--quiet", action="store_true", help="print warnings and errors only, and what --json asks for")
    said.add_argument(
        "--verbose", "--debug", action="store_true", dest="debug", help="show tracebacks of errors, and Beam's log"
    )
    parser.set_defaults(command=command)


def add_local(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say how a job runs on this machine."""
    parser.add_argument("--workers", type=n_workers, metavar="N", help="default: the cores this process may use")
    parser.add_argument(
        "--mode", type=_mode, choices=MODES, help="where local workers live; default: threads, processes on many cores"
    )


def _mode(text: str) -> str:
    try:
        check_mode(text)
    except ValueError as error:
        if text == "hybrid":  # of others argparse tells the choices, and the nearest one
            raise argparse.ArgumentTypeError(str(error)) from None
    return text


def file_path(text: str) -> str:
    """Returns a path with `~`, `$NAME` and `${NAME}` expanded, for what the shell has left as it is."""
    from tokenmill.pipeline.config.sections import expand  # with pydantic, for which help does not wait

    try:
        return expand(text) if text else text
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def tokenizer_path(text: str) -> str:
    """Returns the path of a tokenizer, that of the vocabulary in it if it is an output folder."""
    from tokenmill.pipeline.books.parts import vocabulary_in

    try:
        return vocabulary_in(file_path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def integer(least: int, most: int = 10**18) -> Callable[[str], int]:
    """Returns a type of arguments: integers from `least` to `most`, which by default 64 bits hold."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text[:20]) < least:
            wanted = f"a number of at least {least}" if least else "a number"
            raise argparse.ArgumentTypeError(f"must be {wanted}, got {text[:40]!r}")
        if len(text) > 20 or int(text) > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, got {text[:40]!r}")
        return int(text)

    return read


positive, natural = integer(1), integer(0)
n_workers = integer(1, MAX_WORKERS)


def share(text: str) -> float:
    """Returns a number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text!r}")
    return number
