# SPDX-License-Identifier: Apache-2.0
"""Plans: which files, in what order, cut where, with which ids; and what is refused."""

import bz2
import gzip
import io
import lzma
import os
import re
import sys
import time
import zipfile
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.formats import COMPRESSION_SUFFIXES
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.kept_fields import decode_fields
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.running.progress import Progress, reporting_to
from tokenmill.pipeline.splits import Split


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
        [("a.txt", 0, 40), ("b.txt", 0, 60)], [("c.txt", 0, 10)], [("d.txt", 0, 100)], [("d.txt", 100, 200)],
        [("d.txt", 200, 250)], [("e.txt", 0, 100)], [("f.txt", 0, 99), ("g.txt", 0, 0)], [("h.txt", 0, 2)],
    ]  # fmt: skip
    assert [split.index for split in splits] == list(range(8))
    assert [split.n_bytes for split in splits] == [100, 10, 100, 100, 50, 100, 99, 2]


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


def names_of(*patterns, warnings=None):
    splits = plan_splits(InputConfig(paths=[str(pattern) for pattern in patterns]), "salt", warnings)
    return [piece.name for split in splits for piece in split.pieces]


def test_files_of_one_name_are_told_apart_by_the_folders_nearest_to_them(tmp_path, monkeypatch):
    names = ["disk1/data/en/a.txt", "disk2/data/en/a.txt", "disk1/data/de/a.txt", "disk1/data/de/b.txt", "data/c.txt"]
    for name in names:
        write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    patterns = ["disk1/data/de/*.txt", "disk2/data/en/*.txt", "disk1/data/en/*.txt", "data/*"]
    expected = ["b.txt", "c.txt", "de/a.txt", "disk1/data/en/a.txt", "disk2/data/en/a.txt"]
    assert names_of(*patterns) == expected
    assert names_of(*(tmp_path / pattern for pattern in patterns)) == expected  # wherever the corpus is
    assert names_of(*patterns[::-1]) == expected
    assert names_of(*patterns[:2]) == ["b.txt", "de/a.txt", "en/a.txt"]
    assert names_of(patterns[0], patterns[3]) == ["a.txt", "b.txt", "c.txt"]  # nothing to tell apart


def test_one_file_under_several_spellings_is_read_once(tmp_path, monkeypatch):
    write(tmp_path / "d" / "a.txt")
    write(tmp_path / "d" / "b.txt")
    (tmp_path / "link").symlink_to("d")
    (tmp_path / "d" / "0.txt").symlink_to("b.txt")
    monkeypatch.chdir(tmp_path)
    for again in ("./d/a.txt", str(tmp_path / "d/a.txt"), "link/a.txt", "d/../d/a.txt", "d//a.txt", "d/a.txt"):
        warnings = []
        assert names_of("d/[ab].txt", again, warnings=warnings) == ["a.txt", "b.txt"]
        (warning,) = warnings
        assert warning.startswith("input.paths: a file that is matched more than once is read once: ")
        assert repr(again) in warning
    # Whatever links to a file, its own name is that of the file.
    warnings = []
    assert names_of("**/*.txt", warnings=warnings) == ["d/a.txt", "d/b.txt"]
    assert warnings[0].endswith("'link/a.txt' is 'd/a.txt' and 3 more")
    assert names_of("link/*.txt") == ["a.txt", "b.txt"]
    assert names_of("d/0.txt") == ["0.txt"]
    warnings = []
    os.link("d/a.txt", "d/hard.txt")
    assert names_of("d/a.txt", "d/hard.txt", warnings=warnings) == ["a.txt", "hard.txt"]  # two files
    assert warnings == []


@pytest.mark.parametrize(
    "pattern, name",
    [
        ("one/two/a.txt", "a.txt"), ("one/two/*.txt", "a.txt"), ("one/t*/a.txt", "two/a.txt"),
        ("one/**/a.txt", "two/a.txt"), ("**/a.txt", "one/two/a.txt"), ("./one//two/*.txt", "a.txt"),
    ],
)  # fmt: skip
def test_names_are_relative_to_the_literal_directory(tmp_path, monkeypatch, pattern, name):
    write(tmp_path / "one" / "two" / "a.txt")
    monkeypatch.chdir(tmp_path)
    assert [piece.name for piece in plan(pattern)[0].pieces] == [name]
    assert [piece.name for piece in plan(tmp_path / pattern)[0].pieces] == [name]


def test_a_name_with_glob_characters_is_taken_literally(tmp_path):
    write(tmp_path / "d[1]" / "a[1].txt")
    write(tmp_path / "d1" / "a1.txt")
    assert describe(plan(tmp_path / "d[1]" / "a[1].txt")) == [[("a[1].txt", 0, 10)]]
    assert describe(plan(tmp_path / "d[1]")) == [[("a[1].txt", 0, 10)]]
    assert describe(plan(tmp_path / "d[1]" / "*.txt")) == [[("d1/a1.txt", 0, 10), ("d[1]/a[1].txt", 0, 10)]]


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


def test_every_problem_is_named_at_once(tmp_path):
    write(tmp_path / "good.txt")
    write(tmp_path / "a.doq")
    write(tmp_path / "b.csv.gz")
    write(tmp_path / "c.parquet")
    (tmp_path / "dir").mkdir()
    patterns = [tmp_path / "*.*", tmp_path / "nothing*.txt", tmp_path / "missing.txt", tmp_path / "dir"]
    with pytest.raises(ValueError, match="6 problems") as caught:
        plan(*patterns)
    lines = str(caught.value).splitlines()
    assert lines[0] == "input.paths: 6 problems"
    assert lines.pop().startswith("correct or rename such files, leave them out with input.exclude, or set input.on_d")
    assert sorted(line.split("' ")[0].rsplit("/", 1)[1] for line in lines[1:]) == [
        "a.doq", "b.csv.gz", "c.parquet", "dir", "missing.txt", "nothing*.txt",
    ]  # fmt: skip
    assert "a.doq' is of unknown format: set input.format (source code and Markdown: text, with " in str(caught.value)
    assert "dir' matches no file" in str(caught.value)
    assert plan(tmp_path / "a.doq", format="text")


UNREADABLE = {
    "footer.parquet": (b"PAR1", "is not a readable Parquet file: .*; it begins with b'PAR1'"),
    "html.parquet": (b"<html>not found</html>", "; it begins with b'<html>not found</html>'"),
    "empty.arrow": (b"", "is not a readable Arrow file: "),
    "no.zip": (b"zip", "cannot be read: it is damaged, or no such archive"),
    "no.tar.gz": (b"x" * 2000, "cannot be read: it is damaged, or no such archive"),
    "noise.jsonl.gz": (bytes(range(128, 256)), "is no text, and not compressed, as '.gz' says; it begins with b"),
    "columns.csv": (b"a,b\n1,2\n", "has no column 'text' for input.text_field; it has 'a', 'b'"),
    "wide.txt": ("words".encode("utf-16"), "looks like utf-16-le, but would be read as utf-8"),
    "pdf.txt": (b"%PDF-1.4", "is a document, not text"),
    "README": (b"about", "is of unknown format"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_is_refused_left_out_or_one_reject(tmp_path, name):
    data, problem = UNREADABLE[name]
    path = write(tmp_path / "in" / name)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"{name}' .*{problem}") as caught:  # of the only file, the config may be wrong
        plan(path, on_damage="warn")
    assert "input.exclude" not in str(caught.value)
    write(tmp_path / "in" / "good.txt", 10)
    every = tmp_path / "in" / "*"
    with pytest.raises(
        ValueError, match=f"{problem}.*\n.* leave them out with input.exclude, or set input.on_damage: "
    ):
        plan(every)
    assert describe(plan(every, exclude=[f"*/{name}"])) == [[("good.txt", 0, 10)]]

    config = InputConfig(paths=[str(every)], on_damage="warn")
    warnings: list[str] = []
    (split,) = plan_splits(config, "", warnings)
    assert Split.from_json(split.to_json()) == split
    assert len(warnings) == 1
    assert re.match(f"input.paths: one reject, because on_damage is warn: '.*{name}' .*{problem}", warnings[0])
    (batch,) = read_split(split, config)
    assert (batch.n_records, batch.n_bytes, batch.documents.num_rows) == (2, 10 + len(data), 1)
    (reject,) = batch.rejects.to_pylist()
    assert re.search(problem, reject.pop("detail"))
    place = {"source": str(path), "offset": 0, "n_bytes": len(data)}
    assert reject == {**place, "reason": "unreadable_file", "sample": b""}
    path.write_bytes(data + b"mended")
    with pytest.raises(OSError, match="has changed since the job was planned"):
        list(read_split(split, config))


def test_the_name_of_a_file_in_messages_leaves_it_out(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for name in ("a.txt", "b.txt"):
            (tmp_path / folder / name).write_text("a line\n")
    for paths, names in (([tmp_path / "**/*.txt"], 4), ([tmp_path / "one", tmp_path / "two"], 4)):
        everything = InputConfig(paths=[str(path) for path in paths])
        pieces = [piece for split in plan_splits(everything, "") for piece in split.pieces]
        assert len(pieces) == names
        for piece in pieces:
            config = everything.model_copy(update={"exclude": [piece.name]})
            said: list[str] = []
            left = [each.name for split in plan_splits(config, "", said) for each in split.pieces]
            assert left == [each.name for each in pieces if each is not piece]
            assert not [line for line in said if "leaves out" in line]


def test_a_pattern_that_excludes_nothing_is_told(tmp_path):
    paths = [str(write(tmp_path / name)) for name in ("a.txt", "b [1].txt")]
    config = InputConfig(paths=[str(tmp_path)], exclude=[paths[1], "*/c.txt"])
    warnings: list[str] = []
    assert describe(plan_splits(config, "", warnings)) == [[("a.txt", 0, 10)]]
    assert warnings == ["input.exclude: '*/c.txt' leaves out no file"]
    with pytest.raises(ValueError, match=r"matches no file, or none that input\.exclude does not"):
        plan(tmp_path / "*.txt", exclude=["*"])
    other = str(write(tmp_path / "c.txt"))
    sources = {"x": {"paths": [str(tmp_path / "[ab]*.txt")]}, "y": {"paths": [other]}}
    assert len(plan_splits(InputConfig(exclude=paths[1:], sources=sources), "", warnings := [])) == 2
    assert warnings == []
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.writestr("README.txt", "x")
    config = InputConfig(paths=[str(tmp_path)], exclude=["*/README.txt", "*!/b.txt"])
    assert len(describe(plan_splits(config, "", warnings))[0]) == 3
    assert warnings == ["input.exclude: '*!/b.txt' leaves out no file"]


@pytest.mark.parametrize("excluding", ["names", "patterns"])
def test_planning_takes_time_in_proportion_to_the_files(tmp_path, monkeypatch, excluding):
    """Half of the names say no format; it took the square of their number, and that of the files to leave out."""

    def seconds(n_files):
        names = [f"{tmp_path}/{i:06}.{'txt' if i % 2 else 'rs'}" for i in range(n_files)]
        files = [storage.FileStat(name, 9, "") for name in names]
        monkeypatch.setattr(storage, "match", lambda *_: iter(files))
        monkeypatch.setattr(storage, "open_read", lambda _: io.BytesIO(b"the mill\n"))
        exclude = {"names": names[::3], "patterns": [f"*/{i:06}.*" for i in range(1, n_files, 800)]}
        began = time.process_time()
        watched = Progress()
        with reporting_to(watched):
            splits = plan(tmp_path, exclude=exclude[excluding])
        taken = time.process_time() - began
        n_left = {"names": n_files // 3, "patterns": n_files // 2 - n_files // 800}[excluding]
        assert sum(len(split.pieces) for split in splits) == n_left
        assert watched.snapshot("listing files").n_done == n_files
        opened = watched.snapshot("opening files")
        assert (opened.n_done, opened.n_planned, opened.unit) == (n_left, n_left, "files")
        return taken

    # Ten times on a quiet machine, twenty beside others; a hundred if each file looked at all.
    assert seconds(24_000) < 40 * seconds(2400)


def test_of_very_many_problems_the_first_are_told(tmp_path):
    for i in range(1500):
        write(tmp_path / f"{i:04d}.doq")
    with pytest.raises(ValueError, match=r"0000\.doq' is of unknown format: .*; and 1,499 more like it$"):
        plan(tmp_path / "*.doq")
    with pytest.raises(ValueError, match="1,502 problems") as caught:
        plan(tmp_path / "*.doq", tmp_path / "none", tmp_path / "no'ne")
    assert len(str(caught.value).splitlines()) == 4


@pytest.mark.parametrize(
    ("name", "data", "advice"),
    [
        ("a.xlsx", b"PK", "is a spreadsheet or a database, which is not read: DuckDB makes Parquet of it"),
        ("a.7z", b"", "is an archive, which is not read: unpack it, and name the files"),
        ("a.xml.gz", b"", "is XML, which is not read: extract its text first"),
        ("a.jsonl.lz4", b"", "is compressed in a way that is not known, which is not read: compress it again"),
        ("blob", b"7z\xbc\xaf\x27\x1c", "is an archive, which is not read: unpack it"),
        ("a.doq", b"%PDF-1.7\n", "is a document, which is not read: extract its text first"),
        ("a.jsonl", b"\x04\x22\x4d\x18abc", "is compressed in a way that is not known, not jsonl: compress it again"),
        ("a.txt", b"%PDF-1.7\n%\xe2\xe3\n", "is a document, not text: extract its text first"),
        ("a.jsonl", b"PK\3\4abc", "is an archive by another name, not jsonl: end its name with .zip or .tar"),
        ("a.txt.gz", gzip.compress(b"a" * 257 + b"ustar\0"), "is an archive by another name, not text"),
        (
            "a.csv",
            b"PAR1\x15\x04\x15",
            "is of a format that is read by another name, not csv: end its name with .parquet",
        ),
        ("a.txt", b"\x89PNG\r\n", "is a picture, a sound or a program, not text: it has no text to read"),
        ("a.bin", b"\0\1", "is of token ids, which is not read: read the texts that they were made of"),
        ("a.parquet", gzip.compress(b"PAR1"), "is parquet compressed with gzip as a whole"),
        ("a.nothing", b"text", r"is of unknown format: set input.format .*, or end its name with one of .jsonl"),
    ],
)
def test_what_is_not_read_is_refused_with_what_to_do(tmp_path, name, data, advice):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=advice):
        plan(tmp_path / name)


def test_a_folder_is_all_files_in_it_that_have_a_known_name(tmp_path):
    write(tmp_path / "in" / "b" / "x.jsonl")
    (tmp_path / "in" / "a.txt.gz").write_bytes(gzip.compress(b"text\n"))
    write(tmp_path / "in" / "README")
    warnings = []
    config = InputConfig(paths=[str(tmp_path / "in")])
    names = [piece.name for split in plan_splits(config, "", warnings) for piece in split.pieces]
    assert names == ["a.txt.gz", "b/x.jsonl"]
    assert len(warnings) == 1
    assert "are left out: 1, such as" in warnings[0]
    assert "README" in warnings[0]
    assert len(plan(tmp_path / "in", format="text")) >= 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="matches no file"):
        plan(tmp_path / "empty")


def test_text_of_other_names_is_read_by_lines_with_a_warning_if_the_config_does_not_say_so(tmp_path):
    code, notes = write(tmp_path / "a.py"), write(tmp_path / "b.txt")

    def warned(**keys):
        plan_splits(InputConfig(**keys), "", warnings := [])
        return warnings

    (warning,) = warned(paths=[str(notes), str(code)], format="text")
    assert warning.startswith(f"input.document: each line of files such as {str(code)!r} is a document; set it to file")
    for document in ("line", "file"):
        assert warned(paths=[str(code)], format="text", document=document) == []
    assert warned(paths=[str(notes)]) == []
    sources = {"code": {"paths": [str(code)], "format": "text"}, "notes": {"paths": [str(notes)]}}
    assert warned(sources=sources) == [warning.replace("input.", "input.sources.code.")]
    assert warned(sources=sources, document="line") == []


def test_what_is_no_file_is_refused_by_name(tmp_path):
    write(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to("c.txt")
    (tmp_path / "d").symlink_to(tmp_path / "not mounted")
    for pattern, named in (("*.txt", "bc"), ("**/*.txt", "bcd"), ("b.txt", "b"), ("*/a.txt", "cd")):
        with pytest.raises(OSError, match=r"input\.paths: ") as caught:
            plan(tmp_path / pattern)
        for name, what in (
            ("b", "b.txt' is a pipe, a socket or a device; only files can be read"),
            ("c", "c.txt' is a link to 'c.txt', which cannot be examined: Too many levels of symbolic links"),
            ("d", "not mounted', which cannot be examined: No such file or directory"),
        ):
            assert (what in str(caught.value)) == (name in named), pattern
    assert len(plan(tmp_path / "a*.txt")) == 1


def test_names_with_a_dot_in_front_are_left_out_with_a_warning(tmp_path):
    for name in ("a.txt", ".b.txt", ".git/c.txt", "d/.e.txt", "d/.f.md"):
        write(tmp_path / name)

    def warned(*patterns, **keys):
        paths = [str(tmp_path / pattern) for pattern in patterns]
        splits = plan_splits(InputConfig(paths=paths, **keys), "", warnings := [])
        return [piece.name for split in splits for piece in split.pieces], warnings

    names, (warning,) = warned("")
    assert names == ["a.txt"]
    assert f"begin with a dot are left out: 4, such as {str(tmp_path / '.b.txt')!r}; name them in" in warning
    assert ": 2, such as" in warned("**/*.txt")[1][0]
    assert warned("", exclude=["*/.*"]) == (["a.txt"], [])
    assert ": 3, such as" in warned("", exclude=["*/.git/*"])[1][0]
    assert warned("a.txt", ".b.txt", ".git/*.txt", "d/.e*") == ([".b.txt", ".e.txt", "a.txt", "c.txt"], [])


def test_a_json_array_is_text_where_each_file_is_a_document(tmp_path):
    (tmp_path / "package.json").write_text('[{"name": "mill"}]\n')
    split = plan(tmp_path, format="text", document="file")[0]
    assert [(piece.name, piece.format) for piece in split.pieces] == [("package.json", "text")]
    for document in ("line", "blank_line"):
        with pytest.raises(ValueError, match=r"begins as json does, but input\.format says 'text'; set it to 'json'"):
            plan(tmp_path, format="text", document=document)


def test_a_loop_of_links_gives_no_file_twice(tmp_path):
    for name in ("z/a.txt", "z/y/b.txt"):
        write(tmp_path / name)
    (tmp_path / "z" / "y" / "up").symlink_to(tmp_path / "z")
    (tmp_path / "z" / "here").symlink_to(".")
    warnings = []
    assert names_of(tmp_path / "**" / "*.txt", warnings=warnings) == ["z/a.txt", "z/y/b.txt"]
    assert warnings == []


LISTED = ["**/*.txt", "*/a.txt", "*/*.txt", "secret/*.txt", "**", "*/*/a.txt"]


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
@pytest.mark.parametrize("pattern", [*LISTED, "secret/a.txt"])
def test_what_a_user_may_not_list_or_enter_is_refused_by_name(tmp_path, monkeypatch, pattern, mode):
    for name in ("open/a.txt", "secret/a.txt", "open/deep/a.txt"):
        write(tmp_path / name)
    nobody, root = 65534, os.geteuid() == 0
    for path in (tmp_path, tmp_path / "open", tmp_path / "open/deep"):
        path.chmod(0o755)
    if root:
        os.chown(tmp_path / "secret", nobody, nobody)
    (tmp_path / "secret").chmod(mode)
    monkeypatch.chdir(tmp_path)  # nobody may not enter the folders above
    try:
        if root:
            os.seteuid(nobody)
        may_enter = pattern in ("*/a.txt", "secret/a.txt") and mode == 0o100
        if may_enter or (pattern == "*/*/a.txt" and mode == 0o400):
            assert plan(pattern)
        else:
            with pytest.raises(OSError, match=r"input.paths: .*'secret(/a.txt)?' .*: Permission denied"):
                plan(pattern)
    finally:
        if root:
            os.seteuid(0)
        (tmp_path / "secret").chmod(0o755)


def test_a_name_that_is_not_utf8_is_refused(tmp_path, monkeypatch):
    try:
        (tmp_path / os.fsdecode(b"\xff.txt")).write_bytes(b"text\n")
    except OSError:
        pytest.skip("this filesystem has no such names")
    with pytest.raises(ValueError, match="has a name that is not UTF-8; rename it"):
        plan(tmp_path / "*.txt")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    with pytest.raises(ValueError, match="has a name that is not ASCII; set PYTHONUTF8=1"):
        plan(tmp_path / "*.txt")


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123456\n"
ANNEX = b"/annex/objects/SHA256E-s123--0.jsonl\n"


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.txt", "a.json", "a.wet", "a.parquet", "a.arrow", "a.zip", "a.tar.gz"]
)
def test_a_pointer_of_git_is_told_in_any_format(tmp_path, name):
    for data, tool in ((LFS, "git-lfs, not the file itself; get that with `git lfs pull`"), (ANNEX, "git-annex, not")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=f"{name}' is a pointer of {tool}"):
            plan(tmp_path / name)
    text = LFS + b"is the beginning of a pointer\n"
    (tmp_path / "b.txt").write_bytes(text)
    assert describe(plan(tmp_path / "b.txt")) == [[("b.txt", 0, len(text))]]


def test_a_worker_refuses_a_pointer_that_was_planned_by_its_name(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n')
    (split,) = plan(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_bytes(LFS)
    (piece,) = split.pieces
    piece = replace(piece, n_bytes=len(LFS), stop=len(LFS), version="")
    with pytest.raises(ValueError, match="is a pointer of git-lfs"):
        list(read_split(replace(split, pieces=(piece,)), InputConfig(paths=["a"])))


@pytest.mark.parametrize(("literal", "other"), [("a[1].txt", "a1.txt"), ("a*.txt", "ab.txt"), ("a?.txt", "ab.txt")])
def test_the_path_of_a_file_in_exclude_is_no_pattern(tmp_path, literal, other):
    for name in (literal, other, "c.txt"):
        write(tmp_path / "in" / name)
    assert describe(plan(tmp_path / "in", exclude=[str(tmp_path / "in" / literal)])) == [
        [(other, 0, 10), ("c.txt", 0, 10)]
    ]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in (literal, other):
            archive.writestr(name, "x")
    (found,) = describe(plan(tmp_path / "a.zip", exclude=[f"{tmp_path}/a.zip!/{literal}"]))
    assert [name for name, _, _ in found] == [f"a.zip!/{other}"]
    (tmp_path / "in" / literal).unlink()
    assert describe(plan(tmp_path / "in", exclude=[str(tmp_path / "in" / literal)])) == [[("c.txt", 0, 10)]]
    sources = {"x": {"paths": [str(tmp_path / "in")], "exclude": [str(tmp_path / "in" / other)]}}
    assert describe(plan_splits(InputConfig(sources=sources), "")) == [[("x/c.txt", 0, 10)]]


def test_a_pattern_that_matches_folders_says_how_their_files_are_named(tmp_path):
    write(tmp_path / "in" / "a" / "x.txt")
    with pytest.raises(ValueError, match=r"in/\*' matches no file, but folders; the files in them are .*/in/\*/\*\*$"):
        plan(tmp_path / "in" / "*")
    assert describe(plan(tmp_path / "in" / "*" / "**")) == [[("a/x.txt", 0, 10)]]


def test_a_zstd_dictionary_that_is_needed_is_told(tmp_path):
    texts = [b'{"text": "a document of some words, number %d"}\n' % i for i in range(2000)]
    words = zstandard.train_dictionary(1000, texts)
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.ZstdCompressor(dict_data=words).compress(b"".join(texts)))
    with pytest.raises(
        ValueError, match=rf"needs the zstd dictionary {words.dict_id()}, .*compress it again without -D"
    ):
        plan(tmp_path / "a.jsonl.zst")


def test_columns_without_a_value_have_the_type_of_other_files(tmp_path):
    values = {"n": [1], "tags": [["x"]], "meta": [{"a": "y"}], "never": [None]}
    nothing = {"n": [None], "tags": [[None]], "meta": [{"a": None}], "never": [None]}
    keep = [*values]
    for name, columns in (("a", nothing), ("b", values), ("c", nothing)):
        pq.write_table(pa.table({"text": ["t"], "id": [None], **columns}), tmp_path / f"{name}.parquet")
    (split,) = plan(tmp_path / "*.parquet", keep_fields=keep)
    (batch,) = read_split(split, InputConfig(paths=["a"], keep_fields=keep))
    assert batch.documents.column("fields").to_pylist() == [
        {name: each[0] for name, each in columns.items()} for columns in (nothing, values, nothing)
    ]
    types = [*map(str, decode_fields(split.fields).types)]
    assert types == ["int64", "list<item: string>", "struct<a: string>", "string"]
    plan(tmp_path / "a.parquet", keep_fields={"n": "int8", "never": "double"})
    with pytest.raises(ValueError, match=r"b\.parquet' has 'n' as int64, but input.keep_fields says int8"):
        plan(tmp_path / "*.parquet", keep_fields={"n": "int8"})
    for other in ({"b": "y"}, {"a": 1}, {"a": "y", "b": None}, "y", ["y"]):
        pq.write_table(pa.table({"text": ["t"], "meta": [other]}), tmp_path / "e.parquet")
        with pytest.raises(ValueError, match=r"e\.parquet' has 'meta' as .*, but .*b\.parquet' has it as struct<a: s"):
            plan(tmp_path / "[be].parquet", keep_fields=["meta"])
    pq.write_table(pa.table({"text": pa.nulls(2)}), tmp_path / "d.parquet")
    (batch,) = read_split(plan(tmp_path / "d.parquet")[0], InputConfig(paths=["a"]))
    assert batch.rejects.column("reason").to_pylist() == ["null_text"] * 2


def test_names_of_folders_are_fields(tmp_path):
    keep = {"lang": None, "year": "int16"}
    for lang, year in (("en", "2025"), ("a%20b", "2026"), ("__HIVE_DEFAULT_PARTITION__", "7")):
        folder = tmp_path / f"lang={lang}" / f"year={year}"
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_text(f'{{"text": "{year}"}}\n{{"text": "own {year}", "lang": "de"}}\n')
        pq.write_table(pa.table({"text": [f"p {year}"]}), folder / "b.parquet")
        (folder / "c.csv").write_text(f"text\nc {year}\n")
    config = InputConfig(paths=[str(tmp_path)], keep_fields=keep)
    rows = [
        (row["text"], *row["fields"].values())
        for split in plan_splits(config, "")
        for batch in read_split(split, config)
        for row in batch.documents.to_pylist()
    ]
    expected = []
    for lang, year in (("en", 2025), ("a b", 2026), (None, 7)):
        own = [(f"own {year}", "de", year)]
        expected += [*own, *((f"{kind}{year}", lang, year) for kind in ("", "p ", "c "))]
    assert sorted(rows, key=str) == sorted(expected, key=str)
    with pytest.raises(ValueError, match="has the folder lang=en, not double"):
        plan(tmp_path, keep_fields={"lang": "double"})


ZSTD = zstandard.ZstdCompressor(write_checksum=True)
COMPRESS = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: ZSTD.compress(data) + b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstandard.compress(b"more"),
}


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.bz2", "a.jsonl.xz", "a.jsonl.zst"])
def test_files_that_are_cut_short_are_warned_of_before_the_work(tmp_path, name):
    data = COMPRESS[COMPRESSION_SUFFIXES[f".{name.rpartition('.')[2]}"]](b'{"text": "a"}\n' * 9000)
    for whole in (True, False):
        (tmp_path / name).write_bytes(data if whole else data[:-30])
        splits = plan_splits(InputConfig(paths=[str(tmp_path / name)]), "", warnings := [])
        assert len(splits) == 1
        said = (
            f"input.paths: '{tmp_path / name}' is cut short; get it again before the job begins, or it fails at its end"
        )
        assert warnings == ([] if whole else [said])
