# SPDX-License-Identifier: Apache-2.0
"""The normalizer's kernel against its reference implementation, combining characters in every order among them."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.reference import bert as reference
from tokenmill.tokenizer import BertNormalizer


@given(strategies.text_columns(), st.booleans(), st.booleans(), st.sampled_from([None, True, False]), st.booleans())
def test_normalizing_equals_the_reference(
    column: pa.Array, clean: bool, cjk: bool, strip: bool | None, lowercase: bool
) -> None:
    normalizer = BertNormalizer(clean, cjk, strip, lowercase)
    expected = [reference.normalize(t or "", normalizer) for t in column.to_pylist()]
    assert normalizer.normalize_arrow(column).to_pylist() == expected


def test_a_long_run_of_combining_characters_takes_linear_time() -> None:
    normalizer = BertNormalizer()
    run = "\u302e\U0001d165" * 200_000
    assert normalizer.normalize_str(f"a{run}b") == "a" + "\U0001d165" * 200_000 + "\u302e" * 200_000 + "b"
