# SPDX-License-Identifier: Apache-2.0
"""Tokens around a document that are not from its text: those of the tokenizer's template and those of the config."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import PackingConfig
from tokenmill.tokenizer import Layout, Tokenizer


@dataclass(frozen=True)
class Marks:
    """The ids around every document, from left to right: `before`, `prepend`, the text, `append`, `after`."""

    before: tuple[int, ...] = ()
    """Ids of the template before the text; empty unless `tokenizer.add_special_tokens` is on."""
    prepend: tuple[int, ...] = ()
    """The id of `output.prepend`."""
    append: tuple[int, ...] = ()
    """The id of `output.append`."""
    after: tuple[int, ...] = ()
    """Ids of the template after the text."""

    @property
    def left(self) -> tuple[int, ...]:
        """The ids that a row begins with."""
        return (*self.before, *self.prepend)

    @property
    def right(self) -> tuple[int, ...]:
        """The ids that a row ends with."""
        return (*self.append, *self.after)

    @property
    def n_special(self) -> int:
        """How many tokens the template adds."""
        return len(self.before) + len(self.after)

    @property
    def n_added(self) -> int:
        """How many tokens `output.prepend` and `output.append` add."""
        return len(self.prepend) + len(self.append)

    def to_record(self) -> dict[str, list[int]]:
        """Returns plain JSON."""
        return {name: list(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Returns the value that `to_record` turned into `record`."""
        return cls(**{name: tuple(ids) for name, ids in record.items()})


@dataclass(frozen=True)
class RowLayout:
    """How the tokens of a text become rows."""

    marks: Marks
    document: Layout
    """Layout of a whole document; if rows are windows, without the template, truncation and padding."""
    window: Layout | None
    """Layout of each window of a document; None if rows are documents."""

    @property
    def n_special(self) -> int:
        """How many tokens of the template a document has; 0 if rows are windows, where each window has them."""
        return self.marks.n_special if self.window is None else 0


def lay_out(config: Config, tokenizer: Tokenizer) -> RowLayout:
    """Returns how the tokens of a document become rows, with the tokens around it.

    Args:
      config: the config of the job.
      tokenizer: with the truncation and padding of the config.

    Raises:
      ValueError: if the tokenizer lacks a token, if a token would be added twice, or if `max_length` leaves no room for
        text, or no more than the stride.
    """
    around = tokenizer.layout(config.tokenizer.add_special_tokens)
    before, after = tuple(around.before.tolist()), tuple(around.after.tolist())
    ends: dict[str, tuple[int, ...]] = {"prepend": (), "append": ()}
    for name, there in (("prepend", before), ("append", after)):
        token = getattr(config.output, name)
        if token is None:
            continue
        token_id = tokenizer.token_to_id(token)
        if token_id is None:
            raise ValueError(f"output.{name}: {token!r}: the tokenizer has no such token")
        if token_id in there:
            raise ValueError(
                f"output.{name}: {token!r}: tokenizer.add_special_tokens puts it there already; remove one of them"
            )
        ends[name] = (token_id,)
    layout = tokenizer.layout(config.tokenizer.add_special_tokens, **ends)
    marks = Marks(before, ends["prepend"], ends["append"], after)
    if not config.tokenizer.has_windows:
        layout.kept(np.zeros(1, np.int64))  # raises where there is no room
        return RowLayout(marks, layout, None)
    around.windows(np.zeros(1, np.int64))
    first, last = layout.before[len(before) :], layout.after[: len(ends["append"])]
    document = dataclasses.replace(layout, before=first, after=last, truncation=None, padding=None)
    return RowLayout(marks, document, around)


def packing_ids(config: PackingConfig, tokenizer: Tokenizer) -> tuple[int | None, int | None]:
    """Returns the separator behind every packed document, and the token that fills sequences up; None for none.

    Raises:
      ValueError: if the tokenizer lacks a token that the config names, or there is no token to pad with.
    """
    ids: dict[str, int | None] = {}
    for name in ("separator", "pad_token"):
        token = getattr(config, name)
        ids[name] = tokenizer.token_to_id(token) if token is not None else None
        if token is not None and ids[name] is None:
            raise ValueError(f"output.packing.{name}: {token!r}: the tokenizer has no such token")
    separator_id, pad_id = ids["separator"], ids["pad_token"]
    if config.incomplete == "short":
        return separator_id, None
    for candidate in (tokenizer.pad_token_id, separator_id):
        pad_id = candidate if pad_id is None else pad_id
    if pad_id is None:
        raise ValueError(
            "output.packing.pad_token: the tokenizer names no padding token, and there is no separator; name a token, "
            "or set output.packing.incomplete to short"
        )
    return separator_id, pad_id
