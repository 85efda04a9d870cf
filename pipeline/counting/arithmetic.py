# SPDX-License-Identifier: Apache-2.0
"""Adding up, weighting and subtracting counts artifacts, partition by partition, in bounded memory. No Beam here.

A weight w turns the count n of a word into `floor(n * w + 1/2)`, computed in integers; words whose count becomes 0 are
left out. Each number of the totals is weighted by the same rule, except that words and characters are counted again.
All results must fit in 63 bits.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline.books.counts import Counts
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.counting.counts import CountsArtifact, Group, PartitionWriter, Pruning
from tokenmill.pipeline.counting.merging import merge_streams
from tokenmill.pipeline.counting.words import differences
from tokenmill.pipeline.output.staging import Staging

MAX_COUNT = (1 << 63) - 1

_TOTALS = ("n_documents", "n_text_bytes", "n_chars", "n_words")
_WEIGHT_DIGITS = 6
_MAX_POWER = 1e300
"""Powers above this are refused, so that sums and ratios of them stay finite."""


@dataclass(frozen=True)
class Term:
    """One artifact of a sum, and the name that it gets there."""

    artifact: CountsArtifact
    name: str | None = None
    """The source label that its counts get in the sum, if they have no labels; None keeps their labels."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The kinds of labels of its counts."""
        return ("source",) if self.name is not None else self.artifact.labels

    def groups(self) -> dict[Group, Group]:
        """Returns the artifact's name of each group, by its name in the sum."""
        return {(self.name,) if self.name is not None else group: group for group in self.artifact.groups}

    def stream(self, partition: int, n_partitions: int, group: Group) -> Iterator[pa.Table]:
        """Returns the words of a group, as the artifact calls it, in one of so many partitions; it may have more."""
        finer = range(partition, len(self.artifact.files), n_partitions)
        return merge_streams([self.artifact.stream(i, group) for i in finer])

    def totals(self) -> dict[Group, dict[str, int]]:
        """Returns the totals of each group in the sum."""
        found = {
            tuple(each["labels"]): {name: each[name] for name in _TOTALS} for each in self.artifact.report["groups"]
        }
        return {called: found[group] for called, group in self.groups().items()}


def check_terms(terms: Sequence[Term]) -> None:
    """Checks that artifacts can be added up.

    Raises:
      ValueError: if they differ in what a word is or in the kinds of labels, if their numbers of partitions are not
        multiples of the smallest, or a file is not as recorded.
    """
    first = terms[0]
    for term in terms:
        artifact = term.artifact
        if term.name is not None and artifact.labels:
            raise ValueError(
                f"{artifact.output!r} has labels of its own ({', '.join(artifact.labels)}); give it without a name"
            )
        if counts.words_digest(artifact.words) != counts.words_digest(first.artifact.words):
            raise ValueError(
                f"{artifact.output!r} counts other words than {first.artifact.output!r}: "
                f"{differences(artifact.words, first.artifact.words)}; counts add up only after the same normalizer "
                "and pre-tokenizer"
            )
        if len(artifact.files) % _n_partitions(terms):
            raise ValueError(
                f"{artifact.output!r} has {len(artifact.files)} partitions, which is no multiple of the "
                f"{_n_partitions(terms)} of another"
            )
        if term.labels != first.labels:
            raise ValueError(
                f"{artifact.output!r} has the labels {list(term.labels)!r}, {first.artifact.output!r} has "
                f"{list(first.labels)!r}; name those that have none, as in en={artifact.output}"
            )
        artifact.check_files()


def weights_of(
    terms: Sequence[Term], given: Mapping[str, Fraction], temperature: float | None
) -> dict[Group, Fraction]:
    """Returns the weight of each group of a sum.

    Args:
      terms: what is added up.
      given: weights by source; all other sources have 1.
      temperature: T makes the share of each group proportional to the T-th root of its number of words; the total
        stays the same, and weights are rounded to seven significant digits. None for 1. The weights in `given` multiply
        these.

    Raises:
      ValueError: for a source that does not exist, or a value out of range.
    """
    n_words: dict[Group, int] = {}
    for term in terms:
        for group, totals in term.totals().items():
            n_words[group] = n_words.get(group, 0) + totals["n_words"]
    if (given or temperature is not None) and not terms[0].labels:
        raise ValueError(
            f"the counts have no sources to weight; name them, as in a={terms[0].artifact.output}, or count with "
            "counts.by: [source]"
        )
    sources = {group[0] for group in n_words if group}
    if unknown := sorted(given.keys() - sources):
        raise ValueError(f"there is no source {unknown[0]!r} to weight; there are {', '.join(sorted(sources))}")
    if negative := [name for name, weight in given.items() if weight < 0]:
        raise ValueError(f"weights must not be negative, got {negative[0]}={float(given[negative[0]])}")
    weights = {group: Fraction(1) for group in n_words}
    if temperature is not None:
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be a positive number, got {temperature!r}")
        total = sum(n_words.values())
        try:
            powers = {group: n ** (1 / temperature) for group, n in n_words.items() if n}
            power = math.fsum(powers.values())
        except OverflowError:
            power = math.inf
        if power * total > _MAX_POWER:
            raise ValueError(
                f"temperature {temperature!r} is too low for {max(n_words.values())} words of one source; take a "
                "higher one, 1 keeps the shares as they are"
            )
        for group, value in powers.items():
            weights[group] = Fraction(f"{total * value / power / n_words[group]:.{_WEIGHT_DIGITS}e}")
    for group in weights:
        weights[group] *= given.get(group[0], Fraction(1)) if group else 1
    return weights


def merge(terms: Sequence[Term], output: str, weights: Mapping[Group, Fraction]) -> CountsArtifact:
    """Writes the weighted sum of artifacts as a new artifact.

    Args:
      terms: at least one; as `check_terms` allows.
      output: a folder without counts.
      weights: the weight of each group.

    Raises:
      ValueError: if the folder holds counts already, or a result does not fit in 63 bits.

    Memory: some row groups of each artifact.
    """
    pruning, n_partitions = _sum_of_pruning(terms, weights), _n_partitions(terms)
    more: dict[str, Any] = {
        "weights": [{"labels": list(group), "weight": str(weight)} for group, weight in sorted(weights.items())]
    }

    def streams(partition: int, group: Group) -> Iterator[pa.Table]:
        mine = [term for term in terms if group in term.groups()]
        parts = [term.stream(partition, n_partitions, term.groups()[group]) for term in mine]
        for table in merge_streams(parts):
            yield weighted(table, weights[group])

    totals = {group: dict.fromkeys(_TOTALS, 0) for group in weights}
    for term in terms:
        for group, numbers in term.totals().items():
            for name, number in numbers.items():
                totals[group][name] += number
    scaled = {group: {name: _scale(n, weights[group]) for name, n in each.items()} for group, each in totals.items()}
    is_same = set(weights.values()) == {Fraction(1)}
    # Without weights, the characters can be added up, including those of words that were left out.
    characters = _add_characters([term.artifact.alphabet() for term in terms]) if is_same else None
    return _write("merge", terms, output, streams, scaled, characters, pruning, more)


def _n_partitions(terms: Sequence[Term]) -> int:
    return min(len(term.artifact.files) for term in terms)


def _sum_of_pruning(terms: Sequence[Term], weights: Mapping[Group, Fraction]) -> Pruning:
    """Returns the most that may be missing in a sum: bounds add up, as a word may be missing in several terms."""
    bound = n_words = n_occurrences = 0
    for term in terms:
        missing = term.artifact.report["pruned"]
        weight = max((weights[group] for group in term.groups()), default=Fraction(0))
        bound += math.ceil(missing["bound"] * weight)
        n_words += missing["n_words"]
        n_occurrences += math.ceil(missing["n_occurrences"] * weight)
    return Pruning(bound, n_words, n_occurrences)


def subtract(term: Term, other: Term, output: str) -> CountsArtifact:
    """Writes an artifact minus another that was counted as a part of it.

    Raises:
      ValueError: if the other counts a word more often or has a larger total; or as for `merge`.
    """
    pruning = Pruning(**term.artifact.report["pruned"])
    if pruning.bound or other.artifact.report["pruned"]["bound"]:
        raise ValueError(
            "counts that were pruned cannot be subtracted: what was left out of one may be in the other; count both "
            "without min_count and max_words"
        )
    groups, taken, n_partitions = term.groups(), other.groups(), _n_partitions([term, other])
    if foreign := sorted(taken.keys() - groups.keys()):
        raise ValueError(f"{other.artifact.output!r} has counts of {foreign[0]!r}, {term.artifact.output!r} has none")

    def streams(partition: int, group: Group) -> Iterator[pa.Table]:
        left = term.stream(partition, n_partitions, groups[group])
        right = other.stream(partition, n_partitions, taken[group]) if group in taken else iter(())
        # Subtracts by adding negative counts; no sum may be below zero.
        for table in merge_streams([left, map(_negative, right)]):
            lowest = pc.min(table["count"]).as_py()
            if lowest < 0:
                word = table["word"][pc.index(table["count"], lowest).as_py()].as_py()
                raise ValueError(
                    f"{other.artifact.output!r} counts {word.decode(errors='replace')!r} {-lowest} times more than "
                    f"{term.artifact.output!r}; counts must not become negative"
                )
            yield table.filter(pc.greater(table["count"], 0))

    totals = {group: dict(numbers) for group, numbers in term.totals().items()}
    for group, numbers in other.totals().items():
        for name, number in numbers.items():
            totals[group][name] -= number
            if totals[group][name] < 0:
                raise ValueError(f"{other.artifact.output!r} has more {name[2:]} than {term.artifact.output!r}")
    totals = {group: numbers for group, numbers in totals.items() if numbers["n_words"] or numbers["n_documents"]}
    return _write("subtract", [term, other], output, streams, totals, None, Pruning(), {})


def weighted(table: pa.Table, weight: Fraction) -> pa.Table:
    """Returns word counts times a weight, rounded half up, without words whose count becomes 0.

    Raises:
      ValueError: if a count does not fit in 63 bits.
    """
    if weight == 1:
        return table
    numbers = table["count"].combine_chunks().to_numpy()
    n, d = weight.numerator, weight.denominator
    if 2 * (int(numbers.max(initial=0)) * n + d) <= MAX_COUNT:
        scaled = (numbers * (2 * n) + d) // (2 * d)
    else:
        exact = [_scale(number, weight) for number in numbers.tolist()]
        scaled = np.array(exact, np.int64)
    result = pa.table([table["word"], pa.array(scaled)], schema=schemas.WORD_COUNTS)
    return result.filter(pc.greater(result["count"], 0))


def _scale(number: int, weight: Fraction) -> int:
    scaled = (2 * number * weight.numerator + weight.denominator) // (2 * weight.denominator)
    if scaled > MAX_COUNT:
        raise ValueError(f"{number} times {float(weight)} is {scaled}, more than 2**63 - 1; take smaller weights")
    return scaled


def _negative(table: pa.Table) -> pa.Table:
    return pa.table([table["word"], pc.negate(table["count"])], schema=schemas.WORD_COUNTS)


def _write(
    kind: str,
    terms: Sequence[Term],
    output: str,
    streams: Any,
    totals: Mapping[Group, Mapping[str, int]],
    characters: npt.NDArray[np.int64] | None,
    pruning: Pruning,
    more: Mapping[str, Any],
) -> CountsArtifact:
    """Writes an artifact whose words are `streams(partition, group)`, and returns it."""
    if storage.exists(storage.join(output, counts.REPORT_NAME)):
        raise ValueError(f"output folder {output!r} holds counts already; choose another folder")
    labels, artifact = terms[0].labels, terms[0].artifact
    n_partitions = _n_partitions(terms)
    found, files, written = np.zeros(counts.N_CODE_POINTS, np.int64), [], Counts()
    for partition in range(n_partitions):
        with Staging(output, f"counts-{partition}") as staging:
            writer = PartitionWriter(staging.create(counts.partition_name(partition, n_partitions)), labels)
            for group in sorted(totals):
                writer.add_group(group, streams(partition, group))
            files.append(writer.finish())
            staging.publish()
        found = _add_characters([found, writer.characters])
        written.add_groups(writer.counts.groups)
    no_words, rows = {"n_words": 0, "n_distinct_words": 0}, counts.groups_of(written.groups)
    groups: list[dict[str, Any]] = [
        {"labels": list(group), **totals[group], **rows.get(group, no_words)} for group in sorted(totals)
    ]
    if (n_words := sum(group["n_words"] for group in groups)) > MAX_COUNT:
        raise ValueError(f"all words add up to {n_words}, more than 2**63 - 1; take smaller weights")
    summed = {name: sum(int(group[name]) for group in groups) for name in (*_TOTALS, "n_distinct_words")}
    counts.finish_artifact(
        output,
        labels=labels,
        words=artifact.words,
        totals=summed,
        groups=groups,
        pruning=pruning,
        partitions=files,
        characters=found if characters is None else characters,
        made={"how": kind, "of": [{"digest": term.artifact.digest, "name": term.name} for term in terms], **more},
    )
    return counts.open_counts(output)


def _add_characters(parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Adds up counts of characters.

    Raises:
      ValueError: if one comes near to 63 bits.
    """
    if (most := float(np.sum([part.astype(np.float64) for part in parts], axis=0).max())) > MAX_COUNT / 2:
        raise ValueError(f"a character would be counted {most:.3g} times, too close to 2**63; take smaller weights")
    return np.sum(parts, axis=0, dtype=np.int64)


def top_words(artifact: CountsArtifact, n: int) -> Iterable[tuple[str, int]]:
    """Returns the n most frequent words, all groups added up, ties by bytes. Memory: a row group and n words."""
    best = schemas.WORD_COUNTS.empty_table()
    for partition in range(len(artifact.files)):
        for table in merge_streams([artifact.stream(partition, group) for group in artifact.groups]):
            both = pa.concat_tables([best, table])
            best = both.sort_by([("count", "descending"), ("word", "ascending")]).slice(0, n).combine_chunks()
    return [(row["word"].decode(), row["count"]) for row in best.to_pylist()]
