# SPDX-License-Identifier: Apache-2.0
"""What is read of a corpus: about as much as was asked for, from all over, whole records, none twice."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.estimating import places
from tokenmill.pipeline.estimating.places import _BLOCK_BYTES, _Blocks
from tokenmill.pipeline.input import streams
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits


def read(samples, config):
    return [
        text
        for sample in samples
        for batch in read_split(sample.split, config)
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

    def make(suffix):
        texts = []
        for name, n in (("a", 120_000), ("b", 3), ("c", 1), ("d", 90_000), *((f"e{i:02}", 300) for i in range(30))):
            own = lines(name, n)
            put(tmp_path / f"{name}{suffix}", own)
            texts += own
        return InputConfig(paths=[str(tmp_path / f"*{suffix}")], split_bytes=1 << 20), texts

    return make


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_records_come_whole_once_and_from_all_over(corpus, tmp_path, suffix):
    config, texts = corpus(suffix)
    splits = plan_splits(config, "salt")
    asked = splits.n_work // 8
    samples = places.take(places.choose(splits, config, asked, asked // 3), config, str(tmp_path / "excerpts"))
    found = read(samples, config)
    assert len(samples) >= 3
    assert len(set(found)) == len(found)
    assert set(found) <= set(texts)
    assert len(found) == pytest.approx(len(texts) / 8, rel=0.1)
    for name in ("a", "d"):
        numbers = [int(text.split("-")[1]) for text in found if text.startswith(f"{name}-")]
        assert numbers == sorted(numbers)
        of = 120_000 if name == "a" else 90_000
        assert len(numbers) == pytest.approx(of / 8, rel=0.2)
        gaps = [after - before for before, after in zip([0, *numbers], [*numbers, of], strict=True)]
        assert max(gaps) < of / 4


def test_the_choice_depends_on_nothing_but_the_plan(corpus):
    config, _ = corpus(".txt")
    splits = plan_splits(config, "salt")
    assert places.choose(splits, config, 1 << 18, 1 << 16) == places.choose(splits, config, 1 << 18, 1 << 16)


def test_a_compressed_file_is_decompressed_only_as_far_as_it_pays(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "REACH", 2)
    put(tmp_path / "a.txt.gz", lines("a", 400_000))
    config = InputConfig(paths=[str(tmp_path / "*.gz")])
    splits = plan_splits(config, "salt")
    asked = splits.n_work // 8
    (sample,) = places.take(places.choose(splits, config, asked, asked), config, str(tmp_path / "excerpts"))
    (portion,) = sample.portions
    assert portion.source == splits[0].pieces[0]
    assert portion.n_decompressed < 0.35 * portion.source.n_bytes
    assert portion.planned(portion.piece.n_bytes, 0) == pytest.approx(portion.n_meant, rel=0.5)


def test_a_file_that_expands_without_end_is_left(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\n" * 40_000_000))
    config = InputConfig(paths=[str(tmp_path / "*.gz")])
    splits = plan_splits(config, "salt")
    asked = splits.n_work // 4
    (sample,) = places.take(places.choose(splits, config, asked, asked), config, str(tmp_path / "excerpts"))
    (portion,) = sample.portions
    assert portion.n_decompressed < portion.source.n_bytes
    assert portion.piece.n_bytes < 2 * places.MOST_KEPT * asked


def test_a_damaged_file_gives_what_is_before_the_damage(tmp_path):
    put(tmp_path / "a.txt.gz", lines("a", 200_000))
    whole = (tmp_path / "a.txt.gz").read_bytes()
    (tmp_path / "a.txt.gz").write_bytes(whole[: len(whole) // 2])
    config = InputConfig(paths=[str(tmp_path / "*.gz")])
    splits = plan_splits(config, "salt")
    asked = splits.n_work // 4
    samples = places.take(places.choose(splits, config, asked, asked), config, str(tmp_path / "excerpts"))
    assert 0 < len(read(samples, config)) < 50_000


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=200), st.floats(0.01, 1), st.lists(st.integers(1, 90_000)))
def test_blocks_keep_the_same_records_whatever_the_chunks(lengths, share, cuts):
    records = [b"%d " % i + b"x" * n + b"\n" for i, n in enumerate(lengths)]
    data = b"".join(records)
    blocks = _Blocks(share, b"\n")
    kept, start = [], 0
    for size in [*cuts, len(data)]:
        kept += blocks.keep(data[start : start + size])
        start += size
    once = b"".join(_Blocks(share, b"\n").keep(data))
    assert b"".join(kept) == once
    assert set(once.splitlines(keepends=True)) <= set(records)
    if share == 1 or (len(data) < _BLOCK_BYTES // 2 and share > 0.9):
        assert once == data


def test_everything_as_it_is_planned(corpus):
    config, texts = corpus(".txt")
    splits = plan_splits(config, "salt")
    assert read(places.whole(splits), config) == texts


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_of_a_file_that_is_read_whole_the_beginning_is_taken(tmp_path, suffix):
    put(tmp_path / f"a{suffix}", ["text", *lines("a", 300_000)])
    config = InputConfig(paths=[str(tmp_path / f"*{suffix}")])
    splits = plan_splits(config, "salt")
    asked = splits.n_work // 4
    (sample,) = places.take(places.choose(splits, config, asked, asked), config, str(tmp_path / "excerpts"))
    (portion,) = sample.portions
    batches = list(read_split(sample.split, config, limits={0: portion.quota}))
    assert [batch.rejects for batch in batches] == [None] * len(batches)
    n_read = sum(batch.n_bytes for batch in batches)
    # As many bytes as are meant, and the rest of a chunk.
    assert 0 <= portion.planned(n_read, 0) - portion.n_meant < portion.ratio * streams.CHUNK_BYTES * 1.1
    assert portion.n_meant == pytest.approx(splits[0].n_bytes / 4, rel=0.1)
