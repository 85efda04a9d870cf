# SPDX-License-Identifier: Apache-2.0
"""The reference of the text steps whose kernels find edits, and of spans: plain Python and regular expressions."""

import functools
import re
import string
from collections.abc import Callable
from typing import Any

import numpy as np
import regex

from tokenmill.tokenizer.normalizers import tables as unicode_tables
from tokenmill.tokenizer.normalizers.base import Edit, TextStep
from tokenmill.tokenizer.text import emoji as kernels
from tokenmill.tokenizer.text import tables
from tokenmill.tokenizer.text.emoji import Emoji, describe, emoji_classes
from tokenmill.tokenizer.text.neighbours import (
    HAN,
    OTHER,
    IsolateDigits,
    RepeatedPunctuation,
    Segment,
    StripAccents,
    Whitespace,
    digits,
    punctuation,
    segment_tables,
)
from tokenmill.tokenizer.text.row_steps import find_matches
from tokenmill.tokenizer.text.spans import SpanRule

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def edits(step: TextStep, text: str, begins: bool = True, ends: bool = True) -> list[Edit]:
    """The edits of a step: by the functions below, or, if it has no kernel that finds edits, its own."""
    of_step: Callable[[Any, str, bool, bool], list[Edit]] | None = _OF_STEPS.get(type(step))
    return of_step(step, text, begins, ends) if of_step else step.edits(text, begins, ends)


def _repeated_punctuation(step: RepeatedPunctuation, text: str, begins: bool, ends: bool) -> list[Edit]:
    runs = (run.span() for run in re.finditer(r"(.)\1*", text, re.DOTALL) if punctuation()[ord(run[1])])
    return [Edit(start + step.most, stop, "") for start, stop in runs if stop - start > step.most]


def _isolate_digits(step: IsolateDigits, text: str, begins: bool, ends: bool) -> list[Edit]:
    found = []
    for i in range(1, len(text)):
        pair = text[i - 1 : i + 1]
        n_digits = sum(bool(digits()[ord(c)]) for c in pair)
        if (n_digits == 1 or (n_digits == 2 and not step.runs)) and not tables.SPACES & set(pair):
            found.append(Edit(i, i, " "))
    return found


def _segment(step: Segment, text: str, begins: bool, ends: bool) -> list[Edit]:
    kinds, joins, leads = segment_tables(step.mode)
    found = []
    kind_before = OTHER
    for i, c in enumerate(text):
        before = text[i - 1] if i else " "
        kind = int(kinds[ord(c)])
        if joins[ord(c)] and before not in tables.SPACES:
            kind = kind_before
        elif before not in tables.SPACES and c not in tables.SPACES and not leads[ord(before)]:
            units = kind >= HAN or kind_before >= HAN
            if units or kind != kind_before:
                found.append(Edit(i, i, " "))
        kind_before = kind
    return found


def _strip_accents(step: StripAccents, text: str, begins: bool, ends: bool) -> list[Edit]:
    marks, latin = tables.members("nonspacing_marks"), tables.members("latin")
    decompositions = unicode_tables.decompositions(unicode_tables.UNICODE_VERSION)
    found: list[Edit] = []
    strips = step.mode == "all"
    for i, char in enumerate(text if step.mode != "none" else ""):
        full = decompositions.get(ord(char), char)
        if not marks[ord(char)]:
            strips = step.mode == "all" or bool(latin[ord(full[0])])
        new = "".join(c for c in full if not marks[ord(c)]) if strips else full
        if len(new) < len(full) and marks[ord(char)] and found and marks[ord(text[i - 1])] and found[-1].stop == i:
            found[-1] = found[-1]._replace(stop=i + 1)
        elif len(new) < len(full):
            found.append(Edit(i, i + 1, new))
    return found


def _whitespace(step: Whitespace, text: str, begins: bool, ends: bool) -> list[Edit]:
    spaces = tables.PYTHON_SPACES if step.python else tables.SPACES
    found: list[Edit] = []
    for run in re.finditer(f"[{''.join(sorted(spaces))}]+", text):
        start, stop = run.span()
        if step.strip and ((begins and start == 0) or (ends and stop == len(text))):
            found.append(Edit(start, stop, ""))
        elif step.collapse:
            found += _collapsed(step, start, run[0])
    return found


def _collapsed(step: Whitespace, start: int, run: str) -> list[Edit]:
    breaks = [] if step.newlines == "space" else list(_BREAK.finditer(run))
    if not breaks:
        return [Edit(start, start + len(run), " ")] if run != " " else []
    if step.newlines == "paragraphs" and len(breaks) > 2:
        return [Edit(start, start + len(run), "\n\n")]
    found, at = [], 0
    for each in breaks:
        # If a carriage return and a line feed follow each other, only the line feed stays.
        begin = each.end() - 1
        found += [Edit(start + at, start + begin, "")] if at < begin else []
        found += [Edit(start + begin, start + begin + 1, "\n")] if run[begin] != "\n" else []
        at = each.end()
    return [*found, Edit(start + at, start + len(run), "")] if at < len(run) else found


def _emoji(step: Emoji, text: str, begins: bool, ends: bool) -> list[Edit]:
    if step.mode == "keep":
        return []
    units = [found.span() for found in emoji_pattern().finditer(text)]
    if step.mode != "isolate":
        return [Edit(a, b, describe(text[a:b]) if step.mode == "describe" else "") for a, b in units]
    places = sorted({place for unit in units for place in unit} - {0, len(text)})
    return [Edit(i, i, " ") for i in places if not tables.SPACES & set(text[i - 1 : i + 1])]


_OF_STEPS: dict[type, Any] = {
    Emoji: _emoji, IsolateDigits: _isolate_digits, RepeatedPunctuation: _repeated_punctuation, Segment: _segment,
    StripAccents: _strip_accents, Whitespace: _whitespace,
}  # fmt: skip


def _of_bits(bits: int) -> str:
    return "".join(map(regex.escape, map(chr, np.flatnonzero(emoji_classes() & bits).tolist())))


@functools.cache
def emoji_pattern() -> "regex.Pattern[str]":
    """The definition of an emoji, as a regular expression.

    A flag; a keycap; or a pictograph that is an emoji by itself, or by U+FE0F or a skin tone after it, with everything
    that is joined to it in one grapheme cluster.
    """
    flag, extend, pictograph = (_of_bits(bits) for bits in (kernels.FLAG, kernels.EXTEND, kernels.PICTOGRAPH))
    presented, modifier = _of_bits(kernels.PRESENTED), _of_bits(kernels.MODIFIER)
    more = f"[{extend}\u200d]*"
    return regex.compile(
        f"[{flag}][{flag}]?{more}|[0-9#*]\ufe0f?\u20e3{more}"
        f"|(?:[{presented}](?!\ufe0e)|[{pictograph}](?=[\ufe0f{modifier}]))(?:[{extend}]|\u200d[{pictograph}]?)*"
    )


def _class(characters: str) -> str:
    return f"[{''.join(map(regex.escape, characters))}]"


@functools.lru_cache(maxsize=64)
def definition(name: str, least: int) -> "regex.Pattern[str]":
    """The definition of a named span, as a regular expression; least: of characters in a row, for the last two."""
    if name == "emoji":
        return emoji_pattern()
    letters_and_digits = string.ascii_letters + string.digits
    spaces = _class("".join(sorted(tables.SPACES)))
    local = _class(letters_and_digits + "._%+-")
    digit = _class("".join(map(chr, np.flatnonzero(digits()).tolist())))
    inside, last = _class(letters_and_digits + "-._~:/?#[]@!$&'()*+,;=%"), _class(letters_and_digits + "-_~/#@$&*+=%")
    return regex.compile(
        {
            "number": rf"{digit}+(?:[.,]{digit}+)*",
            "url": rf"(?i:(?:https?|ftp)://|www\.){inside}*{last}",
            # A name begins as early as it can: trying every place in it would take the square of its length.
            "email": rf"(?:\G|(?<!{local})){local}+@(?:{_class(letters_and_digits + '-')}+\.)+[A-Za-z]{{2,}}",
            "repeated": rf"(?s:(?!{spaces})(.)\1{{{least - 1},}})",
            "whitespace": rf"{spaces}{{{least},}}",
        }[name],
        regex.V1 | regex.ASCII,
    )


def find_spans(rules: tuple[SpanRule, ...], text: str) -> list[tuple[int, int, int]]:
    """The spans of a text as (start, stop, number of the rule), in characters."""
    found = []
    for number, rule in enumerate(rules):
        if rule.regex is not None:
            spans = [match.span() for match in find_matches(rule.regex, text, rule.seconds)]
        elif rule.literal is not None:
            spans, at = [], text.find(rule.literal)
            while at >= 0:
                spans.append((at, at + len(rule.literal)))
                at = text.find(rule.literal, spans[-1][1])
        else:
            spans = [match.span() for match in definition(rule.find or "", rule.n_least).finditer(text)]
        found += [(start, number, stop) for start, stop in spans]
    taken: list[tuple[int, int, int]] = []
    for start, number, stop in sorted(found):
        if not taken or start >= taken[-1][1]:
            taken.append((start, stop, number))
    return taken
