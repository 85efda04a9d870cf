# SPDX-License-Identifier: Apache-2.0
"""What README and docs say is true: snippets run, configs load, files and links that they name exist."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import schemas
from pipeline.config.file import load_config
from pipeline.input.rejects import REASONS
from pipeline.input.splitting import FORMATS
from pipeline.jobs.planning import plan_job

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("benchmarks/*.md")])
CONFIGS = sorted(REPOSITORY.glob("configs/*.yaml"))


def blocks(path: Path, language: str) -> list[str]:
    """The fenced code blocks of a document in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def documents_with(language: str) -> list[Path]:
    found = [path for path in DOCUMENTS if blocks(path, language)]
    assert found, f"no document has a block of {language}; then this test checks nothing"
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.fixture(scope="module")
def after_quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a clone where `./run.sh` has been run: what it has, and nothing else, snippets may use."""
    root = tmp_path_factory.mktemp("clone")
    shutil.copytree(REPOSITORY / "configs", root / "configs")
    for program in (
        ["pipeline.quickstart", "build/quickstart/corpus"],
        ["tokenmill", "run", "configs/quickstart.yaml"],
    ):
        command = [sys.executable, "-m", *program]
        done = subprocess.run(
            command, cwd=root, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, stderr=subprocess.PIPE, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
    return root


# One test and not one for each document: they share what takes longest.
def test_snippets_run_where_the_quickstart_has_been(
    after_quickstart: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(after_quickstart)
    for document in documents_with("python"):
        for number, snippet in enumerate(blocks(document, "python")):
            with subtests.test(document=name_of(document), snippet=number):
                exec(compile(snippet, f"{document.name}, snippet {number}", "exec"), {})
    for document in documents_with("yaml"):
        for number, snippet in enumerate(blocks(document, "yaml")):
            with subtests.test(document=name_of(document), config=number):
                path = after_quickstart / "my.yaml"
                path.write_text(snippet, encoding="utf-8")
                config = load_config(str(path), job="run")
                assert config.output.path.startswith("build/"), "what a reader tries is kept out of the checkout"
                plan_job("run", config)  # finds the input and the tokenizer


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_configs_load_for_their_job(config: Path) -> None:
    job = "run" if config.stem in ("quickstart", "text") else config.stem.partition("-")[0]
    loaded = load_config(str(config), job=job)
    assert loaded.output.path.startswith("build/")


def test_every_job_has_a_config() -> None:
    kinds = {config.stem.partition("-")[0] for config in CONFIGS}
    assert kinds == {"quickstart", "text", "count", "train", "tokenize"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_formats_name_every_reason_column_and_suffix() -> None:
    text = (REPOSITORY / "docs" / "formats.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    documented = {name for name in first_cells if name in REASONS}
    assert documented == set(REASONS)
    for schema in (schemas.TOKENS, schemas.REJECTS):
        assert {name for name in schema.names if f"`{name}`" not in text} == set()
    assert {suffix for suffix in FORMATS if f"`{suffix}`" not in text} == set()


def test_file_map_of_the_readme_names_what_is_there() -> None:
    (tree,) = [block for block in blocks(REPOSITORY / "README.md", "text") if block.startswith("run.sh")]
    named: list[str] = []
    folder = ""
    for line in tree.splitlines():
        name = line.split()[0]
        if not line.startswith(" "):
            folder = name if name.endswith("/") else ""
        named.append(name if name == folder or not line.startswith(" ") else folder + name)
    assert len(named) > 10
    for name in named:
        assert (REPOSITORY / name).exists(), name
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout
    for top in {path.split("/")[0] for path in tracked.splitlines() if "/" in path and not path.startswith(".")}:
        assert f"{top}/" in named, f"the file map lacks {top}/"


def test_every_difference_is_in_the_docs_as_the_tests_have_it() -> None:
    listed: dict[str, str] = {}
    for path in sorted((REPOSITORY / "tests" / "parity").glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("DIFFERENCES", "LEFT_OUT"):
                found = ast.literal_eval(node.value)
                assert not found.keys() & listed.keys(), f"{path.name} lists what another test lists"
                listed |= found
    text = (REPOSITORY / "docs" / "tokenizers.md").read_text(encoding="utf-8")
    section = text[text.index("## Where we differ") :].replace("`", "")
    rows = re.findall(r"^\| (.+?) +\| (.+?) +\|$", section, re.MULTILINE)
    documented = {name: reason for name, reason in rows if not name.startswith("--")}
    assert documented == {name: reason.replace("`", "") for name, reason in listed.items()} | {
        "what": "here, and there"
    }
