# SPDX-License-Identifier: Apache-2.0
"""Readers of training data: TokenMill's over four formats against those of other libraries, on the same packed rows.

A job packs the corpora into rows; peers that read one of its formats read its files, the others a copy in theirs. Rows
are compared before a number is printed; where they differ there is none, and the exit code is 1. Peers that are not
installed are left out, and named.
"""

import argparse
import gc
import json
import os
import site
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tokenmill
import tokenmill.data
from benchmarks import corpora, report, timing, tokenizers

_IDS = np.int32
"""What every reader has to give: rows of their own, of the type that models take."""

_PEERS = "megatron-core", "mosaicml-streaming", "datasets", "grain", "array-record", "litdata", "torch"

Row = Callable[[int], np.ndarray]
Opened = tuple[int, Row, Callable[[np.ndarray], Any]]
"""How many rows there are, one of them, and several as an array of two dimensions."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench readers", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mb", type=float, default=8, help="use this many MB of each corpus (default 8)")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a row (default 2048)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--peers", metavar="FOLDER", help="site-packages with the libraries that no lock of ours names")
    options = parser.parse_args(arguments)
    if options.peers:
        site.addsitedir(options.peers)
    print(report.describe("tokenmill", "numpy", "pyarrow", *_PEERS))
    with tempfile.TemporaryDirectory() as folder:
        output = write(Path(folder), options.mb, options.length)
        candidates, missing = {}, []
        for name, make in READERS.items():
            try:
                candidates[name] = make(output)
            except ImportError as error:
                missing.append(f"{name} ({error})")
        reference = rows_of(next(iter(candidates.values()))())
        wrong = [name for name, make in candidates.items() if not np.array_equal(rows_of(make()), reference)]
        right = {name: make for name, make in candidates.items() if name not in wrong}
        print(report.table(HEADER, list(measure(right, output, options.rounds))))
    print(f"rows differ: {', '.join(wrong) or 'none'}; not installed: {', '.join(missing) or 'none'}")
    print(f"resumed at sample 10^9 of 10^12, up to the rows of the next batch: {resume() * 1e6:.0f} us")
    with tempfile.TemporaryDirectory() as folder:
        print(many_tokens(Path(folder)))
    return int(bool(wrong))


HEADER = ["reader", "first batch ms", "rows/s in order", "rows/s random", "rows/s by 64", "rows/s cold"]
"""The first and the last column are by the wall clock, with opening; the others are by the processor's."""


def write(folder: Path, mb: float, length: int) -> Path:
    """Returns the output of a job that packs all corpora in all formats."""
    texts = [corpus.first(int(mb * 1e6)) for corpus in corpora.load()]
    (folder / "corpus.txt").write_text("\n".join(" ".join(t.split()) for c in texts for t in c.texts), encoding="utf-8")
    (folder / "vocab").mkdir()
    tokenizers.trained(texts).save(str(folder / "vocab/tokenizer.json"))
    config = {
        "input": {"paths": [str(folder / "corpus.txt")], "format": "text", "split_bytes": 1 << 30},
        "tokenizer": {"file": str(folder / "vocab")},
        "output": {
            "path": str(folder / "out"),
            "format": ["memmap", "arrow", "parquet", "megatron", "mds"],
            "packing": {"length": length, "separator": "[SEP]"},
        },
    }
    tokenmill.run(config, job="tokenize", mode="inline")
    return folder / "out"


def rows_of(opened: Opened) -> np.ndarray:
    """Returns some rows, read alone and together; not the last, which may be padded."""
    n, row, several = opened
    chosen = np.random.default_rng(0).integers(0, n - 1, 256)
    return np.concatenate([np.stack([row(i) for i in chosen.tolist()]), np.asarray(several(chosen))])


def measure(candidates: dict[str, Callable[[], Opened]], output: Path, rounds: int) -> Iterator[list[str]]:
    """Yields a line for each reader."""
    opened = {name: make() for name, make in candidates.items()}
    n = next(iter(opened.values()))[0] - 1
    chosen = np.random.default_rng(1).permutation(n)[:2048]
    order, batches = chosen.tolist(), np.split(chosen[: chosen.size // 64 * 64], chosen.size // 64)

    # A loop lets go of a batch for the next one; who keeps all of them measures the allocator.
    drain = deque[object](maxlen=0).extend

    def timed(read: Callable[[Opened], object], n_rows: int) -> dict[str, float]:
        """Returns rows per processor second, the most of all rounds."""
        most = dict.fromkeys(opened, 0.0)
        for _ in range(rounds + 1):
            for name, reader in opened.items():
                started = time.process_time()
                read(reader)
                most[name] = max(most[name], n_rows / (time.process_time() - started))
        return most

    def cold(make: Callable[[], Opened]) -> Callable[[], object]:
        forget(output.parent)
        return lambda: [row(i).sum() for row in [make()[1]] for i in order[:256]]

    first = timing.interleave({k: lambda m=m: m()[2](batches[0]) for k, m in candidates.items()}, rounds=rounds)
    rates = [
        timed(lambda reader: drain(map(reader[1], range(min(n, 2048)))), min(n, 2048)),
        timed(lambda reader: drain(map(reader[1], order)), len(order)),
        timed(lambda reader: drain(map(reader[2], batches)), 64 * len(batches)),
    ]
    opened.clear()  # pages that are mapped stay in the cache
    colds = timing.interleave_first_calls({k: lambda m=m: cold(m) for k, m in candidates.items()}, rounds=3)
    for name in candidates:
        cells = *(rate[name] for rate in rates), 256 / colds[name].median
        yield [name, f"{first[name].median * 1e3:.2f}", *(f"{rate:,.0f}" for rate in cells)]


def forget(folder: Path) -> None:
    """Takes the files of a folder out of the page cache, where the system can; not those that are mapped or dirty."""
    gc.collect()
    for path in folder.rglob("*"):
        if path.is_file() and hasattr(os, "posix_fadvise"):
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resume() -> float:
    """Returns the least seconds of a hundred times that a state at sample 10^9 of 10^12 is loaded and goes on."""

    class Many(tokenmill.data.Rows):
        digest, name = "many", "many"

        def __len__(self) -> int:
            return 10**12

        def take(self, rows: Any) -> pa.RecordBatch:
            raise NotImplementedError("only the places of rows are asked for")

        def with_columns(self, columns: Any) -> "Many":
            return self

    samples, seconds = Many().samples(8, rank=3, world_size=64), []
    for _ in range(100):
        started = time.perf_counter()
        samples.load_state_dict({**samples.state_dict(), "consumed": 10**9})
        next(samples.steps())
        seconds.append(time.perf_counter() - started)
    return min(seconds)


_READ_MANY = """
import sys, tokenmill.data
from pathlib import Path
def held():  # KB of memory that is in no file
    return int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0])
data = tokenmill.data.open(sys.argv[1], columns=["input_ids"])
opened = held()
for _ in zip(range(100), data.samples(64)):
    pass
print(f"{data.n_tokens:.1e} tokens in {len(data.files):,} shards: {opened >> 10} MB with imports and the manifest,",
      f"{held() - opened >> 10} MB more after 6,400 random rows")
"""


def many_tokens(folder: Path) -> str:
    """Returns what a reader of 10^12 tokens in memory maps holds; all shards are links to one file without a token."""
    n_rows, length, n_shards = 16_384, 2048, 29_803
    with (folder / "ids").open("wb") as handle:
        handle.truncate(n_rows * length * 2)
    np.save(folder / "at.npy", np.arange(n_rows + 1) * length)
    sizes, listed = {"ids": n_rows * length * 2, "at.npy": (folder / "at.npy").stat().st_size}, []
    for file, end in (("ids", "ids.bin"), ("at.npy", "offsets.npy")):
        names = [f"tokens-{i:05d}-of-{n_shards:05d}.{end}" for i in range(n_shards)]
        for name in names:
            os.link(folder / file, folder / name)
        counts = {"rows": n_rows, "tokens": n_rows * length} if file == "ids" else {}
        listed.append([{"file": name, "n_bytes": sizes[file], "sha256": "", **counts} for name in names])
    manifest = {"format_version": 4, "shards": listed[0], "companions": listed[1]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    command = [sys.executable, "-c", _READ_MANY, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _stacked(rows: Iterable[np.ndarray]) -> np.ndarray:
    return np.stack(list(rows), dtype=_IDS, casting="unsafe")


def _one_by_one(data: Any, row: Callable[[Any], np.ndarray] = lambda row: row) -> Opened:
    return len(data), lambda i: row(data[i]).astype(_IDS), lambda rows: _stacked(row(data[i]) for i in rows.tolist())


def _ours(output: Path, format: str) -> Callable[[], Opened]:
    def make() -> Opened:
        data = tokenmill.data.open(output, format=format, columns=["input_ids"])
        return len(data), lambda i: data[i]["input_ids"], lambda rows: tokenmill.data.to_numpy(data[rows])["input_ids"]

    return make


def _megatron(output: Path) -> Callable[[], Opened]:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    (prefix,) = (str(path).removesuffix(".idx") for path in output.glob("tokens-*.idx"))
    return lambda: _one_by_one(IndexedDataset(prefix, mmap=True))


def _streaming(output: Path) -> Callable[[], Opened]:
    from streaming import LocalDataset

    return lambda: _one_by_one(LocalDataset(str(output)), lambda row: row["tokens"])


def _datasets(output: Path) -> Callable[[], Opened]:
    import datasets

    files, cache = sorted(map(str, output.glob("tokens-*.parquet"))), str(output.parent / "hf")
    datasets.Dataset.from_parquet(files, cache_dir=cache, columns=["input_ids"]).save_to_disk(f"{cache}/saved")

    def make() -> Opened:
        # A row takes 11 us so, and 48 with_format("numpy").
        data = datasets.load_from_disk(f"{cache}/saved").with_format("arrow")

        def several(rows: int | list[int]) -> np.ndarray:
            lists = data[rows]["input_ids"].combine_chunks()
            return lists.flatten().to_numpy().reshape(len(lists), -1).astype(_IDS)

        return len(data), lambda i: several(i)[0], lambda rows: several(rows.tolist())

    return make


def _array_record(output: Path) -> Callable[[], Opened]:
    import grain
    from array_record.python import array_record_module

    path = str(output.parent / "rows.array_record")
    writer = array_record_module.ArrayRecordWriter(path, "group_size:1,uncompressed")
    for row in tokenmill.data.open(output, format="arrow")[:]["input_ids"]:
        writer.write(row.values.to_numpy().astype(np.uint16).tobytes())
    writer.close()

    def make() -> Opened:
        data = grain.sources.ArrayRecordDataSource(path)
        n, one, _ = _one_by_one(data, lambda row: np.frombuffer(row, np.uint16))
        return n, one, lambda rows: _stacked(np.frombuffer(row, np.uint16) for row in data.__getitems__(rows.tolist()))

    return make


def _litdata(output: Path) -> Callable[[], Opened]:
    import litdata
    import torch
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    folder = output.parent / "litdata"
    folder.mkdir()
    rows = tokenmill.data.open(output, format="arrow")[:]["input_ids"]
    writer = BinaryWriter(str(folder), chunk_bytes="64MB", item_loader=TokensLoader())  # its other loader takes 370 us
    for i, row in enumerate(rows):
        writer[i] = torch.from_numpy(row.values.to_numpy().astype(_IDS))
    writer.done()
    writer.merge(1)
    # All rows but the last, which is left out of what is read, are equally long.
    loader = TokensLoader(block_size=len(rows[0]))
    return lambda: _one_by_one(litdata.StreamingDataset(str(folder), item_loader=loader), np.asarray)


READERS: dict[str, Callable[[Path], Callable[[], Opened]]] = {
    **{f"ours, {name}": partial(_ours, format=name) for name in ("memmap", "megatron", "arrow", "parquet")},
    "Megatron-LM IndexedDataset": _megatron,
    "MosaicML LocalDataset": _streaming,
    "datasets, Arrow": _datasets,
    "Grain, ArrayRecord": _array_record,
    "litdata": _litdata,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
