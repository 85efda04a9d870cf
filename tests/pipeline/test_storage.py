# SPDX-License-Identifier: Apache-2.0
"""Files, local and remote; remote is a bucket of a local S3 server."""

import contextlib
import logging
import os
import re
import sys
import time

import pytest

from tests.end_to_end.s3_server import ACCOUNT
from tokenmill.pipeline import storage
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.globbing import matcher
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits


@pytest.fixture(scope="module")
def server():
    """The address of an S3 server."""
    moto_server = pytest.importorskip("moto.server", reason="needs moto, a local S3 server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = moto_server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def client(server, monkeypatch):
    """A client of a store that has an empty bucket, `bucket`."""
    for name, value in ACCOUNT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    client = pytest.importorskip("boto3", reason="needs boto3").client("s3")
    client.create_bucket(Bucket="bucket")
    yield client
    for each in client.list_objects_v2(Bucket="bucket").get("Contents", ()):
        client.delete_object(Bucket="bucket", Key=each["Key"])
    client.delete_bucket(Bucket="bucket")


@pytest.fixture(params=["local", "remote"])
def base(request, tmp_path):
    if request.param == "local":
        return str(tmp_path)
    request.getfixturevalue("client")
    return "s3://bucket"


def match(pattern):
    return sorted(storage.match(pattern), key=lambda file: file.path)


def read(path):
    handle = storage.open_read(path)
    try:
        return handle.read()
    finally:
        handle.close()


def test_a_file_is_written_found_renamed_and_deleted(base):
    staged, final = storage.join(base, "_tmp", "a"), storage.join(base, "out", "a.bin")
    handle = storage.create(staged)
    handle.write(b"data")
    storage.finish(handle)
    assert handle.closed
    assert (storage.exists(staged), storage.exists(final)) == (True, False)
    if not storage.is_remote(base):
        os.mkdir(storage.join(base, "out"))
    storage.rename(staged, final)
    assert (storage.exists(staged), read(final)) == (False, b"data")
    (found,) = match(final)
    assert (found.path, found.n_bytes) == (final, 4)
    storage.delete(final)
    storage.delete(final)
    assert not storage.exists(final)
    assert match(final) == []


def test_write_atomic_replaces_and_leaves_nothing_else(base):
    path = storage.join(base, "sub", "a.json")
    for data in (b"first", b"second"):
        storage.write_atomic(path, data)
        assert read(path) == data
    storage.write_atomic(path, iter([b"piece ", b"", b"by piece"]))
    assert read(path) == b"piece by piece"
    assert storage.list_files(storage.join(base, "sub")) == ["a.json"]


def test_pieces_that_end_in_an_error_leave_the_old_file_and_no_other(base):
    path = storage.join(base, "a.json")
    storage.write_atomic(path, b"old")

    def pieces():
        yield b"new"
        raise ValueError("not JSON")

    with pytest.raises(ValueError, match="not JSON"):
        storage.write_atomic(path, pieces())
    assert read(path) == b"old"
    assert storage.list_files(base) == ["a.json"]


def test_rename_replaces_also_where_the_store_refuses_to(base, monkeypatch):
    source, destination = storage.join(base, "a"), storage.join(base, "b")
    for path, data in ((source, b"new"), (destination, b"old")):
        storage.write_atomic(path, data)
    opened = storage._open_store
    monkeypatch.setattr(storage, "_open_store", lambda *where: LikeHdfs(opened(*where)))
    storage.rename(source, destination)
    assert read(destination) == b"new"
    with pytest.raises(OSError, match=r"rename failed|No such file"):
        storage.rename(source, destination)
    assert read(destination) == b"new"


class LikeHdfs:
    """A filesystem that does not replace a file by a rename."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def move(self, source, destination):
        if self._store.get_file_info(destination).is_file:
            raise OSError("rename failed")
        self._store.move(source, destination)


def test_match_is_ordered_and_gives_files_only(base):
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub/deep/d.txt", "e.json"):
        storage.write_atomic(storage.join(base, name), b"x")
    names = [found.path[len(base) + 1 :] for found in match(storage.join(base, "*.txt"))]
    assert names == ["a.txt", "b.txt"]
    names = [found.path[len(base) + 1 :] for found in match(storage.join(base, "sub/**"))]
    assert names == ["sub/c.txt", "sub/deep/d.txt"]
    assert match(storage.join(base, "sub")) == []
    assert match(storage.join(base, "nothing*")) == []


def test_an_existing_name_with_glob_characters_wins(base):
    for name in ("a[1].txt", "a1.txt", "b*.txt", "bb.txt"):
        storage.write_atomic(storage.join(base, name), b"x")
    for name in ("a[1].txt", "b*.txt"):
        assert [found.path for found in match(storage.join(base, name))] == [storage.join(base, name)]
    storage.delete(storage.join(base, "a[1].txt"))
    assert [found.path for found in match(storage.join(base, "a[1].txt"))] == [storage.join(base, "a1.txt")]


def test_version_changes_with_the_file(base):
    path = storage.join(base, "a")
    versions = set()
    for data in (b"x", b"y", b"yy"):
        if storage.is_remote(base) and data == b"y":
            time.sleep(1.1)  # S3 lists whole seconds
        storage.write_atomic(path, data)
        versions.add(match(path)[0].version)
        assert match(path)[0].version in versions
    assert len(versions) == 3


def test_objects_that_consoles_and_arrow_leave_in_folders_are_no_files(client):
    client.put_object(Bucket="bucket", Key="folder/", Body=b"")
    client.put_object(Bucket="bucket", Key="folder/a b%20#?.txt", Body=b"x")
    (found,) = match("s3://bucket/folder/*")
    assert (found.path, read(found.path)) == ("s3://bucket/folder/a b%20#?.txt", b"x")
    assert [each.path for each in match("s3://bucket/**")] == [found.path]
    assert storage.list_files("s3://bucket/folder") == ["a b%20#?.txt"]
    changed = client.head_object(Bucket="bucket", Key="folder/a b%20#?.txt")["LastModified"].timestamp()
    assert storage.changed_at(found.path) == changed
    assert found == storage.find(found.path) == storage.FileStat(found.path, 1, f"1-{changed!r}")


def test_list_files_and_delete_tree(base):
    for name in ("d/b", "d/a", "d/sub/c", "dd"):
        storage.write_atomic(storage.join(base, name), b"x")
    assert storage.list_files(storage.join(base, "d")) == ["a", "b"]
    assert storage.list_files(storage.join(base, "none")) == []
    storage.delete_tree(storage.join(base, "d"))
    storage.delete_tree(storage.join(base, "d"))
    assert storage.list_files(storage.join(base, "d")) == []
    assert read(storage.join(base, "dd")) == b"x"


def test_local_files_are_synced_before_and_after_their_rename(tmp_path, monkeypatch):
    events = []
    replace, fsync = os.replace, os.fsync

    def record_sync(descriptor):
        events.append("sync directory" if os.path.isdir(f"/dev/fd/{descriptor}") else "sync file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", lambda *names: (events.append("rename"), replace(*names))[1])
    storage.write_atomic(str(tmp_path / "a"), b"x")
    assert events == ["sync file", "rename", "sync directory"]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of other systems differ")
@pytest.mark.parametrize("create", [lambda folder: storage.create(f"{folder}/a"), lambda _: storage.scratch()])
def test_a_limit_on_the_size_of_files_says_how_to_raise_it(create, tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with create(tmp_path) as handle:
            handle.write(bytes(100))
            handle.flush()
            with pytest.raises(OSError, match=r"/[^/]+': File too large: at least 70,000 bytes .* \(ulimit -f\)"):
                handle.write(bytes(70_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_named_with_what_was_to_be_written_and_what_is_free(tmp_path):
    (tmp_path / "a").symlink_to("/dev/full")
    path = str(tmp_path / "a")
    for n_bytes in (70_000, 7):  # the latter wait in a buffer
        handle = storage.create(path)
        said = (
            rf"^{re.escape(repr(path))}: No space left on device: at least {n_bytes:,} bytes were .*, [\d,]+ are free"
        )
        with pytest.raises(OSError, match=said):  # noqa: PT012  # either may raise it
            handle.write(b"x" * n_bytes)
            storage.finish(handle)
        with contextlib.suppress(OSError):  # it tries once more
            handle.close()


def test_a_remote_corpus_is_planned_and_read(client):
    for name, data in {"a.txt": b"one\ntwo\n\nthree\n" * 10, "sub/b.txt": b"four\n"}.items():
        storage.write_atomic(f"s3://bucket/corpus/{name}", data)
    config = InputConfig(paths=["s3://bucket/corpus/**"], split_bytes=50)
    splits = plan_splits(config, "")
    assert [piece.name for split in splits for piece in split.pieces] == ["a.txt"] * 3 + ["sub/b.txt"]
    texts = [
        text
        for split in splits
        for batch in read_split(split, config)
        for text in batch.documents.column("text").to_pylist()
    ]
    assert texts == ["one", "two", "three"] * 10 + ["four"]
    with pytest.raises(ValueError, match="'s3://bucket/other/\\*' matches no file"):
        plan_splits(InputConfig(paths=["s3://bucket/other/*"]), "")


def test_what_cannot_be_examined_is_not_taken_for_absent(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (tmp_path / "file").write_bytes(b"")
    assert not storage.exists(str(tmp_path / "absent"))
    assert not storage.exists(str(tmp_path / "file/below"))
    with pytest.raises(OSError, match="loop"):
        storage.exists(str(loop / "manifest.json"))


def test_a_store_that_does_not_answer_is_named_at_once(monkeypatch):
    for name, value in (ACCOUNT | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}).items():
        monkeypatch.setenv(name, value)
    message = (
        r"the store http://127\.0\.0\.1:1 cannot be used: .*; its address goes into AWS_ENDPOINT_URL, or after --, "
        "as in -- --s3_endpoint_url"
    )
    with pytest.raises(OSError, match=message):
        storage.open_read("s3://bucket/a")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("azfs://account/container/a", "Azure's store is abfs://"),
        ("file:///data/a", "a local path has no scheme; write '/data/a'"),
    ],
)
def test_schemes_that_are_not_read(path, message):
    with pytest.raises(ValueError, match=message):
        match(path)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a/*.txt", ["a/b.txt", "a/.txt"], ["a/b/c.txt", "a/b_txt"]),
        ("a/**.txt", ["a/b.txt", "a/b/c.txt"], ["b/a/c.txt"]),
        ("a/?[b-d][!e]", ["a/xbf"], ["a/xbe", "a//bf", "a/xaf"]),
        ("a/[]x]", ["a/]", "a/x"], ["a/y"]),
        ("a/[x", ["a/[x"], ["a/x"]),
    ],
)
def test_patterns_of_stores(pattern, matching, others):
    is_match = matcher(pattern)
    assert all(map(is_match, matching))
    assert not any(map(is_match, others))


@pytest.mark.parametrize("most", [2, 100])
@pytest.mark.parametrize(
    "pattern", ["data/*/*/*.txt", "data/b*/x/*", "data/**.txt", "data/*/y/b.txt", "*/b1/*/*", "data/[ab]1/?/*"]
)
def test_folders_of_s3_are_listed_side_by_side(client, monkeypatch, pattern, most):
    monkeypatch.setattr(storage, "_MOST_PATTERNS", most)
    keys = [f"data/{a}/{b}/{c}.txt" for a in ("a", "a-1", "a1", "b1", "b2") for b in "xy" for c in "abc"]
    for key in [*keys, "data/at-the-top.txt"]:
        client.put_object(Bucket="bucket", Key=key, Body=b"x\n")
    whole = match(f"s3://bucket/{pattern}")
    (split,) = plan_splits(InputConfig(paths=[f"s3://bucket/{pattern}"]), "")
    patterns = storage.patterns_by_folder(f"s3://bucket/{pattern}")
    assert whole
    assert [piece.path for piece in split.pieces] == [file.path for file in whole]
    assert len(patterns) > 1 or "**" in pattern
