# SPDX-License-Identifier: Apache-2.0
"""Large tokenizer files, read once on a machine: later processes map what was made of them instead of reading them.

A file in the cache holds the parts of a tokenizer, with the tables that kernels read: a pickle, and behind it the
arrays, which become views of the mapped file. Its name is a digest over the files that were read, and over the sources
of this package, since other code makes other tables. What is read from the cache equals what was made, array by array,
whether kernels may write to one included, as they are compiled for that: `tests/tokenizer/formats/test_lowered.py`.

The files are beside compiled kernels, and by their rules: in a folder that only this user can write, see
`compiling.kernel_files.cache_directory`. Reading one runs no program all the same: its pickle can name the classes of
this package and what makes arrays, and nothing else.
"""

import copy
import functools
import hashlib
import importlib
import io
import itertools
import mmap
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tokenmill.tokenizer.compiling import kernel_files
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.pre_tokenizers.sequence import scanner_of

LEAST = 1 << 17
"""Files of fewer bytes are read every time, in a few hundredths of a second."""
MOST_BYTES = 1 << 30
"""The most bytes of the cache; the files that were written first are deleted."""
_ALIGNMENT = 64
_SUFFIXES = (".json", ".txt", ".model", ".spm", ".tiktoken")
_MOST_OF_FOLDER, _MOST_NAMES = 1 << 26, 1000
"""The most bytes of such files to read for a digest, and names to look at: a folder may hold other data."""
_ARRAYS = {("numpy", "dtype"), ("numpy._core.numeric", "_frombuffer"), ("numpy.core.numeric", "_frombuffer")}
_ARRAYS |= {("array", "array"), ("array", "_array_reconstructor")}
"""What makes arrays; numpy 1 has another name for its module."""
_PLACE = "\0"
"""Stands in the cache for the name of the file that was read, which messages begin with."""


def kept(contents: Sequence[bytes], source: str, make: Callable[[], Parts], *options: str | None) -> Parts:
    """Returns the parts of a tokenizer: from the cache, or made, and kept there if that is possible.

    Args:
      contents: the contents of the files that the parts are made of; source: what messages call the file.
      make: makes them, of the contents, the options and the source; options: what else they depend on.

    Raises:
      Whatever `make` raises; nothing is kept then.
    """
    path = None if sum(map(len, contents)) < LEAST else _path(contents, options)
    found = None if path is None else _load(path)
    if found is not None:
        return _renamed(found, _PLACE, source)
    made = make()
    if path is not None and made.model is not None:
        _keep(path, _renamed(made, source, _PLACE))
    return made


def kept_folder(path: Path, make: Callable[[], Parts], *options: str | None) -> Parts:
    """Returns the parts of the tokenizer in a folder, as `kept` does; every file that may belong to it counts.

    Raises:
      Whatever `make` raises.
    """
    try:
        names = sorted(itertools.islice(path.iterdir(), _MOST_NAMES))
        found = [each for each in names if each.suffix in _SUFFIXES and each.is_file()]
        if len(names) == _MOST_NAMES or sum(each.stat().st_size for each in found) > _MOST_OF_FOLDER:
            return make()
        contents = [each.read_bytes() for each in found]
    except OSError:  # which `make` may find, too, and name
        return make()
    return kept(contents, str(path), make, "folder", *(each.name for each in found), *options)


def folder() -> Path:
    """Returns the folder of the files; raises OSError if there is none that only this user can write."""
    return kernel_files.cache_directory(Path(__file__))


def _path(contents: Sequence[bytes], options: Sequence[str | None]) -> Path | None:
    """Returns the file for these contents and options, None if there is no folder for it."""
    digest = hashlib.sha256(_sources())
    digest.update(repr((options, [*map(len, contents)])).encode())
    for each in contents:
        digest.update(each)
    try:
        return folder() / f"{digest.hexdigest()}.parts"
    except OSError:
        return None


@functools.cache
def _sources() -> bytes:
    """Returns what makes the parts: Python, numpy, and the sizes and dates of this package's files."""
    found: list[tuple[object, ...] | str] = [sys.version_info[:2], np.__version__]
    for folder, _, names in os.walk(Path(__file__).parents[1]):
        for entry in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            status = os.stat(entry)
            found.append((entry, status.st_size, status.st_mtime_ns))
    return repr(sorted(found, key=str)).encode()


def _renamed(parts: Parts, old: str, new: str) -> Parts:
    """Returns parts whose messages begin with another name of the file."""
    parts = copy.copy(parts)
    for name in ("assumptions", "ignored_fields"):
        texts = (new + text.removeprefix(old) if text.startswith(old) else text for text in getattr(parts, name))
        object.__setattr__(parts, name, tuple(texts))
    return parts


def _load(path: Path) -> Parts | None:
    """Returns what `_keep` has written, None if there is no such file."""
    try:
        with path.open("rb") as file:
            # Private, so that arrays to which kernels may write, as to those that were made, never change the file.
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        n = int.from_bytes(view[:8], sys.byteorder)
        spans = np.frombuffer(view, np.int64, 2 * n, 8).reshape(n, 2).tolist()
        data, *buffers = (view[start:stop] for start, stop in spans)
        parts = _Unpickler(io.BytesIO(data), buffers=buffers).load()
    except (OSError, ValueError, EOFError, pickle.UnpicklingError):  # not there, not to be mapped, or cut by a crash
        return None
    return parts if isinstance(parts, Parts) else None


class _Unpickler(pickle.Unpickler):
    """Makes what `_keep` writes, of classes alone: a file that names a function is none of ours."""

    def find_class(self, module: str, name: str) -> object:
        """Returns a class of this package, or what makes arrays; raises UnpicklingError for any other name."""
        if module.startswith("tokenmill.tokenizer."):
            kind = getattr(importlib.import_module(module), name, None)
            if isinstance(kind, type):
                return kind
        elif (module, name) in _ARRAYS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a tokenizer")


def _keep(path: Path, parts: Parts) -> None:
    """Writes parts, whole or not at all: the number of blocks, where each begins and ends, the pickle, the arrays."""
    blocks: list[pickle.PickleBuffer] = []
    try:
        _ = parts.model.tables, parts.pre_tokenizer and scanner_of(parts.pre_tokenizer)
        data = pickle.dumps(parts, protocol=5, buffer_callback=blocks.append)
    except ValueError:  # a vocabulary that is refused when the tables are made, which the first encoding says
        return
    views = [memoryview(data), *(block.raw() for block in blocks)]
    sizes = np.array([view.nbytes for view in views])
    rooms = -(-np.append(8 + 16 * len(views), sizes) // _ALIGNMENT) * _ALIGNMENT
    starts = np.cumsum(rooms)[:-1]
    out = np.zeros(int(rooms.sum()), np.uint8)
    out[:8] = np.frombuffer(np.int64(len(views)).tobytes(), np.uint8)
    out[8 : 8 + 16 * len(views)] = np.stack([starts, starts + sizes], axis=1).ravel().view(np.uint8)
    for view, start, size in zip(views, starts.tolist(), sizes.tolist(), strict=True):
        out[start : start + size] = view
    try:
        files.write_bytes(path, out.tobytes())
        _make_room(path)
    except OSError:  # a full disk: the next process makes the parts again
        return


def _make_room(path: Path) -> None:
    """Deletes the oldest files of the cache while it is larger than `MOST_BYTES`, but not this one."""
    found = sorted((entry.stat().st_mtime_ns, entry) for entry in path.parent.glob("*.parts") if entry != path)
    total = path.stat().st_size + sum(entry.stat().st_size for _, entry in found)
    for _, entry in found:
        if total > MOST_BYTES:
            total -= entry.stat().st_size
            entry.unlink(missing_ok=True)
