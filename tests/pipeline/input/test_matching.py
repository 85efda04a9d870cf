# SPDX-License-Identifier: Apache-2.0
"""Listings of many files, and plans that open only some of them."""

import gzip
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import matching, splitting
from tokenmill.pipeline.input.matching import Listing, NamedFiles, are_distinct
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.running.progress import Progress, reporting_to

NAMES = st.text(st.characters(exclude_categories=[], exclude_characters="\0"), min_size=1, max_size=6)


@given(st.lists(NAMES, unique=True), st.integers(1, 4), st.integers(1, 5))
def test_files_come_in_the_order_of_their_names_from_any_listings(names, n_listings, chunk):
    files = [storage.FileStat(f"x/{name}", i, f"{i}-v") for i, name in enumerate(names)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_CHUNK_FILES", chunk)
        parts = [Listing(files[i::n_listings]) for i in range(n_listings)]
        named = NamedFiles([(part, lambda path: path[2:]) for part in parts])
    assert len(named) == len(files)
    assert [*named] == sorted((file.path[2:], file) for file in files) == [*named]


@given(st.lists(st.text(max_size=2)))
def test_texts_are_distinct_if_none_occurs_twice(texts):
    assert are_distinct(texts) == (len({*texts}) == len(texts))


@pytest.fixture
def opened(monkeypatch):
    """The paths of files that were opened; a plan opens four."""
    paths = []

    def open_read(path):
        paths.append(path)
        return original(path)

    original = storage.open_read
    monkeypatch.setattr(splitting, "MOST_LOOKED_AT", 4)
    monkeypatch.setattr(splitting, "_GROUP_FILES", 5)
    monkeypatch.setattr(storage, "open_read", open_read)
    return paths


DATA = b'{"text": "the mill"}\n' * 3
SETTINGS = [
    {}, {"format": "jsonl"}, {"format": "text", "document": "file"}, {"encoding": "auto"}, {"encoding": "latin-1"},
    {"compression": "none"},
]  # fmt: skip


def corpus(tmp_path, n=24):
    for i, suffix in zip(range(n), itertools.cycle(["jsonl", "jsonl.gz", "JSONL", "txt"]), strict=False):
        (tmp_path / f"a.b-{i:03d}.{suffix}").write_bytes(gzip.compress(DATA) if suffix.endswith("gz") else DATA)


def plan(tmp_path, **settings):
    return plan_splits(InputConfig(paths=[str(tmp_path / "*")], split_bytes=100, **settings), "salt")


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_plan_by_names_is_that_of_looking_at_each_file(tmp_path, monkeypatch, opened, settings):
    corpus(tmp_path)
    by_name = plan(tmp_path, **settings)
    assert len(opened) == 4
    monkeypatch.setattr(splitting, "MOST_LOOKED_AT", 100)
    assert by_name == plan(tmp_path, **settings)
    assert len(opened) == 28


def test_files_whose_names_do_not_say_enough_are_opened(tmp_path, opened):
    corpus(tmp_path)
    for name, data in (("x.json", b"[" + DATA[:-1].split(b"\n")[0] + b"]"), ("x.csv", b"text\na\n")):
        (tmp_path / name).write_bytes(data)
    formats = {piece.name: piece.format for split in plan(tmp_path) for piece in split.pieces}
    assert (formats["x.json"], formats["x.csv"]) == ("json", "csv")
    assert {path.rpartition("/")[2] for path in opened} >= {"x.json", "x.csv"}
    assert len(opened) == 4 + 2


def test_if_names_say_something_else_than_the_files_opened_all_are_but_none_twice(tmp_path, opened, monkeypatch):
    corpus(tmp_path)
    (tmp_path / "a.b-000.jsonl").write_bytes(gzip.compress(DATA))
    watched, counts, open_read = Progress(), [], storage.open_read

    def counted(path):
        counts.append(watched.snapshot("opening files").n_done)
        return open_read(path)

    monkeypatch.setattr(storage, "open_read", counted)
    with reporting_to(watched):
        assert {piece.name: piece.compression for piece in plan(tmp_path)[0].pieces}["a.b-000.jsonl"] == "gzip"
    assert len({*opened}) == len(opened) == 24
    assert counts == sorted(counts)
    shown = watched.snapshot("opening files")
    assert (shown.n_done, shown.n_planned) == (24, 24)
    (tmp_path / "a.b-000.jsonl").write_bytes(DATA.decode().encode("utf-16"))
    with pytest.raises(ValueError, match=r"a.b-000.jsonl' looks like utf-16-le"):
        plan(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(DATA), r"a.b-002.JSONL' is compressed with gzip, which its name does not say"),
        (DATA.decode().encode("utf-16"), r"a.b-002.JSONL' looks like utf-16-le"),
    ],
)
def test_a_worker_refuses_a_file_that_was_planned_by_a_wrong_name(tmp_path, opened, data, message):
    corpus(tmp_path)
    (tmp_path / "a.b-002.JSONL").write_bytes(data)
    config = InputConfig(paths=[str(tmp_path / "*")], split_bytes=100)
    splits = plan_splits(config, "")
    batches = (batch for split in splits for batch in read_split(split, config))
    with pytest.raises(ValueError, match=f"{message}.*, or set input.on_damage: warn"):
        list(batches)
    config = config.model_copy(update={"on_damage": "warn"})
    found = [batch for split in plan_splits(config, "") for batch in read_split(split, config)]
    assert not any("\0" in text for batch in found for text in batch.documents.column("text").to_pylist())
    reject, *_ = (row for batch in found if batch.rejects for row in batch.rejects.to_pylist())
    assert (reject["reason"], reject["n_bytes"]) == ("unreadable_file", min(100, len(data)))
    assert re.search(message, f"{reject['source']}' {reject['detail']}")
