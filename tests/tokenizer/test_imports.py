# SPDX-License-Identifier: Apache-2.0
"""Who imports whom has no circles, not even by imports inside functions and for types only."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest


def _modules(repository: Path, package: str) -> dict[str, Path]:
    """Returns the files of a package by the names of their modules."""
    paths = (repository / package).rglob("*.py")
    return {".".join(p.relative_to(repository).with_suffix("").parts).removesuffix(".__init__"): p for p in paths}


def _imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """Returns the modules that a file imports anywhere.

    A package is one of them only where something of its `__init__` is imported, which `from package import module` does
    not do.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else str(node.module) for name in names}
    return found & modules.keys()


@pytest.mark.parametrize("package", ["tokenizer", "benchmarks"])
def test_imports_run_downwards(repository: Path, package: str) -> None:
    modules = _modules(repository, package)
    graph = {name: _imported(path, modules) - {name} for name, path in modules.items()}
    assert sum(map(len, graph.values())) > len(graph) // 2
    TopologicalSorter(graph).prepare()  # which raises an error that names a circle
