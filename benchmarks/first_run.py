# SPDX-License-Identifier: Apache-2.0
"""Times `./run.sh` in a fresh clone with an empty home folder, and once more: `./run.sh bench first-run`.

It prints wall-clock seconds of each part, and what of them was waiting for kernels. It needs the package registry.
Other programs on the machine lengthen every part.
"""

import itertools
import os
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import report

_PARTS = ("set-up", "corpus", "run", "verify", "inspect")
_STEP = re.compile(r"== (\d) of 4")
_WAITED = re.compile(r"tokenmill: waited ([\d.]+) s for kernels")


def main() -> None:
    """Prints a table of both runs: from a clone alone, and with everything installed and compiled."""
    print(f"{report.describe()}\n")
    columns = [*_PARTS, "all", "kernels", "processor"]
    print(f"| {'':8} | {' | '.join(f'{name:>9}' for name in columns)} |")
    rule = f" {'-' * 8}: |"
    print(f"| {'-' * 8} |{rule * len(columns)}")
    with tempfile.TemporaryDirectory(prefix="tokenmill-first-run-") as folder:
        clone, home = Path(folder, "clone"), Path(folder, "home")
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", ".", str(clone)], check=True)
        kept = {name: value for name, value in os.environ.items() if name not in ("TOKENMILL_CACHE_DIR", "VIRTUAL_ENV")}
        for name in ("first", "second"):
            seconds = _quickstart(clone, kept | {"HOME": str(home), "CI": "true"})  # CI: nothing goes on behind it
            print(f"| {name:8} | {' | '.join(f'{each:7.1f} s' for each in seconds)} |", flush=True)


def _quickstart(clone: Path, environment: dict[str, str]) -> list[float]:
    """Returns wall-clock seconds of each part and of all, those that were waits for kernels, and processor seconds."""
    began, used, waited = time.monotonic(), _processor_seconds(), 0.0
    starts = [began]
    with subprocess.Popen(
        ["./run.sh"], cwd=clone, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if _STEP.match(line):
                starts.append(time.monotonic())
            elif match := _WAITED.match(line):
                waited += float(match[1])
    if process.returncode:
        raise SystemExit(f"./run.sh ended with exit code {process.returncode}; see {clone}/build/setup.log")
    starts.append(time.monotonic())
    parts = [stop - start for start, stop in itertools.pairwise(starts)]
    return [*parts, starts[-1] - began, waited, _processor_seconds() - used]


def _processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
