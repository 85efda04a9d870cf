# SPDX-License-Identifier: Apache-2.0
"""A vocabulary in use: the table of its entries, each with its count and kind, and measures from these counts.

The kind is that of the entry, whatever the corpus: added, a piece of characters, unreachable, or ordinary.

All measures but `gini` and `ratio` take `counts`, int64[n], how often each entry occurred, unused entries included, in
any order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books.counts import Ints
from tokenmill.pipeline.columns import open_parquet, whole
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.reach import kinds

UNDER_TRAINED = 100
"""An entry that occurs less often than this is under-trained: a model sees few examples of it."""

RENYI_ALPHA = 2.5
"""The order of the Rényi entropy that follows translation quality best in the paper named at `renyi_efficiency`."""


TOP = 100
"""How many entries each list of most frequent things has in a summary."""

TOKEN_COUNTS = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("token", pa.string()),  # null where the vocabulary has no token with this id
        pa.field("count", pa.int64(), nullable=False),
        pa.field("kind", pa.string()),  # one of `tokenizer.reach.KINDS`; null for the same ids
    ]
)
"""How often each entry of the vocabulary occurred, and what it is, in the order of ids."""


def coverage(counts: Ints) -> list[dict[str, float]]:
    """Returns the share of all tokens that the 1, 2, 5, 10, 20, 50, ... most frequent entries make up, up to all.

    Each point is {"entries", "share"}; there are none if nothing occurred.
    """
    used = np.sort(counts[counts > 0])[::-1]
    if not used.size:
        return []
    shares = np.cumsum(used) / used.sum()
    sizes = [step * 10**power for power in range(len(str(used.size))) for step in (1, 2, 5)]
    return [{"entries": n, "share": float(shares[n - 1])} for n in [*(n for n in sizes if n < used.size), used.size]]


def entries_for(counts: Ints, share: float) -> int:
    """Returns how many of the most frequent entries make up at least `share` of all; 0 where nothing occurred."""
    used = np.sort(counts[counts > 0])[::-1]
    if not used.size:
        return 0
    sums = np.cumsum(used)
    # Rounded up to an integer, so that a share that is met exactly is not missed.
    return int(np.searchsorted(sums, np.ceil(share * sums[-1]))) + 1


def entropy_bits(counts: Ints) -> float | None:
    """Returns Shannon's entropy of the entries in bits per token; None where nothing occurred."""
    shares = _shares(counts)
    return float(-(shares * np.log2(shares)).sum() + 0.0) if shares.size else None


def renyi_efficiency(counts: Ints, alpha: float = RENYI_ALPHA) -> float | None:
    """Returns the Rényi entropy of order `alpha`, divided by that of a uniform distribution over the vocabulary.

    From 0, if only one entry occurs, to 1; None if nothing occurred or the vocabulary has fewer than two entries.

    Source: Zouhar et al., Tokenization and the Noiseless Channel, ACL 2023.
    """
    shares = _shares(counts)
    if not shares.size or counts.size < 2:
        return None
    entropy = np.log2((shares**alpha).sum()) / (1 - alpha)
    return float(entropy / np.log2(counts.size) + 0.0)


def zipf_slope(counts: Ints) -> float | None:
    """Returns the slope of the least-squares line through log(count) over log(rank) of the entries that occur.

    Rank 1 is the most frequent one; text gives about -1. None where fewer than two entries occurred.
    """
    used = np.sort(counts[counts > 0])[::-1]
    if used.size < 2:
        return None
    ranks = np.log(np.arange(1, used.size + 1))
    ranks -= ranks.mean()
    return float((ranks * np.log(used)).sum() / (ranks**2).sum() + 0.0)


def gini(values: Sequence[float]) -> float | None:
    """Returns the Gini coefficient of positive numbers: 0 if all are equal, near 1 if they are very unequal."""
    if not values:
        return None
    ordered = sorted(values)
    weighted = sum((2 * rank - len(ordered) - 1) * value for rank, value in enumerate(ordered, 1))
    return weighted / (len(ordered) * sum(ordered))


def ratio(numerator: float, denominator: float) -> float | None:
    """Returns a ratio; None where there is nothing to divide by."""
    return numerator / denominator if denominator else None


def _shares(counts: Ints) -> npt.NDArray[np.float64]:
    used = counts[counts > 0]
    return used / used.sum()


def token_counts(counts: Ints, tokenizer: Tokenizer) -> pa.Table:
    """Returns `TOKEN_COUNTS` for every id of the vocabulary, used or not.

    Args:
      counts: int64[n_ids], how often each id occurred.
    """
    by_id = {token_id: token for token, token_id in tokenizer.get_vocab().items()}
    tokens = pa.array(map(by_id.get, range(counts.size)), pa.string())
    return pa.table(
        [np.arange(counts.size, dtype=np.int32), tokens, counts, kinds(tokenizer, counts > 0)], schema=TOKEN_COUNTS
    )


def read_token_counts(output: str) -> pa.Table:
    """Returns `TOKEN_COUNTS` of a folder.

    Raises:
      ValueError: if the file is something else; OSError: if it cannot be opened.
    """
    with storage.open_read(storage.join(output, filenames.TOKEN_COUNTS)) as handle, whole(filenames.TOKEN_COUNTS):
        table = open_parquet(handle).read(use_threads=False).cast(TOKEN_COUNTS)
    ids, counts = table.column("id").to_numpy(), table.column("count").to_numpy()
    if not np.array_equal(ids, np.arange(ids.size)) or (counts.size and counts.min() < 0):
        raise ValueError(f"{filenames.TOKEN_COUNTS}: not the counts of all ids, in their order")
    return table


def describe(table: pa.Table) -> dict[str, Any]:
    """Returns the statistics of a vocabulary: `stats_file.Vocabulary`, as plain JSON.

    Args:
      table: `TOKEN_COUNTS`.
    """
    all_counts, kind = table.column("count").to_numpy(), table.column("kind")
    counts = all_counts[np.asarray(table.column("token").is_valid())]
    used = int(np.count_nonzero(all_counts))
    unreachable = table.filter(pc.equal(kind, "unreachable"))
    pieces = table.filter(pc.equal(kind, "piece"))
    n_pieces = pc.sum(pieces.column("count")).as_py() or 0
    return {
        "size": counts.size,
        "used": used,
        "coverage": ratio(used, counts.size),
        "dead": counts.size - used,
        "under_trained": int(np.count_nonzero((counts > 0) & (counts < UNDER_TRAINED))),
        "unreachable": unreachable.num_rows,
        "unreachable_tokens": unreachable.select(["id", "token"]).slice(0, TOP).to_pylist(),
        "pieces": {
            "entries": pieces.num_rows,
            "tokens": n_pieces,
            "share_of_tokens": ratio(n_pieces, int(all_counts.sum())),
        },
        "entropy_bits": entropy_bits(counts),
        "renyi_efficiency": renyi_efficiency(counts),
        "zipf_slope": zipf_slope(counts),
        "coverage_curve": coverage(counts),
        "top_tokens": _top_tokens(table),
    }


def _top_tokens(table: pa.Table) -> list[dict[str, Any]]:
    counts = table.column("count").to_numpy()
    order = [i for i in np.argsort(-counts, kind="stable")[:TOP].tolist() if counts[i]]
    tokens = table.column("token").take(pa.array(order, pa.int64())).to_pylist()
    return [{"id": i, "token": token, "count": int(counts[i])} for i, token in zip(order, tokens, strict=True)]
