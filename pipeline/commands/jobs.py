# SPDX-License-Identifier: Apache-2.0
"""The jobs, `tokenmill run`, `count`, `train` and `tokenize`; and `plan`, or `--dry-run`, which `estimating` does."""

import argparse
import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline import filenames
from tokenmill.pipeline.commands.arguments import add_config, add_local, set_command
from tokenmill.pipeline.commands.reporting import DONE, FAILED, STOPPED, Mistake, mistakes, print_json, say

if TYPE_CHECKING:
    from tokenmill.pipeline.config.file import ConfigSource
    from tokenmill.pipeline.config.job import Config, JobName
    from tokenmill.pipeline.estimating.report import Told
    from tokenmill.pipeline.jobs.planning import JobPlan
    from tokenmill.pipeline.output.folders import Mode
    from tokenmill.pipeline.running.runner_jobs import RunnerJob
    from tokenmill.pipeline.running.runners import Mode as RunnerMode
    from tokenmill.pipeline.running.runners import RunnerSettings

_PATIENCE_SECONDS = 2.0

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
    with mistakes():
        config, choose = prepared(
            options.config, options.overrides, options.job, options.beam_args, options.mode, options.workers
        )
    started = time.monotonic()
    mode: Mode = "resume" if options.resume else "overwrite" if options.overwrite else "new"
    try:
        given = execute(
            options.job, config, choose, mode, quiet=options.quiet, debug=options.debug, detach=options.detach
        )
        if given is not None:
            return _report_detached(config.output.path, given, options)
        return report_done(config.output.path, time.monotonic() - started, options, config)
    except Mistake:
        raise
    except KeyboardInterrupt:
        return report_stop()
    except Exception as error:  # a runner, its workers and any file system may raise anything; the user gets one line
        return _report_failure(error, config.output.path, options.debug)


def report_done(output: str, seconds: float, options: argparse.Namespace, config: "Config | None" = None) -> int:
    """Prints the summary of a finished job, or what `--json` asks for; with its config, also warns of what is odd."""
    from tokenmill.pipeline.reporting.summary import summarize, warnings
    from tokenmill.pipeline.running.terminal import Terminal

    summary = summarize(output, seconds)
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


def record(output: str, seconds: float) -> dict[str, Any]:
    """Returns what `--json` prints of a finished job: its folder and its counts."""
    from tokenmill.pipeline.books import manifest, parts

    is_one = not parts.is_in_parts(output)
    found = manifest.read(output) if is_one else parts.read(output)
    names = ("job", "job_digest", "tokenizer" if is_one else "parts", "totals", "balance", "versions")
    return {"output": output, "seconds": seconds, **{name: found[name] for name in names}}


def execute(
    job: "JobName", config: "Config", choose: Callable[..., "RunnerSettings"], mode: "Mode", *,
    quiet: bool, debug: bool, detach: bool = False, said: list[str] | None = None,
) -> "RunnerJob | None":  # fmt: skip
    """Plans and runs a job, and shows its progress on stderr unless it is `quiet`.

    Args:
      choose: `choose_runner` with the options of the command.
      detach: return once a runner elsewhere has the job.
      said: takes the warnings that are said before the job begins.

    Returns:
      The job of the runner if it was detached.

    Raises:
      Mistake: if it cannot begin. Whatever a runner or a file system raises, if it fails.
    """
    from tokenmill.pipeline.output.ownership import check_free, own

    began = time.time()
    with mistakes():
        check_free(config.output.path)
    plan, settings = planned(job, config, choose, quiet=quiet)
    if said is not None:
        said += plan.warnings

    import apache_beam as beam

    from tokenmill.pipeline.books.reject_limits import RejectLimits
    from tokenmill.pipeline.jobs import planning
    from tokenmill.pipeline.running import display, progress, runner_jobs
    from tokenmill.pipeline.running.runners import check_beam_args, open_runner
    from tokenmill.pipeline.transforms import jobs

    output = plan.config.output.path
    watched = progress.Progress(plan.stages(), RejectLimits.of(plan.config.input))
    with contextlib.ExitStack() as stack:
        with mistakes():
            check_beam_args(settings)
            # Owned until the last worker is gone.
            lease = stack.enter_context(own(output, job, watched.cancel))
            runner, runner_options = stack.enter_context(open_runner(settings, debug=debug))
            if detach:
                runner_jobs.check_detachable(runner_options)
            planning.prepare(plan, mode)
        if not quiet:
            splits = f"{len(plan.splits)} {'split' if len(plan.splits) == 1 else 'splits'}"
            say(f"{job}: {display.megabytes(plan.n_bytes)} in {splits}, {settings}", display.seen(sys.stderr))
        pipeline = beam.Pipeline(runner=runner, options=runner_options)
        jobs.build(pipeline, dataclasses.replace(plan, lease=lease))
        if settings.in_process:
            stack.enter_context(progress.reporting_to(watched))
        else:
            watched.look_at(output)
        if not quiet and not detach:
            stack.enter_context(display.show(watched, sys.stderr))
        given: RunnerJob | None = None
        try:
            result = pipeline.run()
            given = runner_jobs.submitted(result, runner_options, lease.nonce, detached=detach)
            if given is not None:
                given.write(output)
                if detach:
                    return given
            state = result.wait_until_finish()
        except BaseException as error:
            # After Ctrl-C, too: workers in this process go on until they are told, and stop at their next batch.
            watched.cancel()
            if given is not None:
                runner_jobs.stop(given, output)
            if isinstance(error, Exception):
                with contextlib.suppress(OSError):
                    lease.check()  # if another command took the folder, this is the reason, whatever error it led to
            raise
        if state != "DONE":
            raise RuntimeError(f"{settings} ended the job in state {state}; its own log says why")
        if plan.tokenizes:
            _tell(plan, began, watched.lengths(time.monotonic()))
    return None


def _tell(plan: "JobPlan", began: float, stages: Sequence[tuple[str, float]]) -> None:
    """Writes `clock.json` and the report of a finished job; if that fails, the job is complete all the same."""
    from tokenmill.pipeline.running import clock

    output, name = plan.config.output.path, filenames.CLOCK
    try:
        clock.gather(output, len(plan.splits), began, stages, time.time() - began, plan.config.given())
        if plan.config.output.report:
            from tokenmill.pipeline.books.parts import folders_of
            from tokenmill.pipeline.reporting import page

            name = filenames.REPORT
            for folder in folders_of(output):
                page.draw(folder)
    except (OSError, ValueError) as error:
        say(f"warning: {name} could not be written: {error}")


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
    with mistakes():
        config, choose = prepared(
            options.config, options.overrides, options.job, options.beam_args, options.mode, options.workers
        )

    if getattr(options, "graph", False):  # which a dry run does not have
        return _print_graph(options.job, config)

    from tokenmill.pipeline.estimating import report
    from tokenmill.pipeline.running.messages import explain
    from tokenmill.pipeline.running.terminal import Terminal

    try:
        told = estimate(options.job, config, choose, quiet=options.quiet)
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


def _print_graph(job: "JobName", config: "Config") -> int:
    from tokenmill.pipeline.jobs.planning import plan_job
    from tokenmill.pipeline.transforms import jobs

    with mistakes():
        plan = plan_job(job, config)
    print("\n".join(jobs.outline(plan)))
    return DONE


def prepared(
    source: "ConfigSource", overrides: Sequence[str], job: "JobName",
    beam_args: Sequence[str], mode: "RunnerMode | None", workers: int | None,
) -> "tuple[Config, Callable[..., RunnerSettings]]":  # fmt: skip
    """Returns the config of a job, and `choose_runner` with the options of the command.

    Raises:
      OSError, ValueError: if one of them is wrong; the input is not looked at.
    """
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.running.runners import choose_runner

    config = load_config(source, overrides, job)
    choose = functools.partial(choose_runner, beam_args, mode=mode, workers=workers)
    choose()
    return config, choose


def planned(
    job: "JobName", config: "Config", choose: "Callable[..., RunnerSettings]", *, quiet: bool
) -> "tuple[JobPlan, RunnerSettings]":
    """Returns the plan of a job and where it runs, and says what it warns of; raises Mistake if it cannot begin.

    Args:
      choose: `choose_runner` with the options of the command.
      quiet: do not show how far it is, as it does from `_PATIENCE_SECONDS` on.
    """
    from tokenmill.pipeline.jobs.planning import plan_job
    from tokenmill.pipeline.running import display, progress

    watched = progress.Progress([progress.Stage("listing files", "", {})])
    shown = contextlib.nullcontext() if quiet else display.show(watched, sys.stderr, after=_PATIENCE_SECONDS)
    with mistakes(), progress.reporting_to(watched), shown:
        plan = plan_job(job, config)
        settings = choose(n_splits=len(plan.splits))
    for warning in plan.warnings:
        say(f"warning: {warning}")
    return plan, settings


def estimate(job: "JobName", config: "Config", choose: Callable[..., "RunnerSettings"], *, quiet: bool) -> "Told":
    """Tries a job on a sample of its input; `choose` and `quiet` as for `planned`.

    Raises:
      Mistake: if the job could not begin. OSError, ValueError: if it would fail.
    """
    from tokenmill.pipeline.estimating import advice, forecast, report

    plan, settings = planned(job, config, choose, quiet=quiet)
    start = _start(job, config, settings)
    found = forecast.forecast(plan)
    actual = report.outcome(plan)
    seconds = {}
    if start is not None:
        seconds = {workers: found.work.seconds(start, workers) for workers in _workers(settings.workers)}
    return report.Told(found, seconds, advice.advise(found, max(1, settings.workers)), actual)


def _start(name: Any, config: "Config", settings: "RunnerSettings") -> float | None:
    """Returns the seconds that a job takes to start and end, besides its work; None if it does not run here."""
    from tokenmill.pipeline.estimating.costs import START_SECONDS, measure_start

    if settings.name is not None:
        return None
    try:
        return measure_start(name, config, settings)
    except Exception as error:  # not every config can use the made-up text
        say(f"warning: the start could not be measured, so {START_SECONDS:.0f} s are assumed for it: {error}")
        return START_SECONDS


def _workers(most: int) -> list[int]:
    """Returns the powers of two below `most`, and `most`.

    >>> _workers(6)
    [1, 2, 4, 6]
    """
    return [*(1 << k for k in range(most.bit_length()) if 1 << k < most), most]
