# SPDX-License-Identifier: Apache-2.0
"""The names of all files in an output folder, relative to it."""

LEDGER = "_ledger"
TEMPORARY = "_tmp"
REJECTED = "rejected"
DOCUMENTS = "documents"
JOB = f"{LEDGER}/job.json"
"""The record of the job that writes the folder."""
MANIFEST = "manifest.json"
PARTITIONS = "partitions.json"
"""The manifest of a folder whose results lie in folders, one for each tokenizer or language."""
STATS = "stats.json"
REPORT = "report.html"
"""The report, which `tokenmill report` makes from the other files; in no manifest, as it can be made again."""
CLOCK = "clock.json"
"""Times and machines of a job; in no manifest, as it differs from run to run."""
CLOCKS = "_clock"
"""The folder of the times of splits; removed when the job is finished."""
OF_THE_MOMENT = (CLOCK, REPORT)
"""Files that differ between two runs of one job: all others have the same bytes."""
MDS_INDEX = "index.json"
"""The index of MDS shards, which `streaming` looks for."""
PLAN = f"{LEDGER}/plan.jsonl"
"""The splits, for the workers of a running job."""
VOCABULARY = "vocab"
TOKENIZER = f"{VOCABULARY}/tokenizer.json"
TRAINING_NAME = "training.json"
"""In the folder of every trained tokenizer.json; says how it was trained."""
TOKEN_COUNTS = f"{VOCABULARY}/token_counts.parquet"
COUNTS = "counts"
COUNTING = "_counts"
REPLAY = "replay"
"""The folder, inside the output folder, for rejected records that were tokenized later."""
RUNS = "_runs"
"""The folder of runs; removed when the job is finished."""


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
    """Returns the name of the file of a long list of the manifest, for example "_ledger/inputs.parquet"."""
    return f"{LEDGER}/{kind}.parquet"


def statistics_name(split_id: str) -> str:
    """Returns the name of a split's statistics."""
    return f"{LEDGER}/{split_id}.arrow"


def _numbered(index: int, n_splits: int) -> str:
    width = max(5, len(str(n_splits)))
    return f"{index:0{width}d}-of-{n_splits:0{width}d}"


def runs_name(split_id: str) -> str:
    """Returns the name of the file with the runs of a split."""
    return f"{RUNS}/{split_id}.run"


def keys_name(shard_id: str) -> str:
    """Returns the name of the file with the keys of a shard: uint64, little-endian, one per document, in its order."""
    return f"{LEDGER}/{shard_id}.keys"
