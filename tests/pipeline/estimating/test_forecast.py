# SPDX-License-Identifier: Apache-2.0
"""Forecasts: exact where all of the input was read, and within their bounds where it was not."""

import functools
import gzip
import json
import random
import re
import time
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import shuffling as passes
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.ledger import runs_of
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.estimating import forecast, report, trial
from tokenmill.pipeline.estimating.estimates import Estimate
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.finish import Folder, finish_output
from tokenmill.pipeline.jobs.planning import SHUFFLING_STAGE
from tokenmill.pipeline.tokenizing.tokenize import merge_planned, tokenize_split
from tokenmill.tokenizer import Tokenizer

WORDS = ["the", "mill", "grinds", "text", "玫", "unaffable", "tokens", "zzz", "ing"]


def texts(n, seed=0, longest=60):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=int(longest * chance.random() ** 3))) for _ in range(n)]


def records(n, seed=0, broken=0.1, longest=60):
    chance = random.Random(seed)
    for text in texts(n, seed, longest):
        kind = chance.random() / broken if broken else 1
        if kind < 0.5:
            yield b'{"text": 1}'
        elif kind < 1:
            yield b'{"text": "cut'
        else:
            yield json.dumps({"text": text}).encode()


def write(folder, n=400, files=3, **options):
    for number in range(files):
        (folder / f"{number}.jsonl").write_bytes(b"\n".join(records(n, number, **options)))


def plan(tmp_path, vocab, kind, **sections):
    values = {
        "input": {
            "paths": [str(tmp_path / f"*.{kind}")],
            "split_bytes": 20_000,
            "on_damage": "warn",
            **sections.pop("input", {}),
        },
        "tokenizer": {"file": str(vocab), **sections.pop("tokenizer", {})},
        "output": {"path": str(tmp_path / "out"), **sections.pop("output", {})},
        **sections,
    }
    return planning.plan_job("tokenize", Config.model_validate(values))


def run(planned):
    planning.prepare(planned, "new")
    config, tokenizer = planned.config, Tokenizer.from_str(planned.tokenizer.to_str())
    entries = [tokenize_split(split, config, tokenizer, len(planned.splits)) for split in planned.splits]
    for shard in planned.shards():
        merge_planned(shard, [runs_of(entry) for entry in entries], config, tokenizer)
    finish_output(Folder(config, planned.job, PlannedSplits(planned.splits), tokenizer))


@pytest.fixture
def small_sample(monkeypatch):
    """Lets a forecast read little, whatever the clock says."""
    monkeypatch.setattr(forecast, "SAMPLE_BYTES", 1 << 19)
    monkeypatch.setattr(forecast, "_PROBE_BYTES", 1 << 17)
    monkeypatch.setattr(forecast, "SAMPLE_SECONDS", 1e9)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
@pytest.mark.parametrize("sections", [{}, {"output": {"shuffle": {}}}], ids=["plain", "shuffled"])
def test_what_a_job_does_is_within_the_bounds_of_a_sample(tmp_path, tiny_vocab_file, small_sample, kind, sections):
    """A corpus that is skewed and half broken: the first file is most of it, every second record of one is bad."""
    chance = random.Random(7)
    for number, n in enumerate([30_000, 300, 4000, 9000, 20]):
        broken = 0.5 if number % 2 == 0 else 0.0
        lines = list(records(n, number, broken=broken, longest=chance.choice([20, 200])))
        path = tmp_path / f"{number}.{kind}"
        if kind == "parquet":
            column = [json.loads(line).get("text") if line.endswith(b'"}') else None for line in lines]
            pq.write_table(pa.table({"text": pa.array(column, pa.string())}), path, row_group_size=500)
        else:
            path.write_bytes(gzip.compress(b"\n".join(lines)) if kind.endswith("gz") else b"\n".join(lines))
    planned = plan(
        tmp_path,
        tiny_vocab_file,
        kind,
        input={"paths": [str(tmp_path / f"*.{kind}")], "split_bytes": 1 << 18, "on_damage": "warn"},
        **sections,
    )
    found = forecast.forecast(planned)
    assert not found.is_whole
    assert (1.1 if kind.endswith("gz") else 2) < found.factor < 12  # a compressed file is read in blocks of 1 MiB
    run(planned)
    actual = report.outcome(planned)
    for name in ("n_records", "n_documents", "n_tokens", "n_chars", "rejected", "n_cut_tokens", "n_oov_tokens"):
        assert found.totals[name].low <= actual[name] <= found.totals[name].high, (name, actual[name])
    assert found.totals["n_tokens"].value == pytest.approx(actual["n_tokens"], rel=0.1)
    assert found.shard_bytes["parquet"].value == pytest.approx(actual["bytes.parquet"], rel=0.1)


@pytest.mark.parametrize("job", ["tokenize", "count"])
def test_files_that_are_known_when_they_were_opened_are_counted_not_estimated(
    tmp_path, tiny_vocab_file, small_sample, job
):
    """Files of very different sizes, each a document, and among them a folder of which nothing can be read."""
    folder = tmp_path / "in"
    (folder / "333").mkdir(parents=True)
    for number, text in enumerate(texts(900, longest=4000)):
        (folder / f"{number:03d}.txt").write_text(text, encoding="utf-8")
    for number in range(40):
        (folder / "333" / f"{number}.txt").write_bytes(b"\x7fELF" + bytes(300))
    values = {
        "input": {"paths": [str(folder)], "format": "text", "document": "file", "on_damage": "warn"},
        "tokenizer": {"file": str(tiny_vocab_file)} if job == "tokenize" else {"train": {"vocab_size": 100}},
        "output": {"path": str(tmp_path / "out")},
    }
    values["input"]["split_bytes"] = 1 << 18
    found = forecast.forecast(planning.plan_job(job, Config.model_validate(values)))
    assert not found.is_whole
    exact = {"n_records": 940, "rejected.unreadable_file": 40}
    assert {name: found.totals[name] for name in exact} == {name: Estimate(n, n, n) for name, n in exact.items()}
    for name in ("n_documents", *(["shard_rows"] if job == "tokenize" else [])):
        assert found.totals[name].value == 900
        assert found.totals[name].low <= 900 <= found.totals[name].high
    assert found.totals["rejected"].value == 40
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*.txt"))
    assert found.totals["n_bytes"].value == pytest.approx(n_bytes, rel=0.02)


def test_passes_of_a_shuffle_are_told_and_counted(tmp_path, tiny_vocab_file, monkeypatch):
    write(tmp_path)
    planned = plan(tmp_path, tiny_vocab_file, "jsonl", output={"shuffle": {"shards": 3}})
    (note,) = forecast.forecast(planned).notes
    assert re.fullmatch(r"the shuffle needs about [\d.]+ kB more in _runs/, until the job ends", note)
    monkeypatch.setattr(passes, "FAN_IN", 2)
    monkeypatch.setattr(trial.Watch, "seconds", lambda watch, *stages: float(SHUFFLING_STAGE in stages))
    found = forecast.forecast(planned)
    n = len(passes.plan_passes(len(planned.splits), planned.splits.n_work, planned.config.output.shuffle.run_bytes))
    assert n
    assert found.work.merge_seconds == 1, "a trial of all of the input has these passes, too"
    assert f"; passes before its shards are merged: {n}," in found.notes[0]


def test_a_busy_machine_makes_no_sample_smaller(tmp_path, tiny_vocab_file, small_sample, monkeypatch):
    monkeypatch.setattr(forecast, "SAMPLE_SECONDS", 10.0)
    write(tmp_path, n=10_000)
    planned = plan(tmp_path, tiny_vocab_file, "jsonl")
    alone = forecast.forecast(planned)
    names = ("perf_counter", "monotonic")
    slow = {name: functools.partial(lambda now: 1000 * now(), getattr(time, name)) for name in names}
    clock = SimpleNamespace(**slow, thread_time=time.thread_time)
    monkeypatch.setattr(trial, "time", clock)
    assert forecast.forecast(planned).sample_bytes == alone.sample_bytes


def test_compressed_files_that_expand_more_or_less_than_others_count_by_how_much_they_expand(
    tmp_path, tiny_vocab_file, small_sample, monkeypatch
):
    for number, (longest, times) in enumerate([(8000, 4), (60, 1)]):
        found = (json.dumps({"text": text * times}).encode() for text in texts(1_200_000 // longest, number, longest))
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(b"\n".join(found)))
    planned = plan(tmp_path, tiny_vocab_file, "jsonl.gz", input={"split_bytes": 1 << 30})
    monkeypatch.setattr(forecast, "SAMPLE_BYTES", int(0.75 * planned.splits.n_work))
    found = forecast.forecast(planned)
    assert not found.is_whole
    n_bytes = sum(len(gzip.decompress(path.read_bytes())) for path in tmp_path.glob("*.gz"))
    assert found.totals["n_bytes"].value == pytest.approx(n_bytes, rel=0.01)


def test_a_vocabulary_that_is_not_trained_yet_is_a_guess_unless_all_is_read(tmp_path, small_sample):
    write(tmp_path, n=20_000, files=2)
    values = {
        "input": {"paths": [str(tmp_path / "*.jsonl")], "split_bytes": 1 << 18},
        "tokenizer": {"train": {"vocab_size": 60}},
        "output": {"path": str(tmp_path / "out")},
    }
    found = forecast.forecast(planning.plan_job("run", Config.model_validate(values)))
    assert any("guess" in note for note in found.notes)
    tokens = found.totals["n_tokens"]
    assert tokens.low < 0.98 * tokens.value
    counted = forecast.forecast(planning.plan_job("count", Config.model_validate(values)))
    assert counted.totals["n_documents"].value == pytest.approx(found.totals["n_documents"].value, rel=0.05)
    assert "n_tokens" not in counted.totals
    assert counted.shard_bytes == {}


def test_advice_names_the_setting_and_the_number(tmp_path, tiny_vocab_file):
    write(tmp_path, broken=0.2)
    padded = {"padding": {"length": 200}, "truncation": {"max_length": 10}}
    limited = {"max_rejected_fraction": 0.1}
    found = forecast.forecast(plan(tmp_path, tiny_vocab_file, "jsonl", tokenizer=padded, input=limited))
    given = {each.setting: each.reason for each in report.advise(found, 2)}
    assert "the job would fail" in given["input.max_rejected_fraction"]
    assert "cut off" in given["tokenizer.truncation"]
    assert "padding" in given["output.packing"]
    assert "'z'" in given["tokenizer"]
    found = forecast.forecast(plan(tmp_path, tiny_vocab_file, "jsonl", input={"on_damage": "fail"}))
    given = {each.setting: each.reason for each in report.advise(found, 2)}
    assert "of some files more than the limit: the job would fail" in given["input.max_rejected_per_file"]


def test_advice_of_a_good_config_is_empty(tmp_path, tiny_vocab):
    write(tmp_path, broken=0)
    folder = tmp_path / "v"
    folder.mkdir()
    tokens = [*tiny_vocab, "z", "##z", "i", "##n", "##g", "n", "g"]
    (folder / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    assert report.advise(forecast.forecast(plan(tmp_path, folder / "vocab.txt", "jsonl")), 2) == []
