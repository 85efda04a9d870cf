# SPDX-License-Identifier: Apache-2.0
"""Outputs of jobs as datasets: the same rows in every format, and one clear error for what is wrong."""

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tokenmill.data
from tests.plain_job import PlainJob
from tokenmill.pipeline.books import lists
from tokenmill.pipeline.output.writers import formats

SUFFIXES = {"parquet": r"\.parquet", "arrow": r"\.arrow", "memmap": r"\.ids\.bin", "megatron": r"\.bin"}
FORMATS = list(SUFFIXES)
TEXTS = [" ".join("the mill grinds text a texts".split()[(i * 7 + j) % 6] for j in range(i % 23)) for i in range(97)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["documents", "packed"])
def test_rows_are_those_that_verify_reads(jobs, name: str, format: str) -> None:
    data = tokenmill.data.open(jobs[name].output, format=format, check="contents")
    rows = [{key: row[key] for key in data.schema.names} for row in _rows(jobs[name], format)]
    assert len(data) == len(rows)
    assert data[:].to_pylist() == rows
    assert data.n_tokens == sum(int(sizes.sum()) for sizes in data.sizes()) == sum(row["n_tokens"] for row in rows)


def _rows(job: PlainJob, format: str) -> list[dict]:
    """Returns the rows of all files of a format in the order of the manifest, those without a token, too."""
    manifest, rows = job.json("manifest.json"), []
    for record in manifest["shards"] + manifest["companions"]:
        name = record["file"]
        if record.get("rows") is not None and re.fullmatch(rf"(_empty/)?tokens-[\d]+-of-\d+{SUFFIXES[format]}", name):
            index = formats.index_name(str(job.output / name))
            with open(job.output / name, "rb") as handle, open(index or os.devnull, "rb") as opened:
                batches = formats.read_rows(handle, name, index=opened if index else None)
                rows += [row for batch in batches for row in batch.to_pylist()]
    return rows


@pytest.mark.parametrize("format", FORMATS)
def test_rows_come_in_any_order_alone_and_together(jobs, format: str) -> None:
    for job in jobs.values():
        data = tokenmill.data.open(job.output, format=format)
        every = data[:]
        chosen = np.random.default_rng(1).integers(0, len(data), 200)
        assert data[chosen].equals(every.take(pa.array(chosen)))
        assert data[5:3:-1].equals(every.take([5, 4]))
        assert data[[]].num_rows == 0
        for i in (0, 7, len(data) - 1, -1):
            row, expected = data[i], every.slice(i % len(data), 1).to_pylist()[0]
            assert {
                key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in row.items()
            } == expected
            assert row["input_ids"].dtype == np.int32
        assert [row["n_tokens"] for row in data.__getitems__([3, 3])] == every["n_tokens"].take([3, 3]).to_pylist()
        for wrong in (len(data), -len(data) - 1, [0, len(data)], [-1]):
            with pytest.raises(IndexError, match="has the rows 0 to"):
                data[wrong]


def test_formats_without_padding_have_the_same_digest_and_tokens(jobs) -> None:
    data = {format: tokenmill.data.open(jobs["packed"].output, format=format) for format in FORMATS}
    assert len({each.digest for each in data.values()}) == 1
    tokens = {tuple(map(tuple, _tokens(each[:]))) for each in data.values()}
    assert len(tokens) == 1


def test_compressed_batches_and_windows_are_read_in_any_order(tmp_path, session_vocab) -> None:
    job = PlainJob(
        tmp_path,
        TEXTS,
        session_vocab,
        output={"format": "arrow", "compression": "zstd"},
        tokenizer={"truncation": {"max_length": 8, "stride": 2, "overflow": "rows"}},
    ).run()
    data = tokenmill.data.open(job.output, columns=["window", "input_ids"])
    rows = [{"window": row["window"], "input_ids": row["input_ids"]} for row in _rows(job, "arrow")]
    assert data[:].to_pylist() == rows
    assert max(row["window"] for row in rows) == 3
    assert not data._shard(0).is_mapped  # its units take memory, and so count in the cache
    assert data[[9, 2]].to_pylist() == [rows[9], rows[2]]
    assert data[5]["input_ids"].tolist() == rows[5]["input_ids"]
    assert len(data.where(pc.field("window") == 0)) == len(TEXTS)


def _tokens(batch: pa.RecordBatch) -> list[list[int]]:
    return [ids[:n] for ids, n in zip(batch["input_ids"].to_pylist(), batch["n_tokens"].to_pylist(), strict=True)]


def test_a_dataset_is_pickled_as_its_path_and_refuses_another_folder(jobs, tmp_path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(jobs["documents"].output, folder)
    data = tokenmill.data.open(folder, columns=["input_ids"])
    pickled = pickle.dumps(data)
    assert len(pickled) < 1000
    assert pickle.loads(pickled)[:].equals(data[:])
    shutil.rmtree(folder)
    shutil.copytree(jobs["packed"].output, folder)
    with pytest.raises(ValueError, match="it is not the data that is meant"):
        pickle.loads(pickled)


def test_a_cache_that_is_too_small_changes_nothing(jobs) -> None:
    data = tokenmill.data.open(jobs["documents"].output, format="parquet", cache_bytes=1)
    assert data[:].equals(tokenmill.data.open(jobs["documents"].output, format="parquet")[:])
    assert len(data._units) == 1


def _reads_in_a_fork(data, read) -> bool:
    """Returns whether a forked process reads, too; it is killed if it has not in 30 seconds."""
    if not (child := os.fork()):
        signal.alarm(30)
        os._exit(0 if read(data) else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_processes_that_are_forked_while_threads_read_read_too(jobs) -> None:
    data = tokenmill.data.open(jobs["documents"].output, format="parquet", columns=["input_ids"], cache_bytes=1)
    expected, stop = [data[i]["input_ids"].tolist() for i in range(97)], threading.Event()

    def read(data) -> bool:
        return [data[i]["input_ids"].tolist() for i in data.order(3)(np.arange(97))] == [
            expected[i] for i in data.order(3)(np.arange(97))
        ]

    def read_on() -> None:
        while not stop.is_set():
            assert read(data)

    threads = [threading.Thread(target=read_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert all(_reads_in_a_fork(data, read) for _ in range(8))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_values_of_a_row_do_not_depend_on_other_rows(tmp_path, session_vocab) -> None:
    (tmp_path / "kept.jsonl").write_text('{"text": "the mill", "tags": [1, 2]}\n{"text": "the"}\n')
    read = {"paths": [str(tmp_path / "kept.jsonl")], "keep_fields": {"tags": ["int64"]}}
    data = tokenmill.data.open(PlainJob(tmp_path, ["the"], session_vocab, input=read).run().output)
    for rows in (
        [data[0], data[1]],
        data.__getitems__([0, 1]),
        [data[-2], data[-1]],
        data.where([0, 1]).__getitems__([0, 1]),
    ):
        assert isinstance(rows[0]["tags"], np.ndarray)
        assert rows[0]["tags"].tolist() == [1, 2]
        assert rows[1]["tags"] is None
        assert isinstance(rows[0]["n_tokens"], int)


def test_where_selects_before_the_order_and_shows_how_many(jobs) -> None:
    job = jobs["documents"]
    data = tokenmill.data.open(job.output, columns=["input_ids"])
    long = data.where(pc.field("n_tokens") > 5)
    rows = job.rows()
    numbers = [i for i, row in enumerate(rows) if row["n_tokens"] > 5]
    assert long.numbers.tolist() == numbers
    assert f"({len(numbers)} of 97 rows)" in repr(long)
    assert long[:].equals(data[numbers])
    assert data.where(numbers).digest == data.where(np.isin(np.arange(97), numbers)).digest == long.digest
    assert data.where(numbers[1:]).digest != long.digest != data.digest
    read = [row for batch in long.samples(4) for row in batch["input_ids"]]
    assert sorted(map(tuple, read)) == sorted(tuple(rows[i]["input_ids"]) for i in numbers)
    assert sum(sizes.size for sizes in long.sizes()) == len(numbers)
    assert long.n_tokens == sum(rows[i]["n_tokens"] for i in numbers)
    with pytest.raises(ValueError, match="the state is of data with the digest"):
        data.samples(4).load_state_dict(long.samples(4).state_dict())
    # A memory map has no such column; the Parquet files of the same job do.
    mapped = tokenmill.data.open(job.output, format="memmap").where(pc.field("doc_id") == "d7")
    assert mapped.numbers.tolist() == [7]
    assert mapped.rows.format == "memmap"


def test_conditions_that_fit_no_row_are_refused(jobs) -> None:
    data = tokenmill.data.open(jobs["documents"].output)
    with pytest.raises(ValueError, match=r"(?s)where: No match.*columns of .* are doc_id, input_ids"):
        data.where(pc.field("score") > 1)
    with pytest.raises(ValueError, match="2 flags for 97 rows"):
        data.where([True, False])
    with pytest.raises(ValueError, match="row 3 is selected twice"):
        data.where([3, 5, 3])
    with pytest.raises(IndexError):
        data.where([97])
    assert len(data.where([])) == 0


def test_trained_tokens_are_counted(tmp_path, session_vocab) -> None:
    lists_ = pa.array([[1, 2, 3], [4]], pa.large_list(pa.int32()))
    labels = pa.array([[-100, 2, 3], [-100]], pa.large_list(pa.int32()))
    mask = pa.array([[False, True, True], [False]], pa.large_list(pa.bool_()))

    class Few(tokenmill.data.Rows):
        def __init__(self, batch: pa.RecordBatch) -> None:
            self.batch, self.name, self.schema = batch, "few", batch.schema

        def __len__(self) -> int:
            return self.batch.num_rows

        def take(self, rows):
            return self.batch.take(pa.array(rows))

        def with_columns(self, columns):
            return Few(self.batch.select(columns or self.schema.names))

    for name, column in (("labels", labels), ("loss_mask", mask)):
        few = Few(pa.record_batch([lists_, column, pa.array([3, 1])], ["input_ids", name, "n_tokens"]))
        assert [each.tolist() for each in few.sizes(trained=True)] == [[2, 0]]
        assert few.n_tokens == 4
    with pytest.raises(ValueError, match="do not say which of their tokens are trained"):
        list(Few(pa.record_batch([lists_, pa.array([3, 1])], ["input_ids", "n_tokens"])).sizes(trained=True))


def test_long_lists_of_a_manifest_are_read_too(tmp_path, session_vocab, monkeypatch) -> None:
    monkeypatch.setattr(lists, "MOST_RECORDS", 3)
    job = PlainJob(tmp_path, TEXTS, session_vocab).run()
    assert job.json("manifest.json")["format_version"] == 5
    data = tokenmill.data.open(job.output)
    assert data[:]["doc_id"].to_pylist() == [f"d{i}" for i in range(97)]
    (job.output / "_ledger/shards.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="not the list that the manifest names"):
        tokenmill.data.open(job.output)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("file", "damage", "check", "message"),
    [
        ("tokens-00003-of-00036.parquet", _cut, "sizes", "tokens-00003-of-00036.parquet: cut short: "),
        ("tokens-00003-of-00036.parquet", Path.unlink, "sizes", "tokens-00003-of-00036.parquet: not there, but"),
        ("tokens-00003-of-00036.offsets.npy", _cut, "sizes", "00003-of-00036.offsets.npy: cut short: "),
        ("tokens-00002-of-00036.ids.bin", _change, "contents", "00002-of-00036.ids.bin: changed: its SHA-256 is"),
        ("manifest.json", _change, "sizes", "manifest.json' (was changed: its digest is|is not a manifest as)"),
        ("manifest.json", Path.unlink, "sizes", "is no finished output: no manifest.json"),
    ],
)
def test_files_that_are_not_as_the_manifest_says_are_named(jobs, tmp_path, file, damage, check, message) -> None:
    shutil.copytree(jobs["documents"].output, tmp_path / "out")
    damage(tmp_path / "out" / file)
    with pytest.raises(ValueError, match=message):
        tokenmill.data.open(tmp_path / "out", format="memmap" if "parquet" not in file else "parquet", check=check)


def test_an_index_that_leads_out_of_its_file_is_refused_when_it_is_read(jobs, tmp_path) -> None:
    shutil.copytree(jobs["documents"].output, tmp_path / "out")
    for name in ("tokens-00003-of-00036.offsets.npy", "tokens-00003-of-00036.idx"):
        path = tmp_path / "out" / name
        data = bytearray(path.read_bytes())
        data[-16:-8] = (1 << 40).to_bytes(8, "little")
        path.write_bytes(data)
        with pytest.raises(ValueError, match="tokens-00003-of-00036"):
            tokenmill.data.open(tmp_path / "out", format="megatron" if "idx" in name else "memmap", check=None)[:]


def test_what_is_no_output_of_this_version_is_refused(jobs, tmp_path) -> None:
    shutil.copytree(jobs["documents"].output, tmp_path / "out")
    path = tmp_path / "out/manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 99}))
    with pytest.raises(ValueError, match="has format 99, this TokenMill reads 4 and 5"):
        tokenmill.data.open(tmp_path / "out")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/parts.json").write_text('{"parts": [{"folder": "train"}, {"folder": "test"}]}')
    with pytest.raises(
        ValueError, match=r"is an output in parts; open one of its folders: .*parts/train, .*parts/test"
    ):
        tokenmill.data.open(tmp_path / "parts")
    with pytest.raises(ValueError, match="has no rows in the format 'mds'; it has parquet, arrow, memmap, megatron"):
        tokenmill.data.open(jobs["documents"].output, format="mds")
    with pytest.raises(ValueError, match="has no column 'labels' in parquet, only doc_id"):
        tokenmill.data.open(jobs["documents"].output, columns=["labels"])


def test_importing_it_brings_numpy_and_pyarrow_alone(repository) -> None:
    program = (
        "import json, sys; old = {*sys.modules}; import tokenmill.data; print(json.dumps([*{*sys.modules} - old]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)} - sys.stdlib_module_names
    needed = {"tokenmill", "numpy", "pyarrow", "cloudpickle", "cython_runtime"}  # Arrow looks for cloudpickle
    assert {name for name in loaded if not name.startswith("_")} <= needed
    assert "tokenmill.tokenizer" not in json.loads(done.stdout)
