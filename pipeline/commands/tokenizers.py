# SPDX-License-Identifier: Apache-2.0
"""The commands for tokenizers: `convert`, `compare`, and `chat check`, what a chat template makes of conversations."""

import argparse
import datetime
import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from tokenmill.pipeline.commands.arguments import (
    add_overrides,
    file_path,
    integer,
    natural,
    positive,
    set_command,
    tokenizer_path,
)
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json, print_result, say

if TYPE_CHECKING:
    from tokenmill.pipeline.config.job import Config
    from tokenmill.tokenizer.chat.check import Example

_WIDTH = 140
"""Width in characters of tables that go to a file or pipe."""

_BATCH_BYTES = 1 << 20
_BATCH, _MAX_EXAMPLES, _MOST_NAMED = 1000, 10, 20


def add_parsers(commands: Any) -> None:
    """Adds these to the commands of a parser."""
    convert = commands.add_parser(
        "convert",
        help="write a tokenizer, or the rows of an output folder, in another format",
        description="Reads a tokenizer of any kind and writes it as the name of the new file says: vocab.txt, "
        "vocab.json (merges.txt beside it), *.model, *.tiktoken, else tokenizer.json; or as --to says. A "
        "format that cannot hold the tokenizer is refused; what else a file leaves out is said before it is written. "
        "With --output, TOKENIZER is the output folder of a finished job: its rows are written in the formats of --to "
        "into a new folder, with the same counts, and the new folder is verified.",
    )
    convert.add_argument(
        "source", type=file_path, metavar="TOKENIZER", help="a file, or a folder as transformers saves it"
    )
    convert.add_argument("target", type=file_path, nargs="?", metavar="FILE", help="the file to write")
    convert.add_argument(
        "--to", metavar="FORMAT",
        help="tokenizer.json, vocab.txt, vocab.json, sentencepiece or tiktoken; with --output one or more of parquet, "
        "tfrecord, arrow, mds, megatron and memmap, with commas between",
    )  # fmt: skip
    convert.add_argument("--output", type=file_path, metavar="NEW", help="the new folder for the rows of a folder")
    convert.add_argument(
        "--card", action="store_true", help="with --output: write README.md, the card of a data set for a hub, too"
    )
    convert.add_argument("--pattern", help="for tiktoken's ranks: the pattern that splits text, or its name")
    convert.add_argument("--as-class", metavar="NAME", help="the class of transformers that reads the files")
    set_command(convert, _convert, "which tokenizer was written where")

    _add_compare(commands)
    _add_chat(commands)


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="compare tokenizers of any format on a corpus, or on word counts",
        description="Compares tokenizers with the first of them. All numbers are diagnostics: they say how text is "
        "cut, not how well a model learns from it.",
    )
    compare.add_argument(
        "tokenizers",
        nargs="+",
        type=tokenizer_path,
        metavar="TOKENIZER",
        help="two or more, files or folders; with --sizes one is enough; FILE@1.0 and FILE@0.23 have the ids of that "
        "version of HF tokenizers",
    )
    compare.add_argument(
        "--on", nargs="+", type=file_path, metavar="CORPUS|COUNTS",
        help="files, folders or globs of a corpus; or a folder with word counts; without it: every code point, for "
        "tokenizers with one vocabulary",
    )  # fmt: skip
    compare.add_argument(
        "--max-bytes", type=natural, default=50_000_000, metavar="N",
        help="text to read, about the same from the beginning of every file (50000000); 0: all",
    )  # fmt: skip
    compare.add_argument("--text-field", default="text", metavar="NAME", help="field that holds the text (text)")
    compare.add_argument(
        "--lang-field", metavar="NAME", help="field with the language; without it, languages are identified"
    )
    compare.add_argument(
        "--parallel", metavar="LANGUAGE", help="every language has the documents of this one, translated: adds parity"
    )
    compare.add_argument(
        "--sizes", type=_sizes, default=[], metavar="N,N,...",
        help="compare each tokenizer, which must be BPE, with itself at these vocabulary sizes, as in 8k,16k (k: 1000)",
    )  # fmt: skip
    compare.add_argument("--speed", action="store_true", help="measure how long loading and encoding take, too")
    compare.add_argument(
        "--html", type=file_path, metavar="FILE", help="also write everything as a page that opens offline"
    )
    set_command(compare, _compare, "all of it")


def _add_chat(commands: Any) -> None:
    chat = commands.add_parser("chat", help="check chat templates and loss masks")
    check = chat.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "check",
        help="what a chat template makes of conversations, and which tokens are trained",
        description="Renders conversations with the chat template of a tokenizer and shows which tokens are trained. "
        "Fails if what is trained of made-up turns is wrong, or if no record of DATA can be used.",
    )
    check.add_argument("tokenizer", type=tokenizer_path, metavar="TOKENIZER", help="a folder as transformers saves it")
    check.add_argument("data", type=file_path, nargs="?", metavar="DATA", help="a file that a job would read")
    check.add_argument("--template", type=file_path, metavar="FILE", help="a file of Jinja, or a folder with one")
    check.add_argument("--messages-field", default="messages", metavar="FIELD", help="the field of messages (messages)")
    trained = ["assistant", "last_assistant", "all"]
    check.add_argument("--train", choices=trained, help="what is trained (assistant)")
    check.add_argument("--date", type=datetime.date.fromisoformat, metavar="DATE", help="today, for the template")
    check.add_argument("--records", type=positive, default=1000, metavar="N", help="at most this many of DATA (1000)")
    add_overrides(check, "a key of the config of a job, as in --set chat.thinking=false")
    set_command(check, _check, "what was found")


def _compare(options: argparse.Namespace) -> int:
    from tokenmill.pipeline import storage
    from tokenmill.pipeline.comparing import page
    from tokenmill.pipeline.comparing.comparison import compare
    from tokenmill.pipeline.running.terminal import Terminal

    if options.on is None:
        return _compare_code_points(options)
    with mistakes():
        report = compare(
            options.tokenizers, options.on, sizes=options.sizes, text_field=options.text_field,
            lang_field=options.lang_field, max_bytes=options.max_bytes, parallel=options.parallel, speed=options.speed,
        )  # fmt: skip
        if options.html is not None:
            storage.write_atomic(options.html, page.page(report).encode("utf-8"))
    if options.json:
        print_json(report)
        return DONE
    console = Terminal(sys.stdout, width=None if sys.stdout.isatty() else _WIDTH)
    for part in page.tables(report):
        console.print(part, soft_wrap=isinstance(part, str))
    return DONE


def _compare_code_points(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.comparing.comparison import code_point_lines, compare_code_points, load

    with mistakes():
        for name in ("text_field", "lang_field", "parallel", "sizes", "speed", "html"):
            if getattr(options, name) not in (None, [], False, "text"):
                raise ValueError(f"--{name.replace('_', '-')}: needs --on, a corpus or word counts")
        report = compare_code_points(load(options.tokenizers))
    print_result(options, report, code_point_lines(report))
    return DONE


def _sizes(text: str) -> list[int]:
    if not re.fullmatch(r"\d+k?(,\d+k?)*", text):
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, as in 8k,16k, got {text!r}")
    return [integer(1, 10_000_000)(each.replace("k", "000")) for each in text.split(",")]


def _convert(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.books.parts import vocabulary_in
    from tokenmill.tokenizer import Tokenizer

    if options.output is not None:
        return _convert_output(options)
    with mistakes():
        if options.target is None or options.card:
            raise ValueError("give the FILE to write, or --output NEW for the rows of an output folder")
        source = vocabulary_in(options.source)
        tokenizer = Tokenizer.from_file(source, pattern=options.pattern, as_class=options.as_class)
        left_out = tokenizer.left_out(options.target, format=options.to)
        for what in left_out:
            say(f"{options.target} does not hold {what}")
        tokenizer.save(options.target, format=options.to)
    record = {"source": source, "target": options.target, "left_out": left_out}
    print_result(options, record | {"digest": tokenizer.digest, "vocab_size": tokenizer.n_ids}, ())
    return DONE


def _convert_output(options: argparse.Namespace) -> int:
    from tokenmill.pipeline import storage
    from tokenmill.pipeline.config.formats import Format
    from tokenmill.pipeline.output.ownership import own
    from tokenmill.pipeline.proving.convert import Conversion, dataset_card
    from tokenmill.pipeline.proving.verify import verify

    known = get_args(Format)
    with mistakes():
        to = [name for name in (options.to or "").split(",") if name]
        if options.target is not None or not to or not {*to} <= {*known}:
            raise ValueError(f"with --output give --to, one or more of {', '.join(known)} with commas between")
        conversion = Conversion(options.source, options.output, to)
        with own(options.output, "convert") as lease:
            built = conversion.run(lease)
        if options.card:
            storage.write_atomic(
                storage.join(options.output, "README.md"), dataset_card(built, conversion.schemas[to[0]])
            )
        report = verify(options.output)
    for problem in report.problems:
        say(problem)
    if options.json:
        print_json({"output": options.output, "is_proven": report.is_proven, "totals": built["totals"]})
    else:
        verdict = "proven" if report.is_proven else "not proven"
        print(f"{options.output}: {verdict}; {report.n_rows:,} rows, {report.n_tokens:,} tokens in {', '.join(to)}")
    return DONE if report.is_proven else FAILED


def _check(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.config.file import load_config
    from tokenmill.pipeline.tokenizing.chat import rule_of, templates_of
    from tokenmill.tokenizer import Tokenizer
    from tokenmill.tokenizer.chat.check import PLAIN, Finding, check_chat

    with mistakes():
        given = {"template": options.template, "train": options.train, "date": options.date and str(options.date)}
        tree = {
            "input": {"paths": [options.data or os.devnull], "messages_field": options.messages_field},
            "tokenizer": {"file": options.tokenizer},
            "chat": {name: value for name, value in given.items() if value is not None},
            "output": {"path": "."},  # nothing is written
        }
        config = load_config(tree, options.overrides)
        chat = config.chat
        assert chat is not None, "load_config puts it there"
        tokenizer = Tokenizer.from_file(options.tokenizer)
        findings: list[Finding] = []
        examples: list[Example] = []
        is_usable = True
        for key, template, arguments in templates_of(chat):
            found = check_chat(tokenizer, template, rule_of(chat), arguments, chat.end_tokens or ())
            before = "" if key == "template" else "with tools, "
            findings += [each._replace(name=before + each.name) for each in found.findings]
            examples += [each._replace(name=before + each.name) for each in found.examples]
            is_usable &= bool(found.examples)  # else it takes too much for any conversation
        n_records, rejected, named = 0, Counter[str](), list[str]()
        if options.data and is_usable:
            n_records, rejected, named, examples = _try_records(config, tokenizer, options.records)
            findings = [each._replace(level="note") if each.name == PLAIN else each for each in findings]
            if n_records and rejected.total() == n_records:
                findings.append(Finding("data", "bad", f"none of {n_records:,} records can be trained on"))
    is_good = all(each.level != "bad" for each in findings)
    said = {
        "good": is_good,
        "findings": [finding._asdict() for finding in findings],
        "records": n_records,
        "rejected": dict(sorted(rejected.items())),
        "rejected_records": named,
        "examples": [example._asdict() for example in examples],
    }
    (print_json if options.json else _show)(said)
    return DONE if is_good else FAILED


def _try_records(config: "Config", tokenizer: Any, n: int) -> "tuple[int, Counter[str], list[str], list[Example]]":
    """Returns how many records there are, `n` at most, the rejected ones by reason, the first of these, examples."""
    from tokenmill.pipeline.tokenizing.chat import ChatTexts
    from tokenmill.tokenizer.chat.check import as_examples

    chat = ChatTexts.of(config, tokenizer)
    examples: list[Example] = []
    n_records, rejected, named = 0, Counter[str](), list[str]()
    records = itertools.islice(_records(config), n)
    while batch := list(itertools.islice(records, _BATCH)):
        good = [(row, name, text) for row, (name, text, reason, _) in enumerate(batch, n_records + 1) if not reason]
        rows = [row for row, *_ in good]
        made = chat.encode([text for *_, text in good], chat.tokenizer.layout(False))
        lost = [(name, reason, detail) for name, _, reason, detail in batch if reason]
        for reason, its, details in made.rejects:
            lost += [(good[i][1], reason, said) for i, said in zip(its.to_pylist(), details.to_pylist(), strict=True)]
        rejected.update(reason for _, reason, _ in lost)
        named += [f"{name}: {reason}: {detail}" for name, reason, detail in lost[: _MOST_NAMED - len(named)]]
        names = (f"record {rows[i]}" for i in made.rows.to_pylist())
        trained = made.masks.flatten().to_numpy(zero_copy_only=False)
        shown = as_examples(chat.tokenizer, names, made.texts, made.ids, trained)
        examples += itertools.islice(shown, _MAX_EXAMPLES - len(examples))
        n_records += len(batch)
    return n_records, rejected, named, examples


def _records(config: "Config") -> Iterator[tuple[str, str, str, str]]:
    """Yields the records of the input as jobs do: (id, JSON, "", ""), or of a reject (place, "", why, detail)."""
    from tokenmill.pipeline.input.reading import read_split
    from tokenmill.pipeline.input.splitting import plan_splits

    for split in plan_splits(config.input, ""):
        for batch in read_split(split, config.input, _BATCH_BYTES):
            for row in batch.documents.select(["doc_id", "text"]).to_pylist():
                yield row["doc_id"], row["text"], "", ""
            for row in batch.rejects.to_pylist() if batch.rejects is not None else ():
                yield f"{row['source']}:{row['offset']}", "", row["reason"], row["detail"]


def _show(said: Mapping[str, Any]) -> None:
    from rich.text import Text

    from tokenmill.pipeline.running.terminal import Terminal

    terminal = Terminal(sys.stdout)
    styles = {"good": "green", "note": "yellow", "bad": "bold red"}
    for finding in said["findings"]:
        text = f"{finding['name']}: {finding['detail']}"
        terminal.print(Text.assemble((f"{finding['level']:<5}", styles[finding["level"]]), text), soft_wrap=True)
    for example in said["examples"]:
        terminal.print(Text(f"\n{example['name']}", style="bold"))
        if example["refused"]:
            terminal.print(f"not taken: {example['refused']}", soft_wrap=True)
            continue
        shown = Text()
        for trained, group in itertools.groupby(example["tokens"], key=lambda token: token[1]):
            text = "".join(piece for piece, _ in group)
            # Without colour, brackets show what is trained.
            shown.append(
                f"«{text}»" if trained and terminal.color_system is None else text,
                style="black on green" if trained else "dim",
            )
        terminal.print(shown, soft_wrap=True)
    if said["records"]:
        n = sum(said["rejected"].values())
        reasons = "".join(f", {reason} {count:,}" for reason, count in said["rejected"].items())
        terminal.print(f"\n{said['records']:,} records, {n:,} not trained on{reasons}", soft_wrap=True)
        for named in said["rejected_records"]:
            terminal.print(f"  {named}", soft_wrap=True)
