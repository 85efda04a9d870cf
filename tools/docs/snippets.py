# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of documents, in a folder with the same content as a clone after `./run.sh`.

In the pages that readers follow at the keyboard, every block runs, in order: files are saved under the name in their
first line, `bash` runs in a shell, `python` in a process of its own. A comment above a block that cannot run says why.
"""

import dataclasses
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.docs.documents import Block, blocks

RUN = ("docs/tutorial", "docs/how-to", "docs/troubleshooting.md", "docs/reference/commands.md")
"""The folders and pages of which every block runs."""

_SECONDS = 600
"""The seconds after which a block counts as failed."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a block."""

    document: str
    line: int
    error: str = ""
    """How it ended, with the end of what it printed; empty if it ended well."""
    skipped: str = ""
    """Why it was not run; empty if it was."""


def documents_that_run(repository: Path) -> list[Path]:
    """Returns the documents of which every block runs."""
    places = [repository / place for place in RUN]
    return sorted(path for place in places for path in (place.rglob("*.md") if place.is_dir() else [place]))


class Sandbox:
    """A folder that looks like a clone in which `./run.sh` has been run."""

    def __init__(self, repository: Path, root: Path, python: str = sys.executable) -> None:
        """Makes the folder `root`, quickstart included; `python` runs commands, with the code of `repository`."""
        self.repository, self.root, self.python = repository, root, python
        shutil.copytree(repository / "configs", root / "configs")
        bin_ = root / ".venv" / "bin"
        bin_.mkdir(parents=True)
        for script, command in (
            (root / "run.sh", "-m tokenmill"),
            (bin_ / "tokenmill", "-m tokenmill"),
            (bin_ / "python", ""),
        ):
            script.write_text(f'#!/usr/bin/env bash\nexec "{python}" {command} "$@"\n', encoding="utf-8")
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
        self._checked("-m", "tokenmill.pipeline.quickstart", "build/quickstart/corpus")
        self._checked("-m", "tokenmill", "run", "configs/quickstart.yaml")

    def run(self, document: Path) -> Iterator[Outcome]:
        """Runs a document, block by block; after a block that failed, it goes on."""
        name = str(document.relative_to(self.repository))
        for block in blocks(document):
            skipped = block.not_run or self._missing(block)
            error = "" if skipped else self._run(block)
            yield Outcome(name, block.line, error, skipped)

    def _missing(self, block: Block) -> str:
        if not block.needs or importlib.util.find_spec(block.needs) is not None:
            return ""
        return f"needs {block.needs}, which is not installed here: {self.python} -m pip install {block.needs}"

    def _run(self, block: Block) -> str:
        if block.name:
            (self.root / block.name).write_text(block.text, encoding="utf-8")
            return ""
        if block.language == "bash":
            return self._ended("bash", "-euo", "pipefail", "-c", block.text, prints=block.prints)
        if block.language == "python":
            return self._ended(self.python, "-c", block.text)
        return ""

    def _ended(self, *command: str, prints: str = "") -> str:
        paths = [str(self.root / ".venv" / "bin"), os.environ.get("PATH", os.defpath)]
        variables = os.environ | {"PATH": os.pathsep.join(paths), "PYTHONPATH": str(self.repository)}
        done = subprocess.run(
            command, cwd=self.root, env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode == 0 and prints in done.stdout + done.stderr:
            return ""
        return f"ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"

    def _checked(self, *arguments: str) -> None:
        if error := self._ended(self.python, *arguments):
            raise RuntimeError(f"{' '.join(arguments)} {error}")
