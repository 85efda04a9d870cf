# SPDX-License-Identifier: Apache-2.0
"""Runs one function on many inputs in forks of this process, so that a crash or a hang costs one input and is seen."""

import os
import shutil
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

_MEMORY_BYTES = 8 << 30


def in_forks(
    numbers: range, folder: Path, run_one: Callable[[int, Path], str], seconds: float
) -> Iterator[tuple[int, str, float]]:
    """Yields, for every input, its number, what `run_one` returns for it or how it ended, and how long that took.

    Args:
      numbers: the numbers of the inputs.
      folder: where each has a folder of its own, named by its number.
      run_one: called in a fork of this process with a number and its folder.
      seconds: how long an input may take.
    """
    left = list(numbers)
    while left:
        reader, writer = os.pipe()
        process = os.fork()
        if not process:
            os.close(reader)
            _work(left, folder, writer, run_one)
        os.close(writer)
        while left:
            started = time.monotonic()
            message = _receive(reader, seconds)
            taken = time.monotonic() - started
            if message is None or not message:
                os.kill(process, signal.SIGKILL)
                yield (
                    left.pop(0),
                    f"hang: longer than {seconds} s" if message is None else "crash: the process died",
                    taken,
                )
                break
            yield left.pop(0), message, taken
        os.close(reader)
        os.waitpid(process, 0)


def _receive(reader: int, seconds: float) -> str | None:
    """Returns the next message; "" when the writer is gone, None when nothing comes in time."""
    import select

    if not select.select([reader], [], [], seconds)[0]:
        return None
    head = os.read(reader, 4)
    if len(head) < 4:
        return ""
    left, parts = struct.unpack("<I", head)[0], []
    while left and (part := os.read(reader, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts).decode(errors="replace")


def _work(numbers: list[int], folder: Path, writer: int, run_one: Callable[[int, Path], str]) -> None:
    import resource

    # Besides what the process that was forked has, which may be the worker of many tests.
    statm = Path("/proc/self/statm")
    before = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0
    resource.setrlimit(resource.RLIMIT_AS, (before + _MEMORY_BYTES, before + _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in numbers:
        place = folder / str(number)
        try:
            outcome = run_one(number, place)
        except BaseException:  # SystemExit too: the benchmark looks for anything that an input does to the job
            outcome = f"problem: {traceback.format_exc()[-3000:]}"
        shutil.rmtree(place, ignore_errors=True)
        data = outcome.encode(errors="replace")
        os.write(writer, struct.pack("<I", len(data)) + data)
    os._exit(0)
