# SPDX-License-Identifier: Apache-2.0
"""What must be equal in the books of one split or shard: records, bytes, rows and tokens, each counted twice."""

import pyarrow.compute as pc

from pipeline.books.input_counts import PieceCounts
from pipeline.books.ledger import BooksError, LedgerEntry, Written
from pipeline.statistics.tally import Statistics

INPUT_COUNTS = tuple(name for name in PieceCounts.__slots__ if name != "sha256")
"""What is counted for each file of a split, and for the split as a whole."""

TEXT_COUNTS = {
    "n_documents": "documents",
    "n_chars": "characters",
    "n_words": "words",
    "n_text_tokens": "tokens of text",
    "n_cut_tokens": "cut tokens",
    "n_cut_documents": "cut documents",
    "n_special_tokens": "special tokens",
    "n_added_tokens": "added tokens",
    "n_tokens": "tokens",
    "n_oov_tokens": "unknown tokens",
}
"""What is counted of texts and their tokens, in an entry and in the statistics of its split."""


def imbalances(entry: LedgerEntry, statistics: Statistics | None = None) -> list[str]:
    """Returns every identity that does not hold, each naming the split and the two numbers.

    Args:
      entry: to check in itself.
      statistics: of the same split, to check the entry against.
    """
    n_rejected, n_filtered = sum(entry.rejected.values()), sum(entry.filtered.values())
    kept_bytes = entry.n_document_bytes + entry.n_rejected_bytes + entry.n_filtered_bytes + entry.n_skipped_bytes
    equations = [
        (
            "records read",
            entry.n_records,
            "documents + rejected + filtered",
            entry.n_documents + n_rejected + n_filtered,
        ),
        ("bytes read", entry.n_bytes, "bytes of documents + rejected + filtered + skipped", kept_bytes),
        (
            "tokens + cut",
            entry.n_tokens + entry.n_cut_tokens,
            "tokens of text + special + added",
            entry.n_text_tokens + entry.n_special_tokens + entry.n_added_tokens,
        ),
        *shard_equations(entry),
        *_run_equations(entry),
        ("rows of rejects", entry.rejects.rows if entry.rejects else 0, "rejected", n_rejected),
    ]
    if statistics is not None:
        listed = (pc.sum(statistics.oov_words().column("count")).as_py() or 0) + statistics.n_oov_words_dropped
        equations += [
            *(
                (f"{what} counted", getattr(statistics, name), what, getattr(entry, name))
                for name, what in TEXT_COUNTS.items()
            ),
            ("sum of the tokens' counts", int(statistics.token_counts.sum()), "tokens", entry.n_tokens),
            ("sum of the lengths' counts", int(statistics.length_counts.sum()), "documents", entry.n_documents),
            ("sum of the unknown words' counts", listed, "unknown words", statistics.n_oov_words),
        ]
        if statistics.unk_id >= 0:
            unknown = int(statistics.token_counts[statistics.unk_id])
            n_unknown = entry.n_oov_tokens + statistics.n_unknown_marks
            equations.append(("count of the unknown token", unknown, "unknown tokens", n_unknown))
    lines = [
        f"split {entry.split_id}: {left} {left_number} != {right} {right_number}"
        for left, left_number, right, right_number in equations
        if left_number != right_number
    ]
    return [*lines, *_imbalances_of_inputs(entry)]


def _imbalances_of_inputs(entry: LedgerEntry) -> list[str]:
    """Returns what does not hold for a file of the split, and between the split and the sums of its files."""
    where = f"split {entry.split_id}"
    if len(entry.inputs) != len(entry.pieces):
        return [f"{where}: {len(entry.inputs)} inputs are counted, of {len(entry.pieces)} pieces"]
    lines = [
        f"{where}, {piece.name!r}: {problem}"
        for piece, counts in zip(entry.pieces, entry.inputs, strict=True)
        for problem in counts.imbalances()
    ]
    total = sum(entry.inputs, PieceCounts())
    for name in INPUT_COUNTS:
        ours, theirs = getattr(entry, name), getattr(total, name) or type(getattr(entry, name))()
        if ours != theirs:
            lines.append(f"{where}: {name} {ours} != sum over its files {theirs}")
    return lines


Equations = list[tuple[str, int | None, str, int]]
"""What must be equal: a name and a number, and another name and number."""


def shard_equations(entry: Written) -> Equations:
    """Returns what must hold between the documents of a shard and its files."""
    packing = entry.packing
    rows, n_rows = ("documents", entry.n_documents) if packing is None else ("sequences", packing["n_sequences"])
    tokens, n_tokens = "tokens", entry.n_tokens
    equations: Equations = []
    if (windows := entry.windows) is not None:
        rows, n_rows = "windows", windows["n_windows"]
        tokens, n_tokens = "tokens + repeated + special", n_tokens + windows["n_repeated"] + windows["n_special"]
        equations += [
            ("documents in windows", windows["n_documents"], "documents", entry.n_documents),
            ("tokens in windows", windows["n_tokens"], "tokens", entry.n_tokens),
        ]
    if packing is not None:
        tokens, n_tokens = "tokens + separators", n_tokens + packing["n_separators"]
        equations += [
            ("documents packed", packing["n_documents"], "documents", entry.n_documents),
            ("tokens packed", packing["n_tokens"], "tokens", entry.n_tokens),
        ]
    if entry.documents is not None:
        equations.append(("documents listed", entry.documents.rows, "documents", entry.n_documents))
        equations.append(("tokens of documents listed", entry.documents.tokens, "tokens", entry.n_tokens))
    for file in (entry.shard, *entry.companions):
        if file.rows is not None or file is entry.shard:
            which = "the shard" if file is entry.shard else file.file
            equations.append((f"rows of {which}", file.rows, rows, n_rows))
            equations.append((f"tokens of {which}", file.tokens, tokens, n_tokens))
    return equations


def _run_equations(entry: LedgerEntry) -> Equations:
    if entry.runs is None:
        return []
    sums = entry.runs["sums"]
    return [
        ("documents sorted", sums["n_documents"], "documents", entry.n_documents),
        ("tokens sorted", sums["n_tokens"], "tokens", entry.n_tokens),
        ("unknown tokens sorted", sums["n_oov_tokens"], "unknown tokens", entry.n_oov_tokens),
    ]


def check_balance(entry: LedgerEntry, statistics: Statistics | None = None) -> None:
    """Raises BooksError naming every identity of `imbalances` that does not hold."""
    if wrong := imbalances(entry, statistics):
        raise BooksError("\n".join(wrong))
