# SPDX-License-Identifier: Apache-2.0
"""Jobs as somebody asks for them, on the command line or in Python: checked, planned, tried, run."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline import filenames
from tokenmill.pipeline.commands.reporting import mistakes, say

if TYPE_CHECKING:
    from apache_beam import Pipeline

    from tokenmill.pipeline.config.file import ConfigSource
    from tokenmill.pipeline.config.job import Config, JobName
    from tokenmill.pipeline.estimating.report import Told
    from tokenmill.pipeline.jobs.planning import JobPlan
    from tokenmill.pipeline.output.folders import Mode
    from tokenmill.pipeline.output.ownership import Lease
    from tokenmill.pipeline.running.runner_jobs import RunnerJob
    from tokenmill.pipeline.running.runners import Mode as RunnerMode
    from tokenmill.pipeline.running.runners import RunnerSettings

_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Request:
    """A job that somebody asks for."""

    job: "JobName"
    config: "Config"
    beam_args: Sequence[str] = ()
    mode: "RunnerMode | None" = None
    workers: int | None = None
    quiet: bool = False
    """Whether no progress is shown on stderr."""
    debug: bool = False

    @classmethod
    def of(cls, job: "JobName", source: "ConfigSource", overrides: Sequence[str] = (), **where: Any) -> "Request":
        """Returns a request for a job of a config; `where` has the other attributes.

        Raises:
          OSError, ValueError: if one of them is wrong; the input is not looked at.
        """
        from tokenmill.pipeline.config.file import load_config

        request = cls(job, load_config(source, overrides, job), **where)
        request._choose_runner()
        return request

    def _choose_runner(self, n_splits: int | None = None) -> "RunnerSettings":
        from tokenmill.pipeline.running.runners import choose_runner

        return choose_runner(self.beam_args, mode=self.mode, workers=self.workers, n_splits=n_splits)

    def plan(self) -> "tuple[JobPlan, RunnerSettings]":
        """Returns the plan of the job and where it runs, and says what it warns of.

        Shows how far it is from `_PATIENCE_SECONDS` on.

        Raises:
          Mistake: if the job cannot begin.
        """
        from tokenmill.pipeline.jobs.planning import plan_job
        from tokenmill.pipeline.running import display, progress

        watched = progress.Progress([progress.Stage("listing files", "", {})])
        is_shown = not self.quiet
        shown = display.show(watched, sys.stderr, after=_PATIENCE_SECONDS) if is_shown else contextlib.nullcontext()
        with mistakes(), progress.reporting_to(watched), shown:
            plan = plan_job(self.job, self.config)
            settings = self._choose_runner(len(plan.splits))
        for warning in plan.warnings:
            say(f"warning: {warning}")
        return plan, settings

    def estimate(self) -> "Told":
        """Tries the job on a sample of its input.

        Raises:
          Mistake: if the job could not begin. OSError, ValueError: if it would fail.
        """
        from tokenmill.pipeline.estimating import forecast, report

        plan, settings = self.plan()
        start = self._measure_start(settings)
        return report.Told.of(forecast.forecast(plan), start, settings.workers)

    def _measure_start(self, settings: "RunnerSettings") -> float | None:
        """Returns the seconds that the job takes to start and end, besides its work; None if it does not run here."""
        from tokenmill.pipeline.estimating.rehearsal import START_SECONDS, measure_start

        if settings.name is not None:
            return None
        try:
            return measure_start(self.job, self.config, settings)
        except Exception as error:  # not every config can use the made-up text
            say(f"warning: the start could not be measured, so {START_SECONDS:.0f} s are assumed for it: {error}")
            return START_SECONDS

    def _check_output(self, mode: "Mode") -> None:
        """Refuses a folder that another job owns or has filled: now, because listing the input may take minutes."""
        from tokenmill.pipeline.jobs.same_job import difference
        from tokenmill.pipeline.output import folders
        from tokenmill.pipeline.output.ownership import check_free

        output = self.config.output.path
        with mistakes():
            check_free(output)
            if mode == "new":
                with contextlib.suppress(NotADirectoryError):  # `own` tells of a file in its place
                    folders.check_empty(output, lambda there: difference(there, self.config, self.job))

    def run(self, mode: "Mode", *, detach: bool = False) -> "tuple[Sequence[str], RunnerJob | None]":
        """Plans and runs the job.

        Args:
          detach: return once a runner elsewhere has the job.

        Returns:
          What was warned of before the job began, and the job of the runner if it was detached.

        Raises:
          Mistake: if it cannot begin. Whatever a runner or a file system raises, if it fails.
        """
        from tokenmill.pipeline.output.ownership import own

        began, output = time.time(), self.config.output.path
        self._check_output(mode)
        plan, settings = self.plan()

        import apache_beam as beam

        from tokenmill.pipeline.books.reject_limits import RejectLimits
        from tokenmill.pipeline.jobs import planning
        from tokenmill.pipeline.running import display, progress, runner_jobs
        from tokenmill.pipeline.running.runners import check_beam_args, open_runner
        from tokenmill.pipeline.transforms import jobs

        watched = progress.Progress(plan.stages(), RejectLimits.of(plan.config.input))
        with contextlib.ExitStack() as stack:
            with mistakes():
                check_beam_args(settings)
                # Owned until the last worker is gone.
                lease = stack.enter_context(own(output, self.job, watched.cancel))
                runner, options = stack.enter_context(open_runner(settings, debug=self.debug))
                if detach:
                    runner_jobs.check_detachable(options)
                planning.prepare(plan, mode)
            if not self.quiet:
                n, size = len(plan.splits), display.megabytes(plan.n_bytes)
                splits = f"{n} {'split' if n == 1 else 'splits'}"
                say(f"{self.job}: {size} in {splits}, {settings}", display.seen(sys.stderr))
            pipeline = beam.Pipeline(runner=runner, options=options)
            jobs.build(pipeline, dataclasses.replace(plan, lease=lease))
            if settings.in_process:
                stack.enter_context(progress.reporting_to(watched))
            else:
                watched.look_at(output)
            if not self.quiet and not detach:
                stack.enter_context(display.show(watched, sys.stderr))
            try:
                state, given = _run(pipeline, lease, detach)
            except BaseException:
                # After Ctrl-C, too: workers in this process go on until they are told, and stop at their next batch.
                watched.cancel()
                raise
            if given is None and state != "DONE":
                raise RuntimeError(f"{settings} ended the job in state {state}; its own log says why")
            if given is None and plan.tokenizes:
                _record_times(plan, began, watched.lengths(time.monotonic()))
        return plan.warnings, given


def _run(pipeline: "Pipeline", lease: "Lease", detach: bool) -> "tuple[str, RunnerJob | None]":
    """Runs a graph that finishes the folder of `lease`; returns its last state, and its runner's job if detached."""
    from tokenmill.pipeline.running import runner_jobs

    given: RunnerJob | None = None
    try:
        result = pipeline.run()
        given = runner_jobs.submitted(result, pipeline.options, lease.nonce, detached=detach)
        if given is not None:
            given.write(lease.output)
            if detach:
                return "RUNNING", given
        return str(result.wait_until_finish()), None
    except BaseException as error:
        if given is not None:
            runner_jobs.stop(given, lease.output)
        if isinstance(error, Exception):
            with contextlib.suppress(OSError):
                lease.check()  # if another command took the folder, this is the reason, whatever error it led to
        raise


def _record_times(plan: "JobPlan", began: float, stages: Sequence[tuple[str, float]]) -> None:
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
