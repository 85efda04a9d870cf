# SPDX-License-Identifier: Apache-2.0
"""The packed file of what Unicode says: the kinds of its arrays, and the same bytes each time it is written."""

import numpy as np

from tokenmill.tokenizer.unicode import data
from tools.unicode import packing


def test_packing_the_committed_arrays_gives_the_committed_file() -> None:
    assert packing.packed({name: data.array(name) for name in data.CONTENTS}) == data.PATH.read_bytes()


def test_arrays_are_of_the_kinds_that_the_reader_knows() -> None:
    for name, array in {name: data.array(name) for name in data.CONTENTS}.items():
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
