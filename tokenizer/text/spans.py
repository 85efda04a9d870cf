# SPDX-License-Identifier: Apache-2.0
"""Special spans: matches of patterns and literals in raw text, which become tokens before any other step runs.

Text is cut at spans, as at added tokens. No placeholder character is used, so no text of a document can be mistaken for
a span. The text between two spans goes through the steps and the tokenizer by itself.
`tests/reference/text_steps.py` has the definitions of the spans that rules give by name.
"""

import dataclasses
import functools
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.added_token_kernels import Places
from tokenmill.tokenizer.added_tokens import cut_at
from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.edits import found_edits, places_in_text
from tokenmill.tokenizer.normalizers.kernels import matches
from tokenmill.tokenizer.normalizers.tables import Runs
from tokenmill.tokenizer.pre_tokenizers import pattern_syntax
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Node, parse
from tokenmill.tokenizer.ragged import Ragged, gathered, read_only, text_rows
from tokenmill.tokenizer.text import kernels, tables
from tokenmill.tokenizer.text.base import check_encodable, nearest
from tokenmill.tokenizer.text.emoji import emoji_pattern
from tokenmill.tokenizer.text.neighbours import digits
from tokenmill.tokenizer.text.patterns import find_pattern, one_of, times
from tokenmill.tokenizer.text.row_steps import compile_pattern, find_matches

Named = Literal["number", "url", "email", "emoji", "repeated", "whitespace"]

RESERVED = frozenset(
    "[PAD] [UNK] [CLS] [SEP] [MASK] <pad> <unk> <s> </s> <mask> <bos> <eos> <|endoftext|> <|startoftext|>".split()
)
"""Tokens that have a function already, which a span must not use."""

LEAST = {"repeated": 4, "whitespace": 2}
"""Named pattern -> the least number of characters in a row, unless a rule says otherwise."""

_URL = (
    r"(?:(?:[Hh][Tt][Tt][Pp][Ss]?|[Ff][Tt][Pp])://|[Ww][Ww][Ww]\.)"
    r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*[A-Za-z0-9\-_~/#@$&*+=%]"
)
_LOCAL = (string.ascii_letters + string.digits + "._%+-").encode()
_BEHIND_LOCAL = r"@(?:[A-Za-z0-9\-]+\.)+[A-Za-z]{2,}"


@functools.lru_cache(maxsize=64)
def _white_space(least: int) -> Runs:
    return Runs.of(tables.table_of(tables.SPACES), " ", least)


@functools.cache
def _not_white_space() -> npt.NDArray[np.bool_]:
    return read_only(~tables.table_of(tables.SPACES))


@functools.cache
def _number() -> Node:
    digit_run, point = times(one_of(digits()), 1), one_of(tables.table_of(frozenset(".,")))
    return pattern_syntax.Sequence((digit_run, times(pattern_syntax.Sequence((point, digit_run)), 0)))


@functools.cache
def _url() -> Node:
    return parse(_URL)


def _find_emails(rows: Ragged, _least: int) -> npt.NDArray[np.int64]:
    """Returns addresses, int64[n, 3]: from each "@" with a domain back over what may stand in front of it."""
    domains = find_pattern(rows, parse(_BEHIND_LOCAL))
    begins = rows.offsets[np.searchsorted(rows.offsets, domains[:, 0], side="right") - 1]
    data = rows.values.tobytes() if len(domains) else b""
    found, last = [], 0
    for begin, (at, stop, _) in zip(begins.tolist(), domains.tolist(), strict=True):
        # No local part reaches back over an address, or over another "@": each byte is looked at once.
        before = data[max(begin, last) : at]
        n_local = len(before) - len(before.rstrip(_LOCAL))
        found += [(at - n_local, stop, 0)] * (n_local > 0)
        last = stop if n_local > 0 else at + 1
    return np.array(found, np.int64).reshape(-1, 3)


NAMED: dict[str, Callable[[Ragged, int], npt.NDArray[np.int64]]] = {
    "number": lambda rows, _: find_pattern(rows, _number()),
    "url": lambda rows, _: find_pattern(rows, _url()),
    "email": _find_emails,
    "emoji": lambda rows, _: find_pattern(rows, emoji_pattern()),
    "repeated": lambda rows, least: found_edits(matches.find_repeated, rows, _not_white_space(), least - 1, True),
    "whitespace": lambda rows, least: found_edits(matches.find_runs, rows, _white_space(least)),
}
"""Name -> function of rows and the least number of characters; it returns int64[n, 3], start and stop in bytes.

`number`: decimal digits of any script, with `.` or `,` between some. `url`: http, https, ftp or `www.`, then characters
of RFC 3986, not ending in punctuation. `email`: name, `@`, labels and a domain of letters. `emoji`: see `Emoji`.
`repeated`: the same character in a row, except white space. `whitespace`: white space in a row.
"""


def find_literal(rows: Ragged, literal: str) -> npt.NDArray[np.int64]:
    """Returns the occurrences of a text, int64[n, 3]: start and stop in bytes."""
    return found_edits(matches.find_literal, rows, read_only(np.frombuffer(bytearray(literal.encode()), np.uint8)))


@dataclasses.dataclass(frozen=True)
class SpanRule:
    """A rule that turns spans into a token; exactly one of `find`, `regex` and `literal` is given."""

    token: str
    """The token, which no other rule may have."""
    find: Named | None = None
    """A pattern by name; see `text.spans.NAMED`."""
    regex: str | None = None
    """A regular expression of the package `regex`, version 1; empty matches are skipped."""
    literal: str | None = None
    least: int | None = None
    """For `repeated` and `whitespace`: the least number of characters in a row, by default 4 and 2."""
    keep_source: bool = False
    """Whether to keep the text of each span, so that decoding gives it back."""
    seconds: float = 5.0
    """For `regex`: the processor time for each started megabyte of a document; one that takes longer is rejected."""

    def __post_init__(self) -> None:
        check_encodable("token", self.token)
        if not self.token or self.token in RESERVED:
            raise ValueError(f"token {self.token!r} has a function already; choose one that is this span's own")
        given = [name for name in ("find", "regex", "literal") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"span {self.token!r} must have one of find, regex and literal, got {given}")
        if self.find is not None and self.find not in NAMED:
            allowed, hint = ", ".join(NAMED), nearest(str(self.find), NAMED)
            raise ValueError(f"span {self.token!r}: find must be one of {allowed}, got {self.find!r}{hint}")
        if self.regex is not None:
            compile_pattern(self.regex)
        if self.literal == "":
            raise ValueError(f"span {self.token!r}: literal must not be empty")
        check_encodable(f"span {self.token!r}: literal", self.literal or "")
        if self.least is not None and (self.find not in LEAST or not 1 <= self.least <= 1000):
            raise ValueError(
                f"span {self.token!r}: least goes with {' and '.join(LEAST)} and is from 1 to 1000, got {self.least!r}"
            )
        if self.find == "repeated" and self.least == 1:
            raise ValueError(f"span {self.token!r}: one character is not repeated; least must be at least 2")
        if not 0 < self.seconds <= 3600:
            raise ValueError(f"span {self.token!r}: seconds must be more than 0 and at most 3600, got {self.seconds!r}")

    @classmethod
    def from_config(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the rule of an entry of a config's `spans`.

        Raises:
          ValueError: if it is wrong; the message names what is, and what is allowed.
        """
        known = {field.name: field for field in dataclasses.fields(cls)}
        for key, value in fields.items():
            if key not in known:
                raise ValueError(f"unknown key {key!r}{nearest(str(key), known)}; allowed: {', '.join(known)}")
            kinds = {"least": (int,), "seconds": (int, float), "keep_source": (bool,)}.get(key, (str,))
            if type(value) not in kinds:
                raise ValueError(f"{key} must be {kinds[-1].__name__}, got {value!r}")
        if "token" not in fields:
            raise ValueError("token is required")
        return cls(**fields)

    @property
    def n_least(self) -> int:
        """The least number of characters in a row, for patterns that have one."""
        return self.least or LEAST.get(self.find or "", 1)


class CutText(NamedTuple):
    """Documents cut at spans."""

    rows: Ragged
    """The parts of documents; those that are spans are empty."""
    rules: npt.NDArray[np.int32]
    """int32[n_parts]: the number of the rule for parts that are spans, -1 for text."""
    documents: npt.NDArray[np.int64]
    """int64[n_documents + 1]: document d has the parts `[d]` to `[d + 1] - 1`, at least one."""
    sources: npt.NDArray[np.int64]
    """int64[n_spans, 2]: start and stop of each span in `values`, in order."""
    values: npt.NDArray[np.uint8]
    """uint8[n]: the bytes of the documents."""
    rejected: npt.NDArray[np.bool_]
    """bool[n_documents]: those on which an expression took too long; they are one empty part."""

    @property
    def edges(self) -> Edges:
        """The parts that begin and end their documents."""
        begins, ends = np.zeros(self.rules.size, np.bool_), np.zeros(self.rules.size, np.bool_)
        begins[self.documents[:-1]] = True
        ends[self.documents[1:] - 1] = True
        return Edges(begins, ends)


class SpanFinder:
    """Finds spans. Immutable; may be used by several threads.

    Each rule finds its matches separately, from left to right, without overlap. Of matches of several rules that
    overlap, the one that begins first wins; if they begin at the same place, the one whose rule is listed first. The
    others are dropped.
    """

    def __init__(self, rules: Iterable[SpanRule]) -> None:
        """Takes rules in order.

        Raises:
          ValueError: if two have the same token.
        """
        self.rules = tuple(rules)
        tokens = [rule.token for rule in self.rules]
        if twice := [token for i, token in enumerate(tokens) if token in tokens[:i]]:
            raise ValueError(f"token {twice[0]!r} belongs to two spans; each must have its own")

    def find_text(self, text: str) -> list[tuple[int, int, int]]:
        """Returns the spans of one text as (start, stop, number of the rule), in characters.

        Raises:
          TimeoutError: if an expression takes too long.
        """
        spans, rejected = self._find(text_rows([text]))
        if rejected[0]:
            raise TimeoutError(f"a span's expression takes too long on this text of {len(text)} characters")
        places = places_in_text(text, spans[:, :2])
        return [(start, stop, k) for (start, stop), k in zip(places, spans[:, 2].tolist(), strict=True)]

    def cut(self, rows: Ragged) -> CutText | None:
        """Cuts rows of valid UTF-8 at their spans; returns None if there is none and nothing is rejected."""
        spans, rejected = self._find(rows)
        if not len(spans) and not rejected.any():
            return None
        in_rows = np.searchsorted(rows.offsets, spans[:, 0], side="right") - 1
        kept = ~rejected[in_rows]
        spans, which = spans[kept], in_rows[kept].astype(np.int32)
        starts, stops, numbers = (np.ascontiguousarray(spans[:, i]) for i in range(3))
        starts, stops, rules, documents = cut_at(rows, Places(starts, stops, numbers.astype(np.int32), which))
        is_empty = (rules >= 0) | np.repeat(rejected, np.diff(documents))
        parts = gathered(rows.values, starts, np.where(is_empty, starts, stops))
        return CutText(parts, rules, documents, spans[:, :2], rows.values, rejected)

    def _find(self, rows: Ragged) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Returns the spans of rows, int64[n, 3], start, stop, rule; and bool[n_rows], rows that took too long."""
        found, rejected = [np.empty((0, 3), np.int64)], np.zeros(rows.n_rows, np.bool_)
        for number, rule in enumerate(self.rules):
            if rule.regex is not None:
                spans = self._find_regex(rows, rule, rejected)
            elif rule.literal is not None:
                spans = find_literal(rows, rule.literal)
            else:
                spans = NAMED[rule.find or ""](rows, rule.n_least)
            spans[:, 2] = number
            found.append(spans)
        spans = np.concatenate(found)
        spans = spans[np.lexsort((spans[:, 2], spans[:, 0]))]
        taken = np.empty(len(spans), np.bool_)
        kernels.select_leftmost(spans, taken)
        return spans[taken], rejected

    @staticmethod
    def _find_regex(rows: Ragged, rule: SpanRule, rejected: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Returns the matches of an expression, int64[n, 3]; marks documents that take too long in `rejected`."""
        found: list[npt.NDArray[np.int64]] = [np.empty((0, 3), np.int64)]
        for row in np.flatnonzero((np.diff(rows.offsets) > 0) & ~rejected).tolist():
            data = rows.values[rows.offsets[row] : rows.offsets[row + 1]]
            try:
                matches = find_matches(rule.regex or "", data.tobytes().decode(), rule.seconds)
                spans: Sequence[tuple[int, int]] = [match.span() for match in matches]
            except TimeoutError:
                rejected[row] = True
                continue
            if spans:
                # Where each character begins, and the end.
                places = np.append(np.flatnonzero((data & 0xC0) != 0x80), data.size) + rows.offsets[row]
                edges = places[np.array(spans, np.int64)]
                found.append(np.column_stack((edges, np.zeros(len(edges), np.int64))))
        return np.concatenate(found)
