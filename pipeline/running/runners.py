# SPDX-License-Identifier: Apache-2.0
"""Where and how a job runs: local workers on Beam's FnApiRunner, or any other Beam runner by name.

By `--runner=DirectRunner`, or no runner at all, people mean "here, on all my cores". Beam's own answer first tries to
download another runner, and its threads corrupt data (`NEVER_MS`), so the local runner is built explicitly:

========== ======================== ==================================================================
mode       workers                  for
========== ======================== ==================================================================
inline     the calling thread       debugging, one core
threads    threads of this process  the default: kernels and Arrow release the GIL
processes  one process each         code that holds the GIL; many cores: starting threads is serial work
========== ======================== ==================================================================

Every other runner gets the graph and the options unchanged. Beam is imported when a job starts, not before.
"""

import argparse
import contextlib
import difflib
import importlib
import os
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

from tokenmill.pipeline.running.messages import silence_workers

if typing.TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineRunner

Mode = Literal["inline", "threads", "processes"]
MODES: tuple[Mode, ...] = ("inline", "threads", "processes")

MAX_WORKERS = 1024
"""The most local workers; each takes memory and a thread or process."""

MAX_THREADS = 16
"""More workers than this are processes unless told otherwise.

The GIL serialises the start of threads, 0.2 s each; processes take 4.3 s each, but side by side.
"""

NEVER_MS = 1 << 30
"""Twelve days: how often a worker thread sends what it has written so far, besides when that is large or complete.

Beam's own threads (2.77) do so each second, from a timer, and cut an element in half if its coder runs in Python. With
0 Beam takes its own.
"""

_LOCAL_RUNNERS = ("directrunner", "fnapirunner", "switchingdirectrunner", "direct")
# Measured with Beam 2.77: they drop output of finish_bundle, run only the last branch of a graph, and raise no error.
_BROKEN_RUNNERS = ("daskrunner", "dask")


@dataclass(frozen=True)
class RunnerSettings:
    """Where a job runs. If `name` is None: here, with `mode` and `workers`; else on the Beam runner `name`."""

    name: str | None
    mode: Mode
    workers: int
    beam_args: tuple[str, ...] = field(default=())

    @property
    def in_process(self) -> bool:
        """Whether the workers live in this process, so that they can report progress directly."""
        return self.name is None and self.mode in ("inline", "threads")

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        return f"{self.workers} {'worker' if self.workers == 1 else 'workers'}, {self.mode}"


def choose_runner(
    beam_args: Sequence[str] = (), *, mode: Mode | None = None, workers: int | None = None, n_splits: int | None = None
) -> RunnerSettings:
    """Reads `--runner` out of Beam's options, and keeps the rest.

    Args:
      beam_args: Beam's own options, as given after `--`.
      mode: as in the table above; None: threads, or inline on one core and processes on more than `MAX_THREADS`.
      workers: at most this many; None: the cores this process may use.
      n_splits: the number of splits of the job, if known: no more workers are chosen than there is work for.

    Raises:
      ValueError: naming an option that is not allowed.
    """
    check_mode(mode)
    name, rest = _take_option(beam_args, "runner")
    if name is not None and name.lower() in _BROKEN_RUNNERS:
        raise ValueError(f"--runner={name}: loses data without an error (Beam 2.77); use DirectRunner or FlinkRunner")
    if name is not None and name.rpartition(".")[2].lower() not in _LOCAL_RUNNERS:
        if mode is not None or workers is not None:
            raise ValueError(f"--mode and --workers are for local runs; {name} has options of its own, after --")
        _check_runner(name)
        return RunnerSettings(name, "processes", 0, tuple(beam_args))

    for option, ours in (("direct_running_mode", "--mode"), ("direct_num_workers", "--workers")):
        if _take_option(rest, option)[0] is not None:
            raise ValueError(f"--{option}: is not used here; say it by {ours} of tokenmill, before --")
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be at least 1, got {workers}")
    if mode == "inline" and workers not in (None, 1):
        raise ValueError(f"--mode inline has one worker, got --workers {workers}; use --mode threads")
    if workers is None:
        workers = 1 if mode == "inline" else available_cores()
    if n_splits is not None:  # those without a split would only start and end
        workers = max(1, min(workers, n_splits))
    if mode is None:
        mode = "inline" if workers == 1 else "threads" if workers <= MAX_THREADS else "processes"
    return RunnerSettings(None, mode, workers, tuple(rest))


def check_mode(mode: str | None) -> None:
    """Raises ValueError unless `mode` is one of `MODES`, or None."""
    if mode == "hybrid":
        raise ValueError("mode hybrid is gone: processes serve many cores; without a mode they are chosen there")
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")


def _check_runner(name: str) -> None:
    """Raises ValueError if Beam knows no such runner, nor is it the full name of a class."""
    from apache_beam.options.pipeline_options import StandardOptions

    known = StandardOptions.KNOWN_RUNNER_NAMES
    if "." not in name and not {name.lower(), f"{name.lower()}runner"} & {each.lower() for each in known}:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(
            f"--runner={name}: Beam has no such runner; {hint}there are {', '.join(known)}, and classes by full names"
        )


def available_cores() -> int:
    """Returns how many cores this process may use: affinity and cgroups limit them, so the machine may have more."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def open_runner(
    settings: RunnerSettings, *, debug: bool = False
) -> Iterator[tuple["PipelineRunner | str", "PipelineOptions"]]:
    """Yields the runner and the options for `beam.Pipeline(runner, options)`; worker processes live until the end.

    Raises:
      RuntimeError: when a worker process died, saying how, in place of the error that the runner raised for it.
    """
    with _without_notebook(), _open(settings, debug) as opened:
        yield opened


@contextlib.contextmanager
def _without_notebook() -> Iterator[None]:
    """Keeps Beam (2.77) from its interactive mode, which needs pandas below 3 to give the steps other names."""
    with contextlib.ExitStack() as stack:
        for name in ("apache_beam.utils.interactive_utils", "apache_beam.pipeline"):
            module: Any = importlib.import_module(name)
            stack.callback(setattr, module, "is_in_ipython", module.is_in_ipython)
            module.is_in_ipython = lambda: False
        yield


@contextlib.contextmanager
def _open(settings: RunnerSettings, debug: bool) -> Iterator[tuple["PipelineRunner | str", "PipelineOptions"]]:
    from apache_beam.options.pipeline_options import PipelineOptions

    if settings.name is not None:
        args = [*settings.beam_args]
        # By pip Beam lists what is installed, or warns. `find_spec("pip")` would make setuptools replace distutils.
        if not any(metadata.distributions(name="pip")):
            args.append("--experiments=disable_logging_submission_environment")
        # Always with a list: without one Beam would parse sys.argv.
        silence_workers()  # which are in this process with `--environment_type=LOOPBACK`
        yield settings.name, PipelineOptions(args)
        return

    options = PipelineOptions(
        [
            f"--direct_num_workers={settings.workers}",
            "--no_save_main_session",  # the DoFns live in an installed package
            *settings.beam_args,
        ]
    )
    if settings.mode == "processes":
        from tokenmill.pipeline.running import workers

        with workers.local(settings.workers, debug=debug) as (pool, environment):
            try:
                yield _fn_api_runner(environment, options), options
            except Exception as error:  # its type depends on where the runner noticed that its worker is gone
                if pool.failure is not None:
                    raise RuntimeError(pool.failure) from error
                raise
    elif settings.mode == "threads":
        from apache_beam.transforms import environments

        threads = environments.EmbeddedPythonGrpcEnvironment(
            data_buffer_time_limit_ms=NEVER_MS, capabilities=environments.python_sdk_capabilities()
        )
        silence_workers()
        yield _fn_api_runner(threads, options), options
    else:
        yield _fn_api_runner(None, options), options


def _fn_api_runner(environment: Any, options: "PipelineOptions") -> "PipelineRunner":
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    told = JobServiceHandle.encode_pipeline_options(options.get_all_options(drop_default=True))
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=told)
    return fn_runner.FnApiRunner(default_environment=environment, provision_info=fn_runner.ExtendedProvisionInfo(info))


def _take_option(args: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Returns the last value of `--name=value` or `--name value`, and the arguments without it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(f"--{name}", dest="value")
    try:
        found, rest = parser.parse_known_args(args)
    except argparse.ArgumentError:
        raise ValueError(f"--{name} needs a value") from None
    return found.value, rest


def check_beam_args(settings: RunnerSettings) -> None:
    """Raises ValueError for an option that Beam does not know, and would drop with a mere warning.

    This is for local runs; another runner may know more options than this machine.
    """
    if settings.name is not None:
        return
    from apache_beam.options.pipeline_options import PipelineOptions

    parser: Any = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    try:
        unknown = parser.parse_known_args(list(settings.beam_args))[1]
    except (argparse.ArgumentError, SystemExit) as error:
        raise ValueError(f"Beam options {' '.join(settings.beam_args)!r}: {error}") from None
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]
        name = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{unknown[0]}: no such Beam option{hint}")
