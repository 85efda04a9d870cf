# SPDX-License-Identifier: Apache-2.0
"""Plans: which files, in what order, cut where, with which ids; and what is refused."""

import gzip
import os
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.input import InputConfig
from pipeline.input.splitting import MAX_PIECES, plan_splits
from pipeline.splits import Piece, Split


def write(path, n_bytes=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * (n_bytes - 1) + b"\n" if n_bytes else b"")
    return path


def plan(*patterns, salt="salt", **options):
    return plan_splits(InputConfig(paths=[str(pattern) for pattern in patterns], **options), salt)


def describe(splits):
    return [[(piece.name, piece.start, piece.stop) for piece in split.pieces] for split in splits]


def test_large_files_are_cut_and_small_ones_grouped_in_order(tmp_path):
    for name, n_bytes in {"a": 40, "b": 60, "c": 10, "d": 250, "e": 100, "f": 99, "g": 0, "h": 2}.items():
        write(tmp_path / f"{name}.txt", n_bytes)
    splits = plan(tmp_path / "*.txt", split_bytes=100)
    assert describe(splits) == [
        [("a.txt", 0, 40), ("b.txt", 0, 60)],
        [("c.txt", 0, 10)],
        [("d.txt", 0, 100)],
        [("d.txt", 100, 200)],
        [("d.txt", 200, 250)],
        [("e.txt", 0, 100)],
        [("f.txt", 0, 99), ("g.txt", 0, 0)],
        [("h.txt", 0, 2)],
    ]
    assert [split.index for split in splits] == list(range(8))
    assert [split.n_bytes for split in splits] == [100, 10, 100, 100, 50, 100, 99, 2]


def test_whole_files_are_never_cut(tmp_path):
    write(tmp_path / "a.txt", 250)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(os.urandom(300)))
    assert len(plan(tmp_path / "a.txt", split_bytes=100, document="file")) == 1
    (split,) = plan(tmp_path / "b.txt.gz", split_bytes=100)
    (piece,) = split.pieces
    assert (piece.compression, piece.start, piece.stop) == ("gzip", 0, piece.n_bytes)
    assert split.n_bytes > 300


def test_parquet_is_cut_into_runs_of_row_groups(tmp_path):
    sizes = [1000, 1000, 5000, 10, 10, 2500]
    table = pa.table({"text": ["x" * size for size in sizes], "other": [b"y" * 9000] * 6})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1, use_dictionary=False, write_statistics=False)
    splits = plan(tmp_path / "a.parquet", split_bytes=2600)
    assert describe(splits) == [
        [("a.parquet", 0, 2)],
        [("a.parquet", 2, 3)],
        [("a.parquet", 3, 5)],
        [("a.parquet", 5, 6)],
    ]
    assert 2000 <= splits[0].n_bytes < 2200  # the text, not the other column
    for name in ("b", "c"):
        pq.write_table(table.slice(3, 2), tmp_path / f"{name}.parquet")
    assert len(plan(tmp_path / "b.parquet", tmp_path / "c.parquet")) == 1


def test_many_tiny_files_are_more_than_one_split(tmp_path, monkeypatch):
    for i in range(5):
        write(tmp_path / f"{i}.txt", 1)
    monkeypatch.setattr("pipeline.input.splitting.MAX_PIECES", 2)
    assert [len(split.pieces) for split in plan(tmp_path / "*.txt")] == [2, 2, 1]
    assert MAX_PIECES >= 1000


def test_files_are_ordered_by_name_and_read_once(tmp_path):
    for name in ("b/x.txt", "a/y.txt", "a/x.txt", "c.txt"):
        write(tmp_path / name)
    (split,) = plan(tmp_path / "b" / "*.txt", tmp_path / "a" / "*", tmp_path / "**" / "*.txt", tmp_path / "a" / "x.txt")
    paths = [os.path.relpath(piece.path, tmp_path) for piece in split.pieces]
    assert paths == ["c.txt", "a/x.txt", "b/x.txt", "a/y.txt"]
    assert [piece.name for piece in split.pieces] == ["c.txt", "x.txt", "x.txt", "y.txt"]


@pytest.mark.parametrize(
    "pattern, name",
    [
        ("one/two/a.txt", "a.txt"),
        ("one/two/*.txt", "a.txt"),
        ("one/t*/a.txt", "two/a.txt"),
        ("one/**/a.txt", "two/a.txt"),
        ("**/a.txt", "one/two/a.txt"),
        ("./one//two/*.txt", "a.txt"),
    ],
)
def test_names_are_relative_to_the_literal_directory(tmp_path, monkeypatch, pattern, name):
    write(tmp_path / "one" / "two" / "a.txt")
    monkeypatch.chdir(tmp_path)
    assert [piece.name for piece in plan(pattern)[0].pieces] == [name]
    assert [piece.name for piece in plan(tmp_path / pattern)[0].pieces] == [name]


def test_a_name_with_glob_characters_is_taken_literally(tmp_path):
    write(tmp_path / "d[1]" / "a[1].txt")
    write(tmp_path / "d1" / "a1.txt")
    assert describe(plan(tmp_path / "d[1]" / "a[1].txt")) == [[("a[1].txt", 0, 10)]]


def test_ids_depend_on_what_is_read_and_on_nothing_else(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        for name in ("a.txt", "b.txt"):
            write(directory / name, 250)
    ids = [split.id for split in plan(here / "*.txt", split_bytes=100)]
    assert len(set(ids)) == 6
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in ids)
    os.utime(there / "a.txt", (0, 0))
    assert [split.id for split in plan(there / "*.txt", split_bytes=100)] == ids
    assert [split.id for split in plan(here / "b.txt", split_bytes=100)] == ids[3:]
    assert not set(ids) & {split.id for split in plan(here / "*.txt", split_bytes=100, salt="other")}
    assert not set(ids) & {split.id for split in plan(here / "*.txt", split_bytes=99)}
    assert not set(ids) & {split.id for split in plan(here / "*.txt", split_bytes=100, format="jsonl")}
    write(there / "a.txt", 251)
    changed = [split.id for split in plan(there / "*.txt", split_bytes=100)]
    assert [old == new for old, new in zip(ids, changed, strict=True)] == [False] * 3 + [True] * 3


def test_files_of_one_name_and_size_have_ids_of_their_own(tmp_path):
    for directory in ("x", "y", "z"):
        write(tmp_path / directory / "a.txt", 150)
    patterns = [tmp_path / directory / "a.txt" for directory in ("x", "y", "z")]
    ids = [split.id for split in plan(*patterns, split_bytes=100)]
    assert len(set(ids)) == 6
    assert [split.id for split in plan(*patterns[::-1], split_bytes=100)] == ids
    assert [split.id for split in plan(patterns[0], split_bytes=100)] == ids[:2]


def test_version_tells_that_a_file_changed(tmp_path):
    path = write(tmp_path / "a.txt")
    before = plan(path)[0].pieces[0].version
    assert plan(path)[0].pieces[0].version == before
    os.utime(path, ns=(0, 12345))
    assert plan(path)[0].pieces[0].version != before


def test_json_and_pickle_round_trip(tmp_path):
    write(tmp_path / 'é "\n.txt', 250)
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "z.parquet")
    splits = plan(tmp_path / "*", split_bytes=100)
    assert [Split.from_json(split.to_json()) for split in splits] == splits
    assert pickle.loads(pickle.dumps(splits)) == splits
    assert all("\n" not in split.to_json() for split in splits)
    assert splits[-1].pieces[0].n_planned == splits[-1].n_bytes > 0
    assert Piece("p", "n", 9, "v", "text", "none", 2, 5).n_planned == 3


@pytest.mark.parametrize(
    "name, expected",
    [
        ("a.jsonl", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.json", "jsonl"),
        ("a.JSONL", "jsonl"),
        ("a.jsonl.gz", "jsonl"),
        ("a.txt.zst", "text"),
        ("a.text.bz2", "text"),
    ],
)
def test_auto_format_goes_by_the_name(tmp_path, name, expected):
    assert plan(write(tmp_path / name))[0].pieces[0].format == expected


def test_every_problem_is_named_at_once(tmp_path):
    write(tmp_path / "good.txt")
    write(tmp_path / "a.doc")
    write(tmp_path / "b.csv.gz")
    write(tmp_path / "c.parquet")
    (tmp_path / "dir").mkdir()
    patterns = [tmp_path / "*.*", tmp_path / "nothing*.txt", tmp_path / "missing.txt", tmp_path / "dir"]
    with pytest.raises(ValueError, match="6 problems") as caught:
        plan(*patterns)
    lines = str(caught.value).splitlines()
    assert lines[0] == "input.paths: 6 problems"
    assert sorted(line.split("' ")[0].rsplit("/", 1)[1] for line in lines[1:]) == [
        "a.doc",
        "b.csv.gz",
        "c.parquet",
        "dir",
        "missing.txt",
        "nothing*.txt",
    ]
    assert "a.doc' is of unknown format: set input.format, or end its name with one of .jsonl, " in str(caught.value)
    assert "dir' matches no file; it is a directory: name the files in it, as in" in str(caught.value)
    assert plan(tmp_path / "a.doc", format="text")


def test_of_very_many_problems_the_first_are_told(tmp_path):
    for i in range(1500):
        write(tmp_path / f"{i:04d}.doc")
    with pytest.raises(ValueError, match="1,500 problems") as caught:
        plan(tmp_path / "*.doc")
    lines = str(caught.value).splitlines()
    assert len(lines) == 22
    assert "0019.doc' is of unknown format" in lines[-2]
    assert lines[-1] == "  and 1,480 more"


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(OSError, match=r"input\.paths: .*a\.txt"):
        plan(tmp_path / "*.txt")
    locked = write(tmp_path / "locked" / "b.txt")
    locked.chmod(0)
    if os.access(locked, os.R_OK):
        pytest.skip("the superuser may read everything")
    with pytest.raises(OSError, match=r"b\.txt' cannot be read"):
        plan(locked)


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    try:
        (tmp_path / os.fsdecode(b"\xff.txt")).write_bytes(b"text\n")
    except OSError:
        pytest.skip("this filesystem has no such names")
    with pytest.raises(ValueError, match="has a name that is not UTF-8; rename it"):
        plan(tmp_path / "*.txt")


def test_parquet_compressed_as_a_whole_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(ValueError, match="is Parquet compressed with gzip as a whole"):
        plan(tmp_path / "a.parquet")
