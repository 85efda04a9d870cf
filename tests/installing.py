# SPDX-License-Identifier: Apache-2.0
"""Installations of our own: environments, wheels, and commands that run there as a user would run them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def environment(**variables: str) -> dict[str, str]:
    """What a user's shell has set: nothing of this test run, of its Python or of TokenMill but where kernels are."""
    ours = ("PYTHON", "VIRTUAL_ENV", "PYTEST", "HF_", "NUMBA_", "TOKENMILL_", "__PYVENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kernels = {name: os.environ[name] for name in ("TOKENMILL_CACHE_DIR",) if name in os.environ}
    return kept | kernels | variables


def run(*command: str | Path, cwd: Path, seconds: int = 600, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command as a user would, and keeps what it prints."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd, env=environment(**variables), capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


def checked(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Runs a command that must succeed, and returns what it printed to stdout."""
    done = run(*command, cwd=cwd, **variables)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def tracked_files(repository: Path) -> list[str]:
    """The files that a clone would have, with those that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"needs a git checkout: {listed.stderr.strip()}")
    paths = ((name, repository / name) for name in listed.stdout.splitlines())
    return [name for name, path in paths if path.is_symlink() or path.is_file()]


def install(python: Path, *wheels: Path) -> None:
    """Puts wheels into the environment of `python`, without what they need."""
    options = ("--no-index", "--no-deps", "--force-reinstall")
    checked(*PIP, "--python", python, "install", *options, *wheels, cwd=python.parent)


# What pip says when it cannot reach a registry.
UNREACHABLE = re.compile(
    r"Retrying \(|ConnectionError|Temporary failure in name resolution|Connection refused|timed out"
)


def copy_clone(repository: Path, clone: Path) -> None:
    """Makes `clone` what a clone of the repository would be; keeps its .venv and build/."""
    names = set(tracked_files(repository))
    for path in [path for path in _files(clone) if str(path.relative_to(clone)) not in names]:
        path.unlink()
    for name in names:
        target = clone / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (repository / name).is_symlink():
            if not target.is_symlink():
                target.symlink_to((repository / name).readlink())
        elif not target.exists() or target.read_bytes() != (repository / name).read_bytes():
            shutil.copy(repository / name, target)


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_symlink():
            yield path
        elif path.is_dir() and path.name not in (".venv", "build", "__pycache__"):
            yield from _files(path)
        elif path.is_file():
            yield path


def set_up(clone: Path) -> None:
    """Lets run.sh install the runtime lock, and nothing else, into the .venv of `clone`; needs the network once.

    Skips the test where the package registry cannot be reached, but fails it in continuous integration.
    """
    lock = clone / "locks" / "runtime.lock"
    if (clone / ".venv").exists() and not _holds_only(clone, lock):
        shutil.rmtree(clone / ".venv")
    interpreter = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    done = run(clone / "run.sh", "--version", cwd=clone, seconds=1800, PYTHON=str(interpreter))
    if done.returncode and "CI" not in os.environ and UNREACHABLE.search(done.stderr):
        pytest.skip(f"needs a package registry to install {lock.name} from: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    assert _holds_only(clone, lock)


def _holds_only(clone: Path, lock: Path) -> bool:
    """Whether the .venv of `clone` holds what a lock names, at these versions, and beside it only pip and ourselves."""
    program = "import importlib.metadata as m; print(*{f'{d.name}=={d.version}' for d in m.distributions()}, sep='\\n')"
    installed = run(clone / ".venv" / "bin" / "python", "-I", "-c", program, cwd=clone).stdout.splitlines()
    wanted = [Requirement(line.rstrip(" \\")) for line in lock.read_text().splitlines() if line and line[0].isalnum()]
    pins = {f"{need.name}{need.specifier}" for need in wanted if need.marker is None or need.marker.evaluate()}
    found = {name.lower().replace("_", "-") for name in installed if not name.startswith(("pip==", "tokenmill=="))}
    return found == {name.lower().replace("_", "-") for name in pins}
