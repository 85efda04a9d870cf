# SPDX-License-Identifier: Apache-2.0
"""Whether TokenMill can be installed beside what trains on its output: `python -m tools beside [PACKAGE ...]`.

For each package pip resolves its newest version alone, and then the same version with what TokenMill depends on, in an
empty environment. Nothing is installed. Printed are pip's reason where that fails, and else who holds back what.
"""

import functools
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PEERS = ("transformers", "datasets", "datatrove", "mosaicml-streaming", "megatron-core")
"""Packages of a training stack."""


class NotResolvedError(Exception):
    """There is no set of versions; the message is pip's."""


@functools.cache
def ours() -> tuple[Requirement, ...]:
    """Returns what TokenMill depends on, by `pyproject.toml`."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return tuple(map(Requirement, project["dependencies"]))


def resolve(*requirements: str) -> dict[str, tuple[str, list[Requirement]]]:
    """Returns the versions that pip would install, and what each needs, by name."""
    with tempfile.NamedTemporaryFile() as report:
        command = ["pip", "install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--quiet"]
        options = ["--disable-pip-version-check", "--report", report.name]
        done = subprocess.run(
            [sys.executable, "-m", *command, *options, *requirements], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotResolvedError(done.stderr.strip())
        found = [entry["metadata"] for entry in json.load(report)["install"]]
    return {
        canonicalize_name(each["name"]): (each["version"], list(map(Requirement, each.get("requires_dist", ()))))
        for each in found
    }


def holders(name: str, version: str, needs: dict[str, tuple[str, list[Requirement]]]) -> list[str]:
    """Returns who does not take `version` of a package, as "name (its range)"."""
    found = [("tokenmill", ours()), *((other, requirements) for other, (_, requirements) in needs.items())]
    return [
        f"{other} ({each.specifier})"
        for other, requirements in found
        for each in requirements
        if canonicalize_name(each.name) == name and not each.specifier.contains(version, prereleases=True)
        and (each.marker is None or each.marker.evaluate({"extra": ""}))
    ]  # fmt: skip


def told(peer: str, alone: dict[str, str]) -> str:
    """Resolves a package beside TokenMill; returns what came of it. `alone`: the newest versions of what we need."""
    newest = resolve(peer)[canonicalize_name(peer)][0]
    try:
        both = resolve(f"{peer}=={newest}", *map(str, ours()))
    except NotResolvedError as error:
        return f"{peer} {newest}: does not resolve\n{error}"
    lines = [f"{peer} {newest}: resolves"]
    for name, version in alone.items():
        if both[name][0] != version:
            held = "; ".join(holders(name, version, both)) or "what these need"
            lines.append(f"  {name} {both[name][0]}, not {version}: {held}")
    return "\n".join(lines)


def newest_of_ours() -> dict[str, str]:
    """Returns the newest version of each package that TokenMill depends on, whatever others in the set need."""
    names = [canonicalize_name(each.name) for each in ours()]
    return {name: resolve(name)[name][0] for name in names}


def main(peers: Iterable[str]) -> None:
    """Prints what comes of each package; ends with 1 if one does not resolve."""
    alone = newest_of_ours()
    print(f"Python {sys.version_info[0]}.{sys.version_info[1]}; newest: {alone}", flush=True)
    all_told = []
    for peer in peers or PEERS:
        all_told.append(told(peer, alone))
        print(all_told[-1], flush=True)
    if any("does not resolve" in each for each in all_told):
        sys.exit(1)
