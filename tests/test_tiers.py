# SPDX-License-Identifier: Apache-2.0
"""Every test is in a tier, and `--quick` takes those that are nearest to what has changed."""

import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest, tiers
from tools import nearest

FILES = {
    "pipeline/storage.py": "",
    "pipeline/cli.py": "def main():\n    from tokenmill.pipeline import (  # a, b\n        storage,\n    )\n",
    "pipeline/__init__.py": 'VERSION = "1"\n',
    "tests/end_to_end/conftest.py": "from tokenmill.pipeline import VERSION, cli\n",
    "tests/end_to_end/test_job.py": "",
    "tests/test_storage.py": "import json, tokenmill.pipeline.storage as storage\n",
    "tests/test_other.py": 'PAGE = "docs/page.md"\n',
}


def test_every_test_is_in_a_tier_and_the_table_names_what_is_there(repository: Path) -> None:
    paths = {path.relative_to(repository).as_posix(): path for path in (repository / "tests").rglob("test_*.py")}
    assert [name for name in paths if tiers.of(name) is None] == []
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    for pattern in tiers.table():
        file, _, function = pattern.partition("::")
        if not function:
            assert (repository / file).exists(), f"{pattern} is not there"
        else:
            name = function.partition("[")[0]
            assert re.search(rf"^ *def {name}\(", texts.get(file, ""), re.MULTILINE), f"{pattern} is not there"


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        ("tests/parity/test_unicode_versions.py", "all"),
        ("tests/parity/test_unicode_versions.py::test_a[b]", "all"),
        ("tests/parity/test_new.py::test_a", "commit"),
        ("tests/parity/test_bert.py::test_ids_on_documents[bert-en]", "all"),
        ("tests/parity/test_bert.py::test_ids_on_documents_too", "commit"),
        ("tests/parity/test_normalizers.py::test_code_points_between_marks[NFC-all]", "all"),
        ("tests/parity/test_normalizers.py::test_code_points_between_marks[NFC-few]", "commit"),
        ("tests/installation/test_new.py", "all"),
        ("tests/elsewhere/test_new.py", None),
        ("tests/test_new.py", None),
    ],
)
def test_the_longest_pattern_decides(name: str, tier: str | None) -> None:
    assert tiers.of(name) == tier


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository of a few files."""
    monkeypatch.setattr(nearest, "texts", lambda: FILES)
    monkeypatch.setattr(nearest, "importers", nearest.importers.__wrapped__)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("changed", "hops"),
    [
        (["pipeline/storage.py"], {"pipeline/storage.py": 0, "pipeline/cli.py": 1, "tests/test_storage.py": 1}),
        (["pipeline/cli.py"], {"pipeline/cli.py": 0, "tests/end_to_end/conftest.py": 1}),
        (["pipeline/__init__.py"], {"pipeline/__init__.py": 0, "tests/end_to_end/conftest.py": 1}),
        (["docs/page.md", "gone.py"], {"tests/test_other.py": 1}),
        (["tests/test_other.py"], {"tests/test_other.py": 0}),
    ],
)
def test_what_imports_a_changed_file_is_near_to_it(changed: list[str], hops: dict[str, int]) -> None:
    found = nearest.distances(changed)
    assert {name: n for name, n in found.items() if n < 2} == hops
    of_jobs = "tests/end_to_end/test_job.py"
    assert (of_jobs in found) == any("pipeline" in name for name in changed)
    names = [f"{of_jobs}::test_a", "tests/test_storage.py::test_b", "tests/test_storage.py::test_c"]
    if changed == ["pipeline/storage.py"]:
        assert tiers.near(names, changed) == [1, 2, 0]


def test_all_is_near_if_nothing_has_changed() -> None:
    assert tiers.near(["tests/a.py::b", "tests/c.py::d"], []) == [0, 1]


def test_the_imports_of_this_repository_are_found() -> None:
    hops = nearest.distances(["pipeline/books/ledger.py"])
    assert hops["tests/pipeline/books/test_ledger.py"] == 1
    assert 1 < hops["tests/end_to_end/test_golden.py"] < 9
    assert "tests/tokenizer/models/test_bpe.py" not in hops
    changed = ["pipeline/books/ledger.py", "tests/end_to_end/test_golden.py"]
    first, second, *_, last = nearest.tests_of(changed)
    assert first == "tests/end_to_end/test_golden.py"
    assert second.startswith("tests/pipeline/books/")
    assert not last.startswith("tests/pipeline/books/")


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_each_worker_begins_with_one_of_the_first_files(n_workers: int) -> None:
    names = [f"tests/{file}.py::test_{i}" for file in "abcdef" for i in range(4)]
    places = tiers.dealt(names, n_workers)
    assert sorted(places) == list(range(24))
    starts = [places[24 * i // n_workers] for i in range(n_workers)]
    assert {tiers.file_of(names[i]) for i in starts} == {f"tests/{file}.py" for file in "abc"[:n_workers]}


def test_a_test_whose_time_is_over_is_counted() -> None:
    item = SimpleNamespace(config=SimpleNamespace(stash=pytest.Stash()))
    item.config.stash[conftest._ENDS], item.config.stash[conftest._LEFT] = time.monotonic() + 100, 0
    assert conftest.pytest_runtest_protocol(item) is None
    item.config.stash[conftest._ENDS] = time.monotonic()
    assert conftest.pytest_runtest_protocol(item) is True
    assert item.config.stash[conftest._LEFT] == 1
