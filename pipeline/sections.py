# SPDX-License-Identifier: Apache-2.0
"""What every section of a config is made of."""

import difflib
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

NonEmpty = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A section: unknown keys are mistakes."""

    # Strict: `vocab_size: "8000"` or `lowercase: 1` is a mistake to report, not a value to guess.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def did_you_mean(value: object, allowed: Iterable[str]) -> str:
    """Returns the end of a message that names the allowed value nearest to `value`; "" where none is near."""
    near = difflib.get_close_matches(str(value).lower(), list(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def mistake(path: str, value: object, allowed: str) -> PydanticCustomError:
    """Returns a mistake that involves several keys; `path` is relative to the section that found it."""
    if isinstance(value, str):  # pydantic fails on half of a surrogate pair
        value = value.encode("utf-8", "backslashreplace").decode()
    return PydanticCustomError("cross_check", "{allowed}", {"path": path, "value": value, "allowed": allowed})
