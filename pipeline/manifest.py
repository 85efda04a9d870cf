# SPDX-License-Identifier: Apache-2.0
"""The output folder as a whole: who may write into it, and the manifest that says what a finished job left there.

A manifest exists only while the folder is complete: preparing the folder removes it, and it is written last. It says
nothing about where files lie, so it is the same bytes wherever the same job ran over the same files.
"""

import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import pyarrow as pa

from pipeline import ledger, storage
from pipeline.accounts import PieceCounts
from pipeline.balance import check_balance
from pipeline.config import Config
from pipeline.ledger import BooksError, FileRecord, LedgerEntry, to_json
from pipeline.shuffling.shards import RUNS, ShardEntry, add_sums, check_sums, keys_name
from pipeline.splits import Piece, Split
from pipeline.writers import FORMAT_VERSION as SHARD_FORMAT_VERSION
from pipeline.writers import mds
from tokenizer import UNICODE_VERSIONS

VERSION = "0.1.0"
"""Version of TokenMill, which may decide what is written."""

FORMAT_VERSION = 2
"""Version of the manifest."""

MANIFEST = "manifest.json"
STATS = "stats.json"
MDS_INDEX = mds.INDEX
"""Where shards are MDS: what `streaming` looks for."""
JOB = f"{ledger.LEDGER}/job.json"
PLAN = f"{ledger.LEDGER}/plan.jsonl"
"""The splits, for the workers of a running job."""
VOCABULARY = "vocab"
TOKENIZER = f"{VOCABULARY}/tokenizer.json"
TRAINING_NAME = "training.json"
"""Beside every tokenizer.json that was trained: how."""
TOKEN_COUNTS = f"{VOCABULARY}/token_counts.parquet"
COUNTS = "counts"
COUNTING = "_counts"
REPLAY = "replay"
"""The folder in an output folder where rejected records lie that were tokenized later."""

Mode = Literal["new", "resume", "overwrite"]

_NUMBERED = re.compile(r"(tokens|rejects)-(\d{5,})-of-(\d{5,})(\.[a-z.]+)")
_LEDGER_FILE = re.compile(rf"{ledger.LEDGER}/[0-9a-f]{{16}}\.(json|arrow|keys)")
_COUNTS_FILE = re.compile(rf"{COUNTS}/(counts-\d{{5,}}-of-\d{{5,}}\.parquet|counts\.json|alphabet\.parquet)")
_VOCABULARY_FILE = re.compile(
    rf"{VOCABULARY}/([\w.%-]+/){{0,2}}"
    r"(tokenizer\.json|training\.json|vocab\.txt|vocab\.json|merges\.txt|vocab\.tiktoken|tokenizer\.model|token_counts\.parquet)"
)
_OWN_FILES = {MANIFEST, STATS, MDS_INDEX, PLAN}
_FOLDERS = ("", ledger.REJECTED, VOCABULARY, COUNTS, ledger.LEDGER)


@dataclass(frozen=True)
class Job:
    """What decides the bytes of an output folder, besides the input files."""

    parts: Mapping[str, Any]
    """Plain JSON: the job's name, its config without places, versions, and the tokenizer where it is given."""

    @property
    def digest(self) -> str:
        """sha256, in hex, of the parts."""
        return hashlib.sha256(to_json(self.parts)).hexdigest()

    @classmethod
    def of(cls, name: str, config: Config, tokenizer: str | None, counts: str | None = None) -> Self:
        """Returns the job of a config.

        Args:
          name: of the job, for example "tokenize".
          config: its config; where input, tokenizer and output lie does not matter, what is made of them does.
          tokenizer: digest of the tokenizer; None for a job that trains one, which the config then decides.
          counts: digest of the counts that it trains on; None where it counts itself.
        """
        # Limits stop a job; they change no byte of one that finishes, and whoever raises one goes on.
        limits = {"max_rejected": True, "max_rejected_fraction": True}
        places: Any = {
            "input": {"paths": True, **limits},
            "tokenizer": {"file": True, "train": {"counts": True}},
            "output": {"path": True},
        }
        versions = {"pyarrow": pa.__version__, "tokenmill": VERSION}
        if config.output.compression == "gzip":
            versions["zlib"] = zlib.ZLIB_RUNTIME_VERSION
        parts = {
            "config": config.model_dump(mode="json", exclude=places),
            "format_version": SHARD_FORMAT_VERSION,
            "job": name,
            "tokenizer": tokenizer,
            **({"counts": counts} if counts is not None else {}),
            "unicode": dict(UNICODE_VERSIONS),
            "versions": versions,
        }
        if config.text:
            parts["text"] = config.text.parts()
        return cls(json.loads(to_json(parts)))


@dataclass(frozen=True)
class _Plan:
    """How many shards a job meant to write here, and how their names end: enough to know them as ours."""

    n_splits: int
    suffix: str
    """"" where only rejects are so many."""


def _plans(n_splits: int, n_shards: int | None, suffixes: Sequence[str]) -> list[_Plan]:
    if not n_splits:
        return []
    if n_shards is None:
        return [_Plan(n_splits, suffix) for suffix in suffixes]
    return [_Plan(n_splits, ""), *(_Plan(n_shards, suffix) for suffix in suffixes)]


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
    """Makes sure that a folder may be written to, and says in it what will be; creates it where it is absent.

    Args:
      output: the folder.
      job: that will write.
      mode: "new" takes only an empty folder. "resume" takes one that the same job began. "overwrite" removes what an
        earlier job of TokenMill left, and nothing else. An empty or absent folder is fine in every mode.
      n_splits: of the plan; 0 for a job without shards.
      suffix: of shards.
      companions: suffixes of the other files of a shard.
      n_shards: where the job shuffles, how many shards it writes; None for one per split.

    Raises:
      ValueError: if the folder holds something else; says what, and what to do.
    """
    found = _read_job(output)
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
            if differences := _differences(earlier.parts, job.parts):
                raise ValueError(
                    f"cannot resume in {output!r}: it holds the results of a job that differs in "
                    f"{'; '.join(differences)}; overwrite them, or choose another folder"
                )
            plans = [*(each for each in earlier_plans if each not in plan), *plan]
            _remove(output, [MANIFEST, STATS, MDS_INDEX])
        else:
            # The manifest first, for it would lie; the record of the job last, or nobody would know what is ours.
            names = [*_files(output, _FOLDERS), *_listed_files(output)]
            own = [name for name in names if _is_own(name, earlier_plans)]
            _remove(output, [MANIFEST, *own, JOB])
            storage.delete_tree(storage.join(output, COUNTING))
            if _read_job(storage.join(output, REPLAY)) is not None:
                storage.delete_tree(storage.join(output, REPLAY))
            storage.delete_tree(storage.join(output, RUNS))
        storage.delete_tree(storage.join(output, ledger.TEMPORARY))
    _write_job(output, job, plans)


def build(
    job: Job,
    splits: Sequence[Split],
    entries: Sequence[LedgerEntry],
    *,
    tokenizer: Mapping[str, Any] | None = None,
    files: Iterable[FileRecord] = (),
    packing: Mapping[str, Any] | None = None,
    shards: Sequence[ShardEntry] | None = None,
) -> dict[str, Any]:
    """Returns the manifest of a finished job.

    Args:
      job: that ran.
      splits: the plan.
      entries: of every split, in the order of the plan.
      tokenizer: what is to be said of the tokenizer, plain JSON.
      files: what the job wrote beside shards and rejects.
      packing: what is to be said of packing, plain JSON; None where rows are documents.
      shards: of a job that shuffles, in order; None where every split is a shard.

    Raises:
      BooksError: if a split, a shard or the whole does not balance, or bytes of an input file were left out or read
        twice.
    """
    if [(split.id, split.pieces) for split in splits] != [(entry.split_id, entry.pieces) for entry in entries]:
        raise BooksError(f"{len(splits)} splits were planned, but the ledger's {len(entries)} entries are not theirs")
    for entry in entries:
        check_balance(entry)
    check_inputs(entries, is_whole="replay_of" not in job.parts)
    shuffle = None
    if shards is not None:
        if wrong := [line for shard in shards for line in shard.imbalances()]:
            raise BooksError("\n".join(wrong))
        check_sums(entries, shards)
        shuffle = {"splits": [entry.split_id for entry in entries], "sums": add_sums(shards).to_record()}
    totals = add_up(entries, shards)
    written: list[tuple[ledger.Written, dict[str, str]]] = [(entry, {"split": entry.split_id}) for entry in entries]
    if shards is not None:
        written = [(shard, {"entry": shard.shard_id}) for shard in shards]
    return {
        "format_version": FORMAT_VERSION,
        **{name: value for name, value in job.parts.items() if name != "format_version"},
        "job_digest": job.digest,
        "tokenizer": dict(tokenizer) if tokenizer is not None else None,
        "inputs": _inputs(entries),
        "shards": [{**_record(entry.shard), **of} for entry, of in written],
        "companions": [{**_record(file), **of} for entry, of in written for file in entry.companions],
        "packing": dict(packing) if packing is not None else None,
        "shuffle": shuffle,
        "rejects": [{**_record(entry.rejects), "split": entry.split_id} for entry in entries if entry.rejects],
        "files": [_record(file) for file in sorted(files, key=lambda file: file.file)],
        "totals": totals,
        "balance": balance(totals),
    }


def publish(
    output: str,
    job: Job,
    splits: Sequence[Split],
    manifest: Mapping[str, Any],
    *,
    suffix: str = "",
    companions: Sequence[str] = (),
    n_shards: int | None = None,
) -> None:
    """Makes a folder complete: removes what earlier plans left, then writes the manifest.

    Only files that TokenMill's own records name are removed: shards and rejects of a plan that was made for this
    folder, and ledger entries.
    """
    found = _read_job(output)
    plan = _plans(len(splits), n_shards, (suffix, *companions))
    plans = found[1] if found is not None else plan
    keep = {record["file"] for kind in ("shards", "companions", "rejects") for record in manifest[kind]}
    keep |= {name(split.id) for split in splits for name in (ledger.entry_name, ledger.statistics_name)}
    keep |= shard_files(manifest)
    for name in _files(output, ("", ledger.REJECTED, ledger.LEDGER)):
        if name not in keep and (_is_shard_or_rejects(name, plans) or _LEDGER_FILE.fullmatch(name)):
            storage.delete(storage.join(output, name))
    storage.delete_tree(storage.join(output, ledger.TEMPORARY))
    _write_job(output, job, plan)
    storage.write_atomic(storage.join(output, MANIFEST), to_json(manifest))
    # A job that is finished needs its runs no more; until here every attempt to go on would.
    storage.delete_tree(storage.join(output, RUNS))


def split_ids(manifest: Mapping[str, Any]) -> list[str]:
    """Returns the ids of all splits of a job, in the order of the plan."""
    shuffle = manifest["shuffle"]
    return [record["split"] for record in manifest["shards"]] if shuffle is None else list(shuffle["splits"])


def shard_files(manifest: Mapping[str, Any]) -> set[str]:
    """Returns the names of what lies in the ledger for the shards of a job that shuffles; none of another."""
    ids = [record["entry"] for record in manifest["shards"] if "entry" in record]
    return {name(shard_id) for shard_id in ids for name in (ledger.entry_name, keys_name)}


def add_up(entries: Iterable[LedgerEntry], shards: Iterable[ShardEntry] | None = None) -> dict[str, Any]:
    """Returns the sums of all that entries count; what is in shards is counted by `shards` where there are any."""
    counters = {name: 0 for name in LedgerEntry.__dataclass_fields__ if name.startswith("n_")}
    totals: dict[str, Any] = {**counters, "n_splits": 0, "rejected": {}, "filtered": {}}
    totals |= {"shard_rows": 0, "shard_tokens": 0, "shard_bytes": 0, "reject_rows": 0, "reject_bytes": 0}
    for entry in entries:
        totals["n_splits"] += 1
        for name in counters:
            totals[name] += getattr(entry, name)
        for kind in ("rejected", "filtered"):
            for reason, n in getattr(entry, kind).items():
                totals[kind][reason] = totals[kind].get(reason, 0) + n
        if shards is None:
            _add_shard(totals, entry)
        if entry.rejects is not None:
            totals["reject_rows"] += entry.rejects.rows
            totals["reject_bytes"] += entry.rejects.n_bytes
    for shard in shards or ():
        _add_shard(totals, shard)
    return totals


def _add_shard(totals: dict[str, Any], entry: ledger.Written) -> None:
    totals["shard_rows"] += entry.shard.rows
    totals["shard_tokens"] += entry.shard.tokens
    totals["shard_bytes"] += entry.shard.n_bytes + sum(file.n_bytes for file in entry.companions)
    if entry.packing is not None:
        packing = totals.setdefault("packing", dict.fromkeys(entry.packing, 0))
        for name, n in entry.packing.items():
            packing[name] += n


def balance(totals: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the identities that totals must keep, each as {"left", "right"}: terms with their numbers.

    Raises:
      BooksError: naming every identity that does not hold.
    """
    rejected, filtered = sum(totals["rejected"].values()), sum(totals["filtered"].values())
    byte_terms = ("n_document_bytes", "n_rejected_bytes", "n_filtered_bytes", "n_skipped_bytes")
    lines = [
        (
            {"n_records": totals["n_records"]},
            {**_pick(totals, "n_documents"), "rejected": rejected, "filtered": filtered},
        ),
        (_pick(totals, "n_bytes"), _pick(totals, *byte_terms)),
        *_shard_balance(totals),
        (_pick(totals, "reject_rows"), {"rejected": rejected}),
    ]
    if wrong := [f"{left} != {right}" for left, right in lines if sum(left.values()) != sum(right.values())]:
        raise BooksError("\n".join(wrong))
    return [{"left": left, "right": right} for left, right in lines]


def _shard_balance(totals: Mapping[str, Any]) -> list[tuple[dict[str, int], dict[str, int]]]:
    packing = totals.get("packing")
    if packing is None:
        return [
            (_pick(totals, "shard_rows"), _pick(totals, "n_documents")),
            (_pick(totals, "shard_tokens"), _pick(totals, "n_tokens")),
        ]
    return [
        (_pick(totals, "shard_rows"), _pick(packing, "n_sequences")),
        (_pick(totals, "shard_tokens"), {**_pick(totals, "n_tokens"), **_pick(packing, "n_separators")}),
        ({"packed_documents": packing["n_documents"]}, _pick(totals, "n_documents")),
    ]


def check_inputs(entries: Iterable[LedgerEntry], *, is_whole: bool = True) -> None:
    """Checks file by file that the books balance, and that every byte of an uncompressed file of lines was read once.

    Args:
      entries: of all splits, in the order of the plan.
      is_whole: whether all of each file is to be read, or, as in a replay, the ranges of the pieces.

    Raises:
      BooksError: naming every file of which that is not so.
    """
    wrong = []
    for pieces, counts in _files_of(entries):
        piece = pieces[0]
        wrong += [f"{piece.path!r}: {problem}" for problem in counts.imbalances()]
        is_stored_as_read = piece.compression == "none" and piece.format != "parquet"
        n_expected = piece.n_bytes if is_whole else sum(each.stop - each.start for each in pieces)
        if is_stored_as_read and counts.n_bytes != n_expected:
            wrong.append(f"{piece.path!r}: {counts.n_bytes} bytes read of {n_expected}")
    if wrong:
        raise BooksError("\n".join(wrong))


def _files_of(entries: Iterable[LedgerEntry]) -> Iterator[tuple[list[Piece], PieceCounts]]:
    """Yields the pieces of every file in the order of the plan, and what was made of them.

    There is a checksum where the file is one piece. The pieces of a file are neighbours in the plan.
    """
    pieces = ((piece, counts) for entry in entries for piece, counts in zip(entry.pieces, entry.inputs, strict=True))
    for _, group in itertools.groupby(pieces, key=lambda each: (each[0].path, each[0].name)):
        (first, total), *others = group
        yield [first, *(piece for piece, _ in others)], sum((counts for _, counts in others), total)


def result_files(output: str) -> Iterator[str]:
    """Yields the names of all shards, rejects and ledger entries in a folder, listed in its manifest or not."""
    for name in _files(output, ("", ledger.REJECTED, ledger.LEDGER)):
        if _NUMBERED.fullmatch(name.rpartition("/")[2]) or _LEDGER_FILE.fullmatch(name):
            yield name


def read(output: str) -> dict[str, Any]:
    """Returns the manifest of a folder.

    Raises:
      ValueError: if there is none, or it cannot be read.
    """
    path = storage.join(output, MANIFEST)
    if not storage.exists(path):
        unfinished = "; its job has not finished" if _read_job(output) else ""
        raise ValueError(f"{output!r} holds no {MANIFEST}{unfinished}")
    with storage.open_read(path) as handle:
        try:
            manifest = json.loads(handle.read())
        except ValueError as error:
            raise ValueError(f"{path!r} is not a manifest: {error}") from error
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if isinstance(version, int) and version != FORMAT_VERSION:
        raise ValueError(
            f"{path!r} has format {version}, this TokenMill reads {FORMAT_VERSION}: use the TokenMill that wrote the "
            "folder, or run the job again with --overwrite"
        )
    if version != FORMAT_VERSION:
        raise ValueError(f"{path!r} is not a manifest of format {FORMAT_VERSION}")
    return manifest


def _pick(totals: Mapping[str, Any], *names: str) -> dict[str, int]:
    return {name: totals[name] for name in names}


def _record(file: FileRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(file).items() if value is not None}


def _inputs(entries: Iterable[LedgerEntry]) -> list[dict[str, Any]]:
    files = []
    for (piece, *_), counts in _files_of(entries):
        record = {"name": piece.name, "n_bytes": piece.n_bytes, "format": piece.format}
        if piece.compression != "none":
            record["compression"] = piece.compression
        if counts.sha256:
            record["sha256"] = counts.sha256
        read = {name: value for name, value in counts.to_record().items() if name != "sha256"}
        files.append({**record, "read": read})
    return files


def _read_job(output: str) -> tuple[Job, list[_Plan]] | None:
    path = storage.join(output, JOB)
    if not storage.exists(path):
        return None
    with storage.open_read(path) as handle:
        try:
            record = json.loads(handle.read())
            return Job(record["parts"]), [_Plan(**plan) for plan in record["plans"]]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path!r} cannot be read as TokenMill's record of a job: {error!r}") from error


def _write_job(output: str, job: Job, plans: Iterable[_Plan]) -> None:
    record = {"digest": job.digest, "parts": job.parts, "plans": [asdict(plan) for plan in plans]}
    storage.write_atomic(storage.join(output, JOB), to_json(record))


def _refuse_foreign_files(output: str, mode: Mode) -> None:
    names = [name for name in _files(output, _FOLDERS) if not name.startswith(".")]
    if mode == "overwrite":
        # What we do not write may stay.
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
    """Returns the files that the manifest of a folder lists beside shards; vocabularies may lie deeper."""
    try:
        return [str(record["file"]) for record in read(output)["files"]]
    except (ValueError, KeyError, TypeError):
        return []


def _is_shard_or_rejects(name: str, plans: Iterable[_Plan]) -> bool:
    folder, _, base = name.rpartition("/")
    match = _NUMBERED.fullmatch(base)
    if match is None or {"tokens": "", "rejects": ledger.REJECTED}[match[1]] != folder:
        return False
    # Rejects are Parquet, whatever the shards are.
    return any(
        int(match[2]) < plan.n_splits == int(match[3]) and match[4] == (".parquet" if folder else plan.suffix)
        for plan in plans
    )


def _is_own(name: str, plans: Iterable[_Plan]) -> bool:
    """Returns whether TokenMill, having worked in a folder by these plans, has written this file of it."""
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


def _differences(there: Any, here: Any, path: str = "") -> list[str]:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        return [
            line
            for name in sorted({*there, *here})
            for line in _differences(there.get(name), here.get(name), f"{path}.{name}".lstrip("."))
        ]
    return [] if there == here else [f"{path}: {there!r} there, {here!r} now"]
