# SPDX-License-Identifier: Apache-2.0
"""The names of all files in an output folder, relative to it."""

import re

LEDGER = "_ledger"
TEMPORARY = "_tmp"
REJECTED = "rejected"
DOCUMENTS = "documents"
EMPTY = "_empty"
"""The folder of shards without a token in formats whose readers cannot map such a file."""
JOB = f"{LEDGER}/job.json"
"""The record of the job that writes the folder."""
MANIFEST = "manifest.json"
PARTS = "parts.json"
"""The manifest of an output in parts, each of which is a folder with a manifest of its own."""
STATS = "stats.json"
REPORT = "report.html"
"""The report, which `tokenmill report` makes from the other files; in no manifest, as it can be made again."""
CLOCK = "clock.json"
"""Times and machines of a job; in no manifest, as it differs from run to run."""
CLOCKS = "_clock"
"""The folder of the times of splits; removed when the job is finished."""
OF_THE_MOMENT = (CLOCK, REPORT)
"""Files that differ between two runs of one job: all others have the same bytes."""
INDEXES = ("mixture.json", "packing.json")
"""The records of indexes of rows, which `tokenmill.data` makes and reads: their folders are no outputs of jobs."""
MDS_INDEX = "index.json"
"""The index of MDS shards, which `streaming` looks for."""
HUB = ".huggingface.yaml"
"""Says which files are the data, for `datasets` and for hubs of data sets, which would take all files."""
PLAN = f"{LEDGER}/plan.jsonl"
"""The splits, a line each, most work first; workers of a running job read it, which keeps the Beam graph small."""
VOCABULARY = "vocab"
TOKENIZER = f"{VOCABULARY}/tokenizer.json"
TRAINING_NAME = "training.json"
"""In the folder of every trained tokenizer.json; says how it was trained."""
TOKEN_COUNTS = f"{VOCABULARY}/token_counts.parquet"
COUNTS = "counts"
COUNTING = "_counts"
"""The folder of the ledger of merged hash partitions of word counts, which stays."""
COUNTED_SPLITS = f"{COUNTING}/splits"
"""The folder of the ledger and the runs of counted splits; removed when the job is finished."""
COUNTED_LEDGER = f"{COUNTED_SPLITS}/{LEDGER}"
REPLAY = "replay"
"""The folder, inside the output folder, for rejected records that were tokenized later."""
RUNS = "_runs"
"""The folder of runs; removed when the job is finished."""

NUMBERED = re.compile(r"(tokens|rejects|documents)-(\d{5,20})-of-(\d{5,20})(\.[a-z0-9.]{1,40})", re.ASCII)
"""The name of a shard, of a file of rejects, or of a table of documents, without its folder."""
LEDGER_FILE = re.compile(
    rf"{LEDGER}/([0-9a-f]{{16}}\.(json|arrow|keys)|(inputs|shards|companions|documents|rejects)\.parquet)"
)
_FOLDER_OF = {"tokens": "", "rejects": REJECTED, "documents": DOCUMENTS}
_TOP = {MANIFEST, PARTS, STATS, MDS_INDEX, HUB, PLAN, REPORT, CLOCK}
_COUNTS_FILE = re.compile(
    rf"{COUNTS}/(counts-\d{{5,20}}-of-\d{{5,20}}\.parquet|counts\.json|(alphabet|inputs)\.parquet)", re.ASCII
)
_VOCABULARY_FILE = re.compile(
    rf"{VOCABULARY}/((?!\.)[\w.%-]+/){{0,2}}"
    r"(tokenizer\.json|training\.json|vocab\.txt|vocab\.json|merges\.txt|vocab\.tiktoken|tokenizer\.model|token_counts\.parquet)",
    re.ASCII,
)
_OF_A_JOB = re.compile(
    rf"{RUNS}/[0-9a-f]{{16}}\.(arrow|run|json)|{COUNTED_SPLITS}/alphabet-\d{{5,20}}\.parquet", re.ASCII
)
_OTHERS = rf"(?!(?:{REJECTED}|{DOCUMENTS}|{VOCABULARY}|{COUNTS}|{REPLAY})(?![a-z0-9_]))"
_PART = re.compile(rf"(?:(?:tokenizer|lang)=[A-Za-z0-9_-]{{1,80}}|{_OTHERS}[a-z][a-z0-9_]{{0,39}})")
_OF_A_PART = re.compile(rf"{_PART.pattern}/{re.escape(MANIFEST)}")


def numbered(name: str) -> re.Match[str] | None:
    """Returns the match of `NUMBERED` if a name is that of such a file, in the folder where it belongs; else None."""
    folder, _, base = name.rpartition("/")
    match = NUMBERED.fullmatch(base)
    is_there = match is not None and (folder == _FOLDER_OF[match[1]] or (match[1], folder) == ("tokens", EMPTY))
    return match if is_there else None


def is_result(name: str) -> bool:
    """Returns whether TokenMill gives this name to a file of a finished job, other than those of `numbered`."""
    return name in _TOP or any(each.fullmatch(name) for each in (LEDGER_FILE, _COUNTS_FILE, _VOCABULARY_FILE))


def check_file(name: str) -> str:
    """Returns the name of a file that a record names; records of another's folder may say anything.

    Raises:
      ValueError: if TokenMill gives no file this name.
    """
    if not (is_result(name) or numbered(name) or _OF_A_JOB.fullmatch(name) or _OF_A_PART.fullmatch(name)):
        raise ValueError(f"{name!r} is no name that TokenMill gives to a file of an output folder")
    return name


def check_part(name: str) -> str:
    """Returns the name of the folder of a part; raises ValueError if it is no such name."""
    if not _PART.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a folder such as 'lang=zh', 'tokenizer=default' or 'train'")
    return name


def shard_name(index: int, n_splits: int, suffix: str) -> str:
    """Returns the name of a split's shard in the output folder, for example "tokens-00000-of-00012.parquet"."""
    return f"tokens-{_numbered(index, n_splits)}{suffix}"


def rejects_name(index: int, n_splits: int) -> str:
    """Returns the name of a split's rejects, for example "rejected/rejects-00003-of-00012.parquet"."""
    return f"{REJECTED}/rejects-{_numbered(index, n_splits)}.parquet"


def documents_name(index: int, n_shards: int) -> str:
    """Returns the name of a shard's table of documents, for example "documents/documents-00003-of-00012.parquet"."""
    return f"{DOCUMENTS}/documents-{_numbered(index, n_shards)}.parquet"


def entry_name(split_id: str) -> str:
    """Returns the name of a split's ledger entry."""
    return f"{LEDGER}/{split_id}.json"


def list_name(kind: str) -> str:
    """Returns the name of the file of a long list, for example "_ledger/inputs.parquet" of the manifest."""
    return f"{COUNTS}/inputs.parquet" if kind == "counted" else f"{LEDGER}/{kind}.parquet"


def statistics_name(split_id: str) -> str:
    """Returns the name of a split's statistics."""
    return f"{LEDGER}/{split_id}.arrow"


def _numbered(index: int, n_splits: int) -> str:
    width = max(5, len(str(n_splits)))
    return f"{index:0{width}d}-of-{n_splits:0{width}d}"


def runs_name(split_id: str) -> str:
    """Returns the name of the file with the runs of a split."""
    return f"{RUNS}/{split_id}.arrow"


def keys_name(shard_id: str) -> str:
    """Returns the name of the file with the keys of a shard: uint64, little-endian, one per document, in its order."""
    return f"{LEDGER}/{shard_id}.keys"
