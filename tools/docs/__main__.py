# SPDX-License-Identifier: Apache-2.0
"""`python -m tools.docs write|stage|run`: the steps of `./run.sh docs`."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Does one step; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "step", choices=["write", "stage", "run"], help="write the reference, stage the site, run snippets"
    )
    parser.add_argument("documents", nargs="*", help="for run: only these")
    options = parser.parse_args(arguments)
    if options.step == "write":
        from tools.docs import pages

        for path in pages.write(REPOSITORY):
            print(f"written: {path}")
        return 0
    if options.step == "stage":
        from tools.docs import site

        site.stage(REPOSITORY)
        return 0
    return _run(options.documents)


def _run(names: list[str]) -> int:
    from tools.docs import snippets

    documents = [Path(name).resolve() for name in names] or snippets.documents_that_run(REPOSITORY)
    n_run = n_failed = n_skipped = 0
    with tempfile.TemporaryDirectory(prefix="tokenmill-docs-") as folder:
        print("making what a clone holds after ./run.sh", flush=True)
        sandbox = snippets.Sandbox(REPOSITORY, Path(folder, "clone"))
        for document in documents:
            started = time.monotonic()
            for outcome in sandbox.run(document):
                n_run += not outcome.skipped
                n_skipped += bool(outcome.skipped)
                n_failed += bool(outcome.error)
                place = f"{outcome.document}, line {outcome.line}"
                if outcome.error:
                    print(f"{place}: {outcome.error}", flush=True)
                elif outcome.skipped:
                    print(f"{place}: not run: {outcome.skipped}", flush=True)
            print(f"{document.relative_to(REPOSITORY)}: {time.monotonic() - started:.1f} s", flush=True)
    print(f"{n_run - n_failed} passed, {n_failed} failed, {n_skipped} skipped")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
