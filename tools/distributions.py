# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and the sdist of a release into a folder: `python -m tools.distributions build/dist`.

The same sources give the same bytes: every date in them is `SOURCE_DATE_EPOCH`, by default that of the last commit.
setuptools (84) does so for wheels, but packs an sdist with the dates and owners that files happen to have, so the sdist
is packed again. It needs the group `build`, and no network.

With `--kernels` there is a third file: a wheel for this kind of machine and every Python, with all kernels compiled
(`tools.library`). Installed from it, TokenMill compiles nothing.
"""

import argparse
import base64
import gzip
import hashlib
import io
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from setuptools import build_meta

from tools import library


def build(folder: Path) -> list[Path]:
    """Builds from the working directory; returns the paths of sdist and wheel."""
    folder = folder.resolve()
    if "SOURCE_DATE_EPOCH" not in os.environ:
        command = ["git", "log", "-1", "--format=%ct"]
        os.environ["SOURCE_DATE_EPOCH"] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sdist = folder / build_meta.build_sdist(str(folder))
    _pack_again(sdist, int(os.environ["SOURCE_DATE_EPOCH"]))
    return [sdist, folder / build_meta.build_wheel(str(folder))]


def with_kernels(wheel: Path) -> Path:
    """Writes a wheel again, with compiled kernels for this kind of machine; returns its path."""
    tag = f"py3-none-{_platform()}"
    target = wheel.with_name(wheel.name.replace("py3-none-any", tag))
    with zipfile.ZipFile(wheel) as given, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        files = {item.filename: given.read(item) for item in given.infolist()}
        date = given.infolist()[0].date_time
        (info,) = {name.partition("/")[0] for name in files if name.endswith(".dist-info/WHEEL")}
        files[f"{info}/WHEEL"] = files[f"{info}/WHEEL"].replace(b"py3-none-any", tag.encode())
        del files[f"{info}/RECORD"]
        files["tokenmill/tokenizer/compiled/kernels.so"] = _library()
        records = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,", ""]).encode()
        for name, content in files.items():
            item = zipfile.ZipInfo(name, date)
            item.external_attr = 0o100644 << 16
            made.writestr(item, content, zipfile.ZIP_DEFLATED)
    return target


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _platform() -> str:
    """Returns the platform tag: the machine, and the oldest system that pyarrow's wheels run on."""
    machine = platform.machine()
    return f"macosx_11_0_{machine}" if sys.platform == "darwin" else f"manylinux_2_28_{machine}"


def _library() -> bytes:
    """Compiles all kernels; returns the library."""
    with tempfile.TemporaryDirectory() as folder:
        return library.build(Path(folder)).read_bytes()


def _pack_again(sdist: Path, seconds: int) -> None:
    """Gives all files of an sdist the same date and owner, and sorts them."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as given, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as made:
        for member in sorted(given, key=lambda member: member.name):
            content = given.extractfile(member)
            member.mtime, member.mode = seconds, 0o755 if member.isdir() else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            made.addfile(member, content)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.distributions", description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="where the two files go; it is made if it is not there")
    parser.add_argument("--kernels", action="store_true", help="a wheel with compiled kernels, too; it takes minutes")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    made = build(options.folder)
    print(*made, *([with_kernels(made[-1])] if options.kernels else []), sep="\n")
