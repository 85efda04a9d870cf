# SPDX-License-Identifier: Apache-2.0
"""Faults of earlier versions, put back one at a time: the tests that a patch in `past_faults/` names must fail.

A patch that does not apply any more, since the code is another, is made again: put the fault into today's code by
hand, and save `git diff` below the two lines that say what it did and which tests notice it.
"""

import functools
import subprocess
from pathlib import Path

import pytest

from tools import mutants

FOLDER = Path(__file__).with_name("past_faults")
FAULTS = sorted(path.stem for path in FOLDER.glob("*.patch"))


@functools.cache
def _told(name: str) -> tuple[str, list[str]]:
    """What a fault did, and which tests notice it."""
    what, noticed, *_ = (FOLDER / f"{name}.patch").read_text(encoding="utf-8").split("\n\n", 2)
    return what, noticed.removeprefix("Noticed by: ").split()


def _apply(root: Path, name: str, *options: str) -> str:
    command = ["git", "apply", "-C0", *options, str(FOLDER / f"{name}.patch")]  # whatever the lines around it are now
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("name", FAULTS)
def test_the_patch_of_a_fault_applies_and_names_tests(name: str, repository: Path) -> None:
    assert _apply(repository, name, "--check") == ""
    what, tests = _told(name)
    assert what.endswith(".")
    for test in tests:
        file, _, function = test.partition("::")
        assert f"def {function}" in (repository / file).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> mutants.Copy:
    return mutants.Copy(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_comes_back_is_noticed(name: str, copy: mutants.Copy) -> None:
    what, tests = _told(name)
    assert _apply(copy.root, name) == ""
    try:
        noticed = copy.notices(tests, seconds=1000)
        assert any(test in noticed for test in tests), f"{what} {noticed}"
    finally:
        _apply(copy.root, name, "--reverse")
