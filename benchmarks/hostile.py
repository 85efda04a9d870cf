# SPDX-License-Identifier: Apache-2.0
"""Runs the tokenize job over thousands of hostile inputs: none may crash it, hang it or unbalance its books.

With --arrays it gives hostile Arrow arrays to every public function that takes such data, in kernels that check bounds.

An input is either refused before any work, with a ValueError or OSError that says why, or it is tokenized and
`verify` proves the output. Anything else is a problem, printed with the number that makes the input again. The exit
code is 1 if there is one.
"""

import collections
import os
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import hostile_arrays, hostile_inputs, report

SECONDS = 10.0
"""An input that takes longer counts as a hang."""

_WARM_UP = range(-12, 0)
"""Inputs to run before the fork, so that no input waits for kernels to be loaded."""
_MEMORY_BYTES = 8 << 30


def main(arguments: list[str]) -> int:
    """Runs the inputs; returns the exit code."""
    parser = report.parser("hostile", __doc__)
    parser.add_argument("--n", type=int, default=10_000, help="inputs (default 10,000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default 0)")
    parser.add_argument("--arrays", action="store_true", help="Arrow arrays for functions instead of files for the job")
    parser.add_argument("--keep", metavar="FOLDER", help="make the first input there, run nothing")
    options = parser.parse_args(arguments)
    if options.keep:
        print(hostile_inputs.make(options.first, Path(options.keep)))
        return 0
    make_one = None
    if options.arrays:
        os.environ["NUMBA_BOUNDSCHECK"] = "1"
        make_one = hostile_arrays.run_one
        hostile_arrays.warm_up()
    started = time.monotonic()
    outcomes: collections.Counter[str] = collections.Counter()
    n_problems = 0
    slowest = (0.0, -1)
    numbers = range(options.first, options.first + options.n)
    with tempfile.TemporaryDirectory(prefix="tokenmill-hostile-") as folder:
        for number, outcome, seconds in run(numbers, Path(folder), make_one):
            slowest = max(slowest, (seconds, number))
            first_line = outcome.partition("\n")[0]
            is_problem = not first_line.startswith(("proven", "refused"))
            outcomes[first_line.partition(": ")[0] if is_problem else first_line] += 1
            if is_problem:
                n_problems += 1
                print(f"input {number}: {outcome}", flush=True)
    for outcome, n in sorted(outcomes.items()):
        print(f"{n:6}  {outcome}")
    n = sum(outcomes.values())
    print(
        f"{n} inputs in {time.monotonic() - started:.0f} s, {n_problems} problems; the slowest, {slowest[1]}, took "
        f"{slowest[0]:.1f} s"
    )
    return 1 if n_problems or n < options.n else 0


def run(
    numbers: range, folder: Path, make_one: Callable[[int, Path], str] | None = None
) -> Iterator[tuple[int, str, float]]:
    """Yields, for every input, its number, the result ("proven: kind", "refused: kind" or a problem), and seconds.

    The inputs run in a fork of this process; one that dies or hangs is named, and another fork goes on after it.

    Args:
      numbers: the numbers of the inputs.
      folder: an empty folder.
      make_one: makes and runs an input in a new folder; None: `run_one`.
    """
    make_one = make_one or run_one
    for number in _WARM_UP:
        make_one(number, folder / "first")
        shutil.rmtree(folder / "first")
    return _in_forks(numbers, folder, make_one, SECONDS)


def _in_forks(
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


def run_one(number: int, folder: Path) -> str:
    """Makes and runs one input; returns "proven: kind", "refused: kind" or what is wrong."""
    from tokenmill.pipeline import storage
    from tokenmill.pipeline.books.job_books import PlannedSplits
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.jobs import finish, planning
    from tokenmill.pipeline.proving import verify
    from tokenmill.pipeline.tokenizing import tokenize
    from tokenmill.pipeline.transforms.stages import compiled_tokenizer

    made = hostile_inputs.make(number, folder)
    try:
        config = load_config(
            made["config"],
            [f"output.path={folder / 'out'}", "input.on_damage=warn", "tokenizer.max_unknown_fraction=1"],
            "tokenize",
        )
        plan = planning.plan_job("tokenize", config)
    except (ValueError, OSError) as error:
        return f"refused: {made['kind']}" if str(error).strip() else f"silent: {type(error).__name__} without a message"
    planning.prepare(plan, "new")
    tokenizer = compiled_tokenizer(storage.read_text(plan.tokenizer_path))
    try:
        for split in plan.splits:
            tokenize.tokenize_split(split, config, tokenizer, len(plan.splits))
        finish.finish_output(finish.Folder(config, plan.job, PlannedSplits(plan.splits), tokenizer))
    except ValueError as error:
        # A missing setting, or an input without a usable record, is found only when the input is read.
        if "tokenizer.padding.length" in str(error) or "records read can be used" in str(error):
            return f"refused: {made['kind']}"
        raise
    report = verify.verify(config.output.path)
    return f"proven: {made['kind']}" if report.is_proven else f"not proven: {made['kind']}: {report.problems[:5]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
