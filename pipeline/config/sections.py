# SPDX-License-Identifier: Apache-2.0
"""What all sections of a config share: their base class, paths as a user writes them, and what mistakes are."""

import ast
import difflib
import inspect
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

NonEmpty = Annotated[str, Field(min_length=1)]

EXPAND = {"expand": True}
"""The context in which paths are validated as a user wrote them. A config that a job has stored is not expanded again:
a name in it may hold a `$`."""


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


def _expand_path(value: str, info: ValidationInfo) -> str:
    try:
        return expand(value) if info.context == EXPAND else value
    except ValueError as error:
        raise PydanticCustomError("refused", "{allowed}", {"allowed": str(error)}) from error


PathText = Annotated[str, Field(min_length=1), AfterValidator(_expand_path)]
"""A path or a glob pattern; `~`, `$NAME` and `${NAME}` in it are expanded."""

MAX_INT = (1 << 63) - 1
"""The largest integer of kernels and Arrow columns. Every number of a config has a range; for most this is its end."""
Positive = Annotated[int, Field(ge=1, le=MAX_INT)]
Natural = Annotated[int, Field(ge=0, le=MAX_INT)]


ONE, SEVERAL = "<one>", "<several>"
"""pydantic adds these to the path of a mistake in a value that may be one or a list; messages drop them."""
ONE_OR_SEVERAL = Discriminator(lambda value: SEVERAL if isinstance(value, list) else ONE)


Broken = Iterator[tuple[str, Any, str]]
"""Rules between keys that a section breaks: the path in it, the value, `...` for a whole section, what is allowed."""


class Section(BaseModel):
    """A section: unknown keys are mistakes, and so is what `_broken` yields."""

    # Strict: `vocab_size: "8000"` or `lowercase: 1` is a mistake to report, not a value to guess.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)

    def _broken(self) -> Broken:
        """Yields the rules that the section breaks; the first one is told, as others may follow from it."""
        return iter(())

    @model_validator(mode="after")
    def _check(self) -> Self:
        for each in self._broken():
            raise mistake(*each)
        return self


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the JSON Schema of a model, with the docstrings below its keys, and below those of the models in it.

    pydantic can do this itself, but would parse the source of every model whenever a command starts.
    """
    schema = model.model_json_schema()
    models = {each.__name__: each for base in model.__bases__ for each in _derived(base)}
    for name, described in {model.__name__: schema, **schema["$defs"]}.items():
        for key, text in _attribute_docstrings(models[name]).items():
            key = models[name].model_fields[key].alias or key
            described["properties"][key] = dict(sorted({**described["properties"][key], "description": text}.items()))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _derived(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from _derived(each)


def _attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the docstrings below the keys of a model."""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    bases = (base for base in model.__bases__ if issubclass(base, BaseModel) and base.model_fields)
    inherited = {name: text for base in bases for name, text in _attribute_docstrings(base).items()}
    return inherited | {
        statement.target.id: inspect.cleandoc(below.value.value)
        for statement, below in itertools.pairwise(definition.body)
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def did_you_mean(value: object, allowed: Iterable[str]) -> str:
    """Returns `; did you mean ...?` with the allowed value nearest to `value`; "" if none is near."""
    near = difflib.get_close_matches(str(value).lower(), list(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def mistake(path: str, value: object, allowed: str) -> PydanticCustomError:
    """Returns an error about several keys; `path` is relative to the section that raises it.

    value: what is written there; `...` for a whole section, which a message does not repeat.
    """
    if isinstance(value, str):  # pydantic fails on half of a surrogate pair
        value = value.encode("utf-8", "backslashreplace").decode()
    return PydanticCustomError("cross_check", "{allowed}", {"path": path, "value": value, "allowed": allowed})


def mistakes(errors: Sequence[PydanticCustomError]) -> PydanticCustomError:
    """Returns several errors that `mistake` returned as one; messages name each of them."""
    first, *others = errors
    context = {**(first.context or {}), "others": [each.context or {} for each in others]}
    return PydanticCustomError("cross_check", "{allowed}", context)


class ConfigError(ValueError):
    """A config that cannot be used; `problems` holds one line per mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)
