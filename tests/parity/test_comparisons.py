# SPDX-License-Identifier: Apache-2.0
"""The numbers of a comparison beside those of TokLens' and TokEval's own code, on the Universal Declaration."""

import pytest

from benchmarks import compare

pytestmark = pytest.mark.parity


def test_numbers_are_those_of_toklens_and_tokeval(declarations, shared_data, capsys):
    if compare.toklens() is None and compare.tokeval() is None:
        pytest.skip("needs TokLens or TokEval; benchmarks/compare.py says where they are from")
    assert compare.main(["--languages", *compare.SHOWN]) == 0
    assert "0 of the numbers differ" in capsys.readouterr().out
