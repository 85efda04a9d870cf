# SPDX-License-Identifier: Apache-2.0
"""What `verify --deep` finds that the folder alone cannot show."""

import dataclasses
import hashlib
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.filenames import entry_name
from tokenmill.pipeline.jobs import finish, planning
from tokenmill.pipeline.output.writers.flat import MegatronWriter
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.tokenizing import tokenize
from tokenmill.tokenizer import Tokenizer

OUTPUTS = [
    {"format": "parquet"},
    {"format": "tfrecord"},
    {"format": ["arrow", "mds", "megatron", "memmap"]},
    {"format": ["memmap", "parquet"], "packing": {"length": 8, "separator": "[SEP]"}},
]


@pytest.fixture(params=OUTPUTS)
def folder(request, tmp_path, tiny_vocab_file):
    """Returns a finished output folder of five splits."""
    for i in range(5):
        lines = [json.dumps({"text": "the mill " * (i + j)}) for j in range(9)]
        (tmp_path / f"{i}.jsonl").write_text("\n".join([*lines, "not json"]))
    config = Config.model_validate(
        {
            "input": {"paths": [str(tmp_path / "*.jsonl")], "split_bytes": 100, "on_damage": "warn"},
            "tokenizer": {"file": str(tiny_vocab_file)},
            "output": {"path": str(tmp_path / "out"), **request.param},
        }
    )
    make(config)
    return tmp_path


def make(config):
    """Runs the job."""
    plan = planning.plan_job("tokenize", config)
    planning.prepare(plan, "new")
    tokenizer = Tokenizer.from_str(plan.tokenizer.to_str())
    for split in plan.splits:
        tokenize.tokenize_split(split, config, tokenizer, len(plan.splits))
    finish.finish_output(finish.Folder(config, plan.job, PlannedSplits(plan.splits), tokenizer))


def test_wrong_ids_in_a_second_format_are_found(folder, tmp_path, tiny_vocab_file, monkeypatch):
    out = tmp_path / "lie"
    config = Config.model_validate(
        {
            "input": {"paths": [str(folder / "3.jsonl")], "on_damage": "warn"},
            "tokenizer": {"file": str(tiny_vocab_file)},
            "output": {"path": str(out), "format": ["parquet", "megatron"]},
        }
    )
    write = MegatronWriter.write

    def swapped(self, batch):
        write(self, batch.take(pa.array(np.arange(batch.num_rows)[::-1])))

    monkeypatch.setattr(MegatronWriter, "write", swapped)
    make(config)
    monkeypatch.undo()
    (problem,) = verify_deep(str(out)).problems
    assert problem.startswith("tokens-00000-of-00001.bin: input_ids of row 0, ")


@pytest.mark.parametrize(
    ("kind", "column"), [("documents", "input_offset"), ("rejects", "detail"), ("statistics", "oov_char_counts")]
)
def test_tables_that_were_changed_with_their_checksums_are_found(folder, kind, column):
    out = folder / "out"
    entries = (LedgerEntry.read(str(out), path.stem) for path in out.glob("_ledger/*.json"))
    entry = next(each for each in entries if each and (each.rejects if kind == "rejects" else each.n_documents))
    file = getattr(entry, kind)
    path = out / file.file
    is_parquet = path.suffix == ".parquet"
    table = pq.read_table(path) if is_parquet else pa.ipc.open_file(path.read_bytes()).read_all()
    at = table.column_names.index(column)
    values = [{"documents": 7, "rejects": "another", "statistics": [9]}[kind], *table[column].to_pylist()[1:]]
    table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    if is_parquet:
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    data = path.read_bytes()
    record = dataclasses.replace(file, n_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    (out / entry_name(entry.split_id)).write_bytes(dataclasses.replace(entry, **{kind: record}).to_json())
    (problem,) = verify_deep(str(out), 1.0).problems
    assert problem.startswith(f"{file.file}: {column} of row 0")
    assert problem.endswith("is not what the input gives")


def test_inputs_that_have_changed_or_gone_are_named(folder):
    (folder / "0.jsonl").write_text('{"text": "other"}')
    (folder / "1.jsonl").unlink()
    problems = verify_deep(str(folder / "out"), 1.0).problems
    assert any("0.jsonl' has changed since the job, so it cannot be read again" in problem for problem in problems)
    assert any("1.jsonl' is not there any more" in problem for problem in problems)
    assert not any("2.jsonl" in problem for problem in problems)


def test_bytes_changed_behind_the_version_are_found(folder):
    path = folder / "0.jsonl"
    times = path.stat()
    path.write_bytes(path.read_bytes().replace(b"mill", b"xill", 1))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    problems = verify_deep(str(folder / "out"), 1.0).problems
    assert any("is read as sha256" in problem for problem in problems)


def test_a_folder_without_shards_cannot_be_done_again(tmp_path):
    (report,) = [verify_deep(str(tmp_path)).problems]
    assert report[0].startswith("cannot tokenize again: ")
