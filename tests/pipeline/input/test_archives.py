# SPDX-License-Identifier: Apache-2.0
"""Members of archives are files: read in every way, and nothing damaged or hostile in them is silent."""

import gzip
import io
import json
import os
import random
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import archives
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.storage import FileStat

TARS = ("tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "txz", "tar.zst")
KINDS = ("zip", *TARS)


def _lines(n: int, name: str) -> bytes:
    return b"".join(json.dumps({"id": f"{name}-{i}", "text": f"{name} {i} {i * i}"}).encode() + b"\n" for i in range(n))


FILES = {
    "b/two.jsonl": _lines(900, "two"),
    "a/one.jsonl.gz": gzip.compress(_lines(300, "one"), mtime=0),
    "c.txt": b"a line\n" * 50,
    "empty.jsonl": b"",
    "d.csv": b'id,text\nc1,hello\nc2,"a\nb"\n',
    "e.json": b'[{"id": "e1", "text": "t"}]',
    "nul.txt": "Grüße\n".encode("utf-16"),
}


def make(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return path
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return pack(path, out.getvalue())


def pack(path: Path, data: bytes) -> Path:
    """Writes a tar as its name says."""
    import bz2
    import lzma

    undo = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}
    kind = next((kind for kind in undo if path.name.endswith((f".{kind}", f".t{kind}"))), None)
    path.write_bytes(undo[kind](data) if kind is not None else data)
    return path


def read(path: Path, **options) -> tuple[dict[str, str], list[dict], list[str]]:
    """Returns the texts by id, the rejects, and warnings."""
    config = InputConfig(paths=[str(path)], encoding="auto", **{"split_bytes": 4000, **options})
    texts: dict[str, str] = {}
    rejects, warnings = [], []
    for split in plan_splits(config, "", warnings):
        for batch in read_split(split, config):
            texts |= dict(zip(*(batch.documents.column(name).to_pylist() for name in ("doc_id", "text")), strict=True))
            rejects += batch.rejects.to_pylist() if batch.rejects is not None else []
    return texts, rejects, warnings


@pytest.mark.parametrize("kind", KINDS)
def test_members_are_read_as_the_files_that_they_are(tmp_path, kind):
    found, rejects, warnings = read(make(tmp_path / f"crawl.{kind}", FILES))
    for name, data in FILES.items():
        path = tmp_path / "plain" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    plain, _, _ = read(tmp_path / "plain")
    assert found == {f"crawl.{kind}!/{doc_id}" if ":" in doc_id else doc_id: text for doc_id, text in plain.items()}
    assert (rejects, warnings) == ([], [])


def test_a_method_that_is_not_known_is_refused(tmp_path):
    make(tmp_path / "a.zip", {"a.txt": b"x"}, zipfile.ZIP_LZMA)
    with pytest.raises(ValueError, match=r"'a.txt' is compressed by method 14 of zip.*unpack it"):
        read(tmp_path / "a.zip")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_read_where_the_archive_can_be_read_from_anywhere(tmp_path, kind):
    out = io.BytesIO()
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(100)]}), out, row_group_size=30)
    path = make(tmp_path / f"a.{kind}", {"x.txt": b"x\n", "rows.parquet": out.getvalue()})
    if kind == "tar":
        assert len(read(path)[0]) == 101
        return
    with pytest.raises(ValueError, match=r"rows.parquet' is parquet in an archive that must be read from.*unpack it"):
        read(path)


def test_a_compressed_tar_is_one_split_in_its_order_and_a_tar_is_cut(tmp_path):
    files = {f"{i % 7}/{i}.jsonl": _lines(20, f"f{i}") for i in range(60)}
    for kind, n_splits in (("tar.gz", 1), ("tar", 20)):
        config = InputConfig(paths=[str(make(tmp_path / f"a.{kind}", files))], split_bytes=2000)
        splits = plan_splits(config, "")
        pieces = [piece for split in splits for piece in split.pieces]
        assert (len(splits) == 1) == (n_splits == 1)
        assert [piece.name.partition("!/")[2] for piece in pieces] == [*files]
        assert [piece.file for piece in pieces] == [*range(60)]


def test_what_is_left_out_is_told(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (("d", tarfile.DIRTYPE), ("link.txt", tarfile.SYMTYPE), ("pipe.txt", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        for name in ("a.txt", "__MACOSX/._a.txt", "README"):
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"x\n"))
    texts, _, warnings = read(tmp_path / "a.tar")
    assert texts == {"a.tar!/a.txt:0": "x"}
    assert len(warnings) == 1
    assert f"input.paths: members of {str(tmp_path / 'a.tar')!r} that are hidden, links, or of no known" in warnings[0]
    assert "left out: 4, such as" in warnings[0]
    assert "such as 'link.txt'" in warnings[0]
    assert "left out: 3, such" in read(tmp_path / "a.tar", exclude=["*!/link.txt"])[2][0]
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("a.txt", "x")
    texts, _, warnings = read(tmp_path / "b.zip")
    assert (texts, len(warnings)) == ({"b.zip!/a.txt:0": "x"}, 1)
    assert len(read(tmp_path / "a.tar", format="text")[0]) == 2  # README, too


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["/a.txt"], "its member '/a.txt' has a name that leads out of it"),
        (["../a.txt"], "its member '../a.txt' has a name that leads out of it"),
        (["a/../../a.txt"], "has a name that leads out of it"),
        (["a.txt", "a.txt"], "its member 'a.txt' is there twice"),
        (["./a.txt", "a.txt"], "its member 'a.txt' is there twice"),
        (["b/a.txt", ".//b/./a.txt"], "its member './/b/./a.txt' is there twice"),
        (["a.txt", "b.tar.gz"], "its member 'b.tar.gz' is an archive, too"),
        (["b.ZIP"], "its member 'b.ZIP' is an archive, too"),
        (["readme"], "it has no file with the name of a known format, but input.format reads all (source"),
        ([], "it has no file with the name of a known format"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_cannot_be_read_are_refused(tmp_path, names, message):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    for path in (tmp_path / "a.zip", tmp_path / "a.tar"):
        with pytest.raises(ValueError, match="; unpack it, and name the files") as caught:
            read(path)
        assert message in str(caught.value)


def test_a_member_with_holes_is_refused(tmp_path):
    info = tarfile.TarInfo("a.txt")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "4"}
    data = b"1\n0\n2\n".ljust(512, b"\0") + b"x\n"
    info.size = len(data)
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(data))
        archive.addfile(tarfile.TarInfo("b.txt"))
    with pytest.raises(ValueError, match="has holes, as tar --sparse writes them; unpack it"):
        read(tmp_path / "a.tar")


def test_an_encrypted_member_is_refused(tmp_path):
    data = bytearray(make(tmp_path / "a.zip", {"a.txt": b"x"}).read_bytes())
    for mark, at in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        data[data.index(mark) + at] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(ValueError, match=r"'a.txt' is encrypted; unpack it"):
        read(tmp_path / "a.zip")


def test_a_bomb_is_refused(tmp_path):
    make(tmp_path / "a.zip", {"a.txt": b"x"})
    data = bytearray((tmp_path / "a.zip").read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\1\2") + 24, 1 << 30)
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(ValueError, match=r"bytes claim to give 1,073,741,824; unpack it"):
        read(tmp_path / "a.zip")


def test_a_wrong_checksum_is_one_reject_behind_the_documents(tmp_path):
    data = bytearray(make(tmp_path / "a.zip", {"a.txt": b"one\ntwo\n", "b.txt": b"three\n"}).read_bytes())
    data[data.index(b"PK\1\2") + 16] ^= 1
    (tmp_path / "a.zip").write_bytes(data)
    texts, rejects, _ = read(tmp_path / "a.zip")
    assert [*texts.values()] == ["one", "two", "three"]
    assert [(each["source"], each["reason"]) for each in rejects] == [
        (str(tmp_path / "a.zip!/a.txt"), "corrupt_stream")
    ]
    assert "checksum" in rejects[0]["detail"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_that_is_cut_short_is_refused(tmp_path, kind):
    whole = make(tmp_path / f"a.{kind}", FILES).read_bytes()
    for size in (0, 1, 100, len(whole) // 3, len(whole) // 2, len(whole) - 1100, len(whole) - 700, len(whole) - 1):
        if kind == "tar" and size > len(whole) - tarfile.RECORDSIZE // 2:
            continue  # nothing but padding is gone
        (tmp_path / f"a.{kind}").write_bytes(whole[: max(0, size)])
        with pytest.raises(ValueError, match="cannot be read: it is damaged, or no such archive"):
            read(tmp_path / f"a.{kind}")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_that_cannot_be_reached_is_no_damaged_one(tmp_path, monkeypatch, kind):
    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(5, "Input/output error")

    path = make(tmp_path / f"a.{kind}", FILES)
    monkeypatch.setattr(archives.storage, "open_read", lambda _: Failing(b"x" * 10_000))
    with pytest.raises(OSError, match=r"cannot be read: .*Input/output error"):
        plan_splits(InputConfig(paths=[str(path)], on_damage="warn"), "")


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    data = bytearray(make(tmp_path / "a.tar", {"a.txt": b"x\n", "b.txt": b"y\n", "c.txt": b"z\n"}).read_bytes())
    data[data.index(b"b.txt") + 120] ^= 1
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(ValueError, match="what follows byte 1024 is no member; unpack it"):
        read(tmp_path / "a.tar")


def test_more_members_than_fit_into_the_old_format(tmp_path):
    members = {f"{i}.txt": b"" for i in range(70_000)}
    found, left_out = archives.look(_stat(make(tmp_path / "a.zip", members, zipfile.ZIP_STORED)), by_name=True)
    assert (len(found), left_out) == (70_000, [])


def _stat(path: Path) -> FileStat:
    return FileStat(str(path), path.stat().st_size, "v")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
@given(seed=st.integers(0, 1 << 32))
def test_no_damage_is_silent(tmp_path_factory, kind, seed):
    chosen = random.Random(seed)
    path = make(tmp_path_factory.mktemp("damage") / f"a.{kind}", {"a.jsonl": _lines(60, "a"), "b.txt": b"x\ny\n"})
    whole, _, _ = read(path)
    data = bytearray(path.read_bytes())
    for _ in range(chosen.choice([1, 1, 3])):
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)
    try:
        texts, rejects, warnings = read(path)
    except (ValueError, OSError):
        return
    # A tar has no checksum of its members, and there are bytes that mean nothing, such as times.
    assert rejects or warnings or kind == "tar" or {*texts.values()} == {*whole.values()}


def test_a_folder_named_like_an_archive_is_a_folder(tmp_path):
    folder = tmp_path / "a.zip!"
    folder.mkdir()
    (folder / "b.txt").write_text("x\n")
    assert read(folder / "b.txt")[0] == {"b.txt:0": "x"}
    (tmp_path / "d.tar").mkdir()
    (tmp_path / "d.tar" / "b.txt").write_text("x\n")
    assert read(tmp_path / "d.tar")[0] == {"b.txt:0": "x"}


def test_members_are_read_again_in_any_order(tmp_path):
    path = make(tmp_path / "a.tar.gz", {f"{i}.txt": f"{i}\n".encode() * 9000 for i in range(20)})
    for i in (0, 7, 3, 19, 0):
        with archives.open_file(f"{path}!/{i}.txt", "v") as handle:
            assert handle.read(0) == b""
            assert handle.read(2) == f"{i}\n"[:2].encode()
            handle.seek(0)
            assert handle.read() == f"{i}\n".encode() * 9000
    with pytest.raises(OSError, match=r"has no member 'x.txt'"):
        archives.open_file(f"{path}!/x.txt", "v")


def test_a_child_has_a_file_of_its_own(tmp_path):
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    code = """
import os, sys
from tokenmill.pipeline.input import archives
first = archives.open_file(sys.argv[1] + "!/a.txt", "v")
first.read(10)
if os.fork() == 0:
    archives.open_file(sys.argv[1] + "!/b.txt", "v").read()
    os._exit(0)
os.wait()
assert first.read() == b"a" * 199_990
"""
    path = make(tmp_path / "a.tar", {"a.txt": b"a" * 200_000, "b.txt": b"b" * 200_000})
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


@pytest.mark.parametrize("replace", [lambda path: None, os.mkdir, os.mkfifo])
@pytest.mark.parametrize("n", [1, 2])
def test_a_file_that_is_gone_is_named_with_what_to_do(replace, n, tmp_path):
    """A pipe in its place was waited for without end; two small files are read by other code than one."""
    for name in ("a", "b")[:n]:
        (tmp_path / f"{name}.jsonl").write_text('{"text": "a"}\n')
    config = InputConfig(paths=[str(tmp_path / "*.jsonl")])
    (split,) = plan_splits(config, "salt")
    (tmp_path / "a.jsonl").unlink()
    replace(tmp_path / "a.jsonl")
    with pytest.raises(OSError, match=r"a\.jsonl' has gone since the job was planned, or is no file any more; put it"):
        [*read_split(split, config)]


def test_a_directory_that_ends_early_is_not_taken_for_a_short_one(tmp_path):
    data = bytearray(make(tmp_path / "a.zip", {"a.txt": b"x\n", "b.txt": b"y\n"}).read_bytes())
    data[data.index(b"PK\1\2") + 33] = 0x80  # the length of a comment
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(ValueError, match="it says that it has 2 members, and 1 are found; unpack it"):
        read(tmp_path / "a.zip")
