# SPDX-License-Identifier: Apache-2.0
"""The command line. It parses, calls and reports; what a job does is decided elsewhere.

Exit codes: 0 done; 1 the job failed, or `verify` found something wrong; 2 a mistake in the command, the config or the
input, found before any work; 130 stopped by Ctrl-C. What a person wants to keep goes to stdout (the summary, rows,
the schema), everything else to stderr.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipeline import counts_cli, storage
from pipeline.runners import MODES

# The rest is imported by the command that needs it: `--help` must not wait for Beam, Arrow or kernels.
if TYPE_CHECKING:
    from pipeline.output_folder import Mode
    from pipeline.planning import JobPlan
    from pipeline.runners import RunnerSettings
    from pipeline.verify_report import VerifyReport

JOBS = {
    "run": "train a vocabulary where the config says so, then tokenize: all of it as one graph",
    "count": "count the words of the input",
    "train": "count, or take counts that exist, then train vocabularies",
    "tokenize": "tokenize with a tokenizer that exists",
}

_DONE, _FAILED, _MISTAKE, _STOPPED = 0, 1, 2, 130


class _Mistake(Exception):  # noqa: N818  # what the user got wrong, one line each
    """Something to correct before the job can start."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    # Read when Arrow is first imported, here and in worker processes. Arrow's own allocator keeps what is freed: with
    # it two workers in one process peak at 767 MB on 100 MB of input and 964 on 5 GB, with the system's at 651 and 768.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    arguments = list(sys.argv[1:] if argv is None else argv)
    # What follows `--` is for Beam, argparse must not see it.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    try:
        options = _parser().parse_args(arguments[:end])
    except SystemExit as exit_:
        return _DONE if exit_.code is None else int(exit_.code)
    options.beam_args = arguments[end + 1 :]
    storage.configure(options.beam_args)
    try:
        if options.command.__module__ == counts_cli.__name__:
            with _mistakes():
                options.command(options)
            code = _DONE
        else:
            code = int(options.command(options))
        sys.stdout.flush()  # here, and not when the interpreter ends, a reader that has gone is no error
        return code
    except _Mistake as mistake:
        for line in str(mistake).splitlines():
            _say(line)
        return _MISTAKE
    except KeyboardInterrupt:
        _say("stopped")
        return _STOPPED
    except BrokenPipeError:
        # The reader of our stdout has gone, as `| head` does; what is still in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tokenmill",
        description="Text corpora to training-ready token datasets and vocabularies.",
        epilog="Options for Beam go last, after --: tokenmill run job.yaml -- --runner=FlinkRunner ...",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, what in JOBS.items():
        job = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        job.add_argument("config", metavar="CONFIG", help="a YAML file; `tokenmill schema` says what may be in it")
        _add_set(job)
        folder = job.add_mutually_exclusive_group()
        folder.add_argument("--resume", action="store_true", help="go on with what this job left in the output folder")
        folder.add_argument("--overwrite", action="store_true", help="remove what an earlier job left there")
        job.add_argument("--workers", type=_positive, metavar="N", help="default: the cores this process may use")
        job.add_argument(
            "--mode",
            choices=MODES,
            help="where local workers live; default: threads, hybrid on many cores",
        )
        job.add_argument("--debug", action="store_true", help="show Beam's log, and tracebacks of errors")
        job.set_defaults(command=_run_job, job=name)

    inspect = commands.add_parser("inspect", help="show rows of a shard as text, with token boundaries")
    inspect.add_argument("target", metavar="SHARD|FOLDER|CONFIG", help="a shard, an output folder, or its config")
    _add_set(inspect)
    inspect.add_argument("--rows", type=_positive, default=5, metavar="N", help="how many rows (5)")
    inspect.add_argument("--start", type=_natural, default=0, metavar="N", help="number of the first row (0)")
    inspect.add_argument("--tokens", type=_positive, default=200, metavar="N", help="tokens to show of a row (200)")
    inspect.add_argument("--tokenizer", metavar="FILE", help="default: vocab/tokenizer.json beside the shard")
    inspect.set_defaults(command=_inspect)

    verify = commands.add_parser("verify", help="read an output folder again and prove its manifest")
    verify.add_argument("target", metavar="FOLDER|CONFIG", help="an output folder, or its config")
    _add_set(verify)
    verify.add_argument(
        "--deep",
        type=_share,
        nargs="?",
        const=0.01,
        metavar="SHARE",
        help="also tokenize this share of the splits again, from the input, and compare (0.01; at least 3 splits)",
    )
    verify.set_defaults(command=_verify)

    replay = commands.add_parser("replay", help="tokenize the rejected records of a finished job again, after a fix")
    replay.add_argument("config", metavar="CONFIG", help="of the job; in input its fields and limits may have changed")
    _add_set(replay)
    replay.set_defaults(command=_replay)

    counts_cli.add_parser(commands)

    workers = commands.add_parser("workers", help="serve workers to a runner elsewhere: --environment_type=EXTERNAL")
    workers.add_argument("--host", default="localhost", help="address to listen on; who reaches it can run code")
    workers.add_argument("--port", type=_natural, default=50000, metavar="N", help="port (50000); 0: a free one")
    workers.add_argument("--debug", action="store_true", help="show Beam's log")
    workers.set_defaults(command=_workers)

    fidelity = commands.add_parser("fidelity", help="measure what steps, tokenizer and OOV policy lose of the input")
    fidelity.add_argument("config", metavar="CONFIG", help="a YAML file with tokenizer.file")
    _add_set(fidelity)
    fidelity.add_argument("--documents", type=_positive, default=1000, metavar="N", help="at most (1000)")
    fidelity.add_argument("--json", action="store_true", help="print all of it as JSON")
    fidelity.set_defaults(command=_fidelity)

    schema = commands.add_parser("schema", help="print the JSON Schema of a config, for editors")
    schema.set_defaults(command=_schema)
    return parser


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a key of the config, as in --set tokenizer.oov=contain; may be repeated",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, got {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text!r}")
    return share


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return int(text)


def _run_job(options: argparse.Namespace) -> int:
    from pipeline.config import load_config
    from pipeline.runners import choose_runner, configure_logging

    with _mistakes():
        config = load_config(options.config, options.overrides, options.job)
        settings = choose_runner(options.beam_args, mode=options.mode, workers=options.workers)
    configure_logging(debug=options.debug)

    from pipeline.planning import plan_job

    started = time.monotonic()
    with _mistakes():
        plan = plan_job(options.job, config)
    try:
        _execute(options, plan, settings)
    except _Mistake:
        raise
    except KeyboardInterrupt:
        return _report_stop()
    except Exception as error:  # a runner, its workers and any file system may fail with anything; the user gets a line
        return _report_failure(error, options.debug)

    from rich.console import Console

    from pipeline.summary import summarize

    Console(highlight=False, soft_wrap=True).print(summarize(config.output.path, time.monotonic() - started))
    return _DONE


def _execute(options: argparse.Namespace, plan: "JobPlan", settings: "RunnerSettings") -> None:
    """Runs the job of `plan`; shows its progress on stderr."""
    import apache_beam as beam

    from pipeline import display, jobs, planning, progress
    from pipeline.limits import RejectLimits
    from pipeline.runners import open_runner

    mode: Mode = "resume" if options.resume else "overwrite" if options.overwrite else "new"
    with contextlib.ExitStack() as stack:
        with _mistakes():
            runner, runner_options = stack.enter_context(open_runner(settings, debug=options.debug))
            planning.prepare(plan, mode)
        _say(
            f"{options.job}: {display.megabytes(plan.n_bytes)} in {len(plan.splits)} "
            f"{'split' if len(plan.splits) == 1 else 'splits'}, {settings}"
        )
        pipeline = beam.Pipeline(runner=runner, options=runner_options)
        jobs.build(pipeline, plan)
        watched = progress.Progress(plan.stages(), RejectLimits.of(plan.config.input))
        if settings.in_process:
            stack.enter_context(progress.reporting_to(watched))
            source: progress.Source = watched
        else:
            source = progress.FolderProgress(plan.config.output.path, plan.stages())
        stack.enter_context(display.show(source, sys.stderr))
        try:
            result = pipeline.run()
            state = result.wait_until_finish()
        except BaseException:
            # Ctrl-C too: workers that live in this process go on unless told, and stop at their next batch.
            watched.cancel()
            raise
        if state != "DONE":
            raise RuntimeError(f"{settings} ended the job in state {state}; its own log says why")


def _report_failure(error: Exception, debug: bool) -> int:
    from pipeline.runners import explain

    if debug:
        import traceback

        traceback.print_exception(error)
    reason = explain(error)
    if reason == "KeyboardInterrupt":  # of a worker in the thread that Python interrupts
        return _report_stop()
    for line in f"failed: {reason}".splitlines():
        _say(line)
    if not debug:
        _say("what is committed is kept: --resume goes on from there, --debug shows where it failed")
    return _FAILED


def _report_stop() -> int:
    _say("stopped; what is committed is kept: the same command with --resume goes on from there")
    return _STOPPED


def _inspect(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline import inspect

    console = Console(highlight=False)
    with _mistakes():
        shard = _find_shard(options)
        tokenizer = inspect.find_tokenizer(shard, options.tokenizer)
        console.print(shard, style="dim", soft_wrap=True)
        for row in inspect.rows(shard, options.start, options.rows):
            console.print(inspect.render(row, tokenizer, options.tokens), soft_wrap=True)
    return _DONE


def _find_shard(options: argparse.Namespace) -> str:
    """Returns the shard itself, or the first one with rows of an output folder."""
    from pipeline import manifest

    if options.target.endswith((".parquet", ".tfrecord", ".tfrecord.gz")):
        if not storage.exists(options.target):
            raise FileNotFoundError(f"{options.target}: there is no such shard")
        return str(options.target)
    output = _find_output(options)
    shards = manifest.read(output)["shards"]
    if not shards:
        raise ValueError(f"{output!r} holds no shards: its job did not tokenize")
    chosen = next((shard for shard in shards if shard["rows"]), shards[0])
    return storage.join(output, chosen["file"])


def _find_output(options: argparse.Namespace) -> str:
    """Returns the output folder itself, or that of a config."""
    if options.target.endswith((".yaml", ".yml")):
        from pipeline.config import load_config

        return load_config(options.target, options.overrides).output.path
    if options.overrides:
        raise ValueError("--set changes a config, but the target is none")
    return str(options.target)


def _verify(options: argparse.Namespace) -> int:
    from pipeline import verify
    from pipeline.display import megabytes

    started = time.monotonic()
    with _mistakes():
        output = _find_output(options)
        report = verify.verify(output)
        _verify_replay(output, report)
        again = None
        if options.deep is not None and report.is_proven:
            from pipeline.deep import verify_deep

            again = verify_deep(output, options.deep)
            report.problems += again.problems
    for problem in report.problems:
        print(problem)
    seconds = time.monotonic() - started
    read = f"{report.n_files:,} files, {megabytes(report.n_bytes)}, {report.n_rows:,} rows, {report.n_tokens:,} tokens"
    n_problems = len(report.problems)
    verdict = "proven" if report.is_proven else f"{n_problems} {'problem' if n_problems == 1 else 'problems'}"
    print(f"{output}: {verdict}; read {read} in {seconds:.1f} s")
    if again is not None:
        done = f"{again.n_files:,} splits, {megabytes(again.n_bytes)}, {again.n_rows:,} rows, {again.n_tokens:,} tokens"
        print(f"{output}: tokenized again: {done}")
    return _DONE if report.is_proven else _FAILED


def _workers(options: argparse.Namespace) -> int:
    from pipeline.runners import configure_logging

    configure_logging(debug=options.debug)
    from pipeline.external_workers import serve

    with _mistakes():
        serve(options.host, options.port, debug=options.debug)
    return _DONE


def _replay(options: argparse.Namespace) -> int:
    from pipeline.config import load_config
    from pipeline.ledger import BooksError
    from pipeline.replay import COMMITTED, replay

    with _mistakes():
        config = load_config(options.config, options.overrides)
        try:
            totals = replay(config)["totals"]
        except BooksError as error:
            _say(f"failed: {error}")
            return _FAILED
    rejected = sum(totals["rejected"].values())
    filtered = {rule: n for rule, n in totals["filtered"].items() if rule != COMMITTED}
    n_records = totals["n_documents"] + rejected + sum(filtered.values())
    left_out = "".join(f", {n:,} left out by {rule}" for rule, n in filtered.items())
    print(
        f"{config.output.path}: {n_records:,} rejected records read again: "
        f"{totals['n_documents']:,} documents in replay/, {rejected:,} rejected again{left_out}"
    )
    return _DONE


def _fidelity(options: argparse.Namespace) -> int:
    from pipeline import fidelity, ledger
    from pipeline.config import load_config

    with _mistakes():
        report = fidelity.measure(load_config(options.config, options.overrides, "tokenize"), options.documents)
    if options.json:
        sys.stdout.write(ledger.to_json(report).decode())
        return _DONE
    from rich.console import Console

    console = Console(highlight=False)
    for part in fidelity.render(report):
        console.print(part, soft_wrap=isinstance(part, str), markup=False)
    return _DONE


def _schema(options: argparse.Namespace) -> int:
    import json

    from pipeline.config import json_schema

    print(json.dumps(json_schema(), indent=2))
    return _DONE


def _verify_replay(output: str, report: "VerifyReport") -> None:
    """Adds the proof of a replay, where there is one."""
    from pipeline import manifest, replay, storage, verify
    from pipeline.ledger import BooksError

    folder = storage.join(output, manifest.REPLAY)
    if not report.is_proven or not storage.exists(storage.join(folder, manifest.MANIFEST)):
        return
    replayed = verify.verify(folder)
    replayed.problems = [f"{manifest.REPLAY}/{problem}" for problem in replayed.problems]
    report.merge(replayed)
    found = manifest.read(folder)
    try:
        if found["replay_of"] != replay.manifest_digest(output):
            raise BooksError(f"{manifest.REPLAY}: of another run of the job; run tokenmill replay again")
        replay.check_books(manifest.read(output), found)
    except BooksError as error:
        report.problems.append(str(error))


@contextlib.contextmanager
def _mistakes() -> Iterator[None]:
    """Turns what the checks before any work raise into a `_Mistake`."""
    try:
        yield
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise _Mistake(str(error)) from error


def _say(line: str) -> None:
    print(f"tokenmill: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
