# SPDX-License-Identifier: Apache-2.0
"""Fails a job that can use none of its records, and says what they are like: mostly, the field name is wrong."""

import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import archives
from tokenmill.pipeline.input.columnar import hint
from tokenmill.pipeline.input.readers import ROW_READERS, STREAM_READERS
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.rejects import listed_names
from tokenmill.pipeline.input.streams import Stream
from tokenmill.pipeline.splits import Piece, Split

_OF_A_FIELD = {"missing_field", "null_text", "not_string"}
"""Reject reasons that another `input.text_field` may avoid."""

_NAME, _OBJECTS = re.compile(r'[\s,]*"([^"\\]{1,60})"\s*:\s*'), re.compile(r"\[\s*\{")
_MAX_EXAMPLES = 3
_MAX_LOOKED_AT = 1000


class _HasPieces(Protocol):
    @property
    def pieces(self) -> tuple[Piece, ...]: ...


def check_usable(
    n_records: int,
    rejected: Mapping[str, int],
    splits: Iterable[_HasPieces],
    config: InputConfig,
    where: str,
    kept: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Raises if records were read and every one of them was rejected; looks at the input again to say why.

    Args:
      n_records: all records read, including rejected and filtered ones.
      rejected: the number of rejected records by reason.
      splits: the splits of the whole job, in any order.
      config: the `input` section, or that of one source, of which the counts are.
      where: the place of the rejects; "" if they are not kept.
      kept: the rejects, as dicts, for reasons that reading the input again does not meet, as those of conversations.

    Raises:
      ValueError: with the reasons, an example of each, the fields of the first records, and what to do. What comes
        from the input is escaped and of bounded length.
    """
    if n_records == 0 or sum(rejected.values()) < n_records:
        return
    of = f" of the source {config.source!r}" if config.source else ""
    reasons = sorted(rejected.items(), key=lambda each: (-each[1], each[0]))
    lines = [
        f"none of the {n_records:,} records{of} read can be used: "
        f"{', '.join(f'{n:,} rejected as {reason}' for reason, n in reasons)}"
    ]
    mine = (piece for split in splits for piece in split.pieces if piece.source == config.source)
    pieces = sorted(mine, key=lambda piece: (piece.path, piece.start))
    # If a file has changed or disappeared meanwhile, the job must still fail for this reason, not for that one.
    records, names = "", list[str]()
    with contextlib.suppress(OSError, ValueError):
        lines += _examples(pieces, config, kept)
        names = _first_fields(pieces[0], config) if pieces else []
        records = _records_in(pieces[0]) if pieces else ""
    advice = "correct the config or the input"
    if records:
        advice = f"{pieces[0].path!r} is one object, whose field {records!r} holds the records: `jq -c '.{records}[]'` "
        advice += "writes each on a line"
    elif _OF_A_FIELD & rejected.keys():
        several = config.text_fields
        setting = f"text_fields {several!r}" if several else f"text_field {config.text_field!r}"
        setting = f"{config.where}.{setting}"
        advice = f"{setting} must name {'fields that hold' if several else 'the field that holds'} the text: correct it"
        advice += hint(several or [config.text_field])
        if chats := sorted({"messages", "conversations"}.intersection(names)):
            advice += f"; if records are conversations, set {config.where}.messages_field: {chats[0]}"
    elif "not_a_conversation" in rejected:
        setting = f"{config.where}.messages_field {config.messages_field!r}"
        advice = f"{setting} must name the field that holds the messages: correct it"
    elif {"not_json", "not_object"} & rejected.keys():
        lines.append("a line must be an object: `jq -c .` writes values so, and `jq -c '.[]'` the elements of an array")
    stored = f"; all rejected records are in {where}" if where else ""
    lines.append(f"{advice}, and start again with --overwrite, or with --resume if only the input was changed{stored}")
    raise ValueError("\n".join(lines))


def _examples(pieces: Sequence[Piece], config: InputConfig, kept: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields a line with an example of each of the first reasons, and one with the fields of the first records."""
    for piece in pieces:
        batch = next((batch for batch in read_split(Split(0, "", (piece,)), config) if batch.n_records), None)
        if batch is None:
            continue
        seen: set[str] = set()
        found = batch.rejects.to_pylist() if batch.rejects is not None else ()
        mine = (row for row in kept if row["source"].startswith(f"{config.source}/" if config.source else ""))
        for row in itertools.chain(found, itertools.islice(mine, _MAX_LOOKED_AT)):
            if row["reason"] not in seen and len(seen) < _MAX_EXAMPLES:
                seen.add(row["reason"])
                yield f"{row['reason']}: {row['source']!r} at {row['offset']:,}: {row['detail']}"
        if names := _first_fields(piece, config):
            kind = "columns" if FORMATS[piece.format].has_rows else "fields of the first records"
            yield f"{kind}: {listed_names(names)}"
        return


def _records_in(piece: Piece) -> str:
    """Returns the path of the first list of objects in a file that is one JSON object; "" if there is none."""
    named = FORMATS[piece.format]
    if not named.has_fields or named.separator("line") is None:
        return ""
    with contextlib.closing(archives.open_piece(piece)) as handle:
        head = next(Stream(handle, piece).chunks(), b"").decode("utf-8", "ignore")
    head = head.strip()
    with contextlib.suppress(ValueError, RecursionError):  # a longer object does not end in the first chunk
        if json.JSONDecoder().raw_decode(head)[1] < len(head):
            return ""
    return _list_of_objects(head, 0)


def _list_of_objects(text: str, at: int) -> str:
    if not text.startswith("{", at):
        return ""
    at += 1
    while name := _NAME.match(text, at):
        at = name.end()
        if _OBJECTS.match(text, at):
            return name[1]
        if inner := _list_of_objects(text, at):
            return f"{name[1]}.{inner}"
        try:
            at = json.JSONDecoder().raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            break
    return ""


def _first_fields(piece: Piece, config: InputConfig) -> list[str]:
    """Returns the names of fields in the first records of a file, in the order in which they are met."""
    with contextlib.closing(archives.open_piece(piece)) as handle:
        if piece.format in ROW_READERS:
            return ROW_READERS[piece.format].column_names(handle)
        return STREAM_READERS[piece.format](config).first_names(Stream(handle, piece))
