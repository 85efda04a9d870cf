# SPDX-License-Identifier: Apache-2.0
"""The quickstart corpus: what it holds, in which order, and what it does without."""

import json
import sysconfig
from pathlib import Path

import pytest

from tokenmill.pipeline import quickstart

SOURCES = {
    "b/inner.py": '"""About inner."""\n\n\nclass C:\n    """About C."""\n\n    def f(self):\n        """About f."""\n',
    "b.py": "x = 1\n",
    "a.py": '"""About a."""\n',
    "latin.py": b"# -*- coding: latin-1 -*-\nname = '\xe9'\n",
    "undecodable.py": b"name = '\xff\xfe'\n",
    "old.py": "print 'no docstrings in what does not parse'\n",
    "empty.py": "",
    "test/test_a.py": '"""Left out."""\n',
    "b/tests/test_inner.py": '"""Left out."""\n',
    "site-packages/foreign.py": '"""Left out."""\n',
}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of ten small files."""
    top = tmp_path / "lib"
    for name, content in SOURCES.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(top)})
    return top


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_sources_are_in_order_of_path_without_tests_and_foreign_code(library: Path, tmp_path: Path) -> None:
    _, _, code = quickstart.build_corpus(tmp_path / "corpus")
    assert [row["id"] for row in read(code)] == ["a.py", "b/inner.py", "b.py", "latin.py", "old.py"]
    assert [row["text"] for row in read(code) if row["id"] == "latin.py"] == ["# -*- coding: latin-1 -*-\nname = 'é'\n"]


def test_docstrings_come_with_file_and_line(library: Path, tmp_path: Path) -> None:
    _, reference, _ = quickstart.build_corpus(tmp_path / "corpus")
    found = {row["id"]: row["text"] for row in read(reference) if not row["id"].startswith("topics/")}
    assert list(found.items()) == [
        ("a.py:0", "About a."),
        ("b/inner.py:0", "About inner."),
        ("b/inner.py:4", "About C."),
        ("b/inner.py:7", "About f."),
    ]


def test_multilingual_sample_is_copied_and_holds_the_rare_characters(library: Path, tmp_path: Path) -> None:
    multilingual = quickstart.build_corpus(tmp_path / "corpus")[0]
    assert multilingual.read_bytes() == quickstart.MULTILINGUAL.read_bytes()
    rows = read(multilingual)
    assert len(rows) >= 60
    assert {"玫瑰花𝖟lᴤ朵向日葵3Ⰻ7朵", "六月四ri"} <= {row["text"] for row in rows}
    assert {"zh", "ja", "ko", "ar", "hi", "th", "ru", "el", "vi", "emoji", "rare"} <= {row["lang"] for row in rows}


def test_real_library_gives_some_megabytes_twice_the_same(tmp_path: Path) -> None:
    first = quickstart.build_corpus(tmp_path / "first")
    second = quickstart.build_corpus(tmp_path / "second")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    ids = [row["id"] for path in first for row in read(path)]
    assert len(set(ids)) == len(ids) > 1000
    assert 5e6 < sum(path.stat().st_size for path in first) < 50e6
