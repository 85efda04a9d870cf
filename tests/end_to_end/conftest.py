# SPDX-License-Identifier: Apache-2.0
"""Jobs through the command line, in this process, and what they leave behind."""

import bz2
import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import forking
from tests import prism as prism_program
from tokenmill.pipeline import cli, filenames

SENTENCES = [
    "The mill grinds text into tokens, and tokens into shards.",
    "Naïve café owners in Zürich don't tokenize déjà-vu!",
    "玫瑰花朵向日葵, 東京タワー and 서울 의 봄.",
    "Привет, мир: это проверка токенизатора.",
    "مرحبا بالعالم — שלום עולם",
    "def f(x):\n\treturn x ** 2  # O(1)",
    "🎉👩‍👩‍👧 emoji and 3Ⰻ7 rare ᛁ characters",
    "",
]


def document(i: int) -> dict[str, str]:
    return {"id": f"doc-{i}", "text": " ".join(SENTENCES[(i * 5 + j * j) % len(SENTENCES)] for j in range(i % 7))}


@pytest.fixture(scope="session")
def make_corpus():
    """Writes 360 documents: JSON lines plain, gzip and bz2, text with a document per line, and Parquet."""

    def make(folder: Path) -> Path:
        folder.mkdir(parents=True)
        lines = [json.dumps(document(i), ensure_ascii=False).encode() + b"\n" for i in range(240)]
        (folder / "a.jsonl").write_bytes(b"".join(lines[:100]))
        (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[100:150]), mtime=0))
        (folder / "c.jsonl.bz2").write_bytes(bz2.compress(b"".join(lines[150:200])))
        (folder / "d.jsonl").write_bytes(b"".join(lines[200:240]))
        (folder / "e.txt").write_text("".join(f"{SENTENCES[i % 4]}\n" for i in range(60)), encoding="utf-8")
        rows = pa.Table.from_pylist([document(i) for i in range(300, 360)])
        pq.write_table(rows, folder / "f.parquet", row_group_size=20)
        return folder

    return make


@pytest.fixture
def corpus(make_corpus, tmp_path):
    return make_corpus(tmp_path / "corpus")


class Job:
    """One config on disk; `run` gives it to the command line and returns the exit code."""

    def __init__(self, folder: Path, **sections) -> None:
        self.output = folder / "out"
        self.config = folder / "job.yaml"
        output = {"path": str(self.output), **sections.get("output", {})}
        self.config.write_text(json.dumps({**sections, "output": output}))

    def run(self, command: str, *arguments: str) -> int:
        return cli.main([command, str(self.config), *arguments])

    def start(self, command: str, *arguments: str, forked: bool = True) -> "subprocess.Popen[str]":
        """As `run`, but in a process of its own, as runners with servers of theirs need it.

        Without `forked` it is the process that this returns, and not one that ends with it.
        """
        python = forking.python() if forked else sys.executable
        words = [python, "-m", "tokenmill", command, str(self.config), *arguments]
        return subprocess.Popen(
            words,
            cwd=prism_program.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # What a shell starts in the background ignores Ctrl-C from birth.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def files(self) -> dict[str, bytes]:
        """Every file under a final name, with its bytes; but for those that say how long it took."""
        paths = (path for path in self.output.rglob("*") if path.is_file())
        found = {path.relative_to(self.output).as_posix(): path.read_bytes() for path in paths}
        return {
            name: data
            for name, data in found.items()
            if not name.startswith("_") and name not in filenames.OF_THE_MOMENT
        }

    def rows(self) -> list[dict]:
        """The rows of all Parquet shards, in their order."""
        paths = sorted(self.output.glob("tokens-*.parquet"))
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    def rejects(self) -> list[dict]:
        paths = sorted(self.output.glob("rejected/*.parquet"))
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    def manifest(self) -> dict:
        return json.loads((self.output / "manifest.json").read_text())


@pytest.fixture
def make_job(tmp_path):
    """`make_job(name, **sections)`: a config of its own folder; the output goes there too."""

    def make(name: str, **sections) -> Job:
        folder = tmp_path / name
        folder.mkdir()
        return Job(folder, **sections)

    return make


@pytest.fixture(scope="session")
def worker_service():
    """Yields the process of `tokenmill workers`, and its address."""
    command = [sys.executable, "-m", "tokenmill", "workers", "--port", "0"]
    with subprocess.Popen(command, cwd=prism_program.ROOT, stdout=subprocess.PIPE, text=True) as service:
        yield service, service.stdout.readline().strip()
        service.terminate()


@pytest.fixture
def beam_options(request) -> list[str]:
    """The options of another runner than the local one, after `--`: Beam's job server in Python, or Prism."""
    if request.param == "embed":
        return ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"]
    options = request.getfixturevalue("prism")
    if request.param == "prism-loopback":
        return [*options, "--environment_type=LOOPBACK"]
    _, address = request.getfixturevalue("worker_service")
    return [*options, "--environment_type=EXTERNAL", f"--environment_config={address}"]
