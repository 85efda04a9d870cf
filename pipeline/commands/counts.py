# SPDX-License-Identifier: Apache-2.0
"""`tokenmill counts`: shows word counts, adds them up, subtracts them. Here are only its arguments and its output."""

import argparse
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tokenmill.pipeline.commands.arguments import file_path, natural, set_command
from tokenmill.pipeline.commands.reporting import DONE, mistakes, print_result

if TYPE_CHECKING:
    from tokenmill.pipeline.counting.arithmetic import Term
    from tokenmill.pipeline.counting.counts import CountsArtifact

_NAMED = re.compile(r"([\w.-]+)=(.+)")
_WEIGHT = re.compile(r"\+?[\d.]{1,40}(?:/\d{1,20}|[eE][+-]?\d{1,2})?")
"""What `Fraction` reads, with an exponent of at most two digits: it writes all digits out."""


def add_parsers(commands: Any) -> None:
    """Adds the command to the commands of a parser."""
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
    from tokenmill.pipeline.counting.words import preset

    report = artifact.report
    totals, pruned, words = report["totals"], report["pruned"], artifact.words
    lines = [
        f"digest           {artifact.digest}",
        f"normalizer       {_type_of(words['normalizer'])}",
        f"pre-tokenizer    {preset(words['pre_tokenizer']) or _type_of(words['pre_tokenizer'])}",
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
