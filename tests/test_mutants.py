# SPDX-License-Identifier: Apache-2.0
"""`python -m tools.mutants`: what it changes, and that each change is one of the program."""

import ast
import os
from pathlib import Path

import pytest

from tools import mutants, nearest

SOURCE = '''"""Not 1 < 2 here."""
LIMIT: int | None = 7


def f(a: list[int | str], é: bool = False) -> int | None:
    if é and (a) < LIMIT + 1 <= 3:  # é < a
        return a[0]
    return a \\
        + a + zip(a, strict=True)
'''


def test_operators_numbers_and_truth_values_are_changed_one_at_a_time() -> None:
    changed = [place.changed(SOURCE).splitlines() for place in mutants.places("a.py", SOURCE)]
    lines = SOURCE.splitlines()
    differing = {each for text in changed for each, line in zip(text, lines, strict=True) if each != line}
    assert differing == {
        "LIMIT: int | None = 8",
        "def f(a: list[int | str], é: bool = True) -> int | None:",
        "    if é or (a) < LIMIT + 1 <= 3:  # é < a",
        "    if é and (a) <= LIMIT + 1 <= 3:  # é < a",
        "    if é and (a) < LIMIT - 1 <= 3:  # é < a",
        "    if é and (a) < LIMIT + 2 <= 3:  # é < a",
        "    if é and (a) < LIMIT + 1 < 3:  # é < a",
        "    if é and (a) < LIMIT + 1 <= 4:  # é < a",
        "        return a[1]",
        "        + a - zip(a, strict=True)",
    }
    assert len(changed) == len(differing)


def test_the_changes_of_a_seed_are_the_same_in_both_packages_and_all_are_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = {name: text for name, text in nearest.texts().items() if "/kernels/" in name or "/books/" in name}
    monkeypatch.setattr(nearest, "texts", lambda: some)
    places = mutants.chosen(40, 3)
    assert places == mutants.chosen(40, 3)
    assert {place.path.partition("/")[0] for place in places} == {"tokenizer", "pipeline"}
    for place in places:
        text = nearest.texts()[place.path]
        assert ast.dump(ast.parse(place.changed(text))) != ast.dump(ast.parse(text))
    assert all(place.path.startswith("tokenizer/kernels/") for place in mutants.chosen(5, 3, "tokenizer/kernels/"))


def test_a_change_that_no_conftest_survives_is_noticed_and_a_test_that_is_gone_notices_nothing(tmp_path: Path) -> None:
    copy = mutants.Copy.__new__(mutants.Copy)
    copy.root, copy.environment = tmp_path, dict(os.environ)
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n")
    option = 'def pytest_addoption(parser): parser.addoption("--quick")\n'
    for conftest, test, is_noticed in ((option, "", False), (option, "::test_gone", False), ("1 / 0", "", True)):
        (tmp_path / "conftest.py").write_text(conftest)
        assert bool(copy.notices([f"test_a.py{test}"])) == is_noticed, (conftest, test)
