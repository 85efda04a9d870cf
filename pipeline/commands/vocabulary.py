# SPDX-License-Identifier: Apache-2.0
"""`tokenmill vocab`: changes the vocabulary of a tokenizer, from word counts. Only its arguments and its output."""

import argparse
import inspect
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import (
    file_path,
    integer,
    natural,
    positive,
    set_command,
    share,
    tokenizer_path,
)
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json, print_result, say

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.tokenizer import Tokenizer
    from tokenmill.tokenizer.vocabulary import Change


def add_parsers(commands: Any) -> None:
    """Adds the command to the commands of a parser."""
    parser = commands.add_parser("vocab", help="change the vocabulary of a tokenizer, from word counts, with proof")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    extend = _add_change(
        actions, "extend", "add entries, learned from word counts; every old id stays what it was",
        "Goes on with training where the vocabulary ends: words begin as they are cut now, and new entries "
        "come after all old ones. Says how words are cut then, by language and source, before it writes FILE.",
    )  # fmt: skip
    _add_learned(extend, "add")
    extend.add_argument(
        "--into-reserved", action="store_true", dest="into",
        help="give new entries the ids of reserved ones, such as [unused7]",
    )  # fmt: skip
    extend.add_argument(
        "--coverage", type=share, default=0.9995, metavar="SHARE",
        help="add unknown characters until so much of all characters is known (0.9995)",
    )  # fmt: skip

    prune = _add_change(
        actions, "prune", "remove the entries that are used least; merges stay valid",
        "Removes one entry after the other, the least used first, which then adds to the use of its parts. "
        "Ids close up in their old order; --map writes which row of an embedding matrix goes where.",
    )  # fmt: skip
    how_many = prune.add_mutually_exclusive_group(required=True)
    how_many.add_argument("--to", type=positive, metavar="N", dest="size", help="leave so many entries")
    how_many.add_argument("--min-count", type=positive, metavar="N", help="remove those that are used less often")

    replace = _add_change(
        actions, "replace", "put new entries in place of unused ones; all other ids stay",
        "Gives the ids of entries that no counted word uses, and no merge needs, to new ones, learned as extend does.",
    )  # fmt: skip
    _add_learned(replace, "replace")

    merge = _add_change(
        actions, "merge", "add the entries of another vocabulary; ids and merges of the first stay",
        "Appends each entry of OTHER that TOKENIZER lacks and can make by one more merge, in the order of OTHER; names "
        "those that it leaves out. With --counts it says how words are cut then.", counts=False,
    )  # fmt: skip
    merge.add_argument("second", type=tokenizer_path, metavar="OTHER", help="the tokenizer to take entries from")
    _add_keep(merge)
    _add_balance(actions)
    _add_others(actions)


def _add_balance(actions: Any) -> None:
    balance = _add_change(
        actions, "balance", "learn other merges that treat languages alike (parity-aware BPE)",
        "Learns the merges of a BPE tokenizer anew: each is the most frequent pair of the language that has gained "
        "least so far. Ids change. Says what words cost before and after, by language, and the Gini coefficient.",
    )  # fmt: skip
    balance.add_argument("--by", default="lang", metavar="LABEL", help="the label of counts to treat alike (lang)")
    balance.add_argument("--size", type=positive, metavar="N", help="entries of the vocabulary (as many as now)")
    balance.add_argument(
        "--dev", type=file_path, metavar="FOLDER", help="counts of the same text in each language, to be equally long"
    )
    balance.add_argument(
        "--ratio", action=_Gather, type=_ratio, metavar="LABEL=R",
        help="how long the same text is in a language, in bytes or characters, relative to others; may be repeated (1)",
    )  # fmt: skip
    balance.add_argument(
        "--global-merges", type=natural, default=0, metavar="N", help="learn so many first as without languages (0)"
    )
    balance.add_argument(
        "--window", type=natural, default=0, metavar="N",
        help="pass over a language that had more than --alpha times its share of the last N merges (0: never)",
    )  # fmt: skip
    balance.add_argument("--alpha", type=float, default=2.0, metavar="A", help="see --window (2)")
    balance.add_argument("--min-count", type=positive, default=2, metavar="N", help="rarer pairs are not merged (2)")


def _add_others(actions: Any) -> None:
    """Adds the commands that need no counts, or change no tokenizer."""
    words = _action(
        actions, "superwords", _superwords, "let words be several, for entries that cross spaces (SuperBPE)",
        "Writes TOKENIZER with another pattern: up to N words with single spaces between are one word. It cuts text as "
        "before. Count text with it, and `vocab extend` adds entries of several words.", "where it is",
    )  # fmt: skip
    words.add_argument("--words", type=integer(2, 64), default=4, metavar="N", help="the most words (4)")
    words.add_argument("--out", required=True, type=file_path, metavar="FILE", help="the file to write")

    rename = _action(
        actions, "rename", _rename, "give special tokens other names, wherever a file or template has them",
        "Renames in vocabulary, added tokens, post-processor and settings. Of a folder of transformers it also "
        "rewrites the other files, chat templates included; OUT is a folder then.", "what was written",
    )  # fmt: skip
    rename.add_argument(
        "--name", action=_Gather, required=True, type=_pair, metavar="OLD=NEW", dest="names", help="may be repeated"
    )
    rename.add_argument("--out", required=True, type=file_path, metavar="OUT", help="the file or folder to write")

    measure = _action(
        actions, "measure", _measure, "bytes per token of tokenizers on the same words, and what a larger one saves",
        "Cuts counted words by each TOKENIZER and prints tokens, bytes per token, what each saves against the one "
        "before, by label, and the Gini coefficient over labels. Count text that no vocabulary was trained on.",
        "all numbers",
    )  # fmt: skip
    measure.add_argument("others", type=tokenizer_path, nargs="*", metavar="TOKENIZER", help="others, by size")
    measure.add_argument(
        "--parallel", action="store_true", help="counts are of the same text with each label, which is to cost alike"
    )
    measure.add_argument("--counts", required=True, type=file_path, metavar="FOLDER", help="counts of words")

    _action(
        actions, "check", _check, "list the entries that no text becomes",
        "Lists entries that merges never make of their text, that normalizer and pre-tokenizer keep text "
        "from, that are spelled as another, or that an added token cuts. Exits with 1 if there are any.", "them",
    )  # fmt: skip

    transfer = _action(
        actions, "transfer", _transfer, "write of which old ids each id of another tokenizer is made, to begin its "
        "embeddings with", "Cuts the text of each entry of NEW by TOKENIZER; weights are shares of its bytes.",
        "how many ids are the same, made of others, and new",
    )  # fmt: skip
    transfer.add_argument("new", type=tokenizer_path, metavar="NEW", help="the tokenizer that the model is to have")
    transfer.add_argument("--out", required=True, type=file_path, metavar="FILE", help="the Parquet file to write")


def _action(
    actions: Any, name: str, run: Callable[[argparse.Namespace], int], help_: str, description: str, what: str
) -> argparse.ArgumentParser:
    """Adds an action on a tokenizer."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help_, description=description)
    parser.add_argument("tokenizer", type=tokenizer_path, metavar="TOKENIZER", help="a file or folder of any format")
    set_command(parser, run, what)
    return parser


def _add_change(
    actions: Any, name: str, help_: str, description: str, *, counts: bool = True
) -> argparse.ArgumentParser:
    """Adds an action that writes what the function of its name makes of a tokenizer."""
    parser = _action(actions, name, _change, help_, description, "what changes, and where it is,")
    parser.add_argument(
        "--counts", required=counts, type=file_path, metavar="FOLDER", dest="word_counts", help="counts of its words"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=file_path, metavar="FILE", help="the file to write, of the format that it names")
    where.add_argument("--dry-run", action="store_true", help="write nothing: say what would change")
    parser.add_argument(
        "--map", action="append", default=[], type=file_path, metavar="FILE", dest="maps",
        help="also write the new id of each old one, and what a removed one is cut into, as FILE.parquet; or the new "
        "ids alone, -1 for none, as FILE.npy; may be repeated",
    )  # fmt: skip
    parser.set_defaults(action=name)
    return parser


def _add_keep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-segmentation-of", type=file_path, metavar="OLD", dest="keep",
        help="counts of words none of which may be cut differently",
    )  # fmt: skip


def _add_learned(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds the arguments of actions that learn entries."""
    parser.add_argument(
        "--add", required=True, type=integer(1, 1 << 24), metavar="N", dest="n", help=f"the most entries to {what}"
    )
    _add_keep(parser)
    parser.add_argument(
        "--min-count", type=positive, default=2, metavar="N", help="rarer pairs and characters are not added (2)"
    )


class _Gather(argparse.Action):
    """Gathers pairs in a mapping."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values[0] in (getattr(namespace, self.dest) or {}):
            parser.error(f"argument {option_string}: {values[0]!r} is given twice")
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), values[0]: values[1]})


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.rpartition("=")
    if not (old and equals):
        raise argparse.ArgumentTypeError(f"must have a name in front of =, got {text!r}")
    return old, new


def _ratio(text: str) -> tuple[str, float]:
    label, number = _pair(text)
    try:
        return label, float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be LABEL=R, as hi=2.5, got {text!r}") from None


_OPTIONS = {"word_counts": "--counts", "keep": "--keep-segmentation-of", "dev": "--dev"}
"""Arguments that are counts."""


class _Words:
    """The words of counts with their labels, a stretch at a time, as often as they are read."""

    def __init__(self, option: str, path: str, *tokenizers: "Tokenizer", by: str | None = None) -> None:
        """Checks that there are words, of one of these tokenizers at least, with a label, and not damaged.

        Raises:
          ValueError: if they are not.
        """
        from tokenmill.pipeline.counting.counts import open_counts
        from tokenmill.pipeline.counting.words import describe_words, differences

        self._artifact = open_counts(path)
        self._artifact.check_files()
        if not self._artifact.report["totals"]["n_distinct_words"]:
            raise ValueError(f"{option}: there are no words in {path!r}")
        if by is not None and by not in self._artifact.labels:
            there = ", ".join(self._artifact.labels) or "none"
            raise ValueError(f"--by: {path!r} has no label {by!r}, only {there}; count with counts.by: [{by}]")
        differing = [differences(self._artifact.words, describe_words(each.to_str())) for each in tokenizers]
        if all(differing):
            how = f"holds other words than this tokenizer has: {differing[0]}"
            raise ValueError(f"{path!r} {how}; count again with tokenizer.file")

    def __iter__(self) -> "Iterator[pa.Table]":
        return self._artifact.labelled()


def _made(options: argparse.Namespace) -> "Change":
    """Returns what the function of an action makes: an option is the argument of its name."""
    from tokenmill.tokenizer import Tokenizer, vocabulary

    make = getattr(vocabulary, options.action)
    tokenizer = Tokenizer.from_file(options.tokenizer)
    given = {name: value for name, value in vars(options).items() if name in inspect.signature(make).parameters}
    given["first" if options.action == "merge" else "tokenizer"] = tokenizer
    if options.out is not None and options.action != "balance":  # whose merges are new
        tokenizer.files(options.out)  # says at once what the format cannot hold
    for name, option in _OPTIONS.items():
        if given.get(name) is not None:
            given[name] = _Words(option, given[name], tokenizer, by=given.get("by"))
    if "second" in given:
        given["second"] = Tokenizer.from_file(given["second"])
    if given.pop("into", False):
        given["into"] = vocabulary.reserved_ids(tokenizer)
        if len(given["into"]) < given["n"]:
            n = len(given["into"])
            raise ValueError(f"--add {given['n']}: there are {n} reserved ids; add fewer, or append them")
    try:
        made: Change = make(**given)
    except ValueError as error:
        raise ValueError(str(error).replace("word_counts", _OPTIONS["word_counts"])) from error
    return made


def _change(options: argparse.Namespace) -> int:
    """Says what changes, writes it unless that is not asked for or something is not proven, and returns the code."""
    with mistakes():
        paths = [*filter(None, [options.out]), *options.maps]
        for path in options.maps:
            if not path.endswith((".parquet", ".npy")):
                raise ValueError(f"--map: must end in .parquet or .npy, got {path!r}")
            if paths.count(path) > 1:
                raise ValueError(f"--map: {path!r} is given twice")
        if options.maps and options.out is None:
            raise ValueError("--map: nothing is written with --dry-run; give --out instead")
        _check_places(options.tokenizer, *paths)
        change = _made(options)
    if not options.json:
        print(change)
    if failed := [name for name, failures in change.report["proof"].items() if failures]:
        say(f"nothing is written, for this could not be proven: {'; '.join(failed)}")
    elif options.out is not None:
        with mistakes():
            _write(change.tokenizer, options.out, {path: change.map_bytes(path) for path in options.maps})
    if options.json:
        print_json({"output": None if failed else options.out, **change.report})
    return FAILED if failed else DONE


def _check_places(tokenizer: str, *paths: str) -> None:
    """Checks, before the work, where files go.

    Raises:
      ValueError: if one would replace a tokenizer that is read, lies in the results of a job, or cannot be written.
    """
    from tokenmill.pipeline import storage

    read = Path(tokenizer).resolve()
    for path in map(Path, paths):
        place = path.resolve()
        if place == read or read in place.parents:
            raise ValueError(f"{str(path)!r} is, or lies in, {tokenizer!r}, which is read: give another place")
        for folder in place.parents:
            if (folder / "manifest.json").is_file():
                raise ValueError(f"{str(path)!r} lies in {str(folder)!r}, the results of a job: give another place")
        if storage.is_remote(str(path)):
            continue
        if place.is_dir():
            raise ValueError(f"{str(path)!r} is a folder: give the name of a file")
        folder = next(each for each in place.parents if each.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise ValueError(f"{str(path)!r} cannot be written, for {str(folder)!r} is no folder that you may write to")


def _write(tokenizer: "Tokenizer", out: str, more: Mapping[str, bytes] = MappingProxyType({})) -> None:
    """Writes a tokenizer and what belongs to it: all of it, or nothing."""
    from tokenmill.pipeline import storage

    for left_out in tokenizer.left_out(out):
        say(f"{out} does not hold {left_out}")
    folder = os.path.dirname(out)
    files = {os.path.join(folder, name): data for name, data in tokenizer.files(out).items()}
    storage.write_together({**files, **more})


def _superwords(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import Tokenizer, vocabulary

    with mistakes():
        _check_places(options.tokenizer, options.out)
        _write(vocabulary.superwords(Tokenizer.from_file(options.tokenizer), options.words), options.out)
    print_result(options, {"output": options.out}, [f"in {options.out}"])
    return DONE


def _rename(options: argparse.Namespace) -> int:
    from tokenmill.pipeline import storage
    from tokenmill.tokenizer import Tokenizer, vocabulary

    names, folder = options.names, Path(options.tokenizer)
    with mistakes():
        _check_places(options.tokenizer, os.path.join(options.out, "*") if folder.is_dir() else options.out)
        renamed = vocabulary.rename(Tokenizer.from_file(options.tokenizer), names)
        if folder.is_dir():
            files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
            written = vocabulary.rename_files(files, names)
            storage.write_together({storage.join(options.out, name): data for name, data in written.items()})
        else:
            _write(renamed, options.out)
            written = {options.out: b""}
    told = {"output": options.out, "files": sorted(written), "names": names}
    print_result(options, told, [f"{', '.join(written)} in {options.out}"])
    return DONE


def _measure(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import Tokenizer, vocabulary

    with mistakes():
        paths = dict.fromkeys([options.tokenizer, *options.others])
        tokenizers = {path: Tokenizer.from_file(path) for path in paths}
        words = _Words("--counts", options.counts, *tokenizers.values())
        measures = vocabulary.measure(tokenizers, words, parallel=options.parallel)
    print_result(options, list(measures), measures.lines())
    return DONE


def _check(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import Tokenizer, vocabulary

    with mistakes():
        problems = vocabulary.check(Tokenizer.from_file(options.tokenizer))
    print_result(options, [each._asdict() for each in problems], problems.lines())
    return FAILED if problems else DONE


def _transfer(options: argparse.Namespace) -> int:
    import pyarrow.parquet as pq

    from tokenmill.pipeline import storage
    from tokenmill.tokenizer import Tokenizer, vocabulary

    with mistakes():
        if not options.out.endswith(".parquet"):
            raise ValueError(f"--out: must end in .parquet, got {options.out!r}")
        _check_places(options.tokenizer, options.out)
        table = vocabulary.transfer(*map(Tokenizer.from_file, (options.tokenizer, options.new)))
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd", store_schema=False)
        storage.write_atomic(options.out, buffer.getvalue())
    sizes = [len(ids) for ids in table["old_ids"].to_pylist()]
    told = {"ids": len(sizes), "of_one": sizes.count(1), "of_none": sizes.count(0), "output": options.out}
    line = "{ids:,} ids, {of_one:,} of one old id, {of_none:,} of none; in {output}"
    print_result(options, told, [line.format(**told)])
    return DONE
