# SPDX-License-Identifier: Apache-2.0
"""The books of a whole job: the sums of its splits and shards, and what must be equal in them."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline.books import ledger, quantities
from pipeline.books.input_counts import PieceCounts
from pipeline.books.ledger import LedgerEntry
from pipeline.books.quantities import BooksError
from pipeline.books.shard_entry import ShardEntry
from pipeline.splits import Piece


def add_up(entries: Iterable[LedgerEntry], shards: Iterable[ShardEntry] | None = None) -> dict[str, Any]:
    """Returns the sums of all counts of entries; if `shards` are given, they count what is in shards."""
    names = quantities.counted(LedgerEntry)
    totals: dict[str, Any] = {**dict.fromkeys(names, 0), "rejected": {}, "filtered": {}, "n_splits": 0}
    totals |= {"shard_rows": 0, "shard_tokens": 0, "shard_bytes": 0, "reject_rows": 0, "reject_bytes": 0}
    for entry in entries:
        totals["n_splits"] += 1
        for name in names:
            totals[name] = quantities.plus(totals[name], getattr(entry, name))
        if entry.has_field:
            _add_to(totals.setdefault("has_field", {}), entry.has_field)
        if shards is None:
            _add_shard(totals, entry)
        if entry.rejects is not None:
            totals["reject_rows"] += entry.rejects.rows
            totals["reject_bytes"] += entry.rejects.n_bytes
    for shard in shards or ():
        _add_shard(totals, shard)
    return totals


def _add_shard(totals: dict[str, Any], entry: ledger.Written) -> None:
    totals["shard_rows"] += entry.shard.rows
    totals["shard_tokens"] += entry.shard.tokens
    totals["shard_bytes"] += entry.shard.n_bytes + sum(file.n_bytes for file in entry.companions)
    for kind, counts in (("packing", entry.packing), ("windows", entry.windows)):
        if counts is not None:
            _add_to(totals.setdefault(kind, {}), counts)


def _add_to(sums: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, n in counts.items():
        sums[name] = sums.get(name, 0) + n


def identities(totals: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the identities that totals must keep, each as {"left", "right"}: terms with their numbers.

    Raises:
      BooksError: naming every identity that does not hold.
    """
    parts = totals.get("packing"), totals.get("windows")
    equations = (*quantities.OF_INPUT, *quantities.OF_TOKENS, *quantities.of_rows(*parts), *quantities.OF_REJECTS)
    counts = {**totals, **quantities.in_rows(*parts)}
    if wrong := quantities.imbalances(equations, counts):
        raise BooksError("\n".join(f"the job: {line}" for line in wrong))
    return [equation.terms(counts) for equation in equations]


def check_inputs(entries: Iterable[LedgerEntry], *, is_whole: bool = True) -> None:
    """Checks file by file that the books balance, and that every byte of an uncompressed file of lines was read once.

    Args:
      entries: of all splits, in the order of the plan.
      is_whole: whether all of each file is to be read, or, as in a replay, only the ranges of the pieces.

    Raises:
      BooksError: naming every file for which this does not hold.
    """
    wrong = []
    for pieces, counts in files_of(entries):
        piece = pieces[0]
        wrong += [f"{piece.path!r}: {problem}" for problem in counts.imbalances()]
        is_stored_as_read = piece.compression == "none" and piece.format != "parquet"
        n_expected = piece.n_bytes if is_whole else sum(each.stop - each.start for each in pieces)
        if is_stored_as_read and counts.n_bytes != n_expected:
            wrong.append(f"{piece.path!r}: {counts.n_bytes} bytes read of {n_expected}")
    if wrong:
        raise BooksError("\n".join(wrong))


def files_of(entries: Iterable[LedgerEntry]) -> Iterator[tuple[list[Piece], PieceCounts]]:
    """Yields the pieces of every file, in the order of the plan, and the counts of the file.

    Only a file of one piece has a checksum. The pieces of a file are neighbours in the plan.
    """
    pieces = ((piece, counts) for entry in entries for piece, counts in zip(entry.pieces, entry.inputs, strict=True))
    for _, group in itertools.groupby(pieces, key=lambda each: (each[0].path, each[0].name)):
        (first, total), *others = group
        yield [first, *(piece for piece, _ in others)], sum((counts for _, counts in others), total)
