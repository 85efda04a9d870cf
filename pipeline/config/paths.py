# SPDX-License-Identifier: Apache-2.0
"""Paths as a user writes them, in a config or on the command line."""

import os
import re

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<braced>\w+)\}|(?P<plain>[A-Z_a-z]\w*)|(?P<open>\{))", re.ASCII)


def expand(path: str) -> str:
    """Returns a path that a user wrote, with `~`, `$NAME` and `${NAME}` replaced by what they stand for, `$$` by `$`.

    Raises:
      ValueError: without the path, when there is no such user or variable, or nothing is left.
    """

    def value_of(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        name = found["braced"] or found["plain"]
        if not name:
            raise ValueError("'${' must begin ${NAME}, with a name of letters, digits and _; write $$ for a literal $")
        if name not in os.environ:
            raise ValueError(f"the environment has no variable {name!r}; set it, or write $$ for a literal $")
        return os.environ[name]

    home = ""
    if path.startswith("~"):
        user, slash, rest = path.partition("/")
        home, path = os.path.expanduser(user), slash + rest
        if home == user:
            raise ValueError(f"there is no home directory for {user!r}; write './{user}' for a file of this name")
    expanded = home + _VARIABLE.sub(value_of, path)
    if not expanded:
        raise ValueError("nothing is left of it; the variable is empty")
    return expanded
