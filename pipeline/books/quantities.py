# SPDX-License-Identifier: Apache-2.0
"""Everything that is counted, defined once: each quantity with its unit and its name in words, and all equations.

A file, a split, a shard and a job each count some of these, under these names. These definitions decide which checks
they must pass, and what the manifest says of them. A new quantity is a line below, a number where it is counted and, if
it can be checked, a term of an equation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


class BooksError(ValueError):
    """The books do not balance: two counts that must be equal are not."""


@dataclass(frozen=True)
class Quantity:
    """One thing that is counted; its counts can be added up."""

    name: str
    unit: Literal["records", "documents", "bytes", "characters", "words", "tokens", "rows"]
    words: str
    """Its name in messages."""


READ = (
    Quantity("n_records", "records", "records read"),
    Quantity("n_documents", "documents", "documents"),
    Quantity("rejected", "records", "rejected"),  # by the reason
    Quantity("filtered", "documents", "filtered"),  # by the rule that left them out
    Quantity("n_bytes", "bytes", "bytes read"),  # of the decompressed stream; of Parquet, of the text
    Quantity("n_document_bytes", "bytes", "bytes of documents"),
    Quantity("n_rejected_bytes", "bytes", "rejected bytes"),
    Quantity("n_filtered_bytes", "bytes", "filtered bytes"),
    Quantity("n_skipped_bytes", "bytes", "skipped bytes"),
)
"""Counts of input: by file, by split, by job."""

BY_NAME = frozenset({"rejected", "filtered"})
"""Those that are counted by name: by the reason, by the rule."""

TEXTS = (
    Quantity("n_text_bytes", "bytes", "bytes of texts"),  # as UTF-8
    Quantity("n_chars", "characters", "characters"),
    Quantity("n_words", "words", "words"),  # pre-tokens, all occurrences
)
"""Counts of texts, by split and by group, in jobs that count words."""

TOKENIZED = (
    Quantity("n_documents", "documents", "documents"),
    Quantity("n_chars", "characters", "characters"),
    Quantity("n_words", "words", "words"),
    Quantity("n_spaced_words", "words", "words between white space"),
    Quantity("n_text_tokens", "tokens", "tokens of text"),  # what the tokenizer made of it
    Quantity("n_cut_tokens", "tokens", "cut tokens"),
    Quantity("n_cut_documents", "documents", "cut documents"),
    Quantity("n_special_tokens", "tokens", "special tokens"),
    Quantity("n_added_tokens", "tokens", "added tokens"),
    Quantity("n_tokens", "tokens", "tokens"),  # of the rows, padding not included
    Quantity("n_oov_tokens", "tokens", "unknown tokens"),
)
"""Counts of tokenized documents: in ledger entries, and again in the statistics of each split."""

WRITTEN = (
    Quantity("shard_rows", "rows", "rows of the shard"),
    Quantity("shard_tokens", "tokens", "tokens of the shard"),
    Quantity("reject_rows", "rows", "rows of rejects"),
    Quantity("packing:n_sequences", "rows", "sequences"),
    Quantity("packing:n_separators", "tokens", "separators"),
    Quantity("packing:n_padding", "tokens", "padding"),
    Quantity("packing:n_positions", "tokens", "positions"),
    Quantity("packing:n_documents", "documents", "documents packed"),
    Quantity("packing:n_tokens", "tokens", "tokens packed"),
    Quantity("windows:n_windows", "rows", "windows"),
    Quantity("windows:n_repeated", "tokens", "repeated"),
    Quantity("windows:n_special", "tokens", "special"),
    Quantity("windows:n_documents", "documents", "documents in windows"),
    Quantity("windows:n_tokens", "tokens", "tokens in windows"),
    Quantity("listed_documents", "documents", "documents listed"),
    Quantity("listed_tokens", "tokens", "tokens of documents listed"),
    Quantity("sorted_documents", "documents", "documents sorted"),
    Quantity("sorted_tokens", "tokens", "tokens sorted"),
    Quantity("sorted_oov_tokens", "tokens", "unknown tokens sorted"),
    Quantity("n_keys", "rows", "keys"),
)
"""Counts of written files, which are compared with what should have been written."""

_WORDS = {quantity.name: quantity.words for quantity in (*READ, *TEXTS, *TOKENIZED, *WRITTEN)}


@dataclass(frozen=True)
class Equation:
    """Two sums of quantities that must be equal."""

    left: tuple[str, ...]
    right: tuple[str, ...]

    def terms(self, counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Returns {"left", "right"}: each term with its number, as in the manifest.

        Args:
          counts: numbers by name, as `counts.flatten` gives them; what is missing is zero.
        """
        return {
            side: {name: _number(counts, name) for name in names}
            for side, names in (("left", self.left), ("right", self.right))
        }

    def imbalance(self, counts: Mapping[str, int]) -> str | None:
        """Returns None if it holds, else a line such as "records read 6 != documents + rejected 5"."""
        left, right = (sum([_number(counts, name) for name in names]) for names in (self.left, self.right))
        if left == right:
            return None
        return f"{_in_words(self.left)} {left} != {_in_words(self.right)} {right}"


OF_INPUT = (
    Equation(("n_records",), ("n_documents", "rejected", "filtered")),
    Equation(("n_bytes",), ("n_document_bytes", "n_rejected_bytes", "n_filtered_bytes", "n_skipped_bytes")),
)
"""For a file, a split or a job: no record and no byte that was read is lost."""

OF_TOKENS = (Equation(("n_tokens", "n_cut_tokens"), ("n_text_tokens", "n_special_tokens", "n_added_tokens")),)
"""For a split or a job: no token is lost."""

OF_REJECTS = (Equation(("reject_rows",), ("rejected",)),)
"""For a split or a job: every reject is in a file."""

OF_RUNS = (
    Equation(("sorted_documents",), ("n_documents",)),
    Equation(("sorted_tokens",), ("n_tokens",)),
    Equation(("sorted_oov_tokens",), ("n_oov_tokens",)),
)
"""For a split whose documents were sorted for a shuffle."""

OF_LIST = (Equation(("listed_documents",), ("n_documents",)), Equation(("listed_tokens",), ("n_tokens",)))
"""For a shard's table of documents."""

OF_KEYS = (Equation(("n_keys",), ("n_documents",)),)
"""For a shard of a shuffle."""

OF_DOCUMENTS = (Equation(("shard_rows",), ("n_documents",)), Equation(("shard_tokens",), ("n_tokens",)))
"""For the files of a shard whose rows are documents."""

OF_WINDOWS = (
    Equation(("shard_rows",), ("windows:n_windows",)),
    Equation(("shard_tokens",), ("n_tokens", "windows:n_repeated", "windows:n_special")),
    Equation(("windows:n_documents",), ("n_documents",)),
)
"""For the files of a shard whose rows are windows of documents."""

IN_WINDOWS = (OF_WINDOWS[-1], Equation(("windows:n_tokens",), ("n_tokens",)))
"""For the counts of windows, without the files."""

OF_SEQUENCES = (
    Equation(("shard_rows",), ("packing:n_sequences",)),
    Equation(("shard_tokens",), ("n_tokens", "packing:n_separators")),
    Equation(("packing:n_documents",), ("n_documents",)),
)
"""For the files of a shard whose rows are packed sequences."""

OF_POSITIONS = (Equation(("packing:n_positions",), ("n_tokens", "packing:n_separators", "packing:n_padding")),)
"""For all positions of packed sequences, each as long as the config says."""

IN_SEQUENCES = (OF_SEQUENCES[-1], Equation(("packing:n_tokens",), ("n_tokens",)))
"""For the counts of packing, without the files."""


def of_rows(counts: Mapping[str, int]) -> tuple[Equation, ...]:
    """Returns the equations between documents and their rows, which `counts` says are packed, windows or neither."""
    if "windows:n_windows" in counts:
        return OF_WINDOWS
    return OF_SEQUENCES if "packing:n_sequences" in counts else OF_DOCUMENTS


def in_rows(counts: Mapping[str, int]) -> tuple[Equation, ...]:
    """Returns the equations between documents and what packing, or cutting into windows, has counted."""
    if "windows:n_windows" in counts:
        return IN_WINDOWS
    return IN_SEQUENCES if "packing:n_sequences" in counts else ()


def imbalances(equations: Iterable[Equation], counts: Mapping[str, int]) -> list[str]:
    """Returns a line for each equation that does not hold."""
    return [line for equation in equations if (line := equation.imbalance(counts))]


def plus(left: Any, right: Any) -> Any:
    """Returns the sum of two numbers, or of two mappings of names to numbers; None counts as an empty mapping."""
    if type(left) is int and type(right) is int:  # the usual case, millions of times in a large job
        return left + right
    if not (isinstance(left, Mapping) or isinstance(right, Mapping)):
        return left if right is None else left + right
    if not left or not right:
        return left or right or {}
    return dict(sorted((Counter(left) + Counter(right)).items()))


def in_words(names: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of each quantity by its name in words; a quantity counted by reason gives one per reason."""
    return {
        f"{_WORDS[name]}: {reason}" if reason else _WORDS[name]: n
        for name in names
        for reason, n in sorted(_numbers(counts, name).items())
    }


def _numbers(counts: Mapping[str, int], name: str) -> dict[str, int]:
    """Returns a number, by ""; if it is counted by name, each of these."""
    if name in counts:
        return {"": counts[name]}
    start = f"{name}:"
    return {each.removeprefix(start): n for each, n in counts.items() if each.startswith(start)}


def _number(counts: Mapping[str, int], name: str) -> int:
    n = counts.get(name)
    return sum(_numbers(counts, name).values()) if n is None else n


def _in_words(names: Iterable[str]) -> str:
    return " + ".join(_WORDS[name] for name in names)


SAMPLE, OTHER_LANGUAGE, MIXED_LANGUAGES = "sample", "language", "mixed_languages"
OTHER_PART, COMMITTED, TOO_LONG, STEP = "other_part", "committed", "too_long", "step"

RULES = {
    SAMPLE: "the document is not in the sample",
    OTHER_LANGUAGE: "its language is not one to keep",
    MIXED_LANGUAGES: "it is in several languages",
    OTHER_PART: "another part of the output has it, be it a document or a reject",
    TOO_LONG: "the conversation is longer than a row, and is not to be cut, or cut has no trained token left",
    STEP: "a step of your own, between normalizing and encoding, leaves it out",
    COMMITTED: "it was tokenized by the job; its file had to be read whole",
}
"""Every rule, and what it means. Records that cannot be used are rejected: see `input.rejects.REASONS`."""

OF_A_STEP = frozenset({TOO_LONG, STEP})
"""The rules of steps behind the reader. With `output.parts` each folder leaves out documents of its own by them."""
