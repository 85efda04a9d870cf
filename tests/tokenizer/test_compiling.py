# SPDX-License-Identifier: Apache-2.0
"""What a compiled kernel's place in the cache depends on."""

import ast
from pathlib import Path

import pytest

import pipeline
import tokenizer.kernels
from tokenizer.kernels import compiling

KERNELS = Path(tokenizer.kernels.__file__).parent


def imported_kernels(path):
    """Returns the kernel files that Python itself would say a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("tokenizer.kernels") for alias in node.names), path
        elif isinstance(node, ast.ImportFrom) and node.module == "tokenizer.kernels":
            found |= {KERNELS / f"{alias.name}.py" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tokenizer.kernels."):
            found.add(KERNELS / f"{node.module.rpartition('.')[2]}.py")
    return found


def closure(path):
    found, waiting = set(), [path]
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting += imported_kernels(path) - found
    return found


KERNEL_FILES = sorted(
    path
    for folder in (KERNELS, Path(pipeline.__file__).parent, Path(__file__).parent)
    for path in folder.rglob("*.py")
    if path != Path(__file__)
)


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.stem)
def test_a_cache_depends_on_every_file_that_is_compiled_into_it(path):
    assert set(compiling.kernel_sources(path)) == closure(path)


def test_an_edit_renames_the_caches_of_the_files_that_use_it_and_of_no_others(tmp_path, monkeypatch):
    for name, source in {
        "utf8": "X = 1\n",
        "scanner": "from tokenizer.kernels.utf8 import X\n",
        "fused": "from tokenizer.kernels import scanner\n",
        "other": "",
    }.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setattr(compiling, "_KERNEL_DIRECTORY", tmp_path)

    def digests():
        compiling._imports.cache_clear()
        compiling._sources_digest.cache_clear()
        return {path.stem: compiling._sources_digest(path) for path in sorted(tmp_path.glob("*.py"))}

    before = digests()
    (tmp_path / "utf8.py").write_text("X = 2\n")
    after = digests()
    compiling._imports.cache_clear()
    compiling._sources_digest.cache_clear()
    assert {name for name in before if before[name] != after[name]} == {"utf8", "scanner", "fused"}
