# SPDX-License-Identifier: Apache-2.0
"""Rows of a shard as text, with the boundaries of its tokens visible: `be|##rt|st`."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from pipeline import filenames, storage
from pipeline.output.writers import formats
from pipeline.output.writers.json_texts import spell_nanoseconds
from tokenizer import Tokenizer

BOUNDARY = "|"
SHOWN_TOKENS = 200
"""How many tokens of a row are rendered by default: a row may be a whole book."""

_STYLES = ("cyan", "yellow")
_UNKNOWN_STYLE = "bold white on red"
_SPECIAL_STYLE = "dim"


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


def rows(shard_path: str, start: int = 0, count: int = 10) -> Iterator[Row]:
    """Yields `count` rows of a shard from row `start` on, fewer if it ends before.

    Args:
      shard_path: a file with rows, as `formats.read_rows` takes it.
      start: first row, from 0. TFRecord and MDS read everything before it.
      count: how many.

    Raises:
      ValueError: if `start` or `count` is negative, or the file is not a shard of TokenMill.
      OSError: if it cannot be read.
    """
    if start < 0 or count < 0:
        raise ValueError(f"start and count must not be negative, got {start!r} and {count!r}")
    number = start
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(storage.open_read(shard_path))
        index_path = formats.index_name(shard_path)
        index = stack.enter_context(storage.open_read(index_path)) if index_path is not None else None
        for batch in formats.read_rows(handle, shard_path, start, index):
            kept = [each.name for each in batch.schema if each.nullable]
            for row in spell_nanoseconds(batch.slice(0, start + count - number)).to_pylist():
                doc_id = row.get("doc_id", "") or ", ".join(f"#{n}" for n in row.get("documents", ()))
                fields = {name: row[name] for name in kept}
                if shard_path.endswith(".mds"):
                    fields = {name: json.loads(text) for name, text in fields.items()}
                n_tokens, n_oov, window = row["n_tokens"], row.get("n_oov"), row.get("window")
                yield Row(number, doc_id, row["input_ids"], n_tokens, n_oov, window, fields)
                number += 1
            if number == start + count:
                return


def find_tokenizer(shard_path: str, tokenizer_path: str | None = None) -> Tokenizer:
    """Returns the tokenizer at `tokenizer_path`, or the one beside a shard, in `vocab/tokenizer.json`.

    Raises:
      ValueError: if there is none beside the shard.
    """
    if tokenizer_path is not None:
        return Tokenizer.from_file(tokenizer_path)
    slash = max(shard_path.rfind("/"), shard_path.rfind("\\"))
    path = storage.join(shard_path[:slash] if slash > 0 else ".", *filenames.TOKENIZER.split("/"))
    if not storage.exists(path):
        raise ValueError(f"there is no {path!r} beside the shard; name a tokenizer")
    return Tokenizer.from_str(storage.read_text(path))


def render(row: Row, tokenizer: Tokenizer, max_tokens: int | None = SHOWN_TOKENS) -> Text:
    """Returns a row as text: its number, document, counts, and on the next line its tokens.

    Tokens have a `|` between them, and alternate in colour on a terminal. Padding is one entry with a count; characters
    that do not print are escaped.

    Args:
      row: to show.
      tokenizer: names the ids.
      max_tokens: how many tokens to show; None for all.
    """
    n_oov = row.n_oov
    if n_oov is None:
        n_oov = row.ids.count(tokenizer.unk_token_id) if tokenizer.unk_token_id is not None else 0
    text = Text()
    window = f"  window {row.window}" if row.window is not None else ""
    counts = f"n_tokens {row.n_tokens}  n_oov {n_oov}"
    text.append(f"row {row.number}  {printable(row.doc_id)}{window}  {counts}\n", style="bold")
    special = {token.id for token in tokenizer.added_tokens if token.special}
    n_padding = len(row.ids) - row.n_tokens
    padding = f"{_name(tokenizer, tokenizer.pad_token_id)}×{n_padding}" if n_padding else ""
    # Padding is on the left only if a token is on the right of it: a row of nothing but padding looks the same.
    is_left = n_padding > 0 and row.ids[-1] != tokenizer.pad_token_id
    tokens = row.ids[n_padding:] if is_left else row.ids[: row.n_tokens]
    shown = tokens if max_tokens is None else tokens[:max_tokens]
    if is_left:
        text.append(padding, style=_SPECIAL_STYLE).append(BOUNDARY, style=_SPECIAL_STYLE)
    for i, token_id in enumerate(shown):
        if i:
            text.append(BOUNDARY, style=_SPECIAL_STYLE)
        style = _STYLES[i % 2]
        if token_id == tokenizer.unk_token_id:
            style = _UNKNOWN_STYLE
        elif token_id in special:
            style = _SPECIAL_STYLE
        text.append(_name(tokenizer, token_id), style=style)
    if len(shown) < len(tokens):
        text.append(f" … {len(tokens) - len(shown)} more", style=_SPECIAL_STYLE)
    if padding and not is_left:
        text.append(BOUNDARY if tokens else "", style=_SPECIAL_STYLE).append(padding, style=_SPECIAL_STYLE)
    return text


def _name(tokenizer: Tokenizer, token_id: int) -> str:
    token = tokenizer.id_to_token(token_id)
    return f"<{token_id}?>" if token is None else printable(token)


def printable(text: str) -> str:
    """Returns `text` with unprintable characters escaped, line ends and control sequences above all."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
