# SPDX-License-Identifier: Apache-2.0
"""What README and docs say is true: snippets run, configs load, links lead somewhere, the reference is complete."""

import ast
import doctest
import html
import importlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests import forking
from tokenmill.pipeline import VERSION, schemas
from tokenmill.pipeline.config.file import load_config
from tokenmill.pipeline.config.formats import SUFFIXES
from tokenmill.pipeline.input.rejects import REASONS
from tokenmill.pipeline.jobs.planning import plan_job
from tokenmill.pipeline.looking.inspect import BOUNDARY
from tools import picture
from tools.docs import documents, pages, snippets

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = documents.documents(REPOSITORY)
RUN = snippets.documents_that_run(REPOSITORY)
CONFIGS = sorted(REPOSITORY.glob("configs/*.yaml"))


def blocks(path: Path, language: str) -> list[str]:
    """The fenced code blocks of a document in one language."""
    return [block.text for block in documents.blocks(path) if block.language == language]


def documents_with(language: str) -> list[Path]:
    """The documents whose blocks of a language are tried by themselves; of the others all is run, in order."""
    found = [path for path in DOCUMENTS if path not in RUN and blocks(path, language)]
    assert found, f"no document has a block of {language}; then this test checks nothing"
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> snippets.Sandbox:
    """A clone where `./run.sh` has been run: what it has, and nothing else, snippets may use."""
    return snippets.Sandbox(REPOSITORY, tmp_path_factory.mktemp("docs") / "clone", forking.python())


# One test and not one for each document: they share what takes longest.
def test_snippets_run_where_the_quickstart_has_been(
    sandbox: snippets.Sandbox, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(sandbox.root)
    for document in documents_with("python"):
        for number, snippet in enumerate(blocks(document, "python")):
            with subtests.test(document=name_of(document), snippet=number):
                exec(compile(snippet, f"{document.name}, snippet {number}", "exec"), {})
    for document in documents_with("yaml"):
        for number, snippet in enumerate(blocks(document, "yaml")):
            with subtests.test(document=name_of(document), config=number):
                path = sandbox.root / "my.yaml"
                path.write_text(snippet, encoding="utf-8")
                config = load_config(str(path), job="run")
                assert config.output.path.startswith("build/"), "what a reader tries is kept out of the checkout"
                plan_job("run", config)  # finds the input and the tokenizer


def test_tutorial_how_tos_and_commands_run_as_they_stand(sandbox: snippets.Sandbox, subtests: pytest.Subtests) -> None:
    for document in RUN:
        for outcome in sandbox.run(document):
            with subtests.test(document=outcome.document, line=outcome.line):
                if outcome.skipped:
                    pytest.skip(outcome.skipped)
                assert not outcome.error


def test_what_is_not_run_says_why_and_is_little() -> None:
    found = [block for path in RUN for block in documents.blocks(path) if block.not_run or block.needs]
    assert all(len(block.not_run or block.needs) > 4 for block in found)
    n_commands = sum(block.language == "bash" for path in RUN for block in documents.blocks(path))
    assert len(found) < n_commands / 4


@pytest.mark.parametrize("document", sorted((REPOSITORY / "docs" / "how-to").glob("*.md")), ids=name_of)
def test_a_how_to_begins_with_an_example_that_works(document: Path) -> None:
    if document.name == "index.md":
        return
    found = documents.blocks(document)
    assert found, f"{document.name} has no example"
    lines = document.read_text(encoding="utf-8").splitlines()
    before = [line for line in lines[1 : found[0].line - 2] if line.strip() and not line.startswith("<!--")]
    assert len(before) <= 4, "the example comes before the rule"
    assert found[0].language in ("yaml", "bash", "python")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_files_of_the_code_that_documents_name_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    folders = "pipeline|tokenizer|tests|tools|benchmarks|configs"
    named = set(re.findall(rf"`((?:{folders})/[\w./-]+\.(?:py|md|yaml|npz|sh))`", text))
    assert {name for name in named if not (REPOSITORY / name).exists()} == set()


@pytest.mark.parametrize("path", pages.PAGES)
def test_generated_pages_are_what_the_code_says_now(path: str) -> None:
    held = (REPOSITORY / path).read_text(encoding="utf-8")
    assert held == pages.made(path), f"{path} is out of date: ./run.sh docs writes it anew"


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_configs_load_for_their_job(config: Path) -> None:
    job = "run" if config.stem in ("quickstart", "text") else config.stem.partition("-")[0]
    loaded = load_config(str(config), job=job)
    assert loaded.output.path.startswith("build/")


def test_every_job_has_a_config() -> None:
    kinds = {config.stem.partition("-")[0] for config in CONFIGS}
    assert kinds == {"quickstart", "text", "count", "train", "tokenize"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    assert documents.broken_links(document) == []


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("[a](other.md)", []), ("[a](other.md#a-b_c---d)", []), ("[a](#here)", []),
        ("[`x`](other.md#the-code-of-f)", []), ("[a](missing.md)", ["missing.md"]),
        ("[a](other.md#missing)", ["other.md#missing"]), ("[a](#there)", ["#there"]),
        ("[a](https://example.org/x.md)", []),
    ],
)  # fmt: skip
def test_links_are_checked(tmp_path: Path, line: str, broken: list[str]) -> None:
    (tmp_path / "other.md").write_text("# A b_c - D!\n\n## The code of `f()`\n\n```sh\n# missing\n```\n")
    (tmp_path / "page.md").write_text(f"# Here\n\n{line}\n")
    assert documents.broken_links(tmp_path / "page.md") == broken


def test_every_document_is_on_the_site() -> None:
    text = (REPOSITORY / "tools" / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"[\w./-]+\.md\b", text[text.index("\nnav:") :])
    assert sorted(listed) == [name_of(path) for path in DOCUMENTS]


def test_formats_name_every_column_and_suffix_and_errors_every_reason() -> None:
    text = (REPOSITORY / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    for schema in (schemas.TOKENS, schemas.REJECTS):
        assert {name for name in schema.names if f"`{name}`" not in text} == set()
    assert {suffix for suffix in SUFFIXES if f"`{suffix}`" not in text} == set()
    reasons = (REPOSITORY / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert set(REASONS) <= set(re.findall(r"^\| `(\w+)` \|", reasons, re.MULTILINE))


def test_the_picture_of_the_quickstart_is_one_of_today() -> None:
    drawn = (REPOSITORY / "docs/images/quickstart.svg").read_text(encoding="utf-8")
    rows: dict[str, str] = {}
    for y, text in re.findall(r'<text [^>]*?y="([\d.]+)"[^>]*>(.*?)</text>', drawn, re.DOTALL):
        rows[y] = rows.get(y, "") + html.unescape(text).replace("\xa0", " ").rstrip("\n")
    title, command, *lines = rows.values()
    assert (title, command) == ("tokenmill", "$ ./run.sh")
    steps = [line.removeprefix("== ") for line in lines if line.startswith("== ")]
    said = (REPOSITORY / "tools/__main__.py").read_text(encoding="utf-8")
    assert [step in said for step in steps] == [True] * 3
    assert sum(f"{BOUNDARY} " in line for line in lines) == 2
    numbers = {line[:15].strip(): line[15:].split() for line in lines}
    n_words, n_tokens = (int(numbers[name][0].replace(",", "")) for name in ("words", "tokens"))
    assert numbers["tokens per word"] == [f"{n_tokens / n_words:.3f}"]
    passing = "run.sh: ready after 5 s\ntokenmill: merging ...\ntokenmill: counting 0% of 14.0 MB\n\n"
    again = picture.draw(passing + "\n".join(lines))
    assert all(html.escape(line.strip()).replace(" ", "&#160;") in again for line in lines if BOUNDARY not in line)
    assert "ready" not in again
    assert "merging&#160;..." not in again


def test_examples_of_docstrings_give_what_they_show() -> None:
    files = [path for package in ("pipeline", "tokenizer") for path in (REPOSITORY / package).rglob("*.py")]
    n_tried = 0
    for path in (path for path in files if ">>> " in path.read_text(encoding="utf-8")):
        name = path.relative_to(REPOSITORY).with_suffix("").as_posix().replace("/", ".")
        result = doctest.testmod(importlib.import_module(f"tokenmill.{name}"))
        assert not result.failed, name
        n_tried += result.attempted
    assert n_tried > 9


def test_version_is_the_same_wherever_it_is_said() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert version == VERSION
    assert f"\nversion: {version}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version} - " in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


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
    text = (REPOSITORY / "docs" / "explanation" / "tokenizers.md").read_text(encoding="utf-8")
    section = text[text.index("## Where we differ") :].replace("`", "")
    rows = re.findall(r"^\| (.+?) +\| (.+?) +\|$", section, re.MULTILINE)
    documented = {name: reason for name, reason in rows if not name.startswith("--")}
    assert documented == {name: reason.replace("`", "") for name, reason in listed.items()} | {
        "what": "here, and there"
    }
