# SPDX-License-Identifier: Apache-2.0
"""The jobs, `tokenmill run`, `count`, `train` and `tokenize`; and `plan`, or `--dry-run`, which `estimating` does."""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import add_config, add_local, set_command
from tokenmill.pipeline.commands.reporting import DONE, FAILED, STOPPED, Mistake, mistakes, print_json, say

if TYPE_CHECKING:
    from tokenmill.pipeline.commands.execution import Request
    from tokenmill.pipeline.config.job import Config
    from tokenmill.pipeline.output.folders import Mode
    from tokenmill.pipeline.running.runner_jobs import RunnerJob

JOBS = {
    "run": "train a vocabulary if the config says so, then tokenize, all in one graph",
    "count": "count the words of the input",
    "train": "count words, or take existing counts, then train vocabularies",
    "tokenize": "tokenize with an existing tokenizer",
}


def add_parsers(commands: Any) -> None:
    """Adds the jobs to the commands of a parser."""
    for name, what in JOBS.items():
        job = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        add_config(job)
        folder = job.add_mutually_exclusive_group()
        folder.add_argument("--resume", action="store_true", help="go on with what this job left in the output folder")
        folder.add_argument("--overwrite", action="store_true", help="remove what an earlier job left there")
        add_local(job)
        folder.add_argument(
            "--dry-run", action="store_true", help="do nothing: say what the job would do, as `plan` does"
        )
        set_command(job, _run_job, "the books of the finished job")
        job.add_argument(
            "--detach",
            action="store_true",
            help="end when a runner elsewhere has the job; `tokenmill attach` waits for it",
        )
        job.set_defaults(job=name)

    plan = commands.add_parser(
        "plan",
        help="say what a job would do: tokens, rejects, bytes, time, memory",
        description="Tries a job on a sample of its input and estimates the whole job, with bounds. "
        "Writes nothing. If the output folder holds the finished job, compares the plan with it.",
    )
    add_config(plan)
    plan.add_argument("--job", choices=JOBS, default="run", help="the job (run)")
    plan.add_argument(
        "--graph", action="store_true", help="only print the steps of the job, and what flows between them"
    )
    set_command(plan, plan_only, "the plan")
    add_local(plan)


def _run_job(options: argparse.Namespace) -> int:
    if options.dry_run:
        return plan_only(options)
    request = _request(options)
    started = time.monotonic()
    mode: Mode = "resume" if options.resume else "overwrite" if options.overwrite else "new"
    output = request.config.output.path
    try:
        _, given = request.run(mode, detach=options.detach)
        if given is not None:
            return _report_detached(output, given, options)
        return report_done(output, time.monotonic() - started, options, request.config)
    except Mistake:
        raise
    except KeyboardInterrupt:
        return report_stop()
    except Exception as error:  # a runner, its workers and any file system may raise anything; the user gets one line
        return _report_failure(error, output, options.debug)


def _request(options: argparse.Namespace) -> "Request":
    from tokenmill.pipeline.commands.execution import Request

    with mistakes():
        return Request.of(
            options.job, options.config, options.overrides, beam_args=options.beam_args, mode=options.mode,
            workers=options.workers, quiet=options.quiet, debug=options.debug,
        )  # fmt: skip


def report_done(output: str, seconds: float, options: argparse.Namespace, config: "Config | None" = None) -> int:
    """Prints the summary of a finished job, or what `--json` asks for; with its config, also warns of what is odd."""
    from tokenmill.pipeline.commands.execution import record
    from tokenmill.pipeline.reporting.summary import summarize, warnings
    from tokenmill.pipeline.running.terminal import Terminal

    summary = summarize(output, seconds, is_resumed=getattr(options, "resume", False))
    told = {} if config is None else {"warnings": warnings(output, config)}
    if options.json:
        print_json({**record(output, seconds), **told})
    else:
        Terminal(sys.stdout, soft_wrap=True).print(summary)
    for warning in told.get("warnings", ()):
        say(f"warning: {warning}")
    return DONE


def _report_detached(output: str, given: "RunnerJob", options: argparse.Namespace) -> int:
    if options.json:
        print_json({"output": output, "endpoint": given.endpoint, "job_id": given.job_id})
    say(f"{given} goes on; `tokenmill attach {output}` waits for it")
    return DONE


def _report_failure(error: Exception, output: str, debug: bool) -> int:
    from tokenmill.pipeline.running.messages import explain

    if debug:
        import traceback

        traceback.print_exception(error)
    reason = explain(error, output)
    if reason == "KeyboardInterrupt":  # Ctrl-C, raised in a worker that runs in the main thread
        return report_stop()
    for line in f"failed: {reason}".splitlines():
        say(line)
    if not debug and "--resume" not in reason:
        say("what is committed is kept: --resume goes on from there, --verbose shows where it failed")
    return FAILED


def report_stop() -> int:
    """Says that a job was stopped; returns the exit code."""
    say("stopped; what is committed is kept: the same command with --resume goes on from there")
    return STOPPED


def plan_only(options: argparse.Namespace) -> int:
    """Prints the plan of the job `options.job` of the config `options.config`."""
    request = _request(options)
    if getattr(options, "graph", False):  # which a dry run does not have
        return _print_graph(request)

    from tokenmill.pipeline.estimating import report
    from tokenmill.pipeline.running.messages import explain
    from tokenmill.pipeline.running.terminal import Terminal

    try:
        told = request.estimate()
    except Mistake:
        raise
    except (OSError, ValueError) as error:
        if options.debug:
            raise
        say(f"the job would fail: {explain(error)}")
        return FAILED
    if options.json:
        print_json(report.to_record(told))
    else:
        Terminal(sys.stdout, soft_wrap=True).print(report.render(told))
    return DONE


def _print_graph(request: "Request") -> int:
    from tokenmill.pipeline.jobs.planning import plan_job
    from tokenmill.pipeline.transforms.outline import outline

    with mistakes():
        plan = plan_job(request.job, request.config)
    print("\n".join(outline(plan)))
    return DONE
