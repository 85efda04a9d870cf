# SPDX-License-Identifier: Apache-2.0
"""Prism, Beam's default runner, for tests: where it is, or how it is built.

`TOKENMILL_PRISM` names it, or it is `prism` on the PATH, or in `build/prism`; with `-m prism` Go builds it there, once.
"""

import importlib.metadata  # to import Beam takes a second or two
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build/prism"
PACKAGE = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{importlib.metadata.version('apache-beam')}"
BUILD_SECONDS = 1800


class NotHereError(Exception):
    """There is no Prism on this machine; the message says what was looked for."""


def find(*, build: bool) -> Path:
    """Returns the program; with `build` Go makes it if there is none."""
    named, on_path = os.environ.get("TOKENMILL_PRISM"), shutil.which("prism")
    if named is not None:
        return Path(named)
    if on_path is not None and _is_beams(on_path):
        return Path(on_path)
    if not (FOLDER / "prism").exists():
        if not build:
            raise NotHereError("needs Prism: set TOKENMILL_PRISM, or let Go build it: pytest -m prism")
        if shutil.which("go") is None:
            raise NotHereError("needs Prism, or go on the PATH to build it")
        environment = os.environ | {"GOBIN": str(FOLDER)}
        command = ["go", "install", PACKAGE]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        if done.returncode != 0:
            raise NotHereError(f"Go could not build Prism: {done.stderr[-500:]}")
    return FOLDER / "prism"


def _is_beams(program: str) -> bool:
    """Whether it is not one of the other programs of that name."""
    done = subprocess.run([program, "-help"], capture_output=True, text=True, timeout=60, check=False)
    return "-job_port" in done.stdout + done.stderr
