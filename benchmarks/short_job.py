# SPDX-License-Identifier: Apache-2.0
"""Measures what a job over a megabyte costs beyond importing Beam, and where that goes. Compiled code is cached.

It times whole processes in turn: `python -c 'import apache_beam'`, and `tokenmill tokenize` with each tokenizer, as a
user would start it. The parts are timed in processes of their own, which do what the command does, step by step.
"""

import argparse
import dataclasses
import gc
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import corpora, load, report, timing, tokenizers
from tokenmill.tokenizer import Tokenizer

LIMIT = 1.0
"""Processor seconds that a job may take beyond the import of Beam."""
PARTS = ("ours", "config", "plan", "beam", "graph", "run", "summary")
"""Names of the parts, in order. Importing Beam also imports NumPy and Arrow, but `ours` has imported them before."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench short-job", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mb", type=float, default=1, help="size of the input (default 1)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--save", action="store_true", help="keep the raw samples under benchmarks/results/")
    options = parser.parse_args(arguments)
    shared = corpora.shared_folder()
    if shared is None:
        print("nothing to measure: needs the vocabularies in the folder that TOKENMILL_SHARED names")
        return 1
    facts = report.machine() | report.versions("tokenmill", "apache-beam", "pydantic", "pyarrow", "numba")
    print(report.describe(facts))
    print(
        f"processor seconds, medians of {options.rounds} rounds; beyond the import of Beam at most {LIMIT} is wanted\n"
    )
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as folder:
        return _measure(options, Path(folder), tokenizer_files(shared / "vocab", Path(folder)), facts)


def tokenizer_files(vocab: Path, folder: Path) -> dict[str, Path]:
    """Returns the tokenizers to measure with: one of each kind of model, and a large one."""
    like_cl100k = Tokenizer.from_file(load.train_ranks("cl100k"), pattern="cl100k_base")
    files = {}
    for name, tokenizer in {"GPT-2": tokenizers.load_gpt2(vocab), "like cl100k": like_cl100k}.items():
        files[name] = folder / f"{name}.json"
        tokenizer.save(files[name])
    return files | {"XLNet": vocab / "xlnet.model", "BERT": vocab / "bert-base-uncased.txt"}


def _measure(options: argparse.Namespace, folder: Path, files: dict[str, Path], facts: dict[str, str]) -> int:
    corpora.write_jsonl(corpora.load(), folder / "input", int(options.mb * 1e6), 1)
    commands = {"import apache_beam": [sys.executable, "-c", "import apache_beam"]}
    parts: dict[str, list[list[float]]] = {name: [] for name in files}
    for number, (name, path) in enumerate(files.items()):
        config = folder / f"{number}.yaml"
        content: Any = {"input": {"paths": [f"{folder}/input/*.jsonl"]}, "tokenizer": {"file": str(path)}}
        config.write_text(json.dumps(content | {"output": {"path": str(folder / "out")}}), encoding="utf-8")
        commands[name] = [sys.executable, "-m", "tokenmill", "tokenize", str(config)]
    runs: dict[str, list[timing.ProcessRun]] = {name: [] for name in commands}
    for round_number in range(-1, options.rounds):  # the first round compiles, and brings libraries into memory
        for name, command in commands.items():
            shutil.rmtree(folder / "out", ignore_errors=True)
            run = timing.run_process(command, environment=os.environ, log=folder / "log")
            if round_number >= 0:
                runs[name].append(run)
                if name in parts:
                    shutil.rmtree(folder / "out", ignore_errors=True)
                    parts[name].append(_parts_of(command[-1]))
    return _report(options, runs, parts, facts)


def _report(
    options: argparse.Namespace,
    runs: dict[str, list[timing.ProcessRun]],
    parts: dict[str, list[list[float]]],
    facts: dict[str, str],
) -> int:
    processor = {name: statistics.median(run.processor_seconds for run in each) for name, each in runs.items()}
    beam = processor["import apache_beam"]
    rows = []
    for name, each in runs.items():
        wall = statistics.median(run.seconds for run in each)
        columns = zip(*parts.get(name, ()), strict=True)
        medians = [f"{statistics.median(column):.2f}" for column in columns] or ["-"] * len(PARTS)
        rows.append([name, f"{processor[name]:.2f}", f"{processor[name] - beam:.2f}", f"{wall:.2f}", *medians])
    print(report.table(["", "processor s", "beyond Beam", "seconds", *PARTS], rows))
    if options.save:
        samples = {name: [dataclasses.asdict(run) for run in each] for name, each in runs.items()}
        print(f"\nraw samples: {report.save('short-job', facts, [{'runs': samples, 'parts': parts}])}")
    return 0


def _parts_of(config: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.short_job", "parts", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def run_in_parts(config_file: str) -> list[float]:
    """Does what `tokenmill tokenize` does; returns the processor seconds of each of `PARTS`."""
    gc.set_threshold(500_000, 20, 100)  # as the command does
    marks = [time.process_time()]
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.jobs import planning
    from tokenmill.pipeline.reporting import summary
    from tokenmill.pipeline.running.runners import choose_runner, open_runner

    marks.append(time.process_time())
    config = load_config(config_file, [], "tokenize")
    marks.append(time.process_time())
    plan = planning.plan_job("tokenize", config)
    marks.append(time.process_time())
    import apache_beam as beam

    marks.append(time.process_time())
    from tokenmill.pipeline.transforms import jobs

    with open_runner(choose_runner(n_splits=len(plan.splits))) as (runner, options):
        planning.prepare(plan, "new")
        graph = beam.Pipeline(runner=runner, options=options)
        jobs.build(graph, plan)
        marks.append(time.process_time())
        graph.run().wait_until_finish()
    marks.append(time.process_time())
    summary.summarize(config.output.path, 1.0)
    marks.append(time.process_time())
    return [stop - start for start, stop in itertools.pairwise(marks)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["parts"]:
        print(json.dumps(run_in_parts(sys.argv[2])))
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
