# SPDX-License-Identifier: Apache-2.0
"""Counting: every word once, in one partition, however the input is cut, however often a step is repeated."""

import dataclasses
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import counting, schemas
from pipeline.config import InputConfig
from pipeline.counting import (
    N_PARTITIONS,
    PartitionCounts,
    SplitCounts,
    Totals,
    add_up,
    count_key,
    count_split,
    finish_counts,
    load_counts,
    load_finished,
    merge_partition,
    partition_of,
    partitions_of,
)
from pipeline.ledger import BooksError
from pipeline.splits import plan_splits
from tokenizer import Tokenizer

TOKENIZER = Tokenizer.untrained_bert()
WORDS = ["mill", "token", "naïve", "字", "a" * 200, "x1", "é"]


def write_corpus(folder, n_documents=60):
    folder.mkdir(parents=True, exist_ok=True)
    expected: Counter[bytes] = Counter()
    with (folder / "a.jsonl").open("w", encoding="utf-8") as file:
        for i in range(n_documents):
            words = [WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(i % 9)]
            file.write(json.dumps({"text": " ".join(words)}, ensure_ascii=False) + "\n")
            expected.update(w.replace("ï", "i").replace("é", "e").encode() for w in words)
        file.write('{"text": null}\n\nno json\n')
    return InputConfig(paths=[str(folder / "*.jsonl")], split_bytes=700), dict(expected)


def count_all(config, output, *, key="k"):
    splits = plan_splits(config, "salt")
    counts = [count_split(split, config, output, TOKENIZER, key) for split in splits]
    partitions = [merge_partition(p, N_PARTITIONS, counts, output) for p in range(N_PARTITIONS)]
    return splits, counts, finish_counts(counts, partitions, output, key)


def as_dict(table: pa.Table) -> dict[bytes, int]:
    assert table.schema.equals(schemas.WORD_COUNTS)
    return dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))


def artifact(output) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (output / "counts").iterdir()}


def test_counts_every_word_once_and_balances(tmp_path):
    config, expected = write_corpus(tmp_path / "in")
    splits, _, partitions = count_all(config, str(tmp_path / "out"))
    assert len(splits) > 3
    table = load_counts(partitions, str(tmp_path / "out"))
    assert as_dict(table) == expected
    assert table["word"].to_pylist() == sorted(expected)
    report = json.loads((tmp_path / "out/counts/counts.json").read_text())
    assert report["totals"] | {"n_chars": 0, "n_text_bytes": 0} == {
        "n_records": 62,
        "n_documents": 60,
        "rejected": {"not_json": 1, "null_text": 1},
        "n_bytes": (tmp_path / "in/a.jsonl").stat().st_size,
        "n_document_bytes": (tmp_path / "in/a.jsonl").stat().st_size - len('{"text": null}\n\nno json\n'),
        "n_rejected_bytes": len('{"text": null}\nno json\n'),
        "n_skipped_bytes": 1,
        "n_text_bytes": 0,
        "n_chars": 0,
        "n_words": sum(expected.values()),
        "n_distinct_words": len(expected),
    }
    assert report["inputs"] == [{"name": "a.jsonl", "n_bytes": (tmp_path / "in/a.jsonl").stat().st_size}]
    assert sum(counts_.n_words for counts_ in partitions) == sum(expected.values())
    assert not (tmp_path / "out/_tmp").exists() or not any((tmp_path / "out/_tmp").iterdir())


def test_artifact_is_text_that_any_reader_understands(tmp_path):
    config, expected = write_corpus(tmp_path / "in")
    count_all(config, str(tmp_path / "out"))
    rows = {}
    for path in sorted((tmp_path / "out/counts").glob("*.parquet")):
        table = pq.read_table(path)
        assert table.schema.remove_metadata().equals(counting.ARTIFACT)
        rows |= dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))
    assert rows == {word.decode(): n for word, n in expected.items()}


def test_same_bytes_for_other_splits_and_emptied_counters(tmp_path, monkeypatch):
    config, _ = write_corpus(tmp_path / "in")
    count_all(config, str(tmp_path / "one"))
    count_all(config.model_copy(update={"split_bytes": 1 << 20}), str(tmp_path / "two"))
    assert artifact(tmp_path / "one") == artifact(tmp_path / "two")
    # A counter that is emptied after each batch, and a merge that adds up batch by batch.
    monkeypatch.setattr(counting, "MAX_COUNTER_BYTES", 0)
    monkeypatch.setattr(counting, "_MERGE_BYTES", 0)
    count_all(config, str(tmp_path / "three"))
    assert artifact(tmp_path / "one") == artifact(tmp_path / "three")


def test_a_committed_split_is_not_read_again(tmp_path, monkeypatch):
    config, _ = write_corpus(tmp_path / "in")
    splits, counts, _ = count_all(config, str(tmp_path / "out"))

    def refuse(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(counting, "read_split", refuse)
    output = str(tmp_path / "out")
    assert [count_split(split, config, output, TOKENIZER, "k") for split in splits] == counts
    with pytest.raises(AssertionError, match="read again"):
        count_split(splits[0], config, output, TOKENIZER, "another key")
    changed = dataclasses.replace(
        splits[0], pieces=tuple(dataclasses.replace(p, version="new") for p in splits[0].pieces)
    )
    with pytest.raises(AssertionError, match="read again"):
        count_split(changed, config, output, TOKENIZER, "k")
    (tmp_path / "out" / counts[1].file.file).write_bytes(b"damaged")
    with pytest.raises(AssertionError, match="read again"):
        count_split(splits[1], config, output, TOKENIZER, "k")
    (tmp_path / "out/_counts" / f"{splits[2].id}.json").write_bytes(b"{}")
    with pytest.raises(AssertionError, match="read again"):
        count_split(splits[2], config, output, TOKENIZER, "k")


def test_finished_counts_are_known_again(tmp_path):
    config, _ = write_corpus(tmp_path / "in")
    output = str(tmp_path / "out")
    assert load_finished(plan_splits(config, "salt"), output, "k") is None
    splits, _, partitions = count_all(config, output)
    counting.delete_staged(output)
    assert [p.name for p in (tmp_path / "out/_counts").iterdir()] == ["done.json"]
    assert load_finished(splits, output, "k") == partitions
    assert load_finished(splits, output, "other") is None
    assert load_finished(splits[1:], output, "k") is None
    (tmp_path / "out" / partitions[3].file.file).unlink()
    assert load_finished(splits, output, "k") is None


def test_a_lost_word_fails_the_job(tmp_path):
    config, _ = write_corpus(tmp_path / "in")
    output = str(tmp_path / "out")
    splits, counts, partitions = count_all(config, output)
    # One split missing where partitions were merged.
    short = [merge_partition(p, N_PARTITIONS, counts[1:], output) for p in range(N_PARTITIONS)]
    with pytest.raises(BooksError, match=r"counts: the words of all splits are \d+, the sum of all counts is \d+"):
        finish_counts(counts, short, output, "k")
    lying = dataclasses.replace(counts[0], totals=dataclasses.replace(counts[0].totals, n_records=1))
    n_words = sum(split.totals.n_words for split in counts)
    assert n_words == sum(p.n_words for p in partitions)
    with pytest.raises(BooksError, match="counts: records read"):
        finish_counts([lying, *counts[1:]], partitions, output, "k")
    assert len(splits) == len(counts)


def test_what_stops_a_count_leaves_nothing(tmp_path):
    config, _ = write_corpus(tmp_path / "in")
    split = plan_splits(config, "salt")[0]
    heard = []

    def stop(*numbers):
        heard.append(numbers)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_split(split, config, str(tmp_path / "out"), TOKENIZER, "k", on_batch=stop)
    assert len(heard) == 1
    n_bytes, n_documents, n_rejected, n_tokens = heard[0]
    assert n_bytes >= 700
    assert n_documents > 5
    assert (n_rejected, n_tokens) == (0, 0)
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


def test_empty_input(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n")
    config = InputConfig(paths=[str(tmp_path / "a.jsonl")])
    _, _, partitions = count_all(config, str(tmp_path / "out"))
    assert as_dict(load_counts(partitions, str(tmp_path / "out"))) == {}
    assert load_counts([], str(tmp_path / "out")).num_rows == 0


def test_descriptors_survive_json(tmp_path):
    config, _ = write_corpus(tmp_path / "in")
    _, counts, partitions = count_all(config, str(tmp_path / "out"))
    assert SplitCounts.from_json(counts[0].to_json()) == counts[0]
    assert PartitionCounts.from_json(partitions[0].to_json()) == partitions[0]
    with pytest.raises(ValueError, match="not a descriptor of format 1"):
        SplitCounts.from_json(partitions[0].to_json().replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(ValueError, match="not a descriptor"):
        SplitCounts.from_json("[]")


def test_key_follows_what_decides_a_count():
    config = InputConfig(paths=["a"])
    key = count_key(config, TOKENIZER.to_str())
    assert key == count_key(InputConfig(paths=["b"], split_bytes=1), TOKENIZER.to_str())
    assert key != count_key(InputConfig(paths=["a"], text_field="body"), TOKENIZER.to_str())
    assert key != count_key(config, Tokenizer.untrained_bert(lowercase=False).to_str())


def test_totals_add_up():
    one = Totals(n_records=3, n_documents=1, rejected={"b": 1, "a": 1}, n_bytes=5)
    two = Totals(n_records=2, n_documents=1, rejected={"b": 1}, n_bytes=7, n_words=4)
    both = Totals(n_records=5, n_documents=2, rejected={"a": 1, "b": 2}, n_bytes=12, n_words=4)
    assert one + two == two + one == both
    assert list((two + one).rejected) == ["a", "b"]


def slow_partition(word: bytes, n_partitions: int) -> int:
    mask = (1 << 64) - 1
    state = len(word)
    prefix = word[:32].ljust(32, b"\0")
    for i in range(0, 32, 8):
        state = (state ^ int.from_bytes(prefix[i : i + 8], "little")) * 0xFF51AFD7ED558CCD & mask
        state ^= state >> 33
        state = state * 0xC4CEB9FE1A85EC53 & mask
        state ^= state >> 29
    return state % n_partitions


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50), st.integers(0, 5))
def test_partition_is_a_function_of_the_bytes(words, n_partitions, skip):
    array = pa.array([b"skipped"] * skip + words, pa.large_binary()).slice(skip)
    assert partition_of(array, n_partitions).tolist() == [slow_partition(word, n_partitions) for word in words]


def test_partitions_stay_as_they_are_across_versions():
    words = pa.array([b"", b"a", b"the", "字".encode(), b"x" * 31, b"x" * 32, b"x" * 33], pa.large_binary())
    assert partition_of(words, 16).tolist() == [0, 6, 12, 8, 11, 0, 15]


def test_partitions_are_even():
    words = pa.array([f"word{i}".encode() for i in range(16_000)], pa.large_binary())
    sizes = np.bincount(partition_of(words, 16), minlength=16)
    assert sizes.min() > 850
    assert sizes.max() < 1150


@given(st.lists(st.dictionaries(st.binary(max_size=6), st.integers(1, 9)), max_size=4), st.integers(1, 4))
def test_partitioning_and_adding_up_lose_nothing(parts, n_partitions):
    expected: Counter[bytes] = Counter()
    tables = [schemas.WORD_COUNTS.empty_table()]
    for part in parts:
        expected.update(part)
        arrays = [pa.array(sorted(part), pa.large_binary()), pa.array([part[w] for w in sorted(part)], pa.int64())]
        whole = pa.table(arrays, schema=schemas.WORD_COUNTS)
        batches = list(partitions_of(whole, n_partitions))
        assert len(batches) == n_partitions
        tables += [pa.Table.from_batches([batch]) for batch in batches]
    merged = add_up(tables)
    assert as_dict(merged) == dict(expected)
    assert merged["word"].to_pylist() == sorted(expected)
