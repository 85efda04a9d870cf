# SPDX-License-Identifier: Apache-2.0
"""The table of a vocabulary's entries, each with its count and kind, and the statistics that follow from it.

The kind is that of the entry, whatever the corpus: added, a piece of characters, unreachable, or ordinary.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.parquet_file import open_parquet, whole
from tokenmill.pipeline.statistics import vocabulary
from tokenmill.pipeline.statistics.vocabulary import Counts, ratio
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.reach import kinds

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


def token_counts(counts: Counts, tokenizer: Tokenizer) -> pa.Table:
    """Returns `TOKEN_COUNTS` for every id of the vocabulary, used or not.

    Args:
      counts: int64[n_ids], how often each id occurred.
    """
    by_id = {token_id: token for token, token_id in tokenizer.get_vocab().items()}
    tokens = pa.array(map(by_id.get, range(counts.size)), pa.string())
    return pa.table(
        [np.arange(counts.size, dtype=np.int32), tokens, counts, kinds(tokenizer, counts > 0)], schema=TOKEN_COUNTS
    )


def read(output: str) -> pa.Table:
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
        "under_trained": int(np.count_nonzero((counts > 0) & (counts < vocabulary.UNDER_TRAINED))),
        "unreachable": unreachable.num_rows,
        "unreachable_tokens": unreachable.select(["id", "token"]).slice(0, TOP).to_pylist(),
        "pieces": {
            "entries": pieces.num_rows,
            "tokens": n_pieces,
            "share_of_tokens": ratio(n_pieces, int(all_counts.sum())),
        },
        "entropy_bits": vocabulary.entropy_bits(counts),
        "renyi_efficiency": vocabulary.renyi_efficiency(counts),
        "zipf_slope": vocabulary.zipf_slope(counts),
        "coverage_curve": vocabulary.coverage(counts),
        "top_tokens": _top_tokens(table),
    }


def _top_tokens(table: pa.Table) -> list[dict[str, Any]]:
    counts = table.column("count").to_numpy()
    order = [i for i in np.argsort(-counts, kind="stable")[:TOP].tolist() if counts[i]]
    tokens = table.column("token").take(pa.array(order, pa.int64())).to_pylist()
    return [{"id": i, "token": token, "count": int(counts[i])} for i, token in zip(order, tokens, strict=True)]
