# SPDX-License-Identifier: Apache-2.0
"""The command line: parses the arguments and calls the module of `commands` that does the work.

Exit codes: 0 done; 1 the job failed, or `verify` found something wrong; 2 a mistake in the command, the config or the
input, found before any work; 130 stopped by Ctrl-C. Output that a person may want to keep goes to stdout (the summary,
rows, the schema), everything else to stderr.
"""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

from tokenmill.pipeline import VERSION, storage
from tokenmill.pipeline.commands import (
    chat,
    configs,
    counts,
    elsewhere,
    jobs,
    looking,
    results,
    tokenizers,
    warm,
)
from tokenmill.pipeline.commands.arguments import Parser, commands_of
from tokenmill.pipeline.commands.examples import EXAMPLES
from tokenmill.pipeline.commands.reporting import DONE, MISTAKE, STOPPED, Mistake, say
from tokenmill.pipeline.running.outlets import guard
from tokenmill.pipeline.running.runners import configure_logging


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    with guard():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    # Read when Arrow is first imported, here and in worker processes. Arrow's own allocator keeps what is freed: with
    # it two workers in one process peak at 767 MB on 100 MB of input and 964 on 5 GB, with the system's at 651 and 768.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Arguments after `--` are for Beam; argparse must not see them.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    try:
        options = parser().parse_args(arguments[:end])
    except SystemExit as exit_:
        return DONE if exit_.code is None else int(exit_.code)
    options.beam_args = arguments[end + 1 :]
    storage.configure(options.beam_args)
    configure_logging(debug=options.debug)
    try:
        with _nowhere() if options.quiet and not options.json else contextlib.nullcontext():
            return int(options.command(options))
    except Mistake as mistake:
        if options.debug:
            traceback.print_exception(mistake)
        for line in str(mistake).splitlines():
            say(line)
        return MISTAKE
    except KeyboardInterrupt:
        say("stopped")
        return STOPPED


@contextlib.contextmanager
def _nowhere() -> Iterator[None]:
    """Discards what the block prints to stdout."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    root = Parser(
        prog="tokenmill",
        description="Text corpora to training-ready token datasets and vocabularies.",
        epilog="Options for Beam go last, after --: tokenmill run job.yaml -- --runner=FlinkRunner ...",
    )
    root.add_argument("--version", action="version", version=f"tokenmill {VERSION}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (jobs, looking, results, counts, tokenizers, chat, warm, elsewhere, configs):
        group.add_parsers(commands)
    for name, command, _ in commands_of(root):
        command.epilog = f"For example: {EXAMPLES[name]}"
    root.set_defaults(parser=root)  # for `completion`
    return root


if __name__ == "__main__":
    sys.exit(main())
