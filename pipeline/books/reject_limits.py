# SPDX-License-Identifier: Apache-2.0
"""How much a job may lose: rejects of all its input and of each file, and tokens that are unknown.

If most of the input is rejected, the config is probably wrong. If most of one file is, that file is.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.tokenizer import TokenizerConfig

ENOUGH_RECORDS = 10_000
"""Before a job has read this many records, the fraction of rejected ones means little."""

DAMAGE = frozenset(["truncated_stream", "corrupt_stream", "bomb", "unreadable_file"])
"""Reject reasons that say that a part of the file could not be read: more is lost than the rejected records."""

BY_CHOICE = frozenset(["marked_untrained"])
"""Reject reasons that the record chose: a file is not damaged because many records have them."""

_MOST_LISTED = 20
"""A message lists at most this many files."""

_MOST_PATHS = 3
"""And for each at most so many of the patterns that may have matched it."""

_ADVICE = "the rejects are in rejected/. Correct the config and start again, or raise the limit and go on with --resume"


@dataclass(frozen=True, slots=True)
class RejectLimits:
    """`input.max_rejected` and `input.max_rejected_fraction`; None for no limit."""

    max_rejected: int | None = None
    max_fraction: float | None = None
    where: str = "input"
    """The section that has these keys."""

    @classmethod
    def of(cls, config: InputConfig) -> Self:
        """Returns the limits of the `input` section; of several sources, what all of them together may not exceed."""
        numbers = [each.max_rejected for each in config.by_source.values()]
        shares = [each.max_rejected_fraction for each in config.by_source.values()]
        where = "input.sources.*" if config.sources else config.where
        return cls(
            None if None in numbers else sum(n for n in numbers if n is not None),
            None if None in shares else max(share for share in shares if share is not None),
            where,
        )

    def check(self, n_records: int, n_rejected: int) -> None:
        """Raises if too many records were rejected so far.

        Args:
          n_records: how many records were read, including rejected ones.
          n_rejected: how many of them were rejected.

        Raises:
          ValueError: with the numbers, the limit, and what to do.
        """
        found = f"{n_rejected:,} of {n_records:,} records read were rejected, more than {self.where}."
        if self.max_rejected is not None and n_rejected > self.max_rejected:
            raise ValueError(f"{found}max_rejected {self.max_rejected:,}; {_ADVICE}")
        if n_records >= ENOUGH_RECORDS:
            self._check_fraction("records", n_records, n_rejected)

    def check_all(self, n_records: int, rejected: Mapping[str, int], n_bytes: int, n_rejected_bytes: int) -> None:
        """Raises if too much of the whole job was rejected, however few records there are.

        Args:
          n_records: all records read, including rejected ones.
          rejected: the number of rejected records by reason.
          n_bytes: all bytes read; n_rejected_bytes: those of rejected records.

        Raises:
          ValueError: as `check`.
        """
        n_rejected = sum(rejected.values())
        self.check(n_records, n_rejected)
        self._check_fraction("records", n_records, n_rejected)
        self._check_fraction("bytes", n_bytes, n_rejected_bytes)

    def _check_fraction(self, unit: str, n: int, n_rejected: int) -> None:
        if self.max_fraction is not None and n_rejected > self.max_fraction * n:
            raise ValueError(
                f"{n_rejected:,} of {n:,} {unit} read were rejected, more than {self.where}.max_rejected_fraction "
                f"{self.max_fraction}; {_ADVICE}"
            )


def unknown_tokens(n_tokens: int, n_unknown: int, config: TokenizerConfig) -> str:
    """Returns how many of the tokens of a job are unknown, and what to do about it."""
    remedy = "take another tokenizer.file, or train one on this text"
    if config.train is not None:
        remedy = "raise tokenizer.train.vocab_size, or lower tokenizer.train.min_frequency"
    share = f"{n_unknown:,} of {n_tokens:,} tokens ({n_unknown / max(1, n_tokens):.1%})"
    return f"{share} are unknown, because the vocabulary lacks much of the text: {remedy}"


def check_unknown(totals: Mapping[str, Any], config: TokenizerConfig) -> None:
    """Raises ValueError if more of the tokens are unknown than `max_unknown_fraction` allows; `totals`: of the job."""
    n_tokens, n_unknown = totals["n_tokens"], totals["n_oov_tokens"]
    if n_unknown > config.max_unknown_fraction * n_tokens:
        raise ValueError(
            f"{unknown_tokens(n_tokens, n_unknown, config)}, and start again with --overwrite; or accept it by a "
            f"larger tokenizer.max_unknown_fraction, which is {config.max_unknown_fraction}, and go on with --resume"
        )


def by_limits(
    config: InputConfig, totals: Mapping[str, Any], by_source: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[InputConfig, dict[str, Any]]]:
    """Yields each section that has limits, and what was read by it: of each source, or of the job if there are none.

    Args:
      config: the section `input`.
      totals: the totals of the manifest.
      by_source: as in the manifest.
    """
    for name, section in config.by_source.items():
        read = by_source.get(name, {}) if name else totals
        numbers = {key: read.get(key, 0) for key in ("n_records", "n_bytes", "n_rejected_bytes")}
        yield section, {**numbers, "rejected": read.get("rejected") or {}}


def check_rejects(config: InputConfig, totals: Mapping[str, Any], by_source: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises ValueError if more was rejected than a section allows; takes the arguments of `by_limits`."""
    for section, read in by_limits(config, totals, by_source):
        RejectLimits.of(section).check_all(**read)


class LossyFiles:
    """The input files that are damaged, or lost too much: their number, and a line about each of the first."""

    def __init__(self, config: InputConfig, records: Iterable[Mapping[str, Any]] = ()) -> None:
        """Takes what is allowed.

        Args:
          config: the section `input`.
          records: records of files to `add`.
        """
        self._config = config
        self._n = 0
        self._fails: InputConfig | None = None
        self._lines: list[str] = []
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Looks at a file.

        Args:
          record: of one file in `inputs` of the manifest or of counts.json; `read` has its counts that are not zero.
        """
        read = record.get("read", {})
        rejected = read.get("rejected") or {}
        if not rejected:
            return
        shares = [(sum(rejected.values()), read.get("n_records", 0), "records")]
        if chosen := sum(rejected.get(reason, 0) for reason in BY_CHOICE):  # whose bytes are not known
            shares[0] = shares[0][0] - chosen, shares[0][1], "records"
        else:
            shares.append((read.get("n_rejected_bytes", 0), read.get("n_bytes", 0), "bytes"))
        section = self._config.of_file(record["name"])
        is_damaged = not DAMAGE.isdisjoint(rejected)
        if not is_damaged and all(lost <= section.max_rejected_per_file * n for lost, n, _ in shares):
            return
        self._n += 1
        if section.on_damage == "fail":
            self._fails = section
        if len(self._lines) < _MOST_LISTED:
            reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(rejected.items()))
            lost = " and ".join(f"{lost:,} of {n:,} {unit}" for lost, n, unit in shares)
            damage = (
                "is damaged, and what cannot be read of it is lost; of the rest it lost " if is_damaged else "lost "
            )
            damage = "cannot be read: it lost " if "unreadable_file" in rejected else damage
            by = ", ".join(map(repr, section.paths[:_MOST_PATHS]))  # a name is below the folder of one of them
            self._lines.append(f"{record['name']!r} {damage}{lost} ({reasons}){by and '; found by '}{by}")

    def check(self) -> None:
        """Raises ValueError if there are such files and `on_damage` is `fail`: which they are, and what to do."""
        if self._fails is None:
            return
        are, where = "1 file is" if self._n == 1 else f"{self._n:,} files are", self._fails.where
        is_chat, has_several = self._fails.is_chat, bool(self._fails.text_fields)
        field = "messages_field" if is_chat else "text_fields" if has_several else "text_field"
        raise ValueError(
            "\n".join(
                [
                    f"{are} damaged or lost more than {100 * self._fails.max_rejected_per_file:.3g} % of the "
                    f"records or bytes ({where}.max_rejected_per_file):",
                    *self._listed(),
                    f"correct these files, or accept the loss with {where}.on_damage: warn, and go on with --resume; "
                    f"if {'conversations are' if is_chat else 'the text is'} not where {where}.{field} says, correct "
                    "that, and start again with --overwrite",
                ]
            )
        )

    def warnings(self) -> list[str]:
        """Returns a warning for each of the first such files, and one that says how many more there are."""
        n_more = self._n - len(self._lines)
        more = f"{n_more:,} more input files are damaged or lost as much; `inputs` of the manifest has all"
        return [*(f"input file {line}" for line in self._lines), *([more] if n_more else [])]

    def _listed(self) -> list[str]:
        n_more = self._n - len(self._lines)
        return [*self._lines, *([f"and {n_more:,} more"] if n_more else [])]
