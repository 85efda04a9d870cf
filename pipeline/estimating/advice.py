# SPDX-License-Identifier: Apache-2.0
"""Settings of a config that a forecast suggests changing, and why. Each rule is a function that may give one advice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenmill.pipeline.books.reject_limits import RejectLimits
from tokenmill.pipeline.estimating.forecast import Forecast
from tokenmill.pipeline.input.readers import is_cut_by_bytes

IDLE = 1.25
"""Workers count as idle if the job takes this many times as long as with evenly divided work."""
WORTH_SECONDS = 5
"""Shorter work is not worth a change of settings."""
SMALL_SHARD = 1 << 20
MANY_SHARDS = 1000
MUCH_PADDING = 0.3
MUCH_REJECTED = 0.01
MUCH_UNKNOWN = 0.001
_SMALLEST_SPLIT = 1 << 20
_CHARACTERS = 12
_CHARACTERS_COVER = 0.9


@dataclass(frozen=True)
class Advice:
    """A setting to look at."""

    setting: str
    reason: str


def advise(found: Forecast, workers: int) -> list[Advice]:
    """Returns what to change, the worst first."""
    given = [rule(found, workers) for rule in _RULES]
    return [each for each in given if each is not None]


def _rejects(found: Forecast, _: int) -> Advice | None:
    rejected, records = found.totals.get("rejected"), found.totals.get("n_records")
    if rejected is None or records is None or not rejected.value:
        return None
    limits = RejectLimits.of(found.plan.config.input)
    reasons = ", ".join(f"{name.partition('.')[2]} {each.value:,}" for name, each in found.of_kind("rejected"))
    if rejected.value == records.value:
        return Advice("input.text_field", f"every record would be rejected ({reasons}), and the job would fail")
    try:
        limits.check_all(records.value, {"": rejected.value}, 0, 0)
    except ValueError:
        of = f"{rejected.value:,} of {records.value:,} records would be rejected ({reasons})"
        name = "max_rejected" if (limits.max_rejected or rejected.value) < rejected.value else "max_rejected_fraction"
        return Advice(f"{limits.where}.{name}", f"{of}, more than the limit: the job would fail")
    strictest = min(found.plan.config.input.by_source.values(), key=lambda each: each.max_rejected_per_file)
    if strictest.on_damage == "fail" and rejected.value > strictest.max_rejected_per_file * records.value:
        of = f"{rejected.value / records.value:.1%} of records would be rejected ({reasons})"
        return Advice(
            f"{strictest.where}.max_rejected_per_file", f"{of}, of some files more than the limit: the job would fail"
        )
    if rejected.value > MUCH_REJECTED * records.value:
        return Advice("input", f"{rejected.value / records.value:.1%} of records would be rejected: {reasons}")
    return None


def _idle(found: Forecast, workers: int) -> Advice | None:
    work = found.work
    total = int(work.split_bytes.sum())
    if not total or (share := work.busiest(workers) * workers / total) < IDLE or work.split_seconds < WORTH_SECONDS:
        return None
    largest = found.plan.splits[int(work.split_bytes.argmax())]
    why = f"{len(work.split_bytes)} splits keep {workers} workers busy {1 / share:.0%} of the time"
    if len(largest.pieces) == 1 and not is_cut_by_bytes(
        largest.pieces[0], found.plan.config.input.of(largest.source).document
    ):
        return Advice(
            "input.paths", f"{why}: {largest.pieces[0].path!r} can only be read whole; write it as several files"
        )
    ideal = max(_SMALLEST_SPLIT, found.plan.n_bytes // (4 * workers))
    fitting = 1 << (ideal.bit_length() - 1)
    if fitting >= found.plan.config.input.split_bytes:
        return None
    return Advice("input.split_bytes", f"{why}; {fitting} would make enough of them")


def _tiny(found: Forecast, _: int) -> Advice | None:
    mean = found.plan.n_bytes // max(1, found.n_shards)
    if not found.plan.tokenizes or found.n_shards < MANY_SHARDS or mean >= SMALL_SHARD:
        return None
    setting = "input.split_bytes" if found.plan.config.output.shuffle is None else "output.shuffle.shards"
    return Advice(setting, f"there would be {found.n_shards:,} shards of {mean:,} bytes of input; make them larger")


def _cut(found: Forecast, _: int) -> Advice | None:
    truncation = found.plan.config.tokenizer.truncation
    if truncation is None or (cut := found.share("n_cut_tokens", "n_text_tokens")) <= truncation.warn_above:
        return None
    instead = "leave_out leaves such conversations out" if found.plan.config.input.is_chat else "rows keeps them"
    reason = f"{cut:.1%} of the tokens would be cut off; overflow: {instead}, a larger max_length keeps some of them"
    return Advice("tokenizer.truncation", reason)


def _padding(found: Forecast, _: int) -> Advice | None:
    if found.padding is None or found.padding <= MUCH_PADDING:
        return None
    if found.plan.config.output.packing is not None:
        less = "strategy: concatenate has none"
        if found.plan.config.input.is_chat:
            less = "a larger length has less, and strategy: best_fit"
        return Advice("output.packing", f"{found.padding:.1%} of sequences would be padding; {less}")
    return Advice(
        "output.packing", f"{found.padding:.1%} of the ids in rows would be padding; packed sequences have little"
    )


def _unknown(found: Forecast, _: int) -> Advice | None:
    share = found.share("n_oov_tokens", "n_tokens")
    if share <= MUCH_UNKNOWN:
        return None
    return Advice("tokenizer", f"{share:.2%} of tokens would be unknown{''.join(_characters(found))}")


def _characters(found: Forecast) -> Iterator[str]:
    total = sum(n for _, n in found.unknown)
    if not total:
        return
    n_listed = n_covered = 0
    while n_listed < min(_CHARACTERS, len(found.unknown)) and n_covered < _CHARACTERS_COVER * total:
        n_covered += found.unknown[n_listed][1]
        n_listed += 1
    named = ", ".join(f"{character!r}" for character, _ in found.unknown[:n_listed])
    yield f"; {n_listed} characters are {n_covered / total:.0%} of the unknown ones, add them: {named}"


_RULES: tuple[Callable[[Forecast, int], Advice | None], ...] = (_rejects, _idle, _tiny, _cut, _padding, _unknown)
