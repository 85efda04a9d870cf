# SPDX-License-Identifier: Apache-2.0
"""Tokens as runs of text, for people to look at: the text that each token adds, with partial characters marked."""

import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["ordinary", "partial", "unknown", "special", "missing"]


class TokenRun(NamedTuple):
    """One token of a row, as `Tokenizer.token_runs` shows it."""

    id: int
    kind: Kind
    """`partial`: begins or ends inside a character; `unknown`: the model's unknown token, unless that also ends texts;
    `special`: a special token; `missing`: no token has the id."""
    data: bytes
    """The bytes it adds to the text of its row: those of a row, joined, are its text in UTF-8. Empty if `missing`."""
    text: str
    """`data` as people see it. Unprintable characters are escaped: `\\n`. The bytes of a character that several tokens
    share are hexadecimal, and the last is followed by the character: `‹e4›`, `‹bd›`, `‹a0›=你`. An accent at the start
    gets a base, so that it does not combine with the token before: `◌́`. An id without a token is `<77?>`."""


def runs_of(tokens: Sequence[tuple[int, Kind, bytes]]) -> list[TokenRun]:
    """Returns the tokens of a row as runs; tokens: the id, the kind (never `partial`) and the bytes of each."""
    whole = b"".join(data for _, _, data in tokens)
    characters, stop = [], 0
    for character in whole.decode("utf-8", "surrogateescape"):
        start, stop = stop, stop + len(character.encode("utf-8", "surrogateescape"))
        characters.append((start, stop, "" if "\udc80" <= character <= "\udcff" else character))
    runs, at, end = [], 0, 0
    for token_id, kind, data in tokens:
        begin, end = end, end + len(data)
        shown, is_partial = [], False
        while data and at < len(characters) and characters[at][0] < end:
            start, stop, character = characters[at]
            if character and begin <= start and stop <= end:
                shown.append(printable(character))
            else:
                is_partial = True
                shown.append(f"‹{whole[max(begin, start) : min(end, stop)].hex(' ')}›")
                shown.append(f"={_standing(printable(character))}" if character and stop <= end else "")
            if stop > end:
                break
            at += 1
        text = f"<{token_id}?>" if kind == "missing" else _standing("".join(shown))
        runs.append(TokenRun(token_id, "partial" if is_partial and kind == "ordinary" else kind, data, text))
    return runs


def _standing(text: str) -> str:
    return f"◌{text}" if text and unicodedata.category(text[0]).startswith("M") else text


def printable(text: str) -> str:
    """Returns `text` with unprintable characters escaped: line ends, control characters, changes of direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_STYLES = {
    "ordinary": "",
    "partial": "text-decoration:underline dotted;",
    "unknown": "font-weight:bold;outline:2px solid #d33;",
    "special": "font-style:italic;opacity:.7;",
    "missing": "font-weight:bold;outline:2px solid #d33;",
}


def html_of(runs: Sequence[TokenRun], n_tokens: int) -> str:
    """Returns runs as HTML for a notebook; runs: the first of `n_tokens`, a number that the line below them states."""
    from html import escape

    spans = []
    for i, run in enumerate(runs):
        colour = "rgba(45,125,210,.2)" if i % 2 else "rgba(235,150,30,.2)"
        style = f"background:{colour};border-left:1px solid;white-space:pre-wrap;unicode-bidi:isolate;"
        title = f"{i}: id {run.id}, {run.kind}, bytes {run.data.hex(' ')}"
        spans.append(f'<span style="{style}{_STYLES[run.kind]}" title="{title}">{escape(run.text)}</span>')
    left = f", {n_tokens - len(runs)} more not shown" if n_tokens > len(runs) else ""
    body = '<div style="font-family:monospace;line-height:1.8;overflow-wrap:anywhere">' + "<wbr>".join(spans)
    return f"{body}</div><small>{n_tokens} tokens{left}</small>"
