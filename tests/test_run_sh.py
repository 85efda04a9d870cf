# SPDX-License-Identifier: Apache-2.0
"""run.sh with stand-ins for Python: what it installs and when, what it starts, and what it says when something fails.

No network and no real installation: the stand-in is a shell script that answers what run.sh asks an interpreter and
writes down how it was called.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

# Answers `-c` questions as Python $VERSION, makes a copy of itself for `-m venv`, and records every call in $CALLS.
FAKE_PYTHON = r"""#!/usr/bin/env bash
version=@VERSION@
case "$1 ${2:-}" in
  "-c "*"version_info"*) echo "$version" ;;
  "-c "*"implementation"*) exit 0 ;;
  "-c "*"ensurepip"*) exit @NO_VENV@ ;;
  "-m venv")
    echo "venv" >>"$CALLS"
    rm -rf "${@: -1}"
    mkdir -p "${@: -1}/bin"
    cp "$0" "${@: -1}/bin/python"
    printf '%s\n' '#!/usr/bin/env bash' '{ printf tokenmill; printf " <%s>" "$@"; echo; } >>"$CALLS"' \
      >"${@: -1}/bin/tokenmill"
    chmod +x "${@: -1}/bin/tokenmill"
    ;;
  "-m pip")
    for word in "$@"; do [[ $word != *.lock ]] || echo "pip ${word##*/}" >>"$CALLS"; done
    if [[ -n ${UV_COMES:-} && $* == *uv.lock ]]; then
      mkdir -p "$UV_COMES/build/uv/bin" && cp "$UV_COMES/uv" "$UV_COMES/build/uv/bin/uv"
    fi
    sleep "${PIP_SECONDS:-0}"
    [[ -z ${PIP_FAILS:-} ]] || { echo "ERROR: No matching distribution found for numpy==9"; exit 1; }
    ;;
  "-m compileall") ;;
  *) { printf 'python'; printf ' <%s>' "$@"; echo; } >>"$CALLS" ;;
esac
"""

FAKE_UV = r"""#!/usr/bin/env bash
for word in "$@"; do [[ $word != *.lock ]] || echo "uv ${word##*/}" >>"$CALLS"; done
sleep "${PIP_SECONDS:-0}"
[[ -z ${UV_FAILS:-}${PIP_FAILS:-} ]]
"""

# Everything that run.sh needs from the system.
TOOLS = ("bash", "env", "cat", "cp", "chmod", "dirname", "mkdir", "mv", "rm", "sed", "sleep", "tail")


class Checkout:
    """A copy of what run.sh reads, in a folder with a space in its name, and a PATH of only what a test puts there."""

    def __init__(self, tmp_path: Path, repository: Path) -> None:
        self.root = tmp_path / "a clone"
        self.bin = tmp_path / "bin"
        self.calls_file = tmp_path / "calls"
        self.root.mkdir()
        self.bin.mkdir()
        shutil.copy(repository / "run.sh", self.root)
        (self.root / "locks").mkdir()
        for level in ("runtime", "test", "bench", "docs", "uv"):
            (self.root / "locks" / f"{level}.lock").write_text(f"{level}==1\n")
        (self.root / "pyproject.toml").write_text("[project]\n")
        self.add("uv", FAKE_UV)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"the test needs {tool}"
            (self.bin / tool).symlink_to(found)

    def add(self, name: str, script: str) -> Path:
        path = self.bin / name
        path.write_text(script)
        path.chmod(0o755)
        return path

    def add_python(self, name: str, version: str = "3.12", *, has_venv: bool = True) -> Path:
        return self.add(name, FAKE_PYTHON.replace("@VERSION@", version).replace("@NO_VENV@", str(int(not has_venv))))

    def start(
        self, *arguments: str, cwd: Path | None = None, preexec_fn: Callable[[], None] | None = None, **environment: str
    ) -> "subprocess.Popen[str]":
        variables = {"PATH": str(self.bin), "CALLS": str(self.calls_file), **environment}
        return subprocess.Popen(
            [str(self.root / "run.sh"), *arguments],
            cwd=cwd or self.root.parent,
            env=variables,
            preexec_fn=preexec_fn,  # noqa: PLW1509  # drops privileges, which takes no lock
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, **options: Any) -> tuple[int, str, str]:
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def calls(self) -> list[str]:
        """What the stand-ins were asked to do since the last time this was asked."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.write_text("")
        return lines


@pytest.fixture
def checkout(tmp_path: Path, repository: Path) -> Checkout:
    return Checkout(tmp_path, repository)


def test_first_run_installs_and_second_run_only_starts_the_command(checkout: Checkout) -> None:
    checkout.add_python("python3")
    code, _, err = checkout.run("run", "a config.yaml", "--set", "output.path=x y")
    assert code == 0, err
    command = "tokenmill <run> <a config.yaml> <--set> <output.path=x y>"
    assert checkout.calls() == ["venv", "uv runtime.lock", command]

    started = time.monotonic()
    code, _, err = checkout.run("run", "a config.yaml", "--set", "output.path=x y")
    assert (code, err) == (0, "")
    assert time.monotonic() - started < 1
    assert checkout.calls() == [command]


def test_each_use_installs_its_level_and_a_higher_level_includes_the_lower(checkout: Checkout) -> None:
    checkout.add_python("python3")
    checkout.run("inspect", "x")
    assert checkout.calls()[:2] == ["venv", "uv runtime.lock"]
    checkout.run("test", "-k", "a b")
    assert checkout.calls() == ["uv test.lock", "python <-m> <tools> <test> <-k> <a b>"]
    checkout.run("bench", "encode", "--repeats", "3")
    assert checkout.calls() == ["uv bench.lock", "python <-m> <tools> <bench> <encode> <--repeats> <3>"]
    checkout.run("inspect", "x")
    checkout.run("test")
    assert not [call for call in checkout.calls() if call.startswith(("pip", "venv"))]


@pytest.fixture
def no_privileges() -> Callable[[], None]:
    """What takes from a process started as root the right to write what permissions forbid."""
    if os.geteuid() == 0 and sys.platform != "linux":
        pytest.skip("root may write everything")
    return lambda: _drop(*(1, 2) if os.geteuid() == 0 else ())  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def _drop(*capabilities: int) -> None:
    for capability in capabilities:
        assert not ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.parametrize("has_flock", [True, False])
def test_what_is_ready_runs_where_nothing_can_be_written(
    checkout: Checkout, no_privileges: Callable[[], None], has_flock: bool
) -> None:
    checkout.add_python("python3")
    if has_flock and (flock := shutil.which("flock")):
        (checkout.bin / "flock").symlink_to(flock)
    assert checkout.run("verify", "x")[0] == 0
    folders = [checkout.root, checkout.root / "build", checkout.root / ".venv"]
    for path in folders:
        path.chmod(0o555)
        for file in path.iterdir():
            if file.is_file():
                file.chmod(file.stat().st_mode & 0o555)
    checkout.calls()
    try:
        assert checkout.run("verify", "x", preexec_fn=no_privileges) == (0, "", "")
        assert checkout.calls() == ["tokenmill <verify> <x>"]
        code, _, err = checkout.run("test", preexec_fn=no_privileges)
    finally:
        for path in folders:
            path.chmod(0o755)
    assert code == 1
    assert f"may not write to {checkout.root}: let its owner start this, or make a clone" in err
    assert checkout.calls() == []


@pytest.mark.parametrize("changed", ["pyproject.toml", "locks/runtime.lock"])
def test_changed_requirements_are_installed_into_the_same_venv(checkout: Checkout, changed: str) -> None:
    checkout.add_python("python3")
    checkout.run("inspect", "x")
    checkout.calls()
    with (checkout.root / changed).open("a") as file:
        file.write("# changed\n")
    checkout.run("inspect", "x")
    assert checkout.calls() == ["uv runtime.lock", "tokenmill <inspect> <x>"]


def test_moved_checkout_makes_its_venv_anew(checkout: Checkout) -> None:
    checkout.add_python("python3")
    checkout.run("inspect", "x")
    checkout.calls()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    code, _, err = checkout.run("inspect", "x")
    assert code == 0
    assert "it was made in another place" in err
    assert checkout.calls()[:2] == ["venv", "uv runtime.lock"]


def test_newest_supported_python_is_found_and_others_are_passed_over(checkout: Checkout) -> None:
    checkout.add_python("python3", "3.14")
    checkout.add_python("python3.13", "3.13", has_venv=False)
    checkout.add_python("python3.11", "3.11")
    assert checkout.run("inspect", "x")[0] == 0
    assert "3.11" in (checkout.root / ".venv" / "bin" / "python").read_text()


def test_uv_is_fetched_where_it_is_missing_and_pip_does_what_it_cannot(checkout: Checkout) -> None:
    checkout.add_python("python3")
    assert checkout.run("inspect", "x", UV_FAILS="yes")[0] == 0
    assert checkout.calls() == ["venv", "uv runtime.lock", "pip runtime.lock", "tokenmill <inspect> <x>"]
    (checkout.bin / "uv").rename(checkout.root / "uv")
    for comes, installer in ((checkout.root / "elsewhere", "pip"), (checkout.root, "uv")):
        shutil.rmtree(checkout.root / ".venv")
        assert checkout.run("inspect", "x", UV_COMES=str(comes))[0] == 0
        assert checkout.calls() == ["venv", "pip uv.lock", f"{installer} runtime.lock", "tokenmill <inspect> <x>"]


def test_python_variable_decides_and_a_change_of_it_makes_the_venv_anew(checkout: Checkout) -> None:
    checkout.add_python("python3", "3.13")
    other = checkout.add_python("my python", "3.11")
    assert checkout.run("inspect", "x")[0] == 0
    checkout.calls()
    code, _, err = checkout.run("inspect", "x", PYTHON=str(other))
    assert code == 0
    assert "PYTHON asks for another version" in err
    assert checkout.calls()[:2] == ["venv", "uv runtime.lock"]
    checkout.run("inspect", "x")
    assert checkout.calls() == ["tokenmill <inspect> <x>"]


def test_says_what_each_python_lacks(checkout: Checkout) -> None:
    checkout.add_python("python3", "3.9")
    checkout.add_python("python3.12", "3.12", has_venv=False)
    (checkout.bin / "python").write_text("#!/bin/sh\nexit 127\n")
    (checkout.bin / "python").chmod(0o755)
    code, _, err = checkout.run()
    assert code == 1
    assert f"{checkout.bin}/python3 is Python 3.9" in err
    assert f"{checkout.bin}/python3.12 is Python 3.12 without venv and ensurepip" in err
    assert "apt install python3.12-venv" in err
    assert f"{checkout.bin}/python does not run" in err


def test_failed_installation_shows_why_and_is_tried_again_from_scratch(checkout: Checkout) -> None:
    checkout.add_python("python3")
    code, out, err = checkout.run("inspect", "x", PIP_FAILS="yes")
    assert code == 1
    assert "ERROR: No matching distribution found for numpy==9" in err
    assert str(checkout.root / "build" / "setup.log") in err
    assert "tokenmill" not in out
    checkout.calls()
    code, _, err = checkout.run("inspect", "x")
    assert code == 0
    assert "an installation was cut short in it" in err
    assert checkout.calls() == ["venv", "uv runtime.lock", "tokenmill <inspect> <x>"]


@pytest.mark.parametrize("has_flock", [True, False])
def test_runs_at_the_same_time_install_once(checkout: Checkout, has_flock: bool) -> None:
    checkout.add_python("python3")
    if has_flock:
        flock = shutil.which("flock")
        if not flock:
            pytest.skip("this system has no flock; the other case covers what run.sh does then")
        (checkout.bin / "flock").symlink_to(flock)
    processes = [checkout.start("inspect", "x", PIP_SECONDS="0.3") for _ in range(3)]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    calls = checkout.calls()
    assert calls.count("uv runtime.lock") == 1
    assert calls.count("tokenmill <inspect> <x>") == 3
    assert any("waiting for another run" in error for error in errors)
    assert not (checkout.root / "build" / "setup.lock.d").exists()


def test_lock_of_a_killed_run_is_named(checkout: Checkout) -> None:
    checkout.add_python("python3")
    lock = checkout.root / "build" / "setup.lock.d"
    lock.mkdir(parents=True)
    (lock / "pid").write_text(str(2**22 + 1))  # above the largest process id that Linux gives
    code, _, err = checkout.run("inspect", "x")
    assert code == 1
    assert f"remove {lock}" in err


def test_run_sh_stays_small(checkout: Checkout) -> None:
    assert len((checkout.root / "run.sh").read_text(encoding="utf-8").splitlines()) <= 135


def test_ci_runs_the_tests_from_the_root(repository: Path) -> None:
    assert os.access(repository / ".ci" / "run", os.X_OK)
    assert (repository / ".ci" / "run").read_text().endswith("exec ./run.sh test\n")


def _pins(lock: Path) -> dict[str, str]:
    lines = [line for line in lock.read_text().splitlines() if line and line[0].isalnum()]
    return {line.split("==")[0]: line.split("==")[1].rstrip(" \\") for line in lines}


def test_locks_agree_with_each_other(repository: Path) -> None:
    runtime, test, bench, docs = (
        _pins(repository / "locks" / f"{level}.lock") for level in ("runtime", "test", "bench", "docs")
    )
    assert len(runtime) > 20
    assert runtime.items() < test.items() < bench.items()
    assert runtime.items() < docs.items()
    shared = docs.keys() & bench.keys()  # of which the environment of the docs may need one on more systems
    assert [name for name in shared if docs[name].split(" ;")[0] != bench[name].split(" ;")[0]] == []


def test_locks_pin_every_direct_requirement_with_hashes_and_name_no_index(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    assert groups["build"] == project["build-system"]["requires"]
    direct = {
        "runtime": project["project"]["dependencies"] + groups["build"],
        "test": groups["test"],
        "bench": groups["bench"],
        "docs": groups["docs"],
    }
    for level, requirements in direct.items():
        lock = repository / "locks" / f"{level}.lock"
        pins = _pins(lock)
        for requirement in map(Requirement, requirements):
            version = pins[requirement.name.lower()].split(" ;")[0]
            assert requirement.specifier.contains(version), f"{level}.lock is older than pyproject.toml: {requirement}"
        text = lock.read_text(encoding="utf-8")
        assert len(re.findall(r"^[a-z0-9].*\\\n    --hash=sha256:", text, re.MULTILINE)) == len(pins)
        assert "://" not in text
        assert "--index" not in text
