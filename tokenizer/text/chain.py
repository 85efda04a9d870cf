# SPDX-License-Identifier: Apache-2.0
"""`TextChain`: steps one after the other, by name as in a config, each with its report."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenizer.aligned import AlignedText
from tokenizer.ragged import Ragged, null_rows, string_array, text_rows
from tokenizer.text.accents import StripAccents
from tokenizer.text.base import Edges, Edit, StepReport, TextStep, changed_rows, join_rows, n_characters, replaced
from tokenizer.text.characters import (
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
from tokenizer.text.emoji import Emoji
from tokenizer.text.forms import NormalForm
from tokenizer.text.mojibake import Ftfy, Mojibake
from tokenizer.text.row_steps import HtmlEntities, Regex
from tokenizer.text.runs import IsolateDigits, RepeatedPunctuation
from tokenizer.text.whitespace import Whitespace

_CLASSES: tuple[type[TextStep], ...] = (
    Lowercase, CaseFold, StripAccents, ControlCharacters, Whitespace, Punctuation, RepeatedPunctuation, ZeroWidth, Bidi,
    FullWidth, Tatweel, HtmlEntities, Ftfy, Mojibake, Emoji, AsciiDigits, IsolateDigits, Regex,
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
"""Names without options, and the steps they stand for. Those with `clean` are CLIP's functions of these names, and
`clip` is all that it does to a text before it is split."""
PRESETS["clip"] = (*PRESETS["basic_clean"], *PRESETS["whitespace_clean"], Lowercase(final_sigma=True))

_MAIN_OPTION = {"strip_accents": "mode", "emoji": "mode", "repeated_punctuation": "most", "regex": "pattern"}
"""The option that a config may give without its name: `strip_accents: all`."""


def parse_steps(entries: Iterable[str | Mapping[str, Any]]) -> list[TextStep]:
    """Returns the steps of a config's `normalize` list: names, or mappings from one name to its options.

    Raises:
      ValueError: naming the entry, and what is allowed.
    """
    steps: list[TextStep] = []
    for i, entry in enumerate(entries):
        try:
            steps += _parse(entry)
        except (ValueError, TypeError) as error:
            raise ValueError(f"normalize[{i}]: {error}") from None
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
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown step {name!r}{hint} allowed: {', '.join(known)}")
    step = STEPS[name]
    if not isinstance(options, Mapping):
        options = {} if options is None else {_MAIN_OPTION.get(name, ""): options}
    fields = {field.name: field for field in dataclasses.fields(step)}  # type: ignore[arg-type]
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
    """What a chain made of documents."""

    rows: Ragged
    reports: list[StepReport]
    """One for each step."""
    rejected: npt.NDArray[np.bool_]
    """bool[n_documents]: those that a step gave up; their rows are empty."""


class TextChain:
    """Steps applied in order to columns of text. Immutable; may be used by several threads."""

    def __init__(self, steps: Iterable[TextStep]) -> None:
        self.steps = tuple(steps)

    @classmethod
    def from_config(cls, entries: Iterable[str | Mapping[str, Any]]) -> "TextChain":
        """Returns the chain of a config's `normalize` list; see `parse_steps`."""
        return cls(parse_steps(entries))

    def names(self) -> list[str]:
        """Returns what reports call the steps: their names, those that occur again with a number."""
        names: list[str] = []
        for step in self.steps:
            n = sum(name.partition("#")[0] == step.name for name in names)
            names.append(f"{step.name}#{n + 1}" if n else step.name)
        return names

    def apply(self, texts: Any) -> tuple[pa.LargeStringArray, list[StepReport]]:
        """Applies the chain to a text column; returns it, null for null and for what a step rejected, and reports.

        Raises:
          TypeError: if `texts` is not a text column.
        """
        rows = text_rows(texts)
        result = self.apply_rows(rows)
        nulls = null_rows(texts)
        if result.rejected.any():
            nulls = pa.array(result.rejected | (False if nulls is None else nulls.to_numpy(zero_copy_only=False)))
        if result.rows is rows and isinstance(texts, pa.LargeStringArray):
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
          edges: where documents begin and end; None where every row is one.
          documents: int64[n_documents + 1], the rows of each document, at least one each; None where every row is one.
        """
        edges = edges or Edges.of_whole(rows.n_rows)
        n_documents = rows.n_rows if documents is None else documents.size - 1
        rejected = np.zeros(n_documents, np.bool_)
        reports = []
        n_chars = n_characters(rows)
        for name, step in zip(self.names(), self.steps, strict=True):
            before = rows
            applied = step.apply_rows(before, edges)
            rows = applied.rows
            n_changed, n_rejected = 0, 0
            n_before = n_chars
            if rows is not before:
                n_changed = int(_of_documents(changed_rows(before, rows), documents).sum())
            if applied.rejected:
                gave_up = np.zeros(before.n_rows, np.bool_)
                gave_up[list(applied.rejected)] = True
                fresh = _of_documents(gave_up, documents)
                n_rejected = int(fresh.sum())
                n_changed -= n_rejected
                rejected |= fresh
                rows = _emptied(rows, fresh, documents)
            if rows is not before:
                n_chars = n_characters(rows)
            reports.append(
                StepReport(
                    name, n_documents, n_changed, n_rejected, n_before, n_chars, applied.n_chars_changed,
                    applied.merged, applied.n_merged_not_listed,
                )
            )  # fmt: skip
        return ChainResult(rows, reports, rejected)

    def apply_aligned(self, text: AlignedText, begins: bool = True, ends: bool = True) -> AlignedText:
        """Applies the chain to one text and keeps track of where each character came from. Slow.

        What an edit puts in place of some characters came from all of them; what it puts where nothing was, from the
        character before.
        """
        for step in self.steps:
            text = _edited(text, step.edits(text.text, begins, ends))
        return text


def _edited(text: AlignedText, edits: list[Edit]) -> AlignedText:
    starts: list[int] = []
    stops: list[int] = []
    at = 0
    for start, stop, new in edits:
        first, last = (start, stop - 1) if start < stop else (start - 1, start - 1)
        starts += text.starts[at:start] + [text.starts[first]] * len(new)
        stops += text.stops[at:start] + [text.stops[last]] * len(new)
        at = stop
    return AlignedText(replaced(text.text, edits), starts + text.starts[at:], stops + text.stops[at:])


def _of_documents(of_rows: npt.NDArray[np.bool_], documents: npt.NDArray[np.int64] | None) -> npt.NDArray[np.bool_]:
    """Returns which documents have a row that is true, bool[n_documents]."""
    if documents is None:
        return of_rows
    return np.logical_or.reduceat(of_rows, documents[:-1]) if documents.size > 1 else of_rows[:0]


def _emptied(rows: Ragged, gone: npt.NDArray[np.bool_], documents: npt.NDArray[np.int64] | None) -> Ragged:
    of_rows = gone if documents is None else np.repeat(gone, np.diff(documents))
    return join_rows(rows, dict.fromkeys(np.flatnonzero(of_rows).tolist(), b""))
