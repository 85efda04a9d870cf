# SPDX-License-Identifier: Apache-2.0
"""`python -m tools`: what `./run.sh` does once .venv is ready: the quickstart, tests, benchmarks, documentation.

python -m tools quickstart
python -m tools test [--quick | --all] [paths and pytest options]
python -m tools bench [NAME] [options]
python -m tools docs [--check]
"""

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SWEEP = ("beam", "encode", "load", "pipeline", "small", "train")
"""The benchmarks that run when none is named."""
OTHERS = (
    "commits", "compositions", "first-run", "foreign-suites", "hostile", "jobs", "kills", "parquet",
    "prices", "readers", "scale", "shuffle", "superwords", "templates",
)  # fmt: skip
QUICK_SECONDS = 90
"""Of `./run.sh test --quick`, linters included; what starts before they are over ends."""
_KEPT_SECONDS = 14 * 24 * 3600
_WARMED = ".warmed-usual"
"""In the environment, once the kernels of the usual jobs are compiled."""


def step(name: str) -> None:
    """Prints the heading of a step."""
    print(f"\n== {name}", flush=True)


def run(*arguments: str) -> None:
    """Runs a module with this Python; ends with its exit code if that is not 0."""
    if code := subprocess.run([sys.executable, "-m", *arguments], check=False).returncode:
        sys.exit(code if code > 0 else 128 - code)


def quickstart() -> None:
    """Makes a corpus, trains a vocabulary on it, tokenizes it, and shows the result."""
    config = "configs/quickstart.yaml"
    step("1 of 4: a corpus of what every Python carries, and a multilingual sample -> build/quickstart/corpus")
    # The first time one core makes the corpus, and the others compile what the next step runs.
    warmed, warm = Path(sys.prefix, ".warmed"), None
    if not warmed.exists():
        warm = subprocess.Popen([sys.executable, "-m", "tokenmill", "warm", config], stdout=subprocess.DEVNULL)
    try:
        run("tokenmill.pipeline.quickstart", "build/quickstart/corpus")
        if warm is not None and warm.wait() == 0:  # else the job compiles what is missing
            with contextlib.suppress(OSError):
                warmed.touch()
    finally:
        if warm is not None:
            warm.kill()
    _warm_behind()
    step("2 of 4: count its words, train a vocabulary, tokenize -> build/quickstart/out")
    run("tokenmill", "run", config, "--overwrite")
    step("3 of 4: read it all back and prove that the books balance")
    run("tokenmill", "verify", config)
    step("4 of 4: two rows as text; an unknown character costs one [UNK], not the whole word")
    run("tokenmill", "inspect", config, "--start", "4", "--rows", "2")


def _warm_behind() -> None:
    """Compiles the kernels of other usual jobs at low priority, while the quickstart runs and a person reads."""
    is_watched = sys.stderr.isatty() and not os.environ.get("CI")  # by somebody who will go on
    if is_watched and os.access(sys.prefix, os.W_OK) and not Path(sys.prefix, _WARMED).exists():
        print("\nThe kernels of other usual jobs are compiled in the background now: once, at low priority.")
        command = [sys.executable, "-m", "tools", "warm"]
        nowhere = subprocess.DEVNULL
        subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def warm() -> None:
    """Compiles the kernels of the usual jobs, once; does nothing while another process does."""
    with Path(sys.prefix, ".warming").open("wb") as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.nice(19)
        run("tokenmill", "warm")
        Path(sys.prefix, _WARMED).touch()


def test(*options: str) -> None:
    """Runs linters, the type checker and the tests of a tier; or, where a path is named, the tests that it has."""
    started = time.monotonic()
    quick, everything = options[:1] == ("--quick",), options[:1] == ("--all",)
    if quick:
        os.environ.setdefault("TOKENMILL_EXAMPLES", "10")
    if everything:
        os.environ.setdefault("TOKENMILL_THOROUGH", "1")
    # Compiled kernels are named by their sources, so clones of one machine share them. Those unused for two weeks go.
    caches = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or "/tmp", ".cache")
    kernels = Path(os.environ.setdefault("TOKENMILL_CACHE_DIR", str(Path(caches, "tokenmill/tests"))))
    kernels.mkdir(parents=True, exist_ok=True)
    for path in kernels.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_atime < time.time() - _KEPT_SECONDS:
                path.unlink()
    # Containers often set this; then each of hundreds of processes compiles the sources of all packages for itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if any(Path(option.partition("::")[0]).exists() for option in options):
        run("pytest", *options)  # in one process, which starts sooner
        return
    step("ruff")
    listed = subprocess.run(["git", "ls-files", "*.py"], stdout=subprocess.PIPE, text=True, check=False).stdout
    sources = listed.split() or ["."]  # what a person has saved in the checkout is no part of it
    run("ruff", "check", "--force-exclude", *sources)
    run("ruff", "format", "--check", "--force-exclude", *sources)
    step("mypy")
    run("mypy")
    step("pytest")
    workers = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
    if quick:
        left = max(10, QUICK_SECONDS - int(time.monotonic() - started))
        options = (f"--quick={left}", *options[1:])
    run("pytest", *workers, "--durations=20", "--durations-min=5", *options)


def bench(name: str = "all", *options: str) -> None:
    """Runs a benchmark, or several one after the other."""
    if name not in ("all", *SWEEP, *OTHERS):
        sys.exit(f"run.sh: unknown benchmark {name!r}; there are {', '.join(SWEEP)}; {', '.join(OTHERS)}")
    for each in SWEEP if name == "all" else (name,):
        if name == "all":
            step(each)
        run(f"benchmarks.{each.replace('-', '_')}", *options)


def docs(*options: str) -> None:
    """Writes the reference and builds the site; with `--check`, runs everything that the documentation shows."""
    if options not in ((), ("--check",)):
        sys.exit(f"run.sh: docs takes --check or nothing, got: {' '.join(options)}")
    step("the reference -> docs/reference")
    run("tools.docs", "write")
    step("the site -> build/site")
    run("tools.docs", "stage")
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    run("mkdocs", "build", "--strict", "--quiet", "--config-file", "tools/docs/mkdocs.yml")
    if options:
        step("everything that the documentation shows, run")
        run("tools.docs", "run")


def beside(*packages: str) -> None:
    """Prints whether TokenMill can be installed beside packages."""
    from tools import beside

    beside.main(packages)


def main(arguments: list[str]) -> None:
    """Does what the first argument names, with the others."""
    commands = {"quickstart": quickstart, "test": test, "bench": bench, "docs": docs, "beside": beside, "warm": warm}
    name, *options = arguments or [""]
    if name not in commands:
        sys.exit(f"python -m tools takes {', '.join(commands)}; got {name!r}")
    os.chdir(ROOT)
    try:
        commands[name](*options)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
