# SPDX-License-Identifier: Apache-2.0
"""`tokenmill plan`, and `--dry-run` of the jobs: estimates of a job, from a sample. `estimating` does the work."""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import add_config, add_local, set_command
from tokenmill.pipeline.commands.reporting import DONE, FAILED, Mistake, mistakes, print_json, say

if TYPE_CHECKING:
    from tokenmill.pipeline.config.file import ConfigSource
    from tokenmill.pipeline.config.job import Config, JobName
    from tokenmill.pipeline.estimating.report import Told
    from tokenmill.pipeline.jobs.planning import JobPlan
    from tokenmill.pipeline.running.runners import Mode, RunnerSettings


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    plan = commands.add_parser(
        "plan",
        help="say what a job would do: tokens, rejects, bytes, time, memory",
        description="Tries a job on a sample of its input and estimates the whole job, with bounds. "
        "Writes nothing. If the output folder holds the finished job, compares the plan with it.",
    )
    add_config(plan)
    plan.add_argument("--job", choices=("run", "count", "train", "tokenize"), default="run", help="the job (run)")
    set_command(plan, plan_only, "the plan")
    add_local(plan)


def plan_only(options: argparse.Namespace) -> int:
    """Prints the plan of the job `options.job` of the config `options.config`."""
    with mistakes():
        config, choose = prepared(
            options.config, options.overrides, options.job, options.beam_args, options.mode, options.workers
        )

    from tokenmill.pipeline.estimating import report
    from tokenmill.pipeline.running.runners import explain
    from tokenmill.pipeline.running.terminal import Terminal

    try:
        told = estimate(options.job, config, choose)
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


def prepared(
    source: "ConfigSource", overrides: Sequence[str], job: "JobName",
    beam_args: Sequence[str], mode: "Mode | None", workers: int | None,
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
    job: "JobName", config: "Config", choose: "Callable[..., RunnerSettings]"
) -> "tuple[JobPlan, RunnerSettings]":
    """Returns the plan of a job and where it runs, and says what it warns of; raises Mistake if it cannot begin."""
    from tokenmill.pipeline.jobs.planning import plan_job

    with mistakes():
        plan = plan_job(job, config)
        settings = choose(n_splits=len(plan.splits))
    for warning in plan.warnings:
        say(f"warning: {warning}")
    return plan, settings


def estimate(job: "JobName", config: "Config", choose: Callable[..., "RunnerSettings"]) -> "Told":
    """Tries a job on a sample of its input; `choose` is `choose_runner` with the options of the command.

    Raises:
      Mistake: if the job could not begin. OSError, ValueError: if it would fail.
    """
    from tokenmill.pipeline.estimating import advice, forecast, report

    plan, settings = planned(job, config, choose)
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
