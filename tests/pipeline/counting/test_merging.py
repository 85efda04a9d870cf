# SPDX-License-Identifier: Apache-2.0
"""Runs of word counts: added up in bounded memory, and only where two say the same words."""

import itertools
import json
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline import schemas
from tokenmill.pipeline.counting import merging
from tokenmill.pipeline.counting.merging import merge_counts
from tokenmill.pipeline.counting.words import deciding, describe_words
from tokenmill.tokenizer import Tokenizer

WORDS = st.one_of(st.binary(max_size=3), st.sampled_from([b"a" * 20, b"a" * 20 + b"\0", b"a" * 19 + b"\xff"]))
RUNS = st.lists(st.dictionaries(WORDS, st.integers(1, 9), max_size=8), max_size=12)


def table(counts: dict[bytes, int]) -> pa.Table:
    words = sorted(counts)
    arrays = [pa.array(words, pa.large_binary()), pa.array([counts[word] for word in words], pa.int64())]
    return pa.table(arrays, schema=schemas.WORD_COUNTS)


def total(runs: list[dict[bytes, int]]) -> list[tuple[bytes, int]]:
    found: Counter[bytes] = Counter()
    for run in runs:
        found.update(run)
    return sorted(found.items())


def rows(tables) -> list[tuple[bytes, int]]:
    tables = list(tables)
    assert all(each.num_rows for each in tables)
    return [(row["word"], row["count"]) for each in tables for row in each.to_pylist()]


@pytest.mark.parametrize(
    ("merge_bytes", "batch_bytes", "blocks_bytes"), [(1 << 20, 1 << 16, 1 << 20), (0, 1, 1), (100, 50, 200)]
)
def test_sums_are_those_of_a_dictionary(tmp_path, monkeypatch, merge_bytes, batch_bytes, blocks_bytes):
    monkeypatch.setattr(merging, "MERGE_BYTES", merge_bytes)
    monkeypatch.setattr(merging, "_BATCH_BYTES", batch_bytes)
    monkeypatch.setattr(merging, "_BLOCKS_BYTES", blocks_bytes)

    @given(RUNS)
    def check(runs):
        assert rows(merge_counts(map(table, runs), str(tmp_path), "0")) == total(runs)
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    check()


def test_counts_beyond_63_bits_are_an_error(tmp_path):
    most = (1 << 63) - 1
    assert rows(merge_counts([table({b"a": most - 1}), table({b"a": 1})], str(tmp_path), "0")) == [(b"a", most)]
    with pytest.raises(OverflowError, match="more than 2\\*\\*63 - 1"):
        rows(merge_counts([table({b"a": most}), table({b"a": 1})], str(tmp_path), "0"))


TEXTS = pa.array(["The mill's 12 wheels,\n don't stop ", " Größe  字字 e\u0301\u2028x", "▁a ▁▁b\tÄ İ"])


def untrained():
    for normalizer, lowercase, accents in itertools.product(
        ("bert", "nfc", "none"), (False, True), (None, False, True)
    ):
        for pre_tokenizer in ("bert", "whitespace_split", "metaspace", "gpt2", "cl100k_base", "none"):
            for byte_level in (False, True):
                yield Tokenizer.untrained(
                    normalizer, pre_tokenizer, lowercase=bool(lowercase), strip_accents=accents, byte_level=byte_level
                )


def test_words_are_described_alike_only_if_they_are_the_same():
    found: dict[str, list[dict]] = {}
    for tokenizer in untrained():
        counter = tokenizer.new_word_counter()
        counter.update(TEXTS)
        described = json.dumps(describe_words(tokenizer.to_str()), sort_keys=True)
        found.setdefault(described, []).append(counter.to_table().sort_by("word").to_pydict())
    assert all(counts == tables[0] for tables in found.values() for counts in tables)
    # With and without a byte alphabet; accents that follow the case, and accents that are said to.
    assert len(found) == (4 + 4 + 4) * 6


def test_what_does_not_decide_is_left_out():
    gpt2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    words = {"normalizer": None, "pre_tokenizer": gpt2, "unicode": {}}
    nested = {"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": [gpt2]}]}
    assert deciding(words) == deciding({**words, "pre_tokenizer": nested})
    assert deciding(words)["pre_tokenizer"]["type"] == "Split"
    prefixed = {**gpt2, "add_prefix_space": True}
    described = [
        deciding({**words, "pre_tokenizer": {**prefixed, "trim_offsets": trim}})["pre_tokenizer"]
        for trim in (False, True)
    ]
    assert described[0] == described[1] == prefixed
    assert deciding(deciding(words)) == deciding(words)
