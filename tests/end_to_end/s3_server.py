# SPDX-License-Identifier: Apache-2.0
"""versitygw, an S3 server that people run in front of a filesystem, for tests; and what is in a bucket."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenmill.pipeline.filenames import OF_THE_MOMENT

ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What it takes to reach a server, in the environment, as on a real machine."""


class NotHereError(Exception):
    """The program is not on this machine; the message says where it was looked for."""


@contextlib.contextmanager
def start(folder: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Yields the address, as a URL, of an empty server that keeps its objects in a folder."""
    program = os.environ.get("TOKENMILL_VERSITYGW") or shutil.which("versitygw")
    if program is None:
        raise NotHereError("needs the S3 server versitygw; set TOKENMILL_VERSITYGW: see CONTRIBUTING.md")
    with socket.socket() as free:
        free.bind((host, 0))
        address = f"{host}:{free.getsockname()[1]}"
    account = ["--access", "test", "--secret", "test", "--region", "us-east-1"]
    command = [program, "--port", address, *account, "--quiet", "posix", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 30
            while not _listens(address):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield f"http://{address}"
        finally:
            process.kill()


def _listens(address: str) -> bool:
    host, port = address.split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def keys(client: Any, prefix: str = "") -> list[str]:
    """The keys of the bucket's objects that begin with `prefix`, without those that only name a folder."""
    return [key for key in all_keys(client, prefix) if not key.endswith("/")]


def all_keys(client: Any, prefix: str = "") -> list[str]:
    """The keys of all of the bucket's objects that begin with `prefix`."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
    return [each["Key"] for page in pages for each in page.get("Contents", [])]


def objects(client: Any, prefix: str) -> dict[str, bytes]:
    """The objects below `prefix`, by name; nobody may be writing there, since what is listed could be gone."""
    names = keys(client, prefix)
    return {key[len(prefix) :]: client.get_object(Bucket="bucket", Key=key)["Body"].read() for key in names}


def visible(files: dict[str, bytes]) -> dict[str, bytes]:
    """Those of the files of a job that have final names; but for those that say how long it took."""
    return {name: data for name, data in files.items() if name[0] != "_" and name not in OF_THE_MOMENT}


def upload(client: Any, corpus: Path) -> None:
    """Puts the files of a folder into the bucket, under `corpus/`."""
    for path in sorted(corpus.iterdir()):
        client.upload_file(str(path), "bucket", f"corpus/{path.name}")
