# SPDX-License-Identifier: Apache-2.0
"""The command line: parses the arguments and calls the module of `commands` that does the work.

Exit codes: 0 done; 1 the job failed, or `verify` found something wrong; 2 a mistake in the command, the config or the
input, found before any work; 130 stopped by Ctrl-C. Output that a person may want to keep goes to stdout (the summary,
rows, the schema), everything else to stderr.
"""

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from tokenmill.pipeline import VERSION, storage
from tokenmill.pipeline.commands import counts, jobs, looking, machines, results, tokenizers, vocabulary
from tokenmill.pipeline.commands.arguments import Parser, commands_of, set_command
from tokenmill.pipeline.commands.reporting import DONE, MISTAKE, STOPPED, Mistake, say
from tokenmill.pipeline.running.messages import configure_logging
from tokenmill.pipeline.running.outlets import guard

EXAMPLES = {
    "run": "tokenmill run configs/quickstart.yaml --overwrite",
    "count": "tokenmill count configs/count.yaml --overwrite",
    "train": "tokenmill train configs/train.yaml --overwrite",
    "tokenize": "tokenmill tokenize configs/tokenize.yaml --overwrite --workers 2",
    "attach": "tokenmill attach build/quickstart/out",
    "plan": "tokenmill plan configs/quickstart.yaml",
    "inspect": "tokenmill inspect build/quickstart/out --start 4 --rows 2",
    "diff": "tokenmill diff build/quickstart/out build/quickstart/out",
    "viz": "tokenmill viz 'naïve 玫瑰' --tokenizer build/quickstart/out/vocab",
    "verify": "tokenmill verify build/quickstart/out --deep --share 0.1",
    "replay": "tokenmill replay configs/quickstart.yaml",
    "report": "tokenmill report build/quickstart/out",
    "trace": "tokenmill trace build/quickstart/out 17 5",
    "counts": "tokenmill counts --help",
    "counts show": "tokenmill counts show build/quickstart/out --top 3",
    "counts merge": (
        "tokenmill counts merge a=build/quickstart/out b=build/quickstart/out --weight b=1/2 --out build/sum"
    ),
    "counts subtract": "tokenmill counts subtract build/sum a=build/quickstart/out --out build/rest",
    "vocab": "tokenmill vocab --help",
    "vocab extend": (
        "tokenmill vocab extend build/quickstart/out/vocab --counts build/quickstart/out --add 100 "
        "--out build/extended.json"
    ),
    "vocab prune": (
        "tokenmill vocab prune build/quickstart/out/vocab --counts build/quickstart/out --min-count 100 "
        "--out build/pruned.json --map build/pruned.npy"
    ),
    "vocab replace": (
        "tokenmill vocab replace build/quickstart/out/vocab --counts build/quickstart/out --add 10 --dry-run"
    ),
    "vocab merge": "tokenmill vocab merge build/quickstart/out/vocab build/extended.json --out build/merged.json",
    "vocab balance": (
        "tokenmill vocab balance build/train-from-counts/vocab/8000 --counts build/count --by source "
        "--out build/balanced.json"
    ),
    "vocab superwords": "tokenmill vocab superwords build/train-from-counts/vocab/8000 --words 3 --out build/wide.json",
    "vocab rename": ("tokenmill vocab rename build/quickstart/out/vocab --name '[MASK]=[GAP]' --out build/renamed"),
    "vocab measure": (
        "tokenmill vocab measure build/quickstart/out/vocab build/extended.json --counts build/quickstart/out"
    ),
    "vocab check": "tokenmill vocab check build/quickstart/out/vocab",
    "vocab transfer": (
        "tokenmill vocab transfer build/quickstart/out/vocab build/extended.json --out build/transfer.parquet"
    ),
    "chat": "tokenmill chat --help",
    "chat check": "tokenmill chat check build/quickstart/out/vocab --template configs/chat.jinja",
    "compare": "tokenmill compare build/quickstart/out/vocab build/quickstart/out/vocab --on build/quickstart/corpus",
    "convert": "tokenmill convert build/quickstart/out/vocab build/vocab.txt",
    "warm": "tokenmill warm configs/quickstart.yaml",
    "workers": "tokenmill workers --port 50000",
    "schema": "tokenmill schema",
    "completion": "tokenmill completion bash",
}
"""For every command a line that works after `./run.sh`, if they are run in this order."""

SHELLS = ("bash", "zsh", "fish")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    with guard():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    # Read when Arrow is first imported, here and in worker processes. Arrow's own allocator keeps what is freed: with
    # it two workers in one process peak at 767 MB on 100 MB of input and 964 on 5 GB, with the system's at 651 and 768.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # The threads of NumPy's linear algebra, which nothing here uses, wait busily: for 0.1 s in every process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
    for group in (jobs, looking, results, counts, vocabulary, tokenizers, machines):
        group.add_parsers(commands)
    _add_parsers(commands)
    for name, command, _ in commands_of(root):
        command.epilog = f"For example: {EXAMPLES[name]}"
    root.set_defaults(parser=root)  # for `completion`
    return root


def _add_parsers(commands: Any) -> None:
    """Adds the commands for what editors and shells ask: what may be in a config, and a script by shtab."""
    schema = commands.add_parser("schema", help="print the JSON Schema of a config, for editors, or of stats.json")
    schema.add_argument("file", nargs="?", choices=["config", "stats"], default="config", help="of which file (config)")
    set_command(schema, _schema, "the schema, as by default,")

    completion = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete commands and options",
        description='Prints a script for a shell to load: `eval "$(tokenmill completion bash)"`, the same with zsh, '
        "and `tokenmill completion fish | source`.",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")
    set_command(completion, _completion, "the script, and for which shell it is,")


def _schema(options: argparse.Namespace) -> int:
    if options.file == "stats":
        from tokenmill.pipeline.reporting.stats_file import json_schema
    else:
        from tokenmill.pipeline.config.job import json_schema

    print(json.dumps(json_schema(), indent=2))
    return DONE


def _completion(options: argparse.Namespace) -> int:
    import shtab

    script = shtab.complete(options.parser, options.shell)
    print(json.dumps({"shell": options.shell, "script": script}) if options.json else script)
    return DONE


if __name__ == "__main__":
    sys.exit(main())
