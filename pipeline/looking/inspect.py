# SPDX-License-Identifier: Apache-2.0
"""Text with the boundaries of its tokens visible, `be┊rt┊ is`: rows of a shard, or a text as tokenizers cut it.

Both are shown on a terminal and as JSON; texts also as a page.
"""

import codecs
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.text import Text

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.output.writers.base import spell_nanoseconds
from tokenmill.pipeline.reporting import html
from tokenmill.tokenizer import Encoding, Tokenizer
from tokenmill.tokenizer.token_runs import Kind, TokenRun, printable

BOUNDARY = "┊"
"""Between two tokens. Hardly any text has it, as `|` is in tables and special tokens; one in a text is `‹┊›`."""
SHOWN_TOKENS = 200
"""How many tokens of a row are rendered by default: a row may be a whole book."""

MOST_BYTES = 1 << 20
"""How much of a text is looked at."""
MOST_TOKENS = 20_000
"""How many tokens of it are shown for each tokenizer."""

_FEW = 5
"""So many documents of a sequence are named."""

COLOURS = ("cyan", "yellow")
STYLES: dict[Kind, str] = {
    "partial": "underline",
    "unknown": "bold white on red",
    "special": "dim",
    "missing": "bold white on red",
}
"""How kinds of tokens look on a terminal; ordinary ones alternate in colour."""


@dataclass(frozen=True)
class Row:
    """One row of a shard."""

    number: int
    """Counted from 0 within the shard."""
    doc_id: str
    """Empty if the format keeps none; for a packed sequence, the numbers of its documents."""
    ids: list[int]
    """As stored: padding included."""
    n_tokens: int
    """Padding not included."""
    n_oov: int | None
    """Unknown tokens; None where the shard does not say, as in TFRecord."""
    window: int | None = None
    """Number of the row in its document; None where rows are documents, or the shard does not say."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The kept fields, where they are columns of the shard."""
    segments: Sequence[tuple[str, int]] = ()
    """For a packed sequence, name and first token of each document's part; none where the shard does not say."""

    def split(self, pad_id: int | None) -> tuple[list[int], int, bool]:
        """Returns the tokens without padding, how much padding there is, and whether it is on the left."""
        n_padding = len(self.ids) - self.n_tokens
        # Padding is on the left only if a token is on the right of it: a row of nothing but padding looks the same.
        # Sequences are padded on the right, with whatever token.
        is_left = n_padding > 0 and not self.segments and self.ids[-1] != pad_id
        return self.ids[n_padding:] if is_left else self.ids[: self.n_tokens], n_padding, is_left


def rows(shard_path: str, start: int = 0, count: int = 10) -> Iterator[Row]:
    """Yields `count` rows of a shard from row `start` on, fewer if it ends before.

    Args:
      shard_path: a file with rows, as `formats.read_rows` takes it.
      start: first row, from 0. TFRecord and MDS read everything before it.

    Raises:
      ValueError: if `start` or `count` is negative, or the file is not a shard of TokenMill.
      OSError: if it cannot be read.
    """
    if start < 0 or count < 0:
        raise ValueError(f"start and count must not be negative, got {start!r} and {count!r}")
    number = start
    for batch in batches(shard_path, start):
        for i in range(min(batch.num_rows, start + count - number)):
            yield row_of(shard_path, batch, i, number)
            number += 1
        if number == start + count:
            return


def batches(shard_path: str, start: int = 0) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard as it stores them, from row `start` on; raises as `rows`."""
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(storage.open_read(shard_path))
        index_path = formats.index_name(shard_path)
        index = stack.enter_context(storage.open_read(index_path)) if index_path is not None else None
        yield from formats.read_rows(handle, shard_path, start, index)


def row_of(shard_path: str, batch: pa.RecordBatch, i: int, number: int) -> Row:
    """Returns row `i` of a batch, which is row `number` of its shard."""
    kept = [each.name for each in batch.schema if each.nullable]
    alone = batch.slice(i, 1)
    (row,) = spell_nanoseconds(alone).to_pylist()
    names = [f"#{n}" for n in row.get("documents", ())]
    column = next((name for name in schemas.BOUNDARIES if name in batch.schema.names), None)
    segments = list(zip(names, _segment_starts(row, column), strict=False)) if column else []
    fields = {name: row[name] for name in kept}
    if shard_path.endswith(".mds"):
        fields = {name: json.loads(text) for name, text in fields.items()}
    doc_id, n_tokens, n_oov, window = row.get("doc_id", ""), row["n_tokens"], row.get("n_oov"), row.get("window")
    return Row(number, doc_id or ", ".join(names), row["input_ids"], n_tokens, n_oov, window, fields, segments)


def _segment_starts(row: Mapping[str, Any], column: str) -> list[int]:
    """Returns the first token of each document's part in a packed sequence, as one of its `BOUNDARIES` says."""
    numbers = row[column]
    if column == "cu_seqlens":
        return list(numbers[:-1])
    of_tokens = numbers[: row["n_tokens"]]
    if column == "positions":
        return [i for i, position in enumerate(of_tokens) if position == 0]
    return [i for i, number in enumerate(of_tokens) if i == 0 or number != of_tokens[i - 1]]


def find_tokenizer(shard_path: str, tokenizer_path: str | None = None) -> Tokenizer:
    """Returns the tokenizer at `tokenizer_path`, or the one beside a shard, in `vocab/tokenizer.json`.

    Raises:
      ValueError: if there is none beside the shard.
    """
    if tokenizer_path is not None:
        return Tokenizer.from_file(tokenizer_path)
    path = storage.join(split_path(shard_path)[0], *filenames.TOKENIZER.split("/"))
    if not storage.exists(path):
        raise ValueError(f"there is no {path!r} beside the shard; name a tokenizer")
    return Tokenizer.from_str(storage.read_text(path))


def split_path(path: str) -> tuple[str, str]:
    """Returns the folder of a file, and its name there."""
    slash = max(path.rfind("/"), path.rfind("\\"))
    return (path[:slash] or "/" if slash >= 0 else "."), path[slash + 1 :]


def render(
    row: Row,
    tokenizer: Tokenizer,
    max_tokens: int | None = SHOWN_TOKENS,
    *,
    with_ids: bool = False,
    pattern: str | None = None,
) -> Text:
    """Returns a row as text: its number, document, counts, and on the next line its tokens.

    Tokens are what they add to the text, spaces included, with a `┊` between them, and alternate in colour on a
    terminal; see `TokenRun.text`. Each document of a packed sequence has a line. Padding is one entry with a count.

    Args:
      max_tokens: how many tokens to show; None for all.
      with_ids: whether to show the id behind each token: `the:5`.
      pattern: a regular expression of RE2 that the text matches: what is shown of a long row has the first match.
    """
    tokens, n_padding, is_left = row.split(tokenizer.pad_token_id)
    first = _first_shown(tokenizer, tokens, pattern, max_tokens) if pattern is not None and max_tokens else 0
    runs = tokenizer.token_runs(tokens[: first + max_tokens if max_tokens is not None else None])[first:]
    window = f"  window {row.window}" if row.window is not None else ""
    names = [name for name, _ in row.segments]
    named = f"{names[0]} to {names[-1]}, {len(names)} documents" if len(names) > _FEW else row.doc_id
    counts = f"n_tokens {row.n_tokens}  n_oov {_n_unknown(row, tokenizer)}"
    text = Text().append(f"row {row.number}  {printable(named)}{window}  {counts}\n", style="bold")
    pad_id = row.ids[0 if is_left else -1] if n_padding else -1
    padding = f"{printable(tokenizer.id_to_token(pad_id) or f'<{pad_id}?>')}×{n_padding}" if n_padding else ""
    if is_left:
        text.append(padding + BOUNDARY, style="dim")
    if first:
        text.append(f"{first} before … ", style="dim")
    starts = {start - first: name for name, start in row.segments}
    for i, run in enumerate(runs):
        if i in starts:
            text.append("\n" if i or first else "").append(f"{printable(starts[i])}: ", style="dim")
        elif i:
            text.append(BOUNDARY, style="dim")
        text.append(shown(run.text), style=STYLES.get(run.kind, COLOURS[i % 2]))
        if with_ids:
            text.append(f":{run.id}", style="dim")
    if (n_more := len(tokens) - first - len(runs)) > 0:
        text.append(f" … {n_more} more", style="dim")
    if padding and not is_left:
        text.append((BOUNDARY if tokens else "") + padding, style="dim")
    return text


def _first_shown(tokenizer: Tokenizer, tokens: Sequence[int], pattern: str, max_tokens: int) -> int:
    """Returns the first token to show so that the first match is among `max_tokens` of them."""
    data = [run.data for run in tokenizer.token_runs(tokens)]
    text = pa.array([b"".join(data).decode("utf-8", "replace")])
    at = pc.find_substring_regex(text, pattern)[0].as_py()
    token = int(np.searchsorted(np.cumsum([len(each) for each in data]), at, "right"))
    return max(0, token - max_tokens // 4) if token >= max_tokens else 0


def shown(text: str) -> str:
    """Returns the text of a run without a boundary in it."""
    return text.replace(BOUNDARY, f"‹{BOUNDARY}›") or "∅"


def _n_unknown(row: Row, tokenizer: Tokenizer) -> int:
    if row.n_oov is not None:
        return row.n_oov
    return 0 if tokenizer.unk_token_id is None else row.ids.count(tokenizer.unk_token_id)


def to_record(row: Row, tokenizer: Tokenizer, max_tokens: int | None = SHOWN_TOKENS) -> dict[str, Any]:
    """Returns a row as plain JSON, except for values of `fields`: what `render` shows, and of each token its place.

    `start` and `stop` are bytes of the decoded row. `word` is the number of the token's word among those of its
    document, null for special and unknown tokens, and where the text does not encode to the same tokens again.
    """
    tokens, n_padding, is_left = row.split(tokenizer.pad_token_id)
    runs = tokenizer.token_runs(tokens[:max_tokens])
    starts = {start for _, start in row.segments}
    words = _words(tokenizer, runs, starts)
    described, stop = [], 0
    for run, word in zip(runs, words, strict=True):
        start, stop = stop, stop + len(run.data)
        described.append({"id": run.id, "text": run.text, "kind": run.kind, "start": start, "stop": stop, "word": word})
    return {
        "row": row.number, "doc_id": row.doc_id, "window": row.window, "n_tokens": row.n_tokens,
        "n_oov": _n_unknown(row, tokenizer), "n_padding": n_padding, "padding": "left" if is_left else "right",
        "segments": [{"document": name, "first_token": start} for name, start in row.segments],
        "fields": row.fields, "tokens": described,
    }  # fmt: skip


def _words(tokenizer: Tokenizer, runs: Sequence[TokenRun], starts: set[int]) -> list[int | None]:
    """Returns the word of each token: stretches of text are encoded again."""
    bare = tokenizer.replace(truncation=None, padding=None)
    words: list[int | None] = []
    ids: list[int] = []
    n_before = 0
    for i, run in enumerate([*runs, None]):
        text = run if run is not None and run.kind in ("ordinary", "partial") else None
        if ids and (i in starts or text is None):
            again = bare.encode(bare.decode(ids, skip_special_tokens=False), add_special_tokens=False)
            same = again.word_ids if again.ids == ids else [None] * len(ids)
            words += [None if word is None else n_before + word for word in same]
            n_before += 1 + max((word for word in same if word is not None), default=-1)
            ids = []
        n_before = 0 if i in starts else n_before
        if text is not None:
            ids.append(text.id)
        elif run is not None:
            words.append(None)
    return words


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
        """Yields the tokens shown, each with what there is to say of it: its bytes, characters of the text, word."""
        for run, place, word in zip(self.runs, self.encoding.offsets, self.encoding.word_ids, strict=False):
            described = {"id": run.id, "text": run.text, "kind": run.kind, "bytes": run.data.hex(" ")}
            yield run, {**described, "characters": place, "word": word}


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


def views_to_json(views: Sequence[View]) -> list[dict[str, Any]]:
    """Returns plain JSON: for each tokenizer the numbers, and the tokens shown."""
    return [
        {**view.facts(), "tokens_left_out": view.n_left_out, "shown": [place for _, place in view.tokens()]}
        for view in views
    ]


def render_view(view: View, *, with_ids: bool = False) -> Text:
    """Returns a view for a terminal; a line of the text is a line."""
    text = Text().append(f"{view.name}  {view.said()}\n", style="bold")
    for i, run in enumerate(view.runs):
        text.append(shown(run.text), style=STYLES.get(run.kind, COLOURS[i % 2]))
        text.append(f":{run.id}" if with_ids else "", style="dim")
        if i + 1 < len(view.runs):
            text.append("\n" if run.data.endswith(b"\n") else BOUNDARY, style="dim")
    return text.append(f" … {view.n_left_out:,} more" if view.n_left_out else "", style="dim")


def draw_views(views: Sequence[View], is_cut: bool) -> str:
    """Returns a page that opens offline: the numbers of all tokenizers, and the text as each cuts it, side by side."""
    facts = [view.facts() for view in views]
    return html.render(
        "looking/viz.html.jinja", views=views, facts=facts, is_cut=is_cut, MOST_BYTES=MOST_BYTES, newline=b"\n"
    )
