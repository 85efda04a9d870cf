# SPDX-License-Identifier: Apache-2.0
"""Rows and back: the places of the reference implementation, every token of packed sequences once and in order."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plain_job import token_rows
from tests.reference import placement as reference
from tokenmill.pipeline import schemas
from tokenmill.pipeline.columns import as_lists
from tokenmill.pipeline.output.arranging import Arranger, place
from tokenmill.pipeline.output.placement import Marks, Placement, RowForm, gather_ids, measure

SEPARATOR, PAD = 7, 9
STRATEGIES = ["concatenate", "best_fit", "no_split"]
lengths_of_documents = st.lists(st.integers(0, 25), max_size=40)


def documents(lengths, first=100):
    """Returns documents of ids that tell where they come from."""
    return [[first + 100 * i + j for j in range(n)] for i, n in enumerate(lengths)]


def pack(rows, strategy, cuts=()):
    """Returns (sequences, counts)."""
    packer = Arranger(RowForm(Marks(), strategy, 8, 0, SEPARATOR, PAD, 8), schemas.TOKENS, schemas.BOUNDARIES, 30)
    batch = token_rows(rows)
    edges = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    found = []
    for start, stop in itertools.pairwise(edges):
        found += list(packer.add(batch.slice(start, stop - start)))
    found += list(packer.rest())
    return [row for part in found for row in part.to_pylist()], packer.counts


@given(lengths_of_documents, st.lists(st.integers(0, 40), max_size=4), st.sampled_from(STRATEGIES))
def test_sequences_do_not_depend_on_batches(lengths, cuts, strategy):
    rows = documents(lengths)
    assert pack(rows, strategy, cuts) == pack(rows, strategy)


def reference_rows(form, totals):
    if form.strategy == "windows":
        return reference.windows(totals, form.length, form.stride)
    if form.strategy == "best_fit":
        return reference.pack_best(totals, form.length)
    return reference.plan_in_order(totals, form.length, form.strategy == "concatenate")


@st.composite
def forms(draw):
    strategy = draw(st.sampled_from([*STRATEGIES, "windows"]))
    length = draw(st.integers(1, 12))
    if strategy != "windows":
        separator = draw(st.sampled_from([None, SEPARATOR]))
        padded = draw(st.sampled_from([0, length]))
        return RowForm(Marks(), strategy, length, 0, separator, PAD if padded else None, padded)
    around = draw(st.sampled_from([(), (50,), (50, 51)])), draw(st.sampled_from([(), (52,)]))
    marks, padded = Marks(before=around[0], after=around[1]), draw(st.sampled_from([0, 20]))
    stride = draw(st.integers(0, length - 1))
    return RowForm(marks, strategy, length, stride, None, PAD, padded, draw(st.booleans()))


@given(lengths_of_documents, forms())
def test_rows_are_placed_and_filled_as_in_plain_python(lengths, form):
    rows, separator = documents(lengths), [SEPARATOR] * form.n_separators
    totals = form.totals(np.array(lengths, np.int64))
    placement = place(totals, form)
    expected = reference_rows(form, totals.tolist())
    n_before = len(form.around_row[0])
    assert [tuple(map(int, piece)) for piece in zip(*vars(placement).values(), strict=True)] == [
        (doc, first, n, row, n_before + sum(size for *_, size in pieces[:i]))
        for row, pieces in enumerate(expected)
        for i, (doc, first, n) in enumerate(pieces)
    ]
    at = measure(placement, form)
    ids = np.array([token for row in rows for token in row], np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    found = as_lists(gather_ids(ids, offsets, placement, at, form), at.offsets).to_pylist()
    whole = [row + separator for row in rows]
    assert found == reference.fill(whole, expected, form.around_row, form.padded, form.pad_id or 0, form.pads_left)
    back = [[-1] * len(row) for row in whole]
    for doc, first, size, start in zip(placement.documents, placement.firsts, placement.sizes, at.at, strict=True):
        back[doc][first : first + size] = np.concatenate([[], *found])[start : start + size].tolist()
    assert back == whole


def table_of(placement, lengths):
    """Returns the columns of a table of documents that say where these are."""
    mine = [np.flatnonzero(placement.documents == doc) for doc in range(len(lengths))]
    return pa.table(
        {
            "n_tokens": pa.array(lengths, pa.int32()),
            "rows": pa.array([placement.rows[each].tolist() for each in mine], pa.list_(pa.int64())),
            "starts": pa.array([placement.starts[each].tolist() for each in mine], pa.list_(pa.int32())),
        }
    )


@given(lengths_of_documents, forms())
def test_a_table_of_documents_tells_where_they_are(lengths, form):
    totals = form.totals(np.array(lengths, np.int64))
    placement = place(totals, form)
    listed = Placement.listed(table_of(placement, lengths), form)
    assert all(
        np.array_equal(ours, theirs)
        for ours, theirs in zip(vars(listed).values(), vars(placement).values(), strict=True)
    )
    n_rows = int(placement.rows[-1]) + 1 if placement.rows.size else 0
    listed.check(totals, n_rows, form)
    with pytest.raises(ValueError, match=f"not in all of the {n_rows + 1} rows"):
        listed.check(totals, n_rows + 1, form)


@given(lengths_of_documents.filter(any), forms(), st.data())
def test_a_table_that_lists_other_places_is_refused(lengths, form, data):
    totals = form.totals(np.array(lengths, np.int64))
    placement = place(totals, form)
    table, n_rows = table_of(placement, lengths), int(placement.rows[-1]) + 1
    name = data.draw(st.sampled_from(["n_tokens", "rows", "starts"]))
    column = table[name].to_pylist()
    doc = data.draw(st.sampled_from([i for i, n in enumerate(lengths) if n]))
    if name == "n_tokens":
        column[doc] += data.draw(st.sampled_from([-1, 1, 20]))
    else:
        piece = data.draw(st.integers(0, len(column[doc]) - 1))
        column[doc][piece] += data.draw(st.sampled_from([-1, 1, 3]))
    changed = table.set_column(table.column_names.index(name), name, pa.array(column, table[name].type))
    try:
        listed = Placement.listed(changed, form)
        listed.check(form.totals(changed["n_tokens"].to_numpy().astype(np.int64)), n_rows, form)
    except ValueError:
        return
    # Nothing is wrong with the places themselves: documents that a row ends with may be longer where it has room.
    assert name == "n_tokens"
    at = measure(listed, form)
    assert (at.n_tokens != measure(placement, form).n_tokens).any()


@pytest.mark.parametrize("strategy", ["concatenate", "best_fit"])
def test_the_first_token_of_a_segment_is_not_trained(strategy):
    # What is in front of it is another document, which says nothing of it.
    lengths = [5, 3, 20, 8, 1]
    rows, schema = documents(lengths), schemas.TOKENS.append(schemas.LOSS_MASK)
    masks = pa.array([[True] * n for n in lengths], schemas.LOSS_MASK.type)
    packer = Arranger(RowForm(Marks(), strategy, 8, 0, SEPARATOR, PAD, 8), schema, schemas.BOUNDARIES)
    batch = pa.record_batch([*token_rows(rows).columns, masks], schema=schema)
    packed = [row for part in (*packer.add(batch), *packer.rest()) for row in part.to_pylist()]
    for row in packed:
        starts = row["cu_seqlens"][:-1]
        of_text = [token >= 100 for token in row["input_ids"]]
        assert row["loss_mask"] == [is_text and i not in starts for i, is_text in enumerate(of_text)]
    assert sum(sum(row["loss_mask"]) for row in packed) == sum(lengths) - packer.counts["n_first_tokens"]
