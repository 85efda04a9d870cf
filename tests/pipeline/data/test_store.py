# SPDX-License-Identifier: Apache-2.0
"""Outputs on an object store, S3's protocol against a local server: ranged reads, and the rows of the local folder."""

import pytest

import tokenmill.data
from tokenmill.pipeline import storage
from tokenmill.pipeline.data import shards

boto3 = pytest.importorskip("boto3", reason="needs boto3")
moto_server = pytest.importorskip("moto.server", reason="needs moto, a local S3 server")
ACCOUNT = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@pytest.fixture
def upload(monkeypatch):
    """Copies a folder to a store, and returns its address there."""
    server = moto_server.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in {**ACCOUNT, "AWS_ENDPOINT_URL": address, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=address)
    client.create_bucket(Bucket="bucket")

    def copy(folder):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            client.upload_file(str(path), "bucket", f"out/{path.relative_to(folder)}")
        return "s3://bucket/out"

    yield copy
    server.stop()


def test_rows_on_a_store_are_those_of_the_local_folder(jobs, upload, monkeypatch) -> None:
    place = upload(jobs["documents"].output)
    monkeypatch.setattr(shards, "_UNIT_BYTES", 16)  # several units in a shard
    for format in ("memmap", "megatron", "arrow", "parquet"):
        local = tokenmill.data.open(jobs["documents"].output, format=format)
        remote = tokenmill.data.open(place, format=format, check="contents" if format == "memmap" else "sizes")
        assert remote.digest == local.digest
        assert remote[:].equals(local[:])
        read = [batch.to_pydict() for batch in remote.samples(7, seed=2, prefetch=2, form="arrow")]
        assert read == [batch.to_pydict() for batch in local.samples(7, seed=2, form="arrow")]
        row = remote[5]["input_ids"].tolist()
        assert row == local[5]["input_ids"].tolist()


def test_only_the_bytes_of_a_unit_are_asked_for(jobs, upload, monkeypatch) -> None:
    monkeypatch.setattr(shards, "_UNIT_BYTES", 16)
    asked: list[int] = []
    opened = storage.open_ranges

    class Counted:
        def __init__(self, file) -> None:
            self.size, self._file = file.size, file

        def read_at(self, n_bytes: int, offset: int) -> bytes:
            asked.append(n_bytes)
            return self._file.read_at(n_bytes, offset)

    monkeypatch.setattr(storage, "open_ranges", lambda path: Counted(opened(path)))
    data = tokenmill.data.open(upload(jobs["documents"].output), format="memmap", columns=["input_ids"])
    row = data[60]
    index, ids = asked[-2:]
    assert index == 128 + 8 * 5  # a shard has at most four rows, and they are in one file
    assert ids == 2 * row["input_ids"].size
    n_asked = len(asked)
    assert data[60]["input_ids"].tolist() == row["input_ids"].tolist()
    assert len(asked) == n_asked  # it is in the cache
    assert sum(int(sizes.sum()) for sizes in data.sizes()) == data.n_tokens
    assert len(asked) - n_asked <= len(data.files)  # of each shard the index, and no ids
