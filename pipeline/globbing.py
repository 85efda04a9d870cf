# SPDX-License-Identifier: Apache-2.0
"""Glob patterns: the local paths that one names, and which paths of a store it matches."""

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_TOKEN = re.compile(r"\*\*|\*|\?|\[!?\]?[^\]]*\]")


class UnreadablePathError(OSError):
    """What is wrong with a path that a pattern matches, or leads through; the message begins with `path`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path!r} {problem}")
        self.path = path


def literal_folder(pattern: str) -> str:
    """Returns the folder of a store that holds all that a pattern matches."""
    return re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]


def matcher(pattern: str) -> Callable[[str], Any]:
    """Returns what says whether a path of a store matches: `*` and `?` stop at a slash, `**` does not.

    >>> bool(matcher("a/*.txt")("a/b.txt")), bool(matcher("a/*.txt")("a/b/c.txt")), bool(matcher("a**")("a/b/c"))
    (True, False, True)
    """
    wild = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    translated, end = "", 0
    for token in _TOKEN.finditer(pattern):
        translated += re.escape(pattern[end : token.start()])
        translated += wild.get(token[0]) or fnmatch.translate(token[0]).removesuffix(r"\Z")
        end = token.end()
    return re.compile(translated + re.escape(pattern[end:]), re.DOTALL).fullmatch


def examine(path: str) -> os.stat_result:
    """Returns the status of what a path leads to.

    Raises:
      UnreadablePathError: naming the path, and where it leads if it is a link.
    """
    try:
        return os.stat(path)
    except OSError as error:
        link = f"is a link to {os.readlink(path)!r}, which " if os.path.islink(path) else ""
        raise UnreadablePathError(path, f"{link}cannot be examined: {error.strerror}") from error


def expand(
    pattern: str, refuse: Callable[[UnreadablePathError], None], hide: Callable[[str], None] = lambda path: None
) -> Iterator[str]:
    """Yields the local paths that a pattern names. `glob` leaves out folders that it may not list, without a word.

    Args:
      pattern: a path, or a pattern.
      refuse: takes an error for each path that cannot be examined, and each folder that cannot be listed.
      hide: takes each path that the pattern would name if its name did not begin with a dot.
    """
    try:
        os.lstat(pattern)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except ValueError:  # a NUL, or half of a surrogate pair: no path has these
        return
    except OSError as error:
        if not glob.has_magic(pattern):  # a pattern may be longer than a name can be
            refuse(UnreadablePathError(pattern, f"cannot be examined: {error.strerror}"))
    else:
        yield pattern
        return
    if glob.has_magic(pattern):
        components = pattern.replace(os.sep, "/").split("/")
        n_literal = next(i for i, component in enumerate(components) if glob.has_magic(component))
        folder = "/".join(components[:n_literal]) or ("/" if n_literal else "")
        yield from _expand_components(folder, components[n_literal:], refuse, hide, ())


def _expand_components(
    folder: str,
    components: Sequence[str],
    refuse: Callable[[UnreadablePathError], None],
    hide: Callable[[str], None],
    above: tuple[tuple[int, int], ...],
) -> Iterator[str]:
    """Yields the paths below `folder` that match the other components of a pattern.

    Args:
      folder: a path; "" for the working directory.
      components: what is left of the pattern; not empty.
      refuse: takes an error for each folder that cannot be listed.
      hide: as for `expand`.
      above: device and inode of the folders that `**` has entered on the way here: links to these lead nowhere new.
    """
    first, *rest = components
    if not glob.has_magic(first):
        path = os.path.join(folder, first)
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            refuse(UnreadablePathError(path, f"cannot be examined: {error.strerror}"))
            return
        yield from _expand_components(path, rest, refuse, hide, ()) if rest else (path,)
        return
    try:
        status = os.stat(folder or ".")
        here = status.st_dev, status.st_ino
        if here in above:
            return
        with os.scandir(folder or ".") as entries:
            listed = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        refuse(UnreadablePathError(folder or ".", f"cannot be listed: {error.strerror}"))
        return
    visible = [entry for entry in listed if not entry.name.startswith(".") or first.startswith(".")]
    if first == "**":
        yield from _expand_components(folder, [each for each in rest if each != "**"] or ["*"], refuse, hide, ())
        for entry in visible:
            if _is_directory(entry, refuse):
                deeper = os.path.join(folder, entry.name)
                yield from _expand_components(deeper, components, refuse, hide, (*above, here))
        return
    # A folder may be called `corpus [2024]`, which as a pattern does not match its own name.
    names = [entry.name for entry in visible]
    chosen = {*fnmatch.filter(names, first), *(name for name in names if name == first)}
    if not rest:
        yield from (os.path.join(folder, name) for name in chosen)
        if len(visible) < len(listed):
            for name in fnmatch.filter({entry.name for entry in listed}.difference(names), first):
                hide(os.path.join(folder, name))
        return
    for entry in visible:
        if entry.name in chosen and _is_directory(entry, refuse):
            yield from _expand_components(os.path.join(folder, entry.name), rest, refuse, hide, ())


def _is_directory(entry: "os.DirEntry[str]", refuse: Callable[[UnreadablePathError], None]) -> bool:
    """Returns whether an entry is a folder; a link that leads nowhere is refused, as it may be to a disk not there."""
    if not entry.is_symlink():
        return entry.is_dir()
    try:
        return stat.S_ISDIR(examine(entry.path).st_mode)
    except UnreadablePathError as error:
        refuse(error)
        return False
