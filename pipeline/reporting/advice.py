# SPDX-License-Identifier: Apache-2.0
"""The first section of a report: what is unusual about a job, with the cause and what to do, a sentence each."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from pipeline.running.display import duration
from tokenizer.languages import UNKNOWN

LEAST_SHARE = 0.01
"""A smaller share of tokens, records, bytes or documents is not mentioned."""
LEAST_DOCUMENTS = 20
"""With fewer sampled documents round trips are not judged: one unknown character spoils that of a long document."""
LEAST_PREMIUM = 1.5
"""A language is mentioned from this premium on: its tokens per character, relative to the reference language."""
SLOW, LEAST_SECONDS = 3.0, 10.0
"""A split is slow if it takes so many times as long as usual for its size, and at least so many seconds."""


def advise(facts: Mapping[str, Any]) -> list[str]:
    """Returns the sentences, the most serious first; none if nothing is unusual.

    Args:
      facts: as `facts.gather` returns them.
    """
    found = (_rejected(facts), _unknown(facts), _cut(facts), _way_back(facts), _premium(facts), _slow(facts))
    return [line for line in found if line is not None]


def _rejected(facts: Mapping[str, Any]) -> str | None:
    stages = {stage["what"]: stage for stage in facts["flow"]}
    n_records, records, reasons = facts["headline"]["rejected"], facts["headline"]["records"], facts["rejected"]
    n_bytes, total = stages["bytes read"]["parts"]["rejected bytes"], stages["bytes read"]["total"]
    share, of = max((_share(n_bytes, total), "the bytes"), (_share(n_records, records), "the records"))
    if share < LEAST_SHARE:
        return None
    counts = ", ".join(f"{each['count']:,} as {reason}" for reason, each in reasons.items())
    return (
        f"{_percent(share)} of {of} were rejected, {n_records:,} of {records:,} records: {counts}. Examples are below; "
        "tokenmill replay CONFIG tokenizes them once the cause is fixed."
    )


def _unknown(facts: Mapping[str, Any]) -> str | None:
    oov = facts["stats"]["oov"]
    share = oov["share_of_tokens"] or 0.0
    if share < LEAST_SHARE:
        return None
    rows = (facts["languages"] or {"rows": ()})["rows"]
    worst = max(rows, key=lambda row: row["oov_tokens"], default=None)
    where = ""
    if worst is not None and worst["oov_tokens"]:
        of_all = _share(worst["oov_tokens"], oov["tokens"])
        where = (
            f", {_percent(of_all)} of them in {worst['language']}, where {_percent(worst['share_of_oov_tokens'])} are"
        )
    needed = oov["characters_to_add"]
    added = (
        f"With {needed['50%']:,} more characters in the vocabulary half of the unknown ones would be known, with "
        f"{needed['95%']:,} 95 %; or take another tokenizer."
        if oov["characters"]
        else "Take another tokenizer, or train one on this text."
    )
    return f"{_percent(share)} of the tokens are unknown{where}. {added}"


def _cut(facts: Mapping[str, Any]) -> str | None:
    made = facts["stats"]["tokens_made"]
    share = _share(made["cut"], made["text"])
    if share < LEAST_SHARE:
        return None
    return (
        f"{_percent(share)} of the tokens of the texts were cut off by tokenizer.truncation: a larger max_length, "
        "or a stride, which makes windows, keeps them."
    )


def _way_back(facts: Mapping[str, Any]) -> str | None:
    sample = facts["stats"]["sample"]
    n_lost = sample["documents"] - sample["documents_round_trip_but_for_spaces"]
    if sample["documents"] < LEAST_DOCUMENTS or _share(n_lost, sample["documents"]) < LEAST_SHARE:
        return None
    cause = "; unknown tokens are a cause" if facts["stats"]["oov"]["tokens"] else ""
    return (
        f"The tokens of {n_lost:,} of {sample['documents']:,} sampled documents do not decode to their text, even if "
        f"white space and what the tokenizer normalizes are ignored{cause}."
    )


def _premium(facts: Mapping[str, Any]) -> str | None:
    languages = facts["languages"]
    rows = [row for row in languages["rows"] if row["premium"] and row["language"] != UNKNOWN] if languages else []
    n_tokens = sum(row["tokens"] for row in rows)
    large = [row for row in rows if _share(row["tokens"], n_tokens) >= LEAST_SHARE]
    dearest = max(large, key=lambda row: row["premium"], default=None)
    if dearest is None or dearest["premium"] < LEAST_PREMIUM:
        return None
    return (
        f"A character takes {dearest['premium']:.1f} times as many tokens in {dearest['language']} as in "
        f"{languages['reference']}."
    )


def _slow(facts: Mapping[str, Any]) -> str | None:
    slowest = (facts["clock"] or {"slowest": ()})["slowest"]
    long = (each for each in slowest if each["seconds"] >= LEAST_SECONDS and each["speed"])
    found = min(long, key=itemgetter("speed"), default=None)
    if found is None or found["speed"] > 1 / SLOW:
        return None
    waited = " It waited most of the time." if found["cpu_seconds"] < found["seconds"] / 2 else ""
    return (
        f"Split {found['index']:,}, from {found['source']}, took {duration(found['seconds'])}, "
        f"{1 / found['speed']:.1f} times as long as is usual for its size.{waited}"
    )


def _share(n: float, total: float) -> float:
    return n / total if total else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
