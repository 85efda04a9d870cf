# SPDX-License-Identifier: Apache-2.0
"""`tokenmill warm`: compiles the kernels that jobs would otherwise compile when they first run."""

import argparse
import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import add_config, set_command
from tokenmill.pipeline.commands.jobs import JOBS
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json, say

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tokenmill.pipeline.config.job import Config, JobName


def add_parsers(commands: Any) -> None:
    """Adds the command to the commands of a parser."""
    what = "compile kernels for this processor ahead of time: those of a job, or of the usual jobs"
    warm = commands.add_parser("warm", help=what, description=f"{what[0].upper()}{what[1:]}.")
    add_config(warm, "config of the job; without it, the usual jobs", nargs="?")
    warm.add_argument("--job", choices=JOBS, help="which job; default: run, or count if the config cannot run")
    set_command(warm, _warm, "which kernels were compiled, and where they are,")


def _warm(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.books import parts
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.estimating import rehearsal
    from tokenmill.pipeline.running.messages import explain
    from tokenmill.pipeline.running.runners import RunnerSettings
    from tokenmill.tokenizer.compiling import kernel as compiling
    from tokenmill.tokenizer.compiling.waiting import waiting

    compiling.uses_installed = False
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
            rehearsal.rehearse(job, config, RunnerSettings(None, "inline", 1), _look)
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
