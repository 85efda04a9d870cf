# SPDX-License-Identifier: Apache-2.0
"""Draws `docs/images/quickstart.svg`: what `./run.sh` prints, with its colours. `python -m tools.picture` runs it."""

import io
import os
import re
import subprocess
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

_ROOT = Path(__file__).resolve().parents[1]
_PICTURE = _ROOT / "docs" / "images" / "quickstart.svg"
_WIDTH = 104
_PASSING = re.compile(
    r"run\.sh: |tokenmill: (compiling|waited|waiting) |tokenmill: [a-z]+( \.\.\.|,| \d+%)|build/quickstart/corpus/|== 1"
)
"""Lines that tell of the first time, of the corpus, or how far a stage is."""
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "font-family: Fira Code, monospace", "font-family: ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace"
)
"""Without fonts of other sites."""


def draw(printed: str) -> str:
    """Returns the picture of what a quickstart has printed, with escapes for colours."""
    lines = [line for line in printed.splitlines() if line.strip() and not _PASSING.match(line)]
    console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, color_system="standard")
    console.print(Text("$ ./run.sh", style="bold"))
    for line in lines:
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)
    return console.export_svg(title="tokenmill", code_format=_FORMAT, unique_id="quickstart")


def main() -> None:
    """Runs the quickstart and writes the picture."""
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(_WIDTH)}
    done = subprocess.run(
        [_ROOT / "run.sh"], env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    _PICTURE.write_text(draw(done.stdout.decode()), encoding="utf-8")
    print(_PICTURE)


if __name__ == "__main__":
    main()
