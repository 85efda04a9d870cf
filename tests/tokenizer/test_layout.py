# SPDX-License-Identifier: Apache-2.0
"""Rows of the tokens of texts: what truncation keeps, windows, special tokens, padding; against plain Python and HF."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import Layout, Padding, Tokenizer, Truncation

FRAMES = st.lists(st.integers(100, 103), max_size=3)
TEXTS = st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=5)


def column(texts: list[list[int]]) -> pa.LargeListArray:
    return pa.array(texts, pa.large_list(pa.field("element", pa.int32(), nullable=False)))


def layout(before: list[int], after: list[int], *shape: Truncation | Padding | None) -> Layout:
    return Layout(np.array(before, np.int32), np.array(after, np.int32), *shape)


@given(TEXTS, FRAMES, FRAMES, st.integers(6, 12), st.sampled_from(["left", "right"]), st.sampled_from([None, 0, 14]))
def test_rows_are_as_plain_python_lays_them_out(texts, before, after, max_length, side, length):
    room = max_length - len(before) - len(after)
    padding = None if length is None else Padding(length, side, pad_id=77)
    expected = []
    for text in texts:
        kept = text[len(text) - room :] if side == "left" and len(text) > room else text[:room]
        row = [*before, *kept, *after]
        filling = [77] * max(0, (length or 0) - len(row))
        expected.append(filling + row if side == "left" else row + filling)
    made = layout(before, after, Truncation(max_length, direction=side), padding)
    lengths = np.array([len(text) for text in texts], np.int64)
    kept = made.kept(lengths)
    assert kept.tolist() == [min(len(text), room) for text in texts]
    rows = made.apply(column(texts))
    assert rows.to_pylist() == expected
    starts, stops = made.spans(rows, kept)
    ids = rows.values.to_numpy()
    spans = [ids[start:stop].tolist() for start, stop in zip(starts, stops, strict=True)]
    assert spans == [[i for i in row if i != 77] for row in expected]


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 19), st.sampled_from(["left", "right"]))
def test_parts_repeat_as_much_as_stride_says(n, kept, stride, side):
    if kept <= stride or n <= kept:
        return
    expected = [[*range(n)][max(0, stop - kept) : stop] for stop in range(n, stride, stride - kept)]
    if side == "right":
        expected = [[n - 1 - i for i in reversed(part)] for part in expected]
    parts = Truncation(kept, direction=side, stride=stride).parts(n, kept)
    assert [[*range(*part)] for part in parts] == expected
    assert [parts[i] for i in range(-len(expected), 0)] == list(parts)


def test_a_part_of_very_many_is_found_at_once():
    parts = Truncation(3, stride=2).parts(1 << 40, 3)
    assert (len(parts), parts[1 << 39]) == ((1 << 40) - 2, (1 << 39, (1 << 39) + 3))


@given(st.lists(st.integers(0, 40), max_size=6), FRAMES, st.integers(7, 20), st.integers(0, 19))
def test_windows_are_the_parts_of_a_truncation(lengths, before, max_length, stride):
    if stride >= max_length:
        return
    truncation = Truncation(max_length, stride=stride)
    made = layout(before, [], truncation)
    room = max_length - len(before)
    if stride >= room:
        with pytest.raises(ValueError, match=f"must be more than stride {stride}"):
            made.windows(np.array(lengths, np.int64))
        return
    expected = [(i, *part) for i, n in enumerate(lengths) for part in truncation.parts(n, min(n, room))]
    assert list(zip(*made.windows(np.array(lengths, np.int64)), strict=True)) == expected


def test_windows_are_made_on_the_right_only():
    for truncation in (None, Truncation(5, direction="left")):
        with pytest.raises(ValueError, match="windows are made by a truncation on the right"):
            layout([], [], truncation).windows(np.array([9]))


def test_nothing_stands_around_nulls_and_ids_may_be_put_inside_of_a_template(tiny_vocab):
    tokenizer = Tokenizer.for_bert(tiny_vocab)
    cls, sep = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    made = tokenizer.layout(True, prepend=[7], append=[8, 9])
    assert (made.before.tolist(), made.after.tolist(), made.n_around) == ([cls, 7], [8, 9, sep], 5)
    assert made.apply(column([[1], None, []])).to_pylist() == [[cls, 7, 1, 8, 9, sep], None, [cls, 7, 8, 9, sep]]
    plain = column([[1], [2, 3]])
    assert tokenizer.layout().apply(plain) is plain


@pytest.mark.parametrize("span", [(-1, 2), (0, 5), (3, 5), (3, 1)])
def test_spans_outside_of_the_tokens_are_refused(span):
    starts, stops = (np.array([0, place], np.int64) for place in span)
    stops[0] = 4
    with pytest.raises(ValueError, match="spans must be inside the 4 tokens"):
        layout([1], [2]).lay_out(np.arange(4, dtype=np.int32), starts, stops)
