# SPDX-License-Identifier: Apache-2.0
"""The command `tokenmill`, which first checks that the code that it will import is its own."""

import sys

from tokenmill import installation


def main() -> int:
    """Runs the command that this process was started with, and returns its exit code."""
    if faults := installation.faults():
        for fault in faults:
            print(f"tokenmill: {fault}", file=sys.stderr)
        return 2
    for stranger in installation.strangers():
        print(f"tokenmill: {stranger}", file=sys.stderr)
    # Imported only now, after the check.
    from pipeline.cli import main
    from pipeline.running.outlets import outlive_readers

    outlive_readers()
    return main()


if __name__ == "__main__":
    sys.exit(main())
