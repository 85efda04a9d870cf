# SPDX-License-Identifier: Apache-2.0
"""`tokenmill counts` and `vocab`: word counts, and vocabularies that are changed by them. Only arguments and output."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import file_path, natural, positive, set_command, share, tokenizer_path
from tokenmill.pipeline.commands.reporting import DONE, FAILED, mistakes, print_json, print_result, say

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.pipeline.counting.arithmetic import Term
    from tokenmill.pipeline.counting.counts import CountsArtifact
    from tokenmill.tokenizer import Tokenizer
    from tokenmill.tokenizer.vocabulary import Change

_NAMED = re.compile(r"([\w.-]+)=(.+)")
_WEIGHT = re.compile(r"\+?[\d.]{1,40}(?:/\d{1,20}|[eE][+-]?\d{1,2})?")
"""What `Fraction` reads, with an exponent of at most two digits: it writes all digits out."""


def add_parsers(commands: Any) -> None:
    """Adds these to the commands of a parser."""
    _add_counts(commands)
    _add_vocab(commands)


def _add_counts(commands: Any) -> None:
    parser = commands.add_parser("counts", help="show, merge, weight and subtract existing word counts")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    show = actions.add_parser("show", help="show what was counted, how much, and the most frequent words")
    show.add_argument(
        "counts", type=file_path, metavar="FOLDER", help="an output folder with counts, or the folder counts in it"
    )
    show.add_argument("--top", type=natural, default=10, metavar="N", help="most frequent words to show (10)")
    set_command(show, _show, "its report, and the words asked for,")

    merge = actions.add_parser(
        "merge",
        help="add counts up, weighted by source or by temperature",
        description="Adds counts up. NAME=FOLDER makes NAME the source of counts that have none. A weight w turns the "
        "count n of a word into floor(n * w + 1/2).",
    )
    merge.add_argument(
        "counts", nargs="+", type=_named, metavar="[NAME=]FOLDER", help="counts of the same kind of words"
    )
    merge.add_argument(
        "--out", required=True, type=file_path, metavar="FOLDER", help="where the sum goes; must not hold counts"
    )
    merge.add_argument(
        "--weight", action="append", default=[], type=_weight, metavar="SOURCE=W",
        help="multiply the counts of a source by W, as in 2, 0.5 or 1/3; may be repeated",
    )  # fmt: skip
    merge.add_argument(
        "--temperature", type=float, metavar="T",
        help="make the share of each source proportional to the T-th root of its words; the total stays",
    )  # fmt: skip
    set_command(merge, _merge, "the report of the sum, and where it is,")

    subtract = actions.add_parser("subtract", help="subtract the counts of a part from those of the whole")
    subtract.add_argument("counts", type=_named, metavar="FOLDER", help="counts of the whole")
    subtract.add_argument("part", type=_named, metavar="PART", help="counts of a part of it")
    subtract.add_argument(
        "--out", required=True, type=file_path, metavar="FOLDER", help="where the rest goes; must not hold counts"
    )
    set_command(subtract, _subtract, "the report of the rest, and where it is,")


def _named(text: str) -> tuple[str | None, str]:
    named = _NAMED.fullmatch(text)
    return (named[1], file_path(named[2])) if named else (None, file_path(text))


def _weight(text: str) -> tuple[str, Fraction]:
    name, equals, number = text.rpartition("=")
    try:
        weight = Fraction(number) if _WEIGHT.fullmatch(number) else Fraction(-1)
    except (ValueError, ZeroDivisionError):
        weight = Fraction(-1)
    if not equals or not name or not 0 <= weight <= 10**18:
        raise argparse.ArgumentTypeError(f"must look like SOURCE=W with a W from 0 to 1e18, as in en=0.5, got {text!r}")
    return name, weight


def _show(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.counting.arithmetic import top_words
    from tokenmill.pipeline.counting.counts import open_counts

    with mistakes():
        artifact = open_counts(options.counts)
        top = [*top_words(artifact, options.top)] if options.top else []
        lines = [*_describe(artifact), *(f"{count:>16,}  {word!r}" for word, count in top)]
        print_result(options, {**artifact.report, "top_words": top}, lines)
    return DONE


def _describe(artifact: "CountsArtifact") -> list[str]:
    """Returns lines that say what counts contain."""
    report = artifact.report
    totals, pruned, words = report["totals"], report["pruned"], artifact.words
    lines = [
        f"digest           {artifact.digest}",
        f"normalizer       {_type_of(words['normalizer'])}",
        f"pre-tokenizer    {_type_of(words['pre_tokenizer'])}",
        f"documents        {totals['n_documents']:,}",
        f"bytes of text    {totals['n_text_bytes']:,}",
        f"characters       {totals['n_chars']:,}, {report['alphabet']['rows']:,} distinct in words",
        f"words            {totals['n_words']:,}, {totals['n_distinct_words']:,} distinct",
    ]
    if pruned["bound"]:
        lines.append(
            f"left out         {pruned['n_words']:,} distinct, {pruned['n_occurrences']:,} occurrences, none more than "
            f"{pruned['bound']:,} times"
        )
    if artifact.labels:
        lines.append(f"by               {', '.join(artifact.labels)}")
    for group in report["groups"] if artifact.labels else ():
        share = group["n_words"] / max(1, totals["n_words"])
        lines.append(f"  {', '.join(group['labels'])}: {group['n_words']:,} words, {share:.2%}")
    return lines


def _type_of(component: Any) -> str:
    if component is None:
        return "none"
    parts = component.get("normalizers") or component.get("pretokenizers") or ()
    return f"{component['type']}({', '.join(map(_type_of, parts))})" if parts else str(component["type"])


def _merge(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.counting.arithmetic import merge, weights_of

    def add(terms: "list[Term]") -> "CountsArtifact":
        return merge(terms, options.out, weights_of(terms, dict(options.weight), options.temperature))

    return _calculate("merge", options.counts, add, options)


def _subtract(options: argparse.Namespace) -> int:
    from tokenmill.pipeline.counting.arithmetic import subtract

    return _calculate(
        "subtract", [options.counts, options.part], lambda terms: subtract(terms[0], terms[1], options.out), options
    )


def _calculate(
    what: str,
    given: Sequence[tuple[str | None, str]],
    calculate: "Callable[[list[Term]], CountsArtifact]",
    options: argparse.Namespace,
) -> int:
    from tokenmill.pipeline.counting.arithmetic import Term, check_terms
    from tokenmill.pipeline.counting.counts import open_counts
    from tokenmill.pipeline.output.ownership import own

    with mistakes():
        terms = [Term(open_counts(folder), name) for name, folder in given]
        check_terms(terms)
        with own(options.out, f"counts {what}"):
            made = calculate(terms)
        print_result(options, {"output": options.out, **made.report}, [*_describe(made), f"in {options.out}"])
    return DONE


def _add_vocab(commands: Any) -> None:
    parser = commands.add_parser("vocab", help="change the vocabulary of a tokenizer, from word counts, with proof")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    extend = actions.add_parser(
        "extend",
        help="add entries, learned from word counts; every old id stays what it was",
        description="Goes on with training where the vocabulary ends: words begin as they are cut now, and new entries "
        "come after all old ones. Says how words are cut then, by language and source, before it writes FILE.",
    )
    _add_common(extend)
    extend.add_argument("--add", required=True, type=positive, metavar="N", help="the most entries to add")
    extend.add_argument(
        "--into-reserved", action="store_true", help="give new entries the ids of reserved ones, such as [unused7]"
    )
    _add_keep(extend)
    extend.add_argument(
        "--coverage", type=share, default=0.9995, metavar="SHARE",
        help="add unknown characters until so much of all characters is known (0.9995)",
    )  # fmt: skip
    set_command(extend, _extend, "what changes, and where it is,")

    prune = actions.add_parser(
        "prune",
        help="remove the entries that are used least; merges stay valid",
        description="Removes one entry after the other, the least used first, which then adds to the use of its parts. "
        "Ids close up in their old order; --map writes which row of an embedding matrix goes where.",
    )
    _add_common(prune)
    how_many = prune.add_mutually_exclusive_group(required=True)
    how_many.add_argument("--to", type=positive, metavar="N", help="leave so many entries")
    how_many.add_argument("--min-count", type=positive, metavar="N", help="remove those that are used less often")
    set_command(prune, _prune, "what changes, and where it is,")

    replace = actions.add_parser(
        "replace",
        help="put new entries in place of unused ones; all other ids stay",
        description="Gives the ids of entries that no counted word uses, and no merge needs, to entries as of extend.",
    )
    _add_common(replace)
    replace.add_argument("--add", required=True, type=positive, metavar="N", help="the most entries to replace")
    _add_keep(replace)
    set_command(replace, _replace, "what changes, and where it is,")
    _add_questions(actions)


def _add_questions(actions: Any) -> None:
    """Adds the commands that change no tokenizer."""
    check = actions.add_parser(
        "check",
        help="list the entries that no text becomes",
        description="Lists entries that merges never make of their text, that normalizer and pre-tokenizer keep text "
        "from, that are spelled as another, or that an added token cuts. Exits with 1 if there are any.",
    )
    check.add_argument("tokenizer", type=tokenizer_path, metavar="TOKENIZER", help="a file or folder of any format")
    set_command(check, _check, "them")

    transfer = actions.add_parser(
        "transfer",
        help="write of which old ids each id of another tokenizer is made, to begin its embeddings with",
        description="Cuts the text of each entry of NEW by OLD; weights are shares of its bytes.",
    )
    transfer.add_argument("old", type=tokenizer_path, metavar="OLD", help="the tokenizer of the model that there is")
    transfer.add_argument("new", type=tokenizer_path, metavar="NEW", help="the tokenizer that it is to have")
    transfer.add_argument("--out", required=True, type=file_path, metavar="FILE", help="the Parquet file to write")
    set_command(transfer, _transfer, "how many ids are the same, made of others, and new")


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of commands that write a tokenizer."""
    parser.add_argument("tokenizer", type=tokenizer_path, metavar="TOKENIZER", help="a file or folder of any format")
    parser.add_argument("--counts", required=True, type=file_path, metavar="FOLDER", help="counts of its words")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=file_path, metavar="FILE", help="the file to write, of the format that it names")
    where.add_argument("--dry-run", action="store_true", help="write nothing: say what would change")
    parser.add_argument(
        "--map", action="append", default=[], type=file_path, metavar="FILE", dest="maps",
        help="also write the new id of each old one, and what a removed one is cut into, as FILE.parquet; or the new "
        "ids alone, -1 for none, as FILE.npy; may be repeated",
    )  # fmt: skip


def _add_keep(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of commands that add entries."""
    parser.add_argument(
        "--keep-segmentation-of", type=file_path, metavar="OLD", dest="keep",
        help="counts of words none of which may be cut differently",
    )  # fmt: skip
    parser.add_argument(
        "--min-count", type=positive, default=2, metavar="N", help="rarer pairs and characters are not added (2)"
    )


def _extend(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import vocabulary

    with mistakes():
        tokenizer, words, keep = _load(options)
        into = None
        if options.into_reserved:
            into = vocabulary.reserved_ids(tokenizer)
            if len(into) < options.add:
                raise ValueError(f"--add {options.add}: there are {len(into)} reserved ids; add fewer, or append them")
        change = vocabulary.extend(
            tokenizer, words, options.add, into=into, min_count=options.min_count, coverage=options.coverage, keep=keep
        )
    return _finish(change, options)


def _prune(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import vocabulary

    with mistakes():
        tokenizer, words, _ = _load(options)
        change = vocabulary.prune(tokenizer, words, size=options.to, min_count=options.min_count)
    return _finish(change, options)


def _replace(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import vocabulary

    with mistakes():
        tokenizer, words, keep = _load(options)
        change = vocabulary.replace(tokenizer, words, options.add, keep=keep, min_count=options.min_count)
    return _finish(change, options)


def _check(options: argparse.Namespace) -> int:
    from tokenmill.tokenizer import Tokenizer, vocabulary

    with mistakes():
        problems = vocabulary.check(Tokenizer.from_file(options.tokenizer))
    print_result(options, [each._asdict() for each in problems], [problems])
    return FAILED if problems else DONE


def _transfer(options: argparse.Namespace) -> int:
    import io

    import pyarrow.parquet as pq

    from tokenmill.pipeline import storage
    from tokenmill.tokenizer import Tokenizer, vocabulary

    with mistakes():
        table = vocabulary.transfer(*map(Tokenizer.from_file, (options.old, options.new)))
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd", store_schema=False)
        storage.write_atomic(options.out, buffer.getvalue())
    sizes = [len(ids) for ids in table["old_ids"].to_pylist()]
    said = {"ids": len(sizes), "of_one": sizes.count(1), "of_none": sizes.count(0), "output": options.out}
    line = "{ids:,} ids, {of_one:,} of one old id, {of_none:,} of none; in {output}"
    print_result(options, said, [line.format(**said)])
    return DONE


def _load(options: argparse.Namespace) -> "tuple[Tokenizer, pa.Table, pa.Table | None]":
    """Returns the tokenizer, the words of `--counts`, and those of `--keep-segmentation-of`."""
    from tokenmill.tokenizer import Tokenizer

    for path in options.maps:
        if not path.endswith((".parquet", ".npy")):
            raise ValueError(f"--map: must end in .parquet or .npy, got {path!r}")
    tokenizer, keep = Tokenizer.from_file(options.tokenizer), getattr(options, "keep", None)
    return tokenizer, _words(options.counts, tokenizer), keep and _words(keep, tokenizer)


def _words(path: str, tokenizer: "Tokenizer") -> "pa.Table":
    """Returns the words of counts with their labels.

    Raises:
      ValueError: if they are not the words of this tokenizer, or damaged.
    """
    from tokenmill.pipeline.counting.counts import open_counts
    from tokenmill.pipeline.counting.words import describe_words

    artifact, mine = open_counts(path), describe_words(tokenizer.to_str())
    artifact.check_files()
    for name in mine:
        if mine[name] != artifact.words[name]:
            raise ValueError(
                f"{path!r} holds other words than this tokenizer has: its {name} is {json.dumps(mine[name])[:200]}, "
                f"that of the counts {json.dumps(artifact.words[name])[:200]}; count again with tokenizer.file"
            )
    return artifact.labelled()


def _finish(change: "Change", options: argparse.Namespace) -> int:
    """Says what changes, writes it unless that is not asked for or something is not proven, and returns the code."""
    from tokenmill.pipeline import storage

    if not options.json:
        print(change)
    if failed := [name for name, failures in change.report["proof"].items() if failures]:
        say(f"nothing is written, for this could not be proven: {'; '.join(failed)}")
    elif options.out is not None:
        with mistakes():
            for left_out in change.tokenizer.left_out(options.out):
                say(f"{options.out} does not hold {left_out}")
            change.tokenizer.save(options.out)
            for path in options.maps:
                storage.write_atomic(path, change.map_bytes(path))
    if options.json:
        print_json({"output": None if failed else options.out, **change.report})
    return FAILED if failed else DONE
