# SPDX-License-Identifier: Apache-2.0
"""A wheel in an environment that knows no checkout, used from another folder: the command, its workers, and Python."""

import json
from pathlib import Path

import pytest

from tests.installing import PIP, checked, install

pytestmark = pytest.mark.installation


@pytest.fixture
def python(clone: Path, wheel: Path, empty_python: Path) -> Path:
    """The Python of an environment with the wheel, which sees what the runtime lock has installed elsewhere."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    (here,) = checked(empty_python, "-c", code, cwd=clone).splitlines()
    (there,) = checked(clone / ".venv" / "bin" / "python", "-c", code, cwd=clone).splitlines()
    # A path and no more: that folder's own .pth files, which lead to the clone, are not read.
    Path(here, "runtime.pth").write_text(f"{there}\n")
    install(empty_python, wheel)
    return empty_python


def test_a_wheel_works_from_another_folder(python: Path, tmp_path: Path) -> None:
    tokenmill, elsewhere = python.parent / "tokenmill", tmp_path / "elsewhere"
    (elsewhere / "corpus").mkdir(parents=True)
    for name in ("a", "b"):
        lines = (json.dumps({"id": f"{name}{i}", "text": f"The mill grinds text {i}."}) + "\n" for i in range(200))
        (elsewhere / "corpus" / f"{name}.jsonl").write_text("".join(lines))
    (elsewhere / "job.yaml").write_text(
        "input: {paths: ['corpus/*.jsonl'], split_bytes: 2000}\n"
        "tokenizer: {train: {vocab_size: 60}}\n"
        "output: {path: out}\n"
    )
    checked(*PIP, "--python", python, "check", cwd=elsewhere)  # what the wheel says that it needs is in the lock
    for name in ("tokenizer", "pipeline"):  # a user's own modules, which Python finds first
        (elsewhere / f"{name}.py").write_text("raise SystemExit('another module was imported')")
    # Compiled anew, if not well: kernels that other tests have compiled would hide that this environment cannot.
    options = ("--workers", "2", "--mode", "processes")
    compiling = {"TOKENMILL_CACHE_DIR": str(tmp_path / "kernels"), "NUMBA_OPT": "0"}
    out = checked(tokenmill, "run", "job.yaml", *options, cwd=elsewhere, **compiling)
    assert " of 400 records" in out
    assert ": proven: 3 of 12 splits" in checked(tokenmill, "verify", "out", "--deep", cwd=elsewhere)
    code = """
import pathlib, sys
import tokenmill.tokenizer, tokenmill.pipeline
for module in (tokenmill.tokenizer, tokenmill.pipeline, tokenmill):
    assert pathlib.Path(sys.argv[1]) in pathlib.Path(module.__file__).parents
tok = tokenmill.Tokenizer.from_file("out/vocab")
assert tok.decode(tok.encode("The mill").ids) == "the mill"
print(tokenmill.VERSION)
"""
    checked(python, "-c", code, tmp_path / "venv", cwd=elsewhere)
