# SPDX-License-Identifier: Apache-2.0
"""The quickstart corpus: real text that every Python installation has, and this repository's multilingual sample.

Nothing is downloaded and nothing foreign is bundled. Three JSON lines files, each record `{"id": ..., "text": ...}`:

- `multilingual.jsonl`: a copy of `configs/data/multilingual.jsonl`, whose name makes it the first to be read;
- `reference.jsonl`: the language reference that `help()` shows, and every docstring of the standard library;
- `sources.jsonl`: the sources of the standard library, a document per file.

Run as `python -m tokenmill.pipeline.quickstart DIRECTORY`.
"""

import ast
import json
import sys
import sysconfig
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

MULTILINGUAL = Path(__file__).parents[2] / "configs" / "data" / "multilingual.jsonl"

# Parts of the standard library that some distributions leave out or move, and folders that are not part of it.
_LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "ensurepip", "site-packages", "dist-packages", "__pycache__"}
)


def build_corpus(directory: Path) -> list[Path]:
    """Writes the three files into `directory`, which is created if needed, and returns their paths.

    The same Python gives the same bytes: documents are in the order of the parts of their ids, and lines end with LF.

    Raises:
      OSError: if `directory` cannot be written, or the multilingual sample is not where the repository has it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sources = list(read_library())
    paths = [directory / name for name in ("multilingual.jsonl", "reference.jsonl", "sources.jsonl")]
    paths[0].write_bytes(MULTILINGUAL.read_bytes())
    _write(paths[1], [*read_topics(), *(docstring for source in sources for docstring in read_docstrings(*source))])
    _write(paths[2], sources)
    return paths


def read_topics() -> Iterator[tuple[str, str]]:
    """Yields (id, text) of the topics that `help()` knows; nothing if this Python came without them."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return
    for name in sorted(topics):
        yield f"topics/{name}", topics[name]


def read_library() -> Iterator[tuple[str, str]]:
    """Yields (path within the library, source) of every readable module of the standard library, ordered by path.

    Tests and parts that some distributions lack are always left out; so is a file that its own encoding cannot decode.
    """
    top = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(top.rglob("*.py"), key=lambda path: path.relative_to(top).parts):
        parts = path.relative_to(top).parts
        if _LEFT_OUT.intersection(parts):
            continue
        try:
            with tokenize.open(path) as source:
                text = source.read()
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        if text:
            yield "/".join(parts), text


def read_docstrings(path: str, source: str) -> Iterator[tuple[str, str]]:
    """Yields (`path:line`, docstring) for the module and every class and function in it, in the order of the file.

    The source is parsed, never imported; one that this Python cannot parse has no docstrings.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in source that is not ours
            module = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    docstrings = [
        (getattr(node, "lineno", 0), ast.get_docstring(node))
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for line, docstring in sorted((line, docstring) for line, docstring in docstrings if docstring):
        yield f"{path}:{line}", docstring


def _write(path: Path, documents: Iterable[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for doc_id, text in documents:
            # Lone surrogates cannot be written as UTF-8; escaped, they are valid JSON and a reader may refuse them.
            record = json.dumps({"id": doc_id, "text": text}, ensure_ascii=False)
            file.write(record.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def main(arguments: list[str]) -> None:
    """Builds the corpus in the directory named by the only argument and says what is in it."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m tokenmill.pipeline.quickstart DIRECTORY")
    for path in build_corpus(Path(arguments[0])):
        with path.open("rb") as file:
            n_documents = sum(1 for _ in file)
        print(f"{path}: {n_documents} documents, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
