# SPDX-License-Identifier: Apache-2.0
"""`tokenmill plan`, and `--dry-run` of the jobs: estimates of a job, from a sample. `estimating` does the work."""

import argparse
import functools
import json
import sys
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import add_local, add_output, add_set, file_path
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, say

if TYPE_CHECKING:
    from tokenmill.pipeline.config.job import Config
    from tokenmill.pipeline.running.runners import RunnerSettings


def add_parsers(commands: Any) -> None:
    """Adds this to the commands of a parser."""
    plan = commands.add_parser(
        "plan",
        help="say what a job would do: tokens, rejects, bytes, time, memory",
        description="Tries a job on a sample of its input and estimates the whole job, with bounds. "
        "Writes nothing. If the output folder holds the finished job, compares the plan with it.",
    )
    plan.add_argument(
        "config", type=file_path, metavar="CONFIG", help="a YAML file; `tokenmill schema` says what may be in it"
    )
    add_set(plan)
    plan.add_argument("--job", choices=("run", "count", "train", "tokenize"), default="run", help="the job (run)")
    add_output(plan, "the plan")
    add_local(plan)
    plan.set_defaults(command=plan_only)


def plan_only(options: argparse.Namespace) -> int:
    """Prints the plan of the job `options.job` of the config `options.config`."""
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.jobs.warming import WarmUp
    from tokenmill.pipeline.running.runners import available_cores, choose_runner, explain

    with mistakes():
        config = load_config(options.config, options.overrides, options.job)
        choose = functools.partial(choose_runner, options.beam_args, mode=options.mode, workers=options.workers)
        settings = choose()

    from tokenmill.pipeline.estimating import advice, comparison, forecast, report
    from tokenmill.pipeline.jobs.planning import plan_job
    from tokenmill.pipeline.running.terminal import Terminal

    with WarmUp(options.job, config, available_cores()):
        with mistakes():
            plan = plan_job(options.job, config)
            settings = choose(n_splits=len(plan.splits))
        for warning in plan.warnings:
            say(f"warning: {warning}")
        start = _start(options.job, config, settings)
        try:
            found = forecast.forecast(plan)
            actual = comparison.outcome(plan)
        except (OSError, ValueError) as error:
            if options.debug:
                raise
            say(f"the job would fail: {explain(error)}")
            return FAILED
    seconds = {}
    if start is not None:
        seconds = {workers: found.work.seconds(start, workers) for workers in _workers(settings.workers)}
    told = report.Told(found, seconds, advice.advise(found, max(1, settings.workers)), actual)
    if options.json:
        print(json.dumps(report.to_record(told), indent=1, ensure_ascii=False))
    else:
        Terminal(sys.stdout, soft_wrap=True).print(report.render(told))
    return DONE


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
