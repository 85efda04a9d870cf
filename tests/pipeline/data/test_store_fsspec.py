# SPDX-License-Identifier: Apache-2.0
"""Outputs that are read through fsspec: in memory, and on a local stand-in of the hub's protocol."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import tokenmill.data
from tokenmill.pipeline import storage
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.proving.verify import verify

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")


class Hub(BaseHTTPRequestHandler):
    """The data set me/set, main: what is in `root`; answers what `HfFileSystem` asks to list and to read."""

    root: Path
    ranges: list[int]

    def do_GET(self):
        path = self.path.partition("?")[0]
        if "/tree/" in path:
            folder = self.root / path.partition("/tree/main")[2].strip("/")
            return (
                self.answer([self.entry(each) for each in sorted(folder.iterdir())]) if folder.is_dir() else self.fail()
            )
        if "/resolve/" in path:
            file = self.root / path.partition("/resolve/main/")[2]
            if not file.is_file():
                return self.fail()
            first, last = self.headers.get("range", "bytes=0-").removeprefix("bytes=").split("-")
            data = file.read_bytes()[int(first) : int(last) + 1 if last else None]
            self.ranges.append(len(data))
            return self.answer(data)
        return self.answer({"id": "me/set", "_id": "1", "sha": "main", "private": False, "siblings": []})

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):  # paths-info
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        paths = (
            json.loads(asked)["paths"]
            if asked.startswith("{")
            else [part.partition("=")[2].replace("%2F", "/") for part in asked.split("&") if part.startswith("paths")]
        )
        self.answer([self.entry(self.root / path) for path in paths if (self.root / path).exists()])

    def entry(self, path):
        name, size = str(path.relative_to(self.root)), path.stat().st_size
        kind = "directory" if path.is_dir() else "file"
        return {"type": kind, "path": name, "size": size, "oid": "0"}

    def answer(self, value):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(206 if isinstance(value, bytes) else 200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def fail(self):
        self.send_response(404)
        self.send_header("x-error-code", "EntryNotFound")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def upload_to_hub(monkeypatch):
    """Serves a folder, and returns its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    template = hub.constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", address)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    hub.close_session()  # whose hooks were made offline
    hub.HfFileSystem.clear_instance_cache()
    storage._open_store.cache_clear()

    def serve(folder):
        Hub.root, Hub.ranges = folder, []
        return "hf://datasets/me/set"

    yield serve
    server.shutdown()
    server.server_close()
    storage._open_store.cache_clear()


def upload_to_memory(folder):
    store = fsspec.filesystem("memory")
    store.rm("/bucket", recursive=True) if store.exists("/bucket") else None
    store.put(f"{folder}/", "/bucket/out/", recursive=True)
    return "memory://bucket/out"


@pytest.fixture
def address(request, upload_to_hub):
    return upload_to_hub if request.param == "hub" else upload_to_memory


@pytest.mark.parametrize("address", ["memory", "hub"], indirect=True)
def test_rows_and_proofs_are_those_of_the_local_folder(jobs, address) -> None:
    local = jobs["documents"].output
    place = address(local)
    for format in ("memmap", "parquet"):
        ours, theirs = (tokenmill.data.open(each, format=format, cache_bytes=1 << 12) for each in (local, place))
        assert theirs.digest == ours.digest
        assert theirs[:].equals(ours[:])
        assert theirs[7]["input_ids"].tolist() == ours[7]["input_ids"].tolist()
        assert theirs._n_cached <= 1 << 13  # a bound, and the unit that was read last
    assert verify(place).problems == []


@pytest.mark.parametrize("address", ["memory", "hub"], indirect=True)
def test_a_corpus_is_listed_and_nothing_is_written(tmp_path, address) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        (tmp_path / "data" / f"{name}.jsonl").write_text('{"text": "the mill"}\n')
    place = address(tmp_path / "data")
    splits = plan_splits(InputConfig(paths=[f"{place}/*.jsonl"]), "salt")
    assert [piece.path for split in splits for piece in split.pieces] == [f"{place}/a.jsonl", f"{place}/b.jsonl"]
    with storage.open_read(f"{place}/b.jsonl") as handle:
        assert handle.read() == b'{"text": "the mill"}\n'
    with pytest.raises(OSError, match="is only read; write to a local folder, and upload that"):
        storage.create(f"{place}/new")
    with pytest.raises(FileNotFoundError):
        storage.open_read(f"{place}/absent.jsonl")
