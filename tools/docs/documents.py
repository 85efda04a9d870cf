# SPDX-License-Identifier: Apache-2.0
"""Finds the documents of the repository, and their code blocks, headings and links."""

import dataclasses
import re
from pathlib import Path

FOLDERS = ("", "benchmarks")
"""Folders whose own Markdown files are documents, beside all of docs/."""

_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>not run|needs|prints): (?P<reason>.*?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    language: str
    text: str
    line: int
    """The line of the document in which its text begins, from 1."""
    not_run: str = ""
    """Why it is not run, if a comment above it says so: `<!-- not run: needs a cluster -->`."""
    needs: str = ""
    """A Python package that it needs, but TokenMill does not: `<!-- needs: torch -->`."""
    prints: str = ""
    """What is part of what it prints: `<!-- prints: did you mean 'vocab_size'? -->`."""

    @property
    def name(self) -> str:
        """The file to save it as, if its first line says so: `# my.yaml`."""
        named = re.match(r"# ([\w./-]+\.(?:yaml|py))\n", self.text)
        return named[1] if named else ""


def documents(repository: Path) -> list[Path]:
    """Returns every document, in the order of their paths."""
    found = [path for folder in FOLDERS for path in (repository / folder).glob("*.md")]
    return sorted([*found, *(repository / "docs").rglob("*.md")])


def blocks(path: Path) -> list[Block]:
    """Returns the code blocks of a document that have a language."""
    text = path.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        reason = match["reason"] or ""
        line = text.count("\n", 0, match.start("text")) + 1
        kinds = {match["note"].replace(" ", "_"): reason} if match["note"] else {}
        found.append(Block(match["language"], match["text"], line, **kinds))
    return found


def links(path: Path) -> list[str]:
    """Returns the targets of a document's links that lead to files or headings of the repository."""
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    return [target for target in _LINK.findall(text) if "://" not in target and not target.startswith("mailto:")]


def anchors(path: Path) -> set[str]:
    """Returns the anchors of a document's headings, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", path.read_text(encoding="utf-8"))):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        n = 1
        while slug in found:
            slug = f"{slug.removesuffix(f'-{n - 1}')}-{n}"
            n += 1
        found.add(slug)
    return found


def broken_links(path: Path) -> list[str]:
    """Returns the links of a document that lead to no file, or to no heading of one."""
    broken = []
    for target in links(path):
        file, _, anchor = target.partition("#")
        place = path.parent / file if file else path
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            broken.append(target)
    return broken
