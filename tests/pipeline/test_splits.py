# SPDX-License-Identifier: Apache-2.0
"""Splits, packed and one by one."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.splits import Piece, Split, Splits

SIZES = st.integers(0, 1 << 40)
PIECES = st.builds(
    Piece,
    path=st.text(st.characters(exclude_categories=[])),  # a folder may have a name that is not UTF-8
    name=st.text(),
    n_bytes=SIZES,
    version=st.text(),
    format=st.sampled_from(["jsonl", "parquet"]),
    compression=st.sampled_from(["none", "gzip"]),
    start=SIZES,
    stop=SIZES,
    n_text_bytes=SIZES,
    file=st.integers(0, 9),
    encoding=st.sampled_from(["utf-8", "cp1252"]),
)


@given(st.lists(st.lists(PIECES, max_size=3)), st.text(max_size=2))
def test_packed_splits_are_what_was_packed(groups, fields):
    splits = Splits(groups, "salt", fields)
    plain = [Split(i, splits[i].id, tuple(pieces), fields) for i, pieces in enumerate(groups)]
    assert splits == plain == splits[:] == [*splits]
    assert splits == pickle.loads(pickle.dumps(splits))
    assert splits.n_bytes == sum(split.n_bytes for split in plain)
    by_work = sorted(plain, key=lambda split: (-split.n_work, split.index))
    assert [*splits.lines_by_work()] == [split.to_json() for split in by_work]
    others = [split.of_folder(1, "other") for split in splits]
    assert others == [*Splits(groups, "other", fields)]
    assert not {split.id for split in others} & {split.id for split in splits}
    assert splits != [*plain, *plain, plain]
    assert plain[:2] == plain[1::-1] or splits != [*plain[1::-1], *plain[2:]]
