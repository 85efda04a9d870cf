# SPDX-License-Identifier: Apache-2.0
"""The first section of a report: what is unusual about a job, with the cause and what to do, a sentence each."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from pipeline.books.reject_limits import DAMAGE
from pipeline.running.display import duration
from tokenizer.languages import UNKNOWN

LEAST_SHARE = 0.01
"""A smaller share of tokens, records, bytes or documents is not mentioned."""
LEAST_DOCUMENTS = 20
"""With fewer sampled documents round trips are not judged: one unknown character spoils that of a long document."""
LEAST_PREMIUM = 1.5
"""A language or source is mentioned if its tokens per character are so many times those of the cheapest one."""
MUCH = 0.1
"""From this share on, what is usual or was asked for is mentioned, such as filtered and split documents."""
SLOW, LEAST_SECONDS = 3.0, 10.0
"""A split is slow if it takes so many times as long as usual for its size, and at least so many seconds."""


def advise(facts: Mapping[str, Any]) -> list[str]:
    """Returns the sentences, the most serious first; none if nothing is unusual.

    Args:
      facts: as `facts.gather` returns them.
    """
    rules = (_nothing, _rejected, _damaged, _unknown, _cut, _way_back, _premium, _pieces, _split, _padding, _filtered)
    found = (rule(facts) for rule in (*rules, _resized, _language_unknown, _slow))
    return [line for line in found if line is not None]


def _nothing(facts: Mapping[str, Any]) -> str | None:
    return None if facts["headline"]["documents"] else "There is no document in the output."


def _rejected(facts: Mapping[str, Any]) -> str | None:
    stages = {stage["what"]: stage for stage in facts["flow"]}
    n_records, records, reasons = facts["headline"]["rejected"], facts["headline"]["records"], facts["rejected"]
    n_bytes, total = stages["bytes read"]["parts"]["rejected bytes"], stages["bytes read"]["total"]
    share, of = max((_share(n_bytes, total), "the bytes"), (_share(n_records, records), "the records"))
    if share < LEAST_SHARE:
        return None
    counts = ", ".join(f"{each['count']:,} as {reason}" for reason, each in reasons.items())
    worst = max(facts["sources"]["rows"], key=itemgetter("rejected"), default=None)
    where = f", most of them in {worst['name']}" if worst and 2 * worst["rejected"] > n_records else ""
    return (
        f"{_percent(share)} of {of} were rejected, {n_records:,} of {records:,} records{where}: {counts}. "
        "Examples are below; tokenmill replay CONFIG tokenizes them once the cause is fixed."
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


def _damaged(facts: Mapping[str, Any]) -> str | None:
    n = sum(each["count"] for reason, each in facts["rejected"].items() if reason in DAMAGE)
    return f"{_some(n, 'input file')} could not be read to the end: what comes after the damage is lost." if n else None


def _premium(facts: Mapping[str, Any]) -> str | None:
    """Compares languages, or sources if languages are not known or cost the same."""
    languages = (facts["languages"] or {"rows": ()})["rows"]
    costs = [(row["language"], row["tokens"], row["tokens_per_character"]) for row in languages]
    per_token = ((row["name"], row["tokens"], row["characters_per_token"]) for row in facts["sources"]["rows"])
    found = _dearest([cost for cost in costs if cost[0] != UNKNOWN])
    return found or _dearest([(name, n, each and 1 / each) for name, n, each in per_token])


def _dearest(costs: Sequence[tuple[str, int, float | None]]) -> str | None:
    """Returns a sentence if one of some groups is dear; each is a name, tokens, and tokens per character."""
    n_tokens = sum(n for _, n, _ in costs)
    large = [(each, name) for name, n, each in costs if each and _share(n, n_tokens) >= LEAST_SHARE]
    (least, cheapest), (most, dearest) = (min(large), max(large)) if large else ((1.0, ""), (1.0, ""))
    if most < LEAST_PREMIUM * least:
        return None
    return f"A character takes {most / least:.1f} times as many tokens in {dearest} as in {cheapest}."


def _pieces(facts: Mapping[str, Any]) -> str | None:
    share = facts["stats"]["vocabulary"]["pieces"]["share_of_tokens"] or 0.0
    if share < MUCH:
        return None
    return (
        f"{_percent(share)} of the tokens are pieces of characters: the vocabulary lacks much of a script of "
        "this text. Take a tokenizer that knows it, or train one on this text."
    )


def _split(facts: Mapping[str, Any]) -> str | None:
    packing, windows = facts["stats"].get("packing"), facts["stats"].get("windows")
    n = (packing or windows or {"split_documents": 0})["split_documents"]
    share = _share(n, facts["headline"]["documents"])
    if share < MUCH:
        return None
    if windows:
        return f"{_percent(share)} of the documents, {n:,}, have several windows, because of truncation.max_length."
    concatenated = facts["config"]["output"]["packing"]["strategy"] == "concatenate"
    fewer = "A larger packing.length" + (", or strategy: best_fit," if concatenated else "") + " splits fewer."
    return f"{_percent(share)} of the documents, {n:,}, are split over several sequences. {fewer}"


def _padding(facts: Mapping[str, Any]) -> str | None:
    share = (facts["stats"].get("packing") or {"share_of_padding": 0.0})["share_of_padding"] or 0.0
    return None if share < MUCH else f"{_percent(share)} of the positions in packed sequences are padding."


def _filtered(facts: Mapping[str, Any]) -> str | None:
    n, n_records = facts["headline"]["filtered"], facts["headline"]["records"]
    share = _share(n, n_records)
    rules = ", ".join(f"{n:,} by {rule}" for rule, n in facts["filtered"].items())
    return None if share < MUCH else f"{_percent(share)} of the records were filtered, {n:,} of {n_records:,}: {rules}."


def _resized(facts: Mapping[str, Any]) -> str | None:
    steps = (facts["stats"].get("text") or {"steps": ()})["steps"]
    resized = [(step["step"], each) for step in steps for each in step["resized"] if abs(each["share"] or 0.0) >= MUCH]
    if not resized:
        return None
    name, each = max(resized, key=lambda pair: abs(pair[1]["share"]))
    of = f" of {each['language']}" if each["language"] else ""
    changes = "adds" if each["share"] > 0 else "removes"
    return f"The text step {name} {changes} {_percent(abs(each['share']))} of the characters{of}."


def _language_unknown(facts: Mapping[str, Any]) -> str | None:
    rows = (facts["languages"] or {"rows": ()})["rows"]
    n = sum(row["documents"] for row in rows if row["language"] == UNKNOWN)
    share = _share(n, facts["headline"]["documents"])
    return None if share < MUCH else f"The language of {_percent(share)} of the documents was not found."


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


def _some(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' if n != 1 else ''}"
