# SPDX-License-Identifier: Apache-2.0
"""The committed `tokenizer/unicode/data.npz` is what the libraries say that it is made from."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
pytest.importorskip("unicodedata2", reason="needs the test group: unicodedata2")

from tokenizer.unicode import data
from tools.unicode import bert, normalization, patterns, scripts, text

pytestmark = pytest.mark.parity


def committed() -> dict[str, Any]:
    return {name: data.array(name) for name in data.CONTENTS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "ask",
    [bert.arrays, patterns.arrays, normalization.arrays, scripts.arrays, lambda: text.arrays(committed())],
    ids=["bert", "patterns", "normalization", "scripts", "text"],
)
def test_the_libraries_say_what_is_committed(ask: Callable[[], dict[str, Any]]) -> None:
    found = ask()
    prefix = {name.partition("/")[0] for name in found}
    assert found.keys() == {name for name in data.CONTENTS if name.partition("/")[0] in prefix}
    for name, array in found.items():
        assert np.array_equal(array, data.array(name)), name
        assert array.dtype == data.array(name).dtype, name
