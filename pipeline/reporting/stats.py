# SPDX-License-Identifier: Apache-2.0
"""Makes stats.json from the exact counts of a job: what is no count of the books, nor a ratio of two of them."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.books.counts import LANGUAGE, STEP
from tokenmill.pipeline.books.ledger import LOST
from tokenmill.pipeline.config.text import UNKNOWN
from tokenmill.pipeline.reporting.stats_file import (
    FORMAT_VERSION,
    Chat,
    Language,
    Languages,
    Lengths,
    Packing,
    Sample,
    Source,
    StatsFile,
    TokensMade,
    Unknown,
    Windows,
)
from tokenmill.pipeline.statistics.tally import (
    ADDED,
    EXACT_LENGTHS,
    LENGTH_BUCKETS,
    SPANS,
    Statistics,
    summarize_text,
)
from tokenmill.pipeline.statistics.vocabulary import TOP, describe, entries_for, gini, ratio

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
      statistics: of all splits.
      table: `TOKEN_COUNTS` of the same splits.
      packing: the sums of `arranging.PACKING_COUNTS` where rows are packed; None where they are not.
      windows: the sums of `arranging.WINDOW_COUNTS` where rows are windows; None where they are not.
      chat: the sums of `chat.COUNTS` where documents are conversations; None where they are texts.
      by_source: what was read of each source of `input.sources`, as in the manifest.
    """
    s, numbers = statistics, statistics.groups[""]
    steps, spans, by_language = s.labels(STEP), s.groups.get(SPANS, {}), s.labels(LANGUAGE)
    some = {
        "text": summarize_text(steps, spans) if steps or spans else None,
        "languages": _languages(by_language) if by_language else None,
        "packing": None if packing is None else packed(packing),
        "windows": None if windows is None else _windows(windows),
        "chat": None if chat is None else _chat(chat, s["n_tokens"], packing),
        "sources": {name: source(read) for name, read in by_source.items()} or None,
    }
    made = StatsFile.of(
        numbers,
        **{name: part for name, part in some.items() if part is not None},
        format_version=FORMAT_VERSION,
        tokens_made=TokensMade.of(numbers, kept=s["n_text_tokens"] - s["n_cut_tokens"]),
        # All tokens of the text, cut ones included, because truncation says nothing about a vocabulary.
        share_of_continuations=ratio(s["n_text_tokens"] - s["n_words"], s["n_text_tokens"]),
        sample=Sample.of(numbers),
        vocabulary=describe(table),
        oov=_unknown(s),
        # Special tokens spelled out in text stay text, unless the config asks for them.
        added_tokens_in_text=_most("token", s.groups.get(ADDED, {}))[:TOP],
        lengths=Lengths.of(
            numbers,
            min=s["min_tokens"] if s["n_documents"] else None,
            max=s["max_tokens"] if s["n_documents"] else None,
            percentiles={f"p{percent}": length_percentile(s, percent) for percent in PERCENTILES},
            histogram=_histogram(s),
        ),
    )
    return made.to_record()


def packed(counts: Mapping[str, int]) -> Packing:
    """Returns the part about packing, from `arranging.PACKING_COUNTS`."""
    n_ids = counts["n_tokens"] + counts["n_separators"] + counts["n_padding"]
    return Packing.of(counts, share_of_padding=ratio(counts["n_padding"], n_ids))


def _windows(counts: Mapping[str, int]) -> Windows:
    n_tokens = counts["n_tokens"] + counts["n_repeated"]
    return Windows.of(counts, share_of_tokens_repeated=ratio(counts["n_repeated"], n_tokens))


def source(read: Mapping[str, Any]) -> Source:
    """Returns what stats.json says of a source, or a report of a file, from the `PieceCounts` that are not zero."""
    lost = {kind: sum(read.get(kind, {}).values()) for kind in ("rejected", "filtered")}
    return Source.of(read, **lost)


def _chat(chat: Mapping[str, int], n_tokens: int, packing: Mapping[str, int] | None) -> Chat:
    n_first = (packing or {}).get("n_first_tokens", 0)
    chat = {**chat, "trained_tokens": chat["trained_tokens"] - n_first, "first_tokens": chat["first_tokens"] + n_first}
    lost = {name.removeprefix(LOST): n for name, n in sorted(chat.items()) if name.startswith(LOST)}
    others = {name: n for name, n in chat.items() if name not in Chat.model_fields and not name.startswith(LOST)}
    return Chat.of(
        chat,
        fields_not_shown=dict(sorted(lost.items(), key=lambda item: -item[1])[:TOP]),
        share_of_tokens_trained=ratio(chat["trained_tokens"], n_tokens),
        tokens_by_role={name.removesuffix("_tokens"): n for name, n in others.items() if n},
    )


def _languages(by_language: Mapping[str, Mapping[str, int]]) -> Languages:
    """Returns the part about languages, from the counts of each code by the names of `Language` and of samples."""
    counts = {code: Counter(each) for code, each in by_language.items()}
    prices = {code: ratio(n["text_tokens"], n["characters"]) for code, n in counts.items()}
    paying = {code: price for code, price in prices.items() if price}
    reference = max(sorted({*paying} - {UNKNOWN}), key=lambda code: counts[code]["characters"], default=None)
    premium = {code: price / paying[reference] for code, price in paying.items() if reference}
    return Languages(
        reference=reference,
        gini_of_tokens_per_character=gini(list(paying.values())),
        by_code={code: Language.of(n, premium=premium.get(code), sample=Sample.of(n)) for code, n in counts.items()},
    )


def _unknown(s: Statistics) -> Unknown:
    code_points, counts = s.oov_chars()
    words = s.oov_words().sort_by([("count", "descending"), ("word", "ascending")])
    largest = np.argsort(-counts, kind="stable")[:TOP].tolist()
    return Unknown.of(
        s.groups[""],
        distinct_characters=counts.size,
        # How many characters must be added to the vocabulary so that this share of unknown ones becomes known.
        characters_to_add={f"{share:.0%}": entries_for(counts, share) for share in SHARES},
        distinct_words=words.num_rows,
        scripts=_scripts(code_points, counts),
        top_characters=[
            {"code_point": f"U+{code_points[i]:04X}", "character": chr(code_points[i]), "count": int(counts[i])}
            for i in largest
        ],
        top_words=[
            {"word": row["word"].decode("utf-8", "backslashreplace"), "count": row["count"]}
            for row in words.slice(0, TOP).to_pylist()
        ],
    )


def _scripts(code_points: np.ndarray, counts: np.ndarray) -> list[dict[str, Any]]:
    if not code_points.size:
        return []
    from tokenmill.tokenizer.languages import script_name  # imported here, since most jobs do not need it

    sums: Counter[str] = Counter()
    for code_point, n in zip(code_points.tolist(), counts.tolist(), strict=True):
        sums[script_name(code_point)] += n
    return _most("script", sums)


def _most(key: str, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns names and their counts as rows, the largest first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{key: name, "count": n} for name, n in ordered]


def _bucket_start(bucket: int) -> int:
    return bucket if bucket < EXACT_LENGTHS else EXACT_LENGTHS << (bucket - EXACT_LENGTHS)


def _histogram(statistics: Statistics) -> list[dict[str, int]]:
    """Returns how many rows have 0, 1, 2-3, 4-7, 8-15, ... tokens, without empty buckets at the end."""
    edges = [0, *(1 << k for k in range(12)), *range(EXACT_LENGTHS, LENGTH_BUCKETS)]
    counts = np.add.reduceat(statistics.length_counts, edges).tolist()
    used = max((i + 1 for i, count in enumerate(counts) if count), default=0)
    bins = zip(map(_bucket_start, edges[:used]), counts, strict=False)
    return [{"from": start, "to": max(start, 2 * start - 1), "rows": count} for start, count in bins]
