# SPDX-License-Identifier: Apache-2.0
"""The table of a vocabulary's entries, each with its count and kind, and the statistics that follow from it.

The kind is that of the entry, whatever the corpus: added, a piece of characters, unreachable, or ordinary.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.parquet_file import open_parquet, whole
from tokenmill.pipeline.statistics import vocabulary
from tokenmill.pipeline.statistics.vocabulary import Counts, ratio
from tokenmill.pipeline.statistics.words import FAILS, encode_parts
from tokenmill.tokenizer import Tokenizer

Flags = npt.NDArray[np.bool_]

CONTEXTS = "axQé1!\n\u00ab\u0416\u4e2d\u304b\ud55c\u0627\u0915"
"""Characters of many scripts; each entry is tried after and before each of them, to see whether text becomes it."""

_PROBE = "\u4e2d"
"""A character of three bytes that no normalizer changes."""

TOP = 100
"""How many entries each list of most frequent things has in a summary."""

KINDS = ("ordinary", "added", "piece", "unreachable")
"""The kinds of entries:

- added: an added token, special or not, or the unknown token: the model does not produce it from its text;
- piece: its bytes are not whole UTF-8 characters, as those of a byte-level token for half of a Chinese character;
- unreachable: no text that was tried has it among its tokens. Added tokens and pieces are not tried, nor are entries
  beyond ASCII if decoding does not turn bytes back into characters, as with CLIP's tokenizer.json.
"""

TOKEN_COUNTS = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("token", pa.string()),  # null where the vocabulary has no token with this id
        pa.field("count", pa.int64(), nullable=False),
        pa.field("kind", pa.string()),  # one of `KINDS`; null for the same ids
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


def kinds(tokenizer: Tokenizer, seen: Flags | None = None) -> pa.StringArray:
    """Returns the kind of each entry of a vocabulary, string[n_ids]: one of `KINDS`, null for an id without a token.

    Each entry's text is encoded: alone, after each of `CONTEXTS`, and before each. So `##ing` is found in `aing`,
    `▁the` in `the`. An entry that was found is reachable; one that was not may still be in a text that was not tried.
    After Land and Bartolo, Fishing for Magikarp, EMNLP 2024, who try each entry alone: `encode(decode(i)) != [i]`.

    Args:
      tokenizer: any; its truncation, padding and template do not matter.
      seen: bool[n_ids], entries that a corpus had, which need no test; None: none are known.
    """
    n_ids = tokenizer.n_ids
    named, added, pieces = np.zeros(n_ids, bool), np.zeros(n_ids, bool), np.zeros(n_ids, bool)
    named[list(tokenizer.get_vocab().values())] = True
    added[[token.id for token in tokenizer.added_tokens]] = True
    if tokenizer.unk_token_id is not None:
        added[tokenizer.unk_token_id] = True
    reached = np.zeros(n_ids, bool) if seen is None else seen.copy()
    tried = np.flatnonzero(named & ~added)
    texts = _texts(tokenizer, tried)
    is_broken = pc.match_substring(texts, "\ufffd")
    broken = tried[np.asarray(is_broken, bool)]
    _reach(tokenizer, texts, reached)
    pieces[broken] = ~_is_one_token(tokenizer, texts.filter(is_broken), broken)
    is_told = named & ~added & ~pieces
    if not _undoes_bytes(tokenizer):
        is_told[tried] &= np.asarray(pc.string_is_ascii(texts), bool)
    for context in CONTEXTS:
        for before, after in ((context, ""), ("", context)):
            pending = np.flatnonzero(is_told & ~reached)
            _reach(tokenizer, _texts(tokenizer, pending, before, after), reached)
    numbers = added + 2 * pieces + 3 * (is_told & ~reached)
    return pa.array(KINDS).take(pa.array(numbers, mask=~named))


def _undoes_bytes(tokenizer: Tokenizer) -> bool:
    """Returns whether decoding restores a character of several bytes; also True if the tokenizer does not know it."""
    try:
        ids = tokenizer.encode_bare([_PROBE])
    except FAILS:
        return True
    if tokenizer.unk_token_id in ids.flatten().to_pylist():
        return True
    return _PROBE in (tokenizer.decode_arrow(ids, skip_special_tokens=False)[0].as_py() or _PROBE)


def _texts(tokenizer: Tokenizer, ids: npt.NDArray[np.int64], before: str = "", after: str = "") -> pa.LargeStringArray:
    """Returns the text of each id, decoded after the tokens of `before`, and followed by `after`."""
    try:
        context = tokenizer.encode_bare([before])[0].as_py()
    except FAILS:
        context = []
    rows = np.empty((ids.size, len(context) + 1), np.int32)
    rows[:, :-1] = context
    rows[:, -1] = ids
    ends = np.arange(ids.size + 1, dtype=np.int64) * rows.shape[1]
    texts = tokenizer.decode_arrow(pa.LargeListArray.from_arrays(ends, rows.reshape(-1)), skip_special_tokens=False)
    return pc.binary_join_element_wise(texts, pa.scalar(after, texts.type), pa.scalar("", texts.type))


def _is_one_token(tokenizer: Tokenizer, texts: pa.LargeStringArray, ids: npt.NDArray[np.int64]) -> Flags:
    """Returns for each id whether its text is encoded as this single id; True for an entry that is U+FFFD itself."""
    try:
        rows = tokenizer.encode_bare(texts).to_pylist()
    except FAILS:
        return np.zeros(ids.size, bool)
    return np.array([row == [i] for row, i in zip(rows, ids.tolist(), strict=True)], bool)


def _reach(tokenizer: Tokenizer, texts: pa.LargeStringArray, reached: Flags) -> None:
    """Sets `reached` of every id among the tokens of `texts`. A text that cannot be encoded has none."""
    for ids in encode_parts(tokenizer, texts):
        if ids is not None:
            reached[ids.flatten().to_numpy()] = True


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
