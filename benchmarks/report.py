# SPDX-License-Identifier: Apache-2.0
"""Facts that every benchmark prints beside its numbers, its tables, and the files of results."""

import datetime
import json
import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, str]:
    """Returns the processor, the cores this process may use, the operating system and Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "cores": str(cores),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions(*distributions: str) -> dict[str, str]:
    """Returns the version of each distribution that is installed."""
    found = {}
    for name in distributions:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe(facts: dict[str, str]) -> str:
    """Returns one line: `name value, name value`."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table with aligned columns; the first column to the left, the rest to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def save(benchmark: str, facts: dict[str, str], measurements: list[dict[str, Any]]) -> Path:
    """Writes raw samples to `results/<date>-<machine>-<benchmark>.json` and returns the path."""
    RESULTS.mkdir(exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", f"{machine()['processor']} {machine()['cores']} cores".lower()).strip("-")
    path = RESULTS / f"{datetime.date.today().isoformat()}-{name}-{benchmark}.json"
    content = {"benchmark": benchmark, "facts": facts, "measurements": measurements}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()
