# SPDX-License-Identifier: Apache-2.0
"""`TextChain`: a sequence of steps, given by name as in a config, each with a report."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.errors import check_list
from tokenmill.tokenizer.normalizers.base import Edges, TextStep, put_texts, same_rows
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.ragged import Errors, Ragged, put_rows, string_array, text_column
from tokenmill.tokenizer.text.base import CharacterSet, StepReport, nearest, row_characters
from tokenmill.tokenizer.text.characters import (
    AsciiDigits,
    Bidi,
    CaseFold,
    ControlCharacters,
    FullWidth,
    Lowercase,
    Punctuation,
    Tatweel,
    ZeroWidth,
)
from tokenmill.tokenizer.text.emoji import Emoji
from tokenmill.tokenizer.text.neighbours import IsolateDigits, RepeatedPunctuation, Segment, StripAccents, Whitespace
from tokenmill.tokenizer.text.row_steps import Ftfy, HtmlEntities, Mojibake, Regex
from tokenmill.tokenizer.traced import Traced

_CLASSES: tuple[type[TextStep], ...] = (
    Lowercase, CaseFold, StripAccents, ControlCharacters, Whitespace, Punctuation, RepeatedPunctuation, ZeroWidth, Bidi,
    FullWidth, Tatweel, HtmlEntities, Ftfy, Mojibake, Emoji, AsciiDigits, IsolateDigits, Segment, Regex,
)  # fmt: skip
STEPS: dict[str, type[TextStep]] = {step.name: step for step in _CLASSES}
"""Steps with options, by name."""

_STRIP = Whitespace(collapse=False, python=True)

PRESETS: dict[str, tuple[TextStep, ...]] = {
    "nfc": (NormalForm("NFC"),),
    "nfd": (NormalForm("NFD"),),
    "nfkc": (NormalForm("NFKC"),),
    "nfkd": (NormalForm("NFKD"),),
    "default": (NormalForm("NFC"), ControlCharacters(), ZeroWidth(), Bidi()),
    "basic_clean": (Ftfy(), HtmlEntities(), HtmlEntities(), _STRIP),
    "whitespace_clean": (Whitespace(newlines="space", python=True),),
}
"""Name without options -> its steps. Those with `clean` are CLIP's functions of these names; `clip` is all that CLIP's
code does to a text before it is split."""
PRESETS["clip"] = (*PRESETS["basic_clean"], *PRESETS["whitespace_clean"], Lowercase(final_sigma=True))

_MAIN_OPTION = {
    "strip_accents": "mode",
    "emoji": "mode",
    "segment": "mode",
    "repeated_punctuation": "most",
    "regex": "pattern",
}
"""Step -> the option that a config may give without its name: `strip_accents: all`."""


def parse_steps(entries: Iterable[str | Mapping[str, Any] | TextStep], where: str = "normalize") -> list[TextStep]:
    """Returns the steps of a config's `normalize` list: names, or mappings from one name to its options; or steps.

    Args:
      entries: the list.
      where: its name, for messages.

    Raises:
      TypeError: if it is not a list. ValueError: for a wrong entry; the message names it, and what is allowed.
    """
    check_list(where, entries)
    steps: list[TextStep] = []
    for i, entry in enumerate(entries):
        try:
            steps += [entry] if isinstance(entry, TextStep) else _parse(entry)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}[{i}]: {error}") from None
    return steps


def _parse(entry: str | Mapping[str, Any]) -> Sequence[TextStep]:
    if isinstance(entry, str):
        name, options = entry, None
    elif isinstance(entry, Mapping) and len(entry) == 1 and isinstance(next(iter(entry)), str):
        name, options = next(iter(entry.items()))
    else:
        raise ValueError(f"{entry!r}: must be the name of a step, or one name with its options")
    if name in PRESETS:
        if options is not None:
            raise ValueError(f"{name} has no options, got {options!r}")
        return PRESETS[name]
    if name not in STEPS:
        known = sorted([*PRESETS, *STEPS])
        raise ValueError(f"unknown step {name!r}{nearest(name, known)}; allowed: {', '.join(known)}")
    step = STEPS[name]
    fields = {field.name: field for field in dataclasses.fields(step)}  # type: ignore[arg-type]
    if not isinstance(options, Mapping):
        if options is not None and name not in _MAIN_OPTION:
            allowed = f": options must be a mapping of {', '.join(fields)}" if fields else " has no options"
            raise ValueError(f"{name}{allowed}, got {options!r}")
        options = {} if options is None else {_MAIN_OPTION[name]: options}
    for key, value in options.items():
        if key not in fields:
            raise ValueError(f"{name}: unknown option {key!r}; allowed: {', '.join(fields) or 'none'}")
        default = fields[key].default
        kinds = (int, float) if isinstance(default, float) else (type(default),)
        if type(value) not in kinds:
            raise ValueError(f"{name}.{key}: must be {kinds[-1].__name__}, got {value!r}")
    if name == "regex" and not options.get("pattern"):
        raise ValueError("regex: pattern is required")
    return [step(**options)]


class ChainResult(NamedTuple):
    """The result of a chain on documents."""

    rows: Ragged
    reports: list[StepReport]
    """One for each step."""
    rejected: npt.NDArray[np.bool_]
    """bool[n_documents]: those that a step gave up on; their rows are empty."""
    n_chars: list[npt.NDArray[np.int64]]
    """int64[n_rows] each: the characters of rows before the first step, and after each step."""


class TextChain:
    """Steps applied in order to columns of text. Immutable; may be used by several threads."""

    def __init__(self, steps: Iterable[TextStep]) -> None:
        self.steps = tuple(steps)
        self._stretches = _stretches(self.steps)

    @classmethod
    def from_config(cls, entries: Iterable[str | Mapping[str, Any]]) -> "TextChain":
        """Returns the chain of a config's `normalize` list; see `parse_steps`."""
        return cls(parse_steps(entries))

    def names(self) -> list[str]:
        """Returns the names of the steps in reports; a name that occurs again gets a number."""
        names: list[str] = []
        for step in self.steps:
            n = sum(name.partition("#")[0] == step.name for name in names)
            names.append(f"{step.name}#{n + 1}" if n else step.name)
        return names

    def apply(self, texts: Any, errors: Errors = "strict") -> tuple[pa.LargeStringArray, list[StepReport]]:
        """Applies the chain to a text column; returns the new column and the reports. Null for null and for rejected.

        Args:
          texts, errors: as for `Tokenizer.encode_arrow`.

        Raises:
          TypeError: if `texts` is not a text column. ValueError: if it is not valid.
        """
        rows, nulls = text_column(texts, errors)
        result = self.apply_rows(rows)
        if result.rejected.any():
            nulls = pa.array(result.rejected | (False if nulls is None else nulls.to_numpy(zero_copy_only=False)))
        if result.rows is rows and isinstance(texts, pa.LargeStringArray) and errors == "strict":
            return texts, result.reports
        values, offsets = result.rows
        first = int(offsets[0])
        return string_array(values[first : offsets[-1]], offsets - first, nulls), result.reports

    def apply_rows(
        self, rows: Ragged, edges: Edges | None = None, documents: npt.NDArray[np.int64] | None = None
    ) -> ChainResult:
        """Applies the chain to rows of valid UTF-8, values uint8[n].

        Args:
          rows: documents, or parts of documents.
          edges: where documents begin and end; None if every row is a document.
          documents: int64[n_documents + 1], the rows of each document, at least one each; None if every row is one.
        """
        edges = edges or Edges.of(rows.n_rows)
        owners = np.arange(rows.n_rows)
        if documents is not None:
            owners = np.repeat(np.arange(documents.size - 1), np.diff(documents))
        rejected = np.zeros(rows.n_rows if documents is None else documents.size - 1, np.bool_)
        reports: list[StepReport] = []
        names = iter(self.names())
        sizes = [row_characters(rows)] if self.steps else []
        for steps, active in self._stretches:
            part, part_edges, part_owners, places = rows, edges, owners, np.arange(rows.n_rows)
            taken = None if active is None else np.flatnonzero(active.rows_with(rows))
            if taken is not None and 2 * taken.size <= rows.n_rows:
                part = rows.take(taken)
                part_edges, part_owners = Edges(edges.begins[taken], edges.ends[taken]), owners[taken]
                places = taken
            whole = part
            for step in steps:
                before = part
                part, report, gave_up = _apply(step, next(names), before, part_edges, part_owners, rejected.size)
                rejected[gave_up] = True
                sizes.append(sizes[-1])
                if part is not before:
                    sizes[-1] = sizes[-1].copy()
                    sizes[-1][places] = row_characters(part)
                n_before, n_after = (int(size.sum()) for size in sizes[-2:])
                reports.append(dataclasses.replace(report, n_chars=n_before, n_chars_after=n_after))
            if whole is rows:
                rows = part
            elif taken is not None and part is not whole:
                rows = put_rows(rows, (taken, part))
        return ChainResult(rows, reports, rejected, sizes)

    def trace(self, text: Traced, edges: Edges) -> Traced:
        """Applies the chain to rows, and traces their characters; see `TextStep.trace`."""
        for step in self.steps:
            text = step.trace(text, edges)
        return text


def _apply(
    step: TextStep, name: str, rows: Ragged, edges: Edges, owners: npt.NDArray[np.int64], n_documents: int
) -> tuple[Ragged, StepReport, npt.NDArray[np.int64]]:
    """Applies one step; returns rows, a report without counts of characters, and the documents that are rejected."""
    applied = step.apply_rows(rows, edges)
    after = applied.rows
    changed = np.unique(owners[~same_rows(rows, after)])
    gave_up = np.unique(owners[list(applied.rejected)])
    if gave_up.size:
        after = put_texts(after, dict.fromkeys(np.flatnonzero(np.isin(owners, gave_up)).tolist(), b""))
        changed = np.setdiff1d(changed, gave_up)
    report = StepReport(
        name,
        n_documents,
        changed.size,
        gave_up.size,
        n_chars_changed=applied.n_chars_changed,
    )
    return after, report, gave_up


@functools.lru_cache(maxsize=32)
def _stretches(steps: tuple[TextStep, ...]) -> list[tuple[list[TextStep], CharacterSet | None]]:
    """Cuts a chain into stretches of steps, each with a set of characters without which its steps change no row.

    Most rows have none of the characters that a clean-up changes, and one search for all of them is cheaper than one
    for each step. If the set would have a printing character of ASCII, which most rows have, there is none. The result
    is
    cached: every split makes its chain again, and tables of all characters take a millisecond.
    """
    stretches: list[tuple[list[TextStep], CharacterSet | None]] = []
    for rare, group in itertools.groupby(steps, key=lambda step: _is_rare(step.active())):
        together = list(group)
        actives = [active for step in together if (active := step.active()) is not None]
        stretches.append((together, CharacterSet.of(np.logical_or.reduce(actives)) if rare and actives[1:] else None))
    return stretches


def _is_rare(active: npt.NDArray[np.bool_] | None) -> bool:
    return active is not None and not active[0x20:0x7F].any()
