# SPDX-License-Identifier: Apache-2.0
"""Measures the steps of a shuffle on runs as a large corpus has them, and computes what 1, 10 and 100 TB cost.

There are as many files as one merge of a large job reads from, each with a run of made-up documents of 1,000 bytes and
250 tokens, which is cut into four ranges. Sorting, two ranges of a pass, and one merged for shards are timed with the
code of every job, and taken as often as `plan_passes` says. Tokenizing is measured beside it: real text to Parquet.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import corpora, report, tokenizers
from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.sums import SplitRuns, sum_rows
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import ShuffleConfig
from tokenmill.pipeline.filenames import runs_name
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.output.spill import RunFiles, SortedSplit, merge_range, open_runs, shard_range
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.shuffling import Pass, deal, merge_runs, plan_passes
from tokenmill.pipeline.splits import Piece, Split
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split
from tokenmill.tokenizer import Tokenizer

_TEXT_BYTES, _TOKENS = 1000, 250
_RANGES = 4
_SAMPLE_BYTES = 64_000_000
_SCHEMA = schemas.placed(schemas.TOKENS)


def main(arguments: list[str]) -> int:
    """Measures; returns the exit code."""
    parser = report.parser("shuffle", __doc__)
    parser.add_argument("--run-mb", type=int, nargs="+", default=[32], help="output.shuffle.run_bytes in MiB")
    parser.add_argument("--folder", help="where runs are written, 8 times --run-mb (default: the temporary folder)")
    options = parser.parse_args(arguments)
    print(report.describe("tokenmill"))
    with tempfile.TemporaryDirectory(prefix="tokenmill-shuffle-", dir=options.folder) as folder:
        texts = corpora.load()
        tokenizer = tokenizers.trained(texts)
        tokenizing = min(_tokenize(folder, texts, tokenizer) for _ in range(3))
        measure(folder, 1 << 20, 4)  # loads kernels
    print(f"seconds of processor time for each GB of text; tokenizing takes {tokenizing:.1f}\n")
    for run_bytes in (mb << 20 for mb in options.run_mb):
        for n_bytes in (1e11, 1e12, 1e13, 1e14):
            # Splits as large as runs, so that no split has more than two.
            passes = plan_passes(int(n_bytes) // run_bytes, int(n_bytes), run_bytes)
            fan_in = passes[-1].width if passes else int(n_bytes) // run_bytes
            with tempfile.TemporaryDirectory(prefix="tokenmill-shuffle-", dir=options.folder) as folder:
                sort, one_pass, merge = measure(folder, run_bytes, fan_in)
            total = sort + len(passes) * one_pass + merge
            print(
                f"{n_bytes / 1e12:6.1f} TB, runs of {run_bytes >> 20} MiB, {fan_in} at once: sort {sort:.2f}, "
                f"{len(passes)} passes of {one_pass:.2f}, merge {merge:.2f}: {total:.1f}, "
                f"{total / tokenizing:.2f} of tokenizing",
                flush=True,
            )
    return 0


def measure(folder: str, run_bytes: int, fan_in: int) -> tuple[float, float, float]:
    """Returns the seconds of processor time for each GB of text: to sort, to pass on once, to merge for shards."""
    sort = _per_gb(lambda: [_sort(folder, -1, run_bytes, _RANGES)])  # one whole run
    files = [_sort(folder, i, run_bytes, fan_in) for i in range(fan_in)]
    ranges = Pass(fan_in, _RANGES)
    needed = [[file for each in files for key, file in deal(each, ranges) if key[-1] == i] for i in range(_RANGES)]
    passed = _per_gb(lambda: [merge_runs(needed[i], 0, (i, _RANGES), folder, run_bytes, _SCHEMA) for i in (0, 1)])

    def merge() -> list[int]:
        with RunFiles(folder) as handles:
            paths = [f"{folder}/{runs_name(file.split_id)}" for file in needed[2]]
            runs = open_runs(handles, paths, needed[2], _SCHEMA)
            parts = merge_range(runs, *shard_range(2, _RANGES), step_bytes=run_bytes // 4)
            return [sum_rows(keys, rows, None).n_documents for keys, rows in parts]

    merged = _per_gb(merge)
    n_sorted = sum(run.n_rows for file in sort[1] for run in file.runs)
    n_passed = sum(run.n_rows for file in passed[1] for run in file.runs)
    return sort[0] / n_sorted, passed[0] / n_passed, merged[0] / sum(merged[1])


def _tokenize(folder: str, texts: Any, tokenizer: Tokenizer) -> float:
    """Returns the seconds of processor time to tokenize a GB of text into Parquet."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        paths = [str(path) for path in corpora.write_jsonl(texts, Path(inside), _SAMPLE_BYTES, 1)]
        output = {"path": f"{inside}/out"}
        config = Config.model_validate({"input": {"paths": paths}, "tokenizer": {"file": "x"}, "output": output})
        splits = plan_splits(config.input, "")
        started = time.process_time()
        entries = [tokenize_split(split, config, tokenizer, len(splits)) for split in splits]
        return (time.process_time() - started) * 1e9 / sum(entry["n_document_bytes"] for entry in entries)


def _per_gb(function: Callable[[], Any]) -> tuple[float, Any]:
    """Returns processor seconds times the documents in a GB, and what the function returned."""
    started = time.process_time()
    found = function()
    return (time.process_time() - started) * 1e9 / _TEXT_BYTES, found


def _sort(folder: str, index: int, run_bytes: int, fan_in: int) -> SplitRuns:
    rng = np.random.default_rng(index + 1)
    n = max(1, _RANGES * run_bytes // fan_in // (_TOKENS * 4 + 60))
    piece = Piece("x", f"{index}.jsonl", n * _TEXT_BYTES, "", "jsonl", "none", 0, n)
    split = Split(index, f"{index % 2**64:016x}", (piece,))
    with Staging(folder, split.id) as staging:
        sorted_split = SortedSplit(staging, split, ShuffleConfig(run_bytes=run_bytes), None)
        for start in range(0, n, 4096):
            places = np.arange(start, min(n, start + 4096))
            sorted_split.add(*_batch(places, rng))
        (file,) = sorted_split.finish()
        staging.publish()
    return SplitRuns(split.id, index, file.sha256, sorted_split.runs.runs)


def _batch(places: np.ndarray, rng: np.random.Generator) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    ids = pa.array([f"{place:016d}" for place in places])
    offsets, sizes = pa.array(places * _TEXT_BYTES), pa.array(np.full(places.size, _TEXT_BYTES))
    pieces = pa.array(np.zeros(places.size, np.int32))
    documents = pa.record_batch([ids, ids, pieces, offsets, sizes], schema=schemas.DOCUMENTS)
    tokens = pa.LargeListArray.from_arrays(
        np.arange(places.size + 1) * _TOKENS,
        pa.array(rng.integers(0, 30_000, places.size * _TOKENS).astype(np.int32)),
        type=schemas.TOKENS.field("input_ids").type,
    )
    n_tokens = pa.array(np.full(places.size, _TOKENS, np.int32))
    columns = [ids, tokens, n_tokens, pieces, pieces, offsets, sizes]
    return documents, pa.record_batch(columns, schema=_SCHEMA)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
