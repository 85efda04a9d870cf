# SPDX-License-Identifier: Apache-2.0
"""Checks that the statistics of a split agree with its ledger entry, and with themselves."""

import pyarrow.compute as pc

from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.statistics.tally import Statistics


def disagreements(entry: LedgerEntry, statistics: Statistics) -> list[str]:
    """Returns a line for every number in which a split's statistics differ from its entry, or do not add up to it."""
    listed = (pc.sum(statistics.oov_words().column("count")).as_py() or 0) + statistics.n_oov_words_dropped
    pairs = [
        *(
            (
                f"{quantity.words} counted",
                getattr(statistics, quantity.name),
                quantity.words,
                getattr(entry, quantity.name),
            )
            for quantity in quantities.TOKENIZED
        ),
        ("sum of the tokens' counts", int(statistics.token_counts.sum()), "tokens", entry.n_tokens),
        ("sum of the lengths' counts", int(statistics.length_counts.sum()), "documents", entry.n_documents),
        ("sum of the unknown words' counts", listed, "unknown words", statistics.n_oov_words),
    ]
    if statistics.unk_id >= 0:
        unknown = int(statistics.token_counts[statistics.unk_id])
        n_unknown = entry.n_oov_tokens + statistics.n_unknown_marks
        pairs.append(("count of the unknown token", unknown, "unknown tokens", n_unknown))
    return [
        f"split {entry.split_id}: {left} {ours} != {right} {theirs}"
        for left, ours, right, theirs in pairs
        if ours != theirs
    ]


def check_agreement(entry: LedgerEntry, statistics: Statistics) -> None:
    """Raises BooksError naming every number of `disagreements`."""
    if wrong := disagreements(entry, statistics):
        raise BooksError("\n".join(wrong))
