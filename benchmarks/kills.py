# SPDX-License-Identifier: Apache-2.0
"""Kills jobs at random moments with SIGKILL, resumes them, and compares every byte with an undisturbed run.

Each round takes a job and a mode at random, starts it, kills it up to three times on the way (the whole process group,
or one worker if workers are processes), and lets the last start finish. After every kill, a final name may only hold
what an undisturbed run writes there; committed splits must not be written again; and in the end the folder must be that
of the undisturbed run. The exit code is 1 if any of that does not hold.

The jobs run in forks of this process, which has imported everything: no kill is wasted on the start of Python.
"""

import collections
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report

JOBS = ("run", "tokenize", "shuffle", "count", "train")
"""`shuffle` is the job `tokenize` with `output.shuffle`."""

MODES = {
    "inline": ["--mode", "inline"],
    "threads": ["--mode", "threads", "--workers", "2"],
    "processes": ["--mode", "processes", "--workers", "2"],
}
_WEIGHTS = (4, 4, 2)
_MOST_KILLS = 3
_N_SHARDS = 6
_PATIENCE_SECONDS = 300
_WORDS = (
    "the mill grinds text into tokens déjà vu naïve 玫瑰 花 東京 привет мир שלום 🎉 3Ⰻ7 don't f(x) 1999 résumé".split()
)


@dataclasses.dataclass
class Outcome:
    """The result of the rounds."""

    kills: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """Processes that were killed while they ran, by job, mode and target."""
    n_too_late: int = 0
    """Starts that were over before they were to be killed."""
    n_kept: int = 0
    """Committed splits that a later start found and left alone."""
    n_finished: int = 0
    """Folders that were finished with the bytes of the undisturbed run."""
    problems: list[str] = dataclasses.field(default_factory=list)


def main(arguments: list[str]) -> int:
    """Runs the kills; returns the exit code."""
    parser = report.parser("kills", __doc__)
    parser.add_argument("--n", type=int, default=200, help="kills to make (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments, jobs and modes (default 0)")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES), help="default: all")
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=JOBS, help="default: all")
    parser.add_argument("--folder", help="where to work (default: temporary)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="tokenmill-kills-") as folder:
        outcome = run(options.n, options.seed, Path(folder), options.modes, options.jobs)
    n_kills = sum(outcome.kills.values())
    for name, n in sorted(outcome.kills.items()):
        print(f"{n:5} kills  {name}")
    print(
        f"{n_kills} kills, {outcome.n_too_late} starts that were over first, {outcome.n_kept} committed splits kept, "
        f"{outcome.n_finished} folders finished, {len(outcome.problems)} problems"
    )
    for problem in outcome.problems:
        print(problem)
    return 1 if outcome.problems or n_kills < options.n else 0


def run(n_kills: int, seed: int, folder: Path, modes: list[str], jobs: Sequence[str] = JOBS) -> Outcome:
    """Makes `n_kills` kills.

    Args:
      n_kills: how many kills to make, at least.
      seed: of everything that is random here; it cannot fix what the scheduler does.
      folder: the folder to work in.
      modes: keys of `MODES`.
      jobs: of `JOBS`.
    """
    rng = random.Random(seed)
    corpus = _write_corpus(folder / "corpus", random.Random(0))
    _import_all()
    wanted: dict[str, dict[str, bytes]] = {}
    seconds: dict[tuple[str, str], float] = {}
    outcome = Outcome()
    weights = [weight for mode, weight in zip(MODES, _WEIGHTS, strict=True) if mode in modes]
    chosen = [mode for mode in MODES if mode in modes]
    n_rounds = 0
    while sum(outcome.kills.values()) < n_kills and not outcome.problems:
        job, mode = rng.choice(jobs), rng.choices(chosen, weights)[0]
        if (job, mode) not in seconds:
            output = folder / f"undisturbed-{job}-{mode}"
            started = time.monotonic()
            code = _wait(_start(job, mode, corpus, output, folder))
            seconds[job, mode] = time.monotonic() - started
            if code != 0:
                outcome.problems.append(f"{job}, {mode}: an undisturbed run ends with {code}: {_log(folder)}")
                break
            files = _final_files(output)
            if wanted.setdefault(job, files) != files:
                outcome.problems.append(f"{job}, {mode}: other bytes than in another mode")
        n_rounds += 1
        output = folder / f"round-{n_rounds}"
        _one_round(rng, (job, mode), corpus, output, seconds[job, mode], wanted[job], outcome, folder)
        shutil.rmtree(output, ignore_errors=True)
    return outcome


def _one_round(
    rng: random.Random,
    what: tuple[str, str],
    corpus: Path,
    output: Path,
    seconds: float,
    wanted: dict[str, bytes],
    outcome: Outcome,
    folder: Path,
) -> None:
    job, mode = what
    for _ in range(rng.randint(1, _MOST_KILLS)):
        before = _committed(output)
        process = _start(job, mode, corpus, output, folder)
        time.sleep(rng.uniform(0, seconds))
        target = "a worker" if mode == "processes" and rng.random() < 0.5 else "all"
        killed = _kill(process, target == "a worker")
        code = _wait(process)
        if code == -signal.SIGKILL or (target == "a worker" and killed and code == 1):
            outcome.kills[f"{job}, {mode}, {target}"] += 1
        elif code == 0:
            outcome.n_too_late += 1
        else:
            outcome.problems.append(f"{what}, kill of {target}: ended with {code}: {_log(folder)}")
        outcome.problems += [f"{what}, after a kill: {line}" for line in _inconsistencies(output, wanted)]
        outcome.problems += [f"{what}, after a kill: {line}" for line in _rewritten(output, before)]
    before = _committed(output)
    code = _wait(_start(job, mode, corpus, output, folder))
    if code != 0:
        outcome.problems.append(f"{what}, resumed: ended with {code}: {_log(folder)}")
        return
    outcome.n_kept += len(before)
    outcome.problems += [f"{what}, resumed: {line}" for line in _rewritten(output, before)]
    files = _final_files(output)
    if files != wanted:
        names = sorted(name for name in {*files, *wanted} if files.get(name) != wanted.get(name))
        outcome.problems.append(f"{what}, resumed: not the files of an undisturbed run: {names}")
    elif (output / "_tmp").exists() or (output / "_owner.json").exists() or list(output.rglob("*.tmp")):
        outcome.problems.append(f"{what}, resumed: leaves temporary files behind")
    else:
        outcome.n_finished += 1


def _write_corpus(folder: Path, rng: random.Random) -> Path:
    """Writes some hundred kilobytes of JSON lines, a few of them bad, in files of uneven size; one is compressed."""
    import gzip

    folder.mkdir(parents=True)
    for i, n_lines in enumerate((400, 3, 900, 120, 0, 250)):
        lines = []
        for j in range(n_lines):
            text = " ".join(rng.choices(_WORDS, k=rng.randint(0, 80)))
            lines.append('{"text": broken\n' if j % 50 == 7 else json.dumps({"text": text}) + "\n")
        data = "".join(lines).encode()
        name = f"{i}.jsonl"
        (folder / (f"{name}.gz" if i == 3 else name)).write_bytes(gzip.compress(data, mtime=0) if i == 3 else data)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *_WORDS]
    vocabulary += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    (folder.parent / "vocab.txt").write_text("".join(f"{each}\n" for each in dict.fromkeys(vocabulary)))
    return folder


def _import_all() -> None:
    """Imports what jobs import, so that a fork begins directly with the work. Starts no thread and no server."""
    from apache_beam.runners.portability.fn_api_runner import fn_runner  # noqa: F401


def _start(job: str, mode: str, corpus: Path, output: Path, folder: Path) -> int:
    """Starts a job in a process group of its own, as a fork; returns its process id."""
    config = folder / f"{output.name}.json"
    is_given = job in ("tokenize", "shuffle")
    tokenizer = {"file": str(folder / "vocab.txt")} if is_given else {"train": {"vocab_size": 200, "min_frequency": 1}}
    sections = {
        "input": {"paths": [str(corpus / "*")], "split_bytes": 20_000},
        "tokenizer": tokenizer,
        "output": {"path": str(output), "shuffle": {"shards": _N_SHARDS} if job == "shuffle" else None},
    }
    config.write_text(json.dumps(sections))
    process = os.fork()
    if process:
        with contextlib.suppress(OSError):  # the child does it too; one of them is first
            os.setpgid(process, process)
        return process
    code = 70
    try:
        os.setpgid(0, 0)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from tokenmill.pipeline import cli

        code = cli.main(["tokenize" if job == "shuffle" else job, str(config), "--resume", *MODES[mode]])
    except BaseException:  # a forked process must not go on in the code of its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _kill(process: int, is_worker: bool) -> bool:
    """Kills a process group, or one child of its leader; returns whether there was something to kill."""
    try:
        if not is_worker:
            os.killpg(process, signal.SIGKILL)
            return True
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
            return True
    except (ProcessLookupError, FileNotFoundError):
        pass
    return False


def _wait(process: int) -> int:
    """Returns the exit code of a process; kills its group and returns 124 when it takes too long."""
    stop = time.monotonic() + _PATIENCE_SECONDS
    code = 124
    while time.monotonic() < stop:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # children left over must not write into the next round
    if code == 124:
        os.waitpid(process, 0)
    return code


def _log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-2000:]


def _final_files(output: Path) -> dict[str, bytes]:
    """Returns the result files, which have final names, with their bytes; without those that differ in every run."""
    from tokenmill.pipeline.filenames import OF_THE_MOMENT

    names = (path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file())
    lasting = (name for name in names if name[0] != "_" and not name.endswith(".tmp") and name not in OF_THE_MOMENT)
    return {name: (output / name).read_bytes() for name in lasting}


def _inconsistencies(output: Path, wanted: dict[str, bytes]) -> list[str]:
    """Returns what is wrong in a folder whose job was killed: every final name must have the final bytes."""
    from tokenmill.pipeline import filenames
    from tokenmill.pipeline.books import ledger

    lines = [
        f"{name}: not as an undisturbed run writes it"
        for name, data in _final_files(output).items()
        if wanted.get(name) != data
    ]
    names = [path.stem for path in (output / filenames.LEDGER).glob("*.json") if len(path.stem) == 16]
    splits = [ledger.LedgerEntry.read(str(output), name) for name in names]
    merged = [ledger.ShardEntry.read(str(output), name) for name in names]
    # Runs are needed until every shard is merged from them.
    needs_runs = sum(entry is not None for entry in merged) < _N_SHARDS
    for name, *entries in zip(names, splits, merged, strict=True):
        files = [file for entry in entries if entry is not None for file in entry.files()]
        if not files:
            lines.append(f"{name}.json: cannot be read")
        for file in files:
            if needs_runs or not file.file.startswith(f"{filenames.RUNS}/"):
                lines += [problem] if (problem := ledger.problem(str(output), file)) else []
    return lines


def _committed(output: Path) -> dict[str, tuple[int, int]]:
    """Returns inode and time of every ledger entry."""
    paths = [path for path in (output / "_ledger").glob("*.json") if len(path.stem) == 16]
    return {path.stem: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def _rewritten(output: Path, before: dict[str, tuple[int, int]]) -> list[str]:
    after = _committed(output)
    return [f"split {name} was committed and was done again" for name in before if after.get(name) != before[name]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
