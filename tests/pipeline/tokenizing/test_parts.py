# SPDX-License-Identifier: Apache-2.0
"""Parts by shares: the hash and its ranges against plain Python."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import shuffling as reference
from tokenmill.pipeline.books.sums import hash_texts
from tokenmill.pipeline.config.output import PartsConfig
from tokenmill.pipeline.tokenizing.pages import part_of

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(["", "\0", "\0\0"]))


def part_of_one(text, splits):
    """In plain Python: the part whose range of hashes has that of the text."""
    below = Fraction(0)
    names = sorted(splits)
    for index, name in enumerate(names[:-1]):
        below += Fraction(splits[name])
        if Fraction(reference.hash_text(text), 1 << 64) < below:
            return index
    return len(names) - 1


@given(TEXTS, st.integers(0, 3))
def test_hashes_are_those_of_plain_python_and_of_nothing_but_the_text(texts, start):
    found = hash_texts(pa.array(texts, pa.string())[start:])
    assert found.dtype == np.uint64
    assert found.tolist() == [reference.hash_text(text) for text in texts[start:]]


@given(TEXTS, st.lists(st.integers(1, 100), min_size=2, max_size=6))
def test_parts_are_those_of_plain_python(texts, weights):
    splits = {f"p{i}": weight / sum(weights) for i, weight in enumerate(weights)}
    assert PartsConfig.model_validate({"shares": splits}).shares == splits
    found = part_of(pa.array(texts, pa.string()), splits)
    # A share that is no binary fraction is a range whose end is rounded: to less than one hash.
    assert found.tolist() == [part_of_one(text, splits) for text in texts]
