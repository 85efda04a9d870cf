# SPDX-License-Identifier: Apache-2.0
"""Counts add up, weight and subtract: exactly, in one order of rounding, or not at all."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokenmill.pipeline import schemas
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.counting.arithmetic import Term, check_terms, merge, subtract, weighted, weights_of
from tokenmill.pipeline.counting.counts import PartitionWriter, Pruning, open_counts
from tokenmill.pipeline.counting.partitions import partitions_of
from tokenmill.pipeline.counting.words import describe_words, differences, preset
from tokenmill.pipeline.output.staging import Staging
from tokenmill.tokenizer import Tokenizer

WORDS = describe_words(Tokenizer.untrained_bert().to_str())
N_PARTITIONS = 2
A = {"the": 5, "mill": 3, "字": 1}
B = {"the": 2, "grinds": 4}


def write(output, groups, *, words=WORDS, labels=(), bound=0, n=N_PARTITIONS):
    """Writes an artifact with the counts of each group, {} for one without labels."""
    output = str(output)
    if not labels:
        groups = {(): groups}
    files, characters, pruning = [], np.zeros(counts.N_CODE_POINTS, np.int64), Pruning(bound)
    for partition in range(n):
        with Staging(output, "w") as staging:
            writer = PartitionWriter(staging.create(counts.partition_name(partition, n)), labels, bound)
            for group, numbers in sorted(groups.items()):
                ordered = sorted((word.encode(), n) for word, n in numbers.items())
                columns = [pa.array([w for w, _ in ordered], pa.large_binary()), pa.array([n for _, n in ordered])]
                table = pa.table(columns, schema=schemas.WORD_COUNTS)
                writer.add_group(group, [pa.Table.from_batches([list(partitions_of(table, n))[partition]])])
            files.append(writer.finish())
            staging.publish()
        characters += writer.characters
        pruning += writer.pruning
    described = [
        {
            "labels": list(group), "n_documents": 2, "n_text_bytes": 100, "n_chars": 90,
            "n_words": sum(numbers.values()), "n_distinct_words": len(numbers),
        }
        for group, numbers in sorted(groups.items())
    ]  # fmt: skip
    totals = {name: sum(group[name] for group in described) for name in described[0] if name != "labels"}
    counts.finish_artifact(
        output, labels=labels, words=words, totals=totals, groups=described, pruning=pruning, partitions=files,
        characters=characters,
    )  # fmt: skip
    return Term(open_counts(output))


def loaded(artifact, groups=None):
    return {row["word"].decode(): row["count"] for row in artifact.load(groups).to_pylist()}


def artifact_bytes(folder):
    return {path.name: path.read_bytes() for path in (folder / "counts").glob("*.parquet")}


def add(terms, output, **options):
    check_terms(terms)
    return merge(terms, str(output), weights_of(terms, options.get("given", {}), options.get("temperature")))


def test_a_sum_is_what_counting_both_would_give(tmp_path):
    a, b = write(tmp_path / "a", A), write(tmp_path / "b", B)
    both = dict(Counter(A) + Counter(B))
    merged = add([a, b], tmp_path / "sum")
    assert loaded(merged) == both
    write(tmp_path / "both", both)
    assert artifact_bytes(tmp_path / "sum") == artifact_bytes(tmp_path / "both")
    assert merged.report["totals"]["n_words"] == 15
    assert merged.report["totals"]["n_documents"] == 4
    assert merged.digest == open_counts(str(tmp_path / "both")).digest
    assert merged.report["made"]["how"] == "merge"
    assert [part["digest"] for part in merged.report["made"]["of"]] == [a.artifact.digest, b.artifact.digest]


def test_artifacts_of_large_and_small_corpora_add_up(tmp_path):
    numbers = {f"word{i}": i for i in range(1, 300)}
    same = add([write(tmp_path / "a", numbers), write(tmp_path / "b", B)], tmp_path / "same")
    for first, second in ((16, 2), (2, 16), (8, 8)):
        terms = [write(tmp_path / f"a{first}", numbers, n=first), write(tmp_path / f"b{second}", B, n=second)]
        merged = Term(add(terms, tmp_path / f"sum-{first}-{second}"))
        assert len(merged.artifact.files) == min(first, second)
        assert loaded(merged.artifact) == loaded(same)
        assert (merged.artifact.digest == same.digest) == (len(merged.artifact.files) == N_PARTITIONS)
        assert loaded(subtract(merged, terms[1], str(tmp_path / f"left-{first}-{second}"))) == numbers
    odd = [write(tmp_path / f"{n}", B, n=n) for n in (4, 6)]
    with pytest.raises(ValueError, match="has 6 partitions, which is no multiple of the 4 of another"):
        check_terms(odd)


def test_what_was_added_can_be_taken_away_again(tmp_path):
    a, b = write(tmp_path / "a", A), write(tmp_path / "b", B)
    both = Term(add([a, b], tmp_path / "sum"))
    left = subtract(both, b, str(tmp_path / "left"))
    assert artifact_bytes(tmp_path / "left") == artifact_bytes(tmp_path / "a")
    assert left.report["totals"] == a.artifact.report["totals"]
    nothing = subtract(a, a, str(tmp_path / "nothing"))
    assert loaded(nothing) == {}


def test_names_become_sources_that_can_be_weighted(tmp_path):
    a, b = (Term(write(tmp_path / name, numbers).artifact, name) for name, numbers in (("a", A), ("b", B)))
    merged = add([a, b], tmp_path / "sum", given={"a": Fraction(1, 2), "b": Fraction(3)})
    assert merged.labels == ("source",)
    # 5, 3 and 1 halved, a half counting as one more.
    assert loaded(merged, [("a",)]) == {"the": 3, "mill": 2, "字": 1}
    assert loaded(merged, [("b",)]) == {"the": 6, "grinds": 12}
    groups = {tuple(group["labels"]): group for group in merged.report["groups"]}
    assert (groups["a",]["n_words"], groups["a",]["n_documents"]) == (6, 1)
    assert (groups["b",]["n_words"], groups["b",]["n_documents"]) == (18, 6)
    again = add([Term(merged)], tmp_path / "none of a", given={"a": Fraction(0)})
    assert loaded(again) == {"the": 6, "grinds": 12}


def test_temperature_evens_out_the_sources(tmp_path):
    term = write(tmp_path / "a", {("large",): {"a": 9000}, ("small",): {"b": 1000}}, labels=("source",))
    assert weights_of([term], {}, 1.0) == {("large",): 1, ("small",): 1}
    merged = add([term], tmp_path / "t2", temperature=2.0)
    # The square roots are 3 to 1, and the total stays.
    assert loaded(merged) == {"a": 7500, "b": 2500}
    even = weights_of([term], {"small": Fraction(2)}, 1e9)
    assert [float(even[group]) for group in (("large",), ("small",))] == pytest.approx([5 / 9, 10], rel=1e-5)


@given(st.lists(st.integers(1, (1 << 63) - 1), max_size=5), st.fractions(0, 1, max_denominator=1000))
@example(numbers=[7], weight=Fraction(1, 5 * 10**18))
@example(numbers=[(1 << 62) // 3], weight=Fraction(1, (1 << 62) + 1))
def test_weights_round_half_up(numbers, weight):
    words = pa.array([b"%d" % i for i in range(len(numbers))], pa.large_binary())
    table = pa.table([words, pa.array(numbers, pa.int64())], schema=schemas.WORD_COUNTS)
    expected = [(n * weight + Fraction(1, 2)).__floor__() for n in numbers]
    assert weighted(table, weight)["count"].to_pylist() == [n for n in expected if n]


def test_numbers_beyond_63_bits_are_refused(tmp_path):
    a = Term(write(tmp_path / "a", {"x": 1 << 40}).artifact, "a")
    assert loaded(add([a], tmp_path / "fits", given={"a": Fraction(1 << 20)})) == {"x": 1 << 60}
    with pytest.raises(ValueError, match=r"1099511627776 times 16777216\.0 is 18446744073709551616, more than 2\*\*63"):
        add([a], tmp_path / "no", given={"a": Fraction(1 << 24)})
    b = write(tmp_path / "b", {"x": (1 << 62) - 5000})
    with pytest.raises((ValueError, OverflowError), match=r"2\*\*63"):
        add([b, b, b], tmp_path / "nor this")


@pytest.mark.parametrize(
    ("given", "temperature", "message"),
    [
        ({"y": Fraction(1)}, None, "there is no source 'y' to weight; there are x"),
        ({"x": Fraction(-1)}, None, r"weights must not be negative, got x=-1\.0"),
        ({}, 0.0, r"temperature must be a positive number, got 0\.0"),
        ({}, 0.0005, r"temperature 0\.0005 is too low for 9 words of one source; take a higher one"),
        ({}, 5e-324, "temperature 5e-324 is too low for 9 words"),
        ({}, float("nan"), "temperature must be a positive number, got nan"),
    ],
)
def test_weights_that_make_no_sense(tmp_path, given, temperature, message):
    term = write(tmp_path / "a", {("x",): A}, labels=("source",))
    with pytest.raises(ValueError, match=message):
        weights_of([term], given, temperature)


def test_nothing_becomes_negative(tmp_path):
    a, b = write(tmp_path / "a", A), write(tmp_path / "b", {"the": 7})
    with pytest.raises(ValueError, match=r"counts 'the' 2 times more than .*; counts must not become negative"):
        subtract(a, b, str(tmp_path / "no"))
    more = write(tmp_path / "c", A | {"the": 50})
    with pytest.raises(ValueError, match="has more words than"):
        subtract(a, Term(more.artifact), str(tmp_path / "nor this"))
    pruned = write(tmp_path / "d", A, bound=1)
    with pytest.raises(ValueError, match="counts that were pruned cannot be subtracted"):
        subtract(a, pruned, str(tmp_path / "nor that"))


def test_words_are_named_as_a_config_names_them():
    names = ("bert", "qwen", "none")
    words = {name: describe_words(Tokenizer.untrained("none", name).to_str()) for name in names}
    assert [preset(words[name]["pre_tokenizer"]) for name in names] == [*names]
    assert preset({"type": "Other"}) == ""
    assert differences(words["qwen"], words["none"]) == "pre_tokenizer qwen, not none"
    assert differences(words["qwen"], words["qwen"]) == ""
