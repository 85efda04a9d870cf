# SPDX-License-Identifier: Apache-2.0
"""Makes stats.json from the exact counts of a job."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.books.counts import LANGUAGE, STEP
from tokenmill.pipeline.books.ledger import LOST
from tokenmill.pipeline.output.arranging import packing_summary, windows_summary
from tokenmill.pipeline.reporting.stats_file import FORMAT_VERSION, Chat
from tokenmill.pipeline.statistics import languages, sample, texts, token_table, vocabulary
from tokenmill.pipeline.statistics.tally import ADDED, EXACT_LENGTHS, LENGTH_BUCKETS, SPANS, Statistics
from tokenmill.pipeline.statistics.token_table import TOP
from tokenmill.pipeline.statistics.vocabulary import ratio

PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99)

SHARES = (0.5, 0.9, 0.95, 0.99, 1.0)
"""For these shares of unknown characters, stats.json says how few distinct characters make them up."""


def length_percentile(statistics: Statistics, percent: int) -> int | None:
    """Returns the smallest length that at least `percent` of the rows do not exceed (nearest rank); None without rows.

    Exact for lengths below `EXACT_LENGTHS`; above, the lower end of the bucket of that row, a power of two.
    """
    if statistics["n_documents"] == 0:
        return None
    rank = max(1, -(-statistics["n_documents"] * percent // 100))
    return _bucket_start(int(np.searchsorted(np.cumsum(statistics.length_counts), rank)))


def _chat_summary(chat: Mapping[str, int], n_tokens: int, packing: Mapping[str, int] | None) -> dict[str, Any]:
    n_first = (packing or {}).get("n_first_tokens", 0)
    chat = {**chat, "trained_tokens": chat["trained_tokens"] - n_first, "first_tokens": chat["first_tokens"] + n_first}
    names = [name for name in Chat.model_fields if name in chat]
    lost = {name.removeprefix(LOST): n for name, n in sorted(chat.items()) if name.startswith(LOST)}
    others = {*names, *(LOST + name for name in lost)}
    tokens = {name.removesuffix("_tokens"): n for name, n in chat.items() if name not in others and n}
    return {
        **{name: chat[name] for name in names},
        "fields_not_shown": dict(sorted(lost.items(), key=lambda item: -item[1])[:TOP]),
        "share_of_tokens_trained": ratio(chat["trained_tokens"], n_tokens),
        "tokens_by_role": tokens,
    }


def summarize(
    statistics: Statistics,
    table: pa.Table,
    packing: Mapping[str, int] | None = None,
    windows: Mapping[str, int] | None = None,
    chat: Mapping[str, int] | None = None,
    by_source: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Returns the contents of stats.json: a `StatsFile`, as plain JSON.

    Args:
      table: `TOKEN_COUNTS` of the same splits.
      packing: the sums of `arranging.PACKING_COUNTS` where rows are packed; None where they are not.
      windows: the sums of `arranging.WINDOW_COUNTS` where rows are windows; None where they are not.
      chat: the sums of `chat.COUNTS` where documents are conversations; None where they are texts.
      by_source: what was read of each source of `input.sources`, as in the manifest.
    """
    s = statistics
    code_points, n_oov_chars = s.oov_chars()
    steps, spans, by_language = s.labels(STEP), s.groups.get(SPANS, {}), s.labels(LANGUAGE)
    return {
        "format_version": FORMAT_VERSION,
        "documents": s["n_documents"],
        "bytes": s["n_text_bytes"],
        "characters": s["n_chars"],
        "words": s["n_words"],
        "spaced_words": s["n_spaced_words"],
        "tokens": s["n_tokens"],
        "tokens_made": {
            "text": s["n_text_tokens"],
            "cut": s["n_cut_tokens"],
            "kept": s["n_text_tokens"] - s["n_cut_tokens"],
            "special": s["n_special_tokens"],
            "added": s["n_added_tokens"],
            "share_cut": ratio(s["n_cut_tokens"], s["n_text_tokens"]),
            "documents_cut": s["n_cut_documents"],
            "share_of_documents_cut": ratio(s["n_cut_documents"], s["n_documents"]),
        },
        # All tokens of the text, cut ones included, because truncation says nothing about a vocabulary.
        "tokens_per_word": ratio(s["n_text_tokens"], s["n_words"]),
        "share_of_continuations": ratio(s["n_text_tokens"] - s["n_words"], s["n_text_tokens"]),
        "tokens_per_spaced_word": ratio(s["n_text_tokens"], s["n_spaced_words"]),
        "bytes_per_token": ratio(s["n_text_bytes"], s["n_text_tokens"]),
        "characters_per_token": ratio(s["n_chars"], s["n_text_tokens"]),
        "sample": sample.summary({name: s[f"n_{name}"] for name in sample.COUNTED}),
        "vocabulary": token_table.describe(table),
        "oov": {
            "tokens": s["n_oov_tokens"],
            "share_of_tokens": ratio(s["n_oov_tokens"], s["n_tokens"]),
            "characters": s["n_oov_chars"],
            "share_of_characters": ratio(s["n_oov_chars"], s["n_chars"]),
            "words": s["n_oov_words"],
            "share_of_words": ratio(s["n_oov_words"], s["n_words"]),
            "words_not_listed": s.n_oov_words_dropped,
            "distinct_characters": n_oov_chars.size,
            # How many characters must be added to the vocabulary so that this share of unknown ones becomes known.
            "characters_to_add": {f"{share:.0%}": vocabulary.entries_for(n_oov_chars, share) for share in SHARES},
            "distinct_words": s.oov_words().num_rows,
            "scripts": _scripts(code_points, n_oov_chars),
            "top_characters": _top_characters(code_points, n_oov_chars),
            "top_words": _top_words(s),
        },
        # Special tokens spelled out in text stay text, unless the config asks for them.
        "added_tokens_in_text": [
            {"token": token, "count": count}
            for token, count in sorted(s.groups.get(ADDED, {}).items(), key=lambda item: (-item[1], item[0]))[:TOP]
        ],
        "lengths": {
            "min": s["min_tokens"] if s["n_documents"] else None,
            "max": s["max_tokens"] if s["n_documents"] else None,
            "mean": ratio(s["n_tokens"], s["n_documents"]),
            "percentiles": {f"p{percent}": length_percentile(s, percent) for percent in PERCENTILES},
            "histogram": _histogram(s),
        },
        **({"text": texts.summary(steps, spans)} if steps or spans else {}),
        **({"languages": languages.summary(by_language)} if by_language else {}),
        **({"packing": packing_summary(packing)} if packing is not None else {}),
        **({"windows": windows_summary(windows)} if windows is not None else {}),
        **({"chat": _chat_summary(chat, s["n_tokens"], packing)} if chat is not None else {}),
        **({"sources": {name: source_summary(read) for name, read in by_source.items()}} if by_source else {}),
    }


def source_summary(read: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what stats.json says of a source, or a report of a file.

    Args:
      read: the counts of `PieceCounts` that are not zero.
    """
    n_chars, n_words, n_text_tokens, n_tokens = (
        read.get(name, 0) for name in ("n_chars", "n_spaced_words", "n_text_tokens", "n_tokens")
    )
    return {
        "documents": read.get("n_documents", 0),
        "rejected": sum(read.get("rejected", {}).values()),
        "filtered": sum(read.get("filtered", {}).values()),
        "characters": n_chars,
        "tokens": n_tokens,
        "characters_per_token": ratio(n_chars, n_text_tokens),
        "tokens_per_spaced_word": ratio(n_text_tokens, n_words),
        "share_of_oov_tokens": ratio(read.get("n_oov_tokens", 0), n_tokens),
    }


def _bucket_start(bucket: int) -> int:
    return bucket if bucket < EXACT_LENGTHS else EXACT_LENGTHS << (bucket - EXACT_LENGTHS)


def _scripts(code_points: np.ndarray, counts: np.ndarray) -> list[dict[str, Any]]:
    if not code_points.size:
        return []
    from tokenmill.tokenizer.languages import script_name  # imported here, since most jobs do not need it

    sums: Counter[str] = Counter()
    for code_point, n in zip(code_points.tolist(), counts.tolist(), strict=True):
        sums[script_name(code_point)] += n
    return [{"script": name, "count": n} for name, n in sorted(sums.items(), key=lambda item: (-item[1], item[0]))]


def _top_characters(code_points: np.ndarray, counts: np.ndarray) -> list[dict[str, Any]]:
    order = np.argsort(-counts, kind="stable")[:TOP].tolist()
    return [
        {"code_point": f"U+{code_points[i]:04X}", "character": chr(code_points[i]), "count": int(counts[i])}
        for i in order
    ]


def _top_words(statistics: Statistics) -> list[dict[str, Any]]:
    words = statistics.oov_words().sort_by([("count", "descending"), ("word", "ascending")]).slice(0, TOP)
    return [
        {"word": row["word"].decode("utf-8", "backslashreplace"), "count": row["count"]} for row in words.to_pylist()
    ]


def _histogram(statistics: Statistics) -> list[dict[str, int]]:
    """Returns how many rows have 0, 1, 2-3, 4-7, 8-15, ... tokens, without empty buckets at the end."""
    edges = [0, *(1 << k for k in range(12)), *range(EXACT_LENGTHS, LENGTH_BUCKETS)]
    counts = np.add.reduceat(statistics.length_counts, edges).tolist()
    used = max((i + 1 for i, count in enumerate(counts) if count), default=0)
    starts = [_bucket_start(edge) for edge in edges]
    return [
        {"from": start, "to": max(start, 2 * start - 1), "rows": count}
        for start, count in zip(starts[:used], counts[:used], strict=True)
    ]
