# SPDX-License-Identifier: Apache-2.0
"""What is unusual about a job, with the cause and what to do: of a plan, of a summary, and of a report.

`of_...` are the rules that all of them have: each takes numbers, planned or counted, and from where on they matter.
`advise` is the first section of a report.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from tokenmill.pipeline.books.quantities import OTHER_PART
from tokenmill.pipeline.books.reject_limits import DAMAGE
from tokenmill.pipeline.config.text import UNKNOWN
from tokenmill.pipeline.running.display import duration

LEAST_SHARE = 0.01
"""A smaller share of tokens, records, bytes or documents is not mentioned."""
LEAST_DOCUMENTS = 20
"""With fewer sampled documents round trips are not judged: one unknown character spoils that of a long document."""
LEAST_PREMIUM = 1.5
"""A language or source is mentioned if its tokens per character are so many times those of the cheapest one."""
MUCH = 0.1
"""From this share on, what is usual or was asked for is mentioned, such as filtered and split documents."""
_NONE: Mapping[str, Any] = {"rows": ()}
SLOW, LEAST_SECONDS = 3.0, 10.0
"""A split is slow if it takes so many times as long as usual for its size, and at least so many seconds."""
_CHARACTERS = 12


@dataclass(frozen=True)
class Advice:
    """A setting to look at."""

    setting: str
    """Its key; "" if no single one is the cause."""
    reason: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.reason}" if self.setting else self.reason


def of_documents(n_documents: int, n_records: int, lost: Mapping[str, Mapping[str, int]]) -> Advice | None:
    """Speaks of an output without documents; `lost`: what became of the records, by reason or rule."""
    if n_documents:
        return None
    if not n_records:
        return Advice("", "there is no record in the input, and no document in the output")
    became = " and ".join(
        f"{sum(reasons.values()):,} were {kind} ({', '.join(f'{name} {n:,}' for name, n in sorted(reasons.items()))})"
        for kind, reasons in lost.items()
        if reasons
    )
    return Advice("", f"there is no document in the output: of {n_records:,} records {became}")


def of_cut(n_cut: int, n_text: int, least: float, *, is_chat: bool) -> Advice | None:
    """Speaks of tokens of the text that truncation cuts off, from a share of more than `least` on."""
    if _share(n_cut, n_text) <= least:
        return None
    instead = "leave_out leaves such conversations out" if is_chat else "rows keeps them"
    what = f"{_percent(_share(n_cut, n_text))} of the tokens, {n_cut:,} of {n_text:,}, are cut off, and in no row"
    return Advice("tokenizer.truncation", f"{what}; overflow: {instead}, a larger max_length keeps some of them")


def of_padding(share: float | None, least: float, *, strategy: str | None, is_chat: bool) -> Advice | None:
    """Speaks of padding; `strategy`: of sequences, None of rows that are padded."""
    if (share or 0.0) < least:
        return None
    places = "rows" if strategy is None else "packed sequences"
    less = "strategy: concatenate has none"
    if strategy is None:
        less = "packed sequences have little"
    elif is_chat:
        less = "a larger length has less, and strategy: best_fit"
    return Advice("output.packing", f"{_percent(share or 0.0)} of the positions in {places} are padding; {less}")


def of_unknown(
    share: float, least: float, to_add: Mapping[str, int], characters: Sequence[str], where: str = ""
) -> Advice | None:
    """Speaks of unknown tokens.

    Args:
      share: of all tokens.
      least: from which share on they matter.
      to_add: "50%" and "95%": how many characters the vocabulary would need so that so many of the unknown are known.
      characters: those, the most frequent first; none if it is not known.
      where: more about their share.
    """
    if share < least:
        return None
    remedy = "take another tokenizer, or train one on this text"
    if characters:
        first = ", ".join(map(repr, characters[: min(_CHARACTERS, to_add["95%"])]))
        remedy = f"{to_add['50%']:,} characters more in the vocabulary would remove half of the unknown ones, "
        remedy += f"{to_add['95%']:,} would remove 95 %, first {first}; or take another tokenizer"
    return Advice("tokenizer", f"{_percent(share)} of the tokens are unknown{where}; {remedy}")


def advise(facts: Mapping[str, Any]) -> list[str]:
    """Returns the sentences, the most serious first; none if nothing is unusual.

    Args:
      facts: as `page.gather` returns them.
    """
    stats, strategy = facts["stats"], _strategy(facts)
    packing, made = stats.get("packing"), stats["tokens_made"]
    lost = {"filtered": facts["filtered"], "rejected": {name: n["count"] for name, n in facts["rejected"].items()}}
    is_chat = bool(facts.get("chat"))
    lines = [
        _rejected(facts),
        _unknown(facts),
        of_documents(facts["headline"]["documents"], facts["headline"]["records"], lost),
        of_cut(made["cut"], made["text"], LEAST_SHARE, is_chat=is_chat),
        of_padding(packing and packing["share_of_padding"], MUCH, strategy=strategy, is_chat=is_chat),
        *(line.replace("{}", _percent(share)) for share, least, line in _shares(facts) if share >= least),
        *(rule(facts) for rule in (_way_back, _premium, _resized, _slow)),
    ]
    return [str(line) for line in lines if line is not None]


def _strategy(facts: Mapping[str, Any]) -> str | None:
    """Returns how the job packed; a manifest, whose config anybody may have changed, need not say it."""
    found = facts["config"]
    for key in ("output", "packing", "strategy"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None


def _shares(facts: Mapping[str, Any]) -> Iterator[tuple[float, float, str]]:
    """Yields shares of a whole, from where on each is unusual, and what is said then, with `{}` for the share."""
    headline, stats = facts["headline"], facts["stats"]
    packing, windows = stats.get("packing"), stats.get("windows")
    n_documents, n_records = headline["documents"], headline["records"]
    n = sum(each["count"] for reason, each in facts["rejected"].items() if reason in DAMAGE)
    files = f"{n:,} input file{'s' if n != 1 else ''}"
    yield n, 1, f"{files} could not be read to the end: what comes after the damage is lost."
    rules = {rule: n for rule, n in facts["filtered"].items() if rule != OTHER_PART}
    n, n_here = sum(rules.values()), n_records - facts["filtered"].get(OTHER_PART, 0)
    by_rule = ", ".join(f"{n:,} by {rule}" for rule, n in rules.items())
    yield _share(n, n_here), MUCH, f"{{}} of the records were filtered, {n:,} of {n_here:,}: {by_rule}."
    pieces = "{} of the tokens are pieces of characters: the vocabulary lacks much of a script of this text. "
    pieces += "Take a tokenizer that knows it, or train one on this text."
    yield stats["vocabulary"]["pieces"]["share_of_tokens"] or 0.0, MUCH, pieces
    n = sum(row["documents"] for row in (facts["languages"] or _NONE)["rows"] if row["language"] == UNKNOWN)
    yield _share(n, n_documents), MUCH, "The language of {} of the documents was not found."
    if windows:
        n = windows["split_documents"]
        several = f"{{}} of the documents, {n:,}, have several windows, because of truncation.max_length."
        yield _share(n, n_documents), MUCH, several
    if packing:
        n, strategy = packing["split_documents"], _strategy(facts)
        fewer = "A larger packing.length" + (", or strategy: best_fit," if strategy == "concatenate" else "")
        several = f"{{}} of the documents, {n:,}, are split over several sequences. {fewer} splits fewer."
        yield _share(n, n_documents), MUCH, several


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


def _unknown(facts: Mapping[str, Any]) -> Advice | None:
    oov = facts["stats"]["oov"]
    worst = max((facts["languages"] or _NONE)["rows"], key=itemgetter("oov_tokens"), default=None)
    where = ""
    if worst is not None and worst["oov_tokens"]:
        of_all = _percent(_share(worst["oov_tokens"], oov["tokens"]))
        where = f", {of_all} of them in {worst['language']}, where {_percent(worst['share_of_oov_tokens'])} are"
    most = [each["character"] for each in oov["top_characters"]]
    return of_unknown(oov["share_of_tokens"] or 0.0, LEAST_SHARE, oov["characters_to_add"], most, where)


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
    """Compares languages, or sources if languages are not known or cost the same."""
    languages = (facts["languages"] or _NONE)["rows"]
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
    return (
        f"A character takes {most / least:.1f} times as many tokens in {dearest} as in {cheapest}. "
        f"A vocabulary trained on more of {dearest} lowers this."
    )


def _resized(facts: Mapping[str, Any]) -> str | None:
    steps = (facts["stats"].get("text") or {"steps": ()})["steps"]
    resized = [(step["step"], each) for step in steps for each in step["resized"] if abs(each["share"] or 0.0) >= MUCH]
    if not resized:
        return None
    name, each = max(resized, key=lambda pair: abs(pair[1]["share"]))
    of = f" of {each['language']}" if each["language"] else ""
    changes = "adds" if each["share"] > 0 else "removes"
    return f"The text step {name} {changes} {_percent(abs(each['share']))} of the characters{of}."


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
