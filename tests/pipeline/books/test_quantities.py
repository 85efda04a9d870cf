# SPDX-License-Identifier: Apache-2.0
"""The table of what is counted: whoever counts has its names, and every term of an equation is in it."""

import dataclasses

import pytest

from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.input_counts import PieceCounts
from tokenmill.pipeline.books.quantities import Equation

EQUATIONS = [each for found in vars(quantities).values() if isinstance(found, tuple) for each in found]
EQUATIONS = [each for each in EQUATIONS if isinstance(each, Equation)]


def names(*tables):
    return {quantity.name for table in tables for quantity in table}


def test_whoever_counts_has_the_names_of_the_table():
    assert set(quantities.counted(PieceCounts)) >= names(quantities.READ)
    counted = {each.name for each in dataclasses.fields(PieceCounts) if each.name.startswith("n_")}
    assert counted <= set(quantities.counted(PieceCounts)), "a quantity that no sum and no check knows"


def test_equations_speak_of_quantities_of_the_table():
    known = names(quantities.READ, quantities.TEXTS, quantities.TOKENIZED, quantities.WRITTEN)
    assert len(EQUATIONS) > 15
    assert {name for each in EQUATIONS for name in (*each.left, *each.right)} <= known


@pytest.mark.parametrize("equation", EQUATIONS, ids=str)
def test_an_equation_says_which_numbers_differ(equation):
    counts = dict.fromkeys((*equation.left, *equation.right), 0)
    assert equation.imbalance(counts) is None
    for name in counts:
        wrong = equation.imbalance(counts | {name: 7})
        assert wrong is not None
        assert wrong.count("7") == 1
        assert " != " in wrong


def test_sums_are_of_quantities_alone():
    one = PieceCounts(n_records=2, n_documents=1, rejected={"b": 1}, sha256="x")
    two = PieceCounts(n_records=1, rejected={"a": 1})
    assert one + two == PieceCounts(n_records=3, n_documents=1, rejected={"a": 1, "b": 1})
    assert quantities.plus(None, None) is None
    assert quantities.plus({}, None) == {}
    assert quantities.plus({"a": 2}, {"a": -2, "b": 1}) == {"b": 1}
