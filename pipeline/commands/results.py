# SPDX-License-Identifier: Apache-2.0
"""The commands that prove, complete or show the results of a job: `tokenmill verify`, `replay` and `report`."""

import argparse
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import add_config, add_target, set_command, share
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json, print_result, say

if TYPE_CHECKING:
    from tokenmill.pipeline.config.file import ConfigSource
    from tokenmill.pipeline.proving.from_input import DeepReport
    from tokenmill.pipeline.proving.report import VerifyReport


def add_parsers(commands: Any) -> None:
    """Adds these to the commands of a parser."""
    verify = commands.add_parser("verify", help="read an output folder again and prove its manifest")
    add_target(verify)
    verify.add_argument(
        "--deep", action="store_true",
        help="also tokenize a sample of the splits again, from the input, and compare",
    )  # fmt: skip
    verify.add_argument(
        "--share", type=share, metavar="SHARE",
        help="share of the splits that --deep tokenizes again, and of all documents whose ids it compares with others, "
        "from 0 to 1 (0.01); at least 3 splits and 200 documents",
    )  # fmt: skip
    set_command(verify, _verify, "what was read and found")

    replay = commands.add_parser("replay", help="tokenize the rejected records of a finished job again, after a fix")
    add_config(replay, "the job's config; input's fields and limits may differ")
    set_command(replay, _replay, "its books")

    report = commands.add_parser(
        "report",
        help="write report.html, what a finished job did as one page",
        description="Writes report.html into the output folder: one page that opens offline, and prints where it is.",
    )
    add_target(report)
    set_command(report, _report, "what the page says")


def find_output(target: "ConfigSource", overrides: Sequence[str] = ()) -> tuple[str, Sequence[str]]:
    """Returns the target if it is an output folder, else `output.path` of the config that it is, and its `input.paths`.

    Raises:
      ValueError: if the config is not that of the job in the folder, or `--set` is given with a folder.
    """
    if not isinstance(target, Mapping):
        target = os.fspath(target)
        if not target.endswith((".yaml", ".yml")):
            if overrides:
                raise ValueError("--set changes a config, but the target is not a config")
            return target, ()
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.jobs.same_job import check_same_job

    config = load_config(target, overrides)
    check_same_job(config.output.path, config)
    return config.output.path, config.input.all_paths


def say_owner(output: str) -> None:
    """Warns that a folder may change while it is read, if another command is working in it."""
    from tokenmill.pipeline.output.ownership import living_owner

    if owner := living_owner(output):
        say(f"{output} is in use: {owner}; what is read now may change meanwhile")


def prove(
    output: str, deep: bool, share: float | None, inputs: Sequence[str]
) -> tuple["VerifyReport", "DeepReport | None"]:
    """Reads a folder again; with `deep` also tokenizes a share of its splits again.

    Returns:
      What was found in all, and what the second run alone read and found.

    Raises:
      OSError, ValueError: if it is no folder of a job, or cannot be read.
    """
    from tokenmill.pipeline.books.parts import folders_of, is_in_parts
    from tokenmill.pipeline.proving.replay import verify_replay
    from tokenmill.pipeline.proving.verify import verify

    report = verify(output)
    if not is_in_parts(output):
        verify_replay(output, report)
    again = None
    if deep and report.is_proven:
        from tokenmill.pipeline.proving.from_input import SAMPLE, DeepReport, verify_deep

        again = DeepReport()
        for folder in folders_of(output):
            again.merge(verify_deep(folder, SAMPLE if share is None else share, inputs))
        report.problems += again.problems
    return report, again


def _verify(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.proving.trace import is_index, verify_index
    from tokenmill.pipeline.running.display import megabytes

    started = time.monotonic()
    with mistakes():
        if options.share is not None and not options.deep:
            raise ValueError("--share sets how much --deep tokenizes again: give --deep too")
        output, inputs = find_output(options.target, options.overrides)
        again = None
        if is_index(output):
            if options.deep:
                raise ValueError(f"--deep: {output!r} is an index; verify the outputs that it is made over so")
            report = verify_index(output)
        else:
            say_owner(output)
            report, again = prove(output, options.deep, options.share, inputs)
    seconds = time.monotonic() - started
    if options.json:
        read_again = dataclasses.asdict(again) if again is not None else None
        found = {"output": output, **dataclasses.asdict(report), "seconds": seconds, "tokenized_again": read_again}
        print_json({"is_proven": report.is_proven, **found})
        return DONE if report.is_proven else FAILED
    for problem in report.problems:
        print(problem)
    read = f"{report.n_files:,} files, {megabytes(report.n_bytes)}, {report.n_rows:,} rows, {report.n_tokens:,} tokens"
    n_problems = len(report.problems)
    verdict = "proven" if report.is_proven else f"{n_problems} {'problem' if n_problems == 1 else 'problems'}"
    if not report.has_digest:
        verdict += ", but for config and versions: manifests of earlier versions of TokenMill have no digest"
    if again is not None:
        print(f"{output}: {verdict}: {_compared(again)}")
    print(f"{output}: {verdict + '; ' if again is None else ''}read {read} in {seconds:.1f} s")
    return DONE if report.is_proven else FAILED


def _compared(again: "DeepReport") -> str:
    """Returns what was compared, and what was not, in words."""
    ids = [f"{n:,} equal those of {other}" for other, n in again.compared.items()]
    left = max(0, again.n_documents - again.n_wrong - sum(again.compared.values()))  # more, where the job lost some
    ids += [f"{n:,} {what}" for n, what in ((again.n_wrong, "differ"), (left, "not compared with anything else")) if n]
    done = f"{again.n_files:,} of {again.n_splits:,} splits were tokenized again"
    rows = ", and gave the same rows" if again.is_proven else ""
    return f"{done}{rows}; ids of {again.n_documents:,} documents: {', '.join(ids)}"


def _replay(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.books import manifest
    from tokenmill.pipeline.books.quantities import COMMITTED, BooksError
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.output.ownership import own
    from tokenmill.pipeline.proving.replay import replay

    with mistakes():
        config = load_config(options.config, options.overrides)
        if config.output.parts is not None and config.output.parts.only is None:
            raise ValueError(
                "output.parts: replay takes a job with one folder, because what is a document after a fix may belong "
                "in any part; run the job again with --overwrite"
            )
        manifest.read(config.output.path)  # without a manifest, there is nothing to own
        try:
            with own(config.output.path, "replay") as lease:
                totals = replay(config, lease)["totals"]
        except BooksError as error:
            say(f"failed: {error}")
            return FAILED
    rejected = sum(totals["rejected"].values())
    filtered = {rule: n for rule, n in totals["filtered"].items() if rule != COMMITTED}
    n_records = totals["n_documents"] + rejected + sum(filtered.values())
    left_out = "".join(f", {n:,} left out by {rule}" for rule, n in filtered.items())
    line = f"{config.output.path}: {n_records:,} rejected records read again: {totals['n_documents']:,} documents in "
    line += f"replay/, {rejected:,} rejected again{left_out}"
    print_result(options, {"output": config.output.path, "totals": totals}, [line])
    return DONE


def _report(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.books.parts import folders_of
    from tokenmill.pipeline.reporting import page

    with mistakes():
        output, _ = find_output(options.target, options.overrides)
        say_owner(output)
        if options.json:
            of_folders = {folder: page.gather(folder) for folder in folders_of(output)}
            print_json(of_folders.get(output, of_folders))
        else:
            for folder in folders_of(output):
                print(page.draw(folder))
    return DONE
