# SPDX-License-Identifier: Apache-2.0
"""`python -m tools`, with stand-ins for what it starts: which modules, in which order, and how it ends."""

import fcntl
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

tools = importlib.import_module("tools.__main__")


class Started:
    """Records what is started; modules in `failing` end with an exit code."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.failing: dict[str, int] = {}

    def run(self, command: list[str], **_: object) -> SimpleNamespace:
        if command[0] == "git":
            return SimpleNamespace(stdout="tools/a.py\ntokenizer/b.py\n")  # and `train.py`, which is not tracked
        assert command[:2] == [sys.executable, "-m"]
        self.commands.append(command[2:])
        return SimpleNamespace(returncode=self.failing.get(" ".join(command[2:4]), 0))

    def popen(self, command: list[str], **_: object) -> SimpleNamespace:
        self.run(command)
        return SimpleNamespace(wait=lambda: self.failing.get(" ".join(command[2:4]), 0), kill=lambda: None)

    def take(self) -> list[str]:
        taken, self.commands = [" ".join(command) for command in self.commands], []
        return taken


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    found = Started()
    monkeypatch.setattr(subprocess, "run", found.run)
    monkeypatch.setattr(subprocess, "Popen", found.popen)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("TOKENMILL_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("TOKENMILL_EXAMPLES", "7")
    monkeypatch.setenv("TOKENMILL_THOROUGH", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.chdir(tmp_path)
    return found


TRACKED = "--force-exclude tools/a.py tokenizer/b.py"
PYTEST = "pytest -n auto --maxprocesses 4 --dist worksteal --durations=20 --durations-min=5"
DOCS = [
    "tools.docs write", "tools.docs stage", "mkdocs build --strict --quiet --config-file tools/docs/mkdocs.yml",
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["test", "-k", "a b"],
            [f"ruff check {TRACKED}", f"ruff format --check {TRACKED}", "mypy", f"{PYTEST} -k a b"],
        ),
        (
            ["test", "--quick", "-x"],
            [f"ruff check {TRACKED}", f"ruff format --check {TRACKED}", "mypy", f"{PYTEST} --quick=90 -x"],
        ),
        (
            ["test", "--all"],
            [f"ruff check {TRACKED}", f"ruff format --check {TRACKED}", "mypy", f"{PYTEST} --all"],
        ),
        (["test", "tests/test_tools.py", "-k", "a"], ["pytest tests/test_tools.py -k a"]),
        (["test", "-x", "tests/test_tools.py::test_a"], ["pytest -x tests/test_tools.py::test_a"]),
        (["bench", "encode", "--mb", "2"], ["benchmarks.encode --mb 2"]),
        (["bench", "first-run"], ["benchmarks.first_run"]),
        (["bench"], [f"benchmarks.{name.replace('-', '_')}" for name in tools.SWEEP]),
        (["docs"], DOCS),
        (["docs", "--check"], [*DOCS, "tools.docs run"]),
    ],
)
def test_each_command_starts_these_modules_from_the_root(
    started: Started, arguments: list[str], expected: list[str], repository: Path
) -> None:
    tools.main(arguments)
    assert started.take() == expected
    assert Path.cwd() == repository
    assert ("PYTHONDONTWRITEBYTECODE" in os.environ) == (arguments[0] != "test")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["bench", "speed"],
            "unknown benchmark 'speed'; there are beam, .*; commits, compositions, first-run, ",
        ),
        (["docs", "--fast"], "docs takes --check or nothing, got: --fast"),
        (["build"], "takes quickstart, test, bench, docs, beside, warm; got 'build'"),
        ([], "got ''"),
    ],
)
def test_a_mistake_is_named_before_anything_starts(started: Started, arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        tools.main(arguments)
    assert started.take() == []


def test_the_quickstart_compiles_once_and_stops_at_the_first_step_that_fails(started: Started) -> None:
    run, verify = "tokenmill run configs/quickstart.yaml --overwrite", "tokenmill verify configs/quickstart.yaml"
    corpus, inspect = (
        "tokenmill.pipeline.quickstart build/quickstart/corpus",
        "tokenmill inspect configs/quickstart.yaml",
    )
    tools.main(["quickstart"])
    rest = [corpus, run, verify, f"{inspect} --start 4 --rows 2"]
    assert started.take() == ["tokenmill warm configs/quickstart.yaml", *rest]
    started.failing["tokenmill run"] = 3
    with pytest.raises(SystemExit) as ended:
        tools.main(["quickstart"])
    assert (ended.value.code, started.take()) == (3, [corpus, run])


def test_in_a_terminal_the_kernels_of_usual_jobs_are_compiled_once_in_the_background(
    started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    niceness: list[int] = []
    monkeypatch.setattr(os, "nice", niceness.append)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("CI", raising=False)
    tools.main(["quickstart"])
    assert started.take()[2] == "tools warm"  # while the job runs
    monkeypatch.setenv("CI", "1")
    tools.main(["quickstart"])
    assert "tools warm" not in started.take()
    monkeypatch.delenv("CI")
    with (tmp_path / ".warming").open("wb") as lock:  # another process compiles
        fcntl.flock(lock, fcntl.LOCK_EX)
        tools.main(["warm"])
        assert (started.take(), niceness) == ([], [])
    started.failing["tokenmill warm"] = 1
    with pytest.raises(SystemExit):
        tools.main(["warm"])
    assert not (tmp_path / ".warmed-usual").exists()
    started.failing.clear()
    started.take()
    tools.main(["warm"])
    assert (started.take(), niceness) == (["tokenmill warm"], [19, 19])
    tools.main(["quickstart"])
    assert "tools warm" not in started.take()


def test_the_first_failure_ends_the_tests(started: Started) -> None:
    started.failing["mypy"] = 1
    with pytest.raises(SystemExit) as ended:
        tools.main(["test"])
    assert (ended.value.code, started.take()[-1]) == (1, "mypy")


def test_kernels_that_nobody_used_for_two_weeks_are_removed(started: Started, tmp_path: Path) -> None:
    for name, age in {"old": 15, "new": 13}.items():
        path = tmp_path / "kernels" / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        then = path.stat().st_mtime - age * 24 * 3600
        os.utime(path, (then, then))
    tools.main(["test"])
    assert [path.name for path in (tmp_path / "kernels" / "folder").iterdir()] == ["new"]


def test_every_benchmark_is_there_and_described(repository: Path) -> None:
    names = {*tools.SWEEP, *tools.OTHERS}
    files = {f"{name.replace('-', '_')}.py" for name in names}
    assert files <= {path.name for path in (repository / "benchmarks").glob("*.py")}
    listed = re.findall(r"^\./run\.sh bench ([a-z-]+)", (repository / "benchmarks/README.md").read_text(), re.M)
    assert {*listed} == names


def test_the_workflow_runs_what_ci_runs_on_every_python_and_system_and_all_every_night(repository: Path) -> None:
    workflow = yaml.safe_load((repository / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    assert job["strategy"]["matrix"] == {
        "os": ["ubuntu-latest", "macos-latest"], "python": ["3.11", "3.12", "3.13"],
    }  # fmt: skip
    runs = {step.get("if", "").rpartition("event_name ")[2]: step["run"] for step in job["steps"] if "run" in step}
    assert runs == {"== 'schedule'": "./run.sh test --all", "!= 'schedule'": ".ci/run"}
    assert workflow[True]["schedule"]  # `on`, to YAML


def test_the_docs_say_why_tests_of_other_libraries_fail() -> None:
    from benchmarks import foreign_suites

    text = (Path(__file__).parents[1] / "docs/explanation/tokenizers.md").read_text(encoding="utf-8")
    for reasons in foreign_suites.KNOWN.values():
        for reason in reasons.values():
            assert f"| {reason} |" in text
