# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments of steps, in the words of a config."""

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, create_model

from tokenmill.pipeline.config.file import section
from tokenmill.pipeline.config.sections import Section

_PLAIN = (bool, str, types.NoneType, typing.Literal, Sequence, Mapping)
"""Arguments of these types are checked here; others, such as numbers and tokenizers, by the step."""


def checked(init: Callable[..., None]) -> Callable[..., None]:
    """Returns the `__init__` of a step, which now raises `ConfigError` for arguments that are not of their types."""
    signature = inspect.signature(init)
    kinds = {name: each.annotation for name, each in signature.parameters.items() if _is_plain(each.annotation)}

    @functools.cache  # it takes milliseconds
    def model() -> type[Section]:
        fields: dict[str, Any] = {f"{name}_": (_listed(kind), Field(None, alias=name)) for name, kind in kinds.items()}
        return create_model("Arguments", __base__=Section, **fields)

    @functools.wraps(init)
    def check(self: Any, *args: Any, **options: Any) -> None:
        with contextlib.suppress(TypeError):  # if one is missing or unknown, as `init` says with its name
            given = signature.bind(self, *args, **options).arguments.items()
            its = {name: [*value] if isinstance(value, tuple) else value for name, value in given if name in kinds}
            section(model(), "", its, type(self).__name__)
        init(self, *args, **options)

    return check


def _is_plain(kind: Any) -> bool:
    members = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    return all((typing.get_origin(each) or each) in _PLAIN for each in members)


def _listed(kind: Any) -> object:
    return list[typing.get_args(kind)] if typing.get_origin(kind) is Sequence else kind  # type: ignore[misc]
