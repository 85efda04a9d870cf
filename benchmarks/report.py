# SPDX-License-Identifier: Apache-2.0
"""Options of benchmarks, facts that they print beside their numbers, and tables."""

import argparse
import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path


def parser(benchmark: str, description: str | None, *, rounds: int = 0) -> argparse.ArgumentParser:
    """Returns the parser of `./run.sh bench BENCHMARK`, with `--rounds` if there is a default."""
    made = argparse.ArgumentParser(prog=f"./run.sh bench {benchmark}", description=description, allow_abbrev=False)
    if rounds:
        made.add_argument("--rounds", type=int, default=rounds, help=f"interleaved rounds (default {rounds})")
    return made


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


def describe(*distributions: str) -> str:
    """Returns one line with the machine, and the version of each distribution that is installed."""
    return ", ".join(f"{name} {value}" for name, value in (machine() | versions(*distributions)).items())


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


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()
