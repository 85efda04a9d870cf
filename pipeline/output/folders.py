# SPDX-License-Identifier: Apache-2.0
"""Which jobs may write into an output folder, which of its files are TokenMill's, and which are removed when.

A manifest exists only while the folder is complete: preparing the folder removes it, and it is published last.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books.job_record import Job, PlannedNames, differences, read_job, write_job
from tokenmill.pipeline.books.ledger import json_pieces
from tokenmill.pipeline.books.lists import opened
from tokenmill.pipeline.books.manifest import read, results
from tokenmill.pipeline.filenames import (
    COUNTING,
    COUNTS,
    JOB,
    MANIFEST,
    MDS_INDEX,
    PARTS,
    REPLAY,
    RUNS,
    STATS,
    VOCABULARY,
)
from tokenmill.pipeline.output.ownership import OWNER, Lease
from tokenmill.pipeline.running.runner_jobs import RUNNER_JOB

Mode = Literal["new", "resume", "overwrite"]

_RESULTS = ("", filenames.EMPTY, filenames.DOCUMENTS, filenames.REJECTED, filenames.LEDGER)
FOLDERS = (*_RESULTS, VOCABULARY, COUNTS)
"""The folders, relative to the output folder, whose files are results."""


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
    reads: Sequence[str] = (),
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
      reads: tokenizers, files or folders, and outputs with word counts that the job reads.

    Raises:
      ValueError: if the folder holds something else, or what the job reads is to be removed; the message says what, and
        what to do.
    """
    plan = _plans(n_splits, n_shards, (suffix, *companions))
    plans = plan
    if mode == "new":
        check_empty(output, lambda earlier: differences(earlier, job.parts))
    elif (found := read_job(output)) is None:
        _refuse_foreign_files(output, mode)
    else:
        earlier, earlier_plans = found
        if mode == "resume":
            if different := differences(earlier.parts, job.parts):
                raise ValueError(
                    f"cannot resume in {output!r}: it holds the results of a job that differs in "
                    f"{'; '.join(different)}; replace them by --overwrite, or choose another output.path"
                )
            plans = [*(each for each in earlier_plans if each not in plan), *plan]
            _remove(output, [MANIFEST, PARTS, STATS, MDS_INDEX])
        else:
            _clear(output, earlier, earlier_plans, reads)
        storage.delete_tree(storage.join(output, filenames.TEMPORARY))
    write_job(output, job, plans)


def check_empty(output: str, differ: Callable[[Mapping[str, Any]], Sequence[str]]) -> None:
    """Checks that a new job may write into a folder.

    Args:
      output: the folder.
      differ: returns in what a job with the given parts differs from the new one.

    Raises:
      ValueError: if the folder holds results or other files; the message says which, and what to do.
    """
    found = read_job(output)
    if found is None:
        _refuse_foreign_files(output, "new")
        return
    ends = (storage.join(output, name) for name in (MANIFEST, PARTS))  # what the last step of a job writes
    state = "complete" if any(map(storage.exists, ends)) else "unfinished"
    others = "; ".join(differ(found[0].parts))
    what = f"a job that differs in {others}" if others else "the same job"
    resume = "" if others else "go on with them by --resume, "
    raise ValueError(
        f"output folder {output!r} holds the {state} results of {what}; {resume}replace them by --overwrite, "
        "or choose another output.path"
    )


def _clear(output: str, job: Job, plans: Sequence[PlannedNames], reads: Sequence[str]) -> None:
    """Removes what a job left in a folder, in its replay, and in the folders of its parts."""
    parts = [storage.join(output, filenames.check_part(name)) for name in job.parts.get("folders", ())]
    outputs = [folder for each in (output, *parts) for folder in (each, storage.join(each, REPLAY))]
    # All records are read before anything is removed: if one is not as TokenMill writes it, all files stay.
    found = [(folder, *record) for folder in outputs if (record := read_job(folder)) is not None]
    own = {folder: _own_files(folder, its_plans) for folder, _, its_plans in found}
    shared = VOCABULARY, COUNTS  # what a job can read of another
    kept = tuple(f"{name}/" for name in shared)
    files = [storage.join(folder, name) for folder, names in own.items() for name in names if name.startswith(kept)]
    removed = {storage.identity(each) for file in files for each in (file, file.rpartition("/")[0])}
    for path in reads:
        if not removed.isdisjoint(map(storage.identity, (path, *(f"{path}/{name}" for name in shared)))):
            raise ValueError(f"--overwrite would remove {path!r}, which this job reads; choose another output.path")
    # A manifest goes first, because it would be false. The record of the job goes last: it says which files are ours.
    _remove(output, [MANIFEST, PARTS])
    for folder, names in reversed(own.items()):
        _remove(folder, [MANIFEST, *names, JOB])
        for name in (COUNTING, RUNS, filenames.CLOCKS, filenames.TEMPORARY):
            storage.delete_tree(storage.join(folder, name))
        if folder != output:
            storage.delete_empty_folders(folder)


def _own_files(output: str, plans: Sequence[PlannedNames]) -> list[str]:
    """Returns the names of the files that TokenMill has written into a folder under these plans."""
    names = [*_files(output, FOLDERS), *_listed_files(output)]
    return [name for name in names if filenames.is_result(name) or _is_shard_or_rejects(name, plans)]


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
        if name not in keep and (_is_shard_or_rejects(name, plans) or filenames.LEDGER_FILE.fullmatch(name)):
            storage.delete(storage.join(output, name))
    write_job(output, job, plan)
    if lease is not None:
        lease.check()
    storage.write_atomic(storage.join(output, MANIFEST), json_pieces(manifest))
    clear_working_files(output)


def clear_working_files(output: str) -> None:
    """Removes what a job needs until its manifest is there: another attempt would read it."""
    for name in (filenames.TEMPORARY, RUNS, filenames.COUNTED_SPLITS):
        storage.delete_tree(storage.join(output, name))


def result_files(output: str) -> Iterator[str]:
    """Yields the names of all shards, tables of documents, rejects and ledger entries, listed in a manifest or not."""
    for name in _files(output, _RESULTS):
        if filenames.NUMBERED.fullmatch(name.rpartition("/")[2]) or filenames.LEDGER_FILE.fullmatch(name):
            yield name


def _refuse_foreign_files(output: str, mode: Mode) -> None:
    names = [name for name in _files(output, FOLDERS) if name[0] != "." or name == filenames.HUB]
    names = [name for name in names if name not in (OWNER, RUNNER_JOB) and not storage.HALF_WRITTEN.search(name)]
    if mode == "overwrite":
        # Files whose names we never write may stay.
        names = [name for name in names if "/" in name or filenames.is_result(name) or filenames.numbered(name)]
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
    except ValueError:
        return []


def _is_shard_or_rejects(name: str, plans: Iterable[PlannedNames]) -> bool:
    match = filenames.numbered(name)
    # Rejects and tables of documents are Parquet, whatever the shards are.
    return match is not None and any(
        int(match[2]) < plan.n_splits == int(match[3])
        and match[4] == (plan.suffix if match[1] == "tokens" else ".parquet")
        for plan in plans
    )


def _remove(output: str, names: Iterable[str]) -> None:
    for name in names:
        storage.delete(storage.join(output, name))
