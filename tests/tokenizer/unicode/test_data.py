# SPDX-License-Identifier: Apache-2.0
"""The packed file of what Unicode says: the kinds of its arrays, and the same bytes each time it is written."""

import numpy as np
import pytest

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


def test_an_array_that_there_is_not() -> None:
    with pytest.raises(KeyError, match="bert/letters"):
        data.array("bert/letters")


def test_what_is_read() -> None:
    assert data.runs("bert/cjk")[0] == (0x3400, 0x4DBF)
    assert data.members("bert/spaces").nonzero()[0][:6].tolist() == [9, 10, 11, 12, 13, 32]
    assert data.texts("bert/lowercase")[ord("A")] == "a"
    assert data.texts("bert/decompositions")[ord("é")] == "e\u0301"
    assert data.compositions("normalization/compositions")["e", "\u0301"] == "é"
    assert data.numbers("bert/combining_classes")[0x301] == 230
    names = data.names("scripts/script_names")
    assert data.runs_of_number("scripts/scripts", names.index("ADLAM"))[0] == (0x1E900, 0x1E94B)
    assert data.members_of_number("scripts/scripts", names.index("HAN"))[ord("中")]
