# SPDX-License-Identifier: Apache-2.0
"""The files that a kernel is compiled from, and the place of its compiled code: a cache that is never out of date.

numba's own `cache=True` notices a change in the file of a function, not in the files of the functions it calls, and
fails if neither the source tree nor the home directory can be written. Here the cache of a kernel is named by a digest
over its file, every kernel file that it imports, and this folder, and is in the first of three places that can be
written: next to the sources, the user's cache directory, the temporary directory. `TOKENMILL_CACHE_DIR` overrides the
choice.

A kernel file is known by its name: `kernels.py`, one that ends in `_kernels.py`, or one in a folder `kernels`.
"""

import contextlib
import functools
import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from tokenmill.tokenizer.compiling import machine_code

_ROOT = Path(__file__).parents[3]
_IMPORT = re.compile(
    rb"^ *from (tokenmill\.(?:tokenizer|pipeline)(?:\.\w+)*) import (?:([\w, ]+)(?:#.*)?$|\(([\w,\s]+)\))", re.MULTILINE
)


@functools.cache
def _imports(path: Path) -> tuple[bytes, frozenset[Path]]:
    """Returns the source of a file, and the kernel files that its imports name."""
    source = path.read_bytes()
    found: set[Path] = set()
    for module, one_line, lines in _IMPORT.findall(source):
        names = [name.split()[0].decode() for name in (one_line or lines).split(b",") if name.strip()]
        found |= _kernel_files(module.decode(), *names)
    return source, frozenset(found)


@functools.cache
def _kernel_files(module: str, *names: str) -> frozenset[Path]:
    """Returns the kernel files among what `from module import names` imports."""
    path = _ROOT.joinpath(*module.split("."))
    files = [path.with_suffix(".py")] if _holds_kernels(module) else []
    files += [path / f"{name}.py" for name in names if _holds_kernels(f"{module}.{name}")]
    return frozenset(file for file in files if file.is_file())


def _holds_kernels(module: str) -> bool:
    """Whether a module holds kernels by its name: its name, or that of a package that it is in, ends in `kernels`."""
    return any(part.endswith("kernels") for part in module.split("."))


def kernel_sources(path: Path) -> dict[Path, bytes]:
    """Returns `path` and all kernel files whose code can be compiled into its kernels, with their sources."""
    found: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        path = waiting.pop()
        found[path], imported = _imports(path)
        waiting += imported - found.keys()
    return found


@functools.cache
def sources_digest(*paths: Path, alone: Path | None = None) -> str:
    """Returns the name of the cache of source files: it changes with these, those they import, and the compiler.

    alone: one more file, taken without what it imports.
    """
    # The digest covers settings such as bounds checks, which numba's own cache ignores.
    digest = hashlib.sha256(_compiler())
    sources = {file: source for path in paths for file, source in kernel_sources(path).items()}
    if alone is not None:
        sources[alone] = alone.read_bytes()
    for file, source in sorted(sources.items()):
        # With its folder, because numba's cache names the module, and a file that has moved is another module.
        name = file.relative_to(_ROOT).as_posix() if file.is_relative_to(_ROOT) else file.name
        digest.update(name.encode() + b"\0" + source)
    return digest.hexdigest()[:16]


_CHANGES_CODE = (
    "BOUNDSCHECK", "CPU_FEATURES", "CPU_NAME", "DEBUGINFO", "DISABLE_INTEL_SVML", "ENABLE_AVX",
    "EXTEND_VARIABLE_LIFETIMES", "LLVM_REFPRUNE_FLAGS", "LLVM_REFPRUNE_PASS", "LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE",
)  # fmt: skip
"""numba's variables on which compiled code depends. Others, as for threads, caches and logs, change nothing in it."""


@functools.cache
def numba_settings() -> dict[str, str]:
    """Returns the settings of numba in this environment on which compiled code depends, by name."""
    names = (f"NUMBA_{name}" for name in _CHANGES_CODE)
    found = {name: os.environ[name] for name in names if os.environ.get(name)}
    file = Path(".numba_config.yaml")
    if file.is_file():
        found[file.name] = file.read_text(encoding="utf-8", errors="surrogateescape")
    return found


@functools.cache
def _own_sources() -> bytes:
    """Returns the sources of this folder: some of it is compiled into kernels, the rest compiles them."""
    return b"\0".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))


def _compiler() -> bytes:
    """Returns the version of the compiler and its settings, and the sources of this folder."""
    version = machine_code.numba_folder() / "_version.py"
    if version.is_file():
        numba_is = version.read_text(encoding="utf-8")
    else:
        import numba

        numba_is = numba.__version__
    return numba_is.encode() + repr(sorted(numba_settings().items())).encode() + _own_sources()


@functools.cache
def cache_directory(*paths: Path, alone: Path | None = None) -> Path:
    """Returns the directory for the compiled kernels of some source files: the first candidate that can be written.

    If there is none, as in a read-only container or on a full disk, it is one that holds kernels already: what is there
    need not be compiled. It is named after the first file; see `sources_digest`.

    Raises:
      OSError: if no candidate can be written or holds kernels; the message names them.
    """
    chosen = os.environ.get("TOKENMILL_CACHE_DIR")
    home_cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    candidates = (
        [Path(chosen)]
        if chosen
        else [
            Path(__file__).parent / "__pycache__",
            *([home_cache / "tokenmill"] if home_cache.is_absolute() else []),  # else nobody knows where home is
            Path(tempfile.gettempdir()) / f"tokenmill-{os.getuid() if hasattr(os, 'getuid') else 'cache'}",
        ]
    )
    why, kept = [], []
    for candidate in candidates:
        directory = candidate / f"kernels-{paths[0].stem}-{sources_digest(*paths, alone=alone)}"
        try:
            for made in (candidate, directory):
                made.mkdir(parents=True, exist_ok=True, mode=0o700)
            if (strangers := _strangers(directory)) is not None:
                why.append(strangers)
                continue
            tempfile.TemporaryFile(dir=directory).close()
        except OSError as error:
            why.append(f"{candidate}: {error.strerror or error}")
            if _holds_own_kernels(candidate, directory):
                kept.append(directory)
            continue
        return directory.resolve()
    if kept:
        return kept[0].resolve()
    raise OSError(
        f"no directory for compiled kernels can be used: {'; '.join(why)}. "
        "Set TOKENMILL_CACHE_DIR to a directory that you can write, and no other user"
    )


def _strangers(directory: Path) -> str | None:
    """Returns which part of a path lets another user put code into a directory of ours; None if none does.

    Compiled code is executed. So the directory and all in it must be ours, and no directory above it may be one in
    which somebody else can rename or replace what is ours; a sticky one, such as `/tmp`, is not.
    """
    if not hasattr(os, "getuid"):
        return None
    found = directory.resolve()
    for path in (found, *found.parents):
        status = path.lstat()
        if status.st_uid != os.getuid() and (path == found or status.st_uid != 0):
            return f"{path} belongs to another user, whose compiled code is not run"
        if status.st_mode & 0o022 and (path == found or not status.st_mode & stat.S_ISVTX):
            return f"other users may write to {path}, and their compiled code is not run"
    is_closed = not found.lstat().st_mode & 0o011  # then the modes of the files in it do not matter
    with os.scandir(found) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process has just finished it
                status = entry.stat(follow_symlinks=False)
                if not machine_code.is_own_file(status) or (status.st_mode & 0o022 and not is_closed):
                    return f"{entry.path} is not a file that only this user can write, and is not run"
    return None


def _holds_own_kernels(candidate: Path, directory: Path) -> bool:
    """Returns whether a place that cannot be written has kernels that may be run."""
    try:
        folders = [directory] if directory.is_dir() else list(candidate.glob("kernels-*"))[:1]
        return any(_strangers(folder) is None for folder in folders)
    except OSError:
        return False
