# SPDX-License-Identifier: Apache-2.0
"""The committed `tokenizer/unicode/data.npz` is what the libraries say that it is made from, byte for byte."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
pytest.importorskip("unicodedata2", reason="needs the test group: unicodedata2")

from tokenizer.unicode import data
from tools.unicode import bert, normalization, packing, patterns, scripts, text

pytestmark = pytest.mark.parity


def committed() -> dict[str, Any]:
    return {name: data.array(name) for name in data.CONTENTS}


def test_packing_the_committed_arrays_gives_the_committed_file() -> None:
    assert packing.packed(committed()) == data.PATH.read_bytes()


def test_arrays_are_of_the_kinds_that_the_reader_knows() -> None:
    for name, array in committed().items():
        kind = data.CONTENTS[name].split()[0]
        if kind == "names":
            assert array.dtype == np.uint8, name
            assert len(set(data.names(name))) == len(data.names(name)), name
            continue
        assert array.dtype == np.int32, name
        if kind == "runs:":
            assert (array[:, 0] <= array[:, 1]).all(), name
            assert (array[1:, 0] > array[:-1, 1] + 1).all(), name
        elif kind in ("numbered", "pairs:", "pairs"):
            assert array.shape[1] == 3, name


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
