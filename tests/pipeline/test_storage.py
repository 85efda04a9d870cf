# SPDX-License-Identifier: Apache-2.0
"""Files, local and remote; remote is a store in memory that Beam knows under `fake://`."""

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata, FileSystem

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits

STORE = {}


class FakeFileSystem(FileSystem):
    """An object store: names and bytes, no directories."""

    refuses_replacement = False

    @classmethod
    def scheme(cls):
        return "fake"

    def join(self, basepath, *paths):
        return "/".join([basepath, *paths])

    def split(self, path):
        return tuple(path.rsplit("/", 1))

    def mkdirs(self, path):
        pass

    def has_dirs(self):
        return False

    def _list(self, dir_or_prefix):
        for path in list(STORE)[::-1]:
            if path.startswith(dir_or_prefix):
                yield self.metadata(path)

    def metadata(self, path):
        if path not in STORE:
            raise BeamIOError(f"no object {path}")
        data, changed = STORE[path]
        return FileMetadata(path, len(data), changed)

    def create(self, path, mime_type="", compression_type=CompressionTypes.AUTO):
        assert compression_type == CompressionTypes.UNCOMPRESSED

        class Upload(io.BytesIO):
            def close(self):
                if not self.closed:
                    STORE[path] = (self.getvalue(), time.time())
                super().close()

        return Upload()

    def open(self, path, mime_type="", compression_type=CompressionTypes.AUTO):
        assert compression_type == CompressionTypes.UNCOMPRESSED
        self.metadata(path)
        return io.BytesIO(STORE[path][0])

    def copy(self, source_file_names, destination_file_names):
        for source, destination in zip(source_file_names, destination_file_names, strict=True):
            STORE[destination] = STORE[source]

    def rename(self, source_file_names, destination_file_names):
        for source, destination in zip(source_file_names, destination_file_names, strict=True):
            if source not in STORE or (self.refuses_replacement and destination in STORE):
                raise BeamIOError("rename failed")
            STORE[destination] = STORE.pop(source)

    def exists(self, path):
        return path in STORE

    def size(self, path):
        return self.metadata(path).size_in_bytes

    def last_updated(self, path):
        return self.metadata(path).last_updated_in_seconds

    def checksum(self, path):
        return f"sum-{len(STORE[path][0])}"

    def delete(self, paths):
        for path in paths:
            names = [name for name in STORE if name == path or (path.endswith("/") and name.startswith(path))]
            if not names:
                raise BeamIOError(f"no object {path}")
            for name in names:
                del STORE[name]


@pytest.fixture(params=["local", "remote"])
def base(request, tmp_path):
    STORE.clear()
    return str(tmp_path) if request.param == "local" else "fake://bucket"


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


def test_open_files_can_be_sought_and_missing_ones_are_errors(base):
    storage.write_atomic(storage.join(base, "a.gz"), b"0123456789")
    handle = storage.open_read(storage.join(base, "a.gz"))
    handle.seek(4)
    assert (handle.read(3), handle.tell()) == (b"456", 7)
    handle.close()
    with pytest.raises(OSError, match="missing"):
        storage.open_read(storage.join(base, "missing"))


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


def test_a_failed_write_leaves_the_old_file_and_no_other(base, monkeypatch):
    path = storage.join(base, "a.json")
    storage.write_atomic(path, b"old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(storage, "rename", fail)
    with pytest.raises(OSError, match="no space left"):
        storage.write_atomic(path, b"new")
    assert read(path) == b"old"
    assert storage.list_files(base) == ["a.json"]


def test_rename_replaces_also_where_the_store_refuses_to(base, monkeypatch):
    monkeypatch.setattr(FakeFileSystem, "refuses_replacement", True)
    source, destination = storage.join(base, "a"), storage.join(base, "b")
    STORE.update({name: (data, 1.0) for name, data in {source: b"new", destination: b"old"}.items()})
    if not storage.is_remote(base):
        for path, data in ((source, b"new"), (destination, b"old")):
            with open(path, "wb") as file:
                file.write(data)
    storage.rename(source, destination)
    assert read(destination) == b"new"
    with pytest.raises(OSError, match=r"rename failed|No such file"):
        storage.rename(source, destination)
    assert read(destination) == b"new"


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
        storage.write_atomic(path, data)
        versions.add(match(path)[0].version)
        assert match(path)[0].version in versions
    assert len(versions) == 3


def test_a_store_without_times_gives_its_checksum():
    STORE.clear()
    STORE["fake://bucket/a"] = (b"data", None)
    STORE["fake://bucket/folder/"] = (b"", None)
    assert match("fake://bucket/*") == [storage.FileStat("fake://bucket/a", 4, "4-sum-4")]
    assert match("fake://bucket/folder/*") == []


def test_list_files_and_delete_tree(base):
    for name in ("d/b", "d/a", "d/sub/c", "dd"):
        storage.write_atomic(storage.join(base, name), b"x")
    assert storage.list_files(storage.join(base, "d")) == ["a", "b"]
    assert storage.list_files(storage.join(base, "none")) == []
    storage.delete_tree(storage.join(base, "d"))
    storage.delete_tree(storage.join(base, "d"))
    assert storage.list_files(storage.join(base, "d")) == []
    assert read(storage.join(base, "dd")) == b"x"


def test_join():
    assert storage.join("gs://bucket/out/", "a", "b.json") == "gs://bucket/out/a/b.json"
    assert storage.join("out", "a") == os.path.join("out", "a")


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
def test_a_limit_on_the_size_of_files_says_how_to_raise_it(tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with storage.create(str(tmp_path / "a")) as handle:
            handle.write(bytes(100))
            handle.flush()
            with pytest.raises(OSError, match=r"/a': File too large: at least 70,000 bytes .* \(ulimit -f\)"):
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


def test_new_directories_are_synced_into_those_above(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(storage, "_sync_directory", synced.append)
    path = str(tmp_path / "a/b/c.txt")
    storage.finish(storage.create(path))
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    storage.finish(storage.create(path))
    assert len(synced) == 2


def test_local_files_need_no_beam(tmp_path):
    code = (
        "import sys; from tokenmill.pipeline import storage; from tokenmill.pipeline.config.input import InputConfig\n"
        "from tokenmill.pipeline.input.reading import read_split\n"
        "from tokenmill.pipeline.input.splitting import plan_splits\n"
        "storage.write_atomic(sys.argv[1], b'text'); config = InputConfig(paths=[sys.argv[1]])\n"
        "(split,) = plan_splits(config, ''); assert list(read_split(split, config))\n"
        "assert 'apache_beam' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.txt")], check=True, cwd=Path(storage.__file__).parents[2]
    )


def test_a_remote_corpus_is_planned_and_read():
    STORE.clear()
    for name, data in {"a.txt": b"one\ntwo\n\nthree\n" * 10, "sub/b.txt": b"four\n"}.items():
        storage.write_atomic(f"fake://bucket/corpus/{name}", data)
    config = InputConfig(paths=["fake://bucket/corpus/**"], split_bytes=50)
    splits = plan_splits(config, "")
    assert [piece.name for split in splits for piece in split.pieces] == ["a.txt"] * 3 + ["sub/b.txt"]
    texts = [
        text
        for split in splits
        for batch in read_split(split, config)
        for text in batch.documents.column("text").to_pylist()
    ]
    assert texts == ["one", "two", "three"] * 10 + ["four"]
    with pytest.raises(ValueError, match="'fake://bucket/other/\\*' matches no file"):
        plan_splits(InputConfig(paths=["fake://bucket/other/*"]), "")


def test_operations_on_s3_share_a_client(monkeypatch):
    pytest.importorskip("boto3", reason="needs the extra aws")
    from apache_beam.io.aws.clients.s3 import boto3_client

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr(storage, "_check_s3", lambda *_: None)  # nobody answers there
    storage.exists("fake://bucket/a")  # the first remote path
    options = {"s3_endpoint_url": "http://localhost:1", "s3_region_name": "us-east-1"}
    first, again = (boto3_client.Client(options) for _ in range(2))
    elsewhere = boto3_client.Client(options | {"s3_endpoint_url": "http://localhost:2"})
    assert first.client is again.client
    assert first.client is not elsewhere.client
    assert elsewhere.client.meta.endpoint_url == "http://localhost:2"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:3")
    third = boto3_client.Client({"s3_region_name": "us-east-1"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:4")
    fourth = boto3_client.Client({"s3_region_name": "us-east-1"})
    assert [each.client.meta.endpoint_url for each in (third, fourth)] == ["http://localhost:3", "http://localhost:4"]


def test_what_cannot_be_examined_is_not_taken_for_absent(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (tmp_path / "file").write_bytes(b"")
    assert not storage.exists(str(tmp_path / "absent"))
    assert not storage.exists(str(tmp_path / "file/below"))
    with pytest.raises(OSError, match="loop"):
        storage.exists(str(loop / "manifest.json"))


def test_a_store_that_does_not_answer_is_named_at_once(monkeypatch):
    """Beam tries each request again, for five minutes, and then ends in a traceback."""
    boto3 = pytest.importorskip("boto3", reason="needs the test group: boto3")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    session = storage._s3_session(boto3)()
    message = (
        r"the store http://127\.0\.0\.1:1 cannot be used: .*; its address goes after --, as in -- --s3_endpoint_url"
    )
    with pytest.raises(OSError, match=message):
        session.client(service_name="s3", endpoint_url="http://127.0.0.1:1", region_name="eu-west-1")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize(
    "value", ["2026-07-10T10:11:12.000Z", "2026-07-10T10:11:12Z", "Fri, 10 Jul 2026 10:11:12 GMT", 7]
)
def test_times_of_s3_are_those_of_botocore(monkeypatch, zone, value):
    pytest.importorskip("boto3", reason="needs the extra aws")
    from apache_beam.io.aws.s3io import S3IO
    from botocore.utils import parse_timestamp

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        found, expected = storage._parse_time(value), parse_timestamp(value)
        assert found == expected
        assert S3IO._updated_to_seconds(found) == S3IO._updated_to_seconds(expected)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("most", [2, 100])
@pytest.mark.parametrize(
    "pattern", ["data/*/*/*.txt", "data/b*/x/*", "data/**.txt", "data/*/y/b.txt", "*/b1/*/*", "data/[ab]1/?/*"]
)
def test_folders_of_s3_are_listed_side_by_side(monkeypatch, pattern, most):
    boto3 = pytest.importorskip("boto3", reason="needs the extra aws")
    moto = pytest.importorskip("moto", reason="needs moto")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(storage, "_MOST_PATTERNS", most)
    keys = [f"data/{a}/{b}/{c}.txt" for a in ("a", "a-1", "a1", "b1", "b2") for b in "xy" for c in "abc"]
    with moto.mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="corpus")
        for key in [*keys, "data/at-the-top.txt"]:
            client.put_object(Bucket="corpus", Key=key, Body=b"x\n")
        whole = match(f"s3://corpus/{pattern}")
        (split,) = plan_splits(InputConfig(paths=[f"s3://corpus/{pattern}"]), "")
        patterns = storage.patterns_by_folder(f"s3://corpus/{pattern}")
    assert whole
    assert [piece.path for piece in split.pieces] == [file.path for file in whole]
    assert len(patterns) > 1 or "**" in pattern
