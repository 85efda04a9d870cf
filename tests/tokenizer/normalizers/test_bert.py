# SPDX-License-Identifier: Apache-2.0
"""The normalizer's kernel against its reference implementation, combining characters in every order among them."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.reference import bert as reference
from tokenmill.tokenizer import BertNormalizer

# Combining characters that accent stripping leaves (their category is not Mn in Unicode 8.0) or takes, by class, with
# starters and format characters between them.
REORDERED = "\u302e\u302f\U0001d165\U0001d166\U0001d16d\U0001d16e\u08d4\u1b44\u1baa\U0001e000\U0001e94a"
REMOVED = "\u0301\u0334\u0345\u0900\u200d\u00ad"
COMPOSED = "\U0001d15e\U0001d160\U0001d1bb\U0001d1c0é각"


@given(strategies.text_columns(), st.booleans(), st.booleans(), st.sampled_from([None, True, False]), st.booleans())
def test_normalizing_equals_the_reference(
    column: pa.Array, clean: bool, cjk: bool, strip: bool | None, lowercase: bool
) -> None:
    normalizer = BertNormalizer(clean, cjk, strip, lowercase)
    expected = [reference.normalize(t or "", normalizer) for t in column.to_pylist()]
    assert normalizer.normalize_arrow(column).to_pylist() == expected


@given(st.text(st.sampled_from("a " + REORDERED + REMOVED + COMPOSED), max_size=30), st.booleans())
def test_combining_characters_are_put_in_order(text: str, clean: bool) -> None:
    normalizer = BertNormalizer(clean_text=clean, strip_accents=True)
    assert normalizer.normalize_str(text) == reference.normalize(text, normalizer)


def test_a_long_run_of_combining_characters_takes_linear_time() -> None:
    normalizer = BertNormalizer()
    run = "\u302e\U0001d165" * 200_000
    assert normalizer.normalize_str(f"a{run}b") == "a" + "\U0001d165" * 200_000 + "\u302e" * 200_000 + "b"
