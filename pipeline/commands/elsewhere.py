# SPDX-License-Identifier: Apache-2.0
"""The commands for runners elsewhere: `tokenmill attach` waits for a job, `workers` serves workers."""

import argparse
import contextlib
import json
import sys
import time
from typing import Any

from tokenmill.pipeline import filenames
from tokenmill.pipeline.commands.arguments import file_path, integer, set_command
from tokenmill.pipeline.commands.jobs import report_done, report_stop
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, say

_POLL_SECONDS = 2.0


def add_parsers(commands: Any) -> None:
    """Adds these to the commands of a parser."""
    attach = commands.add_parser("attach", help="wait for a job on a runner elsewhere, as --detach leaves it")
    attach.add_argument("output", type=file_path, metavar="OUT", help="the output folder of the job")
    attach.add_argument("--cancel", action="store_true", help="stop the job; --resume can go on from there")
    set_command(attach, _attach, "the books of the finished job")

    workers = commands.add_parser("workers", help="serve workers to a runner elsewhere: --environment_type=EXTERNAL")
    workers.add_argument("--host", default="localhost", help="address to listen on; whoever reaches it can run code")
    workers.add_argument(
        "--port", type=integer(0, 65535), default=50000, metavar="N", help="port (50000); 0: a free one"
    )
    set_command(workers, _workers, "the address that it listens on")


def _attach(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.running.runner_jobs import RUNNER_JOB, RunnerJob, is_over

    output, started = options.output, time.monotonic()
    with mistakes():
        job = RunnerJob.read(output)
        if job is None:
            raise ValueError(f"{output!r} has no {RUNNER_JOB}, so no job of it is on a runner elsewhere")
        if options.cancel and not is_over(job.state()):
            job.cancel()
    with contextlib.ExitStack() as stack:
        if not options.quiet:
            say(f"attached to {job}")
            stack.enter_context(_progress(output))
        with mistakes():
            while not is_over(state := job.state()):
                time.sleep(_POLL_SECONDS)
    return _end(output, state, time.monotonic() - started, options)


def _progress(output: str) -> contextlib.AbstractContextManager[Any]:
    """Returns what shows how many of the planned splits are committed, if the job has one folder."""
    from tokenmill.pipeline import storage
    from tokenmill.pipeline.jobs import planning
    from tokenmill.pipeline.running import display, progress

    path = storage.join(output, filenames.PLAN)
    if not storage.exists(path):
        return contextlib.nullcontext()
    splits = [*planning.read_plan(path)]
    stages = [
        progress.Stage.of(planning.COUNTING_STAGE, filenames.COUNTING, splits),
        progress.Stage.of(planning.TOKENIZING_STAGE, filenames.LEDGER, splits),
    ]
    watched = progress.Progress(stages)
    watched.look_at(output)
    return display.show(watched, sys.stderr)


def _end(output: str, state: str, seconds: float, options: argparse.Namespace) -> int:
    """Takes the folder over from the job, and reports how that ended."""
    from tokenmill.pipeline.output.ownership import own

    with mistakes(), own(output, "attach"):
        pass
    if state == "CANCELLED":
        return report_stop()
    if state != "DONE":
        say(f"failed: the runner ended the job in state {state}; its own log says why")
        say("what is committed is kept: the same command with --resume goes on from there")
        return FAILED
    say(f"`tokenmill report {output}` writes the report")
    return report_done(output, seconds, options)


def _workers(options: argparse.Namespace) -> int:
    def told(host: str, port: int) -> None:
        print(json.dumps({"host": host, "port": port}) if options.json else f"{host}:{port}", flush=True)

    from tokenmill.pipeline.running.workers import serve

    with mistakes():
        serve(options.host, options.port, told, debug=options.debug)
    return DONE
