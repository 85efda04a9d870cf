# SPDX-License-Identifier: Apache-2.0
"""The committed `tokenizer/unicode/data.npz` is what `tools.unicode` makes of unicodedata2 and `regex`.

What it makes of HF tokenizers, in ten minutes, `test_unicode_tables.py`, `test_normalizers.py` and
`test_pre_tokenizers.py` compare with HF on every code point.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("unicodedata2", reason="needs the test group: unicodedata2")

from tokenmill.tokenizer.unicode import data
from tools.unicode import patterns, scripts, text

pytestmark = pytest.mark.parity


def test_newer_categories_are_those_of_unicode_17() -> None:
    older = {"patterns/categories": data.array("patterns/categories")}
    for name, array in patterns.newer_categories(older).items():
        assert np.array_equal(array, data.array(name))


@pytest.mark.parametrize(
    ("folder", "ask"),
    [
        ("scripts/", scripts.arrays),
        ("text/", lambda: text.arrays({name: data.array(name) for name in data.CONTENTS})),
    ],
)
def test_the_libraries_say_what_is_committed(folder: str, ask: Callable[[], dict[str, Any]]) -> None:
    found = ask()
    assert found.keys() == {name for name in data.CONTENTS if name.startswith(folder)}
    for name, array in found.items():
        assert np.array_equal(array, data.array(name)), name
        assert array.dtype == data.array(name).dtype, name
