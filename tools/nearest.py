# SPDX-License-Identifier: Apache-2.0
"""How far each Python file is from what has changed: by how many imports, those inside functions included.

`./run.sh test --quick` runs the nearest tests first, and `python -m tools.mutants` those that import what it changes.
"""

import functools
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tokenizer", "pipeline", "tokenmill", "tests", "tools", "benchmarks")
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|.*)|import[ \t]+([\w. ,]+))", re.MULTILINE
)
_COMMENT = re.compile("#.*")
_NAME = re.compile(r"(?:^|[(,])\s*(\w+)")


def changed_files() -> list[str]:
    """Returns the files that differ from what is on the main branch: committed, in the working tree, or not tracked."""
    base = next((name for name in ("origin/main", "main") if _git("rev-parse", "--verify", "--quiet", name)), "HEAD")
    listed = _git("diff", "--name-only", f"{base}...") + _git("diff", "--name-only", "HEAD")
    return sorted({*listed, *_git("ls-files", "--others", "--exclude-standard")})


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


@functools.cache
def texts() -> dict[str, str]:
    """Returns the text of every Python file of the repository, by its path from the root."""
    paths = (path for folder in FOLDERS[:2] + FOLDERS[3:] for path in (ROOT / folder).rglob("*.py"))
    files = [*paths, *(ROOT / "tokenmill").glob("*.py")]  # whose folders are links to the first two
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(files)}


def imported(text: str, files: Iterable[str]) -> set[str]:
    """Returns which of `files` a source imports by name: the module, or the `__init__.py` that has the name."""

    def file_of(module: str) -> str | None:
        parts = module.split(".")
        stem = "/".join(
            parts[1:] if parts[:1] == ["tokenmill"] and parts[1:2] in (["tokenizer"], ["pipeline"]) else parts
        )
        return next((name for name in (f"{stem}.py", f"{stem}/__init__.py") if name in files), None)

    modules: set[str | None] = set()
    for origin, names, plain in _IMPORT.findall(text):
        if plain:
            modules.update(file_of(name.split()[0]) for name in plain.split(",") if name.strip())
        elif origin.split(".")[0] in FOLDERS:
            modules.update(
                file_of(f"{origin}.{name}") or file_of(origin) for name in _NAME.findall(_COMMENT.sub("", names))
            )
    return {module for module in modules if module}


@functools.cache
def importers() -> dict[str, set[str]]:
    """Returns who imports each file. A test has the imports of the `conftest.py` above it, too."""
    files = texts()
    by: dict[str, set[str]] = {name: set() for name in files}
    for name, text in files.items():
        for module in imported(text, files):
            by[module].add(name)
        if name.startswith("tests/") and not name.endswith("/conftest.py"):
            for folder in list(Path(name).parents)[:-2]:  # that of tests/ itself imports nothing that matters
                if (conftest := f"{folder.as_posix()}/conftest.py") in files:
                    by[conftest].add(name)
    return by


def distances(changed: Iterable[str]) -> dict[str, int]:
    """Returns the number of imports from each Python file that depends on a changed one to the nearest of these.

    On a file that is not Python those depend that name it.
    """
    files, by = texts(), importers()
    found = {name: 0 for name in changed if name in files}
    for name in changed:
        if name not in files:
            found |= {other: 1 for other, text in files.items() if other not in found and Path(name).name in text}
    nearest = sorted(found, key=found.__getitem__)
    for name in nearest:  # which grows
        for other in sorted(by[name]):
            if found.get(other, 1 << 30) > found[name] + 1:
                found[other] = found[name] + 1
                nearest.append(other)
    return found


def tests_of(changed: Iterable[str]) -> list[str]:
    """Returns the test files that depend on changed files: changed ones, those of their folders, then the nearest."""
    changed = list(changed)
    hops, own = distances(changed), tuple(f"tests/{name.rpartition('/')[0]}/" for name in changed if "/" in name)
    tests = [name for name in hops if name.startswith("tests/") and Path(name).name.startswith("test_")]
    return sorted(tests, key=lambda name: (hops[name] > 0, not name.startswith(own), hops[name], name))
