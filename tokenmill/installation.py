# SPDX-License-Identifier: Apache-2.0
"""Checks that the code that Python finds under our names is ours, and complete.

Other packages have the same names as ours. `pip install tokenizer` silently puts its files over ours, and removes ours
when it is uninstalled; and Python prefers a folder `tokenizer` next to the program that it runs. So before anything of
`tokenizer` or `pipeline` is imported, this finds where they are, and compares them with the RECORD that pip has kept. A
checkout has no RECORD, but pip does not write into it either.
"""

import base64
import csv
import glob
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator

PACKAGES = ("pipeline", "tokenizer", "tokenmill")

_MEND = (
    "install each in an environment of its own. To mend this one, uninstall the other, then install TokenMill again "
    "with --force-reinstall --no-deps"
)


def faults(root: str | None = None) -> list[str]:
    """Returns the faults that make our code unusable, each a line with what to do about it; empty if there are none.

    Args:
      root: the folder that our packages are in; by default the one that this package is imported from.
    """
    root = _root() if root is None else root
    found = list(_hidden(root)) or list(_damaged(root))
    return found[:3] + ([f"... and {len(found) - 3} more"] if len(found) > 3 else [])


def strangers(root: str | None = None) -> list[str]:
    """Returns the other distributions that have files in our folders, but do no harm as far as is known."""
    root = _root() if root is None else root
    ours = _record(root)
    others = _others_files(root, ours) if ours else []
    owners = _owners(root, others) if others else []
    return [
        f"TokenMill was installed over {name}, which cannot work any more, and takes files of TokenMill with it when "
        f"it is uninstalled: {_MEND}"
        for name in owners
    ]


def _root() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _hidden(root: str) -> Iterator[str]:
    """Yields the packages that would be imported, or have been, from somewhere else."""
    for package in PACKAGES:
        folder = os.path.join(root, package)
        found = _place(package)
        if found is not None and os.path.realpath(found) != os.path.realpath(folder):
            yield (
                f"the package {package!r} that Python finds is {found!r}, which hides TokenMill's in {folder!r}: "
                "rename it, start from another folder, or take it off sys.path"
            )


def _place(package: str) -> str | None:
    """Returns the folder of a package, or the file of a module of that name; None if there is nothing to import."""
    module = sys.modules.get(package)
    spec = importlib.util.find_spec(package) if module is None else module.__spec__
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return folders[0] if folders else spec.origin


def _damaged(root: str) -> Iterator[str]:
    """Yields those of our files that are missing, or not as they were installed."""
    ours = _record(root)
    changed = [path for path, digest in ours.items() if digest != _digest(os.path.join(root, path))]
    owners = _owners(root, changed) if changed else []
    for path in changed:
        file = os.path.join(root, path)
        what = "is not the file that TokenMill installed" if os.path.exists(file) else "of TokenMill is missing"
        who = (
            f"{' and '.join(owners)} also has it"
            if owners
            else "another package that has the same name may have taken its place"
        )
        yield f"{file!r} {what}; {who}: {_MEND}"


def _record(root: str, pattern: str = "tokenmill-*.dist-info") -> dict[str, str]:
    """Returns file -> digest, as in RECORD, for the files in our folders that distributions have installed."""
    files: dict[str, str] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(root), pattern, "RECORD"))):
        with open(path, encoding="utf-8", newline="") as record:
            rows = (row for row in csv.reader(record) if len(row) == 3)
            files |= {name: digest for name, digest, _ in rows if digest and name.split("/")[0] in PACKAGES}
    return files


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).digest()
    except OSError:
        return ""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _others_files(root: str, ours: dict[str, str]) -> list[str]:
    """Returns the files in our folders that are not ours."""
    found = []
    for package in PACKAGES:
        for folder, folders, names in os.walk(os.path.join(root, package)):
            folders[:] = [name for name in folders if name != "__pycache__"]
            place = os.path.relpath(folder, root).replace(os.sep, "/")
            found += [f"{place}/{name}" for name in names if f"{place}/{name}" not in ours]
    return found


def _owners(root: str, files: list[str]) -> list[str]:
    """Returns the other distributions that have files of these names, with versions, for example `tokenizer 3.5.6`."""
    owners = []
    for path in glob.glob(os.path.join(glob.escape(root), "*.dist-info")):
        name = os.path.basename(path).removesuffix(".dist-info")
        if not name.startswith("tokenmill-") and not _record(
            root, glob.escape(os.path.basename(path))
        ).keys().isdisjoint(files):
            owners.append(name.replace("-", " "))
    return sorted(owners)
