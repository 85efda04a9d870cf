# SPDX-License-Identifier: Apache-2.0
"""Long lists of a manifest: in files beside it, and for whoever reads them what short ones are."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.finished_splits import ENTRIES, SPLITS, built, entry_of, pieces
from tokenmill.pipeline.books import lists, manifest
from tokenmill.pipeline.books.manifest import NameSet

FILTERED = dataclasses.replace(
    ENTRIES[0].inputs[0], n_documents=9, n_document_bytes=90, n_filtered_bytes=10, filtered={"short": 1}
)


@pytest.fixture
def long_lists(monkeypatch):
    """Makes every list a long one, of three records a row group."""
    monkeypatch.setattr(lists, "MOST_RECORDS", 0)
    monkeypatch.setattr(lists, "ROWS", 3)


def entries(n):
    """Yields entries of splits that differ in what they have: rejects, filtered documents, a compressed file."""
    for i in range(n):
        gzipped = {"compression": "gzip"} if i % 3 == 2 else {}
        split = dataclasses.replace(SPLITS[0], index=i, id=f"{i:016x}", pieces=pieces((f"päper {i}", 100), **gzipped))
        entry = entry_of(split, 100, n_rejected=10 * (i % 2), n_splits=n)
        yield dataclasses.replace(entry, inputs=(FILTERED,)) if i % 5 == 4 else entry


@pytest.mark.parametrize("n", [1, 3, 7])
def test_long_lists_hold_what_short_ones_do(tmp_path, monkeypatch, n):
    (tmp_path / "_ledger").mkdir()
    short = built(entries(n))
    monkeypatch.setattr(lists, "MOST_RECORDS", 0)
    monkeypatch.setattr(lists, "ROWS", 3)
    long = built(entries(n), output=tmp_path)
    assert (short["format_version"], long["format_version"]) == (4, 5)
    assert {name for name in short if short[name] != long[name]} == {
        "format_version", "digest", *(kind for kind in lists.SCHEMAS if short[kind])
    }  # fmt: skip
    found = lists.opened(str(tmp_path), long)
    for kind in lists.SCHEMAS:
        expected = short[kind]
        assert list(found[kind]) == expected
        assert (len(found[kind]), bool(found[kind])) == (len(expected), bool(expected))
        assert [found[kind][i] for i in range(-len(expected), len(expected))] == 2 * expected
        with pytest.raises(IndexError):
            found[kind][len(expected)]
    assert list(manifest.split_ids(found)) == [entry.split_id for entry in entries(n)]


def test_lists_stand_in_the_manifest_up_to_a_length(tmp_path, monkeypatch):
    (tmp_path / "_ledger").mkdir()
    monkeypatch.setattr(lists, "MOST_RECORDS", 3)
    found = built(entries(4), output=tmp_path)
    assert isinstance(found["rejects"], list)
    assert found["shards"]["rows"] == 4
    assert isinstance(built(entries(3), output=tmp_path)["shards"], list)


@pytest.mark.usefixtures("long_lists")
def test_a_list_that_is_not_as_it_was_written_is_named(tmp_path):
    (tmp_path / "_ledger").mkdir()
    made = built(entries(7), output=tmp_path)
    path = tmp_path / "_ledger" / "shards.parquet"
    path.write_bytes((tmp_path / "_ledger" / "inputs.parquet").read_bytes())
    with pytest.raises(ValueError, match=r"_ledger/shards\.parquet: not the list 'shards' as TokenMill writes it"):
        list(lists.opened(str(tmp_path), made)["shards"])
    with pytest.raises(ValueError, match=r"_ledger/documents\.parquet: not the list 'documents'"):
        list(lists.opened(str(tmp_path), {**made, "documents": made["documents"] | {"rows": 6}})["documents"])
    path.write_bytes(b"PAR1 and so on")
    with pytest.raises(ValueError, match=r"_ledger/shards\.parquet: not a list of 7 records"):
        list(lists.opened(str(tmp_path), made)["shards"])


@given(st.lists(st.text(max_size=5)), st.text(max_size=5))
def test_a_set_of_names_has_what_was_added(names, other):
    found = NameSet(names)
    assert all(name in found for name in names)
    assert (other in found) == (other in names)
