# SPDX-License-Identifier: Apache-2.0
"""The books of a whole job: the sums of its splits and shards, and what must be equal in them."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline.books import ledger
from pipeline.books.input_counts import PieceCounts
from pipeline.books.ledger import BooksError, LedgerEntry
from pipeline.books.shard_entry import ShardEntry
from pipeline.splits import Piece


def add_up(entries: Iterable[LedgerEntry], shards: Iterable[ShardEntry] | None = None) -> dict[str, Any]:
    """Returns the sums of all that entries count; what is in shards is counted by `shards` where there are any."""
    counters = {name: 0 for name in LedgerEntry.__dataclass_fields__ if name.startswith("n_")}
    totals: dict[str, Any] = {**counters, "n_splits": 0, "rejected": {}, "filtered": {}}
    totals |= {"shard_rows": 0, "shard_tokens": 0, "shard_bytes": 0, "reject_rows": 0, "reject_bytes": 0}
    for entry in entries:
        totals["n_splits"] += 1
        for name in counters:
            totals[name] += getattr(entry, name)
        for kind in ("rejected", "filtered"):
            for reason, n in getattr(entry, kind).items():
                totals[kind][reason] = totals[kind].get(reason, 0) + n
        for name, n in entry.has_field.items():
            found = totals.setdefault("has_field", {})
            found[name] = found.get(name, 0) + n
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
            sums = totals.setdefault(kind, dict.fromkeys(counts, 0))
            for name, n in counts.items():
                sums[name] += n


def identities(totals: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the identities that totals must keep, each as {"left", "right"}: terms with their numbers.

    Raises:
      BooksError: naming every identity that does not hold.
    """
    rejected, filtered = sum(totals["rejected"].values()), sum(totals["filtered"].values())
    byte_terms = ("n_document_bytes", "n_rejected_bytes", "n_filtered_bytes", "n_skipped_bytes")
    lines = [
        (
            {"n_records": totals["n_records"]},
            {**_pick(totals, "n_documents"), "rejected": rejected, "filtered": filtered},
        ),
        (_pick(totals, "n_bytes"), _pick(totals, *byte_terms)),
        (
            _pick(totals, "n_tokens", "n_cut_tokens"),
            _pick(totals, "n_text_tokens", "n_special_tokens", "n_added_tokens"),
        ),
        *_shard_balance(totals),
        (_pick(totals, "reject_rows"), {"rejected": rejected}),
    ]
    if wrong := [f"{left} != {right}" for left, right in lines if sum(left.values()) != sum(right.values())]:
        raise BooksError("\n".join(wrong))
    return [{"left": left, "right": right} for left, right in lines]


def _shard_balance(totals: Mapping[str, Any]) -> list[tuple[dict[str, int], dict[str, int]]]:
    packing, windows = totals.get("packing"), totals.get("windows")
    if windows is not None:
        return [
            (_pick(totals, "shard_rows"), _pick(windows, "n_windows")),
            (_pick(totals, "shard_tokens"), {**_pick(totals, "n_tokens"), **_pick(windows, "n_repeated", "n_special")}),
            ({"documents_in_windows": windows["n_documents"]}, _pick(totals, "n_documents")),
        ]
    if packing is None:
        return [
            (_pick(totals, "shard_rows"), _pick(totals, "n_documents")),
            (_pick(totals, "shard_tokens"), _pick(totals, "n_tokens")),
        ]
    return [
        (_pick(totals, "shard_rows"), _pick(packing, "n_sequences")),
        (_pick(totals, "shard_tokens"), {**_pick(totals, "n_tokens"), **_pick(packing, "n_separators")}),
        ({"packed_documents": packing["n_documents"]}, _pick(totals, "n_documents")),
    ]


def check_inputs(entries: Iterable[LedgerEntry], *, is_whole: bool = True) -> None:
    """Checks file by file that the books balance, and that every byte of an uncompressed file of lines was read once.

    Args:
      entries: of all splits, in the order of the plan.
      is_whole: whether all of each file is to be read, or, as in a replay, the ranges of the pieces.

    Raises:
      BooksError: naming every file of which that is not so.
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
    """Yields the pieces of every file in the order of the plan, and what was made of them.

    There is a checksum where the file is one piece. The pieces of a file are neighbours in the plan.
    """
    pieces = ((piece, counts) for entry in entries for piece, counts in zip(entry.pieces, entry.inputs, strict=True))
    for _, group in itertools.groupby(pieces, key=lambda each: (each[0].path, each[0].name)):
        (first, total), *others = group
        yield [first, *(piece for piece, _ in others)], sum((counts for _, counts in others), total)


def _pick(totals: Mapping[str, Any], *names: str) -> dict[str, int]:
    return {name: totals[name] for name in names}
