# SPDX-License-Identifier: Apache-2.0
"""Times the quickstart with nothing compiled, as after installation, and once more: `./run.sh bench first-run`.

It prints wall-clock and processor seconds of each step, and of all. Other programs on the machine lengthen the former.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks import report

_PYTHON = [sys.executable, "-m"]
_CONFIG = "configs/quickstart.yaml"
_STEPS = {
    "corpus": [*_PYTHON, "tokenmill.pipeline.quickstart", "build/quickstart/corpus"],
    "run": [*_PYTHON, "tokenmill", "run", _CONFIG, "--overwrite"],
    "verify": [*_PYTHON, "tokenmill", "verify", _CONFIG],
    "inspect": [*_PYTHON, "tokenmill", "inspect", _CONFIG, "--start", "4", "--rows", "2"],
}


def main() -> None:
    """Prints a table of both runs: with nothing compiled, and with everything compiled."""
    print(f"{report.describe(report.machine())}\n")
    print(f"| {'':8} | {' | '.join(f'{name:>15}' for name in [*_STEPS, 'all'])} |")
    rule = f" {'-' * 14}: |"
    print(f"| {'-' * 8} |{rule * (len(_STEPS) + 1)}")
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TOKENMILL_CACHE_DIR": cache}
        for name in ("cold", "compiled"):
            steps = _steps(environment, is_first=name == "cold")
            print(f"| {name:8} | {' | '.join(f'{wall:5.1f} s, {used:4.1f} s' for wall, used in steps)} |")


def _steps(environment: dict[str, str], *, is_first: bool) -> list[tuple[float, float]]:
    """Does the steps as `./run.sh` does; returns wall-clock and processor seconds of each and of all."""
    began, used = time.monotonic(), _processor_seconds()
    warm = None
    if is_first:
        warm = subprocess.Popen([*_PYTHON, "tokenmill", "warm", _CONFIG], env=environment, stdout=-3, stderr=-3)
    found = []
    for name, command in _STEPS.items():
        start, before = time.monotonic(), _processor_seconds()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        if name == "corpus" and warm is not None:
            warm.wait()
        found.append((time.monotonic() - start, _processor_seconds() - before))
    return [*found, (time.monotonic() - began, _processor_seconds() - used)]


def _processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
