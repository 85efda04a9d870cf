# SPDX-License-Identifier: Apache-2.0
"""Hostile inputs, a few of each kind, and some kills; what harms is told apart."""

import os
import sys

import pytest
from hypothesis import settings

from benchmarks import hostile, hostile_arrays, hostile_inputs, kills

# Both fork, and a fork that stands in for a process that is killed must be a leader of a group.
pytestmark = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="forks")


def test_jobs_survive_kills_at_any_moment(tmp_path):
    outcome = kills.run(12, 7, tmp_path, list(kills.MODES))
    assert outcome.problems == []
    assert sum(outcome.kills.values()) >= 12


def test_some_hostile_inputs_do_no_harm(tmp_path):
    outcomes = [outcome for _, outcome, _ in hostile.run(range(100, 120), tmp_path)]
    assert len(outcomes) == 20
    assert [outcome for outcome in outcomes if not outcome.startswith(("proven: ", "refused: "))] == []
    assert sum(outcome.startswith("proven: ") for outcome in outcomes) > 5


def test_some_hostile_arrays_do_no_harm(tmp_path):
    # `./run.sh bench hostile --arrays` tries thousands, in kernels that check bounds.
    hostile_arrays.warm_up()
    numbers = range(settings().max_examples * 4)
    outcomes = [outcome for _, outcome, _ in hostile.run(numbers, tmp_path, hostile_arrays.run_one)]
    assert len(outcomes) == len(numbers)
    assert [outcome for outcome in outcomes if not outcome.startswith(("proven: ", "refused: "))] == []
    assert sum(outcome.startswith("proven: ") for outcome in outcomes) > len(numbers) // 10


def test_crashes_hangs_and_lies_are_told_apart(tmp_path, monkeypatch):
    def harmful(number, folder):
        folder.mkdir()
        if number == 1:
            os._exit(9)
        if number == 2:
            import time

            time.sleep(60)
        if number == 3:
            raise KeyError("surprise")
        return "proven: text"

    monkeypatch.setattr(hostile, "run_one", harmful)
    monkeypatch.setattr(hostile, "SECONDS", 0.5)
    found = [(number, outcome.partition(": ")[0]) for number, outcome, _ in hostile.run(range(5), tmp_path)]
    assert found == [(0, "proven"), (1, "crash"), (2, "hang"), (3, "problem"), (4, "proven")]


def test_an_input_is_made_of_its_number_alone(tmp_path):
    for number in range(20):
        folders = [tmp_path / f"{number}-{i}" for i in range(2)]
        kinds = [hostile_inputs.make(number, folder)["kind"] for folder in folders]
        assert len(set(kinds)) == 1
        listed = [sorted(path.name for path in (folder / "corpus").iterdir()) for folder in folders]
        assert listed[0] == listed[1]
