# SPDX-License-Identifier: Apache-2.0
"""What the tests of installations need: a wheel of what a clone would hold, and environments of their own."""

import fcntl
import sys
from pathlib import Path

import pytest

from tests.installing import PIP, checked, copy_clone, set_up


@pytest.fixture(scope="session")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the packages as they are now, built where nothing of an earlier build is left."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    copy_clone(repository, sources)
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    checked(*PIP, "wheel", *offline, "--wheel-dir", folder, sources, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture
def empty_python(tmp_path: Path) -> Path:
    """The Python of a virtual environment that holds nothing."""
    checked(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    return tmp_path / "venv" / "bin" / "python"


@pytest.fixture(scope="session")
def clone(repository: Path) -> Path:
    """A clone with a .venv of exactly `locks/runtime.lock`; made once, and kept in build/ for the next test run."""
    folder = repository / "build" / "installation" / "clone"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:  # other processes of this test run want it too
        fcntl.flock(lock, fcntl.LOCK_EX)
        copy_clone(repository, folder)
        set_up(folder)
    return folder
