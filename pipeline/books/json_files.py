# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON of an output folder, which somebody else may have written: every file is checked by its shape."""

import json
import reprlib
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from tokenmill.pipeline import filenames, storage

MAX_BYTES = 1 << 30
"""A larger file is not read; that of a job of ten million splits is smaller."""

MOST_TOKENS = 1 << 24
"""Ids of tokenizers are below this."""

_MOST_LEVELS = 32
_AGAIN = "copy the folder again from where it was made, or run its job again into another folder"

Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
TokenId = Annotated[int, Field(strict=True, ge=0, lt=MOST_TOKENS)]
VocabularySize = Annotated[int, Field(strict=True, ge=0, le=MOST_TOKENS)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e15)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
"""64 bits: the id of a split or a shard, or a sum of hashes."""
FileName = Annotated[str, AfterValidator(filenames.check_file)]
PartName = Annotated[str, AfterValidator(filenames.check_part)]

Shape = TypeVar("Shape")


def read(
    output: str, name: str, shape: TypeAdapter[Any], what: str = "as TokenMill writes it", versions: Sequence[int] = ()
) -> Any:
    """Returns the JSON of a file in an output folder, as it is there.

    Args:
      output: the folder.
      name: the name of the file.
      shape: what the file must be.
      what: the same, for messages.
      versions: the values of `format_version` that can be read; none if the file does not say its format.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is something else; says the file, the key, the value, and what to do.
    """
    path = storage.join(output, name)
    try:
        with storage.open_read(path) as handle:
            data = handle.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {path!r}; {_AGAIN}") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path!r} is not {what}: it has more than {MAX_BYTES:,} bytes")
    try:
        found = load(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path!r} is not {what}: {error}; {_AGAIN}") from error
    version = found.get("format_version") if isinstance(found, dict) else None
    if versions and type(version) is int and version not in versions:
        raise ValueError(
            f"{path!r} has format {version}, but this TokenMill reads {' and '.join(map(str, versions))}: use the "
            "TokenMill that wrote the folder, or run the job again with --overwrite"
        )
    if versions and version not in versions:
        raise ValueError(f"{path!r} is not {what}: it does not say its format; {_AGAIN}")
    check(found, shape, f"{path!r} is not {what}", _AGAIN)
    return found


def parse(text: str, shape: TypeAdapter[Shape], what: str) -> Shape:
    """Returns what `shape` makes of JSON; raises ValueError if it is not `what`."""
    try:
        return check(load(text), shape, f"not {what}")
    except RecursionError as error:
        raise ValueError(f"not {what}: nested too deeply") from error


def load(data: bytes | str) -> Any:
    """Returns JSON without numbers beyond 64 bits, infinities and NaN, which no file of TokenMill has.

    Raises:
      ValueError: if it is not JSON, or has such a number. RecursionError: if it is nested too deeply.
    """
    return json.loads(data, parse_int=_integer, parse_float=_float, parse_constant=_no_number)


def check(found: Any, shape: TypeAdapter[Shape], said: str, advice: str = "") -> Shape:
    """Returns what `shape` makes of plain JSON.

    Raises:
      ValueError: if it has another shape: `said`, the key, what is wrong with it, the value, and `advice`.
    """
    try:
        return shape.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = "".join(f"{part}: " for part in (".".join(map(str, first["loc"])),) if part)
        value = _short.repr(first["input"])
        raise ValueError(f"{said}: {key}{first['msg']}, found {value}{advice and '; '}{advice}") from error


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxdict = _short.maxlist = 3


def shallow(value: object) -> object:
    """Returns JSON of any shape; raises ValueError if it is nested so deeply that showing it would fail."""
    _descend(value, _MOST_LEVELS)
    return value


def _descend(value: Any, n_left: int) -> None:
    if isinstance(value, dict | list):
        if not n_left:
            raise ValueError(f"more than {_MOST_LEVELS} levels of nesting")
        for each in value.values() if isinstance(value, dict) else value:
            _descend(each, n_left - 1)


AnyJson = Annotated[Any, AfterValidator(shallow)]


def _integer(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= (value := int(text)) < 1 << 64:
        raise ValueError(f"the number {text[:30]} does not fit in 64 bits")
    return value


def _float(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError(f"the number {text[:30]} is too large")
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")
