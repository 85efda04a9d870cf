# SPDX-License-Identifier: Apache-2.0
"""What anybody may do with a job, for each job of the golden record: from its plan, through kills, to its replay."""

import contextlib
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import killing
from tests.end_to_end import test_golden as golden
from tokenmill.pipeline import cli

corpus = golden.corpus
KILLED_AT = (3, 11, 13)
"""Before the how many-th file gets its final name: in splits, and where a shuffle merges; not all jobs have so many."""
UNDONE = ("counts", "unigram")
"""Jobs that write no tokens."""


def _do(*arguments: str) -> None:
    assert cli.main([*arguments]) == 0, arguments


def _planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Returns what the plan of a job says; all of its input is small enough to be tried."""
    capsys.readouterr()
    _do("plan", "--json", *arguments)
    planned: dict[str, Any] = json.loads(capsys.readouterr().out)
    return planned


def _killed_and_resumed(folder: Path, command: list[str]) -> None:
    """Runs a job in a process of its own that is killed, twice, and goes on with it here."""
    here = f"import os; os.chdir({str(folder)!r})\n"
    absolute = [command[0], str(folder / command[1]), *command[2:], "--resume"]
    for number, n_renames in enumerate(KILLED_AT):
        code = killing.run_killed(n_renames, *absolute, before=here)
        assert code == -signal.SIGKILL or (number and code == 0)
    _do(*command, "--resume")


def _folders(output: Path) -> list[Path]:
    """Returns the folders that hold shards: the output, or its parts."""
    return sorted({path.parent for path in output.rglob("tokens-*") if "replay" not in path.parts})


def _sources_add_up(output: Path) -> None:
    """Compares the totals of each folder, and of all parts, with what it has of each source."""
    for path in [*output.rglob("manifest.json"), *output.glob("parts.json")]:
        books = json.loads(path.read_text(encoding="utf-8"))
        added: Counter[str] = Counter()
        for source in books.get("by_source", {}).values():
            added.update({name: n for name, n in source.items() if isinstance(n, int) and name != "n_files"})
        assert added == {name: books["totals"][name] for name in added}, path


def _looked_at(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shows rows of a folder, and leads a token of one back to its document."""
    _do("inspect", str(folder), "--rows", "2")
    assert capsys.readouterr().out
    _do("trace", "--json", str(folder), "1", "0")
    traced = json.loads(capsys.readouterr().out)
    assert traced["row"] == 1
    for document in traced["documents"]:
        assert Path(document["source"]["path"].partition("!/")[0]).exists()
        assert document["text"]


@pytest.mark.parametrize("name", golden.JOBS)
def test_a_job_from_its_plan_to_its_replay(corpus: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = golden.recorded()["jobs"][name]
    output = f"{name}-again"
    chosen = ["--set", f"output.path={output}"]
    with contextlib.chdir(corpus):
        command = golden.words(name, *chosen)
        config = command[1]
        planned = _planned(capsys, config, "--job", command[0], *chosen)
        assert planned["sample"]["is_whole"]
        assert not os.path.exists(output)
        _killed_and_resumed(corpus, command)
        assert golden.digests(Path(output)) == record
        assert not os.path.exists(f"{output}/_tmp")
        actual = _planned(capsys, config, "--job", command[0], *chosen)["actual"]
        for each, estimate in planned["totals"].items():
            assert estimate["value"] == actual[each], each
        _do("verify", output)
        _sources_add_up(Path(output))
        if name in UNDONE:
            return
        _do("verify", output, "--deep", "--share", "1")
        capsys.readouterr()
        for folder in _folders(Path(output)):
            _looked_at(folder, capsys)
        _do("report", output)
        replayed = cli.main(["replay", config, *chosen])
        assert replayed == (2 if "parts" in golden.JOBS[name][1].get("output", {}) else 0)
        _do("verify", output)
        left = {path: digest for path, digest in golden.digests(Path(output)).items() if "replay/" not in path}
        assert left == record
