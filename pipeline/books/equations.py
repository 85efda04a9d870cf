# SPDX-License-Identifier: Apache-2.0
"""Checks the equations of a split or shard: records, bytes, rows and tokens are each counted twice, independently."""

from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.input_counts import PieceCounts
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.books.shard_entry import ShardEntry, Written


def imbalances(entry: Written) -> list[str]:
    """Returns a line for every equation that does not hold, with the split or shard and both numbers."""
    if isinstance(entry, ShardEntry):
        keys = {"n_keys": entry.keys.rows or 0, "n_documents": entry.n_documents}
        lines = [*_imbalances_of_rows(entry), *quantities.imbalances(quantities.OF_KEYS, keys)]
        return [f"shard {entry.shard_id}: {line}" for line in lines]
    where = f"split {entry.split_id}: "
    counts = {name: getattr(entry, name) for name in quantities.counted(LedgerEntry)}
    counts["reject_rows"] = entry.rejects.rows if entry.rejects else 0
    checks = [*quantities.OF_INPUT, *quantities.OF_TOKENS, *quantities.OF_REJECTS]
    if entry.runs is not None:
        sums = entry.runs["sums"]
        counts |= {f"sorted_{name}": sums[f"n_{name}"] for name in ("documents", "tokens", "oov_tokens")}
        checks += quantities.OF_RUNS
    lines = [*quantities.imbalances(checks, counts), *_imbalances_of_rows(entry)]
    return [*(where + line for line in lines), *_imbalances_of_inputs(entry)]


def _imbalances_of_inputs(entry: LedgerEntry) -> list[str]:
    """Returns the equations that do not hold for a file of the split, or between the split and the sums of files."""
    where = f"split {entry.split_id}"
    if len(entry.inputs) != len(entry.pieces):
        return [f"{where}: {len(entry.inputs)} inputs are counted, of {len(entry.pieces)} pieces"]
    lines = [
        f"{where}, {piece.name!r}: {problem}"
        for piece, counts in zip(entry.pieces, entry.inputs, strict=True)
        for problem in counts.imbalances()
    ]
    for name, total in quantities.total(entry.inputs, quantities.counted(PieceCounts)).items():
        ours = getattr(entry, name)
        theirs = total or type(ours)()
        if ours != theirs:
            lines.append(f"{where}: {name} {ours} != sum over its files {theirs}")
    return lines


def _imbalances_of_rows(entry: Written) -> list[str]:
    """Returns every equation that does not hold between the documents of a shard and its files."""
    counts = {"n_documents": entry.n_documents, "n_tokens": entry.n_tokens}
    counts |= quantities.in_rows(entry.packing, entry.windows)
    checks = [
        *(quantities.IN_SEQUENCES if entry.packing is not None else ()),
        *(quantities.IN_WINDOWS if entry.windows is not None else ()),
    ]
    if entry.documents is not None:
        counts |= {"listed_documents": entry.documents.rows or 0, "listed_tokens": entry.documents.tokens or 0}
        checks += quantities.OF_LIST
    lines = quantities.imbalances(checks, counts)
    rows, tokens, *_ = quantities.of_rows(entry.packing, entry.windows)
    for file in (entry.shard, *entry.companions):
        if file.rows is not None or file is entry.shard:
            where = "" if file is entry.shard else f"{file.file}: "
            written = {"shard_rows": file.rows or 0, "shard_tokens": file.tokens or 0}
            lines += [where + line for line in quantities.imbalances((rows, tokens), counts | written)]
    return lines


def check_balance(entry: Written) -> None:
    """Raises BooksError with the lines of `imbalances`, if there are any."""
    if wrong := imbalances(entry):
        raise BooksError("\n".join(wrong))
