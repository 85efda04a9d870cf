# SPDX-License-Identifier: Apache-2.0
"""Parquet shards: our writer against pyarrow's at several settings, bytes and processor seconds.

The rows are the ids of each corpus. What each file holds is read back and compared before a number is printed; if it
differs, the exit code is 1.
"""

import io
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import corpora, report, tokenizers
from tokenmill.pipeline import schemas
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.output.writers.parquet import ParquetWriter, read_parquet, stored_schema
from tokenmill.tokenizer import Tokenizer

_STORED = stored_schema(schemas.TOKENS)
_IDS = "input_ids.list.element"
_SPLIT = {"use_dictionary": False, "column_encoding": {_IDS: "BYTE_STREAM_SPLIT"}, "data_page_size": 1 << 20}
_SETTINGS: dict[str, dict[str, Any]] = {
    "pyarrow, byte stream split, zstd 1": _SPLIT | {"compression_level": 1},
    "pyarrow, byte stream split, zstd 2": _SPLIT | {"compression_level": 2},
    "pyarrow, dictionary, zstd 1": {"use_dictionary": [_IDS], "compression_level": 1},
}


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("parquet", __doc__, rounds=5)
    parser.add_argument("--mb", type=float, default=8, help="use this many MB of each corpus (default 8)")
    options = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    print(report.describe("tokenmill", "numba", "numpy", "pyarrow"))
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load()]
    shared = corpora.shared_folder()
    tok = tokenizers.trained(texts) if shared is None else tokenizers.load_gpt2(shared / "vocab")
    info = TokenizerInfo(digest=tok.digest, vocab_size=tok.get_vocab_size())
    writers: dict[str, Callable[[io.BytesIO], Any]] = {"ours": lambda handle: ParquetWriter(handle, info)}
    for name, settings in _SETTINGS.items():
        writers[name] = lambda handle, settings=settings: pq.ParquetWriter(
            handle, _STORED, compression="zstd", write_statistics=False, **settings
        )
    rows = [
        [corpus.name, *row] for corpus in texts for row in compare(writers, token_rows(tok, corpus), options.rounds)
    ]
    print(report.table(["corpus", "writer", "bytes", "processor s"], rows))
    return int(any("differs" in row for row in rows))


def token_rows(tok: Tokenizer, corpus: corpora.Corpus) -> pa.RecordBatch:
    """Returns the rows of a shard for a corpus."""
    ids = tok.encode_arrow(pa.array(corpus.texts, pa.large_string())).cast(schemas.TOKENS.field(1).type)
    counts = pa.array(np.diff(ids.offsets.to_numpy()).astype(np.int32))
    names = pa.array([f"{corpus.name}.jsonl:{i}" for i in range(len(ids))])
    return pa.record_batch([names, ids, counts, pa.array(np.zeros(len(ids), np.int32))], schema=schemas.TOKENS)


def compare(writers: dict[str, Callable[[io.BytesIO], Any]], batch: pa.RecordBatch, rounds: int) -> list[list[str]]:
    """Returns a line for each writer: its name, the bytes of its file, and the median of its seconds."""
    stored = batch.cast(_STORED)
    samples: dict[str, list[float]] = {name: [] for name in writers}
    sizes = {}
    for i in range(rounds + 1):
        for name, make in writers.items():
            handle = io.BytesIO()
            started = time.process_time()
            writer = make(handle)
            writer.write(batch if name == "ours" else stored)
            writer.close()
            samples[name].append(time.process_time() - started)
            if i == 0:  # this round compiles, and is not counted
                found = pa.Table.from_batches(read_parquet(io.BytesIO(handle.getvalue()), name))
                sizes[name] = str(len(handle.getvalue())) if found == pa.Table.from_batches([batch]) else "differs"
    return [[name, sizes[name], f"{statistics.median(samples[name][1:]):.3f}"] for name in writers]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
