# SPDX-License-Identifier: Apache-2.0
"""The product on `locks/runtime.lock` alone: everything that the README shows, every config, every config in docs."""

import os
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.installing import PIP, UNREACHABLE, checked, run

pytestmark = pytest.mark.installation

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Commands of the README that are not run here.
NOT_RUN = ("./run.sh test",)  # is what runs this

# In which order configs are run: some take what others leave.
KINDS = ("quickstart", "text", "count", "train", "tokenize")


def test_everything_in_the_readme_runs_in_the_order_in_which_it_stands(clone: Path) -> None:
    shutil.rmtree(clone / "build", ignore_errors=True)
    n_run = 0
    for language, text in BLOCK.findall((clone / "README.md").read_text(encoding="utf-8")):
        if language == "yaml":
            name = re.match(r"# (\S+\.yaml)\n", text)
            assert name, "the first line of a config says what it is to be called"
            (clone / name[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            checked(clone / ".venv" / "bin" / "python", "-c", text, cwd=clone)
            n_run += 1
        elif language == "bash":
            for command in text.splitlines():
                if not command.startswith(NOT_RUN):
                    checked("bash", "-c", command, cwd=clone)
                    n_run += 1
    assert n_run >= 7


NOTEBOOK = """
import nbclient, nbformat, sys
cell = nbformat.v4.new_code_cell(sys.argv[1])
nbclient.NotebookClient(nbformat.v4.new_notebook(cells=[cell]), timeout=300).execute()
for output in cell.outputs:
    print(output.name, output.text, end="")
"""
CELL = """
import sys, tokenmill
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "mill"]
tokenmill.Tokenizer.for_bert(tokens).save("vocab.txt")
with open("a.txt", "w") as file:
    file.write("the mill\\n" * 3)
job = {"input": {"paths": ["a.txt"]}, "tokenizer": {"file": "vocab.txt"}, "output": {"path": "out"}}
result = tokenmill.run(job, progress=True)
print(result.totals["n_documents"], "pandas" in sys.modules, tokenmill.verify("out").is_proven)
"""


def test_a_job_in_a_notebook(clone: Path, tmp_path: Path) -> None:
    python = clone / ".venv" / "bin" / "python"
    pins = re.findall(
        r"^\w.*?(?= \\\\?$)", (clone / "locks" / "runtime.lock").read_text(encoding="utf-8"), re.MULTILINE
    )
    (tmp_path / "pins").write_text("\n".join(pins), encoding="utf-8")  # the lock itself would want a hash of ipykernel
    options = ("--target", tmp_path / "kernel", "--constraint", tmp_path / "pins")
    done = run(*PIP, "--python", python, "install", *options, "ipykernel", "nbclient", cwd=tmp_path)
    if done.returncode and "CI" not in os.environ and UNREACHABLE.search(done.stderr):
        pytest.skip(f"needs a package registry to install ipykernel from: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    paths = {"PYTHONPATH": str(tmp_path / "kernel"), "IPYTHONDIR": str(tmp_path)}
    shown = checked(python, "-c", NOTEBOOK, CELL, cwd=tmp_path, **paths)
    assert shown.endswith("stdout 3 False True\n")
    assert "finishing took" in shown
    assert not re.search("stderr tokenmill: (?!compiling|wait)", shown)  # which is red


# Both in one process: what `run.sh` does with a command, the README shows.
RUN_AND_VERIFY = """
import sys
from tokenmill.pipeline.cli import main
job, *rest = sys.argv[1:]
sys.exit(main([job, *rest]) or main(["verify", *rest]))
"""


def run_and_verify(clone: Path, folder: Path, job: str, config: str, *options: str) -> None:
    python = clone / ".venv" / "bin" / "python"
    assert ": proven; read " in checked(python, "-c", RUN_AND_VERIFY, job, config, *options, cwd=folder)


def test_every_config_and_what_docs_show_runs_and_is_proven(
    clone: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    python = clone / ".venv" / "bin" / "python"
    shutil.copytree(clone / "configs", tmp_path / "configs")
    checked(python, "-m", "tokenmill.pipeline.quickstart", "build/quickstart/corpus", cwd=tmp_path)
    names = [path.name for path in (tmp_path / "configs").glob("*.yaml")]
    for name in sorted(names, key=lambda name: (KINDS.index(re.split("[-.]", name)[0]), name)):
        kind = re.split("[-.]", name)[0]
        with subtests.test(config=name):
            run_and_verify(clone, tmp_path, "run" if kind in ("quickstart", "text") else kind, f"configs/{name}")
    for command in (
        ("inspect", "build/shuffled"),
        ("verify", "build/shuffled", "--deep"),
        ("schema",),
    ):
        with subtests.test(command=command):
            checked(clone / "run.sh", *command, cwd=tmp_path)
    documents = [path for folder in ("explanation", "reference") for path in (clone / "docs" / folder).glob("*.md")]
    for document in sorted(documents):  # of the others, tests/test_docs.py runs everything
        for number, (language, text) in enumerate(BLOCK.findall(document.read_text(encoding="utf-8"))):
            with subtests.test(document=document.name, block=number):
                if language == "python":
                    checked(python, "-c", text, cwd=tmp_path)
                elif language == "yaml":
                    (tmp_path / "my.yaml").write_text(text, encoding="utf-8")
                    run_and_verify(clone, tmp_path, "run", "my.yaml", "--set", "input.sample=0.1")


def test_what_arrow_needs_pandas_for_is_kept_and_shown_without_it(clone: Path, tmp_path: Path) -> None:
    moment = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))
    pq.write_table(pa.table({"text": ["the"], "seen": moment}), tmp_path / "in.parquet")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    (tmp_path / "job.yaml").write_text(
        "{input: {paths: [in.parquet], keep_fields: [seen]}, tokenizer: {file: vocab.txt}, "
        "output: {path: out, format: [parquet, mds]}}"
    )
    run_and_verify(clone, tmp_path, "tokenize", "job.yaml")
    for shard in ("tokens-00000-of-00001.parquet", "tokens-00000-of-00001.mds"):
        checked(clone / "run.sh", "inspect", f"out/{shard}", cwd=tmp_path)
        traced = checked(clone / "run.sh", "trace", "out", shard, "0", cwd=tmp_path)
        assert "2023-11-14 22:13:20.123456789" in traced
