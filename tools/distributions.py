# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and the sdist of a release into a folder: `python -m tools.distributions build/dist`.

The same sources give the same bytes: every date in them is `SOURCE_DATE_EPOCH`, by default that of the last commit.
setuptools (84) does so for wheels, but packs an sdist with the dates and owners that files happen to have, so the sdist
is packed again. It needs the group `build`, and no network.
"""

import argparse
import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

from setuptools import build_meta


def build(folder: Path) -> list[Path]:
    """Builds from the working directory; returns the paths of sdist and wheel."""
    folder = folder.resolve()
    if "SOURCE_DATE_EPOCH" not in os.environ:
        command = ["git", "log", "-1", "--format=%ct"]
        os.environ["SOURCE_DATE_EPOCH"] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sdist = folder / build_meta.build_sdist(str(folder))
    _pack_again(sdist, int(os.environ["SOURCE_DATE_EPOCH"]))
    return [sdist, folder / build_meta.build_wheel(str(folder))]


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
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print(*build(options.folder), sep="\n")
