# SPDX-License-Identifier: Apache-2.0
"""Which jobs may write into an output folder, which of its files are TokenMill's, and which are removed when.

A manifest exists only while the folder is complete: preparing the folder removes it, and it is published last.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pipeline import filenames, storage
from pipeline.books.job_record import Job, PlannedNames, differences, read_job, write_job
from pipeline.books.ledger import json_pieces
from pipeline.books.lists import SCHEMAS, opened
from pipeline.books.manifest import read, results
from pipeline.filenames import (
    COUNTING,
    COUNTS,
    JOB,
    MANIFEST,
    MDS_INDEX,
    PARTITIONS,
    PLAN,
    REPLAY,
    RUNS,
    STATS,
    VOCABULARY,
)
from pipeline.output.ownership import OWNER, Lease

Mode = Literal["new", "resume", "overwrite"]

_NUMBERED = re.compile(r"(tokens|rejects|documents)-(\d{5,})-of-(\d{5,})(\.[a-z0-9.]+)")
_LEDGER_FILE = re.compile(rf"{filenames.LEDGER}/([0-9a-f]{{16}}\.(json|arrow|keys)|({'|'.join(SCHEMAS)})\.parquet)")
_COUNTS_FILE = re.compile(rf"{COUNTS}/(counts-\d{{5,}}-of-\d{{5,}}\.parquet|counts\.json|alphabet\.parquet)")
_VOCABULARY_FILE = re.compile(
    rf"{VOCABULARY}/([\w.%-]+/){{0,2}}"
    r"(tokenizer\.json|training\.json|vocab\.txt|vocab\.json|merges\.txt|vocab\.tiktoken|tokenizer\.model|token_counts\.parquet)"
)
_OWN_FILES = {MANIFEST, PARTITIONS, STATS, MDS_INDEX, PLAN, filenames.REPORT, filenames.CLOCK}
_RESULTS = ("", filenames.DOCUMENTS, filenames.REJECTED, filenames.LEDGER)
FOLDERS = (*_RESULTS, VOCABULARY, COUNTS)
"""The folders, relative to the output folder, whose files are results."""
_FOLDER_OF = {"tokens": "", "rejects": filenames.REJECTED, "documents": filenames.DOCUMENTS}


def _plans(n_splits: int, n_shards: int | None, suffixes: Sequence[str]) -> list[PlannedNames]:
    if not n_splits:
        return []
    if n_shards is None:
        return [PlannedNames(n_splits, suffix) for suffix in suffixes]
    return [PlannedNames(n_splits, ""), *(PlannedNames(n_shards, suffix) for suffix in suffixes)]


def prepare_output(
    output: str,
    job: Job,
    mode: Mode,
    *,
    n_splits: int = 0,
    suffix: str = "",
    companions: Sequence[str] = (),
    n_shards: int | None = None,
) -> None:
    """Makes sure that a folder may be written to, and records the job and its plan there; creates a missing folder.

    Args:
      output: the folder.
      job: the job that will write.
      mode: "new" accepts only an empty folder. "resume" accepts one that the same job began. "overwrite" removes what
        an earlier job of TokenMill left, and nothing else. An empty or missing folder is accepted in every mode.
      n_splits: the number of splits of the plan; 0 for a job without shards.
      suffix: the suffix of shards.
      companions: suffixes of the other files of a shard.
      n_shards: where the job shuffles, how many shards it writes; None for one per split.

    Raises:
      ValueError: if the folder holds something else; the message says what, and what to do.
    """
    found = read_job(output)
    plan = _plans(n_splits, n_shards, (suffix, *companions))
    plans = plan
    if found is None:
        _refuse_foreign_files(output, mode)
    else:
        earlier, earlier_plans = found
        if mode == "new":
            state = "complete" if storage.exists(storage.join(output, MANIFEST)) else "unfinished"
            same = "the same job" if earlier.digest == job.digest else "another job"
            raise ValueError(
                f"output folder {output!r} holds the {state} results of {same}; resume or overwrite them, or choose "
                "another folder"
            )
        if mode == "resume":
            if different := differences(earlier.parts, job.parts):
                raise ValueError(
                    f"cannot resume in {output!r}: it holds the results of a job that differs in "
                    f"{'; '.join(different)}; overwrite them, or choose another folder"
                )
            plans = [*(each for each in earlier_plans if each not in plan), *plan]
            _remove(output, [MANIFEST, PARTITIONS, STATS, MDS_INDEX])
        else:
            _clear(output, earlier, earlier_plans)
        storage.delete_tree(storage.join(output, filenames.TEMPORARY))
    write_job(output, job, plans)


def _clear(output: str, job: Job, plans: Sequence[PlannedNames]) -> None:
    """Removes what a job left in a folder, and in the folders in it if it is one by language."""
    # The manifest goes first, because it would be false. The record of the job goes last: it says which files are ours.
    names = [*_files(output, FOLDERS), *_listed_files(output)]
    _remove(output, [MANIFEST, PARTITIONS])
    for name in job.parts.get("partitions", ()):
        folder = storage.join(output, name)
        if (found := read_job(folder)) is not None:
            _clear(folder, *found)
    own = [name for name in names if _is_own(name, plans)]
    _remove(output, [*own, JOB])
    storage.delete_tree(storage.join(output, COUNTING))
    if read_job(storage.join(output, REPLAY)) is not None:
        storage.delete_tree(storage.join(output, REPLAY))
    for folder in (RUNS, filenames.CLOCKS, filenames.TEMPORARY):
        storage.delete_tree(storage.join(output, folder))


def publish(
    output: str,
    job: Job,
    manifest: Mapping[str, Any],
    *,
    suffix: str = "",
    companions: Sequence[str] = (),
    lease: Lease | None = None,
) -> None:
    """Makes a folder complete: removes what earlier plans left, then writes the manifest.

    Only files that TokenMill's own records name are removed: shards and rejects of a plan that was made for this
    folder, and ledger entries.

    Raises:
      ValueError: if `lease` is given and no longer valid; this is checked first, and again just before the manifest.
    """
    if lease is not None:
        lease.check()
    found = read_job(output)
    listed = opened(output, manifest)
    n_shards = len(listed["shards"]) if manifest["shuffle"] is not None else None
    plan = _plans(manifest["totals"]["n_splits"], n_shards, (suffix, *companions))
    plans = found[1] if found is not None else plan
    keep = results(listed)
    for name in _files(output, _RESULTS):
        if name not in keep and (_is_shard_or_rejects(name, plans) or _LEDGER_FILE.fullmatch(name)):
            storage.delete(storage.join(output, name))
    storage.delete_tree(storage.join(output, filenames.TEMPORARY))
    write_job(output, job, plan)
    if lease is not None:
        lease.check()
    storage.write_atomic(storage.join(output, MANIFEST), json_pieces(manifest))
    # A finished job no longer needs its runs; until now, a resumed job would.
    storage.delete_tree(storage.join(output, RUNS))


def result_files(output: str) -> Iterator[str]:
    """Yields the names of all shards, tables of documents, rejects and ledger entries, listed in a manifest or not."""
    for name in _files(output, _RESULTS):
        if _NUMBERED.fullmatch(name.rpartition("/")[2]) or _LEDGER_FILE.fullmatch(name):
            yield name


def _refuse_foreign_files(output: str, mode: Mode) -> None:
    names = [name for name in _files(output, FOLDERS) if not name.startswith(".") and name != OWNER]
    if mode == "overwrite":
        # Files whose names we never write may stay.
        names = [name for name in names if "/" in name or name in _OWN_FILES or _NUMBERED.fullmatch(name)]
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise ValueError(
            f"output folder {output!r} holds files that TokenMill has no record of ({names[0]!r}{more}); "
            "choose another folder, or move them away"
        )


def _files(output: str, folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for name in storage.list_files(storage.join(output, folder) if folder else output):
            yield f"{folder}/{name}" if folder else name


def _listed_files(output: str) -> list[str]:
    """Returns the files besides shards that the manifest of a folder lists; vocabularies may be in deeper folders."""
    try:
        return [str(record["file"]) for record in read(output)["files"]]
    except (ValueError, KeyError, TypeError):
        return []


def _is_shard_or_rejects(name: str, plans: Iterable[PlannedNames]) -> bool:
    folder, _, base = name.rpartition("/")
    match = _NUMBERED.fullmatch(base)
    if match is None or _FOLDER_OF[match[1]] != folder:
        return False
    # Rejects and tables of documents are Parquet, whatever the shards are.
    return any(
        int(match[2]) < plan.n_splits == int(match[3]) and match[4] == (".parquet" if folder else plan.suffix)
        for plan in plans
    )


def _is_own(name: str, plans: Iterable[PlannedNames]) -> bool:
    """Returns whether this is a name that TokenMill writes under one of these plans."""
    return (
        name in _OWN_FILES
        or _is_shard_or_rejects(name, plans)
        or _LEDGER_FILE.fullmatch(name) is not None
        or _COUNTS_FILE.fullmatch(name) is not None
        or _VOCABULARY_FILE.fullmatch(name) is not None
    )


def _remove(output: str, names: Iterable[str]) -> None:
    for name in names:
        storage.delete(storage.join(output, name))
