# SPDX-License-Identifier: Apache-2.0
"""The commands that look inside: `tokenmill inspect` at rows, `viz` at texts, `diff` at two outputs.

`trace` leads a row of a shard, or one of its tokens, back to the document and its bytes.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenmill.pipeline import storage
from tokenmill.pipeline.commands.arguments import add_target, file_path, natural, positive, set_command, tokenizer_path
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json, print_result, say
from tokenmill.pipeline.commands.results import find_output, say_owner
from tokenmill.pipeline.running.outlets import is_read


def add_parsers(commands: Any) -> None:
    """Adds these to the commands of a parser."""
    inspect = commands.add_parser(
        "inspect",
        help="show rows of an output as text, with token boundaries",
        description="Shows rows as text, with a | between tokens: the first ones, or those that the options choose "
        "among all rows of the shard or folder. Bytes of a character that several tokens share are shown as ‹e4›, "
        "and the last of them with the character.",
    )
    add_target(inspect, "a shard, an output folder, or its job's config", "SHARD|FOLDER|CONFIG")
    inspect.add_argument("--rows", type=positive, default=5, metavar="N", help="how many rows (5)")
    inspect.add_argument("--start", type=natural, default=0, metavar="N", help="number of the first row (0)")
    inspect.add_argument("--doc-id", metavar="ID", help="only rows with tokens of this document")
    inspect.add_argument(
        "--grep", metavar="REGEX", help="only rows whose decoded text matches a regular expression of RE2"
    )
    order = inspect.add_mutually_exclusive_group()
    rows = {"most_unknown": "the rows with the most unknown tokens", "random": "rows drawn at random"}
    for name, help_ in {"longest": "the rows with the most tokens", **rows}.items():
        order.add_argument(f"--{name.replace('_', '-')}", dest="order", action="store_const", const=name, help=help_)
    inspect.add_argument("--seed", type=natural, default=0, metavar="N", help="of --random: another draw (0)")
    inspect.add_argument("--tokens", type=positive, default=200, metavar="N", help="tokens to show of a row (200)")
    inspect.add_argument("--ids", action="store_true", help="show the id behind each token")
    inspect.add_argument(
        "--tokenizer", type=tokenizer_path, metavar="FILE", help="default: vocab/tokenizer.json beside the shard"
    )
    set_command(inspect, _inspect, "each row, with the place and word of each token,")

    viz = commands.add_parser(
        "viz",
        help="show a text as the tokens of one tokenizer, or of several side by side",
        description="Shows a text as tokens, with a | between them: the first mebibyte of it, 20,000 tokens of each "
        "tokenizer. A special token written in the text is text; only those that the tokenizer adds around it are not.",
    )
    viz.add_argument("text", metavar="TEXT|FILE|-", help="a text, a file with one in UTF-8, or - for stdin")
    viz.add_argument(
        "--tokenizer", action="append", required=True, type=tokenizer_path, metavar="FILE",
        help="a tokenizer of any kind, a file or a folder, also that of a job; may be repeated",
    )  # fmt: skip
    viz.add_argument("--ids", action="store_true", help="show the id behind each token")
    form = viz.add_mutually_exclusive_group()
    form.add_argument("--html", type=file_path, metavar="FILE", help="write a page that opens offline instead")
    set_command(viz, _viz, "the tokens", form)

    _add_diff_and_trace(commands)


def _add_diff_and_trace(commands: Any) -> None:
    diff = commands.add_parser(
        "diff",
        help="show what changed between two outputs: config, vocabulary, documents, tokens",
        description="Compares two finished outputs. Exits with 1 if they differ.",
    )
    diff.add_argument("one", type=file_path, metavar="OUT1", help="an output folder")
    diff.add_argument("other", type=file_path, metavar="OUT2", help="another one")
    set_command(diff, _diff, "what changed")

    trace = commands.add_parser(
        "trace",
        help="say which document a row or a token of a shard came from, and from which bytes of which file",
        usage="tokenmill trace [--json] [--quiet] [--verbose] (SHARD | FOLDER [SHARD] | INDEX) ROW [TOKEN]",
    )
    trace.add_argument(
        "place",
        nargs="+",
        type=file_path,
        metavar="PLACE",
        help="a shard, ROW and perhaps TOKEN, counted from 0; or an output folder, and ROW among the rows of all its "
        "shards in order; or a folder and the name of a shard in it, and ROW in that; or a mixture or packing, "
        "and ROW of that",
    )
    set_command(trace, _trace, "all that is known")


def _inspect(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.looking import inspect, selecting
    from tokenmill.pipeline.output.writers import formats
    from tokenmill.pipeline.output.writers.base import to_plain
    from tokenmill.pipeline.running.terminal import Terminal

    console = Terminal(sys.stdout)
    last, n_shown = "", 0
    with mistakes():
        target, _ = find_output(options.target, options.overrides)
        if not target.endswith(formats.ROWS):
            say_owner(target)
        selection = selecting.Selection(
            options.rows, options.start, options.doc_id, options.grep, options.order, options.seed
        )
        shards = selecting.find_shards(target)
        folders = {shard.folder for shard in shards}
        tokenizers = {folder: inspect.find_tokenizer(f"{folder}/", options.tokenizer) for folder in folders}
        for shard, row in selecting.select(shards, tokenizers, selection):
            n_shown += 1
            tokenizer = tokenizers[shard.folder]
            if options.json:
                record = {"shard": shard.path} | inspect.to_record(row, tokenizer, options.tokens)
                print(json.dumps(record, ensure_ascii=False, default=to_plain))
            else:
                if shard.path != last:
                    console.print(shard.path, style="dim", soft_wrap=True)
                    last = shard.path
                shown = inspect.render(row, tokenizer, options.tokens, with_ids=options.ids, pattern=options.grep)
                console.print(shown, soft_wrap=True)
            if not is_read():
                break
    if not n_shown:
        n_rows = sum(shard.record["rows"] for shard in shards if shard.record is not None)
        is_behind = options.start >= n_rows and all(shard.record is not None for shard in shards)
        say(f"{target}: {f'there are {n_rows:,} rows, counted from 0' if is_behind else 'no row matches'}")
    return DONE


def _viz(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.looking import inspect
    from tokenmill.pipeline.running.terminal import Terminal

    with mistakes():
        text, is_cut = inspect.read_text(options.text)
        views = inspect.look(text, options.tokenizer)
        if options.html is not None:
            storage.write_atomic(options.html, inspect.draw_views(views, is_cut).encode())
            print(options.html)
    if options.json:
        print_json(inspect.views_to_json(views))
    elif options.html is None:
        console = Terminal(sys.stdout)
        for view in views:
            console.print(inspect.render_view(view, with_ids=options.ids), soft_wrap=True)
    if is_cut:
        say(f"{options.text}: only its first {inspect.MOST_BYTES:,} bytes are looked at")
    return DONE


def _diff(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.looking import difference

    with mistakes():
        found = difference.difference(options.one, options.other)
    print_result(options, found, [*difference.lines(found), *(["the outputs are equal"] if found["is_equal"] else [])])
    return DONE if found["is_equal"] else FAILED


def _trace(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.output.writers.base import to_plain
    from tokenmill.pipeline.proving import trace

    with mistakes():
        output, shard, row, token = _place(options.place)
        if shard is None and trace.is_index(output):
            parts = trace.explain_row(output, row, token)
            record = {"folder": output, "row": row, "token": token, "parts": parts}
            lines = [*_lines_of_parts(parts)] or ["separator or padding: belongs to no document"]
            print_result(options, record, lines, to_plain)
            return DONE
        if shard is None:
            output, shard, row = trace.find_row(output, row)
        traced = trace.trace(output, shard, row, token)
    print_result(options, {"folder": output, **traced}, _lines(output, traced), to_plain)
    return DONE


def _lines_of_parts(parts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        yield from (f"{step['index']}: {step['source']}, row {step['row']}" for step in part["through"])
        yield from _lines(part["output"], part)


def _place(words: Sequence[str]) -> tuple[str, str | None, int, int | None]:
    """Returns the output folder, the name of the shard if there is one, the row, and the token if there is one."""
    from tokenmill.pipeline.looking.inspect import split_path
    from tokenmill.pipeline.output.writers import formats

    target, *rest = words
    shard = None
    if target.endswith(formats.ROWS):
        target, shard = split_path(target)
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
    from tokenmill.pipeline.output.writers.base import to_plain
    from tokenmill.pipeline.proving.trace import excerpt
    from tokenmill.tokenizer.token_runs import printable

    source, first, start, size = (document[name] for name in ("source", "first", "start", "size"))
    place = f"row {source['offset']}"
    if not FORMATS[source["format"]].has_rows:
        place = f"bytes {source['offset']} to {source['offset'] + source['n_bytes']}"
    last, n = first + size, document["n_tokens"]
    held = f"tokens {start} to {start + size} of the row are {first} to {min(last, n)} of the document's {n}"
    held += f" and {last - n} that the job adds" if last > n else ""
    found = [
        ("document", f"{printable(document['doc_id'])}, number {document['number']} of the shard"),
        ("file", f"{printable(source.get('path', source['name']))}, {place}"),
        ("held", held),
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
