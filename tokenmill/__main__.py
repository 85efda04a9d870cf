# SPDX-License-Identifier: Apache-2.0
"""The command `tokenmill`, which `python -m tokenmill` is, too."""

import sys

from tokenmill.pipeline import cli
from tokenmill.pipeline.running.outlets import outlive_readers


def main() -> int:
    """Runs the command that this process was started with, and returns its exit code."""
    outlive_readers()
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
