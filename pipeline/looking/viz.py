# SPDX-License-Identifier: Apache-2.0
"""One text as several tokenizers cut it: for a terminal, as a page, as JSON."""

import codecs
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from tokenmill.pipeline.looking.inspect import BOUNDARY, COLOURS, STYLES, shown
from tokenmill.pipeline.reporting import html
from tokenmill.tokenizer import Encoding, Tokenizer
from tokenmill.tokenizer.token_runs import TokenRun

MOST_BYTES = 1 << 20
"""How much of a text is looked at."""
MOST_TOKENS = 20_000
"""How many tokens of it are shown for each tokenizer."""


@dataclass(frozen=True)
class View:
    """A text as one tokenizer cuts it, without truncation and padding."""

    name: str
    tokenizer: Tokenizer
    n_bytes: int
    encoding: Encoding
    runs: list[TokenRun]
    """The first `MOST_TOKENS` tokens."""

    @property
    def n_left_out(self) -> int:
        """Tokens that are not shown."""
        return len(self.encoding) - len(self.runs)

    def facts(self) -> dict[str, Any]:
        """Returns the numbers of the whole text; bytes per token are null without tokens, unknown ones without any."""
        n_tokens, unknown = len(self.encoding), self.tokenizer.unk_token_id
        added = zip(self.encoding.ids, self.encoding.special_tokens_mask, strict=True)
        n_unknown = sum(i == unknown and not is_added for i, is_added in added)
        return {
            "tokenizer": self.name,
            "vocabulary": self.tokenizer.get_vocab_size(),
            "tokens": n_tokens,
            "bytes_per_token": round(self.n_bytes / n_tokens, 3) if n_tokens else None,
            "unknown": None if unknown is None else n_unknown,
        }

    def said(self) -> str:
        """Returns the numbers as a sentence."""
        facts = self.facts()
        unknown = "" if not facts["unknown"] else f", {facts['unknown']:,} unknown"
        return f"{facts['tokens']:,} tokens, {facts['bytes_per_token']} bytes per token{unknown}"

    def tokens(self) -> Iterator[tuple[TokenRun, dict[str, Any]]]:
        """Returns the tokens shown, each with what there is to say of it."""
        return zip(self.runs, self.places(), strict=True)

    def places(self) -> list[dict[str, Any]]:
        """Returns what there is to say of each token shown: id, kind, bytes, characters of the text, word."""
        columns = zip(self.runs, self.encoding.offsets, self.encoding.word_ids, strict=False)
        return [
            {
                "id": run.id,
                "text": run.text,
                "kind": run.kind,
                "bytes": run.data.hex(" "),
                "characters": place,
                "word": word,
            }
            for run, place, word in columns
        ]


def read_text(target: str) -> tuple[str, bool]:
    """Returns the text to look at, and whether it goes on after `MOST_BYTES`.

    Args:
      target: `-` for stdin, a file if there is one of that name, else the text itself.

    Raises:
      ValueError: if it is not UTF-8; says where. OSError: if it cannot be read.
    """
    if target == "-":
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
    elif os.path.exists(target):
        with open(target, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    else:
        data = target.encode("utf-8", "surrogateescape")
    is_cut = len(data) > MOST_BYTES
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data[:MOST_BYTES], final=not is_cut), is_cut
    except UnicodeDecodeError as error:
        name = "stdin" if target == "-" else target if os.path.exists(target) else "the text"
        raise ValueError(f"{name}: byte {error.start} is not UTF-8: {error.reason}") from error


def look(text: str, paths: Sequence[str]) -> list[View]:
    """Returns a text as the tokenizers at some paths cut it; special tokens in the text are text.

    Raises:
      OSError, ValueError: if a tokenizer cannot be loaded.
    """
    views = []
    for path in paths:
        tokenizer = Tokenizer.from_file(path).replace(truncation=None, padding=None)
        encoding = tokenizer.encode(text)
        runs = tokenizer.token_runs(encoding.ids[:MOST_TOKENS])
        views.append(View(path, tokenizer, len(text.encode()), encoding, runs))
    return views


def to_json(views: Sequence[View]) -> list[dict[str, Any]]:
    """Returns plain JSON: for each tokenizer the numbers, and the tokens shown."""
    return [{**view.facts(), "tokens_left_out": view.n_left_out, "shown": view.places()} for view in views]


def render(view: View, *, with_ids: bool = False) -> Text:
    """Returns a view for a terminal; a line of the text is a line."""
    text = Text().append(f"{view.name}  {view.said()}\n", style="bold")
    for i, run in enumerate(view.runs):
        text.append(shown(run.text), style=STYLES.get(run.kind, COLOURS[i % 2]))
        text.append(f":{run.id}" if with_ids else "", style="dim")
        if i + 1 < len(view.runs):
            text.append("\n" if run.data.endswith(b"\n") else BOUNDARY, style="dim")
    return text.append(f" … {view.n_left_out:,} more" if view.n_left_out else "", style="dim")


def draw(views: Sequence[View], is_cut: bool) -> str:
    """Returns a page that opens offline: the numbers of all tokenizers, and the text as each cuts it, side by side."""
    facts = [view.facts() for view in views]
    return html.render(
        "looking/viz.html.jinja", views=views, facts=facts, is_cut=is_cut, MOST_BYTES=MOST_BYTES, newline=b"\n"
    )
