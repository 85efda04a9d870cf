# SPDX-License-Identifier: Apache-2.0
"""`tokenmill trace`: traces a row of a shard, or one of its tokens, back to the document and its bytes."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenmill.pipeline import storage
from tokenmill.pipeline.commands.arguments import file_path, set_command
from tokenmill.pipeline.commands.reporting import DONE, mistakes, print_json


def add_parsers(commands: Any) -> None:
    """Adds the command to those of a parser."""
    trace = commands.add_parser(
        "trace",
        help="say which document a row or a token of a shard came from, and from which bytes of which file",
        usage="tokenmill trace [--json] [--quiet] [--verbose] (SHARD | FOLDER [SHARD]) ROW [TOKEN]",
    )
    trace.add_argument(
        "place",
        nargs="+",
        type=file_path,
        metavar="PLACE",
        help="a shard, ROW and perhaps TOKEN, counted from 0; or an output folder, and ROW among the rows of all its "
        "shards in order; or a folder and the name of a shard in it, and ROW in that",
    )
    set_command(trace, _trace, "all that is known")


def _trace(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.output.writers.json_texts import to_plain
    from tokenmill.pipeline.proving import trace

    with mistakes():
        output, shard, row, token = _place(options.place)
        if shard is None:
            shard, row = trace.find_row(output, row)
        traced = trace.trace(output, shard, row, token)
    if options.json:
        print_json(traced, to_plain)
    else:
        for line in _lines(output, traced):
            print(line)
    return DONE


def _place(words: Sequence[str]) -> tuple[str, str | None, int, int | None]:
    """Returns the output folder, the name of the shard if there is one, the row, and the token if there is one."""
    from tokenmill.pipeline.output.writers import formats

    target, *rest = words
    shard = None
    if target.endswith(formats.ROWS):
        slash = max(target.rfind("/"), target.rfind("\\"))
        target, shard = (target[:slash] or "/" if slash >= 0 else "."), target[slash + 1 :]
    elif rest and rest[0].endswith(formats.ROWS):
        shard, rest = rest[0], rest[1:]
    wrong = [word for word in rest if not word.isdecimal()]
    if wrong or not 1 <= len(rest) <= 2:
        said = f"{wrong[0]!r} is not a number" if wrong else f"there are {len(rest)} numbers"
        raise ValueError(f"{' '.join(words)!r}: {said}; give a shard or a folder, then a row, then perhaps a token")
    return target, shard, int(rest[0]), int(rest[1]) if len(rest) == 2 else None


def _lines(output: str, traced: Mapping[str, Any]) -> list[str]:
    from tokenmill.tokenizer.token_runs import printable

    where = f"{storage.join(output, traced['shard'])}, row {traced['row']}"
    lines = [where]
    if traced["token"] is not None:
        token = printable(traced["token_text"] or "")
        lines = [f"{where}, token {traced['token']}: id {traced['token_id']}, {token}"]
        if not traced["documents"]:
            lines.append("padding: belongs to no document")
    elif not traced["documents"]:
        lines.append("nothing but padding: belongs to no document")
    for document in traced["documents"]:
        lines += [f"{name:<9} {value}" for name, value in _described(document)]
    return lines


def _described(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    from tokenmill.pipeline.config.formats import FORMATS
    from tokenmill.pipeline.output.writers.json_texts import to_plain
    from tokenmill.pipeline.proving.trace import excerpt
    from tokenmill.tokenizer.token_runs import printable

    source, first, start, size = (document[name] for name in ("source", "first", "start", "size"))
    place = f"row {source['offset']}"
    if not FORMATS[source["format"]].has_rows:
        place = f"bytes {source['offset']} to {source['offset'] + source['n_bytes']}"
    held = f"tokens {start} to {start + size} of the row are {first} to {first + size} of the document's"
    found = [
        ("document", f"{printable(document['doc_id'])}, number {document['number']} of the shard"),
        ("source", f"{printable(source.get('path', source['name']))}, {place}"),
        ("held", f"{held} {document['n_tokens']}"),
    ]
    for name, value in document["fields"].items():
        found.append((name, printable(value if isinstance(value, str) else json.dumps(value, default=to_plain))))
    if "why_no_text" in document:
        return [*found, ("text", f"not read again: {document['why_no_text']}")]
    at = document.get("at")
    if at is not None and "why_no_place" in at:
        found.append(("token", f"token {at['token']} of the document: {at['why_no_place']}"))
    elif at is not None:
        line = "token {0} of the document: characters {1[0]} to {1[1]}, bytes {2[0]} to {2[1]} of its text".format(
            at["token"], at["characters"], at["bytes"]
        )
        if "source_bytes" in at:
            line += ", bytes {0[0]} to {0[1]} of the file".format(at["source_bytes"])
        if "trained" in at:
            by = f"message {at['message']}, of {at['role']}" if at["message"] is not None else "the chat template"
            line += f"; from {by}; {'trained' if at['trained'] else 'not trained'}"
        found.append(("token", line))
    before, inside, behind = (printable(part) for part in excerpt(document))
    return [*found, ("text", f"{before}⟦{inside}⟧{behind}" if inside else before)]
