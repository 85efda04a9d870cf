# SPDX-License-Identifier: Apache-2.0
"""numba does not check array bounds; here the tests of the kernels run once more with the checks compiled in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_LEFT_OUT = {
    Path(__file__).name, "test_kernel.py", "test_encode_path.py", "test_registry.py", "test_growth.py"
}  # fmt: skip
"""This one, one whose programs are run without the checks, those that read sources, and one that counts memory."""
_PARTS = 2
"""As few as let two processes share them: each imports and collects all tests anew."""


@pytest.mark.parametrize("part", range(_PARTS))
def test_kernels_stay_within_bounds(repository: Path, part: int) -> None:
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "TOKENMILL_EXAMPLES": "10"}
    files = sorted((repository / "tests" / "tokenizer").rglob("test_*.py"))
    files = [path for path in files if path.name not in _LEFT_OUT and path.parent.name != "chat"]  # which has no kernel
    tests = [str(path) for path in files][part::_PARTS]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=repository, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-4000:]


def test_the_checks_would_fire_in_kernels_from_the_cache_too(repository: Path, tmp_path: Path) -> None:
    program = tmp_path / "beyond.py"
    program.write_text(
        "import numpy as np\n"
        "from tokenmill.tokenizer.compiling.kernel import kernel\n"
        "@kernel\n"
        "def beyond(array):\n"
        "    return array[10]\n"
        "beyond(np.zeros(3))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(repository), "TOKENMILL_CACHE_DIR": str(tmp_path)}
    for checks in ({}, {"NUMBA_BOUNDSCHECK": "1"}, {"NUMBA_BOUNDSCHECK": "1"}):
        run = subprocess.run(
            [sys.executable, str(program)], env=environment | checks, capture_output=True, text=True, check=False
        )
        assert ("IndexError" in run.stderr) == bool(checks)
    assert len([*tmp_path.rglob("beyond-*.kernel")]) == 2
