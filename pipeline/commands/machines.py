# SPDX-License-Identifier: Apache-2.0
"""The commands that make a machine ready for jobs, and wait for what others do: `warm`, `workers`, `attach`."""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline import filenames
from tokenmill.pipeline.commands.arguments import add_config, file_path, integer, set_command
from tokenmill.pipeline.commands.jobs import JOBS, report_done, report_stop
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json, say

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tokenmill.pipeline.config.job import Config, JobName

_POLL_SECONDS = 2.0


def add_parsers(commands: Any) -> None:
    """Adds these to the commands of a parser."""
    what = "compile kernels for this processor ahead of time: those of a job, or of the usual jobs"
    warm = commands.add_parser("warm", help=what, description=f"{what[0].upper()}{what[1:]}.")
    add_config(warm, "config of the job; without it, the usual jobs", nargs="?")
    warm.add_argument("--job", choices=JOBS, help="which job; default: run, or count if the config cannot run")
    set_command(warm, _warm, "which kernels were compiled, and where they are,")

    attach = commands.add_parser("attach", help="wait for a job on a runner elsewhere, as --detach leaves it")
    attach.add_argument("output", type=file_path, metavar="OUT", help="the output folder of the job")
    attach.add_argument("--cancel", action="store_true", help="stop the job; --resume can go on from there")
    set_command(attach, _attach, "the books of the finished job")

    workers = commands.add_parser("workers", help="serve workers to a runner elsewhere: --environment_type=EXTERNAL")
    workers.add_argument("--host", default="localhost", help="address to listen on; whoever reaches it can run code")
    workers.add_argument(
        "--port", type=integer(0, 65535), default=50000, metavar="N", help="port (50000); 0: a free one"
    )
    set_command(workers, _workers, "the address that it listens on")


def _warm(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.books import parts
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.estimating import rehearsal
    from tokenmill.pipeline.running.messages import explain
    from tokenmill.tokenizer.compiling import kernel as compiling
    from tokenmill.tokenizer.compiling.waiting import waiting

    with mistakes():
        configs: Iterable[Config] = _usual(options)
        if options.config:
            config = load_config(options.config, options.overrides, options.job)
            has_several = config.output.parts is not None and config.output.parts.tokenizers
            configs = parts.configs(config).values() if has_several else [config]
    problems: list[str] = []
    others: list[Path] = []
    for config in configs:
        of = config.output.parts
        can_run = any((config.tokenizer.train, config.tokenizer.file, of and of.tokenizers))
        job: JobName = options.job or ("run" if can_run else "count")
        beside = _start_beside(config) if job in ("run", "tokenize") else None
        try:
            rehearsal.rehearse(job, config, _look)
        except Exception as error:  # the job will fail in the same way, or the made-up text differs from its input
            problems.append(explain(error))
        if beside is not None:
            with contextlib.suppress(EOFError):  # it has failed, as this process has
                others += beside.recv()
    names, seconds = _by_place([*compiling.saved, *others]), waiting.seconds
    if options.json:
        print_json({"compiled": names, "seconds": seconds, "problems": problems})
    else:
        _report(names, seconds)
    for problem in problems:
        say(f"some kernels are not compiled: {problem}")
    return FAILED if problems else DONE


def _start_beside(config: "Config") -> "Connection | None":
    """Starts to compile the kernels of encoding in a second process, if there is a second processor.

    The process ends by itself, even if this one is killed. The connection gives the files of its kernels.
    """
    if (os.cpu_count() or 1) < 2:
        return None
    spawn = multiprocessing.get_context("spawn")  # Arrow's threads do not survive a fork
    ours, its = spawn.Pipe()
    spawn.Process(target=_compile_beside, args=(config, its), daemon=True).start()
    its.close()
    return ours


def _compile_beside(config: "Config", results: "Connection") -> None:
    from tokenmill.pipeline.estimating import rehearsal

    sys.stderr = None  # the first process says that kernels are compiled
    results.send(rehearsal.rehearse_encoding(config))


def _look(output: str) -> None:
    """Does what a person does next: leads a token back to its bytes, and encodes a text."""
    from tokenmill.pipeline import filenames, storage
    from tokenmill.pipeline.proving import trace
    from tokenmill.tokenizer import Tokenizer

    assert Tokenizer.from_file(storage.join(output, filenames.VOCABULARY)).encode("The mill grinds.").offsets
    output, shard, row = trace.find_row(output, 0)
    if any(document["n_tokens"] for document in trace.trace(output, shard, row)["documents"]):
        trace.trace(output, shard, row, 0)


def _by_place(compiled: Iterable[Path]) -> dict[str, list[str]]:
    """Returns the names of compiled kernels by the folder in which they are."""
    names: dict[str, list[str]] = {}
    for path in compiled:
        module, kernel = path.parent.name.partition("-")[2].rpartition("-")[0], path.name.rpartition("-")[0]
        names.setdefault(str(path.parent.parent), []).append(f"{module}.{kernel}")
    return {place: sorted(names[place]) for place in sorted(names)}


def _report(names: Mapping[str, Sequence[str]], seconds: float) -> None:
    if not names:
        print("nothing to compile: all kernels are there")
    for place, found in names.items():
        print(f"{len(found)} kernels compiled in {seconds:.1f} s, now in {place}:")
        print("".join(f"  {name}\n" for name in found), end="")


def _usual(options: argparse.Namespace) -> "list[Config]":
    """Returns configs whose jobs together use the usual kernels: every kind of training, and of writing rows."""
    from tokenmill.pipeline.config.job import Config

    if not options.config and (options.overrides or options.job):
        raise ValueError("--set and --job are for a CONFIG; give one")
    end = "<|endoftext|>"
    usual: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"model": "wordpiece"}, {}),
        ({"model": "byte_level_bpe"}, {"shuffle": {"seed": 1}, "packing": {"length": 512, "separator": end}}),
        ({"model": "byte_level_bpe", "pre_tokenizer": "gpt2"}, {}),
        ({"model": "unigram"}, {}),
    ]
    return [
        Config.model_validate(
            {
                "input": {"paths": ["*.jsonl"]},
                "tokenizer": {"train": {"vocab_size": 8000, **train}},
                "output": {"path": "out", **output},
            }
        )
        for train, output in usual
    ]


def _attach(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.running.runner_jobs import RUNNER_JOB, RunnerJob, is_over

    output, started = options.output, time.monotonic()
    with mistakes():
        job = RunnerJob.read(output)
        if job is None:
            raise ValueError(f"{output!r} has no {RUNNER_JOB}, so no job of it is on a runner elsewhere")
        if options.cancel and not is_over(job.state()):
            job.cancel()
    with contextlib.ExitStack() as stack:
        if not options.quiet:
            say(f"attached to {job}")
            stack.enter_context(_progress(output))
        with mistakes():
            while not is_over(state := job.state()):
                time.sleep(_POLL_SECONDS)
    return _end(output, state, time.monotonic() - started, options)


def _progress(output: str) -> contextlib.AbstractContextManager[Any]:
    """Returns what shows how many of the planned splits are committed, if the job has one folder."""
    from tokenmill.pipeline import storage
    from tokenmill.pipeline.books.job_record import read_job
    from tokenmill.pipeline.jobs import planning
    from tokenmill.pipeline.running import display, progress

    path, record = storage.join(output, filenames.PLAN), read_job(output)
    if record is None or record[0].parts.get("folders") or not storage.exists(path):
        return contextlib.nullcontext()
    splits = [*planning.read_plan(path)]
    stages = [
        progress.Stage.of(planning.COUNTING_STAGE, filenames.COUNTED_LEDGER, splits),
        progress.Stage.of(planning.TOKENIZING_STAGE, filenames.LEDGER, splits),
    ]
    watched = progress.Progress(stages)
    watched.look_at(output)
    return display.show(watched, sys.stderr)


def _end(output: str, state: str, seconds: float, options: argparse.Namespace) -> int:
    """Takes the folder over from the job, and reports how that ended."""
    from tokenmill.pipeline.output.ownership import own

    with mistakes(), own(output, "attach"):
        pass
    if state == "CANCELLED":
        return report_stop()
    if state != "DONE":
        say(f"failed: the runner ended the job in state {state}; its own log says why")
        say("what is committed is kept: the same command with --resume goes on from there")
        return FAILED
    say(f"`tokenmill report {output}` writes the report")
    return report_done(output, seconds, options)


def _workers(options: argparse.Namespace) -> int:
    def told(host: str, port: int) -> None:
        print(json.dumps({"host": host, "port": port}) if options.json else f"{host}:{port}", flush=True)

    from tokenmill.pipeline.running.workers import serve

    with mistakes():
        serve(options.host, options.port, told, debug=options.debug)
    return DONE
