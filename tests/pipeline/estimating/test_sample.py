# SPDX-License-Identifier: Apache-2.0
"""What is read of a corpus: about as much as was asked for, from all over, whole records, none twice."""

import gzip
from dataclasses import replace

import pytest

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.estimating import sample
from tokenmill.pipeline.estimating.estimates import Scale, Unit
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits


def read(splits, config):
    return [
        text
        for split in splits
        for batch in read_split(split, config, 1 << 16)
        for text in batch.documents.column("text").to_pylist()
    ]


def lines(name, n, size=40):
    return [f"{name}-{i:06d}-".ljust(10 + (i * 7919) % size, "x") for i in range(n)]


def put(path, texts):
    data = "".join(f"{text}\n" for text in texts).encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)


@pytest.fixture
def corpus(tmp_path):
    """Returns a config and all texts of files of very different sizes, 8 MB together."""

    def make(suffix, split_bytes=1 << 20):
        texts = []
        for name, n in (("a", 120_000), ("b", 3), ("c", 1), ("d", 90_000), *((f"e{i:02}", 300) for i in range(30))):
            own = lines(name, n)
            put(tmp_path / f"{name}{suffix}", own)
            texts += own
        return InputConfig(paths=[str(tmp_path / f"*{suffix}")], split_bytes=split_bytes), texts

    return make


@pytest.mark.parametrize("split_bytes", [1 << 16, 1 << 20, 1 << 30])
def test_records_come_whole_once_and_from_all_over(corpus, split_bytes):
    config, texts = corpus(".txt", split_bytes)
    splits = plan_splits(config, "salt")
    asked = splits.n_work // 8
    excerpts = sample.choose(splits, config, asked)
    assert excerpts == sample.choose(splits, config, asked)
    trial = sample.together(excerpts, asked // 3, splits.fields)
    found = read(trial, config)
    assert 3 <= len(trial) < len(excerpts) <= sample.N_PLACES
    assert len(set(found)) == len(found)
    assert set(found) <= set(texts)
    assert len(found) == pytest.approx(len(texts) / 8, rel=0.15)
    for name, of in (("a", 120_000), ("d", 90_000)):
        numbers = [int(text.split("-")[1]) for text in found if text.startswith(f"{name}-")]
        assert numbers == sorted(numbers)
        assert len(numbers) == pytest.approx(of / 8, rel=0.2)
        gaps = [after - before for before, after in zip([0, *numbers], [*numbers, of], strict=True)]
        assert max(gaps) < of / 10


@pytest.mark.parametrize("suffix", [".txt.gz", ".csv", ".csv.gz"])
def test_of_a_large_file_that_is_read_from_its_beginning_the_beginning_is_taken(tmp_path, suffix):
    texts = lines("a", 400_000)
    put(tmp_path / f"a{suffix}", ["text", *texts] if "csv" in suffix else texts)
    config = InputConfig(paths=[str(tmp_path / f"*{suffix}")])
    splits = plan_splits(config, "salt")
    (excerpt,) = sample.choose(splits, config, 2 << 20)
    (piece,) = excerpt.pieces
    assert (excerpt.n_places, piece.limit) == (64, 3 << 19), "and half a block"
    assert (replace(piece, limit=0),) == splits[0].pieces
    (split,) = sample.together([excerpt], 1 << 20, "")
    batches = list(read_split(split, config, 1 << 18))
    assert all(batch.rejects is None for batch in batches)
    n_bytes, n_records = (sum(getattr(batch, name) for batch in batches) for name in ("n_bytes", "n_records"))
    assert 3 << 19 <= n_bytes < 3 << 20
    whole = len("".join(f"{text}\n" for text in texts))
    assert excerpt.n_planned(n_bytes, n_records) / splits.n_bytes == pytest.approx(n_bytes / whole, rel=0.1)


def test_damage_ends_what_is_looked_at(tmp_path):
    put(tmp_path / "a.txt.gz", lines("a", 200_000))
    whole = (tmp_path / "a.txt.gz").read_bytes()
    (tmp_path / "a.txt.gz").write_bytes(whole[: len(whole) // 2])
    config = InputConfig(paths=[str(tmp_path / "*.gz")])
    splits = plan_splits(config, "salt")
    excerpts = sample.choose(splits, config, splits.n_work // 4)
    found = read(sample.together(excerpts, 1 << 20, ""), config)
    assert 0 < len(found) < 100_000


def test_files_of_the_most_different_sizes_stand_for_themselves_or_for_their_like(tmp_path):
    """A compressed file is nearly all of the corpus; of the small ones together the places tell the rest."""
    put(tmp_path / "a.txt.gz", lines("a", 300_000))
    for i in range(60):
        put(tmp_path / f"b{i:02}.txt", lines("b", 200))
    config = InputConfig(paths=[str(tmp_path / "*")], split_bytes=1 << 14)
    splits = plan_splits(config, "salt")
    excerpts = sample.choose(splits, config, splits.n_work // 3)
    parts = [excerpt.stands_for for excerpt in excerpts]
    assert sum(parts) == pytest.approx(splits.n_bytes)
    assert parts[0] == (tmp_path / "a.txt.gz").stat().st_size
    units = [
        Unit(excerpt.n_bytes, excerpt.n_bytes, {"n": excerpt.n_bytes}, part)
        for excerpt, part in zip(excerpts, parts, strict=True)
    ]
    assert Scale(units, splits.n_bytes).estimate("n").value == pytest.approx(splits.n_bytes, rel=1e-6)


def test_only_splits_with_a_place_are_looked_at(tmp_path, monkeypatch):
    for i in range(3000):
        (tmp_path / f"{i:04}.txt").write_bytes(b"a line\n" * 20)
    config = InputConfig(paths=[str(tmp_path / "*.txt")], split_bytes=1 << 10)
    splits = plan_splits(config, "salt")
    n_looked_at = 0
    finer = sample._finer

    def count(*args):
        nonlocal n_looked_at
        n_looked_at += 1
        return finer(*args)

    monkeypatch.setattr(sample, "_finer", count)
    assert len(splits) > 300
    assert len(sample.choose(splits, config, 1 << 14)) == n_looked_at == sample.N_PLACES
