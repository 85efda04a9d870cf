# SPDX-License-Identifier: Apache-2.0
"""Where Prism is, Beam's portable runner in Go, for the tests that run on it."""

import os
import shutil
from pathlib import Path

import pytest


def prism_path() -> str:
    """Returns the path of the program, or skips the test, saying how to get it."""
    found = os.environ.get("TOKENMILL_PRISM") or shutil.which("prism")
    if found is None or not Path(found).is_file():
        pytest.skip(
            "needs Prism: go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0, or set TOKENMILL_PRISM"
        )
    return found


def prism_args() -> tuple[str, ...]:
    return ("--runner=PrismRunner", f"--prism_location={prism_path()}", "--environment_type=LOOPBACK")
