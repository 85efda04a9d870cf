# SPDX-License-Identifier: Apache-2.0
"""Jobs whose input and output are in an object store: S3's protocol through Arrow, against a local server.

A store has no directories and no rename: Arrow copies and deletes. So a kill may leave a shard under its final name
whose ledger entry is missing, and never an entry whose shard is not there.
"""

import contextlib
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tests.end_to_end import s3_server
from tests.end_to_end.s3_server import all_keys, keys, objects, upload, visible
from tokenmill.pipeline.output import ownership

boto3 = pytest.importorskip("boto3", reason="needs boto3")
moto_server = pytest.importorskip("moto.server", reason="needs moto, a local S3 server")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["moto", "versitygw"])
def server(request, tmp_path_factory):
    """Yields the address of an empty S3 server: of moto's, and of one that people run, if it is named."""
    if request.param == "moto":
        running = moto_server.ThreadedMotoServer(port=0, verbose=False)
        running.start()
        host, port = running.get_host_and_port()
        yield f"http://{host}:{port}"
        running.stop()
        return
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(s3_server.start(tmp_path_factory.mktemp("store")))
        except s3_server.NotHereError as why:
            pytest.skip(str(why))
        yield address


@pytest.fixture
def store(server, monkeypatch):
    """A client of an empty bucket, with what it takes to reach it in the environment, as on a real machine."""
    for name, value in s3_server.ACCOUNT.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=server)
    client.create_bucket(Bucket="bucket")
    yield client
    for key in all_keys(client):
        client.delete_object(Bucket="bucket", Key=key)
    client.delete_bucket(Bucket="bucket")


def sections(paths, vocab):
    return {
        "input": {"paths": paths, "split_bytes": 1 << 20},
        "tokenizer": {"file": str(vocab), "max_unknown_fraction": 1.0},
    }


NAMES = ("*.jsonl*", "*.txt", "*.parquet")


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_a_job_from_store_to_store_writes_the_same_bytes(server, store, corpus, make_job, tiny_vocab_file, mode):
    local = make_job("local", **sections([str(corpus / name) for name in NAMES], tiny_vocab_file))
    assert local.run("tokenize", "--mode", "inline") == 0
    upload(store, corpus)
    remote = make_job("remote", **sections([f"s3://bucket/corpus/{name}" for name in NAMES], tiny_vocab_file))
    arguments = ["--set", "output.path=s3://bucket/out", "--workers", "2", "--mode", mode]
    beam_options = ["--", f"--s3_endpoint_url={server}"]
    assert remote.run("tokenize", *arguments, *beam_options) == 0
    written = objects(store, "out/")
    assert visible(written) == local.files()
    assert not [name for name in written if name.endswith(".tmp") or name.startswith("_tmp/")]


def test_sources_and_members_of_archives_are_read_from_the_store(server, store, corpus, make_job, tiny_vocab_file):
    packed = corpus.parent / "packed" / "corpus"
    packed.mkdir(parents=True)
    for name, mode in (("a.tar", "w"), ("b.tar.gz", "w:gz")):
        with tarfile.open(packed / name, mode) as archive:
            for path in sorted(corpus.glob("*.jsonl*")):
                archive.add(path, path.name, filter=_without_time)
    with zipfile.ZipFile(packed / "c.zip", "w") as archive:
        archive.write(corpus / "e.txt", "e.txt")
    upload(store, packed)
    made = {}
    for name, place in (("local", str(packed)), ("remote", "s3://bucket/corpus")):
        names = {"a": "*.tar", "b": "*.gz", "c": "*.zip"}
        sources = {source: {"paths": [f"{place}/{pattern}"]} for source, pattern in names.items()}
        job = made[name] = make_job(
            name,
            input={"sources": sources, "split_bytes": 3000},
            tokenizer={"file": str(tiny_vocab_file), "max_unknown_fraction": 1.0},
        )
        more = ["--", f"--s3_endpoint_url={server}"] if name == "remote" else []
        assert job.run("tokenize", "--workers", "2", *more) == 0
        assert job.run("verify", "--deep", *more) == 0
    assert made["remote"].files() == made["local"].files()


def _without_time(info):
    info.mtime = 0
    return info


def test_a_shuffle_reads_its_runs_from_the_store(server, store, corpus, make_job, tiny_vocab_file):
    shuffle = ["--set", "output.shuffle.shards=2"]
    local = make_job("local", **sections([str(corpus / name) for name in NAMES], tiny_vocab_file))
    assert local.run("tokenize", *shuffle, "--mode", "inline") == 0
    upload(store, corpus)
    remote = make_job("remote", **sections([f"s3://bucket/corpus/{name}" for name in NAMES], tiny_vocab_file))
    arguments = [*shuffle, "--set", "output.path=s3://bucket/out", "--workers", "2"]
    assert remote.run("tokenize", *arguments, "--", f"--s3_endpoint_url={server}") == 0
    written = objects(store, "out/")
    assert visible(written) == local.files()
    assert not [name for name in written if name.endswith(".tmp") or name.startswith(("_tmp/", "_runs/"))]


def test_a_killed_job_goes_on_where_it_was(server, store, corpus, make_job, tiny_vocab_file, monkeypatch):
    local = make_job("local", **sections([str(corpus / name) for name in NAMES], tiny_vocab_file))
    assert local.run("tokenize", "--mode", "inline") == 0
    upload(store, corpus)
    remote = make_job("remote", **sections([f"s3://bucket/corpus/{name}" for name in NAMES], tiny_vocab_file))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)  # the other way to name a server
    monkeypatch.setattr(ownership, "SILENT_SECONDS", 15.0)
    arguments = ["tokenize", str(remote.config), "--set", "output.path=s3://bucket/out", "--workers", "1"]
    command = [sys.executable, "-m", "tokenmill", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 240
            while len([name for name in keys(store, "out/_ledger/") if name.endswith(".json")]) < 2:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            process.kill()
    left = objects(store, "out/")
    assert "manifest.json" not in left
    assert "_owner.json" in left
    kept = {name: data for name, data in left.items() if name.startswith("_ledger/") and name.endswith(".json")}
    with contextlib.chdir(ROOT):
        assert remote.run(arguments[0], *arguments[2:], "--resume") == 0
    finished = objects(store, "out/")
    assert "_owner.json" not in finished
    assert visible(finished) == local.files()
    assert all(finished[name] == data for name, data in kept.items())
    assert not [name for name in finished if name.endswith(".tmp") or name.startswith("_tmp/")]


def test_a_folder_of_a_store_is_owned_too(server, store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setattr(ownership, "BEAT_SECONDS", 0.2)
    output = "s3://bucket/out"
    with ownership.own(output, "run") as lease:
        first = store.head_object(Bucket="bucket", Key="out/_owner.json")["LastModified"]
        with pytest.raises(ValueError, match=f"is in use: run, process {os.getpid()} on"), ownership.own(output, "run"):
            pass
        deadline = time.monotonic() + 60
        while store.head_object(Bucket="bucket", Key="out/_owner.json")["LastModified"] == first:  # it is renewed
            assert time.monotonic() < deadline
            time.sleep(0.1)
        lease.check()
    assert keys(store) == []

    # Whether another is dead can only be told by how long it is silent.
    record = {"nonce": "0" * 32, "command": "run", "since": "long ago", "host": "elsewhere", "pid": 17, "machine": ""}
    store.put_object(Bucket="bucket", Key="out/_owner.json", Body=json.dumps(record).encode())
    assert "on 'elsewhere', since long ago" in ownership.living_owner(output)
    monkeypatch.setattr(ownership, "SILENT_SECONDS", 2.0)
    with ownership.own(output, "run") as lease:
        lease.check()
    assert keys(store) == []
