# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels ahead of time: runs all parts of a job's rehearsal at once, in processes beside the job.

    job --stdin--> this module as a program --fork--> a process per part
        <-stdout-- a line for each part that is over

The job goes on meanwhile, and waits only when it calls a kernel that is being compiled (`compiling`). It does not
depend on these processes: a kernel that they do not compile, the job compiles itself. They end when their stdin does,
so they end with the job. No Beam here.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.config.job import Config, JobName
from tokenmill.pipeline.input import json_kernels
from tokenmill.pipeline.running.progress import Snapshot, Source
from tokenmill.pipeline.statistics import tally
from tokenmill.tokenizer.compiling import kernel as compiling

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

STAGE = "compiling kernels for this machine (once)"

_PROGRAM = "tokenmill.pipeline.jobs.warming"
_POLL_SECONDS = 0.02


class WarmUp:
    """Processes that compile what a job needs. A context manager: leaving it ends them."""

    def __init__(self, name: JobName, config: Config, n_processes: int) -> None:
        """Starts nothing yet.

        Args:
          name: the name of the job.
          config: the config of the job.
          n_processes: how many compile at once.
        """
        self._name, self._config = name, config
        self._request = {"name": name, "config": config.model_dump(mode="json"), "n_processes": n_processes}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.started: float | None = None
        """When the processes were started, by `time.monotonic`; None if they were not."""
        self.ended: float | None = None
        """When all parts had ended, by `time.monotonic`; None before that."""
        self.n_parts = 0
        self.done: list[str] = []
        """Parts that have ended."""
        self.compiled: list[Path] = []
        """Paths of the kernels that were compiled."""
        self.problems: list[str] = []
        """Errors that ended parts early, a line each."""

    def start(self) -> None:
        """Starts the processes; does nothing if they were started before, or cannot be started."""
        with self._lock:
            if self.started is not None:
                return
            self.started = time.monotonic()
            try:
                self._process = _spawn(self._request)
            except OSError as error:
                self.problems.append(str(error))
                self.ended = self.started
                return
            self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
            self._reader.start()
        from tokenmill.pipeline.jobs import (
            rehearsal,  # only after the processes have started, because it imports most of the job's code
        )

        self.n_parts = len(rehearsal.parts_of(self._name, self._config))

    @property
    def is_running(self) -> bool:
        """Whether the processes were started and have not ended."""
        return self.started is not None and self.ended is None

    def wait_for(self, path: Path) -> None:
        """Waits until a kernel is compiled, or the processes have ended; starts them if needed."""
        self.start()
        while self.is_running and not path.exists():
            time.sleep(_POLL_SECONDS)

    def join(self) -> None:
        """Waits until all parts have ended."""
        if self._reader is not None:
            self._reader.join()

    def __enter__(self) -> "WarmUp":
        """Has the processes start when this process is about to compile a kernel; at once if none is compiled yet."""
        compiling.when_missing = self.wait_for
        if all(compiling.is_cold(Path(str(module.__file__))) for module in (json_kernels, tally)):
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        compiling.when_missing = None
        with self._lock:
            self.started = self.started or time.monotonic()  # nothing may start them any more
        if self._process is None:
            return
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self.join()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]  # both are pipes

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError, KeyError):
                told = json.loads(line)
                self.done.append(told["part"])
                self.compiled += map(Path, told["compiled"])
                if told["problem"]:
                    self.problems.append(f"{told['part']}: {told['problem']}")
        self.ended = time.monotonic()


def _spawn(request: dict[str, Any]) -> "subprocess.Popen[str]":
    # Started like workers, with this Python and these packages, but in their own process group: Ctrl-C is for the job.
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    paths = dict.fromkeys([*(os.path.abspath(path) for path in sys.path if path), ours])
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        text=True,
        process_group=0 if os.name == "posix" else None,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    return process


class Warming:
    """A source of progress: first of the warm-up, and after that of the job's stages."""

    def __init__(self, warm_up: WarmUp, source: Source | None = None) -> None:
        """Shows `warm_up`, and then `source`, if there is a job after it."""
        self._warm_up, self._source = warm_up, source
        self._is_last = False

    def snapshot(self, stage: str | None = None) -> Snapshot:
        """Returns the progress of the warm-up, or of the job."""
        if self._source is None or stage == STAGE or (stage is None and self._warm_up.ended is None):
            return Snapshot(STAGE, len(self._warm_up.done), self._warm_up.n_parts, unit="parts")
        return self._source.snapshot(stage)

    def entered(self) -> list[tuple[str, float]]:
        """Returns the stages so far; those of the job only after the warm-up."""
        started, ended = self._warm_up.started, self._warm_up.ended
        assert started is not None
        if self._source is None or (ended is None and not self._is_last):
            return [(STAGE, started)]
        begin = started if ended is None else ended
        return [(STAGE, started), *((name, max(since, begin)) for name, since in self._source.entered())]

    def refresh(self) -> None:
        """Makes the next, last answers up to date; a job may end before its warm-up."""
        self._is_last = True
        if self._source is not None:
            self._source.refresh()


def _serve(request: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Rehearses all parts of a job, `n_processes` at a time."""
    from tokenmill.pipeline.jobs import rehearsal

    config = Config.model_validate(request["config"])
    waiting = rehearsal.parts_of(request["name"], config)
    compiling.prepare()  # once, for all processes
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    running: dict[str, tuple[BaseProcess, Any]] = {}
    while waiting or running:
        while waiting and len(running) < request["n_processes"]:
            part = waiting.pop(0)
            told, teller = context.Pipe(duplex=False)
            process = context.Process(target=_rehearse, args=(part, request["name"], config, teller))
            process.start()
            teller.close()
            running[part] = process, told
        ended = wait([process.sentinel for process, _ in running.values()])
        for part, (process, told) in list(running.items()):
            if process.sentinel in ended:
                process.join()
                ended_with = {"problem": f"ended with code {process.exitcode}", "compiled": []}
                del running[part]
                tell({"part": part, **(told.recv() if told.poll() else ended_with)})


def _rehearse(part: str, name: JobName, config: Config, teller: Any) -> None:
    from tokenmill.pipeline.jobs import rehearsal

    threading.Thread(target=_end_with_parent, daemon=True).start()
    problem = ""
    try:
        rehearsal.rehearse(part, name, config)
    except Exception as error:  # the job will fail in the same way, or the sample differs from its input
        problem = f"{type(error).__name__}: {error}"
    teller.send({"problem": problem, "compiled": [str(path) for path in compiling.saved]})


def _end_with_stdin() -> None:
    # Not through sys.stdin: a process that is forked meanwhile would wait forever for its lock.
    while os.read(0, 1 << 16):
        pass
    if os.name == "posix":
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def main() -> None:
    """Serves the request that is the first line of stdin; ends when that does."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    _serve(request, lambda told: print(json.dumps(told), flush=True))


if __name__ == "__main__":
    main()
